"""Any number of files from one encoded base image: random values for the free bits of its scan.

A nonzero AC coefficient is coded as a Huffman code for its category, followed by bits that say which value of the
category it is (T.81 F.1.2.2.1). Any of those values is as valid and as long as any other. So `base XOR (random AND
mask)` is the scan of another image with the same Huffman codes, the same nonzero coefficients and the same work
to decode. A third of all bits are free, spread evenly, so no block of the file is found in another file. DC
coefficients stay: changed differences would drift.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaderprobe.datasets.generate.jpeg.encoder import END_OF_IMAGE, Encoded, stuffed

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """An encoded base image, with the mask of its free bits."""

    start: bytes
    """The bytes before further application segments."""
    tables: bytes
    scan: Words
    """Little-endian words; the last one is filled up with zeros."""
    free: Words
    scan_bytes: int

    @classmethod
    def of(cls, encoded: Encoded) -> Base:
        """The base of an encoded image."""
        return cls(
            start=encoded.start,
            tables=encoded.tables,
            scan=_words(encoded.scan),
            free=_words(encoded.free),
            scan_bytes=len(encoded.scan),
        )

    @property
    def size_bytes(self) -> int:
        """Of the file as it was encoded; others differ by the zeros stuffed behind 0xFF, some 0.1 %."""
        stuffing = self.scan.view(np.uint8)[: self.scan_bytes] == 0xFF
        return len(self.start) + len(self.tables) + self.scan_bytes + int(stuffing.sum()) + len(END_OF_IMAGE)

    def vary(self, bits: np.random.BitGenerator, segments: bytes = b"") -> bytes:
        """A file from this base image, with the free bits drawn from `bits`.

        Only raw words are drawn: numpy keeps the streams of its bit generators, but not of its distributions.
        """
        words = bits.random_raw(len(self.scan)).astype("<u8", copy=False)
        words &= self.free
        words ^= self.scan
        scan = words.view(np.uint8)[: self.scan_bytes].tobytes()
        return b"".join((self.start, segments, self.tables, stuffed(scan), END_OF_IMAGE))


def _words(data: NDArray[np.uint8]) -> Words:
    return np.concatenate([data, np.zeros(-len(data) % 8, np.uint8)]).view("<u8")

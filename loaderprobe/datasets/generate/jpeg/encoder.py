"""The parts of a JPEG file from an image's spectrum: header, scan, and the free bits of the scan."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaderprobe.datasets.generate.jpeg.frame import Frame, Spectrum, quantised
from loaderprobe.datasets.generate.jpeg.huffman import HuffmanCode
from loaderprobe.datasets.generate.jpeg.scan import Tokens, pack, tokens
from loaderprobe.datasets.generate.jpeg.tables import ZIGZAG

START_OF_IMAGE = b"\xff\xd8"
END_OF_IMAGE = b"\xff\xd9"
# T.81 Table B.1, and the application segments of JFIF 1.02 and of Adobe (T.872).
APP0, APP14, QUANTISATION, BASELINE, HUFFMAN, SCAN = 0xE0, 0xEE, 0xDB, 0xC0, 0xC4, 0xDA
JFIF = b"JFIF\0\1\1\0\0\1\0\1\0\0"
# Four components as they are: no transform.
ADOBE = b"Adobe\0\x64\0\0\0\0\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A JPEG file in parts."""

    start: bytes
    """Start of image and the application segment: others may follow it."""
    tables: bytes
    """Everything from the quantisation tables to the scan header."""
    scan: NDArray[np.uint8]
    """Entropy-coded bytes, without stuffing."""
    free: NDArray[np.uint8]
    """As long as the scan: ones where a bit may have any value."""

    def file(self, segments: bytes = b"") -> bytes:
        """The file as it is, with more application segments if wished."""
        return self.start + segments + self.tables + stuffed(self.scan.tobytes()) + END_OF_IMAGE


def stuffed(scan: bytes) -> bytes:
    """The bytes of a scan in a file: a zero after every 0xFF, which would otherwise be a marker (T.81 B.1.1.5)."""
    return scan.replace(b"\xff", b"\xff\0")


def segment(marker: int, body: bytes) -> bytes:
    """A marker segment (T.81 B.1.1.4)."""
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def scan_tokens(spectrum: Sequence[Spectrum], frame: Frame) -> Tokens:
    """The spectrum quantised and cut into tokens."""
    blocks = quantised(spectrum, frame)
    component = np.tile(frame.block_components, len(blocks) // len(frame.block_components))
    table = component.clip(max=1) if frame.components == 3 else np.zeros_like(component)
    return tokens(blocks, component, table)


def encoded(found: Tokens, frame: Frame) -> Encoded:
    """The file of these tokens with its own Huffman tables, as nearly all files of ImageNet have."""
    codes = found.codes()
    scan, free = pack(found, codes)
    application = segment(APP14, ADOBE) if frame.components == 4 else segment(APP0, JFIF)
    return Encoded(start=START_OF_IMAGE + application, tables=_tables(frame, codes), scan=scan, free=free)


def encoded_size(found: Tokens, frame: Frame) -> int:
    """Bytes of the file of these tokens, with the byte stuffing of evenly distributed bytes."""
    codes = found.codes()
    scan = found.bits(codes) // 8 + 1
    return len(START_OF_IMAGE + segment(APP0, JFIF) + END_OF_IMAGE + _tables(frame, codes)) + scan + scan // 256


def _tables(frame: Frame, codes: Sequence[tuple[HuffmanCode, HuffmanCode]]) -> bytes:
    parts = [
        segment(QUANTISATION, bytes([number]) + table[ZIGZAG].astype(np.uint8).tobytes())
        for number, table in enumerate(frame.quantisers)
    ]
    parts.append(_frame_header(frame))
    for number, pair in enumerate(codes):
        # The high half says whether a table is for AC (T.81 B.2.4.2).
        parts += [
            segment(HUFFMAN, bytes([kind << 4 | number, *code.counts, *code.symbols])) for kind, code in enumerate(pair)
        ]
    selectors = b"".join(bytes([each + 1, frame.table_of(each) * 0x11]) for each in range(frame.components))
    # T.81 B.2.3: all of 64 coefficients, no successive approximation.
    parts.append(segment(SCAN, bytes([frame.components]) + selectors + b"\0\x3f\0"))
    return b"".join(parts)


def _frame_header(frame: Frame) -> bytes:
    """T.81 B.2.2."""
    body = struct.pack(">BHHB", 8, frame.height, frame.width, frame.components)
    for component in range(frame.components):
        horizontal, vertical = frame.factors(component)
        body += bytes([component + 1, horizontal << 4 | vertical, frame.table_of(component)])
    return segment(BASELINE, body)

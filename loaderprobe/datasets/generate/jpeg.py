"""Baseline JPEG (ITU-T T.81): an encoder that also returns which bits of the scan are free to change."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]
"""64 quantiser steps in row-major order."""

SIDE = 8
# T.81 Figure A.6: walks the anti-diagonals, upwards in the even ones.
ZIGZAG = np.array(
    sorted(range(64), key=lambda at: (at // 8 + at % 8, at // 8 if (at // 8 + at % 8) % 2 else at % 8)), np.intp
)

# T.81 Table K.1.
LUMINANCE: Table = np.array(
    [
        16, 11, 10, 16, 24, 40, 51, 61,
        12, 12, 14, 19, 26, 58, 60, 55,
        14, 13, 16, 24, 40, 57, 69, 56,
        14, 17, 22, 29, 51, 87, 80, 62,
        18, 22, 37, 56, 68, 109, 103, 77,
        24, 35, 55, 64, 81, 104, 113, 92,
        49, 64, 78, 87, 103, 121, 120, 101,
        72, 92, 95, 98, 112, 100, 103, 99,
    ],
    np.int64,
)  # fmt: skip

# T.81 Table K.2.
CHROMINANCE: Table = np.array(
    [
        17, 18, 24, 47, 99, 99, 99, 99,
        18, 21, 26, 66, 99, 99, 99, 99,
        24, 26, 56, 99, 99, 99, 99, 99,
        47, 66, 99, 99, 99, 99, 99, 99,
        *[99] * 32,
    ],
    np.int64,
)  # fmt: skip


def scaled(table: Table, quality: int) -> Table:
    """The table that the Independent JPEG Group's encoder takes for a quality of 1 to 100."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return ((table * scale + 50) // 100).clip(1, 255)


Plane = NDArray[np.float32]
"""Samples of one component less 128, height x width."""
Spectrum = NDArray[np.float32]
"""DCT coefficients of one component: minimum coded units x blocks in each x 64, row-major within a block."""
Sampling = tuple[int, int]
"""Of the first component against the others: how many times as wide, and as high (T.81 A.1.1)."""

_k = np.arange(SIDE)
# T.81 A.3.3: rows are frequencies.
DCT = (np.sqrt(2 / SIDE) * np.cos((2 * _k[None] + 1) * _k[:, None] * np.pi / (2 * SIDE))).astype(np.float32)
DCT[0] /= np.sqrt(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What the frame header says (T.81 B.2.2): 1 component (grey), 3 (YCbCr) or 4 (all of full size)."""

    width: int
    height: int
    quality: int
    sampling: Sampling = (1, 1)
    components: int = 3

    def factors(self, component: int) -> Sampling:
        """Horizontal and vertical sampling factor of a component."""
        return self.sampling if component == 0 and self.components > 1 else (1, 1)

    def table_of(self, component: int) -> int:
        """Which quantisation and entropy tables a component uses: 0, or 1 for chrominance."""
        return int(component > 0 and self.components == 3)

    @property
    def quantisers(self) -> tuple[Table, ...]:
        """One table, or two where there is chrominance."""
        tables = (LUMINANCE, CHROMINANCE)
        return tuple(scaled(table, self.quality) for table in tables[: 2 if self.components == 3 else 1])

    @property
    def block_components(self) -> NDArray[np.int64]:
        """The component of each block of a minimum coded unit."""
        sizes = [self.factors(component)[0] * self.factors(component)[1] for component in range(self.components)]
        return np.repeat(np.arange(self.components), sizes)


def spectra(planes: Sequence[Plane], frame: Frame) -> tuple[Spectrum, ...]:
    """The DCT of every component, which is linear: a sum of images has the sum of their spectra.

    All planes are of the frame's full size; chrominance is averaged down to its sampling, and edges are
    repeated up to whole units.
    """
    # The minimum coded unit, in samples (T.81 A.2).
    wide, high = (SIDE * factor for factor in frame.factors(0))
    transforms = []
    for component, plane in enumerate(planes):
        padded = np.pad(plane, ((0, -frame.height % high), (0, -frame.width % wide)), "edge")
        horizontal, vertical = frame.factors(component)
        across, down = frame.factors(0)[0] // horizontal, frame.factors(0)[1] // vertical
        if (across, down) != (1, 1):
            padded = padded.reshape(padded.shape[0] // down, down, -1, across).mean((1, 3))
        transforms.append(_dct(padded, horizontal, vertical))
    return tuple(transforms)


def _dct(plane: Plane, horizontal: int, vertical: int) -> Spectrum:
    """Blocks in the order of the scan (T.81 A.2.3): units row by row, and so the blocks within each."""
    rows, columns = plane.shape[0] // SIDE, plane.shape[1] // SIDE
    blocks = plane.reshape(rows, SIDE, columns, SIDE).transpose(0, 2, 1, 3)
    transformed = (DCT @ blocks @ DCT.T).reshape(rows // vertical, vertical, columns // horizontal, horizontal, 64)
    ordered: Spectrum = transformed.transpose(0, 2, 1, 3, 4).reshape(-1, horizontal * vertical, 64)
    return ordered


def quantised(spectrum: Sequence[Spectrum], frame: Frame) -> NDArray[np.int16]:
    """All blocks in the order of the scan, coefficients in zigzag order: blocks x 64 (T.81 A.3.4, A.3.6).

    Clipped to what baseline can code (T.81 F.1.2.1 and F.1.2.2): 11 bits for a DC difference, 10 for the rest.
    """
    parts = []
    for component, coefficients in enumerate(spectrum):
        steps = frame.quantisers[frame.table_of(component)].astype(np.float32)
        parts.append(np.rint(coefficients * (1 / steps))[..., ZIGZAG])
    blocks = np.concatenate(parts, axis=1).reshape(-1, 64)
    clipped: NDArray[np.int16] = blocks.clip(-1023, 1023).astype(np.int16)
    return clipped


# The best Huffman code for given frequencies, within the limits of JPEG (T.81 Annex K.2).

LONGEST = 16
SYMBOLS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class HuffmanCode:
    """A code as DHT carries it (T.81 B.2.4.2), and as the encoder uses it."""

    counts: tuple[int, ...]
    """How many codes have 1, 2, ... 16 bits."""
    symbols: tuple[int, ...]
    """In the order of their codes."""
    codes: NDArray[np.uint64]
    """By symbol, 256 entries."""
    lengths: NDArray[np.int64]
    """Bits, by symbol; 0 for a symbol without a code."""


def best_code(frequencies: NDArray[np.int64]) -> HuffmanCode:
    """A code for all symbols that occur (of 256), none longer than 16 bits and none all ones (T.81 K.2, C)."""
    sizes = _code_sizes([*map(int, frequencies), 1])
    counts = _limited(np.bincount(sizes, minlength=SYMBOLS + 2).tolist())
    # The symbol that does not exist took the code of all ones; it is one of the longest (Figure K.3, its end).
    longest = max(bits for bits in range(LONGEST + 1) if counts[bits])
    counts[longest] -= 1
    symbols = sorted((s for s in range(SYMBOLS) if sizes[s]), key=lambda s: (sizes[s], s))
    codes, lengths = np.zeros(SYMBOLS, np.uint64), np.zeros(SYMBOLS, np.int64)
    lengths[symbols] = np.repeat(np.arange(1, LONGEST + 1), counts[1 : LONGEST + 1])
    # Of all words of 16 bits, those that begin with the code: it follows those of the codes before it (T.81 C.2).
    words = 1 << (LONGEST - lengths[symbols])
    codes[symbols] = (np.cumsum(words) - words) // words
    return HuffmanCode(counts=tuple(counts[1 : LONGEST + 1]), symbols=tuple(symbols), codes=codes, lengths=lengths)


def _code_sizes(frequencies: Sequence[int]) -> list[int]:
    """Bits of each symbol's code, without a limit (Figure K.1): the two rarest groups are joined repeatedly."""
    sizes = [0] * len(frequencies)
    members = {symbol: [symbol] for symbol, count in enumerate(frequencies) if count}
    # Of equally rare ones the largest symbol first, so that the one that does not exist gets a longest code.
    heap = [(frequencies[symbol], -symbol) for symbol in members]
    heapq.heapify(heap)
    while len(heap) > 1:
        first, rarest = heapq.heappop(heap)
        second, next_rarest = heapq.heappop(heap)
        members[-next_rarest] += members.pop(-rarest)
        for symbol in members[-next_rarest]:
            sizes[symbol] += 1
        heapq.heappush(heap, (first + second, next_rarest))
    return sizes


def _limited(counts: list[int]) -> list[int]:
    """As many codes of each length, none over 16 bits (Figure K.3): pairs of too long ones move up the tree."""
    for bits in range(len(counts) - 1, LONGEST, -1):
        while counts[bits]:
            shorter = bits - 2
            while not counts[shorter]:
                shorter -= 1
            counts[bits] -= 2
            counts[bits - 1] += 1
            counts[shorter + 1] += 2
            counts[shorter] -= 1
    return counts


# Huffman coding of quantised blocks, all at once with numpy (T.81 F.1.2), and the mask of the free bits.

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

SIXTEEN_ZEROS = 0xF0
WORD = 64
# T.81 Table F.1: the category of a value is the number of its bits.
CATEGORY = np.array([value.bit_length() for value in range(4096)], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of a scan in order, before they have codes: of each block its DC, its AC, and its end."""

    code: Ints
    """Which Huffman code: twice the number of the pair of tables, and for AC one more."""
    symbol: Ints
    """What is coded (T.81 F.1.2.1, F.1.2.2). Its lower half is the number of bits that are appended."""
    value: Ints
    """What the appended bits say; 0 where there are none."""

    def codes(self) -> list[HuffmanCode]:
        """DC and AC of each pair of tables: the best for these tokens."""
        symbols = (self.symbol[self.code == number] for number in range(int(self.code.max()) + 1))
        return [best_code(np.bincount(group, minlength=SYMBOLS)) for group in symbols]

    def bits(self, codes: Sequence[HuffmanCode]) -> int:
        """Length of the scan in these codes."""
        lengths = np.stack([code.lengths for code in codes])
        return int(lengths[self.code, self.symbol].sum() + (self.symbol & 15).sum())


def tokens(blocks: NDArray[np.int16], component: Ints, table: Ints) -> Tokens:
    """The tokens of quantised blocks (blocks x 64, zigzag), given each block's component and tables.

    DC is coded less that of the component's previous block. The symbol of an AC value is the zeros before it, modulo
    16, and its category; sixteen zeros have a token of their own, and so has the end of a block that ends in zeros.
    """
    difference = np.empty((len(blocks), 1), np.int64)
    for number in np.unique(component):
        mine = component == number
        difference[mine, 0] = np.diff(blocks[mine, 0].astype(np.int64), prepend=0)
    ends = blocks[:, 63:] == 0
    block, position = np.nonzero(np.hstack([np.ones_like(ends), blocks[:, 1:] != 0, ends]))
    value = np.hstack([difference, blocks[:, 1:], np.zeros_like(difference)])[block, position]
    zeros = np.where(position % 64, np.diff(position, prepend=0) - 1, 0)
    index = np.repeat(np.arange(len(block)), 1 + (zeros >> 4))
    has_value = np.diff(index, append=len(block)) > 0
    symbol = (zeros & 15) << 4 | CATEGORY[np.abs(value)]
    return Tokens(
        code=(2 * table[block] + (position > 0))[index],
        symbol=np.where(has_value, symbol[index], SIXTEEN_ZEROS),
        value=np.where(has_value, value[index], 0),
    )


def pack(tokens: Tokens, codes: Sequence[HuffmanCode]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """(scan, free): the coded bytes without stuffing, padded with ones (F.1.2.3), and the mask of free bits in them.

    A negative value is appended less one (F.1.2.1.1). Free are the bits appended to each AC code (see `Encoded`).
    """
    size = tokens.symbol & 15
    code: Words = np.stack([table.codes for table in codes])[tokens.code, tokens.symbol]
    length: Ints = np.stack([table.lengths for table in codes])[tokens.code, tokens.symbol] + size
    appended: Ints = np.where(tokens.value < 0, tokens.value + (1 << size) - 1, tokens.value)
    bits: Words = code << size.astype(np.uint64) | appended.astype(np.uint64)
    free: Ints = np.where(tokens.code % 2, (1 << size) - 1, 0)
    end = np.cumsum(length)
    start, total = end - length, int(end[-1])
    scan, mask = (
        _bytes(words, start, length, total)[: (total + 7) // 8].copy() for words in (bits, free.astype(np.uint64))
    )
    if total % 8:
        scan[-1] |= 0xFF >> total % 8
    return scan, mask


def _bytes(bits: Words, start: Ints, length: Ints, total: int) -> NDArray[np.uint8]:
    """Concatenate pieces of up to 64 bits, most significant bit first."""
    word, shift = start // WORD, WORD - start % WORD - length
    out = np.zeros(total // WORD + 2, np.uint64)
    left, right = shift.clip(0).astype(np.uint64), (-shift).clip(0).astype(np.uint64)
    here = np.where(shift >= 0, bits << left, bits >> right)
    changes = np.flatnonzero(np.diff(word, prepend=-1))
    out[word[changes]] = np.bitwise_or.reduceat(here, changes)
    split = np.flatnonzero(shift < 0)
    out[word[split] + 1] |= bits[split] << (WORD + shift[split]).astype(np.uint64)
    return out.astype(">u8").view(np.uint8)


START_OF_IMAGE = b"\xff\xd8"
END_OF_IMAGE = b"\xff\xd9"
# T.81 Table B.1, and the application segments of JFIF 1.02 and of Adobe (T.872).
APP0, APP14, QUANTISATION, BASELINE, HUFFMAN, SCAN = 0xE0, 0xEE, 0xDB, 0xC0, 0xC4, 0xDA
JFIF = b"JFIF\0\1\1\0\0\1\0\1\0\0"
# Four components as they are: no transform.
ADOBE = b"Adobe\0\x64\0\0\0\0\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A JPEG file in parts, and the mask of its free bits, by which it stands for any number of files.

    A nonzero AC coefficient is coded as a Huffman code for its category, followed by bits that say which value of the
    category it is (T.81 F.1.2.2.1). Any of those values is as valid and as long as any other. So `scan XOR (random AND
    mask)` is the scan of another image with the same Huffman codes, the same nonzero coefficients and the same work
    to decode. A third of all bits are free, spread evenly, so no block of the file is found in another file. DC
    coefficients stay: changed differences would drift.
    """

    start: bytes
    """Start of image and the application segment: others may follow it."""
    tables: bytes
    """Everything from the quantisation tables to the scan header."""
    scan: Words
    """Entropy-coded bytes, without stuffing, as little-endian words; the last one is filled up with zeros."""
    free: Words
    """As long as the scan: ones where a bit may have any value."""
    scan_bytes: int

    @property
    def size_bytes(self) -> int:
        """Of the file as it was encoded; others differ by the zeros stuffed behind 0xFF, some 0.1 %."""
        return len(self.file(self.scan))

    def file(self, scan: Words, segments: bytes = b"") -> bytes:
        """With these further segments. A scan has a zero after every 0xFF, else it is a marker (T.81 B.1.1.5)."""
        stuffed = scan.view(np.uint8)[: self.scan_bytes].tobytes().replace(b"\xff", b"\xff\0")
        return b"".join((self.start, segments, self.tables, stuffed, END_OF_IMAGE))

    def vary(self, bits: np.random.BitGenerator, segments: bytes = b"") -> bytes:
        """Another file, with the free bits drawn from `bits`.

        Only raw words are drawn: numpy keeps the streams of its bit generators, but not of its distributions.
        """
        words = bits.random_raw(len(self.scan)).astype("<u8", copy=False)
        words &= self.free
        words ^= self.scan
        return self.file(words, segments)


def segment(marker: int, body: bytes) -> bytes:
    """A marker segment (T.81 B.1.1.4)."""
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def scan_tokens(spectrum: Sequence[Spectrum], frame: Frame) -> Tokens:
    """The spectrum quantised and cut into tokens."""
    blocks = quantised(spectrum, frame)
    component = np.tile(frame.block_components, len(blocks) // len(frame.block_components))
    table = component.clip(max=1) if frame.components == 3 else np.zeros_like(component)
    return tokens(blocks, component, table)


def encoded(tokens: Tokens, frame: Frame) -> Encoded:
    """The file of these tokens with its own Huffman tables, as nearly all files of ImageNet have."""
    codes = tokens.codes()
    scan, free = pack(tokens, codes)
    application = segment(APP14, ADOBE) if frame.components == 4 else segment(APP0, JFIF)
    return Encoded(
        start=START_OF_IMAGE + application, tables=_tables(frame, codes), scan=_words(scan), free=_words(free),
        scan_bytes=len(scan),
    )  # fmt: skip


def _words(data: NDArray[np.uint8]) -> Words:
    return np.concatenate([data, np.zeros(-len(data) % 8, np.uint8)]).view("<u8")


def encoded_size(tokens: Tokens, frame: Frame) -> int:
    """Bytes of the file of these tokens, with the byte stuffing of evenly distributed bytes."""
    codes = tokens.codes()
    scan = tokens.bits(codes) // 8 + 1
    return len(START_OF_IMAGE + segment(APP0, JFIF) + END_OF_IMAGE + _tables(frame, codes)) + scan + scan // 256


def _tables(frame: Frame, codes: Sequence[HuffmanCode]) -> bytes:
    parts = [
        segment(QUANTISATION, bytes([number]) + table[ZIGZAG].astype(np.uint8).tobytes())
        for number, table in enumerate(frame.quantisers)
    ]
    parts.append(_frame_header(frame))
    for number, code in enumerate(codes):
        # The high half says whether a table is for AC (T.81 B.2.4.2).
        parts.append(segment(HUFFMAN, bytes([number % 2 << 4 | number // 2, *code.counts, *code.symbols])))
    selectors = b"".join(bytes([number + 1, frame.table_of(number) * 0x11]) for number in range(frame.components))
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

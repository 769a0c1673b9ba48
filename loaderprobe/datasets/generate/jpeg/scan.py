"""Huffman coding of quantised blocks, all at once with numpy (T.81 F.1.2), and the mask of the free bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaderprobe.datasets.generate.jpeg.huffman import HuffmanCode, best_code

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

END_OF_BLOCK = 0x00
SIXTEEN_ZEROS = 0xF0
WORD = 64
# T.81 Table F.1: the category of a value is the number of its bits.
CATEGORY = np.array([value.bit_length() for value in range(4096)], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of a scan, before it has a code. Blocks in the order of the scan; `entry` counts nonzero AC values."""

    table: Ints
    """By block: which pair of Huffman tables it uses."""
    difference: Ints
    """By block: DC less that of the component's previous block (F.1.2.1)."""
    block: Ints
    """By entry."""
    value: Ints
    """By entry."""
    symbol: Ints
    """By entry: the zeros before it, modulo 16, and its category (F.1.2.2)."""
    sixteens: Ints
    """By entry: how many runs of sixteen zeros come before it."""
    short: Ints
    """Blocks that end in zeros, and so with an end-of-block code."""

    def codes(self) -> list[tuple[HuffmanCode, HuffmanCode]]:
        """(DC, AC) for each table: the best for these tokens."""
        found = []
        for table in range(int(self.table.max()) + 1):
            mine = self.table[self.block] == table
            dc = np.bincount(_category(self.difference[self.table == table]), minlength=256)
            ac = np.bincount(self.symbol[mine], minlength=256)
            ac[SIXTEEN_ZEROS] += int(self.sixteens[mine].sum())
            ac[END_OF_BLOCK] += int((self.table[self.short] == table).sum())
            found.append((best_code(dc), best_code(ac)))
        return found

    def bits(self, codes: list[tuple[HuffmanCode, HuffmanCode]]) -> int:
        """Length of the scan in these codes."""
        total = int(_category(self.difference).sum() + (self.symbol & 15).sum())
        for table, (dc, ac) in enumerate(codes):
            mine = self.table[self.block] == table
            total += int(dc.lengths[_category(self.difference[self.table == table])].sum())
            total += int(ac.lengths[self.symbol[mine]].sum() + ac.lengths[SIXTEEN_ZEROS] * self.sixteens[mine].sum())
            total += int(ac.lengths[END_OF_BLOCK] * (self.table[self.short] == table).sum())
        return total


def tokens(blocks: NDArray[np.int16], component: Ints, table: Ints) -> Tokens:
    """The tokens of quantised blocks (blocks x 64, zigzag), given each block's component and tables."""
    difference = np.empty(len(blocks), np.int64)
    for each in np.unique(component):
        mine = component == each
        difference[mine] = np.diff(blocks[mine, 0].astype(np.int64), prepend=0)
    block, position = np.nonzero(blocks[:, 1:])
    value = blocks[block, position + 1].astype(np.int64)
    before = np.empty_like(position)
    before[:1] = -1
    before[1:] = np.where(block[1:] == block[:-1], position[:-1], -1)
    zeros = position - before - 1
    last = np.full(len(blocks), -1)
    # Entries are in order, so the last one of each block stays.
    last[block] = position
    return Tokens(
        table=table,
        difference=difference,
        block=block,
        value=value,
        symbol=(zeros & 15) << 4 | _category(value),
        sixteens=zeros >> 4,
        short=np.flatnonzero(last < 62),
    )


def pack(found: Tokens, codes: list[tuple[HuffmanCode, HuffmanCode]]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """(scan, free): the coded bytes without stuffing, padded with ones (F.1.2.3), and the mask of free bits in them.

    Free are the bits appended to each AC code: they say which of the category's values it is, and any of
    them is a value of that category, so the code stays valid and as long as it was (F.1.2.2.1).
    """
    value, length, free = _items(found, codes)
    end = np.cumsum(length)
    start, total = end - length, int(end[-1])
    size = (total + 7) // 8
    scan, mask = (_bytes(bits, start, length, total)[:size].copy() for bits in (value, free))
    if total % 8:
        scan[-1] |= 0xFF >> total % 8
    return scan, mask


def _items(found: Tokens, codes: list[tuple[HuffmanCode, HuffmanCode]]) -> tuple[Words, Ints, Words]:
    """(bits, length, free bits) of each piece of the scan, in order: of each block its DC, its entries, its end."""
    dc_code, dc_length, ac_code, ac_length = (
        np.stack([getattr(code[which], field) for code in codes])
        for which, field in ((0, "codes"), (0, "lengths"), (1, "codes"), (1, "lengths"))
    )
    entries = np.bincount(found.block, minlength=len(found.table))
    ends = np.zeros_like(entries)
    ends[found.short] = 1
    pieces = 1 + entries + ends
    first = np.cumsum(pieces) - pieces
    value, length = np.zeros(int(pieces.sum()), np.uint64), np.zeros(int(pieces.sum()), np.int64)
    free = np.zeros_like(value)
    category = _category(found.difference)
    value[first] = _joined(dc_code[found.table, category], found.difference, category)
    length[first] = dc_length[found.table, category] + category
    at = np.arange(len(found.block)) + found.block + 1 + (np.cumsum(ends) - ends)[found.block]
    table, size = found.table[found.block], found.symbol & 15
    value[at], length[at] = _after_zeros(
        found, _joined(ac_code[table, found.symbol], found.value, size), ac_length[table, found.symbol] + size,
        ac_code[table, SIXTEEN_ZEROS], ac_length[table, SIXTEEN_ZEROS],
    )  # fmt: skip
    free[at] = (np.uint64(1) << size.astype(np.uint64)) - np.uint64(1)
    at_end = (first + pieces - 1)[found.short]
    value[at_end], length[at_end] = (
        ac_code[found.table[found.short], END_OF_BLOCK], ac_length[found.table[found.short], END_OF_BLOCK],
    )  # fmt: skip
    return value, length, free


def _after_zeros(found: Tokens, bits: Words, length: Ints, zeros: Words, zeros_length: Ints) -> tuple[Words, Ints]:
    """Entries with the codes of up to three runs of sixteen zeros put before them: at most 16 x 3 + 26 bits... of 64.

    A code of sixteen zeros is short when it is common enough to come three times; where 64 bits do not hold
    them all, ValueError says so rather than a damaged file.
    """
    for runs in (1, 2, 3):
        here = found.sixteens >= runs
        bits[here] |= zeros[here] << length[here].astype(np.uint64)
        length[here] += zeros_length[here]
    if length.max(initial=0) > WORD:
        raise ValueError("a run of zeros takes more bits than a word has")
    return bits, length


def _category(values: Ints) -> Ints:
    found: Ints = CATEGORY[np.abs(values)]
    return found


def _joined(code: Words, value: Ints, category: Ints) -> Words:
    """The code, then the value's own bits; of a negative one those of the value less one (T.81 F.1.2.1.1)."""
    own = np.where(value < 0, value + (1 << category) - 1, value).astype(np.uint64)
    return code << category.astype(np.uint64) | own


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

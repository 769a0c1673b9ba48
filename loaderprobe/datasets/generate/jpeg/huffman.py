"""The best Huffman code for given frequencies, within the limits of JPEG (T.81 Annex K.2)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    code, waiting = 0, iter(symbols)
    for bits in range(1, LONGEST + 1):
        for _ in range(counts[bits]):
            symbol = next(waiting)
            codes[symbol], lengths[symbol] = code, bits
            code += 1
        code <<= 1
    return HuffmanCode(counts=tuple(counts[1 : LONGEST + 1]), symbols=tuple(symbols), codes=codes, lengths=lengths)


def _code_sizes(frequencies: Sequence[int]) -> list[int]:
    """Bits of each symbol's code, without a limit (Figure K.1): the two rarest groups are joined repeatedly."""
    sizes = [0] * len(frequencies)
    members = {symbol: [symbol] for symbol, count in enumerate(frequencies) if count}
    # Of equally rare ones the largest symbol first, so that the one that does not exist gets a longest code.
    heap = [(frequencies[symbol], -symbol) for symbol in members]
    heapq.heapify(heap)
    while len(heap) > 1:
        first, one = heapq.heappop(heap)
        second, other = heapq.heappop(heap)
        members[-other] += members.pop(-one)
        for symbol in members[-other]:
            sizes[symbol] += 1
        heapq.heappush(heap, (first + second, other))
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

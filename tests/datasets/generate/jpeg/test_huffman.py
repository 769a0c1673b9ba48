from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.datasets.generate.jpeg import best_code

FREQUENCIES = st.dictionaries(st.integers(0, 255), st.integers(1, 10**6), min_size=1, max_size=256)


def _frequencies(found: dict[int, int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    counts = np.zeros(256, np.int64)
    for symbol, count in found.items():
        counts[symbol] = count
    return counts


@given(FREQUENCIES)
def test_every_symbol_has_a_code_and_no_code_begins_another(found: dict[int, int]) -> None:
    """A prefix code for exactly the symbols that occur, within 16 bits, that leaves the code of all ones unused."""
    code = best_code(_frequencies(found))
    assert set(code.symbols) == set(found) == set(np.flatnonzero(code.lengths))
    words = [format(int(code.codes[s]), f"0{code.lengths[s]}b") for s in code.symbols]
    assert all(1 <= len(word) <= 16 and "0" in word for word in words)
    ordered = sorted(words)
    assert not any(second.startswith(first) for first, second in itertools.pairwise(ordered))


@given(FREQUENCIES)
def test_the_code_is_what_its_table_says(found: dict[int, int]) -> None:
    """A decoder rebuilds the codes from counts and symbols alone (T.81 C.2)."""
    code = best_code(_frequencies(found))
    value, at = 0, 0
    for bits, count in enumerate(code.counts, 1):
        for _ in range(count):
            symbol = code.symbols[at]
            assert (int(code.codes[symbol]), int(code.lengths[symbol])) == (value, bits)
            value, at = value + 1, at + 1
        value <<= 1
    assert at == len(code.symbols)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=60))
def test_the_code_is_nearly_as_short_as_entropy_allows(counts: list[int]) -> None:
    """Where no code needs more than 16 bits, the mean length is within a bit of the entropy, as Huffman proved.

    The symbol that does not exist costs a little more: its share of one in the sum of counts.
    """
    frequencies = _frequencies(dict(enumerate(counts)))
    total = sum(counts) + 1
    entropy = -sum(count / total * math.log2(count / total) for count in (*counts, 1))
    mean = float((best_code(frequencies).lengths * frequencies).sum()) / total
    assert mean <= entropy + 1


def test_a_code_that_grows_too_long_is_shortened() -> None:
    """Fibonacci's numbers make the deepest tree: 40 symbols would need 40 bits."""
    counts = [1, 1]
    while len(counts) < 40:
        counts.append(counts[-1] + counts[-2])
    code = best_code(_frequencies(dict(enumerate(counts))))
    assert int(code.lengths.max()) == 16
    assert sum(2.0 ** -int(bits) for bits in code.lengths[:40]) < 1

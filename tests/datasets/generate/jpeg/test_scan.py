from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.datasets.generate.jpeg import HuffmanCode, Tokens, pack, tokens

Blocks = np.ndarray[tuple[int, ...], np.dtype[np.int16]]


@st.composite
def blocks(draw: st.DrawFn) -> Blocks:
    """A few blocks of mostly zeros, with long runs and large values among them."""
    found = np.zeros((draw(st.integers(1, 6)), 64), np.int16)
    for _ in range(draw(st.integers(0, 25))):
        found[draw(st.integers(0, len(found) - 1)), draw(st.integers(0, 63))] = draw(st.integers(-1023, 1023))
    return found


def _decoded(
    scan: bytes, codes: list[tuple[HuffmanCode, HuffmanCode]], found: Tokens, component: np.ndarray
) -> tuple[Blocks, list[int]]:
    """(blocks, places of the bits that say which value of a category an AC coefficient has), one bit after the other.

    A decoder as T.81 F.2.2 describes it, written to be read and not to be fast.
    """
    bits = "".join(f"{byte:08b}" for byte in scan)
    at, free = 0, list[int]()
    out = np.zeros((len(found.table), 64), np.int16)
    last = dict.fromkeys(component, 0)

    def symbol(code: HuffmanCode) -> int:
        nonlocal at
        words = {format(int(code.codes[s]), f"0{code.lengths[s]}b"): s for s in code.symbols}
        length = next(n for n in range(1, 17) if bits[at : at + n] in words)
        at += length
        return words[bits[at - length : at]]

    def value(size: int) -> int:
        nonlocal at
        raw = bits[at : at + size]
        at += size
        return 0 if not size else int(raw, 2) if raw[0] == "1" else int(raw, 2) - (1 << size) + 1

    for number, table in enumerate(found.table):
        dc, ac = codes[int(table)]
        last[component[number]] += value(symbol(dc))
        out[number, 0] = last[component[number]]
        place = 1
        while place < 64:
            token = symbol(ac)
            run, size = token >> 4, token & 15
            if size == 0:
                if run < 15:
                    break
                place += 16
                continue
            place += run
            free += range(at, at + size)
            out[number, place] = value(size)
            place += 1
    assert set(bits[at:]) <= {"1"}
    assert len(bits) - at < 8
    return out, free


@settings(max_examples=50)
@given(blocks(), st.booleans())
def test_a_scan_decodes_to_its_blocks_and_the_mask_marks_the_free_bits(made: Blocks, grey: bool) -> None:
    """A plain decoder reads back every coefficient, and finds AC's appended bits exactly where the mask has ones."""
    component = np.zeros(len(made), np.int64) if grey else np.arange(len(made)) % 3
    found = tokens(made, component, component.clip(max=1))
    codes = found.codes()
    scan, free = pack(found, codes)
    decoded, places = _decoded(scan.tobytes(), codes, found, component)
    assert np.array_equal(decoded, made)
    assert list(np.flatnonzero(np.unpackbits(free))) == places
    assert found.bits(codes) <= len(scan) * 8 < found.bits(codes) + 8


@settings(max_examples=30)
@given(blocks(), st.integers(0, 2**32))
def test_any_value_of_the_free_bits_is_a_scan_of_the_same_codes(made: Blocks, seed: int) -> None:
    """The zeros stay zeros, the others keep their category, DC stays as it was."""
    component = np.zeros(len(made), np.int64)
    found = tokens(made, component, component)
    codes = found.codes()
    scan, free = pack(found, codes)
    flipped = scan ^ (np.random.default_rng(seed).integers(0, 256, len(scan), np.uint8) & free)
    decoded, _ = _decoded(flipped.tobytes(), codes, found, component)
    assert np.array_equal(decoded[:, 0], made[:, 0])
    sizes = [[int(value).bit_length() for value in np.abs(each[:, 1:]).ravel()] for each in (decoded, made)]
    assert sizes[0] == sizes[1]


def test_a_run_too_long_for_a_word_is_no_damaged_file() -> None:
    """Three codes of sixteen zeros with 16 bits each, and a long value: 64 bits do not hold them."""
    found = tokens(np.eye(1, 64, 63, dtype=np.int16) * 1023, np.zeros(1, np.int64), np.zeros(1, np.int64))
    ((dc, ac),) = found.codes()
    long = np.full(256, 16, np.int64)
    with pytest.raises(ValueError, match="more bits than a word"):
        pack(found, [(dc, HuffmanCode(counts=ac.counts, symbols=ac.symbols, codes=ac.codes, lengths=long))])

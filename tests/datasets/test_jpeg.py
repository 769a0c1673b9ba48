"""The encoder: what Pillow and a plain decoder read back from its files and scans."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, JpegImagePlugin

from loaderprobe.datasets.generate.jpeg import (
    CHROMINANCE,
    LUMINANCE,
    Frame,
    HuffmanCode,
    Tokens,
    best_code,
    pack,
    quantised,
    scaled,
    tokens,
)
from tests.datasets.images import encode, frames, opened, planes


@settings(max_examples=25)
@given(frames(), st.integers(0, 5), st.sampled_from([0.0, 5.0, 60.0]))
def test_every_frame_decodes_to_what_was_encoded(frame: Frame, seed: int, strength: float) -> None:
    """Size, components, sampling and quality are those asked for, and Pillow decodes without a warning."""
    image = opened(encode(frame, seed, strength))
    assert image.size == (frame.width, frame.height)
    assert image.mode == {1: "L", 3: "RGB", 4: "CMYK"}[frame.components]
    layers = [(horizontal, vertical) for _, horizontal, vertical, _ in image.layer]
    assert layers == [frame.factors(component) for component in range(frame.components)]
    tables = [list(scaled(table, frame.quality)) for table in (LUMINANCE, CHROMINANCE)]
    assert list(image.quantization.values()) == tables[: 2 if frame.components == 3 else 1]


@pytest.mark.parametrize("sampling", [(1, 1), (2, 1), (2, 2)])
def test_pixels_are_those_of_the_image(sampling: tuple[int, int]) -> None:
    """At quality 95 a smooth image comes back within a few levels, in each of its planes."""
    frame = Frame(width=83, height=61, quality=95, sampling=sampling)
    image = opened(encode(frame, strength=0))
    found = np.asarray(image.convert("YCbCr"), np.float32) - 128
    for component, plane in enumerate(planes(frame, 0, 0)):
        assert np.abs(found[..., component] - plane.clip(-128, 127)).mean() < 4


@pytest.mark.parametrize("quality", [5, 50, 75, 96, 100])
def test_tables_are_those_of_the_independent_jpeg_group(quality: int) -> None:
    """Pillow's libjpeg writes the same quantisation tables for the same quality."""
    out = io.BytesIO()
    Image.new("RGB", (16, 16)).save(out, "JPEG", quality=quality)
    image = Image.open(io.BytesIO(out.getvalue()))
    assert isinstance(image, JpegImagePlugin.JpegImageFile)
    assert [list(scaled(LUMINANCE, quality)), list(scaled(CHROMINANCE, quality))] == list(image.quantization.values())


def test_files_are_as_small_as_libjpeg_makes_them() -> None:
    """The same image, quality and sampling with optimised tables: within 3 % of Pillow's file."""
    frame = Frame(width=200, height=150, quality=90)
    ours = encode(frame, strength=20)
    out, pixels = io.BytesIO(), (np.stack(planes(frame, 0, 20), -1) + 128).clip(0, 255).round().astype(np.uint8)
    Image.fromarray(pixels, "YCbCr").convert("RGB").save(out, "JPEG", quality=90, subsampling=0, optimize=True)
    assert ours.size_bytes == pytest.approx(len(out.getvalue()), rel=0.03)


def test_values_beyond_baseline_are_clipped() -> None:
    """No coefficient has more than 10 bits (T.81 F.1.2.2), whatever the image."""
    frame = Frame(width=8, height=8, quality=100, components=1)
    assert int(np.abs(quantised((np.full((1, 1, 64), 5000, np.float32),), frame)).max()) == 1023


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


def test_a_run_too_long_for_a_word_is_no_damaged_file() -> None:
    """Three codes of sixteen zeros with 16 bits each, and a long value: 64 bits do not hold them."""
    found = tokens(np.eye(1, 64, 63, dtype=np.int16) * 1023, np.zeros(1, np.int64), np.zeros(1, np.int64))
    ((dc, ac),) = found.codes()
    long = np.full(256, 16, np.int64)
    with pytest.raises(ValueError, match="more bits than a word"):
        pack(found, [(dc, HuffmanCode(counts=ac.counts, symbols=ac.symbols, codes=ac.codes, lengths=long))])


@given(st.dictionaries(st.integers(0, 255), st.integers(1, 10**6), min_size=1, max_size=256))
def test_every_symbol_has_a_code_and_no_code_begins_another(found: dict[int, int]) -> None:
    """A prefix code for exactly the symbols that occur, within 16 bits, that leaves the code of all ones unused."""
    code = best_code(_frequencies(found))
    assert set(code.symbols) == set(found) == set(np.flatnonzero(code.lengths))
    words = sorted(format(int(code.codes[s]), f"0{code.lengths[s]}b") for s in code.symbols)
    assert all(1 <= len(word) <= 16 and "0" in word for word in words)
    assert not any(second.startswith(first) for first, second in itertools.pairwise(words))


def _frequencies(found: dict[int, int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    counts = np.zeros(256, np.int64)
    counts[list(found)] = list(found.values())
    return counts


def test_a_code_that_grows_too_long_is_shortened() -> None:
    """Fibonacci's numbers make the deepest tree: 40 symbols would need 40 bits."""
    counts = [1, 1]
    while len(counts) < 40:
        counts.append(counts[-1] + counts[-2])
    code = best_code(_frequencies(dict(enumerate(counts))))
    assert int(code.lengths.max()) == 16
    assert sum(2.0 ** -int(bits) for bits in code.lengths[:40]) < 1

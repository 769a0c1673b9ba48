from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, JpegImagePlugin

from loaderprobe.datasets.generate.jpeg import (
    CHROMINANCE,
    DCT,
    LUMINANCE,
    ZIGZAG,
    Frame,
    encoded_size,
    quantised,
    scaled,
    scan_tokens,
    spectra,
    stuffed,
)
from tests.datasets.generate.jpeg.images import encode, frames, opened, planes


@settings(max_examples=25)
@given(frames(), st.integers(0, 5), st.sampled_from([0.0, 5.0, 60.0]))
def test_every_frame_decodes_to_what_was_encoded(frame: Frame, seed: int, strength: float) -> None:
    """Size, components, sampling and quality are those asked for, and Pillow decodes without a warning."""
    image = opened(encode(frame, seed, strength).file())
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
    image = opened(encode(frame, strength=0).file())
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
    ours = encode(frame, strength=20).file()
    out = io.BytesIO()
    Image.fromarray(_rgb(frame)).save(out, "JPEG", quality=90, subsampling=0, optimize=True)
    assert len(ours) == pytest.approx(len(out.getvalue()), rel=0.03)


def _rgb(frame: Frame) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    pixels = np.stack(planes(frame, 0, 20), -1) + 128
    return np.asarray(Image.fromarray(pixels.clip(0, 255).round().astype(np.uint8), "YCbCr").convert("RGB"))


def test_the_size_is_known_before_the_file_is_made() -> None:
    """Within half a percent: only how many bytes need stuffing is not foreseen."""
    frame = Frame(width=90, height=70, quality=92, sampling=(2, 2))
    made = encode(frame)
    tokens = scan_tokens(spectra(planes(frame, 0), frame), frame)
    assert encoded_size(tokens, frame) == pytest.approx(len(made.file()), rel=0.005)


def test_the_zigzag_is_that_of_the_standard() -> None:
    """T.81 Figure A.6: 0, 1, 8, 16, 9, 2, 3, 10 ... 62, 63."""
    assert list(ZIGZAG[:10]) == [0, 1, 8, 16, 9, 2, 3, 10, 17, 24]
    assert sorted(ZIGZAG) == list(range(64))
    assert list(ZIGZAG[-3:]) == [55, 62, 63]


def test_the_transform_keeps_the_energy() -> None:
    """The DCT matrix is orthonormal, and a flat block has nothing but its DC: eight times its level."""
    assert np.allclose(DCT @ DCT.T, np.eye(8), atol=1e-6)
    frame = Frame(width=8, height=8, quality=100, components=1)
    (spectrum,) = spectra([np.full((8, 8), 10, np.float32)], frame)
    assert spectrum[0, 0, 0] == pytest.approx(80)
    assert np.abs(spectrum[0, 0, 1:]).max() < 1e-4


def test_values_beyond_baseline_are_clipped() -> None:
    """No coefficient has more than 10 bits (T.81 F.1.2.2), whatever the image."""
    frame = Frame(width=8, height=8, quality=100, components=1)
    assert int(np.abs(quantised((np.full((1, 1, 64), 5000, np.float32),), frame)).max()) == 1023


def test_no_byte_of_the_scan_looks_like_a_marker() -> None:
    """Every 0xFF is followed by a zero (T.81 B.1.1.5)."""
    assert stuffed(b"\x01\xff\xff\x02") == b"\x01\xff\x00\xff\x00\x02"

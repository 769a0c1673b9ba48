"""Base images, the pool of them that files are made from, and the encoder, whose files a plain decoder reads back."""

from __future__ import annotations

import hashlib
import io
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from loaderprobe.datasets.generate import jpeg
from loaderprobe.datasets.generate.jpeg import Frame, best_code, encoded_size, scaled
from loaderprobe.datasets.generate.manifest import SetSpec
from loaderprobe.datasets.generate.oddities import NAMES, ODDITIES, OddityName, parse_oddities
from loaderprobe.datasets.generate.pool import BaseImage, Pool, build_pool, draws, load_pool, tilted
from loaderprobe.errors import BadValue

SAMPLINGS = ((1, 1), (2, 1), (1, 2), (2, 2))


@st.composite
def frames(draw: st.DrawFn, least: int = 1) -> Frame:
    """Small frames of every shape, quality, sampling and number of components."""
    components = draw(st.sampled_from([1, 3, 3, 3, 4]))
    return Frame(
        width=draw(st.integers(least, 70)), height=draw(st.integers(least, 70)), quality=draw(st.integers(1, 100)),
        sampling=draw(st.sampled_from(SAMPLINGS)) if components == 3 else (1, 1), components=components,
    )  # fmt: skip


def planes(frame: Frame, seed: int, strength: float = 40.0) -> list[jpeg.Plane]:
    """Noise about a ramp."""
    rng = np.random.default_rng(seed)
    ramp = np.add.outer(np.linspace(-25, 25, frame.height), np.linspace(-15, 15, frame.width)).astype(np.float32)
    return [
        (ramp + rng.normal(0, strength, ramp.shape)).astype(np.float32).clip(-128, 127) for _ in range(frame.components)
    ]


def encode(frame: Frame, seed: int = 0, strength: float = 40.0) -> jpeg.Encoded:
    return jpeg.encoded(jpeg.scan_tokens(jpeg.spectra(planes(frame, seed, strength), frame), frame), frame)


def opened(data: bytes | jpeg.Encoded) -> Any:
    """The image as Pillow decodes it; a warning is an error."""
    data = data if isinstance(data, bytes) else data.file(data.scan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = Image.open(io.BytesIO(data))
        image.load()
    return image


def _rng() -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(0))


@pytest.mark.parametrize("per_pixel", [0.3, 0.6, 1.2])
def test_a_base_image_has_the_size_that_is_asked(per_pixel: float) -> None:
    """Within 2 % at what ImageNet's sizes are."""
    frame = Frame(width=160, height=120, quality=96)
    tokens = BaseImage(_rng(), frame).sized(per_pixel * 160 * 120)
    assert encoded_size(tokens, frame) == pytest.approx(per_pixel * 160 * 120, rel=0.02)


def test_the_mixture_is_that_of_the_measured_files() -> None:
    """256 draws show the published shares of samplings and qualities, and the measured percentiles of size."""
    found = draws("imagenet", 256, _rng())
    share = sum(draw.frame.sampling == (1, 1) for draw in found) / 256
    assert share == pytest.approx(761 / 977, abs=0.01)
    assert sum(draw.frame.quality == 96 for draw in found) / 256 == pytest.approx(0.67, abs=0.03)
    assert sum(draw.frame.sampling == (2, 2) for draw in found) / 256 == pytest.approx(203 / 977, abs=0.02)
    quartiles = np.percentile([draw.size_bytes for draw in found], [25, 50, 75])
    assert quartiles == pytest.approx([57_300, 107_000, 146_000], rel=0.07)


def test_one_resolution_keeps_the_bytes_per_pixel() -> None:
    """All of that size, with the mixture's qualities, and a mean of 0.5 to 0.7 bytes a pixel; grey ones if asked."""
    found = draws("500x375", 48, _rng())
    assert {(draw.frame.width, draw.frame.height) for draw in found} == {(500, 375)}
    assert len({draw.frame.quality for draw in found}) > 8
    assert 0.5 < sum(draw.size_bytes for draw in found) / 48 / (500 * 375) < 0.7
    assert {draw.frame.components for draw in draws("imagenet", 4, _rng(), components=1)} == {1}


@pytest.mark.parametrize("target", [70.0, 100.0, 110_000.0])
def test_weights_give_the_mean_that_is_asked(target: float) -> None:
    """Exactly, or None where no weights can."""
    sizes = [50.0, 80.0, 130.0, 90.0]
    weights = tilted(sizes, target)
    if target > max(sizes):
        assert weights is None
        return
    assert weights is not None
    assert np.dot(weights, sizes) == pytest.approx(target)
    assert sum(weights) == pytest.approx(1)
    assert min(weights) > 0
    assert (tilted([10.0, 10.0], 10.0), tilted([10.0, 10.0], 11.0)) == ([0.5, 0.5], None)


def _build(**changes: object) -> Pool:
    asked: dict[str, object] = {"resolution": "96x72", "classes": 1, "seed": 0, "base_images": 12}
    return build_pool(SetSpec(**(asked | changes)), map, lambda *_: None)  # type: ignore[arg-type]  # a test says what it changes by name


@pytest.fixture(scope="module")
def pool() -> Pool:
    """Twelve base images, and all oddities."""
    return _build(oddities=NAMES)


def _mean(pool: Pool, count: int) -> float:
    return sum(len(pool.image(0, index, ())) for index in range(count)) / count


@settings(max_examples=20)
@given(frames(least=8), st.integers(0, 2**40))
def test_every_variation_decodes(frame: Frame, seed: int) -> None:
    """Whatever the random bits, the file is a valid one of the same size in pixels, and as long but for stuffing. The
    mean of each block stays, which is all that is left at an eighth of the size where no plane has fewer samples."""
    made = encode(frame)
    files = [made.file(made.scan), made.vary(np.random.SFC64(seed))]
    bare = [len(file) - file[len(made.start + made.tables) :].count(b"\xff\0") for file in files]
    assert bare[0] == bare[1]
    assert opened(files[1]).size == (frame.width, frame.height)
    means = [Image.open(io.BytesIO(file)) for file in files]
    for image in means:
        image.draft(None, (1, 1))
    assert frame.sampling != (1, 1) or means[0].tobytes() == means[1].tobytes()


@pytest.mark.parametrize("mean", [2000, 4000, 6000])
def test_a_hundred_files_have_the_mean_that_is_asked(mean: int) -> None:
    """Within 1 %, and so have four hundred."""
    made = _build(mean_bytes=mean)
    assert _mean(made, 100) == pytest.approx(mean, rel=0.01)
    assert _mean(made, 400) == pytest.approx(mean, rel=0.01)


def test_a_mean_that_no_base_image_reaches_is_a_bad_value() -> None:
    """The error says what can be had. The mean of a mixture was not asked for, so to miss it is no error."""
    assert _build(resolution="imagenet", base_images=1).mean_bytes > 0
    with pytest.raises(BadValue, match="kB") as error:
        _build(mean_bytes=10**7)
    assert "--pool" in error.value.hint


def test_a_pool_comes_back_as_it_was_saved(pool: Pool, tmp_path: Path) -> None:
    """Loaded by its digest it makes the same files, odd ones too; another digest, or a damaged file, is refused. Image
    5 is the same file whenever it is asked for; another index or seed gives another."""
    alone = pool.image(0, 5, ())
    assert [pool.image(0, index, ()) for index in (0, 5, 3, 5)][1::2] == [alone, alone]
    assert len({alone, pool.image(0, 6, ()), pool.image(1, 5, ())}) == 3
    file, digest = tmp_path / "pool.msgpack", hashlib.sha256(pool.encoded()).hexdigest()
    file.write_bytes(pool.encoded())
    again = load_pool(file, digest)
    assert [again.image(3, index, NAMES) for index in range(60)] == [pool.image(3, index, NAMES) for index in range(60)]
    with pytest.raises(BadValue, match="not the pool"):
        load_pool(file, "0" * 64)
    file.write_bytes(pool.encoded()[:-1])
    with pytest.raises(BadValue, match="not the pool"):
        load_pool(file, digest)
    with pytest.raises(BadValue, match="cannot be read"):
        load_pool(tmp_path / "gone", digest)


@pytest.mark.parametrize("name", NAMES)
def test_each_oddity_comes_where_it_is_due(pool: Pool, name: OddityName) -> None:
    """Among the first 64 images at least one is odd in that way, as Pillow sees it, and all others are not."""
    for index in range(64):
        image = opened(pool.image(0, index, (name,)))
        seen = {
            "grey": image.mode == "L",
            "cmyk": image.mode == "CMYK",
            "png": image.format == "PNG",
            "exif": bool(image.getexif()),
            "icc": "icc_profile" in image.info,
        }
        assert [key for key, value in seen.items() if value] == ([name] if index in ODDITIES[name] else [])
    assert ODDITIES[name].start < 64


def test_orientations_are_all_eight() -> None:
    """EXIF orientation comes in each of its values; oddities are named in any order, or all at once."""
    pool = _build(base_images=2, oddities=("exif",))
    first, every = ODDITIES["exif"].start, ODDITIES["exif"].step
    found = [opened(pool.image(0, first + number * every, ("exif",))).getexif()[0x0112] for number in range(8)]
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [parse_oddities(text) for text in ("icc, grey", "all", "")] == [("grey", "icc"), NAMES, ()]
    with pytest.raises(BadValue) as error:
        parse_oddities("webp")
    assert "cmyk" in error.value.hint


@settings(max_examples=25)
@given(frames(), st.integers(0, 5), st.sampled_from([0.0, 5.0, 60.0]))
def test_every_frame_decodes_to_what_was_encoded(frame: Frame, seed: int, strength: float) -> None:
    """Size, components, sampling and quality are those asked for, and Pillow decodes without a warning."""
    image = opened(encode(frame, seed, strength))
    assert image.size == (frame.width, frame.height)
    assert image.mode == {1: "L", 3: "RGB", 4: "CMYK"}[frame.components]
    layers = [(horizontal, vertical) for _, horizontal, vertical, _ in image.layer]
    assert layers == [frame.factors(component) for component in range(frame.components)]
    tables = [list(scaled(table, frame.quality)) for table in (jpeg.LUMINANCE, jpeg.CHROMINANCE)]
    assert list(image.quantization.values()) == tables[: 2 if frame.components == 3 else 1]


@pytest.mark.parametrize("sampling", [(1, 1), (2, 1), (2, 2)])
def test_pixels_are_those_of_the_image(sampling: tuple[int, int]) -> None:
    """At quality 95 a smooth image comes back within a few levels, in each of its planes."""
    frame = Frame(width=83, height=61, quality=95, sampling=sampling)
    image = opened(encode(frame, strength=0))
    found = np.asarray(image.convert("YCbCr"), np.float32) - 128
    for component, plane in enumerate(planes(frame, 0, 0)):
        assert np.abs(found[..., component] - plane.clip(-128, 127)).mean() < 4


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
    assert int(np.abs(jpeg.quantised((np.full((1, 1, 64), 5000, np.float32),), frame)).max()) == 1023


def test_a_code_that_grows_too_long_is_shortened() -> None:
    """Fibonacci's numbers make the deepest tree: 40 symbols would need 40 bits. No code begins another."""
    counts = np.zeros(256, np.int64)
    counts[:2] = 1
    for symbol in range(2, 40):
        counts[symbol] = counts[symbol - 1] + counts[symbol - 2]
    code = best_code(counts)
    words = sorted(format(int(code.codes[s]), f"0{code.lengths[s]}b") for s in range(40))
    assert set(code.symbols) == set(range(40)) and max(map(len, words)) == 16 and all("0" in word for word in words)
    assert not any(second.startswith(first) for first, second in itertools.pairwise(words))

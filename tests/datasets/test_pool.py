"""Base images, and the pool of them that files are made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.datasets.generate.jpeg import Frame, encoded_size
from loaderprobe.datasets.generate.manifest import SetSpec
from loaderprobe.datasets.generate.oddities import NAMES, ODDITIES, OddityName, parse_oddities
from loaderprobe.datasets.generate.pool import (
    IMAGENET_MEAN_BYTES,
    BaseImage,
    Pool,
    build_pool,
    draws,
    load_pool,
    tilted,
)
from loaderprobe.errors import BadValue
from tests.datasets.images import encode, frames, opened


def _rng() -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(0))


@pytest.mark.parametrize("components", [1, 3, 4])
def test_the_file_grows_with_the_knob(components: int) -> None:
    """Blurred and flat is small, sharp and grainy is large, and never the other way round."""
    frame = Frame(width=80, height=64, quality=90, components=components)
    image = BaseImage(_rng(), frame)
    sizes = [encoded_size(image.tokens(knob), frame) for knob in (0, 0.2, 0.4, 0.5, 0.6, 0.8, 1)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 4 * sizes[0]


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


@pytest.mark.parametrize("target", [70.0, 100.0, IMAGENET_MEAN_BYTES])
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
@given(frames(), st.integers(0, 2**40))
def test_every_variation_decodes(frame: Frame, seed: int) -> None:
    """Whatever the random bits, the file is a valid one of the same size in pixels, and as long but for stuffing."""
    made = encode(frame)
    data = made.vary(np.random.SFC64(seed))
    assert opened(data).size == (frame.width, frame.height)
    bare = [len(file) - file[len(made.start + made.tables) :].count(b"\xff\0") for file in (data, made.file(made.scan))]
    assert bare[0] == bare[1]


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
    """Loaded by its digest it makes the same files, odd ones too; another digest, or a damaged file, is refused.

    Image 5 is the same file whenever it is asked for; another index or seed gives another.
    """
    alone = pool.image(0, 5, ())
    assert [pool.image(0, index, ()) for index in (0, 5, 3, 5)][1::2] == [alone, alone]
    assert len({alone, pool.image(0, 6, ()), pool.image(1, 5, ())}) == 3
    pool.save(tmp_path / "pool.npz")
    again = load_pool(tmp_path / "pool.npz", pool.digest)
    assert [again.image(3, index, NAMES) for index in range(60)] == [pool.image(3, index, NAMES) for index in range(60)]
    with pytest.raises(BadValue, match="not the pool"):
        load_pool(tmp_path / "pool.npz", "0" * 64)
    (tmp_path / "pool.npz").write_bytes(b"PK\3\4 nothing")
    with pytest.raises(BadValue, match="cannot be read"):
        load_pool(tmp_path / "pool.npz", pool.digest)


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
        assert [key for key, value in seen.items() if value] == ([name] if ODDITIES[name].at(index) else [])
    assert ODDITIES[name].among(64) >= 1
    assert ODDITIES[name].among(1000) == sum(ODDITIES[name].at(index) for index in range(1000))


def test_orientations_are_all_eight() -> None:
    """EXIF orientation comes in each of its values; oddities are named in any order, or all at once."""
    pool = _build(base_images=2, oddities=("exif",))
    first, every = ODDITIES["exif"].first, ODDITIES["exif"].every
    found = [opened(pool.image(0, first + number * every, ("exif",))).getexif()[0x0112] for number in range(8)]
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [parse_oddities(text) for text in ("icc, grey", "all", "")] == [("grey", "icc"), NAMES, ()]
    with pytest.raises(BadValue) as error:
        parse_oddities("webp")
    assert "cmyk" in error.value.hint

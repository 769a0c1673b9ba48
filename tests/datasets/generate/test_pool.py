from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.datasets.generate.jpeg import Frame
from loaderprobe.datasets.generate.oddities import NAMES, ODDITIES, OddityName, parse_oddities
from loaderprobe.datasets.generate.pool import Base, Pool, PoolRequest, build_pool, load_pool
from loaderprobe.errors import BadValue
from tests.datasets.generate.jpeg.images import encode, frames, opened


def _build(**changes: object) -> Pool:
    asked: dict[str, object] = {"resolution": (96, 72), "seed": 0, "base_images": 12, "mean_bytes": None}
    return build_pool(PoolRequest(**(asked | changes)), map, lambda *_: None)  # type: ignore[arg-type]  # a test says what it changes by name


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
    data = Base.of(made).vary(np.random.SFC64(seed))
    assert opened(data).size == (frame.width, frame.height)
    bare = [len(file) - file[len(made.start + made.tables) :].count(b"\xff\0") for file in (data, made.file())]
    assert bare[0] == bare[1]


def test_an_image_does_not_depend_on_those_made_before(pool: Pool) -> None:
    """Asked first or last, image 5 is the same file; another index or seed gives another."""
    alone = pool.image(0, 5, ())
    assert [pool.image(0, index, ()) for index in (0, 5, 3, 5)][1::2] == [alone, alone]
    assert len({alone, pool.image(0, 6, ()), pool.image(1, 5, ())}) == 3


@pytest.mark.parametrize("mean", [2000, 4000, 6000])
def test_a_hundred_files_have_the_mean_that_is_asked(mean: int) -> None:
    """Within 1 %, and so have four hundred."""
    made = _build(mean_bytes=mean)
    assert _mean(made, 100) == pytest.approx(mean, rel=0.01)
    assert _mean(made, 400) == pytest.approx(mean, rel=0.01)


def test_a_mixture_of_few_base_images_has_the_mean_that_they_have() -> None:
    """The real mean was not asked for, so one base image that misses it is no error."""
    assert _build(resolution=None, base_images=1).mean_bytes > 0


def test_a_mean_that_no_base_image_reaches_is_a_bad_value() -> None:
    """The error says what can be had."""
    with pytest.raises(BadValue, match="kB") as error:
        _build(mean_bytes=10**7)
    assert "--pool" in error.value.hint


def test_a_pool_comes_back_as_it_was_saved(pool: Pool, tmp_path: Path) -> None:
    """Loaded by its digest it makes the same files, odd ones too; another digest, or a damaged file, is refused."""
    pool.save(tmp_path / "pool.npz")
    again = load_pool(tmp_path / "pool.npz", pool.digest)
    assert [again.image(3, index, NAMES) for index in range(60)] == [pool.image(3, index, NAMES) for index in range(60)]
    with pytest.raises(BadValue, match="not the pool"):
        load_pool(tmp_path / "pool.npz", "0" * 64)
    (tmp_path / "pool.npz").write_bytes(b"PK\3\4 nothing")
    with pytest.raises(BadValue, match="cannot be read"):
        load_pool(tmp_path / "pool.npz", pool.digest)


def test_any_number_of_processes_paints_the_same_pool() -> None:
    """Base images depend on their number, not on who paints them."""
    backwards = lambda job, items: reversed([job(item) for item in reversed(list(items))])  # noqa: E731
    asked = PoolRequest(resolution=(48, 48), seed=0, base_images=5, mean_bytes=None)
    assert build_pool(asked, backwards, lambda *_: None).digest == build_pool(asked, map, lambda *_: None).digest


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
    """EXIF orientation comes in each of its values."""
    pool = _build(base_images=2, oddities=("exif",))
    first, every = ODDITIES["exif"].first, ODDITIES["exif"].every
    found = [opened(pool.image(0, first + number * every, ("exif",))).getexif()[0x0112] for number in range(8)]
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_oddities_are_asked_for_by_name() -> None:
    """In any order, or all at once; an unknown name is a bad value that lists the known ones."""
    assert parse_oddities("icc, grey") == ("grey", "icc")
    assert parse_oddities("all") == NAMES
    assert parse_oddities("") == ()
    with pytest.raises(BadValue) as error:
        parse_oddities("webp")
    assert "cmyk" in error.value.hint

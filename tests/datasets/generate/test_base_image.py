from __future__ import annotations

import numpy as np
import pytest

from loaderprobe.datasets.generate.jpeg import Frame, encoded_size
from loaderprobe.datasets.generate.pool import GRAIN, IMAGENET_MEAN_BYTES, BaseImage, dead_leaves, draws, grain, tilted


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


def test_a_base_image_depends_on_its_seed_alone() -> None:
    """The same seed gives the same planes, another seed gives others."""
    first, again, other = (np.stack(dead_leaves(_rng(seed), 60, 40)) for seed in (1, 1, 2))
    assert first.shape == (3, 40, 60)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_grain_shows_in_luminance() -> None:
    """Deviation 1 there, and little colour."""
    assert [plane.std() for plane in grain(_rng(), 100, 100)] == pytest.approx(GRAIN, rel=0.05)


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
    found = draws(None, 256, _rng())
    share = sum(draw.frame.sampling == (1, 1) for draw in found) / 256
    assert share == pytest.approx(761 / 977, abs=0.01)
    assert sum(draw.frame.quality == 96 for draw in found) / 256 == pytest.approx(0.67, abs=0.03)
    assert sum(draw.frame.sampling == (2, 2) for draw in found) / 256 == pytest.approx(203 / 977, abs=0.02)
    quartiles = np.percentile([draw.size_bytes for draw in found], [25, 50, 75])
    assert quartiles == pytest.approx([57_300, 107_000, 146_000], rel=0.07)


def test_one_resolution_keeps_the_bytes_per_pixel() -> None:
    """All of that size, with the mixture's qualities, and a mean of 0.5 to 0.7 bytes a pixel."""
    found = draws((500, 375), 48, _rng())
    assert {(draw.frame.width, draw.frame.height) for draw in found} == {(500, 375)}
    assert len({draw.frame.quality for draw in found}) > 8
    assert 0.5 < sum(draw.size_bytes for draw in found) / 48 / (500 * 375) < 0.7


def test_grey_draws_are_those_of_grey_files() -> None:
    """One component each."""
    assert {draw.frame.components for draw in draws(None, 4, _rng(), components=1)} == {1}


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


def test_equal_sizes_need_no_weights() -> None:
    """Then only that size can be asked for."""
    assert tilted([10.0, 10.0], 10.0) == [0.5, 0.5]
    assert tilted([10.0, 10.0], 11.0) is None

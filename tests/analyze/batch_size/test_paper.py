"""The paper's strategies: each size, and each way to end, on devices whose answers are scripted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loaderprobe.analyze.batch_size import EpochTimeMinimize, GpuUsageMaximize
from loaderprobe.measure.batch_size import search
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeStop
from loaderprobe.records.verdict import Interval
from loaderprobe.testing import FakeClock, ScriptedProber

GROWING = [10, 12, 15, 19, 24, 30, 37, 45, 54, 64, 74, 84, 94]
"""Steps of 2, 3, ... up to 10."""


def by_usage(
    busy: Callable[[int], float], *, most: int = 256, fits_up_to: int | None = None
) -> tuple[list[int], BatchSizeStop]:
    prober = ScriptedProber(rate=lambda size: 100.0, utilization=busy, fits_up_to=fits_up_to)
    _, stop = search(GpuUsageMaximize(most=most), prober, clock=FakeClock())
    return prober.asked, stop


def by_time(rate: Callable[[int], float], *, images: int = 50_000, most: int = 256) -> tuple[list[int], BatchSizeStop]:
    prober = ScriptedProber(rate=rate)
    _, stop = search(EpochTimeMinimize(images=images, most=most), prober, clock=FakeClock())
    return prober.asked, stop


def test_usage_below_the_target_grows_the_batch_to_the_largest_allowed() -> None:
    """Each step is one longer than that before, up to 10."""
    asked, stop = by_usage(lambda size: 0.5, most=100)
    assert asked == GROWING
    assert (stop.code, stop.chosen) == ("at_maximum", 100)


def test_usage_around_its_target_converges() -> None:
    """Shrinking begins with a step of 1, again and longer; growing as well. Checked in each fifth loop only."""
    asked, stop = by_usage(lambda size: 0.995 if size >= 50 else 0.9)
    assert asked == [*GROWING[:9], 53, 51, 48, 49, 51, 50, 48]
    assert (stop.code, stop.chosen) == ("converged", 48)
    assert len(asked) % 5 == 1 and abs(asked[10] - asked[15]) <= 5 < abs(asked[5] - asked[10])


def test_usage_at_its_target_at_once_shrinks_to_the_smallest() -> None:
    """9, 7, 4, and then a size below 1."""
    asked, stop = by_usage(lambda size: 0.99)
    assert asked == [10, 9, 7, 4]
    assert (stop.code, stop.chosen) == ("at_minimum", 1)


def test_usage_is_the_mean_of_the_upper_half_without_zeros() -> None:
    """Of half the readings, rounded down; 0 where all are 0, which grows the batch; nothing without readings."""

    def probe(*readings: float) -> BatchSizeProbe:
        rate = Interval(value=1.0, low=1.0, high=1.0)
        return BatchSizeProbe(batch_size=1, fits=True, images_per_s=rate, utilization_samples=readings)

    assert probe(0.0, 0.2, 1.0, 0.8, 0.0, 0.4).usage == pytest.approx(0.9)
    assert probe(0.0, 0.3, 0.5, 0.9).usage == pytest.approx(0.9)
    assert (probe(0.0, 0.0).usage, probe(0.7).usage, probe().usage) == (0.0, 0.0, None)


def test_time_of_a_flat_rate_converges_in_the_sixth_loop() -> None:
    """The first ratio, 0, is compared with 100; the one after five loops differs from it by no more than 0.05."""
    asked, stop = by_time(lambda size: 100.0 + size / 100, images=2280)
    assert asked == [10, 12, 15, 19, 24, 30]
    assert (stop.code, stop.chosen) == ("converged", 30)


def test_time_grows_while_it_improves_by_less_than_half() -> None:
    """A rate that rises slowly: the improvement moves by more than 0.05 in each five loops, up to the largest size."""
    asked, stop = by_time(lambda size: 100.0 + size, most=100)
    assert asked == GROWING and (stop.code, stop.chosen) == ("at_maximum", 100)


def test_time_beyond_its_target_shrinks_the_batch() -> None:
    """As the package does, and the paper does not say. A turn makes the next step 2 in either direction."""
    asked, stop = by_time(lambda size: 10.0 * size, images=1_000_000)
    # From 21 on an epoch takes less than half of that with 10: the size turns there, and never converges.
    assert asked[:11] == [10, 12, 15, 19, 24, 22, 19, 21, 19, 21, 19]
    assert (stop.code, len(asked)) == ("loops_spent", 100) and set(asked[20:]) == {19, 21}


def test_time_that_gets_worse_shrinks_the_batch() -> None:
    """By 2: back to the first size, from where it grows again, and never converges."""
    asked, stop = by_time(lambda size: 100.0 if size <= 10 else 90.0)
    assert asked == [10, 12] * 50 and (stop.code, stop.chosen) == ("loops_spent", 10)


def test_a_hundred_loops_are_the_most() -> None:
    """A usage that keeps the size moving by more than 5 in five loops."""
    limits = iter(range(10_000))
    asked, stop = by_usage(lambda size: 0.5 if next(limits) // 10 % 2 == 0 else 1.0, most=10_000)
    assert (len(asked), stop.code) == (100, "loops_spent")


def test_an_epoch_counts_its_last_batch_as_a_whole() -> None:
    """Of 25 images in batches of 10, three updates."""
    probe = ScriptedProber(rate=lambda size: 5.0).probe(10)
    assert probe.epoch_s(25) == pytest.approx(3 * 10 / 5.0)


@pytest.mark.parametrize(("fits_up_to", "chosen"), [(20, 19), (9, 0)])
def test_memory_that_ends_ends_the_search(fits_up_to: int, chosen: int) -> None:
    """At the last size that fits; the package would have died there."""
    _, stop = by_usage(lambda size: 0.5, fits_up_to=fits_up_to)
    assert (stop.code, stop.chosen) == ("out_of_memory" if chosen else "nothing_fits", chosen)

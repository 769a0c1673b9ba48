"""Searches for a batch size on scripted devices: the highest rate, and the paper's strategies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from loaderprobe.analyze.batch_size import MOST_PROBES, PaperStrategy, Throughput
from loaderprobe.measure.batch_size import search
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeStop, StopCode
from loaderprobe.records.verdict import Interval
from loaderprobe.testing import FakeClock
from tests.batch_sizes import ScriptedProber

MOST = 512
GRID = (2, 4, *range(8, MOST + 1, 8))
SEEDS = 20


@dataclass(frozen=True)
class Shape:
    rate: Callable[[int], float]
    fits_up_to: int | None = None

    @property
    def best(self) -> float:
        return max(self.rate(size) for size in GRID if self.fits_up_to is None or size <= self.fits_up_to)


SHAPES = {
    "saturates": Shape(lambda size: 1000 * size / (size + 20)),
    "saturates late": Shape(lambda size: 1000 * size / (size + 100)),
    "peak, then falls": Shape(lambda size: 1000 * math.exp(-0.1 * math.log2(size / 48) ** 2)),
    "peak, then falls quickly": Shape(lambda size: 1000 * size / (size + 30) / (1 + (size / 400) ** 2)),
    "plateau": Shape(lambda size: 1000 * min(1.0, size / 32)),
    "memory ends": Shape(lambda size: 1000 * size / (size + 60), fits_up_to=200),
    "dips at odd sizes": Shape(lambda size: 1000 * size / (size + 30) * (1 if size % 32 == 0 or size < 32 else 0.93)),
    "falls from the first": Shape(lambda size: 1000 * size**-0.1),
}


def searched(
    shape: Shape, *, noise: float = 0.0, drift: float = 0.0, seed: int = 0
) -> tuple[Sequence[BatchSizeProbe], BatchSizeStop]:
    prober = ScriptedProber(rate=shape.rate, noise=noise, drift=drift, fits_up_to=shape.fits_up_to, seed=seed)
    return search(Throughput(most=MOST), prober.probe, clock=FakeClock())


@pytest.mark.parametrize("name", SHAPES)
def test_within_two_percent_of_the_optimum_on_every_seed(name: str) -> None:
    """With a noise of 5 % in each step, and in at most half the probes of a grid."""
    shape = SHAPES[name]
    for seed in range(SEEDS):
        probes, stop = searched(shape, noise=0.05, seed=seed)
        assert shape.rate(stop.chosen) >= 0.98 * shape.best, (seed, stop)
        assert len(probes) <= len(GRID) / 2
        assert stop.chosen in {each.batch_size for each in probes}


@pytest.mark.parametrize("name", SHAPES)
def test_a_drift_that_no_interval_shows_is_found(name: str) -> None:
    """Where whole probes differ by 5 %, and their steps by 2 %: within 4 % on nine of ten seeds, and more probes."""
    shape = SHAPES[name]
    found = [searched(shape, noise=0.02, drift=0.05, seed=seed) for seed in range(20)]
    assert sum(shape.rate(stop.chosen) >= 0.96 * shape.best for _, stop in found) >= 18
    assert all(len(probes) <= MOST_PROBES for probes, _ in found)


class Interrupted(ScriptedProber):
    def probe(self, batch_size: int) -> BatchSizeProbe:
        if len(self.asked) == self.seed:
            raise KeyboardInterrupt
        return super().probe(batch_size)


def test_ctrl_c_keeps_the_fastest_so_far() -> None:
    """And is passed on where there is none yet; until then the search says how many it tried, of the most."""
    heard: list[tuple[str, int, int]] = []
    prober = Interrupted(rate=float, seed=3)
    probes, stop = search(Throughput(), prober.probe, clock=FakeClock(), progress=lambda *said: heard.append(said))
    assert heard[:2] == [("batch sizes tried", 0, MOST_PROBES), ("batch sizes tried", 1, MOST_PROBES)]
    assert (len(probes), stop.code, stop.chosen) == (3, "interrupted", 8)
    with pytest.raises(KeyboardInterrupt):
        search(Throughput(), Interrupted(rate=float, seed=0).probe, clock=FakeClock())


def test_of_equals_the_smaller_is_chosen() -> None:
    """On a plateau from 32 on, without noise."""
    _, stop = searched(SHAPES["plateau"])
    assert (stop.code, stop.chosen) == ("no_candidate_better", 32)
    assert stop.left is not None and stop.left <= 0.02


GROWING = [10, 12, 15, 19, 24, 30, 37, 45, 54, 64, 74, 84, 94]
"""Steps of 2, 3, ... up to 10."""


def moving() -> Callable[[int], float]:
    """A usage that keeps the size moving by more than 5 in five loops."""
    loops = iter(range(10_000))
    return lambda size: 0.5 if next(loops) // 10 % 2 == 0 else 1.0


# Of usage and of time: what the device answers, options, the sizes asked for, how it ends, and the size chosen.
USAGE: dict[str, tuple[Callable[[int], float], dict[str, int], list[int] | None, StopCode, int | None]] = {
    # Each step is one longer than that before, up to 10.
    "below the target it grows to the largest allowed": (lambda size: 0.5, {"most": 100}, GROWING, "at_maximum", 100),
    # Shrinking begins with a step of 1, again and longer; growing as well. Checked in each fifth loop only.
    "around its target it converges": (
        lambda size: 0.995 if size >= 50 else 0.9, {}, [*GROWING[:9], 53, 51, 48, 49, 51, 50, 48], "converged", 48,
    ),
    # 9, 7, 4, and then a size below 1.
    "at its target at once it shrinks": (lambda size: 0.99, {}, [10, 9, 7, 4], "at_minimum", 1),
    # At the last size that fits; the package would have died there.
    "memory ends the search": (lambda size: 0.5, {"fits_up_to": 20}, None, "out_of_memory", 19),
    "memory for nothing": (lambda size: 0.5, {"fits_up_to": 9}, [10], "nothing_fits", 0),
    "a hundred loops are the most": (moving(), {"most": 10_000}, None, "loops_spent", None),
}  # fmt: skip
TIME: dict[str, tuple[Callable[[int], float], dict[str, int], list[int], StopCode, int | None]] = {
    # The first ratio, 0, is compared with 100; the one after five loops differs from it by no more than 0.05.
    "a flat rate converges in the sixth loop": (
        lambda size: 100.0 + size / 100, {"images": 2280}, [10, 12, 15, 19, 24, 30], "converged", 30,
    ),
    # A rate that rises slowly: the improvement moves by more than 0.05 in each five loops.
    "grows while it improves by less than half": (lambda size: 100.0 + size, {"most": 100}, GROWING, "at_maximum", 100),
    # As the package does, and the paper does not say: from 21 on an epoch takes less than half of that with 10. A turn
    # makes the next step 2 in either direction, so it never converges.
    "shrinks beyond its target": (
        lambda size: 10.0 * size, {"images": 1_000_000}, [10, 12, 15, 19, 24, 22, *[19, 21] * 47], "loops_spent", None,
    ),
    "shrinks where it gets worse": (
        lambda size: 100.0 if size <= 10 else 90.0, {}, [10, 12] * 50, "loops_spent", 10,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", USAGE)
def test_usage_moves_the_batch(name: str) -> None:
    """Up below its target, down at it, until it stays within 5 for five loops or an end is reached."""
    busy, options, sizes, code, chosen = USAGE[name]
    prober = ScriptedProber(rate=lambda size: 100.0, utilization=busy, fits_up_to=options.get("fits_up_to"))
    _, stop = search(
        PaperStrategy(name="gpu-usage", images=1, most=options.get("most", 256)), prober.probe, clock=FakeClock()
    )
    assert stop.code == code and stop.chosen == (stop.chosen if chosen is None else chosen)
    assert prober.asked == sizes if sizes else len(prober.asked) <= 100
    assert code != "loops_spent" or len(prober.asked) == 100


@pytest.mark.parametrize("name", TIME)
def test_the_time_of_an_epoch_moves_the_batch(name: str) -> None:
    """Up while it improves by less than half, else down."""
    rate, options, sizes, code, chosen = TIME[name]
    prober = ScriptedProber(rate=rate)
    strategy = PaperStrategy(name="epoch-time", **{"images": 50_000, "most": 256, **options})
    _, stop = search(strategy, prober.probe, clock=FakeClock())
    assert (prober.asked, stop.code) == (sizes, code) and stop.chosen == (stop.chosen if chosen is None else chosen)


def test_usage_is_the_mean_of_the_upper_half_without_zeros() -> None:
    """Of half the readings, rounded down; 0 where all are 0, which grows the batch; nothing without readings."""

    def probe(*readings: float) -> BatchSizeProbe:
        rate = Interval(value=1.0, low=1.0, high=1.0)
        return BatchSizeProbe(batch_size=1, fits=True, images_per_s=rate, utilization_samples=readings)

    assert probe(0.0, 0.2, 1.0, 0.8, 0.0, 0.4).usage == pytest.approx(0.9)
    assert probe(0.0, 0.3, 0.5, 0.9).usage == pytest.approx(0.9)
    assert (probe(0.0, 0.0).usage, probe(0.7).usage, probe().usage) == (0.0, 0.0, None)

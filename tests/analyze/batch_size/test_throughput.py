"""The search for the highest rate, on scripted devices whose best size is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from loaderprobe.analyze.batch_size import MOST_PROBES, Throughput
from loaderprobe.measure.batch_size import search
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeStop
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
    shape: Shape, *, noise: float = 0.0, drift: float = 0.0, seed: int = 0, most: int = MOST
) -> tuple[Sequence[BatchSizeProbe], BatchSizeStop]:
    prober = ScriptedProber(rate=shape.rate, noise=noise, drift=drift, fits_up_to=shape.fits_up_to, seed=seed)
    return search(Throughput(most=most), prober.probe, clock=FakeClock())


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

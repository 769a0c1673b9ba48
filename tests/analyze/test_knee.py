"""The search for the fewest workers that are enough, on loaders whose truth is known, seen through noise."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from loaderprobe.analyze.knee import most_workers, next_factor, next_workers
from loaderprobe.records.verdict import Interval
from loaderprobe.stats import half_width, median

SEEDS = 50
NO_COMPUTE = 1e12


@dataclass(frozen=True)
class Scripted:
    """A loader: seconds of an image in a worker, what limits all workers together, and what trains."""

    cores: float
    cpu_s: float
    wait_s: float = 0.0
    lock_s: float = 0.0
    compute: float = NO_COMPUTE

    def truth(self, workers: int) -> float:
        """Images/s without noise."""
        alone_s = self.cpu_s + self.wait_s + self.lock_s
        if not workers:
            return 1 / (alone_s + 1 / self.compute)
        return min(
            workers / alone_s, self.cores / self.cpu_s, self.compute, 1 / self.lock_s if self.lock_s else NO_COMPUTE
        )

    def searched(self, noise: float, seed: int) -> dict[int, Interval]:
        """What a whole search measures, from the serial loader and one worker on; each the median of three rounds."""
        chance = random.Random(seed)

        def rate(workers: int) -> Interval:
            rounds = [self.truth(workers) * chance.lognormvariate(0, noise) for _ in range(3)]
            value, half = median(rounds), half_width(rounds)
            return Interval(value=value, low=max(0.0, value - half), high=value + half)

        rates = {number: rate(number) for number in (0, 1)}
        compute, most = self.compute if self.compute < NO_COMPUTE else None, most_workers(self.cores)
        while (number := next_workers(rates, knee=None, most=most, compute=compute)) is not None:
            assert number not in rates
            rates[number] = rate(number)
        return rates


LOADERS = {
    "2 cores": (Scripted(cores=2, cpu_s=0.004), 2, 4),
    "8 cores": (Scripted(cores=8, cpu_s=0.004), 8, 7),
    "1 core": (Scripted(cores=1, cpu_s=0.004), 0, 3),
    "latency of storage": (Scripted(cores=2, cpu_s=0.001, wait_s=0.02), 8, 6),
    "a lock": (Scripted(cores=4, cpu_s=0.0001, lock_s=0.01), 0, 3),
    "compute": (Scripted(cores=8, cpu_s=0.03, compute=100), 3, 5),
    "compute, of a quick loader": (Scripted(cores=4, cpu_s=0.0001, compute=50), 0, 2),
    "much compute": (Scripted(cores=64, cpu_s=0.01, compute=1500), 16, 7),
}
"""(loader, the fewest workers that are enough, numbers that a search without noise measures)."""


def exact(**rates: float) -> dict[int, Interval]:
    """`w2=100` is 100 images/s with two workers, or prefetch factor 2."""
    return {int(name[1:]): Interval(value=rate, low=rate, high=rate) for name, rate in rates.items()}


WIDE = {1: Interval(value=100.0, low=100.0, high=100.0), 2: Interval(value=100.0, low=90.0, high=130.0)}
NEXT: dict[str, tuple[dict[int, Interval], dict[str, float | None], int | None]] = {
    "a forecast knee is measured first": (exact(w0=50, w1=50), {"knee": 6}, 6),
    "as far as so many may be tried": (exact(w0=50, w1=50), {"knee": 6, "most": 5}, 2),
    "where all have failed": ({}, {"knee": 6}, None),
    # It also sends what it loads; two may be faster than both.
    "one worker that is slower than none": (exact(w0=100, w1=60), {"knee": 0}, 2),
    "compute is reached": (exact(w0=100, w1=60), {"knee": 0, "compute": 101}, None),
    "two gain nothing": (exact(w1=100) | {2: Interval(value=100.0, low=90.0, high=102.0)}, {"knee": 1}, None),
    "and may, by the end of the interval": (WIDE, {"knee": 1}, 4),
    "but no more may be tried": (WIDE, {"knee": 1, "most": 2}, None),
}


@pytest.mark.parametrize("name", NEXT)
def test_more_workers_are_tried_while_they_may_gain(name: str) -> None:
    """The report then names what was measured."""
    rates, options, number = NEXT[name]
    assert next_workers(rates, **{"most": 8, **options}) == number  # type: ignore[arg-type]  # numbers of workers


def test_prefetch_factors_are_tried_while_they_gain() -> None:
    """2, 4, 8; of those within 2 % the smallest is enough."""
    assert next_factor(exact(f2=100)) == 4
    assert next_factor(exact(f2=100, f4=101)) is None
    assert next_factor(exact(f2=100, f4=110)) == 8
    assert next_factor(exact(f2=100, f4=110, f8=120)) is None

"""Loaders whose rate at every setting is known, seen through noise."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from loaderprobe.analyze.tune.workers import FACTORS, Planned, WorkersFound, WorkersPolicy, WorkersSearch
from loaderprobe.errors import DeadWorker
from loaderprobe.policy import Ask, follow
from loaderprobe.records.tune_workers import PrefetchSpeedup, StopCode, WorkersSetting, WorkersVisit
from loaderprobe.testing import FakeClock

NO_COMPUTE = 1e12


@dataclass
class Scripted:
    """A loader: seconds of an image in a worker, what limits all workers together, and what trains."""

    cores: float
    cpu_s: float
    wait_s: float = 0.0
    lock_s: float = 0.0
    compute: float = NO_COMPUTE
    further_ahead: float = 1.0
    """Speed-up with a prefetch factor of 4 or more."""
    noise: float = 0.05
    drift: bool = False
    dies_from: int = 10_000
    """Workers that die."""
    speed: float = field(default=1.0, init=False)

    def truth(self, setting: WorkersSetting) -> float:
        """Images/s without noise."""
        count = setting.workers
        alone_s = self.cpu_s + self.wait_s + self.lock_s
        if not count:
            return 1 / (alone_s + 1 / self.compute)
        limits = [count / alone_s, self.cores / self.cpu_s, self.compute]
        ahead = self.further_ahead if setting.prefetch_factor > 2 else 1.0
        return min(*limits, 1 / self.lock_s if self.lock_s else NO_COMPUTE) * ahead

    def visit(self, planned: Planned, chance: random.Random) -> WorkersVisit:
        """One measurement."""
        if self.drift:
            self.speed = min(1.0, max(0.5, self.speed * chance.lognormvariate(0, 0.05)))

        def seen(value: float, noise: float) -> float:
            return value * chance.lognormvariate(0, noise)

        rate = self.truth(planned.setting)
        has_compute = self.compute < NO_COMPUTE
        return WorkersVisit(
            setting=planned.setting,
            turn=planned.turn,
            images_per_s=seen(rate, self.noise) * self.speed,
            compute_images_per_s=seen(self.compute, self.noise / 2) * self.speed if has_compute else None,
            cores_in_use=min(self.cores, seen(rate * self.cpu_s, 0.02)),
            blocked_share=(self.wait_s + self.lock_s) / (self.cpu_s + self.wait_s + self.lock_s),
            prefetch_speedups=tuple(
                PrefetchSpeedup(prefetch_factor=factor, speedup=self.further_ahead)
                for factor in FACTORS[1:]
                if self.further_ahead > 1
            ),
        )


@dataclass
class Found:
    """How a search ended."""

    search: WorkersSearch
    stop: StopCode

    @property
    def grid(self) -> list[WorkersSetting]:
        """All settings of the exhaustive search."""
        return [
            WorkersSetting(workers=count, prefetch_factor=factor)
            for count in self.search.counts
            for factor in (FACTORS if count else (0,))
        ]


def searched(loader: Scripted, seed: int, own: WorkersSetting | None = None, most: int | None = None) -> Found:
    """A whole search."""
    made = random.Random(seed)
    policy = WorkersPolicy(own=own, cores=loader.cores, most=most)

    def visit(ask: Ask[Planned]) -> WorkersFound:
        if ask.what.setting.workers >= loader.dies_from:
            return DeadWorker("a loader worker was killed", hint="free memory")
        return loader.visit(ask.what, made)

    results, stop = follow(policy, visit, clock=FakeClock())
    assert stop
    return Found(search=policy.search(results), stop=stop)

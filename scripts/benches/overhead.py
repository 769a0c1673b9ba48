"""What the sampler of waits costs.

A DataLoader whose workers compute all the time, and another whose workers wait most of it, with the sampler of their
waits and without it in turn: CPU time of the sampler over wall time, a share of one core; and the workers' batches per
CPU second with the sampler over those without.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from loaderprobe.records.measurement import Missing
from loaderprobe.records.waits import WaitSamples
from loaderprobe.render.words import remark_words
from loaderprobe.samplers.waits import RATE_HZ, WaitsSampler
from loaderprobe.stats import median
from scripts.benches.harness import alternated, cpu_ns, parser, spread

BATCH = 8


class Work(Dataset[torch.Tensor]):
    """Samples that take CPU time, or that wait and take little."""

    def __init__(self, spin: int, wait_s: float) -> None:
        self.spin, self.wait_s = spin, wait_s

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.wait_s:
            time.sleep(self.wait_s)
        total = 0
        for number in range(self.spin):
            total += number
        return torch.tensor(total)


def batches_per_cpu_s(batches: Iterator[Any], pids: Sequence[int], seconds: float) -> float:
    before, end, count = cpu_ns(pids), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        next(batches)
        count += 1
    return count / ((cpu_ns(pids) - before) / 1e9)


def show_waits(name: str, work: Work, workers: int, rounds: int, seconds: float) -> None:
    loader = iter(DataLoader(work, batch_size=BATCH, num_workers=workers, prefetch_factor=2))
    pids = [worker.pid for worker in loader._workers]  # type: ignore[attr-defined]  # torch has no public name for it
    sampled: list[WaitSamples] = []

    def without_sampler() -> float:
        return batches_per_cpu_s(loader, pids, seconds)

    def with_sampler() -> float:
        with tempfile.TemporaryDirectory() as scratch:
            with WaitsSampler(lambda: [(pid, pid) for pid in pids], Path(scratch)) as sampler:
                speed = without_sampler()
            samples = sampler.samples()
        if isinstance(samples, Missing):
            raise SystemExit(remark_words(samples.reason))
        sampled.append(samples)
        return speed

    without_sampler()
    runs = {"without": without_sampler, "with": with_sampler}
    speeds = [alternated(runs, number) for number in range(rounds)]
    shares = [samples.cpu_ns / samples.wall_ns for samples in sampled]
    print(
        f"{name}, {workers} workers, {rounds} rounds of {seconds:g} s at {RATE_HZ:g} Hz\n"
        f"  sampler: {median(shares):.2%} of a core (median; {min(shares):.2%} to {max(shares):.2%})\n"
        f"  batches per CPU second of the workers, with / without: "
        f"{spread([speed['with'] / speed['without'] for speed in speeds], 4)}"
    )


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--seconds", type=float, default=5.0, help="of a round (%(default)s)")
    options.add_argument("--workers", type=int, default=2)
    chosen = options.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for name, work in {"computing": Work(20_000, 0.0), "waiting": Work(200, 0.002)}.items():
        show_waits(name, work, chosen.workers, chosen.rounds, chosen.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

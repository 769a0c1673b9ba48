"""What looking at what workers wait for costs, by CPU time.

A DataLoader whose workers compute all the time, and another whose workers wait most of it, run in rounds: with the
sampler and without it in turn, which of the two first changing from round to round. CPU time is counted by the
scheduler in ns. Printed: CPU time of the sampler over wall time, a share of one core; per look at one worker; and
the workers' batches per CPU second with the sampler over those without.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from loaderprobe.records.waits import WAIT_KINDS, WaitSamples
from loaderprobe.samplers.waits import RATE_HZ, WaitsSampler
from loaderprobe.stats import half_width, quantile

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


def cpu_ns(pids: Sequence[int]) -> int:
    """CPU time of all threads of these processes."""
    threads = [thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


def batches_per_cpu_s(batches: Iterator[Any], pids: Sequence[int], seconds: float) -> float:
    before, end, count = cpu_ns(pids), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        next(batches)
        count += 1
    return count / ((cpu_ns(pids) - before) / 1e9)


def sampled(batches: Iterator[Any], pids: Sequence[int], seconds: float, scratch: Path) -> tuple[float, WaitSamples]:
    with WaitsSampler(lambda: [(pid, pid) for pid in pids], scratch) as sampler:
        speed = batches_per_cpu_s(batches, pids, seconds)
    samples = sampler.samples()
    if isinstance(samples, str):
        raise SystemExit(samples)
    return speed, samples


def kinds(samples: Sequence[WaitSamples]) -> str:
    seen = [WAIT_KINDS[kind] for each in samples for kind in each.kind]
    return ", ".join(f"{seen.count(kind) / len(seen):.0%} {kind}" for kind in WAIT_KINDS if kind in seen)


def report(name: str, work: Work, workers: int, rounds: int, seconds: float) -> None:
    loader = iter(DataLoader(work, batch_size=BATCH, num_workers=workers, prefetch_factor=2))
    pids = [worker.pid for worker in loader._workers]  # type: ignore[attr-defined]  # torch tells it nowhere else
    ratios: list[float] = []
    seen: list[WaitSamples] = []
    with tempfile.TemporaryDirectory() as scratch:
        batches_per_cpu_s(loader, pids, seconds)
        for number in range(rounds):
            speeds = {}
            for with_sampler in (True, False) if number % 2 else (False, True):
                if with_sampler:
                    speeds[True], samples = sampled(loader, pids, seconds, Path(scratch))
                    seen.append(samples)
                else:
                    speeds[False] = batches_per_cpu_s(loader, pids, seconds)
            ratios.append(speeds[True] / speeds[False])
    shares = [each.cpu_ns / each.wall_ns for each in seen]
    looks = [each.cpu_ns / len(each.kind) / 1e3 for each in seen]
    print(
        f"{name}, {workers} workers, {rounds} rounds of {seconds:g} s at {RATE_HZ:g} Hz ({kinds(seen)})\n"
        f"  sampler: {quantile(shares, 0.5):.2%} of a core (median; {min(shares):.2%} to {max(shares):.2%}), "
        f"{quantile(looks, 0.5):.0f} us a look at a worker ({min(looks):.0f} to {max(looks):.0f})\n"
        f"  batches per CPU second of the workers, with / without: median {quantile(ratios, 0.5):.4f}, "
        f"10 to 90 % {quantile(ratios, 0.1):.3f} to {quantile(ratios, 0.9):.3f}, "
        f"mean {sum(ratios) / len(ratios):.4f} +- {half_width(ratios):.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    report("computing", Work(20_000, 0.0), asked.workers, asked.rounds, asked.seconds)
    report("waiting", Work(200, 0.002), asked.workers, asked.rounds, asked.seconds)


if __name__ == "__main__":
    main()

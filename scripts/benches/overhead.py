"""What the instrument itself costs: the measured loop, and the sampler of waits.

`loop`: two loaders over the same warm files run in turn, in rounds: a plain DataLoader in a bare loop, and ours with
its fetch log, samplers and stamps. CPU time is that of this process and its workers, all threads, as the scheduler
counts it in ns; beside the ratio of the two stands what the instrument takes around a fetch that does nothing.

`waits`: a DataLoader whose workers compute all the time, and another whose workers wait most of it, with the sampler of
their waits and without it in turn: CPU time of the sampler over wall time, a share of one core; per look at one worker;
and the workers' batches per CPU second with the sampler over those without.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.datasets.folder import generated_set
from loaderprobe.loaders.torch import ImageFiles, InOrder, TorchLoader
from loaderprobe.loaders.worker_probe import FetchLog, WorkerProbe
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.segments import Pace, train
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Missing
from loaderprobe.records.waits import WAIT_KINDS, WaitSamples
from loaderprobe.render.words import remark_words
from loaderprobe.samplers import sampling
from loaderprobe.samplers.recorded import PERIOD_S
from loaderprobe.samplers.waits import RATE_HZ, WaitsSampler
from loaderprobe.stats import median
from loaderprobe.testing import example_arguments
from scripts.benches.harness import alternated, cpu_ns, parser, photographs, spread

ACCELERATOR = "emulated:100000"


def per_batch_ns(body: Callable[[], None], batches: int, pids: Sequence[int]) -> float:
    before = cpu_ns(pids)
    body()
    return (cpu_ns(pids) - before) / batches


def bare(batches: Iterator[Any], count: int) -> None:
    device = EmulatedCompute(example_arguments(SystemClock(), compute=ACCELERATOR))
    for _ in range(count):
        device.step(next(batches))


def measured(batches: Iterator[Any], count: int, pids: Sequence[int]) -> None:
    clock = SystemClock()
    with sampling(clock, ("vda",), lambda: pids, None):
        device = EmulatedCompute(example_arguments(clock, compute=ACCELERATOR))
        train(batches, device, clock, Pace(max_batches=count, min_batches=count))


def instrument_ns(scratch: Path, repeats: int = 20_000) -> float:
    fetcher = SimpleNamespace(collate_fn=default_collate, auto_collation=True)
    watch = WorkerProbe(FetchLog.create(scratch / "empty.log", 1), 0, lambda _: (), alone=True)
    before = time.thread_time_ns()
    for _ in range(repeats):
        watch.fetch(fetcher, lambda indices: indices, [0])
    spent = (time.thread_time_ns() - before) / repeats
    watch.close()
    return spent


def sampling_ns(repeats: int = 500) -> float:
    samplers = sampling(SystemClock(), ("vda",), lambda: [os.getpid(), os.getpid()], None)
    before = time.thread_time_ns()
    for _ in range(repeats):
        samplers.sample_all()
    return (time.thread_time_ns() - before) / repeats


def compare(files: FileSet, workers: int, batch_size: int, rounds: int, count: int, scratch: Path) -> list[float]:
    config = RunConfig(
        data=files.fingerprint, resolution=files.label,
        loader=LoaderSpec(workers=workers, prefetch_factor=2 if workers else 0),
        compute=ComputeSpec(name=ACCELERATOR, batch_size=batch_size),
    )  # fmt: skip
    plain = DataLoader(
        ImageFiles(files, "imagenet", "pillow", "float32"), batch_size=batch_size, sampler=InOrder(), drop_last=True,
        num_workers=workers, prefetch_factor=2 if workers else None,
    )  # fmt: skip
    ratios = []
    with TorchLoader(config, files, scratch) as ours:
        plain_batches, our_batches = iter(plain), ours.batches()
        plain_pids = [os.getpid(), *(w.pid for w in getattr(plain_batches, "_workers", []))]
        our_pids = [os.getpid(), *ours.workers()]
        bare(plain_batches, count)
        measured(our_batches, count, our_pids)
        runs = {
            "bare": lambda: per_batch_ns(lambda: bare(plain_batches, count), count, plain_pids),
            "measured": lambda: per_batch_ns(lambda: measured(our_batches, count, our_pids), count, our_pids),
        }
        for number in range(rounds):
            cost = alternated(runs, number)
            ratios.append(cost["measured"] / cost["bare"])
    return ratios


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


def sampled(batches: Iterator[Any], pids: Sequence[int], seconds: float, scratch: Path) -> tuple[float, WaitSamples]:
    with WaitsSampler(lambda: [(pid, pid) for pid in pids], scratch) as sampler:
        speed = batches_per_cpu_s(batches, pids, seconds)
    samples = sampler.samples()
    if isinstance(samples, Missing):
        raise SystemExit(remark_words(samples.reason))
    return speed, samples


def kinds(samples: Sequence[WaitSamples]) -> str:
    seen = [WAIT_KINDS[kind] for each in samples for kind in each.kind]
    return ", ".join(f"{seen.count(kind) / len(seen):.0%} {kind}" for kind in WAIT_KINDS if kind in seen)


def show_waits(name: str, work: Work, workers: int, rounds: int, seconds: float) -> None:
    loader = iter(DataLoader(work, batch_size=BATCH, num_workers=workers, prefetch_factor=2))
    pids = [worker.pid for worker in loader._workers]  # type: ignore[attr-defined]  # torch has no public name for it
    ratios: list[float] = []
    seen: list[WaitSamples] = []
    with tempfile.TemporaryDirectory() as scratch:

        def with_sampler() -> float:
            speed, samples = sampled(loader, pids, seconds, Path(scratch))
            seen.append(samples)
            return speed

        runs = {"without": lambda: batches_per_cpu_s(loader, pids, seconds), "with": with_sampler}
        runs["without"]()
        for number in range(rounds):
            speeds = alternated(runs, number)
            ratios.append(speeds["with"] / speeds["without"])
    shares = [each.cpu_ns / each.wall_ns for each in seen]
    looks = [each.cpu_ns / len(each.kind) / 1e3 for each in seen]
    print(
        f"{name}, {workers} workers, {rounds} rounds of {seconds:g} s at {RATE_HZ:g} Hz ({kinds(seen)})\n"
        f"  sampler: {median(shares):.2%} of a core (median; {min(shares):.2%} to {max(shares):.2%}), "
        f"{median(looks):.0f} us a look at a worker ({min(looks):.0f} to {max(looks):.0f})\n"
        f"  batches per CPU second of the workers, with / without: {spread(ratios, 4)}"
    )


def measure_loop(asked: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as place:
        files = generated_set(photographs(Path(place), "500x375", 256), sample=256, seed=0)
        print(f"instrument around an empty fetch: {instrument_ns(Path(place)) / 1e3:.1f} us of CPU a batch")
        print(f"one reading of all samplers: {sampling_ns() / 1e3:.0f} us of CPU, every {PERIOD_S} s")
        for workers in (0, 2):
            rounds = asked.rounds or 24
            ratios = compare(files, workers, asked.batch_size, rounds, asked.batches, Path(place))
            print(f"{workers} workers, batch {asked.batch_size}: measured / bare CPU a batch: {spread(ratios, 4)}")
    return True


def measure_waits(asked: argparse.Namespace) -> bool:
    for name, work in {"computing": Work(20_000, 0.0), "waiting": Work(200, 0.002)}.items():
        show_waits(name, work, asked.workers, asked.rounds or 10, asked.seconds or 5.0)
    return True


PARTS = {"loop": measure_loop, "waits": measure_waits}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default=",".join(PARTS), help="with commas (%(default)s)")
    options.add_argument("--rounds", type=int, help="24 of loop, 10 of waits")
    options.add_argument("--batches", type=int, default=24, help="of a round of loop (%(default)s)")
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--seconds", type=float, help="of a round of waits; 5")
    options.add_argument("--workers", type=int, default=2, help="of waits")
    asked = options.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    good = [PARTS[name](asked) for name in asked.only.split(",")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

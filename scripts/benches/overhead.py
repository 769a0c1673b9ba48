"""What measuring costs: CPU time per batch of the measured loop over a bare loop.

Two loaders over the same warm files run in turn, in rounds: a plain DataLoader in a bare loop, and ours with
its fetch log, samplers and stamps. CPU time is that of this process and its workers, all threads, as the
scheduler counts it in ns. A round gives one ratio; the median and its interval are printed, and beside them
what the instrument takes around a fetch that does nothing.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch.utils.data import DataLoader, default_collate

from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.datasets.folder import generated_set
from loaderprobe.loaders.torch import ImageFiles, InOrder, TorchLoader
from loaderprobe.loaders.worker_probe import FetchLog, WorkerProbe
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.segments import Pace, train
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.samplers import sampling
from loaderprobe.samplers.recorded import PERIOD_S
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


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=24)
    options.add_argument("--batches", type=int, default=24)
    options.add_argument("--batch-size", type=int, default=32)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        files = generated_set(photographs(Path(place), "500x375", 256), sample=256, seed=0)
        print(f"instrument around an empty fetch: {instrument_ns(Path(place)) / 1e3:.1f} us of CPU a batch")
        print(f"one reading of all samplers: {sampling_ns() / 1e3:.0f} us of CPU, every {PERIOD_S} s")
        for workers in (0, 2):
            ratios = compare(files, workers, asked.batch_size, asked.rounds, asked.batches, Path(place))
            print(f"{workers} workers, batch {asked.batch_size}: measured / bare CPU a batch: {spread(ratios, 4)}")


if __name__ == "__main__":
    main()

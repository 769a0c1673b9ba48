"""By how much does a full buffer flatter a short benchmark? 8 workers, 10 to 200 iterations, measured against the law.

Some 2 minutes. Small photographs, cold on a disk of 20 ms a request (FUSE), so that 8 workers wait and no core is
short; and warm, where decoding is the limit and the training thread has to compete for its cores. In each round the
first 200 iterations from a full buffer are timed between two stretches of steady training with an emulated
accelerator that waits for them. The law is k / (k - free batches), at most the rate of compute alone. It prints the
rate over the first k iterations over the steady rate: the median and the range of the rounds. Ends with code 1 where a
median on the planted disk is more than 10 % above the law from two buffers on: it is the most there can be.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path

from loaderprobe.analyze.verdict.rates import segment_rate
from loaderprobe.api.policy import JUDGING
from loaderprobe.datasets.folder import generated_set
from loaderprobe.measure.assembly import join_parts, make_compute, make_loader
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.session import UNSEEN
from loaderprobe.measure.studies import PrefilledStudy
from loaderprobe.records.config import CacheState, ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.studies import Prefilled, free_batches, over_steady
from loaderprobe.stats import mean, median
from loaderprobe.system.device import locate
from loaderprobe.system.pagecache import LinuxPageCache
from scripts.benches.harness import Progress, parser, photographs, planted

RESOLUTION = "64x48"
LATENCY_S = 0.02
CACHES: dict[str, CacheState] = {"latency": "cold", "decoding": "warm"}
ITERATIONS = (10, 20, 50, 100, 200)
RATE = 5000
BATCH_SIZE = 8
OFF = 0.10
LIMITED = 2.0
"""Buffers from which on the loader is the limit."""


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--workers", type=int, default=8, help="(%(default)s)")
    options.add_argument("--factors", default="2", help="prefetch factors, with commas (%(default)s)")
    options.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    chosen = options.parse_args()
    factors = [int(each) for each in chosen.factors.split(",")]
    images = BATCH_SIZE * (ITERATIONS[-1] + 4 * chosen.workers * (max(factors) + 1))
    code = 0

    def fill(place: Path) -> None:
        photographs(place, RESOLUTION, images)

    with tempfile.TemporaryDirectory(prefix="loaderprobe-buffer-") as scratch, ExitStack() as undo:
        own = Path(scratch, "own")
        fill(own)
        folders = {"decoding": own}
        place = Path(scratch, "latency")
        place.mkdir()
        if disk := planted(undo, "latency", "latency", LATENCY_S, fill=fill, scratch=place):
            folders = {"latency": disk.folder, **folders}
        progress = Progress(chosen.rounds * len(factors) * len(folders))
        for (name, folder), factor in itertools.product(folders.items(), factors):
            files = generated_set(folder / RESOLUTION, sample=images, seed=0)
            loader, rounds = LoaderSpec(workers=chosen.workers, prefetch_factor=factor), []
            for number in range(chosen.rounds):
                rounds.append(ratios(measured(files, loader, CACHES[name], Path(scratch))))
                progress.done(f"{name}, prefetch {factor}, round {number + 1}")
            off = show(loader, rounds, f"{name}, {chosen.workers} workers, prefetch {factor}")
            code |= off if name == "latency" else 0
    return code


def measured(files: FileSet, loader_spec: LoaderSpec, cache: CacheState, scratch: Path) -> Prefilled:
    """One round."""
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    config = RunConfig(
        data=files.fingerprint,
        resolution=files.label,
        loader=loader_spec,
        compute=ComputeSpec(name=f"emulated:{RATE}", batch_size=BATCH_SIZE),
        cache=cache,
    )
    clock = SystemClock()
    with make_loader(config, files, scratch) as loader:
        compute, location = make_compute(config, clock), locate(files.folder)
        parts = join_parts(loader, compute, clock, LinuxPageCache(), location, lambda: UNSEEN, JUDGING)
        study = PrefilledStudy(config, files, parts, lambda *_: None, steps=ITERATIONS[-1], seconds=60.0)
        return study.run()


def ratios(study: Prefilled) -> dict[int, float]:
    """The rate over the first iterations over the steady rate; 0 iterations: compute alone over it."""
    segment = study.prefilled
    if segment is None:
        raise SystemExit(study.reason)
    workers = study.config.loader.workers
    steady = 1 / mean([1 / segment_rate(each, synchronous=False, workers=workers) for each in study.steady])
    ends = {count: (segment.finished_ns[count - 1] - segment.begin_ns[0]) / 1e9 for count in ITERATIONS}
    return {0: RATE / steady} | {count: count * BATCH_SIZE / seconds / steady for count, seconds in ends.items()}


def show(loader: LoaderSpec, rounds: list[dict[int, float]], name: str) -> int:
    """The table of one prefetch factor; 1 where more was measured than the law allows."""
    most, batches, free = median([each[0] for each in rounds]), loader.batches_ahead, free_batches(loader)
    print(f"{name}: {batches} batches in the buffer, {free:g} free, compute alone {most:.1f} times the steady rate")
    print(f"{'iterations':>10} {'over buffer':>12} {'measured':>9} {'range':>14} {'law':>6}")
    off = 0
    for count in ITERATIONS:
        values = [each[count] for each in rounds]
        law, middle = over_steady(count, free, most), median(values)
        off |= count >= LIMITED * batches and middle / law > 1 + OFF
        ends = f"{min(values):.2f} to {max(values):.2f}"
        print(f"{count:10} {count / batches:12.2f} {middle:9.2f} {ends:>14} {law:6.2f}")
    return int(off)


if __name__ == "__main__":
    sys.exit(main())

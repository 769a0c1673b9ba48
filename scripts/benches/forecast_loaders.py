"""What a full buffer adds to a short benchmark.

8 workers, 10 to 200 iterations, on small photographs, cold on a disk of 20 ms a request (FUSE), so that 8
workers wait and no core is short; and warm, where decoding is the limit and the training thread has to compete for its
cores. In each round the first 200 iterations from a full buffer are timed between two stretches of steady training with
an emulated accelerator that waits for them. The law is k / (k - free batches), at most the rate of compute alone: the
most there can be. A median on the planted disk may not be over 10 % above it from two buffers on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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
from scripts.benches.compared import Compared, Kind
from scripts.benches.harness import Progress, photographs, planted

RESOLUTION = "64x48"
LATENCY_S = 0.02
CACHES: dict[str, CacheState] = {"latency": "cold", "decoding": "warm"}
ITERATIONS = (10, 20, 50, 100, 200)
RATE = 5000
BATCH_SIZE = 8
OFF = 0.10
LIMITED = 2.0
"""Buffers from which on the loader is the limit."""


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


def measure_buffer(chosen: argparse.Namespace, out: Path) -> bool:
    """The ratios of each round, into one file."""
    workers, rounds = chosen.workers or 8, chosen.rounds or 3
    factors = [int(each) for each in (chosen.factors or "2").split(",")]
    images = BATCH_SIZE * (ITERATIONS[-1] + 4 * workers * (max(factors) + 1))

    def fill(place: Path) -> None:
        photographs(place, RESOLUTION, images)

    with tempfile.TemporaryDirectory(prefix="loaderprobe-buffer-") as scratch, ExitStack() as undo:
        place, folders = Path(scratch, "latency"), {"decoding": Path(scratch, "own")}
        fill(folders["decoding"])
        place.mkdir()
        if disk := planted(undo, "latency", "latency", LATENCY_S, fill=fill, scratch=place):
            folders["latency"] = disk.folder
        progress, kept = Progress(rounds * len(factors) * len(folders)), list[dict[str, Any]]()
        for (name, folder), factor in itertools.product(sorted(folders.items(), reverse=True), factors):
            files = generated_set(folder / RESOLUTION, sample=images, seed=0)
            loader, seen = LoaderSpec(workers=workers, prefetch_factor=factor), list[dict[int, float]]()
            for number in range(rounds):
                seen.append(ratios(measured(files, loader, CACHES[name], Path(scratch))))
                progress.done(f"{name}, prefetch {factor}, round {number + 1}")
            kept.append({"name": name, "workers": workers, "prefetch_factor": factor, "rounds": seen})
    (out / "buffer.json").write_text(json.dumps(kept))
    return "latency" in folders


def load_buffer(folder: Path, _: Any) -> list[Compared]:
    rows = []
    for kept in json.loads((folder / "buffer.json").read_text()):
        loader = LoaderSpec(workers=kept["workers"], prefetch_factor=kept["prefetch_factor"])
        rounds = [{int(count): ratio for count, ratio in each.items()} for each in kept["rounds"]]
        most, batches, free = median([each[0] for each in rounds]), loader.batches_ahead, free_batches(loader)
        for count in ITERATIONS:
            values = [each[count] for each in rounds]
            law = over_steady(count, free, most)
            off = kept["name"] == "latency" and count >= LIMITED * batches and median(values) / law > 1 + OFF
            rows.append(
                Compared(
                    group=f"buffer:{kept['name']}", name=f"{loader.workers} x {loader.prefetch_factor}, first {count}",
                    predicted=law, measured=median(values), wrong="above the law" * off,
                    note=f"{min(values):.2f} to {max(values):.2f}; {batches} batches in the buffer, {free:g} free, "
                    f"compute alone {most:.1f} times the steady rate",
                )
            )  # fmt: skip
    return rows


KINDS = {
    "buffer": Kind(measure=measure_buffer, load=load_buffer),
}

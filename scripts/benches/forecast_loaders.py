"""Kinds `workers` and `buffer`: what `tune workers` chooses, and what a full buffer adds to a short benchmark.

`workers`: loaders with planted work (CPU time, waiting, a lock, batches that vary) and a step that limits. Each is
tuned once; then all settings of the exhaustive grid are measured in turns. The chosen setting is compared with the best
of the grid within each turn, so that what the machine changes between turns is in neither. It must be within 2 % of the
best in one turn, found with at most half the measurements of the grid.

`buffer`: 8 workers, 10 to 200 iterations, on small photographs, cold on a disk of 20 ms a request (FUSE), so that 8
workers wait and no core is short; and warm, where decoding is the limit and the training thread has to compete for its
cores. In each round the first 200 iterations from a full buffer are timed between two stretches of steady training with
an emulated accelerator that waits for them. The law is k / (k - free batches), at most the rate of compute alone: the
most there can be. A median on the planted disk may not be over 10 % above it from two buffers on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import loaderprobe
from loaderprobe.analyze.tune.workers import Planned, visit_of
from loaderprobe.analyze.verdict.rates import segment_rate
from loaderprobe.api.policy import JUDGING
from loaderprobe.api.tune_workers import VISITS, measure_setting
from loaderprobe.datasets.folder import generated_set
from loaderprobe.loaders.unwrap import unwrap
from loaderprobe.measure.assembly import join_parts, make_compute, make_loader
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.own.loader import compute_of
from loaderprobe.measure.session import UNSEEN
from loaderprobe.measure.studies import PrefilledStudy
from loaderprobe.records.config import CacheState, ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.studies import Prefilled, free_batches, over_steady
from loaderprobe.records.tune_workers import WITHIN, WorkersSetting
from loaderprobe.stats import mean, median
from loaderprobe.system.device import locate
from loaderprobe.system.pagecache import LinuxPageCache
from scripts.benches.compared import Compared, Kind
from scripts.benches.harness import Progress, photographs, planted, spread

BATCH = 16
IMAGE = (3, 64, 64)
# Every so many batches takes longer.
PERIOD = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Seconds of a sample."""

    cpu_s: float = 0.0
    wait_s: float = 0.0
    lock_s: float = 0.0
    odd_s: float = 0.0
    """Waiting in every `PERIOD`th batch."""
    step_s: float = 0.0
    """Of a batch."""


LOADERS = {
    "cpu": Work(cpu_s=0.003),
    "waiting": Work(cpu_s=0.0002, wait_s=0.008),
    "lock": Work(lock_s=0.002),
    "compute": Work(cpu_s=0.001, step_s=0.050),
    "varying": Work(cpu_s=0.0002, wait_s=0.002, odd_s=0.02, step_s=0.040),
}


class Planted(Dataset[Any]):
    """Samples of planted work."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.lock = multiprocessing.Lock() if work.lock_s else None

    def __len__(self) -> int:
        return 1 << 14

    def __getitem__(self, index: int) -> Any:
        end = time.thread_time() + self.work.cpu_s
        while time.thread_time() < end:
            pass
        time.sleep(self.work.wait_s + (self.work.odd_s if index // BATCH % PERIOD == 0 else 0.0))
        if self.lock is not None:
            with self.lock:
                time.sleep(self.work.lock_s)
        return torch.zeros(IMAGE), index


TURNS = 3


def measure_workers(chosen: argparse.Namespace, out: Path) -> bool:
    """What was chosen, and the rates of the grid, a file for each loader."""
    factors = [int(each) for each in (chosen.factors or "2,4,8").split(",")]
    names = [name for name in LOADERS if any(part in name for part in chosen.only.split(","))]
    progress = Progress(len(names))
    for name in names:
        work = LOADERS[name]
        loader = DataLoader(Planted(work), batch_size=BATCH, num_workers=1)
        step = (lambda batch, work=work: time.sleep(work.step_s)) if work.step_s else None
        found = loaderprobe.tune_workers(loader, step, budget_s=chosen.budget)
        counts = sorted({row.setting.workers for row in found.rows})
        grid = [
            WorkersSetting(workers=count, prefetch_factor=factor)
            for count in counts
            for factor in (factors if count else [0])
        ]
        grid += [found.chosen] if found.chosen not in grid else []
        rates: dict[WorkersSetting, list[float]] = {each: [] for each in grid}
        for turn in range(1, 1 + (chosen.rounds or TURNS)):
            for each in reversed(grid) if turn % 2 else grid:
                rates[each].append(_rate(loader, step, Planned(setting=each, turn=turn), chosen.budget))
        kept = {
            "chosen": _short(found.chosen), "measurements": len(found.visits), "of": found.grid_visits,
            "settings": len({visit.setting for visit in found.visits}), "seconds": found.wall_s,
            "stop": f"{found.stop}, {found.limit}", "rates": {_short(each): values for each, values in rates.items()},
        }  # fmt: skip
        (out / f"workers-{name}.json").write_text(json.dumps(kept))
        progress.done(name)
    return True


def load_workers(folder: Path, _: Any) -> list[Compared]:
    rows = []
    for path in sorted(folder.glob("workers-*.json")):
        kept = json.loads(path.read_text())
        known = {name: values for name, values in kept["rates"].items() if not any(map(math.isnan, values))}
        best = max(known, key=lambda name: median(known[name]))
        mine = known[kept["chosen"]]
        ratios = [own / other for own, other in zip(mine, known[best], strict=True)]
        many = kept["measurements"] > kept["of"] / 2
        grid = "; ".join(f"{name}: {', '.join(f'{value:.0f}' for value in values)}" for name, values in known.items())
        rows.append(
            Compared(
                group="workers", name=path.stem.removeprefix("workers-"), predicted=median(mine),
                measured=median(known[best]),
                wrong="too many measurements" * many + f"chosen over best: {spread(ratios)}" * (max(ratios) < WITHIN),
                note=f"{kept['chosen']} in {kept['measurements']} of {kept['of']} measurements of {kept['settings']} "
                f"settings, {kept['seconds']:.0f} s ({kept['stop']}); best {best}; images/s {grid}",
            )
        )  # fmt: skip
    return rows


def _rate(loader: Any, step: Callable[[Any], Any] | None, planned: Planned, budget_s: float) -> float:
    measured = measure_setting(unwrap(loader), planned, compute_of(step), cache="cold", budget_s=budget_s / VISITS)
    return visit_of(measured, planned.setting, planned.turn).images_per_s if measured else float("nan")


def _short(setting: WorkersSetting) -> str:
    return f"{setting.workers}x{setting.prefetch_factor}"


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
    "workers": Kind(measure=measure_workers, load=load_workers),
    "buffer": Kind(measure=measure_buffer, load=load_buffer),
}

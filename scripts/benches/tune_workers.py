"""Is what `tune workers` finds within 2 % of an exhaustive search? Some 20 minutes.

Loaders with planted work (CPU time, waiting, a lock, batches that vary) and a step that limits. Each is tuned once;
then all settings of the exhaustive grid are measured in turns. The chosen setting is compared with the best of the
grid within each turn, so that what the machine changes between turns is in neither.

Ends with code 1 where the search made more than half the measurements of the grid, or the chosen setting is slower
than 98 % of the best in every turn.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import loaderprobe
from loaderprobe.analyze.tune.workers import Planned, visit_of
from loaderprobe.api.tune_workers import VISITS, measure_setting
from loaderprobe.loaders.unwrap import unwrap
from loaderprobe.measure.own.loader import compute_of
from loaderprobe.records.tune_workers import WITHIN, WorkersSetting
from loaderprobe.stats import median
from scripts.benches.harness import Progress, parser, spread

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


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--loaders", default=",".join(LOADERS), help="of: %(default)s")
    options.add_argument("--factors", default="2,4,8", help="prefetch factors of the grid (%(default)s)")
    options.add_argument("--turns", type=int, default=3, help="of the grid (%(default)s)")
    options.add_argument("--budget", type=float, default=60.0, help="seconds of each tuning (%(default)s)")
    chosen = options.parse_args()
    factors = [int(each) for each in chosen.factors.split(",")]
    names = chosen.loaders.split(",")
    progress = Progress(len(names))
    good = True
    for name in names:
        good &= _compared(name, LOADERS[name], factors, chosen.turns, chosen.budget)
        progress.done(name)
    return 0 if good else 1


def _compared(name: str, work: Work, factors: list[int], turns: int, budget_s: float) -> bool:
    loader = DataLoader(Planted(work), batch_size=BATCH, num_workers=1)
    step = (lambda batch: time.sleep(work.step_s)) if work.step_s else None
    found = loaderprobe.tune_workers(loader, step, budget_s=budget_s)
    counts = sorted({row.setting.workers for row in found.rows})
    grid = [
        WorkersSetting(workers=count, prefetch_factor=factor)
        for count in counts
        for factor in (factors if count else [0])
    ]
    grid += [found.chosen] if found.chosen not in grid else []
    rates: dict[WorkersSetting, list[float]] = {each: [] for each in grid}
    for turn in range(1, turns + 1):
        for each in reversed(grid) if turn % 2 else grid:
            rates[each].append(_rate(loader, step, Planned(setting=each, turn=turn), budget_s))
    return _judged(name, found, rates)


def _rate(loader: Any, step: Callable[[Any], Any] | None, planned: Planned, budget_s: float) -> float:
    measured = measure_setting(unwrap(loader), planned, compute_of(step), cache="cold", budget_s=budget_s / VISITS)
    return visit_of(measured, planned.setting, planned.turn).images_per_s if measured else float("nan")


def _judged(name: str, found: loaderprobe.WorkersTuning, rates: Mapping[WorkersSetting, list[float]]) -> bool:
    known = {each: values for each, values in rates.items() if not any(map(math.isnan, values))}
    best = max(known, key=lambda each: median(known[each]))
    ratios = [mine / theirs for mine, theirs in zip(known[found.chosen], known[best], strict=True)]
    few = len(found.visits) <= found.grid_visits / 2
    seen = len({visit.setting for visit in found.visits})
    print(
        f"{name}: {_short(found.chosen)} in {len(found.visits)} measurements of {seen} "
        f"settings, {found.wall_s:.0f} s ({found.stop}, {found.limit}); exhaustive: {_short(best)} of {len(known)} "
        f"settings, {found.grid_visits} measurements; chosen over best: {spread(ratios)}"
    )
    for each, values in known.items():
        print(f"  {_short(each)}: {', '.join(f'{value:.0f}' for value in values)} images/s", flush=True)
    return few and max(ratios) >= WITHIN


def _short(setting: WorkersSetting) -> str:
    return f"{setting.workers}x{setting.prefetch_factor}"


if __name__ == "__main__":
    sys.exit(main())

"""Kind `ranks`: does the replay of lock-step say what light ranks do? Real processes, loaders and all-reduces.

1, 2, 4 and 8 ranks, each with a DataLoader of its own whose batches sleep for times of a known distribution, meet in an
all-reduce after every batch. The forecast knows single ranks only, and what a meeting of so many ranks costs, which the
serial loader shows. It says how many times as long as one rank's step that of all ranks takes; one rank's step is the
mean batch and what the loader adds to it. A range holds what was seen where it reaches its 95 % interval. Beside it
stands the largest of the ranks' batches, E[max], which knows no buffer. The machine must be idle: a rank that waits for
a core is late. The ranges were chosen on the first three distributions; `--only gamma,rare,uniform` tries others. With
--steps 60 --only lognormal it takes a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loaderprobe.analyze.lock_step import Batches, lock_step
from loaderprobe.analyze.plan.plan import expected_most
from loaderprobe.records.plan import LockStep
from loaderprobe.stats import half_width_in_time, mean, median
from scripts.benches.compared import Compared, Kind, Limits
from scripts.benches.harness import part_of, ran

DISTRIBUTIONS: dict[str, Callable[[np.random.Generator], float]] = {
    "normal": lambda rng: max(0.2, rng.normal(1.0, 0.1)),
    "lognormal": lambda rng: rng.lognormal(-0.1116, 0.4724),
    "exponential": lambda rng: rng.exponential(1.0),
    "gamma": lambda rng: rng.gamma(2.0, 0.5),
    "rare": lambda rng: (0.8 if rng.random() < 0.95 else 4.8) * rng.normal(1.0, 0.05),
    "uniform": lambda rng: rng.uniform(0.5, 1.5),
}
"""Of mean 1: with a coefficient of variation of 0.1, 0.5, 1, 0.7, 0.9 and 0.3."""
CHOSEN_ON = "normal,lognormal,exponential"
LOADERS = ((0, 0), (1, 1), (1, 2), (1, 6))
"""Workers and prefetch factor."""
RANKS = (1, 2, 4, 8)
MEAN_S = 0.02
LEAD_IN = 16

START_S = 60.0
EXPECTED_STEPS = 28.0
"""What all 16 rows of a distribution take, in mean batches a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What ranks did."""

    kind: str
    workers: int
    prefetch: int
    ranks: int
    step_s: tuple[float, ...]
    """Of each step, by the clock of rank 0."""
    batch_s: tuple[tuple[float, ...], ...]
    """How long each batch slept, by rank."""

    @property
    def seen_s(self) -> float:
        """Mean step."""
        return mean(self.step_s)


def _row(found: dict[str, Any]) -> Row:
    batch_s = tuple(tuple(each) for each in found.pop("batch_s"))
    return Row(batch_s=batch_s, step_s=tuple(found.pop("step_s")), **found)


class Sleeps:
    """A data set whose batches sleep, and say how long."""

    def __init__(self, kind: str, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        self.times = [MEAN_S * DISTRIBUTIONS[kind](rng) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, number: int) -> float:
        begun = time.perf_counter()
        time.sleep(self.times[number])
        return time.perf_counter() - begun


def _as_rank(given: dict[str, Any]) -> None:
    """One of the ranks, which torchrun started. Does not return."""
    import torch
    import torch.distributed as dist

    kinds, steps = given["kinds"], given["steps"]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = {size: dist.new_group(list(range(size))) for size in RANKS}
    rows: list[Row] = []
    for number, kind in enumerate(kinds):
        for workers, prefetch in LOADERS:
            for size, group in groups.items():
                dist.barrier()
                seed = 10_000 * number + 1000 * workers + 100 * prefetch + 10 * size + rank
                took = (
                    _steps(Sleeps(kind, seed, LEAD_IN + steps), workers, prefetch, group) if rank < size else ([], [])
                )
                gathered: list[Any] = [None] * dist.get_world_size()
                dist.all_gather_object(gathered, took)
                rows.append(
                    Row(
                        kind=kind, workers=workers, prefetch=prefetch, ranks=size, step_s=tuple(gathered[0][0]),
                        batch_s=tuple(tuple(each[1]) for each in gathered[:size]),
                    )
                )  # fmt: skip
    if rank == 0:
        Path(given["out"], "ranks.json").write_text(json.dumps([asdict(row) for row in rows]))
    dist.barrier()
    # gloo may wait for ranks that have gone.
    os._exit(0)


def _steps(data: Sleeps, workers: int, prefetch: int, group: Any) -> tuple[list[float], list[float]]:
    """(seconds of each step, seconds that each batch slept), after the lead-in."""
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader

    met, flag, step_s, batch_s = time.perf_counter(), torch.zeros(1), [], []
    loader: Any = DataLoader(data, batch_size=1, num_workers=workers, prefetch_factor=prefetch or None)  # type: ignore[arg-type]
    for batch in loader:
        dist.all_reduce(flag, group=group)
        now = time.perf_counter()
        step_s.append(now - met)
        batch_s.append(float(batch[0]))
        met = now
    return step_s[LEAD_IN:], batch_s[LEAD_IN:]


def _meeting_s(rows: Sequence[Row], size: int) -> float:
    """What the serial loader's steps take beyond the longest batch of each."""
    beyond = [
        row.seen_s - mean([max(step) for step in zip(*row.batch_s, strict=True)])
        for row in rows
        if row.workers == 0 and row.ranks == size
    ]
    return max(0.0, median(beyond))


def _added_s(rows: Sequence[Row], workers: int, prefetch: int) -> float:
    """What one rank's step takes beyond its batch, which it waits for: the way from worker to rank."""
    return median(
        [
            row.seen_s - mean(row.batch_s[0])
            for row in rows
            if (row.workers, row.prefetch, row.ranks) == (workers, prefetch, 1)
        ]
    )


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    """All rows into one file."""
    kinds = [kind for kind in DISTRIBUTIONS if kind in (chosen.only or CHOSEN_ON).split(",")]
    seconds = len(kinds) * chosen.steps * MEAN_S * EXPECTED_STEPS
    print(f"{max(RANKS)} processes, about {seconds / 60:.0f} minutes", flush=True)
    own = part_of("forecast", "ranks", {"out": str(out), "kinds": kinds, "steps": chosen.steps})
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(max(RANKS))]
    return ran([own[0], *launcher, *own[1:]], "the ranks", START_S + 4 * seconds)


def load(folder: Path, _: Any) -> list[Compared]:
    rows = [_row(each) for each in json.loads((folder / "ranks.json").read_text())]
    meeting = {size: _meeting_s(rows, size) for size in RANKS}
    print("a meeting takes", ", ".join(f"{1e3 * each:.1f} ms of {size}" for size, each in meeting.items()))
    added = {loader: _added_s(rows, *loader) for loader in LOADERS if loader[0]}
    print("a loader adds", ", ".join(f"{1e3 * each:.1f} ms ({n} x {p})" for (n, p), each in added.items()))
    found: list[Compared] = []
    for row in rows:
        pool = tuple(each.batch_s[0] for each in rows if (each.kind, each.ranks) == (row.kind, 1))
        batches = Batches(series=pool, images=1, workers=row.workers, prefetch_factor=row.prefetch)
        made = lock_step(batches, meeting[row.ranks], row.ranks)
        assert isinstance(made, LockStep)
        cost = made.at(row.prefetch)
        assert cost is not None
        times = [each for series in pool for each in series]
        alone_s = mean(times) + added[row.workers, row.prefetch] if row.workers else cost.alone_s
        step_ms, low, high = (1e3 * alone_s * each for each in (cost.cost.value, cost.cost.low, cost.cost.high))
        crude_ms = 1e3 * (expected_most(times, row.ranks) + meeting[row.ranks])
        loader = f"{row.workers} x {row.prefetch}" if row.workers else "serial"
        # What is judged: several ranks, with workers.
        name, several = f"{row.kind}, {loader}, {row.ranks} ranks", bool(row.workers) and row.ranks > 1
        one = Compared(
            group="ranks", name=name, predicted=step_ms, low=low, high=high, measured=1e3 * row.seen_s,
            slack=1e3 * half_width_in_time(row.step_s), trivial=not several, note=f"E[max] {crude_ms:.1f}",
        )  # fmt: skip
        found.append(one)
    crude = [abs(float(each.note.split()[1]) / each.measured - 1) for each in found if not each.trivial]
    print(f"E[max], which knows no buffer: median error {median(crude):.1%}, largest {max(crude):.1%}")
    return found


KINDS = {"ranks": Kind(measure=measure, load=load, limits=Limits(error=0.10, held=0.90), child=_as_rank)}

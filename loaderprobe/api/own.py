"""Measure a user's own DataLoader with a user's own step, in this process, as one configuration."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaderprobe.batches import holds_images
from loaderprobe.errors import BadValue
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.session import OnStage, Parts, Session
from loaderprobe.plugins import resolve
from loaderprobe.protocols import Clock, Compute, NextRound, PageCache
from loaderprobe.records.config import BatchFiles, CacheState, RunConfig, content_hash
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Measurement
from loaderprobe.system.cpu import cores_available
from loaderprobe.system.device import locate, read_sectors
from loaderprobe.system.pagecache import LinuxPageCache

# A cold segment reads each file once, so a pool must hold its batches, those ahead and those flushed.
POOL_BATCHES = 14
LEARN_SHARE = 0.25
HIDDEN = StorageLocation(
    path="", filesystem="unknown", kind="unknown", mount="", source="", devices=(), notes=("the files are not known",)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a loader is to be measured."""

    cache: CacheState = "cold"
    budget_s: float | None
    thorough: bool = False
    rounds: int = 3
    seed: int = 0
    next_round: NextRound | None = None
    """None takes the standard one."""


def measure_loader(
    loader: Any, compute: Callable[[Clock], Compute], asked: Asked, on_stage: OnStage, cache: PageCache | None = None
) -> tuple[Measurement, BatchFiles | str]:
    """What one loader does with one device, and the files that it reads, or why they are not known.

    Raises BadValue for a loader that cannot be measured, and whatever the data set or the step raises. The
    loader is left as it was found.
    """
    from loaderprobe.loaders.own import OwnLoader, random_state_kept

    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="loaderprobe-") as scratch:
        own = OwnLoader(loader, Path(scratch))
        with random_state_kept(loader), own:
            on_stage("learning which files are read", 0, 0)
            begin_ns = clock.now_ns()
            taken, images = _learn(own, loader, clock, asked.budget_s)
            device = compute(clock)
            config = _config(own, loader, device, asked)
            files = own.files(config.batch_size)
            known = files if isinstance(files, BatchFiles) else None
            location = locate(Path(known.paths[0][0])) if known else HIDDEN
            left_s = None if asked.budget_s is None else asked.budget_s - (clock.now_ns() - begin_ns) / 1e9
            session = Session(
                config=config,
                files=known,
                parts=Parts(
                    loader=own,
                    compute=device,
                    clock=clock,
                    cache=cache or LinuxPageCache(),
                    location=location,
                    cores_available=cores_available(),
                    read_devices=lambda: read_sectors(location.devices),
                    next_round=asked.next_round or resolve("rounds", "standard"),
                ),
                on_stage=on_stage,
                budget_s=left_s,
                thorough=asked.thorough,
                taken=taken,
                images=images,
            )
            try:
                session.run()
            except StopIteration as error:
                raise _ended(session.taken) from error
            return session.measurement((), ()), files


def _learn(own: Any, loader: Any, clock: Clock, budget_s: float | None) -> tuple[int, bool]:
    """Take batches until the pool holds enough of them, or a share of the time is gone.

    Returns how many, and whether they hold images.
    """
    batches = own.batches()
    begin_ns = clock.now_ns()
    wanted = POOL_BATCHES + loader.num_workers * (2 * (loader.prefetch_factor or 0) + 2)
    taken, size, images = 0, 0, False
    while not size or taken < size:
        batch = next(batches, _END)
        if batch is _END:
            raise _ended(taken)
        images = images or holds_images(batch)
        taken += 1
        late = budget_s is not None and clock.now_ns() - begin_ns > LEARN_SHARE * budget_s * 1e9
        if not size and (taken >= wanted or late or own.exhausted):
            size = own.settle(taken)
    return taken, images


_END = object()


def _ended(taken: int) -> BadValue:
    if taken:
        return BadValue(
            f"the loader ended after {taken} batches and did not begin again",
            hint="make the data set's __iter__ start anew each time",
        )
    return BadValue(
        "the loader yields no batch", hint="is the data set empty, or smaller than a batch with drop_last=True?"
    )


def _config(own: Any, loader: Any, compute: Compute, asked: Asked) -> RunConfig:
    known = isinstance(own.files(1), BatchFiles)
    return RunConfig(
        data=content_hash([type(loader.dataset).__qualname__, repr(loader.batch_size)]),
        resolution="as-found",
        workers=loader.num_workers,
        batch_size=max(1, own.records().images[0]),
        prefetch_factor=loader.prefetch_factor or 0,
        loader="own",
        compute=compute.info().name,
        cache=asked.cache if known else "as-found",
        rounds=asked.rounds,
        seed=asked.seed,
    )

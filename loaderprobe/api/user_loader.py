"""Measure a user's own DataLoader with a user's own step, in this process, as one configuration."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.experiments import judged_activity
from loaderprobe.analyze.verdict.rounds import next_round as standard_rounds
from loaderprobe.api.assembly import join_parts
from loaderprobe.api.ceilings import CEILING_S, ceiling_of
from loaderprobe.batches import length_of
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.further import enough_said
from loaderprobe.measure.learning import Learned, Learning
from loaderprobe.measure.parts import Parts
from loaderprobe.measure.recorder import Recorder
from loaderprobe.measure.session import OnStage, Session
from loaderprobe.measure.turns import GivenUp
from loaderprobe.protocols import ComputeArguments, MakeCompute, NextRound, PageCache
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.config import CacheState, ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.files import LoaderFiles, UnknownFiles, content_hash
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.note import Note
from loaderprobe.records.options import with_options
from loaderprobe.render.note_words import note_words
from loaderprobe.samplers.waits import WaitsSampler
from loaderprobe.system.device import locate
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.system.process import threads_of
from loaderprobe.units import format_duration

# A budget is kept between rounds; within one it may be overrun so far, for batches and steps that take seconds.
OVERRUN_TIMES = 2.0
OVERRUN_S = 10.0
# A batch that does not come at all, with workers.
PATIENCE_S = 60.0
ENDED = Note(code="script_ended")
BROKEN_OFF = Note(code="broken_off")
HIDDEN = StorageLocation(
    path="", filesystem="unknown", kind="unknown", mount="", source="", devices=(), notes=(Note(code="files_unknown"),)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a loader is to be measured."""

    cache: CacheState = "cold"
    budget_s: float | None
    thorough: bool = False
    rounds: int = 3
    seed: int = 0
    next_round: NextRound = standard_rounds
    session: Callable[..., Session] = Session
    """Makes what drives the measurement, of a session's fields."""
    ceiling: bool = True
    """Whether to measure what the storage delivers, too."""
    deadline: Callable[[float | None], Deadline] = lambda budget_s: Deadline(budget_s)
    """Makes what ends a measurement that takes too long, of the budget."""
    joined: Callable[[Measurement], Measurement] = lambda measured: measured
    """Makes one measurement of those of all ranks."""
    ranks: int = 1
    """That are asked for; a script, which has ranks by itself, is not asked."""
    nodes: int = 1


class OutOfTimeError(LoaderprobeError):
    """More time has gone than the budget allows to overrun."""


class Deadline(SystemClock):
    """A clock for the step, and a check before each batch: both raise OutOfTimeError once it is too late."""

    def __init__(self, budget_s: float | None) -> None:
        self._begin_ns = super().now_ns()
        self._most_s = None if budget_s is None else OVERRUN_TIMES * budget_s + OVERRUN_S
        self.patience_s = 0.0 if self._most_s is None else self._most_s + PATIENCE_S

    @property
    def spent_s(self) -> float:
        """Seconds since it was made."""
        return (super().now_ns() - self._begin_ns) / 1e9

    def now_ns(self) -> int:
        """Now, in ns; raises OutOfTimeError when it is too late."""
        self.check()
        return super().now_ns()

    @property
    def late(self) -> bool:
        """True when it is too late."""
        return self._most_s is not None and self.spent_s > self._most_s

    def error(self) -> OutOfTimeError:
        """What is raised then."""
        return OutOfTimeError(f"not even one round fitted into {format_duration(self._most_s or 0.0)}")

    def check(self) -> None:
        """Raise OutOfTimeError when it is too late."""
        if self.late:
            raise self.error()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMeasured:
    """What one loader does, the files that it reads (or why they are not known), and what its storage delivers."""

    measurement: Measurement
    files: LoaderFiles
    ceiling: StorageCeiling | None = None
    keeps_samples: bool = False
    """True when its data set did less work the second time."""


def measure_loader(
    loader: Any, compute: MakeCompute, asked: Asked, on_stage: OnStage, cache: PageCache | None = None
) -> UserMeasured:
    """Measure one loader with one device.

    The loader is left as it was found. Raises BadValue for a loader that cannot be measured, or not in the time
    there is; LoaderprobeError, with its cause, for what the data set or the step raises.
    """
    from loaderprobe.loaders.shared_state import shared_state_kept
    from loaderprobe.loaders.unwrap import Otherwise, Unwrapped, unwrap

    given = loader if isinstance(loader, Unwrapped) else unwrap(loader)
    with shared_state_kept(given.loader) as state:
        for note in state.notes:
            on_stage(note_words(note), 0, 0)
        while True:
            try:
                found = _measure(given, compute, asked, on_stage, cache or LinuxPageCache())
                notes = (*found.measurement.notes, *state.notes)
                return replace(found, measurement=replace(found.measurement, notes=notes))
            except Otherwise as error:
                given = error.instead  # without the wrapper, or with fewer workers: that ends


def _measure(given: Any, compute: MakeCompute, asked: Asked, on_stage: OnStage, cache: PageCache) -> UserMeasured:
    from loaderprobe.loaders.random_state import random_state_kept
    from loaderprobe.loaders.user_loader import UserLoader

    loader = given.loader
    limit = asked.deadline(asked.budget_s)
    with tempfile.TemporaryDirectory(prefix="loaderprobe-") as scratch:
        own = UserLoader(given, Path(scratch), limit.check, limit.patience_s)
        looking = WaitsSampler(lambda: _threads(own, loader), Path(scratch))
        with random_state_kept(loader), own, looking:
            try:
                on_stage("learning which files are read", 0, 0)
                learned = _learning(own, loader, limit, asked, cache).run()
                looking.follow_threads()
                config = _config(own, loader, asked, learned)
                device = compute(ComputeArguments(spec=config.compute, loader=config.loader, clock=limit))
                location = _location(learned.files)
                parts = join_parts(own, device, SystemClock(), cache, location, looking.samples, asked.next_round)
                session = _session(config, parts, asked, on_stage, learned)
                wanted = asked.ceiling and session.parts.location.counts_reads and asked.cache == "cold"
                ceiling_s = CEILING_S if wanted else 0.0
                spent_s = limit.spent_s + ceiling_s
                session.budget_s = None if asked.budget_s is None else max(0.0, asked.budget_s - spent_s)
                notes = _run(session, own, loader)
            except OutOfTimeError as error:
                raise BadValue(
                    f"{error.message}, in which the loader gave {len(own.records().batch)} batches",
                    hint="give more time (--budget, in Python budget_s), or use smaller batches (--batch-size)",
                ) from error
            measured = session.measurement((), ())
            measured = asked.joined(replace(measured, notes=(*measured.notes, *own.notes(), *notes)))
    # When the script ends, nothing can be started any more.
    wanted = wanted and ENDED not in measured.notes
    if wanted:
        on_stage("what the storage delivers", 0, 0)
    ceiling = ceiling_of(measured, learned.files, cache) if wanted else None
    return UserMeasured(
        measurement=replace(measured, notes=_with_budget(measured, ceiling, session, asked)),
        files=learned.files,
        ceiling=ceiling,
        keeps_samples=learned.keeps_samples,
    )


def _with_budget(
    measured: Measurement, ceiling: StorageCeiling | None, session: Session, asked: Asked
) -> tuple[Note, ...]:
    """The notes; where the budget ended the session while the verdict is open, with the budget that it would take."""
    if session.more_s is None or not session.budget_s or asked.budget_s is None or not _is_open(measured, ceiling):
        return measured.notes
    # Learning and the storage alone take their shares of a larger budget, too.
    enough_s = asked.budget_s * (1 + session.more_s / session.budget_s)
    return enough_said(measured.notes, enough_s, session.enough_rounds)


def _is_open(measured: Measurement, ceiling: StorageCeiling | None) -> bool:
    try:
        return verdict(measured, ceiling).bound.cause in ("inconclusive", "either")
    except BadValue:
        return True  # no complete round


def _threads(own: Any, loader: Any) -> list[tuple[int, int]]:
    """Those that make batches; none while workers are still to be started, as some wrappers do with the first batch."""
    return threads_of(own.workers()) if own.workers() or not loader.num_workers else []


def _name(files: LoaderFiles, loader: Any) -> str:
    """Of the folder that all files lie under, where one has a name of its own; else of the data set's class."""
    if not isinstance(files, UnknownFiles) and files.file_bytes:
        folder = Path(os.path.commonpath([Path(path).parent for path in files.file_bytes]))
        if folder.name:
            return folder.name.encode(errors="replace").decode()
    return type(loader.dataset).__name__


def _learning(own: Any, loader: Any, limit: Deadline, asked: Asked, cache: PageCache) -> Learning:
    return Learning(
        loader=own,
        cache=cache,
        workers=loader.num_workers,
        ahead=loader.num_workers * (loader.prefetch_factor or 0),
        spent_s=lambda: limit.spent_s,
        budget_s=asked.budget_s,
        ended=lambda taken: _ended(taken, loader),
        counts_reads=lambda files: _location(files).counts_reads,
        samples=own.samples_in_files(),
    )


def _location(files: LoaderFiles) -> StorageLocation:
    """Of the storage under the largest of the files: a small one beside the data may be anywhere."""
    if isinstance(files, UnknownFiles) or not files.file_bytes:
        return HIDDEN
    return locate(Path(max(files.file_bytes, key=lambda path: files.file_bytes[path])))


def _session(config: RunConfig, parts: Parts, asked: Asked, on_stage: OnStage, learned: Learned) -> Session:
    return asked.session(
        recorder=Recorder(
            with_options(config, compute=parts.compute.info().name),
            access=learned.access,
            first_lap=learned.lap,
            sample_bytes=learned.sample_bytes,
            images=learned.images,
        ),
        files=None if isinstance(learned.files, UnknownFiles) else learned.files,
        taken=learned.taken,
        pool=learned.pool,
        held=learned.held,
        parts=parts,
        on_stage=on_stage,
        thorough=asked.thorough,
    )


def _run(session: Session, own: Any, loader: Any) -> tuple[Note, ...]:
    """Measure; a note says when a round was broken off. Raises OutOfTimeError when that was the first."""
    try:
        session.run()
    except StopIteration as error:
        raise _ended(session.taken, loader) from error
    except (OutOfTimeError, GivenUp) as error:
        given_up = isinstance(error, GivenUp)
        if not _has_round(session):
            raise (BadValue("not even one round was measured") if given_up else error) from error
        return (ENDED if given_up else BROKEN_OFF,)
    own.check()
    return ()


def _has_round(session: Session) -> bool:
    measured = session.measurement((), ())
    needed = {"loader_only", judged_activity(measured)}
    return needed <= {each.activity for each in measured.segments if each.mode == session.base_mode}


def _ended(taken: int, loader: Any) -> BadValue:
    if taken:
        return BadValue(
            f"the loader ended after {taken} batch{'' if taken == 1 else 'es'} and did not begin again",
            hint="make the data set's __iter__ start from the beginning each time",
        )
    count, size = length_of(loader.dataset), loader.batch_size
    if count == 0:
        return BadValue("the loader yields no batch: its data set is empty", hint="check where the data set looks")
    if count and size and count < size and loader.drop_last:
        return BadValue(
            f"the loader yields no batch: {size} are a batch, the data set has {count}, and drop_last=True drops those",
            hint="use a smaller batch_size, or drop_last=False",
        )
    return BadValue(
        "the loader yields no batch", hint="iterate it yourself; is its sampler empty, or its data set used up?"
    )


def _config(own: Any, loader: Any, asked: Asked, learned: Learned) -> RunConfig:
    return RunConfig(
        data=content_hash([type(loader.dataset).__qualname__, repr(loader.batch_size)]),
        resolution=_name(learned.files, loader),
        loader=LoaderSpec(name="own", workers=loader.num_workers, prefetch_factor=loader.prefetch_factor or 0),
        compute=ComputeSpec(name="own", batch_size=max(1, own.records().images[0])),
        cache="as-found" if learned.access == "none" else asked.cache,
        rounds=asked.rounds,
        seed=asked.seed,
        ranks=asked.ranks,
        nodes=asked.nodes,
    )

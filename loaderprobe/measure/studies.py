"""What a sweep measures beside the verdicts, once it has them: training from a full buffer, and whole epochs."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from loaderprobe.analyze.judge import Judged
from loaderprobe.errors import DamagedRun
from loaderprobe.measure.parts import Parts
from loaderprobe.measure.runner import Order
from loaderprobe.measure.segment_runner import FIRST_STEP, asked_mode, warm_up
from loaderprobe.measure.segments import Pace, Readiness, Steps, flush, train
from loaderprobe.measure.session import OnStage
from loaderprobe.measure.sweep import START_SECONDS, OnProgress, Orders, Task
from loaderprobe.policy import Ask, Ended, Results, Stop, follow
from loaderprobe.protocols import Clock, Switched
from loaderprobe.records.config import LoaderSpec, RunConfig, Study, StudyPlan, SweepSpec, asks_for
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, Mode, RunFailure, Segment, WorkerBatches
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Epoch, EpochsMeasured, Prefilled
from loaderprobe.store.run_directory import STUDIES, RunDirectory
from loaderprobe.system.host import utc_timestamp

# Whole epochs: the first with cold files, the others with what the page cache kept of those before.
#
# Each epoch reads every file once in an order of its own, as a shuffling sampler makes it: in one order throughout, a
# cache that holds less than all would keep nothing that is read again. The loader runs through from epoch to epoch.

LEAST_TIMED = 12
"""Batches of the first epoch after those that were loaded before its clock began."""


def in_epochs(files: FileSet, config: RunConfig, epochs: int) -> FileSet:
    """The files once for each epoch, each time in another order; what fills no batch is left out of an epoch."""
    whole = _batches(files, config) * config.compute.batch_size
    chosen: list[int] = []
    for number in range(epochs):
        order = list(range(files.count))
        random.Random(config.seed + number).shuffle(order)
        chosen += order[:whole]
    return replace(
        files,
        paths=tuple(files.paths[place] for place in chosen),
        classes=tuple(files.classes[place] for place in chosen),
        size_bytes=tuple(files.size_bytes[place] for place in chosen),
    )


def too_small(files: FileSet, config: RunConfig) -> Remark | None:
    """Why a set has no epochs to speak of; None where it has."""
    least = (config.loader.batches_begun + LEAST_TIMED) * config.compute.batch_size
    if files.count >= least:
        return None
    return Remark(code="too_few_for_epoch", facts={"images": files.count, "least": least})


def pages_bytes(files: FileSet) -> int:
    """What the files take in the page cache."""
    return sum(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE for size in files.size_bytes)


def _batches(files: FileSet, config: RunConfig) -> int:
    return files.count // config.compute.batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsStudy:
    """Trains the epochs of one configuration; `memory` is what the page cache may take beside what runs now."""

    config: RunConfig
    files: FileSet
    order: FileSet
    """The same files epoch by epoch (`in_epochs`): what the loader serves. They were evicted before it began."""
    parts: Parts
    epochs: int
    resident_before: float | None
    memory: Callable[[], int | None]
    on_stage: OnStage

    def run(self) -> EpochsMeasured:
        started_utc = utc_timestamp()
        loader, compute, clock = self.parts.loader, self.parts.compute, self.parts.clock
        self.on_stage("first batch", 0, self.epochs)
        batches = loader.batches()
        warm_up([compute.copy(next(batches))], self.config, compute, clock)
        memory = [self.memory()]
        # Those were loaded while the device was being made; an epoch begins with an empty buffer.
        early = self.config.loader.batches_begun
        flush(batches, early)
        number = 1 + early
        each, found = _batches(self.files, self.config), list[Epoch]()
        for epoch in range(self.epochs):
            self.on_stage(f"epoch {epoch + 1}", epoch, self.epochs)
            steps = train(batches, compute, clock, _exactly((epoch + 1) * each - number))
            number = (epoch + 1) * each
            found.append(self._epoch(epoch * each, each, steps))
            # Processes grow while they train: the least that was left for files counts.
            memory.append(self.memory())
        return EpochsMeasured(
            config=self.config,
            started_utc=started_utc,
            set_bytes=pages_bytes(self.files),
            memory_bytes=min((left for left in memory if left is not None), default=None),
            resident_before=self.resident_before,
            epochs=tuple(found),
        )

    def _epoch(self, first: int, batches: int, steps: Steps) -> Epoch:
        size = self.config.compute.batch_size
        end_ns = max(steps.closed_ns, *steps.finished_ns[-1:])
        return Epoch(
            images=len(steps.begin_ns) * size,
            wall_s=(end_ns - steps.begin_ns[0]) / 1e9,
            delivered_bytes=self.order.delivered_bytes(first * size, batches * size),
            storage_bytes=self._from_storage(self.parts.loader.records(), range(first, first + batches)),
        )

    def _from_storage(self, records: WorkerBatches, numbers: range) -> int | None:
        """By the processes of this loader; None where that is not counted, or a record is lost."""
        if not self.parts.location.counts_reads:
            return None
        of = [read for batch, read in zip(records.batch, records.read_bytes, strict=True) if batch in numbers]
        return sum(of) if len(of) == len(numbers) else None


def _exactly(steps: int) -> Pace:
    """So many, however long they take."""
    return Pace(min_s=0.0, min_batches=steps, max_s=inf, max_batches=steps)


PREFILLED_SECONDS = 20.0
"""Twice steady training, filling, and training from a full buffer."""
EXAMPLE_RATE = 300
"""Images/s: what two cores decode, about."""
TITLES: dict[Study, str] = {"prefilled": "full buffer", "epochs": "epochs"}

RunOne = Callable[..., Prefilled | EpochsMeasured | RunFailure]
"""Runs an order in a process of its own: `run_order` with its `start` given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTask(Task):
    """One study of one configuration, and the seconds that it is expected to take."""

    study: Study
    files: FileSet
    expected_s: float


def pending_studies(run: RunDirectory) -> Iterator[tuple[Study, RunConfig, FileSet]]:
    """What is still to be studied; what failed is tried again."""
    for study, configs in asks_for(run.record.spec).items():
        for config in configs:
            known = run.study(study, config.key)
            if known is None or known.reason:
                with suppress(DamagedRun):  # the report names the file
                    yield study, config, run.files(config.data)


def plan_studies(run: RunDirectory) -> tuple[StudyPlan, ...]:
    """What is going to be studied, and how long that takes."""
    found: dict[Study, list[FileSet]] = {}
    for study, _, files in pending_studies(run):
        found.setdefault(study, []).append(files)
    return tuple(_plan(study, files, run.record.spec.epochs) for study, files in found.items())


def _plan(study: Study, files: Sequence[FileSet], epochs: int) -> StudyPlan:
    if study == "prefilled":
        return StudyPlan(study=study, configurations=len(files), each_s=PREFILLED_SECONDS)
    images = max(file.count for file in files)
    return StudyPlan(
        study=study,
        configurations=len(files),
        each_s=epochs * images / EXAMPLE_RATE,
        epochs=epochs,
        images=images,
        set_bytes=max(sum(file.size_bytes) for file in files),
        images_per_s=EXAMPLE_RATE,
    )


def tasks(run: RunDirectory) -> tuple[StudyTask, ...]:
    """What is still to be studied, of the configurations that were measured."""
    found: list[tuple[Study, RunConfig, FileSet, float]] = []
    for study, config, files in pending_studies(run):
        measured = run.result(config.key)
        if isinstance(measured, Measurement):
            seconds = START_SECONDS + _seconds(study, run.record.spec, files, Judged(measurement=measured).images_per_s)
            found.append((study, config, files, seconds))
    return tuple(
        StudyTask(study=study, config=config, files=files, expected_s=seconds, number=number, total=len(found))
        for number, (study, config, files, seconds) in enumerate(found, 1)
    )


def _seconds(study: Study, spec: SweepSpec, files: FileSet, images_per_s: float | None) -> float:
    if study == "prefilled":
        return PREFILLED_SECONDS
    return spec.epochs * files.count / images_per_s if images_per_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StudiesPolicy:
    """Each study once. With a limit of seconds, what takes longer than is left waits for a resume."""

    tasks: Sequence[StudyTask]
    left_s: float | None

    def next(self, results: Results[StudyTask, None]) -> Ask[StudyTask] | Stop[Ended]:
        """The next that there is time for."""
        begun = results.done[-1].what.number if results.done else 0
        for task in self.tasks[begun:]:
            if self.left_s is None or results.spent_s + task.expected_s <= self.left_s:
                done_s = sum(each.what.expected_s for each in results.done)
                whole_s = sum(each.expected_s for each in self.tasks)
                return Ask(what=task, done=done_s, takes=task.expected_s, total=whole_s)
        return Stop(reason="complete" if len(results.done) == len(self.tasks) else "no_time")


def study_all(
    run: RunDirectory, *, clock: Clock, run_one: RunOne, on_progress: OnProgress, left_s: float | None
) -> None:
    """Measure each by `StudiesPolicy`, and keep it at once."""
    spec = run.record.spec
    orders = Orders(
        clock=clock, on_progress=on_progress, time_limit_s=spec.time_limit_s, budget_s=left_s, begin_ns=clock.now_ns()
    )

    def measure(ask: Ask[StudyTask]) -> None:
        task, found = ask.what, studied(ask)
        kept = without(task.study, task.config, task.files, found) if isinstance(found, Remark) else found
        run.save_study(task.study, kept)

    def studied(ask: Ask[StudyTask]) -> Prefilled | EpochsMeasured | Remark:
        task = ask.what
        if (why := _refused(spec, task)) is not None:
            return why
        order = Order(
            config=task.config, files=task.files, budget_s=None, begin_ns=clock.now_ns(), study=task.study,
            epochs=spec.epochs,
        )  # fmt: skip
        run_study = partial(run_one, type_=STUDIES[task.study])
        found: Prefilled | EpochsMeasured | RunFailure = orders.measured(ask, order, run_study, TITLES[task.study])
        if isinstance(found, RunFailure):
            return Remark(code="failed", facts={"error": found.reason, "stage": found.stage, "hint": found.hint})
        return found

    follow(StudiesPolicy(tasks=tasks(run), left_s=left_s), measure, clock=clock)


def _refused(spec: SweepSpec, task: StudyTask) -> Remark | None:
    """Why it is not even begun; None where it is."""
    if task.study == "prefilled":
        return None
    if task.expected_s > spec.time_limit_s:
        return Remark(
            code="epochs_too_long",
            facts={"epochs": spec.epochs, "images": task.files.count, "take_s": task.expected_s,
                   "timeout_s": spec.time_limit_s},
        )  # fmt: skip
    return too_small(task.files, task.config)


def without(study: Study, config: RunConfig, files: FileSet, why: Remark) -> Prefilled | EpochsMeasured:
    """A study that was not made, and why."""
    started_utc = utc_timestamp()
    if study == "prefilled":
        return Prefilled(config=config, started_utc=started_utc, reason=why)
    return EpochsMeasured(
        config=config, started_utc=started_utc, set_bytes=pages_bytes(files), memory_bytes=None,
        resident_before=None, reason=why,
    )  # fmt: skip


# Training that begins with a full buffer: what a short benchmark measures that starts its loader first.
#
# Steady training, training from a full buffer, steady training: what drifts in a straight line meanwhile cancels.

STEPS = 100
"""From a full buffer; and no fewer than these times what it holds."""
BUFFERS = 3
LEAST_BUFFERS = 2
"""With fewer, a full buffer is most of what would be seen."""
MOST_SECONDS = 10.0
STEADY = Pace(min_s=3.0, min_batches=12, max_s=5.0)
FILL_S = 60.0
LOOK_S = 0.002


@dataclass(slots=True)
class PrefilledStudy:
    """Runs it for one configuration; `steps` from a full buffer, `seconds` for them at most."""

    config: RunConfig
    files: FileSet
    parts: Parts
    on_stage: OnStage
    steps: int = STEPS
    seconds: float = MOST_SECONDS
    _taken: int = field(init=False, default=0)
    _batches: Iterator[Any] = field(init=False)
    _ready: Readiness = field(init=False)

    @property
    def _mode(self) -> Mode:
        return asked_mode(self.config)

    def run(self) -> Prefilled:
        """Before, prefilled, after; or the reason why not."""
        started_utc = utc_timestamp()
        why = self._impossible()
        if why is not None:
            return Prefilled(config=self.config, started_utc=started_utc, reason=why)
        self._begin()
        self.on_stage("steady training", 0, 3)
        before = self._steady()
        self.on_stage("filling the buffer", 1, 3)
        prefilled = self._prefilled()
        if prefilled is None:
            why = Remark(code="buffer_not_filled", facts={"within_s": FILL_S})
            return Prefilled(config=self.config, started_utc=started_utc, reason=why)
        self.on_stage("steady training", 2, 3)
        steady = before, self._steady()
        return Prefilled(config=self.config, started_utc=started_utc, steady=steady, prefilled=prefilled)

    def _impossible(self) -> Remark | None:
        """Why a full buffer cannot be studied; None where it can."""
        if not isinstance(self.parts.loader, Switched):
            return Remark(code="buffer_not_told")
        least = images_for(self.config, LEAST_BUFFERS * self.config.loader.batches_ahead)
        if self.config.cache == "cold" and self.files.count < least:
            return Remark(code="too_few_for_buffer", facts={"images": self.files.count, "least": least})
        return None

    def _begin(self) -> None:
        parts = self.parts.loader, self.parts.cache
        self._ready = Readiness(self.config, self.files, "files", *parts, self._drop)
        self.on_stage("first batch", 0, 3)
        self._batches = self.parts.loader.batches()
        first = next(self._batches)
        self._taken = 1
        warm_up([self.parts.compute.copy(first)], self.config, self.parts.compute, self.parts.clock)

    def _steady(self) -> Segment:
        """As a session times training: after a flush, from an empty buffer."""
        self._prepare(STEADY)
        train(self._batches, self.parts.compute, self.parts.clock, FIRST_STEP)
        self._taken += 1
        pace = replace(STEADY, multiple=max(1, self.config.loader.workers))
        return self._timed(self._ready.limit(pace, self._mode, untimed(self.config.loader) + 1))

    def _prefilled(self) -> Segment | None:
        steps = max(self.steps, BUFFERS * self.config.loader.batches_ahead)
        if self.config.cache == "cold":
            steps = min(steps, fitting(self.config, self.files))
        pace = Pace(min_s=0.0, min_batches=steps, max_s=self.seconds, max_batches=steps)
        self._prepare(pace)
        return self._timed(pace) if self._filled() else None

    def _prepare(self, pace: Pace) -> None:
        self._ready.prepare(self._mode, taken=self._taken, pace=pace, cores=self.parts.cores_available)
        # Those were made from other files than those of the segment.
        self._drop(self.config.loader.batches_begun)

    def _filled(self) -> bool:
        """Wait until the workers have made all they may; False when that takes too long."""
        clock, loader = self.parts.clock, self.parts.loader
        end_ns = clock.now_ns() + round(FILL_S * 1e9)
        assert isinstance(loader, Switched)
        while not loader.still(self._taken):
            if clock.now_ns() > end_ns:
                return False
            clock.sleep(LOOK_S)
        return True

    def _timed(self, pace: Pace) -> Segment:
        first = self._taken
        resident = self._ready.resident(first)
        disk = self.parts.read_devices()
        steps = train(self._batches, self.parts.compute, self.parts.clock, pace)
        count = len(steps.begin_ns)
        self._taken += count
        after = self.parts.read_devices()
        return steps.segment(
            mode=self._mode,
            activity="training",
            round=0,
            first_batch=first,
            batch_size=self.config.compute.batch_size,
            delivered_bytes=self.files.delivered_bytes(
                first * self.config.compute.batch_size, count * self.config.compute.batch_size
            ),
            disk_bytes=None if disk is None or after is None else after - disk,
            resident_before=resident,
        )

    def _drop(self, count: int) -> None:
        flush(self._batches, count)
        self._taken += count


def untimed(loader: LoaderSpec) -> int:
    """Batches that are read from cold files before the first that is timed, or after the last."""
    return loader.batches_begun + loader.batches_ahead


def batches_read(loader: LoaderSpec) -> int:
    """Batches that a study reads from cold files at a time."""
    return untimed(loader) + max(STEPS, BUFFERS * loader.batches_ahead)


def images_for(config: RunConfig, steps: int) -> int:
    """Images of a set that lets each file be read once in so many steps from a full buffer."""
    return (untimed(config.loader) + steps) * config.compute.batch_size


def fitting(config: RunConfig, files: FileSet) -> int:
    """Steps from a full buffer for which a set has files."""
    return files.count // config.compute.batch_size - untimed(config.loader)

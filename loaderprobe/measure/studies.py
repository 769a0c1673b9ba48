"""What a sweep measures beside the verdicts, once it has them: training from a full buffer, and whole epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from loaderprobe.errors import DamagedRun
from loaderprobe.measure.epochs import pages_bytes, too_small
from loaderprobe.measure.order import Event, Order
from loaderprobe.measure.plan import START_SECONDS
from loaderprobe.measure.runner import named_limit
from loaderprobe.measure.sweep import GRACE_S, OnProgress, Progress
from loaderprobe.protocols import Clock
from loaderprobe.records.config import RunConfig, SweepSpec
from loaderprobe.records.epochs import EpochsMeasured
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.options import alike_but_for
from loaderprobe.records.prefilled import Prefilled
from loaderprobe.records.sweep_plan import Study, StudyPlan
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.store.run_directory import STUDIES, RunDirectory

PREFILLED_SECONDS = 20.0
"""Twice steady training, filling, and training from a full buffer."""
EXAMPLE_RATE = 300
"""Images/s: what two cores decode, about."""
TITLES: dict[Study, str] = {"prefilled": "full buffer", "epochs": "epochs"}

Rate = Callable[[Measurement], float | None]
"""Images/s of training; None where it is not known."""
RunOne = Callable[..., Prefilled | EpochsMeasured | RunFailure]
"""Runs an order in a process of its own: `run_order` with its `start` given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One study of one configuration, and the seconds that it is expected to take."""

    study: Study
    config: RunConfig
    files: FileSet
    expected_s: float


def asks_for(spec: SweepSpec) -> dict[Study, list[RunConfig]]:
    """The configurations that a sweep studies: of those that differ in workers only, the one with the most.

    A full buffer where several prefetch factors are compared, or all is measured; epochs where they are asked for,
    which begin cold.
    """
    chosen = _with_most_workers([config for config in spec.configs if config.ranks == 1])
    loading = [config for config in chosen if config.loader.workers]
    several = len({config.loader.prefetch_factor for config in loading}) > 1
    asked: dict[Study, list[RunConfig]] = {
        "prefilled": loading if several or spec.thorough else [],
        "epochs": [config for config in chosen if config.cache == "cold"] if spec.epochs else [],
    }
    return {study: configs for study, configs in asked.items() if configs}


def _with_most_workers(configs: Sequence[RunConfig]) -> list[RunConfig]:
    most: dict[tuple[object, ...], int] = {}
    for config in configs:
        same = alike_but_for(config, "workers", "prefetch_factor")
        most[same] = max(config.loader.workers, most.get(same, 0))
    return [each for each in configs if each.loader.workers == most[alike_but_for(each, "workers", "prefetch_factor")]]


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
    images = max(each.count for each in files)
    return StudyPlan(
        study=study,
        configurations=len(files),
        each_s=epochs * images / EXAMPLE_RATE,
        epochs=epochs,
        images=images,
        set_bytes=max(sum(each.size_bytes) for each in files),
        images_per_s=EXAMPLE_RATE,
    )


def tasks(run: RunDirectory, rate: Rate) -> Iterator[Task]:
    """What is still to be studied, of the configurations that were measured."""
    for study, config, files in pending_studies(run):
        measured = run.result(config.key)
        if isinstance(measured, Measurement):
            seconds = START_SECONDS + _seconds(study, run.record.spec, files, rate(measured))
            yield Task(study=study, config=config, files=files, expected_s=seconds)


def _seconds(study: Study, spec: SweepSpec, files: FileSet, images_per_s: float | None) -> float:
    if study == "prefilled":
        return PREFILLED_SECONDS
    return spec.epochs * files.count / images_per_s if images_per_s else 0.0


def study_all(
    run: RunDirectory, *, clock: Clock, run_one: RunOne, rate: Rate, on_progress: OnProgress, left_s: float | None
) -> None:
    """Measure each, and keep it at once. With a limit of seconds, what takes longer than is left waits for a resume."""
    todo, begin_ns = list(tasks(run, rate)), clock.now_ns()
    whole_s = sum(task.expected_s for task in todo)
    done_s = 0.0
    for number, task in enumerate(todo, 1):
        spent_s = (clock.now_ns() - begin_ns) / 1e9
        if left_s is not None and spent_s + task.expected_s > left_s:
            continue
        report = _reporter(on_progress, task, number, len(todo), done_s, whole_s)
        report(Event(stage="start"))
        spare_s = None if left_s is None else left_s - spent_s + GRACE_S
        run.save_study(task.study, _studied(run.record.spec, task, clock, run_one, report, spare_s))
        done_s += task.expected_s


def _reporter(
    on_progress: OnProgress, task: Task, number: int, total: int, done_s: float, whole_s: float
) -> Callable[[Event], None]:
    def report(event: Event) -> None:
        now_s = done_s + task.expected_s * (event.done / event.total if event.total else 0.0)
        on_progress(
            Progress(
                number=number,
                total=total,
                config=task.config,
                stage=f"{TITLES[task.study]}: {event.stage}",
                share=now_s / whole_s if whole_s else 0.0,
                left_s=whole_s - now_s,
                study=TITLES[task.study],
            )
        )

    return report


def _studied(
    spec: SweepSpec, task: Task, clock: Clock, run_one: RunOne, report: Callable[[Event], None], spare_s: float | None
) -> Prefilled | EpochsMeasured:
    why = _refused(spec, task)
    if why is not None:
        return without(task.study, task.config, task.files, why)
    order = Order(
        config=task.config, files=task.files, budget_s=None, begin_ns=clock.now_ns(), study=task.study,
        epochs=spec.epochs,
    )  # fmt: skip
    limit_s = spec.time_limit_s if spare_s is None else min(spec.time_limit_s, spare_s)
    ended = run_one(order, STUDIES[task.study], clock=clock, time_limit_s=limit_s, on_event=report)
    found = named_limit(ended, by_budget=limit_s < spec.time_limit_s)
    if isinstance(found, RunFailure):
        facts: dict[str, float | str] = {"error": found.reason, "stage": found.stage, "hint": found.hint}
        return without(task.study, task.config, task.files, Unavailable(code="failed", facts=facts))
    return found


def _refused(spec: SweepSpec, task: Task) -> Unavailable | None:
    """Why it is not even begun; None where it is."""
    if task.study == "prefilled":
        return None
    if task.expected_s > spec.time_limit_s:
        return Unavailable(
            code="epochs_too_long",
            facts={"epochs": spec.epochs, "images": task.files.count, "take_s": task.expected_s,
                   "timeout_s": spec.time_limit_s},
        )  # fmt: skip
    return too_small(task.files, task.config)


def without(study: Study, config: RunConfig, files: FileSet, why: Unavailable) -> Prefilled | EpochsMeasured:
    """A study that was not made, and why."""
    started_utc = datetime.now(UTC).isoformat(timespec="seconds")
    if study == "prefilled":
        return Prefilled(config=config, started_utc=started_utc, reason=why)
    return EpochsMeasured(
        config=config, started_utc=started_utc, set_bytes=pages_bytes(files), memory_bytes=None,
        resident_before=None, reason=why,
    )  # fmt: skip

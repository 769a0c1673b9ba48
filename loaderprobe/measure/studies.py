"""What a sweep measures beside the verdicts, once it has them: training from a full buffer, and whole epochs."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from loaderprobe.analyze.verdict.judge import Judged
from loaderprobe.errors import DamagedRun
from loaderprobe.measure.pace import pace_for
from loaderprobe.measure.runner import Order
from loaderprobe.measure.sweep import START_SECONDS, Orders
from loaderprobe.policy import Ask, Fixed, follow
from loaderprobe.records import by_key
from loaderprobe.records.config import LoaderSpec, RunConfig, Study, asks_for
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.remark import Coded, Facts, Remark
from loaderprobe.records.studies import EpochsMeasured, Prefilled
from loaderprobe.store.run_directory import RunDirectory

LEAST_TIMED = 12
"""Batches of the first epoch after those that were loaded before its clock began."""
STEPS = 100
"""From a full buffer; and no fewer than these times what it holds."""
BUFFERS = 3
PREFILLED_SECONDS = 20.0
"""Twice steady training, filling, and training from a full buffer."""
EXAMPLE_RATE = 300
"""Images/s: what two cores decode, about."""
TITLES: dict[Study, str] = {"prefilled": "full buffer", "epochs": "epochs"}


def pending_studies(run: RunDirectory) -> Iterator[tuple[Study, RunConfig, FileSet]]:
    """What is still to be studied; what failed is tried again."""
    for study, configs in asks_for(run.record.spec).items():
        for config in configs:
            known = run.study(study, config.key)
            if known is None or known.reason:
                with suppress(DamagedRun):  # the report names the file
                    yield study, config, run.files(config.data)


def plan_studies(run: RunDirectory) -> tuple[Coded, ...]:
    """What is going to be studied, and how long that takes."""
    groups = by_key(pending_studies(run), lambda pending: pending[0])
    return tuple(_plan(study, [files for *_, files in rows], run.record.spec.epochs) for study, rows in groups.items())


def _plan(study: Study, files: Sequence[FileSet], epochs: int) -> Coded:
    facts: Facts = {"configurations": len(files), "each_s": PREFILLED_SECONDS}
    if study == "epochs":
        images = max(file.count for file in files)
        set_bytes = max(sum(file.file_bytes.values()) for file in files)
        facts |= {"epochs": epochs, "images": images, "set_bytes": set_bytes}
        facts |= {"each_s": epochs * images / EXAMPLE_RATE, "images_per_s": EXAMPLE_RATE}
    return Coded(code=study, facts=facts)


def tasks(run: RunDirectory) -> Iterator[tuple[Order, float]]:
    """What is still to be studied, of the configurations that were measured; and the seconds that each may take."""
    epochs = run.record.spec.epochs
    for study, config, files in pending_studies(run):
        measured = run.result(config.key)
        if isinstance(measured, Measurement):
            images_per_s = Judged(measurement=measured).images_per_s
            epochs_s = epochs * files.count / images_per_s if images_per_s else 0.0
            order = Order(config=config, files=files, study=study, epochs=epochs)
            yield order, START_SECONDS + (PREFILLED_SECONDS if study == "prefilled" else epochs_s)


def study_all(orders: Orders) -> None:
    """Measure each that there is time for, and keep it at once; the others wait for a resume."""
    run, time_limit_s = orders.run, orders.run.record.spec.time_limit_s
    policy = Fixed(asks=tuple(tasks(run)), takes=lambda task: task[1], left_s=orders.left_s)

    def measure(ask: Ask[tuple[Order, float]]) -> None:
        order, expected_s = ask.what
        study = order.study
        assert study is not None
        why = _refused(order, expected_s, time_limit_s)
        if why is None:
            label = f"{TITLES[study]}: {policy.asks.index(ask.what) + 1}/{len(policy.asks)}"
            result = orders.measured(ask, order, label)
            if isinstance(result, Prefilled | EpochsMeasured):
                run.save_study(study, result)
                return
            assert isinstance(result, RunFailure)
            why = Remark(code="failed", facts={"error": result.reason, "stage": result.stage, "hint": result.hint})
        run.save_study(study, without(study, order.config, order.files, why))

    follow(policy, measure, clock=orders.clock)


def _refused(order: Order, expected_s: float, time_limit_s: float) -> Remark | None:
    """Why it is not even begun; None where it is."""
    if order.study == "prefilled":
        return None
    if expected_s > time_limit_s:
        facts: Facts = {"epochs": order.epochs, "images": order.files.count, "take_s": expected_s}
        return Remark(code="epochs_too_long", facts=facts | {"timeout_s": time_limit_s})
    return too_small(order.files, order.config)


def without(study: Study, config: RunConfig, files: FileSet, why: Remark) -> Prefilled | EpochsMeasured:
    """A study that was not made, and why."""
    if study == "prefilled":
        return Prefilled(config=config, reason=why)
    return EpochsMeasured(config=config, set_bytes=pages_bytes(files), memory_bytes=None, reason=why)


def too_small(files: FileSet, config: RunConfig) -> Remark | None:
    """Why a set has no epochs to speak of; None where it has."""
    least = (config.loader.batches_begun + LEAST_TIMED) * config.compute.batch_size
    if files.count >= least:
        return None
    return Remark(code="too_few_for_epoch", facts={"images": files.count, "least": least})


def too_few(files: Iterable[FileSet], configs: Sequence[RunConfig]) -> Iterator[Remark]:
    """Of sets too small for the shortest cold segment to read each file once, and the most images that one takes.

    Samples that are read by their keys are dropped from memory between reads.
    """
    for file_set in (file_set for file_set in files if file_set.streamed or not file_set.places):
        needed = 0
        for config in configs:
            if config.data == file_set.fingerprint and config.cache != "warm":
                pace = pace_for(workers=config.loader.workers, rounds=config.rounds, budget_s=None)
                batches = untimed(config.loader) + 1 + pace.fewest_cold
                needed = max(needed, config.ranks * config.compute.batch_size * batches)
        if file_set.count < needed:
            more = needed if file_set.generated or file_set.images_found >= needed else ""
            facts: Facts = {"data": file_set.label, "samples": file_set.count, "needed": needed, "images": more}
            yield Remark(code="too_few_samples", facts=facts)


def pages_bytes(files: FileSet) -> int:
    """What the files take in the page cache."""
    return sum(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE for size in files.file_bytes.values())


def untimed(loader: LoaderSpec) -> int:
    """Batches that are read from cold files before the first that is timed, or after the last."""
    return loader.batches_begun + loader.batches_ahead


def batches_read(loader: LoaderSpec) -> int:
    """Batches that a study reads from cold files at a time."""
    return untimed(loader) + max(STEPS, BUFFERS * loader.batches_ahead)

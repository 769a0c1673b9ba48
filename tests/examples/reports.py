"""Builders of finished reports, made of the cases in `study`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from loaderprobe.analyze.answer import answered
from loaderprobe.records.config import OPTIONS, with_options
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.records.files import content_hash
from loaderprobe.records.remark import reported
from loaderprobe.records.report import (
    SUMMARY_SCHEMA,
    ConfigurationRow,
    DataInfo,
    Detail,
    Outlook,
    Report,
    RunInfo,
    Status,
    StorageNeed,
    StorageSupply,
    Summary,
)
from loaderprobe.records.verdict import Knee, TimelineView, Verdict
from loaderprobe.testing.fakes import example_config, example_environment
from tests.examples.study import BATCH_SIZE, BYTES, CASES, CEILING, DISK_BYTES_PER_S, Case
from tests.examples.verdicts import forecasts_of, verdict_of

SOURCE = "MLPerf Storage v1.0, ResNet-50 on H100: 0.224 s per batch of 400"


def _knees(rows: Sequence[ConfigurationRow]) -> tuple[Knee, ...]:
    """For each data set on each device, the fastest row; beyond it, CPU cores are the limit."""
    together: dict[tuple[str, str], list[ConfigurationRow]] = {}
    for row in rows:
        if row.verdict:
            together.setdefault((row.config.compute.name, row.config.resolution), []).append(row)
    return tuple(_knee(some) for some in together.values())


def _knee(rows: Sequence[ConfigurationRow]) -> Knee:
    best = max(rows, key=lambda row: row.images_per_s.value if row.images_per_s else 0.0)
    assert best.verdict
    compute = (best.verdict.accelerator_utilization or 0.0) > 0.9
    return Knee(
        keys=tuple(row.key for row in rows),
        workers=best.config.loader.workers,
        images_per_s=best.verdict.images_per_s,
        how="measured",
        bottleneck="compute" if compute else "cores",
        forecasts=(),
    )


def _row(case: Case) -> ConfigurationRow:
    config = example_config(
        data=content_hash(case.resolution), resolution=case.resolution, workers=case.workers, compute=case.compute,
        batch_size=BATCH_SIZE,
    )  # fmt: skip
    emulated = case.compute.startswith("emulated:")
    verdict = verdict_of(case)
    return ConfigurationRow(
        config=config, status="measured", reason=None, verdict=verdict, emulated=emulated,
        forecasts=forecasts_of(case, verdict.images_per_s.value),
    )  # fmt: skip


def _without_figures(row: ConfigurationRow, status: Status, reason: str) -> ConfigurationRow:
    """The row of a configuration that was asked for but has no measurement."""
    config = with_options(row.config, workers=8, prefetch_factor=2)
    return replace(row, config=config, status=status, reason=reported(reason), verdict=None, forecasts=())


def with_changes(row: ConfigurationRow, **changes: Any) -> ConfigurationRow:
    """The row with options of its configuration, figures of its verdict, or fields of its own changed.

    A row that gets another status than `measured` loses its verdict.
    """
    names = {each.name for each in fields(Verdict)} - {each.name for each in fields(row)}
    options = {name: value for name, value in changes.items() if name in OPTIONS}
    figures = {name: value for name, value in changes.items() if name in names}
    own = {name: value for name, value in changes.items() if name not in options and name not in figures}
    if isinstance(own.get("reason"), str):
        own["reason"] = reported(own["reason"])
    if options.get("workers") == 0:
        options["prefetch_factor"] = 0
    if row.verdict and own.get("status", "measured") == "measured":
        own = {"verdict": replace(row.verdict, **figures), **own}
    else:
        own = {"verdict": None, "forecasts": (), **own}
    return replace(row, config=with_options(row.config, **options), **own)


def example_row(**changes: Any) -> ConfigurationRow:
    """A measured row, input-bound by storage (1024x768, 2 workers, emulated H100), with `changes` as above."""
    return with_changes(_row(CASES[-1]), **changes)


def _example_rows() -> tuple[ConfigurationRow, ...]:
    rows = [_row(case) for case in CASES]
    unseen = reported("the device also served another process, so these bytes are not known")
    assert rows[2].verdict
    rows[2] = with_changes(
        rows[2],
        disk_read_bytes_per_s=None,
        disk_ceiling_fraction=None,
        cold_fraction=None,
        unavailable={
            **rows[2].unavailable,
            **dict.fromkeys(("disk_read_bytes_per_s", "disk_ceiling_fraction", "cold_fraction"), unseen),
        },
    )
    skipped = _without_figures(rows[5], "skipped", "the time budget of 180 s was used up")
    failed = _without_figures(
        rows[-1],
        "failed",
        "a worker was killed by SIGBUS while it sent its first batch: /dev/shm (64.0 MB) is too small for "
        "8 workers with batches of 19.3 MB",
    )
    return (*rows[:6], skipped, *rows[6:], failed)


def outlook_of(row: ConfigurationRow) -> Outlook:
    """What 1, 8 and 64 of the row's accelerators ask of the made-up disk and machine."""
    size = BYTES.get(row.config.resolution, 100_000.0)
    rate = CEILING.get(row.config.compute.name, 1000.0)
    one = 0.9 * rate * size
    return Outlook(
        data=row.config.resolution,
        compute=row.config.compute.name,
        model=row.config.compute.model,
        accelerator=row.config.compute.name.removeprefix("emulated:"),
        images_per_s=rate,
        source=SOURCE,
        specified=row.emulated,
        utilization=0.9,
        use=0.8,
        needs=tuple(
            StorageNeed(accelerators=count, read_bytes_per_s=count * one, files_per_s=0.9 * count * rate)
            for count in (1, 8, 64)
        ),
        cores=6.5,
        supply=StorageSupply(
            read_bytes_per_s=DISK_BYTES_PER_S, readers=8, at_least=False, feeds=0.8 * DISK_BYTES_PER_S / one
        ),
        missing=None,
    )


def _outlooks(rows: Sequence[ConfigurationRow]) -> tuple[Outlook, ...]:
    found = {(row.config.compute.name, row.config.resolution): row for row in rows if row.emulated and row.verdict}
    return tuple(replace(outlook_of(row), planned=row.config.resolution == "500x375") for row in found.values())


def _steps() -> TimelineView:
    """Four steps of 10 ms, of which the device trains for 4 ms and waits for 6."""
    begins = tuple(10_000_000 * number for number in range(4))
    waits = tuple((at, at + 6_000_000) for at in begins)
    return TimelineView(
        window_ns=40_000_000,
        step_begin_ns=begins,
        parts={"compute": tuple((at + 6_000_000, at + 10_000_000) for at in begins), "input": waits},
        waits=waits,
        copies=(),
    )


def _detail(row: ConfigurationRow) -> Detail:
    return Detail(
        key=row.key,
        compute_device="emulated accelerator, 1790 images/s" if row.emulated else "AMD EPYC 7B13, 4 threads",
        compute_source=SOURCE if row.emulated else "resident batch, measured",
        first_batch_s=0.42,
        notes=(),
        steps=_steps(),
        then={"storage": "preprocessing", "preprocessing": "compute", "compute": "storage"},
    )


def _data(label: str) -> DataInfo:
    broken = ("n01440764/0007.jpg: is 0 bytes long", "n01443537/0311.jpg: ends in the middle of the image")
    skipped = broken if label == "500x375" else ()
    return DataInfo(
        label=label,
        root=f"/data/imagenet-like/{label}",
        generated=True,
        images_found=4096 - len(skipped),
        images_used=2048,
        mean_size_bytes=BYTES.get(label, 100_000.0),
        skipped_count=len(skipped),
        skipped=skipped,
    )


def example_report(rows: Sequence[ConfigurationRow] | None = None) -> Report:
    """A report on three resolutions, two worker counts and two devices, with every kind of verdict.

    One configuration failed, one was skipped, one lacks its disk figures. Give `rows` to have a report on
    those instead.
    """
    chosen = _example_rows() if rows is None else tuple(rows)
    run = RunInfo(
        name="example",
        created_utc="2026-11-21T09:30:00Z",
        command="loaderprobe sweep --data-dir /data/imagenet-like --workers 2,8 --compute cpu,emulated:mlperf-h100",
        complete=True,
        pending=0,
        wall_s=173.0,
        data=tuple(_data(label) for label in dict.fromkeys(row.config.resolution for row in chosen)),
    )
    summary = Summary(
        schema=SUMMARY_SCHEMA,
        schema_version=SCHEMA_VERSION,
        run=run,
        environment=example_environment(),
        configurations=chosen,
        knees=_knees(chosen),
        needs=_outlooks(chosen),
    )
    details = tuple(_detail(row) for row in chosen if row.status == "measured")
    return answered(Report(summary=summary, details=details))

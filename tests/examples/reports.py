"""Builders of finished reports, made of the cases in `study`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from loaderprobe.records.config import content_hash
from loaderprobe.records.forecast import Forecast, Knee
from loaderprobe.records.options import OPTIONS, with_options
from loaderprobe.records.report import (
    SUMMARY_SCHEMA,
    SUMMARY_VERSION,
    ConfigurationRow,
    DataInfo,
    Detail,
    Report,
    RunInfo,
    Status,
    Summary,
)
from loaderprobe.records.verdict import (
    Advice,
    Bound,
    Evidence,
    Interval,
    Rates,
    Reason,
    Speedup,
    Speedups,
    StepTime,
    Verdict,
    WorkerTime,
)
from loaderprobe.testing.fakes import example_config
from loaderprobe.testing.machine import NO_GPU, example_environment
from tests.examples.study import BATCH_SIZE, BYTES, CASES, CEILING, DISK_BYTES_PER_S, NO_TRANSPORT, Case


def _speedups(case: Case) -> Speedups:
    whole, without_storage, without_preprocessing = case.loader
    before = case.end_to_end(whole)

    def speedup(rate: float) -> Speedup:
        value = rate / before
        return Speedup(value=value, low=value * 0.96, high=value * 1.04, how=case.how)

    return Speedups(
        storage=speedup(case.end_to_end(without_storage)),
        preprocessing=speedup(case.end_to_end(without_preprocessing)),
        transport=None,
        compute=speedup(whole),
    )


def _bound(case: Case, speedups: Speedups) -> Bound:
    assert speedups.storage
    assert speedups.compute
    return Bound(
        side=case.side,
        cause=case.cause,
        candidates=case.candidates,
        reason=_reason(case, speedups),
        evidence=(
            Evidence(metric="speed-up if storage were free", value=speedups.storage.value, threshold=1.05, unit="x"),
            Evidence(metric="speed-up if compute were free", value=speedups.compute.value, threshold=1.05, unit="x"),
            Evidence(metric="share of bytes read from storage", value=0.99, threshold=None, unit=""),
        ),
    )


def _reason(case: Case, speedups: Speedups) -> Reason:
    """With the facts that the rule would leave."""
    training = case.end_to_end(case.loader[0]) * (1 + case.drift)
    facts: dict[str, float | str] = {
        "judged": "training",
        "images_per_s": training,
        "loader_images_per_s": case.loader[0],
        "compute_images_per_s": CEILING[case.compute],
        "utilization": training / CEILING[case.compute],
        "device": "emulated" if case.compute.startswith("emulated:") else "measured",
    }
    if case.cause == "balanced":
        return Reason(code="no_speedup", facts={**facts, "least_speedup": 1.05})
    if case.cause == "inconclusive":
        return Reason(code="outside_noise_band", facts={**facts, "predicted_share": 1 + case.drift, "noise_band": 0.1})
    for name in case.candidates:
        facts[f"{name}_speedup"] = getattr(speedups, name).value
        facts[f"{name}_how"] = case.how
    if case.cause == "either":
        return Reason(code="speedups_alike", facts=facts)
    resource = "preprocessing" if case.cause == "cpu" else case.cause
    facts |= {"resource": resource, "speedup": getattr(speedups, resource).value, "how": case.how}
    if resource == "storage":
        share = training * BYTES[case.resolution] / DISK_BYTES_PER_S
        facts |= {"read_bytes_per_s": share * DISK_BYTES_PER_S, "ceiling_share": share}
        facts["concurrency"] = float(max(1, case.workers))
    if resource == "compute" and speedups.storage and speedups.storage.value >= 1.05:
        facts |= {"input": "storage", "input_speedup": speedups.storage.value, "input_how": case.how}
    return Reason(code="all_cores_busy" if case.cause == "cpu" else "largest_speedup", facts=facts)


def _rates(case: Case) -> Rates:
    return Rates(
        compute=CEILING[case.compute],
        loader=case.loader[0],
        loader_without_storage=case.loader[1],
        loader_without_preprocessing=case.loader[2],
        loader_without_transport=None,
        cpu_limit=660.0,
    )


def _advice(case: Case, speed: float, speedups: Speedups) -> tuple[Advice, ...]:
    """Files in memory where storage is the limit; no faster device where training is input-bound."""
    before = Interval(value=speed, low=speed * 0.97, high=speed * 1.03)
    until = f"{CEILING[case.compute]:g}"
    wasted = Advice(
        action=f"A faster accelerator gains nothing until the loader delivers more than {until} images/s.",
        predicted_images_per_s=speed, speedup=1.0, before=before, after=before, how="measured",
    )  # fmt: skip
    if case.cause != "storage" or not speedups.storage:
        return (wasted,) if case.side == "input" else ()
    speedup, after = speedups.storage.value, speed * speedups.storage.value
    cache = Advice(
        action="keep the files in memory",
        command="find /data/imagenet-like -type f -exec cat {} + >/dev/null",
        predicted_images_per_s=after,
        speedup=speedup,
        before=before,
        after=Interval(value=after, low=after * 0.9, high=after * 1.1),
        how=case.how,
        bottleneck="preprocessing",
    )
    return (cache, wasted)


def _forecasts(case: Case, speed: float) -> tuple[Forecast, ...]:
    """One that was made and one that was refused."""
    return (
        Forecast(
            changed="accelerator", to="mlperf-a100", bottleneck="storage", how="estimated", refused=None,
            images_per_s=Interval(value=speed, low=speed * 0.9, high=speed * 1.1),
        ),
        Forecast(
            changed="prefetch_factor", to="4", images_per_s=None, bottleneck=None, how="estimated",
            refused="too few batches were recorded to know how their times vary",
        ),
    )  # fmt: skip


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
    verdict = _verdict(case)
    return ConfigurationRow(
        config=config, status="measured", reason=None, verdict=verdict, emulated=emulated,
        forecasts=_forecasts(case, verdict.images_per_s.value),
    )  # fmt: skip


def _verdict(case: Case) -> Verdict:
    speedups, predicted = _speedups(case), case.end_to_end(case.loader[0])
    speed = predicted * (1 + case.drift)
    disk = speed * BYTES[case.resolution]
    step_time, worker_time = _times(case, speed)
    return Verdict(
        images_per_s=Interval(value=speed, low=speed * 0.97, high=speed * 1.03),
        rates_images_per_s=_rates(case),
        speedups=speedups,
        predicted_images_per_s=predicted,
        prediction_error=case.drift,
        input_wait_fraction=max(0.0, 1 - speed / CEILING[case.compute]),
        accelerator_utilization=speed / CEILING[case.compute],
        bytes_per_image=BYTES[case.resolution],
        disk_read_bytes_per_s=disk,
        cold_fraction=0.99,
        disk_ceiling_fraction=disk / DISK_BYTES_PER_S,
        read_amplification=0.99,
        other_read_bytes_per_s=0.0,
        instrument_cpu_fraction=0.002,
        gpu={"unavailable": NO_GPU},
        bound=_bound(case, speedups),
        advice=_advice(case, speed, speedups),
        step_time=step_time,
        worker_time=worker_time,
        files_were=None,
        unavailable={"speedups.transport": NO_TRANSPORT, "rates_images_per_s.loader_without_transport": NO_TRANSPORT},
    )


def _times(case: Case, speed: float) -> tuple[StepTime, WorkerTime]:
    per_batch = BATCH_SIZE / speed
    step = min(BATCH_SIZE / CEILING[case.compute], per_batch * 0.94)
    blocked = BYTES[case.resolution] / DISK_BYTES_PER_S
    share = max(0.0, max(1, case.workers) / speed - blocked)
    return (
        StepTime(
            wait_s=max(0.0, per_batch * 0.97 - step), copy_s=per_batch * 0.02, step_s=step, other_s=per_batch * 0.01
        ),
        WorkerTime(cpu_s=share * 0.9, run_delay_s=share * 0.1, blocked_s=blocked),
    )


def _without_figures(row: ConfigurationRow, status: Status, reason: str) -> ConfigurationRow:
    """The row of a configuration that was asked for but has no measurement."""
    config = with_options(row.config, workers=8, prefetch_factor=2)
    return replace(row, config=config, status=status, reason=reason, verdict=None, forecasts=())


def with_changes(row: ConfigurationRow, **changes: Any) -> ConfigurationRow:
    """The row with options of its configuration, figures of its verdict, or fields of its own changed.

    A row that gets another status than `measured` loses its verdict.
    """
    names = {each.name for each in fields(Verdict)} - {each.name for each in fields(row)}
    options = {name: value for name, value in changes.items() if name in OPTIONS}
    figures = {name: value for name, value in changes.items() if name in names}
    own = {name: value for name, value in changes.items() if name not in options and name not in figures}
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
    unseen = "the device also served another process, so these bytes are not known"
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


def _detail(row: ConfigurationRow) -> Detail:
    return Detail(
        key=row.key,
        compute_device="emulated accelerator, 1790 images/s" if row.emulated else "AMD EPYC 7B13, 4 threads",
        compute_source="MLPerf Storage v1.0, ResNet-50 on H100: 0.224 s per batch of 400"
        if row.emulated
        else "resident batch, measured",
        first_batch_s=0.42,
        notes=(),
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
    return Report(
        summary=Summary(
            schema=SUMMARY_SCHEMA,
            schema_version=SUMMARY_VERSION,
            run=run,
            environment=example_environment(),
            configurations=chosen,
            knees=_knees(chosen),
        ),
        details=tuple(_detail(row) for row in chosen if row.status == "measured"),
    )

"""Builders of finished reports, made of the cases of an example study, with every kind of verdict among them.

The figures belong together: speed-ups follow from the rates, rates from one made-up machine whose disk
delivers about 31 MB/s in random order. They are made up, not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from loaderprobe.analyze.answer import answered
from loaderprobe.records.config import OPTIONS, with_options
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.records.files import content_hash
from loaderprobe.records.remark import Remark, reported
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
from loaderprobe.records.verdict import (
    Action,
    Advice,
    Bound,
    Cause,
    Evidence,
    Forecast,
    How,
    Interval,
    Knee,
    Rates,
    Reason,
    Side,
    Speedup,
    Speedups,
    StepTime,
    Verdict,
    WorkerTime,
)
from loaderprobe.testing.fakes import NO_GPU, example_config, example_environment

BATCH_SIZE = 32
BYTES = {"256x256": 21_000.0, "500x375": 114_000.0, "1024x768": 480_000.0}
CEILING = {"cpu": 62.0, "emulated:mlperf-h100": 1786.0}
DISK_BYTES_PER_S = 31.2e6
NO_TRANSPORT = reported("the ablation of transport was not measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rates of the loader alone, in images/s: all of it, then without storage, then without preprocessing."""

    resolution: str
    workers: int
    compute: str
    loader: tuple[float, float, float]
    side: Side
    cause: Cause
    candidates: tuple[str, ...] = ()
    how: How = "measured"
    drift: float = -0.01

    def end_to_end(self, loader_images_per_s: float) -> float:
        """Images/s with compute: the slower of the two, or one after the other with the serial loader."""
        ceiling = CEILING[self.compute]
        if self.workers:
            return min(loader_images_per_s, ceiling)
        return 1 / (1 / loader_images_per_s + 1 / ceiling)


_H100 = "emulated:mlperf-h100"
CASES = (
    Case(
        resolution="256x256", workers=0, compute="cpu", loader=(420, 450, 1100), side="compute", cause="compute",
    ),
    Case(
        resolution="256x256", workers=2, compute="cpu", loader=(640, 690, 1480), side="compute", cause="compute",
    ),
    Case(
        resolution="500x375", workers=0, compute="cpu", loader=(118, 240, 190), side="compute", cause="compute",
    ),
    Case(
        resolution="500x375", workers=2, compute="cpu", loader=(205, 470, 272), side="compute", cause="compute",
    ),
    Case(
        resolution="1024x768", workers=0, compute="cpu", loader=(32, 70, 52), side="inconclusive", cause="either",
        candidates=("storage", "compute"),
    ),
    Case(
        resolution="1024x768", workers=2, compute="cpu", loader=(64, 180, 65), side="balanced", cause="balanced",
    ),
    Case(
        resolution="256x256", workers=0, compute=_H100, loader=(420, 450, 1100), side="input", cause="preprocessing",
    ),
    Case(
        resolution="256x256", workers=2, compute=_H100, loader=(640, 690, 1480), side="input", cause="cpu",
    ),
    Case(
        resolution="500x375", workers=0, compute=_H100, loader=(118, 240, 190), side="input", cause="storage",
    ),
    Case(
        resolution="500x375", workers=2, compute=_H100, loader=(205, 470, 272), side="input", cause="storage",
        how="estimated",
    ),
    Case(
        resolution="1024x768", workers=0, compute=_H100, loader=(32, 70, 52), side="inconclusive", cause="inconclusive",
        drift=-0.31,
    ),
    Case(
        resolution="1024x768", workers=2, compute=_H100, loader=(64, 180, 65), side="input", cause="storage",
    ),
)  # fmt: skip


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
            Evidence(metric="speedups.storage", value=speedups.storage.value, threshold=1.05, unit="x"),
            Evidence(metric="speedups.compute", value=speedups.compute.value, threshold=1.05, unit="x"),
            Evidence(metric="cold_fraction", value=0.99, threshold=None, unit=""),
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
    wasted = Advice(
        action=Action(code="accelerator_gains_nothing", facts={"until_images_per_s": CEILING[case.compute]}),
        speedup=1.0, before=before, after=before, how="measured",
    )  # fmt: skip
    if case.cause != "storage" or not speedups.storage:
        return (wasted,) if case.side == "input" else ()
    speedup, after = speedups.storage.value, speed * speedups.storage.value
    cache = Advice(
        action=Action(code="files_in_memory", facts={"share": 1.0, "bytes": 1e9}),
        command="find /data/imagenet-like -type f -exec cat {} + >/dev/null",
        speedup=speedup,
        before=before,
        after=Interval(value=after, low=after * 0.9, high=after * 1.1),
        how=case.how,
        bottleneck="preprocessing",
    )
    return (cache, wasted)


def forecasts_of(case: Case, speed: float) -> tuple[Forecast, ...]:
    """One that was made and one that was refused."""
    return (
        Forecast(
            changed="accelerator", to="mlperf-a100", bottleneck="storage", how="estimated", refused=None,
            images_per_s=Interval(value=speed, low=speed * 0.9, high=speed * 1.1),
        ),
        Forecast(
            changed="workers", to="64", images_per_s=None, bottleneck=None, how="estimated",
            refused=Remark(code="more_than_cores", facts={"cores": 2.0}),
        ),
    )  # fmt: skip


def verdict_of(case: Case) -> Verdict:
    speedups, predicted = _speedups(case), case.end_to_end(case.loader[0])
    speed = predicted * (1 + case.drift)
    disk = speed * BYTES[case.resolution]
    step_time, worker_time = _times(case, speed)
    return Verdict(
        images_per_s=Interval(value=speed, low=speed * 0.97, high=speed * 1.03),
        complete_rounds=3,
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
        decoding_cpu_fraction=0.7,
        instrument_cpu_fraction=0.002,
        gpu={},
        bound=_bound(case, speedups),
        advice=_advice(case, speed, speedups),
        step_time=step_time,
        worker_time=worker_time,
        files_were=None,
        unavailable={
            **dict.fromkeys(("speedups.transport", "rates_images_per_s.loader_without_transport"), NO_TRANSPORT),
            "gpu": NO_GPU,
        },
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


def _detail(row: ConfigurationRow) -> Detail:
    return Detail(
        key=row.key,
        compute_device="emulated accelerator, 1790 images/s" if row.emulated else "AMD EPYC 7B13, 4 threads",
        compute_source=SOURCE if row.emulated else "resident batch, measured",
        first_batch_s=0.42,
        notes=(),
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

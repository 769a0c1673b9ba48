"""Whole measurements of the made-up pipelines in `scripted`: every round alike, every rate exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loaderprobe.records.measurement import Activity, ComputeInfo, Measurement, Mode, Segment, WorkerBatches
from loaderprobe.testing import example_config, example_files
from tests.analyze.runs import BATCH, segment
from tests.analyze.scripted import Truth

STEPS = 24
FILES = example_files()


def measured(truth: Truth, workers: int, *, wave: float = 0.0, **changes: Any) -> Measurement:
    """Three rounds of the loader alone, cold and warm, and of training; batch times vary by `wave`."""
    config = example_config(
        data=FILES.fingerprint, workers=workers, batch_size=BATCH, compute=f"emulated:{truth.compute:g}", **changes
    )
    warm = replace(truth, latency_s=0.0, bytes_per_s=1e15)
    runs: list[tuple[Mode, Activity, float, Truth]] = [
        ("baseline", "loader_only", truth.service().loader(workers), truth),
        ("baseline", "training", truth.training(workers), truth),
        ("warm", "loader_only", warm.service().loader(workers), warm),
    ]
    segments: list[Segment] = []
    rows: list[tuple[int, ...]] = []
    for number in range(3):
        for mode, activity, rate, under in runs:
            first = len(rows)
            rows += [_row(under, workers, first + step, wave) for step in range(STEPS)]
            segments.append(_segment(under, workers, mode, activity, number, first, rate))
    columns = list(zip(*rows, strict=True))
    batch, worker, start, wall, cpu, delay, read, images = columns
    return Measurement(
        config=config,
        compute=ComputeInfo(
            name="emulated", device="", synchronous=truth.synchronous, specified_images_per_s=truth.compute, source=""
        ),
        started_utc="2026-11-21T07:00:00+00:00",
        first_batch_s=0.1,
        segments=tuple(segments),
        worker_batches=WorkerBatches(
            batch=batch, worker=worker, start_ns=start, wall_ns=wall, cpu_ns=cpu, run_delay_ns=delay,
            read_bytes=read, images=images,
        ),
        series=(),
        missing=(),
        cores_available=truth.cores,
        storage_counts_reads=True,
        storage_kind="block",
        wall_s=5.0,
    )  # fmt: skip


def _row(truth: Truth, workers: int, number: int, wave: float) -> tuple[int, ...]:
    wall_s = max(truth.cpu_s + truth.service().storage_s, max(workers, 1) / truth.service().loader(workers)) * BATCH
    wall_s *= 1 + wave * (1 if number % 8 == 0 else -1 / 7)
    read = 0 if truth.bytes_per_s > 1e14 else round(truth.bytes_per_image) * BATCH
    cpu_s = truth.cpu_s * BATCH * (1 - wave)
    return number, number % max(workers, 1), 0, round(wall_s * 1e9), round(cpu_s * 1e9), 0, read, BATCH


def _segment(
    truth: Truth, workers: int, mode: Mode, activity: Activity, number: int, first: int, rate: float
) -> Segment:
    return segment(
        mode, activity, number, first, rate,
        steps=STEPS,
        thread_cpu_ns=(round(truth.parent_s * BATCH * 1e9) if workers else 0) * STEPS,
        delivered_bytes=round(truth.bytes_per_image) * BATCH * STEPS,
        resident_before=0.0 if mode == "baseline" else 1.0,
    )  # fmt: skip

"""A stored run with something of everything: three measurements, a failure, a ceiling, waits, a profiler window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from loaderprobe.records.bandwidth import DeviceKind, StorageCeiling
from loaderprobe.records.config import SweepSpec
from loaderprobe.records.measurement import Alternative, FirstLap, Measurement, RunFailure, Series
from loaderprobe.records.options import with_options
from loaderprobe.records.waits import WAIT_KINDS, WaitSamples
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import example_environment, example_files
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth
from tests.examples import timelines
from tests.examples.bandwidth import example_phase

SMALL_FILES = example_files(32)
TRUTH = Truth(bytes_per_s=20e6)


def stored_run(path: Path, **changes: Any) -> RunDirectory:
    """Serial, 1 and 2 workers measured, 4 workers failed; `changes` are to the fields of all configurations."""
    measurements = [_measurement(workers, **changes) for workers in (0, 1, 2)]
    failed = with_options(measurements[2].config, workers=4)
    record = RunRecord(
        created_utc="2026-11-21T07:00:00+00:00",
        spec=SweepSpec(configs=(*(each.config for each in measurements), failed), command=("loaderprobe", "sweep")),
        environment=example_environment(),
    )
    run = RunDirectory.create(path, record, [SMALL_FILES])
    for each in measurements:
        run.save(each)
    run.save(
        RunFailure(
            config=failed, stage="first batch", reason="it broke", hint="", exit_code=1, signal=None, log=(),
            started_utc="2026-11-21T07:01:00+00:00", wall_s=2.0,
        )
    )  # fmt: skip
    run.save_ceiling(
        StorageCeiling(
            data=SMALL_FILES.fingerprint,
            phases=(example_phase(1, 20e6), example_phase(2, 20e6)),
            kind=DeviceKind(kind="token_bucket", sentence="A token bucket.", evidence=()),
        )
    )
    return run


def _measurement(workers: int, **changes: Any) -> Measurement:
    made = measured(TRUTH, workers, **changes)
    workers_seen = made.worker_batches.worker
    looks = len(workers_seen)
    return replace(
        made,
        config=replace(made.config, data=SMALL_FILES.fingerprint),
        series=(Series(name="gpu_utilization", unit="", source="NVML", time_ns=(1, 10**9), values=(0.1, 0.9)),),
        first_lap=FirstLap(
            images=8, wall_s=1.0, cpu_s=0.5, read_bytes=1, called_bytes=2, again_wall_s=0.9, again_cpu_s=0.5,
            again_read_bytes=1,
        ),
        waits=WaitSamples(
            time_ns=tuple(range(looks)), worker=workers_seen, kind=(WAIT_KINDS.index("storage"),) * looks,
            subject=(0,) * looks, subjects=("/nowhere/1.JPEG",), letters_only=None, cpu_ns=1, wall_ns=10**9,
        ),
        alternatives=(Alternative(name="torchvision", cpu_s=0.003, usual_cpu_s=0.004),),
        timeline=timelines.starved() if workers == 2 else None,
    )  # fmt: skip

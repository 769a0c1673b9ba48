"""Stored runs of made-up measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loaderprobe.records.config import RunConfig, SweepSpec, with_options
from loaderprobe.records.environment import Environment
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Alternative, FirstPass, Measurement, RunFailure, Series
from loaderprobe.records.phases import DeviceKind, StorageCeiling
from loaderprobe.records.waits import WAIT_KINDS, WaitSamples
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import example_environment, example_files
from tests.analyze.measured import FILES, measured
from tests.analyze.scripted import Truth
from tests.examples import timelines
from tests.examples.bandwidth import example_phase

SMALL_FILES = example_files(32)
TRUTH = Truth(bytes_per_s=20e6)
MEASUREMENTS = tuple(measured(Truth(compute=1000.0), workers) for workers in (0, 2))
FAILED, PENDING = (measured(Truth(compute=1000.0), workers).config for workers in (3, 4))


def failure(config: RunConfig, reason: str = "it broke", **changes: Any) -> RunFailure:
    """Of a configuration, half way."""
    usual: dict[str, Any] = {
        "stage": "half", "hint": "", "exit_code": 1, "signal": None, "log": (), "started_utc": "", "wall_s": 1.0,
    }  # fmt: skip
    return RunFailure(config=config, reason=reason, **(usual | changes))


def empty_run(
    path: Path, *configs: RunConfig, files: FileSet = FILES, environment: Environment | None = None, **spec: Any
) -> RunDirectory:
    """A run of these configurations, of which nothing is measured; `spec` are other fields of what was asked for."""
    record = RunRecord(
        created_utc="2026-11-21T07:00:00+00:00", spec=SweepSpec(configs=configs, **spec),
        environment=environment or example_environment(),
    )  # fmt: skip
    return RunDirectory.create(path, record, [files])


def plain_run(path: Path) -> RunDirectory:
    """MEASUREMENTS, a configuration that failed, and one that is still to be measured."""
    return _written(path, FILES, MEASUREMENTS, FAILED, PENDING)


def full_run(path: Path, **changes: Any) -> RunDirectory:
    """Serial, 1 and 2 workers measured, with waits, a ceiling and a profiler window; 4 workers failed.

    `changes` are to the fields of all configurations.
    """
    measurements = [_measurement(workers, **changes) for workers in (0, 1, 2)]
    run = _written(path, SMALL_FILES, measurements, with_options(measurements[2].config, workers=4))
    run.save_ceiling(
        StorageCeiling(
            data=SMALL_FILES.fingerprint,
            phases=(example_phase(1, 20e6), example_phase(2, 20e6)),
            kind=DeviceKind(kind="token_bucket", code="token_bucket", evidence=()),
        )
    )
    return run


def _written(
    path: Path, files: FileSet, measurements: Sequence[Measurement], failed: RunConfig, *pending: RunConfig
) -> RunDirectory:
    configs = (*(each.config for each in measurements), failed, *pending)
    run = empty_run(path, *configs, files=files, command=("loaderprobe", "sweep"))
    for each in measurements:
        run.save(each)
    run.save(failure(failed, "the worker was killed", stage="round 1", exit_code=None, signal="SIGKILL"))
    return run


def _measurement(workers: int, **changes: Any) -> Measurement:
    made = measured(TRUTH, workers, **changes)
    workers_seen = made.worker_batches.worker
    count = len(workers_seen)
    return replace(
        made,
        config=replace(made.config, data=SMALL_FILES.fingerprint),
        series=(Series(name="gpu_utilization", unit="", source="NVML", time_ns=(1, 10**9), values=(0.1, 0.9)),),
        first_pass=FirstPass(
            images=8, wall_s=1.0, cpu_s=0.5, read_bytes=1, called_bytes=2, again_wall_s=0.9, again_cpu_s=0.5,
            again_read_bytes=1,
        ),
        waits=WaitSamples(
            time_ns=tuple(range(count)), worker=workers_seen, kind=(WAIT_KINDS.index("storage"),) * count,
            subject=(0,) * count, subjects=("/nowhere/1.JPEG",), letters_only=None, cpu_ns=1, wall_ns=10**9,
        ),
        alternatives=(Alternative(name="torchvision", cpu_s=0.003, usual_cpu_s=0.004),),
        timeline=timelines.starved() if workers == 2 else None,
    )  # fmt: skip

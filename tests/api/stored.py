"""A stored run of made-up measurements: two that succeeded, one that failed, one that is still to be measured."""

from __future__ import annotations

from pathlib import Path

from loaderprobe.records.config import SweepSpec
from loaderprobe.records.measurement import RunFailure
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import example_environment
from tests.analyze.measured import FILES, measured
from tests.analyze.scripted import Truth

MEASUREMENTS = tuple(measured(Truth(compute=1000.0), workers) for workers in (0, 2))
FAILED, PENDING = (measured(Truth(compute=1000.0), workers).config for workers in (3, 4))


def store_run(path: Path) -> RunDirectory:
    """The run, written to `path`."""
    configs = (*(each.config for each in MEASUREMENTS), FAILED, PENDING)
    record = RunRecord(
        created_utc="2026-11-21T07:00:00+00:00", spec=SweepSpec(configs=configs), environment=example_environment()
    )
    run = RunDirectory.create(path, record, [FILES])
    for measurement in MEASUREMENTS:
        run.save(measurement)
    run.save(
        RunFailure(
            config=FAILED, stage="round 1", reason="the worker was killed", hint="", exit_code=None, signal="SIGKILL",
            log=(), started_utc="2026-11-21T07:00:00+00:00", wall_s=1.0,
        )
    )  # fmt: skip
    return run

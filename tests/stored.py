"""Stored runs of made-up measurements."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from loaderprobe.records.config import RunConfig, SweepSpec
from loaderprobe.records.environment import Environment
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import RunFailure
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from tests.analyze.runs import FILES
from tests.analyze.scripted import Truth, measured
from tests.fakes import example_environment

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
MEASUREMENTS = tuple(measured(Truth(compute=1000.0), workers) for workers in (0, 2))
FAILED, PENDING = (measured(Truth(compute=1000.0), workers).config for workers in (3, 4))


def failure(config: RunConfig, reason: str = "it broke", **changes: Any) -> RunFailure:
    """Of a configuration, half way."""
    usual: dict[str, Any] = {
        "stage": "half", "hint": "", "exit_code": 1, "signal": None, "log": (), "started_utc": "", "wall_s": 1.0,
    }  # fmt: skip
    return RunFailure(config=config, reason=reason, **(usual | changes))


def empty_run(
    path: Path, *configs: RunConfig, files: FileSet = FILES, environment: Environment | None = None,
    created_utc: str = "2026-11-21T07:00:00+00:00", **spec: Any,
) -> RunDirectory:  # fmt: skip
    """A run of these configurations, of which nothing is measured; `spec` are other fields of what was asked for."""
    record = RunRecord(
        created_utc=created_utc, spec=SweepSpec(configs=configs, **spec),
        environment=environment or example_environment(),
    )  # fmt: skip
    return RunDirectory.create(path, record, [files])


def plain_run(path: Path) -> RunDirectory:
    """MEASUREMENTS, a configuration that failed, and one that is still to be measured."""
    configs = (*(each.config for each in MEASUREMENTS), FAILED, PENDING)
    run = empty_run(path, *configs, command=("loaderprobe", "sweep"))
    for each in MEASUREMENTS:
        run.save(each)
    run.save(failure(FAILED, "the worker was killed", stage="round 1", exit_code=None, signal="SIGKILL"))
    return run


def full_run(path: Path) -> RunDirectory:
    """Serial, 1 and 2 workers measured, with waits, a ceiling and a profiler window; 4 workers failed."""
    return RunDirectory.open(Path(shutil.copytree(RUNS / "profiler", path)))

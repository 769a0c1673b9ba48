"""A stored run as a program meets it: its report, its frames, and how it shows itself."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.api.shown import frame
from loaderprobe.errors import MissingPart
from loaderprobe.render.sweep import report_columns
from tests.analyze.measured import STEPS
from tests.analyze.runs import BATCH
from tests.stored import FAILED, MEASUREMENTS, PENDING, plain_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> loaderprobe.Run:
    """Two configurations measured, one failed, one still to be measured."""
    return loaderprobe.load(plain_run(tmp_path_factory.mktemp("stored") / "run").path)


def test_the_frame_has_a_row_a_configuration_and_the_columns_of_the_csv(run: loaderprobe.Run) -> None:
    """Figures are numbers, with NaN where there is none."""
    found = run.to_frame()
    assert list(found.columns) == list(report_columns(run.report()))
    assert list(found["key"]) == [*(each.config.key for each in MEASUREMENTS), FAILED.key, PENDING.key]
    assert found["images_per_s"].dtype == float
    assert list(found["images_per_s"].isna()) == [False, False, True, True]
    row = run.report().summary.configurations[0]
    assert row.images_per_s and found["images_per_s"].iloc[0] == row.images_per_s.value


def test_steps_are_the_raw_times_of_every_segment(run: loaderprobe.Run) -> None:
    """One row a step, in seconds since the first segment; the parts are differences of what was stamped."""
    steps = run.steps()
    segments = [segment for each in MEASUREMENTS for segment in each.segments]
    assert len(steps) == STEPS * len(segments)
    assert set(steps["key"]) == {each.config.key for each in MEASUREMENTS}
    assert set(steps["mode"]) == {"baseline", "warm"} and set(steps["activity"]) == {"loader_only", "training"}
    first = steps.iloc[:STEPS]
    begin = [ns / 1e9 for ns in segments[0].begin_ns]
    assert list(first["begin_at_s"]) == pytest.approx(begin)
    assert list(first["batch"]) == list(range(STEPS)) and set(first["images"]) == {BATCH}
    assert first["iteration_s"].sum() == pytest.approx(segments[0].closed_ns / 1e9)
    # The loader alone runs no step on a device.
    alone = steps["activity"] == "loader_only"
    assert steps.loc[alone, "device_end_at_s"].isna().all() and steps.loc[~alone, "device_end_at_s"].notna().all()


def test_batches_are_what_workers_recorded(run: loaderprobe.Run) -> None:
    """One row a batch, with its worker, and the mode of the segment that it served."""
    batches = run.batches()
    records = MEASUREMENTS[1].worker_batches
    own = batches[batches["key"] == MEASUREMENTS[1].config.key]
    assert list(own["worker"]) == list(records.worker)
    assert list(own["wall_s"]) == pytest.approx([ns / 1e9 for ns in records.wall_ns])
    assert list(own["read_bytes"]) == list(records.read_bytes)
    modes = [segment.mode for segment in MEASUREMENTS[1].segments for _ in range(segment.steps)]
    assert list(own["mode"]) == modes
    assert own["collate_s"].isna().all(), "was not recorded in this run"


def test_a_frame_of_nothing_has_its_columns(tmp_path: Path) -> None:
    """A run of which nothing was measured yet has steps and batches without rows."""
    directory = plain_run(tmp_path / "run")
    for file in (directory.path / "measurements").iterdir():
        file.unlink()
    empty = loaderprobe.load(directory.path)
    assert len(empty.steps()) == len(empty.batches()) == 0
    assert "wait_s" in empty.steps().columns and "wall_s" in empty.batches().columns


def test_a_frame_without_pandas_is_a_missing_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for any part that is not there."""
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "pandas":
            raise ImportError("no module")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPart, match="pandas"):
        frame({"a": [1.0]})

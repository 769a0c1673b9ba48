"""Whole measurements in real child processes: bytes that agree, and trouble that becomes a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rates import cold_fraction
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure, segments_of
from tests.conftest import MeasureReal
from tests.said import said


@pytest.fixture(scope="module")
def two_workers(photographs: FileSet, measure_real: MeasureReal) -> Measurement:
    """Two workers on cold files."""
    measurement = measure_real(photographs, workers=2)
    assert isinstance(measurement, Measurement)
    return measurement


@pytest.mark.usefixtures("on_disk")
def test_cold_reads_of_workers_agree_with_the_files_consumed(two_workers: Measurement) -> None:
    """Bytes that the workers read from storage are the sizes of the files, within 5 %."""
    share = cold_fraction(two_workers, [s for s in two_workers.segments if s.mode == "baseline"])
    assert share == pytest.approx(1.0, abs=0.05)


def test_warm_reads_come_from_memory(on_disk: FileSet, measure_real: MeasureReal) -> None:
    """Over a warm configuration under 2 % of the bytes come from storage."""
    measurement = measure_real(on_disk, cache="warm")
    assert isinstance(measurement, Measurement)
    share = cold_fraction(measurement, [s for s in measurement.segments if s.mode == "warm"])
    assert share is not None
    assert share < 0.02


def test_real_training_on_the_cpu_is_judged(photographs: FileSet, measure_real: MeasureReal) -> None:
    """Real steps have a measured ceiling, and times for wait, copy and step."""
    measurement = measure_real(photographs, compute="cpu", model="lenet5", batch_size=1, workers=1)
    assert isinstance(measurement, Measurement)
    assert measurement.compute.specified_images_per_s is None
    judged = verdict(measurement)
    assert judged.rates_images_per_s.compute is not None
    assert judged.step_time.step_s > judged.step_time.copy_s > 0
    assert segments_of(measurement, "resident", "training")


def test_samplers_saw_the_workers(two_workers: Measurement) -> None:
    """Worker CPU and machine CPU are series; what is not there has a reason."""
    assert {"worker_cpu", "machine_cpu"} <= {series.name for series in two_workers.series}
    assert "no GPU" in next(said(m.reason) for m in two_workers.missing if m.name == "gpu_utilization")


def test_a_killed_worker_becomes_a_failure(photographs: FileSet, measure_real: MeasureReal) -> None:
    """A worker killed by SIGKILL is named as such, with the out-of-memory killer as the first suspect."""
    failure = measure_real(photographs, loader="tests.planted.loaders:KilledWorker")
    assert isinstance(failure, RunFailure)
    assert "a loader worker" in failure.reason
    assert "killed by SIGKILL" in failure.reason
    assert "out-of-memory" in failure.hint


def test_a_data_set_that_raises_becomes_a_failure_naming_the_file(tmp_path: Path, measure_real: MeasureReal) -> None:
    """A file that went bad after it was checked is named, with the stage it was met in."""
    (tmp_path / "bad.JPEG").write_bytes(b"\xff\xd8 no image")
    files = FileSet(
        label="x", root=str(tmp_path), generated=False, paths=("bad.JPEG",) * 64, classes=(0,) * 64,
        size_bytes=(11,) * 64, images_found=64,
    )  # fmt: skip
    failure = measure_real(files)
    assert isinstance(failure, RunFailure)
    assert "the data set raised in a worker" in failure.reason
    assert "bad.JPEG cannot be decoded" in failure.reason
    assert failure.stage == "first batch"
    assert any("Traceback" in line for line in failure.log)

"""Bytes that the serial loader reads, beside what the device says. The device counts the reads of all processes."""

from __future__ import annotations

import pytest

from loaderprobe.analyze.verdict.rates import cold_fraction
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, Segment
from tests.conftest import MeasureReal

pytestmark = pytest.mark.alone(by_itself=True)


def cold_segments(measurement: Measurement) -> list[Segment]:
    """The segments on cold files, of the loader only and of training."""
    return [segment for segment in measurement.segments if segment.mode == "baseline"]


@pytest.fixture(scope="module")
def serial(on_disk: FileSet, measure_real: MeasureReal) -> Measurement:
    """The serial loader on cold files, in three rounds."""
    measurement = measure_real(on_disk, workers=0, rounds=3)
    assert isinstance(measurement, Measurement)
    return measurement


def test_cold_reads_of_the_serial_loader_agree_with_the_files_consumed(serial: Measurement) -> None:
    """Bytes that the serial loader reads from storage are the sizes of the files, within 5 %."""
    share = cold_fraction(serial, cold_segments(serial))
    assert share == pytest.approx(1.0, abs=0.05)


def test_cold_reads_agree_with_the_device(serial: Measurement) -> None:
    """What the device reports to have read is what was delivered, within 10 % (serial: nothing is read ahead).

    Others may use the disk meanwhile, which only adds: the quietest segment counts.
    """
    cold = cold_segments(serial)
    if any(s.disk_bytes is None for s in cold):
        pytest.skip("the device of the temporary directory is not visible")
    assert min((s.disk_bytes or 0) / (s.delivered_bytes or 1) for s in cold) == pytest.approx(1.0, abs=0.10)

"""Bytes that the serial loader reads, beside what the device says."""

from __future__ import annotations

import pytest

from loaderprobe.analyze.verdict.rates import cold_fraction
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement
from tests.conftest import MeasureReal


@pytest.mark.alone(by_itself=True)
def test_cold_reads_of_the_serial_loader_agree_with_the_device(on_disk: FileSet, measure_real: MeasureReal) -> None:
    """With the files consumed within 5 %, and with what the device reports within 10 % (nothing is read ahead).

    The device counts the reads of all processes, which only adds: the quietest segment counts.
    """
    serial = measure_real(on_disk, workers=0, rounds=3)
    assert isinstance(serial, Measurement)
    cold = [segment for segment in serial.segments if segment.mode == "baseline"]
    assert cold_fraction(serial, cold) == pytest.approx(1.0, abs=0.05)
    if any(s.disk_bytes is None for s in cold):
        pytest.skip("the device of the temporary directory is not visible")
    assert min((s.disk_bytes or 0) / (s.delivered_bytes or 1) for s in cold) == pytest.approx(1.0, abs=0.10)

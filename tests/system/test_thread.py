"""What one thread reads from storage."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from loaderprobe.system.device import locate
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.system.process import ThreadMeter

SIZE = 4_000_000


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A file that is not in the page cache."""
    if locate(tmp_path).kind != "block":
        pytest.skip("the temporary directory is not on a block device, whose reads are counted")
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    LinuxPageCache().evict([path])
    return path


def test_a_cold_file_counts_as_read_and_a_warm_one_does_not(cold: Path) -> None:
    """The bytes read are the file's size, but for a little read ahead or of the directory."""
    meter = ThreadMeter()
    before = meter.read()[2]
    cold.read_bytes()
    middle = meter.read()[2]
    cold.read_bytes()
    assert 0.95 * SIZE < middle - before < 1.25 * SIZE
    assert meter.read()[2] - middle < 0.05 * SIZE


def test_what_another_thread_reads_is_not_counted(cold: Path) -> None:
    """Each worker's bytes are its own."""
    meter = ThreadMeter()
    before = meter.read()[2]
    other = threading.Thread(target=cold.read_bytes)
    other.start()
    other.join()
    assert meter.read()[2] - before < 0.05 * SIZE


def test_a_closed_meter_reads_on_without_the_delay(tmp_path: Path) -> None:
    """Its file is given back once, and the delay is no longer known."""
    (tmp_path / "schedstat").write_text("11 22 33\n")
    meter = ThreadMeter(tmp_path / "schedstat")
    meter.close()
    meter.close()
    assert meter.read()[1] == 0 and not meter.run_delay_known

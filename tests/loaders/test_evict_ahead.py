"""No sample is served by what was read for another: the files are evicted ahead of each."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.loaders import worker_probe
from loaderprobe.loaders.worker_probe import EvictAhead, FetchLog
from loaderprobe.system.mapped import Evicted
from loaderprobe.system.pagecache import LinuxPageCache
from tests.skips import needs_cold_reads

SIZE = 1 << 20


class Mapped:
    """Samples of one file that is mapped; remembers how much of it was in memory before each."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, path.open("rb")
        self.pages = mmap.mmap(self.file.fileno(), 0, prot=mmap.PROT_READ)
        self.resident: list[float | None] = []

    def __getitem__(self, index: int) -> bytes:
        self.resident.append(LinuxPageCache().resident([self.path]))
        return bytes(self.pages)  # all of it, as a device that reads far ahead would


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Mapped]:
    needs_cold_reads(tmp_path)
    path = tmp_path / "samples.bin"
    path.write_bytes(os.urandom(SIZE))
    found = Mapped(path)
    LinuxPageCache().evict([path])
    yield found
    found.pages.close()
    found.file.close()


def opened(tmp_path: Path) -> tuple[FetchLog, Any]:
    log = FetchLog.create(tmp_path / "log", 1)
    return log, log.open("r+")


def test_each_sample_finds_the_mapped_file_cold(data: Mapped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the one before has read all of it; without the request it is warm from the second on."""
    monkeypatch.setattr(worker_probe, "MOST_SHARE", 1e9)
    log, head = opened(tmp_path)
    ahead = EvictAhead(log)
    assert ahead.around(data, head) is data
    worker_probe.ask(log, 1, [data.path])
    head.ahead = 1
    cold = ahead.around(data, head)
    assert [len(cold[number]) for number in range(3)] == [SIZE] * 3
    assert data.resident == [0.0] * 3
    head.ahead = 0
    assert ahead.around(data, head) is data
    assert len(data[0]) == SIZE and data.resident[-1] == 1.0
    assert ahead.spent_ns > 0


def test_only_what_may_serve_others_is_evicted(data: Mapped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a worker has read little of the files since, the next sample is hardly met; others may be reading."""
    monkeypatch.setattr(worker_probe, "MOST_SHARE", 1e9)
    monkeypatch.setattr(worker_probe, "MOST_CACHED", 3.0)
    log, head = opened(tmp_path)
    worker_probe.ask(log, 1, [data.path])
    head.ahead = 1
    cold = EvictAhead(log).around(data, head)
    for number in range(3):
        cold[number]
    assert data.resident == [0.0, 1.0, 1.0]


def test_evicting_takes_no_more_than_its_share(data: Mapped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick loader would else be measured with it: after the first, it waits until that has been made up for."""
    monkeypatch.setattr(worker_probe, "MOST_SHARE", 0.0)
    log, head = opened(tmp_path)
    worker_probe.ask(log, 1, [data.path])
    head.ahead = 1
    cold = EvictAhead(log).around(data, head)
    for number in range(3):
        cold[number]
    assert data.resident[0] == 0.0 and data.resident[2] == 1.0


def test_batched_data_sets_stay_batched(data: Mapped, tmp_path: Path) -> None:
    """torch asks a data set with `__getitems__` for a whole batch."""

    class Batched:
        def __getitems__(self, indices: list[int]) -> list[int]:
            return indices

    log, head = opened(tmp_path)
    worker_probe.ask(log, 1, [data.path])
    head.ahead = 1
    ahead = EvictAhead(log)
    assert ahead.around(Batched(), head).__getitems__([1, 2]) == [1, 2]
    assert not hasattr(ahead.around(data, head), "__getitems__")


def test_changes_of_a_private_mapping_survive_an_eviction(data: Mapped) -> None:
    """They are nowhere else."""
    with mmap.mmap(data.file.fileno(), 0, flags=mmap.MAP_PRIVATE) as private:
        private[:5] = b"mine!"
        files = Evicted([str(data.path)])
        files.drop()
        files.close()
        assert private[:5] == b"mine!"

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.storage.files import Piece, sample_files
from loaderprobe.storage.probe import MOST_LAPS, cache_label, probe_bandwidth
from loaderprobe.storage.reader import read_pieces
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.testing import FakePageCache


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of different sizes, as images are."""
    path = tmp_path / "data"
    path.mkdir()
    for number in range(20):
        (path / f"{number}.jpg").write_bytes(os.urandom(20_000 + 1_000 * number))
    for file in path.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    return path


def _probe(path: Path, **changes: object) -> BandwidthReport:
    options: dict[str, object] = {
        "readers": (1, 2), "seconds": 60.0, "seed": 0, "cache": LinuxPageCache(), "progress": lambda done, total: None,
    }  # fmt: skip
    return probe_bandwidth(path, **{**options, **changes})  # type: ignore[arg-type]  # options by name, for brevity


def test_the_label_comes_from_bytes() -> None:
    """Nine tenths from storage are cold, under a twentieth warm, between them mixed; uncounted is unproved."""
    assert [cache_label(share, 100) for share in (100, 90, 89, 5, 4, 0)] == [
        "cold", "cold", "mixed", "mixed", "warm", "warm",
    ]  # fmt: skip
    assert cache_label(None, 100) == cache_label(0, 0) == "unproved"


def test_every_piece_is_read_once(folder: Path) -> None:
    """However many readers share them, each file is read exactly once, to its end."""
    pieces = sample_files(folder, limit_bytes=10**9, seed=0).pieces
    reading = read_pieces(pieces, readers=4, seconds=60.0)
    assert len(reading.latency_s) == len(pieces) and reading.short == 0
    assert reading.delivered_bytes == sum(piece.size_bytes for piece in pieces)


def test_files_that_vanish_or_shrink_are_counted(folder: Path) -> None:
    """A file that has gone, or is shorter than it was, is counted and ends nothing."""
    pieces = sample_files(folder, limit_bytes=10**9, seed=0).pieces
    pieces[0].path.unlink()
    os.truncate(pieces[1].path, 10)
    reading = read_pieces(pieces, readers=2, seconds=60.0)
    assert reading.short == 2 and len(reading.latency_s) == len(pieces)


def test_no_time_reads_nothing(folder: Path) -> None:
    """A deadline that has passed is kept."""
    piece = Piece(path=next(folder.iterdir()), offset=0, size_bytes=10)
    assert read_pieces([piece], readers=1, seconds=0.0).delivered_bytes == 0


def test_a_cold_ladder(folder: Path) -> None:
    """After each eviction the files come from storage, and the bytes prove it."""
    report = _probe(folder)
    if not report.location.counts_reads:
        pytest.skip(f"{report.location.filesystem} does not count reads")
    assert [leg.readers for leg in report.legs] == [1, 2]
    assert all(leg.cache == "cold" and leg.resident_before == 0.0 for leg in report.legs)
    total = sum(file.stat().st_size for file in folder.iterdir())
    assert all(leg.delivered_bytes == MOST_LAPS * total for leg in report.legs)
    assert report.files_used == 20 and report.images and not report.scratch


class NeverEvicting(FakePageCache):
    """Leaves everything in the real cache."""

    def resident(self, paths: Sequence[Path]) -> float | None:
        return None


def test_a_warm_ladder_is_called_warm(folder: Path) -> None:
    """Files that nobody could evict are not passed off as a device's speed."""
    LinuxPageCache().warm(list(folder.iterdir()))
    report = _probe(folder, cache=NeverEvicting())
    if not report.location.counts_reads:
        pytest.skip(f"{report.location.filesystem} does not count reads")
    assert all(leg.cache == "warm" and leg.resident_before is None for leg in report.legs)


def test_memory_is_unproved() -> None:
    """On a memory file system nothing is called cold, and a note says why."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("no shared memory to write to")
    report = _probe(shared, scratch_bytes=1 << 20, readers=(1,))
    if report.location.kind != "memory":
        pytest.skip("/dev/shm is not memory here")
    assert report.legs[0].cache == "unproved" and report.legs[0].storage_bytes is None
    assert any("memory" in note for note in report.location.notes)


def test_scratch_leaves_nothing(tmp_path: Path) -> None:
    """A scratch ladder says so, reads the whole file, and leaves the folder as it was."""
    report = _probe(tmp_path, scratch_bytes=1 << 20, readers=(1,))
    assert report.scratch and report.files_used == 8 and report.notes
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_unless_asked(folder: Path) -> None:
    """Probing a folder does not change what is in it."""
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    _probe(folder, readers=(1,))
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_progress_counts_legs(folder: Path) -> None:
    """Progress starts at none and ends at all of the legs."""
    seen: list[tuple[int, int]] = []
    _probe(folder, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_bad_readers(folder: Path) -> None:
    """No readers, or none at all in a leg, is a bad value."""
    for readers in ((), (0, 1)):
        with pytest.raises(BadValue):
            _probe(folder, readers=readers)


class VanishingCache(LinuxPageCache):
    """A file is deleted right after the first eviction, as by a job that cleans up."""

    victim: Path | None = None

    def evict(self, paths: Sequence[Path]) -> None:
        super().evict(paths)
        if self.victim is None:
            self.victim = paths[0]
            self.victim.unlink()


def test_a_vanished_file_does_not_end_the_ladder(folder: Path) -> None:
    """A file that vanishes between legs is noted, and the ladder goes on."""
    report = _probe(folder, cache=VanishingCache())
    assert len(report.legs) == 2 and "vanished" in report.legs[0].note


def test_no_seconds_is_a_bad_value(folder: Path) -> None:
    """A ladder without time is refused, not divided by."""
    with pytest.raises(BadValue):
        _probe(folder, seconds=0.0)

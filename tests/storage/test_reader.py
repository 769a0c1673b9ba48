from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loaderprobe.errors import LoaderprobeError
from loaderprobe.storage import processes
from loaderprobe.storage.files import BLOCK_BYTES, Piece, Sample, sample_files
from loaderprobe.storage.processes import ProcessEngine
from loaderprobe.storage.reader import (
    MOST_BYTES_A_READ,
    ReadEngine,
    Reading,
    ReadOrder,
    ThreadEngine,
    steady_slices,
    why_not_direct,
)
from tests.said import said

ENGINES = (ThreadEngine(), ProcessEngine(2))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_piece_is_read_once(sample: Sample, engine: ReadEngine) -> None:
    """However many readers share them, each file is read exactly once, to its end."""
    reading = engine.read(sample.pieces, ReadOrder(readers=4, seconds=60.0))
    total = sum(piece.size_bytes for piece in sample.pieces)
    assert reading.taken >= len(sample.pieces) and reading.ios == len(sample.pieces) and not reading.unread
    assert reading.delivered_bytes == reading.size_bytes.sum() == total
    assert (np.diff(reading.end_ns) >= 0).all() and (reading.read_ns <= reading.piece_ns).all()


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_trouble_is_counted_by_reason(sample: Sample, engine: ReadEngine) -> None:
    """A file that has gone, and one that is shorter than it was, are counted apart and end nothing."""
    sample.pieces[0].path.unlink()
    os.truncate(sample.pieces[1].path, 10)
    reading = engine.read(sample.pieces, ReadOrder(readers=2, seconds=60.0))
    assert sorted(reading.unread.values()) == ["shrank while being read", "vanished"]
    assert len(reading.end_ns) == len(sample.pieces) - 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_lost_permission_is_a_reason(sample: Sample) -> None:
    """A file that may no longer be read is counted as that."""
    sample.pieces[0].path.chmod(0)
    reading = ThreadEngine().read(sample.pieces, ReadOrder(readers=1, seconds=60.0))
    assert reading.unread == {str(sample.pieces[0].path): "no read permission"}


def test_threads_that_begin_late_read_a_piece_each(sample: Sample) -> None:
    """On a busy machine the time may be over before they run: something was read, and no more than that."""
    found = ThreadEngine().read(sample.pieces, ReadOrder(readers=2, seconds=0.0))
    assert found.taken == len(found.read_ns) == 2


def test_blocks_of_one_file(tmp_path: Path) -> None:
    """Blocks deliver the bytes of the file once: a neighbouring block read along does not count."""
    path = tmp_path / "one"
    path.write_bytes(os.urandom(2 * BLOCK_BYTES + 7))
    sample = sample_files(path, limit_bytes=10**9, seed=0)
    for direct in (False, True):
        if direct and why_not_direct(sample.pieces):
            continue
        reading = ThreadEngine().read(sample.pieces, ReadOrder(readers=2, seconds=60.0, direct=direct))
        assert reading.delivered_bytes == 2 * BLOCK_BYTES + 7 and not reading.unread


def test_odd_sizes_can_be_read_directly(sample: Sample) -> None:
    """Past the page cache, files whose size is no multiple of a block are read to their last byte."""
    refusal = why_not_direct(sample.pieces)
    if refusal:
        pytest.skip(said(refusal))
    reading = ThreadEngine().read(sample.pieces, ReadOrder(readers=3, seconds=60.0, direct=True))
    assert reading.delivered_bytes == sum(piece.size_bytes for piece in sample.pieces) and not reading.unread


def test_large_pieces_need_no_large_buffer(tmp_path: Path) -> None:
    """A piece beyond the buffer is read in several calls."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2 * MOST_BYTES_A_READ + 5)
    piece = Piece(path=path, offset=0, size_bytes=2 * MOST_BYTES_A_READ + 5)
    reading = ThreadEngine().read([piece], ReadOrder(readers=1, seconds=60.0))
    assert reading.delivered_bytes == piece.size_bytes and reading.ios == 3


def test_slices_cover_the_steady_part(sample: Sample) -> None:
    """Slices are equal, lie within the time when all readers had work, and hold no byte twice."""
    reading = ThreadEngine().read(sample.pieces, ReadOrder(readers=1, seconds=60.0))
    slices = steady_slices(reading)
    assert sum(seconds for seconds, _ in slices) <= reading.seconds
    assert 0 < sum(size for _, size in slices) <= reading.delivered_bytes


def test_the_warm_up_is_left_out() -> None:
    """Bytes that a throttled device had saved up come at the start, and are not part of its rate."""
    # A burst of 100 bytes at once, then 10 bytes every 10 ms for two seconds.
    reading = Reading(
        seconds=2.0,
        full_ns=2_000_000_000,
        end_ns=np.array([1_000_000] * 10 + [10_000_000 * n + 5_000_000 for n in range(200)]),
        size_bytes=np.full(210, 10),
        piece_ns=np.full(210, 1_000),
    )
    rates = [size / seconds for seconds, size in steady_slices(reading)]
    assert rates == pytest.approx([1000.0] * len(rates), rel=0.03) and len(rates) == 3


@pytest.mark.parametrize("took_s", [0.05, 0.45, 0.7, 0.9, 2.5])
def test_long_reads_count_where_they_happened(took_s: float) -> None:
    """A reader that takes long for a file has its true rate, wherever the edges of the slices fall."""
    count = int(3.0 / took_s) + 1
    ends = (np.arange(1, count + 1) * took_s * 1e9).astype(np.int64)
    reading = Reading(
        seconds=count * took_s,
        full_ns=3_000_000_000,
        end_ns=ends,
        size_bytes=np.full(count, 10**7),
        piece_ns=np.full(count, round(took_s * 1e9)),
    )
    rates = [size / seconds for seconds, size in steady_slices(reading)]
    assert rates == pytest.approx([1e7 / took_s] * len(rates), rel=1e-6)


def test_a_dead_child_is_an_error(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading process that dies is not taken for one that found nothing."""

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "input(); print('ready', flush=True)"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(processes, "_start", start)
    with pytest.raises(LoaderprobeError, match="died"):
        ProcessEngine(2).read(sample.pieces, ReadOrder(readers=2, seconds=60.0))

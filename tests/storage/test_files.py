"""Which files are sampled, in which pieces, how they are read, and what a run of reads says of the rate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart, NoSpace
from loaderprobe.storage import files, reader
from loaderprobe.storage.files import BLOCK_BYTES, LARGE_BLOCK_BYTES, LARGE_FILE_BYTES, Piece, Sample, sample_files
from loaderprobe.storage.reader import ProcessEngine, Reading, ReadOrder, ThreadEngine, steady_slices, why_not_direct
from tests.conftest import AsUnprivileged

ENGINES = (ThreadEngine(), ProcessEngine(2))


def write(folder: Path, count: int, suffix: str = ".jpg") -> None:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        (folder / f"{number}{suffix}").write_bytes(b"x" * 1000)


def sparse(path: Path, size_bytes: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path


def sampled(path: Path, seed: int = 0) -> Sample:
    return sample_files(path, seed=seed)


def skipped(sample: Sample) -> dict[object, object]:
    return {note.facts["why"]: note.facts["files"] for note in sample.notes if note.code == "files_skipped"}


def test_what_is_no_file_is_counted_and_left_out(tmp_path: Path) -> None:
    """A loop of links ends. A file of two names is read once: the second reading would come from the cache."""
    write(tmp_path, 5)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "none")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "void.jpg").touch()
    for number in range(5):
        (tmp_path / f"hard{number}.jpg").hardlink_to(tmp_path / f"{number}.jpg")
        (tmp_path / f"soft{number}.jpg").symlink_to(tmp_path / f"{number}.jpg")
    sample = sampled(tmp_path)
    assert len({path.stat().st_ino for path in sample.paths}) == len(sample.pieces) == 5
    again = "another name of a file already chosen"
    assert skipped(sample) == {"not a regular file": 1, "a broken link": 1, "empty": 1, again: 10}


def test_the_seed_decides_the_order_and_the_limit_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seed gives the same files in the same order, another seed another order; all are counted as found."""
    write(tmp_path, 30)
    first, again, other = (sampled(tmp_path, seed=seed).paths for seed in (1, 1, 2))
    assert first == again and first != other and set(first) == set(other)
    monkeypatch.setattr(files, "LIMIT_BYTES", 5000)
    limited = sampled(tmp_path)
    assert len(limited.pieces) == 5 and limited.total == 30


def test_images_are_read_without_what_lies_beside_them(tmp_path: Path) -> None:
    """Where most files are images, others, such as a manifest, are not read by training."""
    write(tmp_path, 5)
    (tmp_path / "manifest.json").write_text("{}")
    sample = sampled(tmp_path)
    assert sample.images and {path.suffix for path in sample.paths} == {".jpg"}
    write(tmp_path / "more", 9, suffix=".bin")
    assert not sampled(tmp_path).images


def test_large_files_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single one too, each once: no reader needs a buffer as large as a shard; one image does not hold up a phase."""
    pieces = sampled(sparse(tmp_path / "one", 2 * BLOCK_BYTES + 7)).pieces
    blocks = [(0, BLOCK_BYTES), (BLOCK_BYTES, BLOCK_BYTES), (2 * BLOCK_BYTES, 7)]
    assert sorted((piece.offset, piece.size_bytes) for piece in pieces) == blocks
    (tmp_path / "shards").mkdir()
    for number in range(2):
        sparse(tmp_path / f"shards/{number}.tar", LARGE_FILE_BYTES + 1 + number)
    shards = sampled(tmp_path / "shards")
    assert shards.block_bytes == LARGE_BLOCK_BYTES and not shards.images
    assert max(piece.size_bytes for piece in shards.pieces) == LARGE_BLOCK_BYTES
    assert sum(piece.size_bytes for piece in shards.pieces) == 2 * LARGE_FILE_BYTES + 3
    write(tmp_path / "mixed", 20)
    sparse(tmp_path / "mixed/shard.jpg", 100 * LARGE_FILE_BYTES)
    monkeypatch.setattr(files, "LIMIT_BYTES", 2 * LARGE_FILE_BYTES)
    mixed = sampled(tmp_path / "mixed", seed=3)
    assert max(piece.size_bytes for piece in mixed.pieces) <= LARGE_BLOCK_BYTES
    assert sum(piece.size_bytes for piece in mixed.pieces) <= 2 * LARGE_FILE_BYTES + 20_000


def test_only_large_files_can_be_read_in_a_row(tmp_path: Path) -> None:
    """The sequential phase takes the blocks of large files in their order; among small files there is none."""
    write(tmp_path, 9)
    assert sampled(tmp_path).sequential() is None
    sparse(tmp_path / "shard.jpg", files.SEQUENTIAL_FILE_BYTES)
    in_a_row = sampled(tmp_path).sequential()
    assert in_a_row is not None
    offsets = [piece.offset for piece in in_a_row.pieces]
    assert offsets == sorted(offsets) and sum(p.size_bytes for p in in_a_row.pieces) == files.SEQUENTIAL_FILE_BYTES


def test_permission_is_asked(open_path: Path, as_unprivileged: AsUnprivileged, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, all of its files, or a file alone; one of several is left out, or a reason beside the rate."""
    (open_path / "locked").mkdir(mode=0)
    write(open_path / "data", 3)
    pieces = sampled(open_path / "data").pieces
    pieces[0].path.chmod(0)
    with as_unprivileged():
        with pytest.raises(MissingPart):
            sampled(open_path / "locked")
        reading = ThreadEngine().read(pieces, ReadOrder(readers=1, seconds=60.0))
    assert reading.unread == {str(pieces[0].path): "no read permission"}
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name == "1.jpg")
    sample = sampled(open_path / "data")
    assert len(sample.pieces) == 1 and skipped(sample) == {"not readable": 2}
    monkeypatch.setattr(os, "access", lambda *_: False)
    for path in (open_path / "data", open_path / "data" / "1.jpg"):
        with pytest.raises(MissingPart):
            sampled(path)


def test_the_scratch_file_is_always_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens while it is used; that of another, as of a container with the same process id, survives."""
    foreign = tmp_path / f".loaderprobe-scratch-{os.getpid()}"
    foreign.write_bytes(b"theirs")
    with pytest.raises(KeyboardInterrupt), files.scratch_file(tmp_path, 3 * BLOCK_BYTES, 0) as sample:
        assert sum(piece.size_bytes for piece in sample.pieces) == 3 * BLOCK_BYTES
        assert sample.paths != [foreign] and sample.paths[0].stat().st_size == 3 * BLOCK_BYTES
        raise KeyboardInterrupt
    with pytest.raises(NoSpace), files.scratch_file(tmp_path, 10**18, 0):
        pytest.fail("one that does not fit is not begun")
    monkeypatch.setattr(os, "fsync", lambda _: Path("/dev/full").write_bytes(b"x"))
    with pytest.raises(NoSpace) as full, files.scratch_file(tmp_path, BLOCK_BYTES, 0):
        pytest.fail("one that is not whole is not used")
    assert "--out" not in full.value.hint
    assert list(tmp_path.iterdir()) == [foreign] and foreign.read_bytes() == b"theirs"


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_piece_is_read_once(sample: Sample, engine: reader.ReadEngine) -> None:
    """However many readers share them; one that has gone, and one that is shorter than it was, are counted apart."""
    reading = engine.read(sample.pieces, ReadOrder(readers=4, seconds=60.0))
    total = sum(piece.size_bytes for piece in sample.pieces)
    assert reading.taken >= len(sample.pieces) and reading.ios == len(sample.pieces) and not reading.unread
    assert reading.delivered_bytes == reading.size_bytes.sum() == total
    assert (np.diff(reading.end_ns) >= 0).all() and (reading.read_ns <= reading.piece_ns).all()
    sample.pieces[0].path.unlink()
    os.truncate(sample.pieces[1].path, 10)
    reading = engine.read(sample.pieces, ReadOrder(readers=2, seconds=60.0))
    assert sorted(reading.unread.values()) == ["shrank while being read", "vanished"]
    assert len(reading.end_ns) == len(sample.pieces) - 2


def test_threads_that_begin_late_read_a_piece_each(sample: Sample) -> None:
    """On a busy machine the time may be over before they run: something was read, and no more than that."""
    found = ThreadEngine().read(sample.pieces, ReadOrder(readers=2, seconds=0.0))
    assert found.taken == len(found.read_ns) == 2


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_blocks_deliver_the_bytes_of_a_file_once(tmp_path: Path, whole: bool, direct: bool) -> None:
    """Without a neighbour read along; past the page cache to the last byte, beyond the buffer in several calls."""
    size = 2 * (reader.MOST_BYTES_A_READ if whole else BLOCK_BYTES) + 5
    path = sparse(tmp_path / "file", size)
    pieces = [Piece(path=path, offset=0, size_bytes=size)] if whole else sampled(path).pieces
    if direct and why_not_direct(pieces):
        pytest.skip("direct I/O is refused here")
    reading = ThreadEngine().read(pieces, ReadOrder(readers=2, seconds=60.0, direct=direct))
    assert (reading.delivered_bytes, reading.ios, reading.unread) == (size, 3, {})


def test_the_warm_up_is_left_out() -> None:
    """Bytes that a throttled device had saved up come at the start, and are not part of its rate."""
    # A burst of 100 bytes at once, then 10 bytes every 10 ms for two seconds.
    reading = Reading(
        seconds=2.0, full_ns=2_000_000_000, size_bytes=np.full(210, 10), piece_ns=np.full(210, 1_000),
        end_ns=np.array([1_000_000] * 10 + [10_000_000 * n + 5_000_000 for n in range(200)]),
    )  # fmt: skip
    rates = [size / seconds for seconds, size in steady_slices(reading)]
    assert rates == pytest.approx([1000.0] * len(rates), rel=0.03) and len(rates) == 3


@pytest.mark.parametrize("took_s", [0.05, 0.45, 0.7, 0.9, 2.5])
def test_long_reads_count_where_they_happened(took_s: float) -> None:
    """A reader that takes long for a file has its true rate, wherever the edges of the slices fall."""
    count = int(3.0 / took_s) + 1
    reading = Reading(
        seconds=count * took_s, full_ns=3_000_000_000, size_bytes=np.full(count, 10**7),
        piece_ns=np.full(count, round(took_s * 1e9)),
        end_ns=(np.arange(1, count + 1) * took_s * 1e9).astype(np.int64),
    )  # fmt: skip
    rates = [size / seconds for seconds, size in steady_slices(reading)]
    assert rates == pytest.approx([1e7 / took_s] * len(rates), rel=1e-6)


@pytest.mark.parametrize(
    ("end", "how", "hint"),
    [("", "ended with code 0", False), ("; import os; os.kill(os.getpid(), 9)", "SIGKILL", True)],
)
def test_a_dead_child_raises(sample: Sample, monkeypatch: pytest.MonkeyPatch, end: str, how: str, hint: bool) -> None:
    """A reading process that dies is not taken for one that found nothing; memory is named where that may be why."""

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", f"input(); print('ready', flush=True){end}"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(reader, "_start", start)
    with pytest.raises(LoaderprobeError, match=how) as error:
        ProcessEngine(2).read(sample.pieces, ReadOrder(readers=2, seconds=60.0))
    assert ("out-of-memory" in error.value.hint) == hint


@pytest.mark.parametrize(("trouble", "raised"), [(RuntimeError(), BadValue), (KeyboardInterrupt(), KeyboardInterrupt)])
def test_threads_that_meet_a_limit_leave_none_behind(
    sample: Sample, monkeypatch: pytest.MonkeyPatch, trouble: BaseException, raised: type[BaseException]
) -> None:
    """Where the second of two cannot start, or Ctrl-C comes before it does, the first one ends."""
    begun, start = list[Thread](), Thread.start

    def second(reader: Thread) -> None:
        if begun:
            raise trouble
        begun.append(reader)
        start(reader)

    with monkeypatch.context() as limited, pytest.raises(raised) as error:
        limited.setattr(Thread, "start", second)
        ThreadEngine().read(sample.pieces, ReadOrder(readers=2, seconds=60.0))
    begun[0].join(60)
    assert not begun[0].is_alive() and "--readers" in getattr(error.value, "hint", "--readers")


def test_processes_that_meet_a_limit_leave_none_behind(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the second of two cannot start, that is an error, and the first one ends."""
    begun, start = list[subprocess.Popen[bytes]](), reader._start

    def second() -> subprocess.Popen[bytes]:
        if begun:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        begun.append(start())
        return begun[0]

    monkeypatch.setattr(reader, "_start", second)
    with pytest.raises(BlockingIOError):
        ProcessEngine(2).read(sample.pieces, ReadOrder(readers=2, seconds=60.0))
    assert begun[0].returncode is not None

"""Slow disks are as slow as they say, in the way they say, and leave nothing behind."""

from __future__ import annotations

import json
import math
import mmap
import os
import select
import signal
import statistics
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue
from loaderprobe.system.pagecache import LinuxPageCache
from tests.planted.files import files_of_one_request, random_files
from tests.planted.fixtures import BYTES_PER_S, LATENCY_S, PlantDisk
from tests.planted.slow_disk import CannotPlant, SlowDisk, slow_disk

pytestmark = pytest.mark.alone  # every plant is verified by its rate
DEADLINE_S = 15.0
THINK_S_PER_BYTE = 25e-9
"""3 ms after a file of 120 kB."""
THINK_BYTES = 30_000_000
READ_WITH_THINK_TIME = """
import sys
from pathlib import Path
from loaderprobe.storage.files import sample_files
from loaderprobe.storage.reader import ReadOrder, ThreadEngine
pieces = sample_files(Path(sys.argv[1]), limit_bytes=int(sys.argv[2]), seed=0).pieces
order = ReadOrder(readers=1, seconds=1000.0, pause_s_per_byte=float(sys.argv[3]))
print(ThreadEngine().read(pieces, order).seconds, sum(piece.size_bytes for piece in pieces))
"""
PLANT_AND_WAIT = """
import json, os, signal, subprocess, sys
from pathlib import Path
import psutil
from tests.planted.slow_disk import slow_disk
from tests.planted.files import random_files
with slow_disk(fill=random_files, scratch=Path(sys.argv[1]), **json.loads(sys.argv[2])) as disk:
    guardians = [child.pid for child in psutil.Process().children()]
    if os.fork() == 0:
        signal.pause()
    reader = subprocess.Popen(disk.command(["sleep", "1000"]), cwd=disk.folder)
    members = disk.members and str(disk.members)
    print(json.dumps({"members": members, "guardians": guardians}), flush=True)
    signal.pause()
"""


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.jpg"))


def _end(pidfds: list[int]) -> bool:
    """True when all of these processes end before the deadline."""
    return all(select.select([pidfd], [], [], DEADLINE_S)[0] for pidfd in pidfds)


def _traces(scratch: Path) -> list[str]:
    """What lies in the folder, is mounted below it or lends it to a loop device."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    images = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    return [text for text in (*lines, *images) if str(scratch) in text] + [path.name for path in scratch.iterdir()]


def _reads_as_slowly(disk: SlowDisk, *, lost: float) -> bool:
    """One process inside the limit reads some files, with a pause after each, of which a share is lost time.

    It can be no quicker; False when it is over a fifth slower, as on a busy machine.
    """
    LinuxPageCache().evict(_files(disk.folder))
    program = [sys.executable, "-c", READ_WITH_THINK_TIME, str(disk.folder), str(THINK_BYTES), str(THINK_S_PER_BYTE)]
    done = subprocess.run(disk.command(program), check=True, capture_output=True, text=True)
    seconds, read_bytes = map(float, done.stdout.split())
    wanted_s = read_bytes * (1 / BYTES_PER_S + lost * THINK_S_PER_BYTE)
    assert read_bytes > THINK_BYTES / 2 and seconds > wanted_s - disk.credit_s
    return seconds < 1.2 * wanted_s


def _seconds_each(files: list[Path], readers: int) -> list[float]:
    def read(file: Path) -> float:
        begun = time.perf_counter()
        file.read_bytes()
        return time.perf_counter() - begun

    with ThreadPoolExecutor(readers) as pool:
        return list(pool.map(read, files))


def _forked() -> int:
    """A child with all that this process has open, as a worker of a loader is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: this child only waits
        child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    return child


def test_think_time_is_free_on_a_token_bucket_and_lost_on_a_single_server(
    token_bucket_disk: SlowDisk, single_server_disk: SlowDisk
) -> None:
    """A lone reader that pauses 3 ms after each file needs its bytes over the rate; on a single server the pauses too.

    A busy machine only adds time: one of four tries counts.
    """
    for disk, lost in ((token_bucket_disk, 0.0), (single_server_disk, 1.0)):
        assert any(_reads_as_slowly(disk, lost=lost) for _ in range(4))


def test_latency_is_the_same_for_one_reader_and_for_sixteen(latency_disk: SlowDisk) -> None:
    """Files of one request each take the latency, through the page cache too, and sixteen at once no longer.

    A busy machine only adds time: the shortest try counts, of as many as it takes, and of eight at most.
    """
    files = _files(latency_disk.folder)
    for readers, some in ((1, files[:20]), (16, files)):
        each_s = math.inf
        for _ in range(8):
            each_s = min(each_s, statistics.mean(_seconds_each(some, readers)))
            if each_s <= 1.3 * LATENCY_S:
                break
        assert 0.95 <= each_s / LATENCY_S <= 1.3


def _device_file(folder: Path, name: str) -> str:
    number = folder.stat().st_dev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}", name).read_text()


def _bytes_for_one_page(mapped: Path) -> int:
    """That the device reads for the first page of a cold file that is touched in its mapping."""
    LinuxPageCache().evict([mapped])
    before = int(_device_file(mapped.parent, "stat").split()[2])
    with mapped.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        assert pages[len(pages) // 2] is not None
    return 512 * (int(_device_file(mapped.parent, "stat").split()[2]) - before)


def test_a_loop_device_reads_ahead_as_linux_does_by_default(token_bucket_disk: SlowDisk) -> None:
    """Whatever the disk below it is set to."""
    if "loop device" not in token_bucket_disk.how:
        pytest.skip("no loop disk can be planted here")
    assert _device_file(token_bucket_disk.folder, "queue/read_ahead_kb") == "128\n"


def _one_large_file(folder: Path) -> None:
    (folder / "large").write_bytes(os.urandom(1 << 20) * 16)


@pytest.mark.parametrize("read_ahead_bytes", [128 << 10, 2560 << 10])
def test_a_loop_device_reads_ahead_as_asked(plant_disk: PlantDisk, read_ahead_bytes: int) -> None:
    """Its files do too: one page of a mapped file brings about as much into memory."""
    disk = plant_disk(
        kind="token_bucket",
        bytes_per_s=BYTES_PER_S,
        fill=_one_large_file,
        read_ahead_bytes=read_ahead_bytes,
        ways=("blkio", "io.max"),
    )
    assert _device_file(disk.folder, "queue/read_ahead_kb") == f"{read_ahead_bytes >> 10}\n"
    assert 0.5 * read_ahead_bytes <= _bytes_for_one_page(disk.folder / "large") <= 1.5 * read_ahead_bytes


def test_fuse_cannot_be_told_what_to_read_ahead(tmp_path: Path) -> None:
    """Then there is no plant, and the reason is said."""
    with (
        pytest.raises(CannotPlant, match="fuse: what is read ahead is agreed with the server"),
        slow_disk(
            kind="token_bucket",
            bytes_per_s=BYTES_PER_S,
            fill=random_files,
            scratch=tmp_path,
            read_ahead_bytes=1 << 20,
            ways=("fuse",),
        ),
    ):
        pass


def test_files_are_cold_and_whole(token_bucket_disk: SlowDisk, tmp_path: Path) -> None:
    """A disk is handed out with nothing of it in the page cache, and reads as it was written."""
    random_files(tmp_path)
    files = _files(token_bucket_disk.folder)
    LinuxPageCache().evict(files)
    assert LinuxPageCache().resident(files) == 0.0
    assert [file.read_bytes() for file in files[:20]] == [file.read_bytes() for file in _files(tmp_path)[:20]]


@pytest.mark.parametrize("keep_cache", [False, True])
def test_fuse_is_warm_only_when_asked(plant_disk: PlantDisk, keep_cache: bool) -> None:
    """With the cache kept a second read is from memory, without it a file is cold each time it is opened."""
    disk = plant_disk(kind="latency", latency_s=LATENCY_S, fill=files_of_one_request, keep_cache=keep_cache)
    some = _files(disk.folder)[:10]
    first, second = (statistics.median(_seconds_each(some, 1)) for _ in range(2))
    assert first > 0.95 * LATENCY_S
    assert (second < 0.5 * LATENCY_S) == keep_cache


def test_without_a_cgroup_fuse_serves_the_token_bucket(plant_disk: PlantDisk) -> None:
    """The last of the ways is verified like the first, needs no wrapping and says its bank."""
    disk = plant_disk(kind="token_bucket", bytes_per_s=BYTES_PER_S, ways=("fuse",))
    assert disk.how == "FUSE token bucket"
    assert disk.command(["cat"]) == ["cat"]
    assert disk.credit_s == 0.1
    assert disk.measured == pytest.approx(BYTES_PER_S, rel=0.1)


@pytest.mark.parametrize(
    "options", [{"kind": "token_bucket", "bytes_per_s": BYTES_PER_S}, {"kind": "latency", "latency_s": LATENCY_S}]
)
def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path, options: dict[str, object]) -> None:
    """After SIGKILL mount, loop device, cgroup and files go, though a child holds the pipe and a reader the mount."""
    owner = subprocess.Popen(
        [sys.executable, "-c", PLANT_AND_WAIT, str(tmp_path), json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with owner:
        try:
            assert owner.stdout
            assert owner.stderr
            line = owner.stdout.readline()
            if not line:
                reason = owner.stderr.read().splitlines()[-1]
                assert "CannotPlant" in reason
                pytest.skip(reason)
            planted = json.loads(line)
            assert _traces(tmp_path)
            guardians = [os.pidfd_open(pid) for pid in planted["guardians"]]
            owner.kill()
            assert guardians and _end(guardians)
            assert _traces(tmp_path) == []
            assert not (planted["members"] and Path(planted["members"]).exists())
        finally:
            os.killpg(owner.pid, signal.SIGKILL)


def test_nothing_is_left_of_a_busy_mount(tmp_path: Path) -> None:
    """The end waits neither for a forked child nor for whoever has a file open, which gets an error instead."""
    try:
        with slow_disk(kind="latency", latency_s=LATENCY_S, fill=random_files, scratch=tmp_path) as disk:
            opened = _files(disk.folder)[0].open("rb", buffering=0)
            child = _forked()
    except CannotPlant as error:
        pytest.skip(str(error))
    with opened:
        assert _traces(tmp_path) == []
        with pytest.raises(OSError):
            opened.read()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_nothing_is_left_when_filling_fails(tmp_path: Path) -> None:
    """The error of the filler comes through."""

    def fill(folder: Path) -> None:
        raise ZeroDivisionError

    with (
        pytest.raises((ZeroDivisionError, CannotPlant)),
        slow_disk(kind="token_bucket", bytes_per_s=BYTES_PER_S, fill=fill, scratch=tmp_path),
    ):
        pass
    assert _traces(tmp_path) == []


def test_every_reason_is_named_where_nothing_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk too small for a file system, and no library for FUSE: three ways, three reasons, and no trace."""
    monkeypatch.setenv("FUSE_LIBRARY_NAME", "no-such-library")
    with (
        pytest.raises(CannotPlant, match="no token_bucket disk can be planted here") as caught,
        slow_disk(kind="token_bucket", bytes_per_s=BYTES_PER_S, fill=random_files, scratch=tmp_path, size_bytes=1000),
    ):
        pass
    assert [reason.partition(":")[0] for reason in caught.value.reasons] == ["blkio", "io.max", "fuse"]
    assert _traces(tmp_path) == []


def test_a_plant_that_is_not_as_ordered_is_refused_with_its_figure(tmp_path: Path) -> None:
    """No user-space server answers within a microsecond, so such a disk measures more than it was to have."""
    with (
        pytest.raises(CannotPlant, match=r"measured .* a request|mfusepy|libfuse|fuse: "),
        slow_disk(kind="latency", latency_s=1e-6, fill=random_files, scratch=tmp_path),
    ):
        pass
    assert _traces(tmp_path) == []


def test_a_limit_that_does_not_fit_the_kind_is_refused(tmp_path: Path) -> None:
    """A rate for a latency disk, or none at all for a token bucket, plants nothing."""
    with (
        pytest.raises(BadValue, match="latency_s"),
        slow_disk(kind="latency", bytes_per_s=1e6, fill=random_files, scratch=tmp_path),
    ):
        pass
    with (
        pytest.raises(BadValue, match="bytes_per_s"),
        slow_disk(kind="token_bucket", fill=random_files, scratch=tmp_path),
    ):
        pass

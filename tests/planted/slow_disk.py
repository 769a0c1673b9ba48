"""Really slow disks, for tests and benchmarks: planted, verified, and gone afterwards whatever happens.

They are slow in one of four ways:

- token_bucket: all readers share a rate, and idle time is credit, up to `credit_s`. A loop device throttled in a
  cgroup (version 1, else 2), where a real page cache and the kernel's counters see every read; else FUSE.
- single_server: all readers share a rate, and idle time is lost. FUSE with a single queue, which a read occupies for
  its size over the rate.
- latency: each request takes so long, however many are under way, and bytes are not limited. FUSE. A file read
  in one call takes one request per 128 KiB begun; read in small calls it takes more, as the kernel's read-ahead
  grows to that. Two cores serve 3000 requests/s at most (measured): readers beyond that times the latency wait.
- requests: all readers share a rate of read requests, whatever their size. A loop device throttled in a cgroup, else
  FUSE. A file of at most 128 KiB is one request.

A guardian process owns what this takes, and undoes it even when this process is killed. `slow_reader` verifies a
plant: it reads the folder directly and reports the reads.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.units import format_duration, format_rate
from tests.planted.slow_cgroup import inside
from tests.planted.slow_guardian import Kind, Order, Planted, Way
from tests.planted.slow_reader import Read, evict, files_in, read_folder

BURST_S = 0.3
"""Left out of a measured rate: credit that was saved before it."""
RATE_S = 1.5
CONTROL_S = 0.3
READERS = 8
"""Enough that the disk always has something to do, so that its rate is measured and not that of the readers."""
LATENCY_READS = 20
KEPT_RATE, KEPT_LATENCY = (0.9, 1.1), (0.95, 1.5)
"""Of what was ordered."""
ROOT = Path(__file__).parents[2]
"""Where `python -m` finds this package, whatever the folder of the caller."""
ATTEMPTS = 2
"""A machine that is busy with something else may spoil one measurement."""
STOP_DEADLINE_S = 60.0


class CannotPlant(MissingPart):
    """No slow disk here: `reasons` says what each way of planting met, or what the one planted measured."""

    def __init__(self, kind: str, reasons: Sequence[str]) -> None:
        super().__init__(f"no {kind} disk can be planted here: {'; '.join(reasons)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDisk:
    """A folder on storage that is as slow as stated; its files are cold when it is handed out."""

    folder: Path
    how: str
    """`cgroup v1 blkio on a loop device`, `cgroup v2 io.max on a loop device` or `FUSE ...`."""
    members: Path | None
    """The file of the limited cgroup that takes process ids; None when the limit is for all processes."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv`, wrapped so that its process and the children of that meet the limit.

        Whatever of it still runs when the disk goes is killed if the limit is a cgroup's; if not, it gets
        errors from its reads.
        """
        if self.members is None:
            return list(argv)
        return inside(self.members, argv)


@contextmanager
def slow_disk(
    *,
    kind: Kind,
    fill: Callable[[Path], None],
    scratch: Path,
    limit: float,
    size_bytes: int = 400_000_000,
    keep_cache: bool = False,
    read_ahead_bytes: int | None = None,
    ways: Sequence[Way] = ("blkio", "io.max", "fuse"),
    verify: bool = True,
) -> Iterator[SlowDisk]:
    """A disk of this kind, with the files that `fill` writes into the folder it is given.

    `limit` is in bytes/s, requests/s, or s of a request, by the kind. `size_bytes` is that of a loop device, `ways` are
    those to try for a token bucket or for requests. On FUSE open() drops the cached pages of its file unless
    `keep_cache`; on a loop device they stay until they are evicted. `read_ahead_bytes`, in whole KiB, is for loop
    devices only; without it they read ahead what Linux does by default. All of it lies in `scratch`. A disk like one
    that was seen to keep its rate here need not be verified again.

    Raises BadValue when nothing was filled in; CannotPlant when no way works here, when the storage underneath is not
    twice as fast, or when the plant is not seen to keep within 0.9 to 1.1 of its rate, or 0.95 to 1.5 of its latency;
    LoaderprobeError when something could not be undone.
    """
    order = Order(
        owner_pid=os.getpid(),
        scratch=str(scratch.resolve()),
        kind=kind,
        limit=limit,
        size_bytes=size_bytes,
        keep_cache=keep_cache,
        read_ahead_bytes=read_ahead_bytes,
        ways=tuple(ways) if kind in ("token_bucket", "requests") else ("fuse",),
    )
    with guarded(order) as planted:
        if not planted.how:
            raise CannotPlant(kind, planted.reasons)
        fill(Path(planted.fill))
        yield _cold_disk(order, planted, verify)


@contextmanager
def guarded(order: Order) -> Iterator[Planted]:
    """What a guardian planted; it is asked to undo it at the end, and sees by itself when this process dies."""
    guardian = subprocess.Popen(
        [sys.executable, "-m", "tests.planted.slow_guardian"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=ROOT,
    )
    assert guardian.stdin
    assert guardian.stdout
    try:
        guardian.stdin.write(msgspec.json.encode(order).decode() + "\n")
        guardian.stdin.flush()
        answer = guardian.stdout.readline()
        if answer:
            yield msgspec.json.decode(answer, type=Planted)
    finally:
        # A word, since the pipe does not end while a forked child holds it; none for a guardian that has died.
        with suppress(BrokenPipeError):
            guardian.stdin.write("end\n")
            guardian.stdin.close()
        guardian.stdout.close()
        code = guardian.wait(STOP_DEADLINE_S)
    if code or not answer:
        raise LoaderprobeError(f"the guardian of a slow disk in {order.scratch} failed with code {code}")


def _cold_disk(order: Order, planted: Planted, verify: bool) -> SlowDisk:
    """The disk, its files cold."""
    fill, members = Path(planted.fill), Path(planted.members) if planted.members else None
    if members:
        # Only what has been written back can be read directly, or dropped from the page cache.
        subprocess.run(["sync", "--file-system", fill], check=True)
    disk = SlowDisk(folder=Path(planted.folder), how=planted.how, members=members)
    if verify:
        _verify(disk, fill, order, planted)
    evict(files_in(disk.folder))
    return disk


def _verify(disk: SlowDisk, fill: Path, order: Order, planted: Planted) -> None:
    """Raises CannotPlant with what it measured when that is not what was ordered."""
    if not any(file.stat().st_size for file in files_in(fill)):
        raise BadValue("a slow disk cannot be verified without a file that has something in it")
    if order.kind != "latency":
        control = _rate(read_folder(fill, readers=READERS, seconds=CONTROL_S), order, skip_s=0.0)
        if control < 2 * order.limit:
            raise CannotPlant(order.kind, [f"the storage under it reads at only {_figure(order, control)}"])
    for _ in range(ATTEMPTS):
        measured = _measured(disk, order)
        least, most = KEPT_LATENCY if order.kind == "latency" else KEPT_RATE
        if least <= measured / order.limit <= most:
            break
    else:
        said = f"{disk.how} was planted, but measured {_figure(order, measured)}"
        raise CannotPlant(order.kind, [*planted.reasons, said])


def _measured(disk: SlowDisk, order: Order) -> float:
    """What it is limited in, or the median s of a request, seen by a process inside the limit."""
    if order.kind != "latency":
        return _rate(_reads_inside(disk, readers=READERS, seconds=BURST_S + RATE_S), order, skip_s=BURST_S)
    reads = _reads_inside(disk, readers=1, seconds=LATENCY_READS * order.limit)
    return statistics.median(read.seconds for read in reads)


def _reads_inside(disk: SlowDisk, *, readers: int, seconds: float) -> list[Read]:
    reader = [sys.executable, "-m", "tests.planted.slow_reader", str(disk.folder), str(readers), str(seconds)]
    done = subprocess.run(disk.command(reader), stdout=subprocess.PIPE, check=True, cwd=ROOT)
    return msgspec.json.decode(done.stdout, type=list[Read])


def _rate(reads: Sequence[Read], order: Order, *, skip_s: float) -> float:
    """Bytes/s, or requests/s, from the first read that ended after `skip_s` to the last; inf for fewer than two."""
    first, *later = [read for read in reads if read.end_s >= skip_s] or reads
    amount = len(later) if order.kind == "requests" else sum(read.size_bytes for read in later)
    return amount / (later[-1].end_s - first.end_s) if later else float("inf")


def _figure(order: Order, measured: float) -> str:
    if order.kind == "requests":
        return f"{measured:.0f} requests/s"
    return f"{format_duration(measured)} a request" if order.kind == "latency" else format_rate(measured)


def random_files(folder: Path, *, count: int = 600, size_bytes: tuple[int, int] = (60_000, 180_000)) -> None:
    """Files of random bytes, named like photographs, in two folders named like classes."""
    chance = random.Random(0)
    for name in ("cats", "dogs"):
        (folder / name).mkdir()
    for number in range(count):
        data = chance.randbytes(chance.randint(*size_bytes))
        (folder / ("cats", "dogs")[number % 2] / f"{number:04}.jpg").write_bytes(data)


def files_of_one_request(folder: Path) -> None:
    """Files that FUSE reads in one request each, which is 128 KiB at most."""
    random_files(folder, size_bytes=(60_000, 128_000))

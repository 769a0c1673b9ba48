"""Threads that read pieces as fast as they can, each into its own aligned buffer.

`open().read()` in a pool makes a new bytes object for every file and reaches its limit before the storage does;
a reused buffer and `preadv` do not: `loaderprobe explain bandwidth` has this engine beside fio.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.protocols import PageCache
from loaderprobe.records.bandwidth import MetadataOperation
from loaderprobe.records.phases import Engine
from loaderprobe.records.remark import Remark
from loaderprobe.stats import half_width_in_time
from loaderprobe.storage.files import Piece, Sample, decoded_pieces, encoded_pieces
from loaderprobe.system.process import child_environment, end_of

MOST_BYTES_A_READ = 16 << 20
"""Larger pieces are read with several calls, so that a reader's buffer stays small."""
PIECES_A_READER = 4
"""At least so many keep all readers at work."""
VANISHED = "vanished"
"""Why a file that was there when files were listed cannot be read."""

Column = NDArray[np.int64]
Operation = Literal["read"] | MetadataOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOrder:
    """Settings of one run of reads."""

    readers: int
    seconds: float
    direct: bool = False
    """Past the page cache (O_DIRECT)."""
    pause_s_per_byte: float = 0.0
    """Pause after each piece, for each byte of it."""
    operation: Operation = "read"
    """What is done with each piece: read it, or only open and close its file, or ask for its size by name."""


def _column() -> Column:
    return np.empty(0, np.int64)


@dataclass(slots=True, kw_only=True)
class Reading:
    """Result of one run of reads, or of several. Columns have one entry per completed piece, in order of completion."""

    seconds: float
    """From the first read to the last, or to the end of the order, whichever was later."""
    end_ns: Column = field(default_factory=_column)
    """Since the start."""
    size_bytes: Column = field(default_factory=_column)
    """1 for an operation other than reading."""
    read_ns: Column = field(default_factory=_column)
    """Of one read call (the mean of a piece's calls); of an object until its first byte."""
    piece_ns: Column = field(default_factory=_column)
    """Open, read, close."""
    ios: int = 0
    delivered_bytes: int = 0
    unread: dict[str, str] = field(default_factory=dict)
    """Path to reason, for what could not be read to its end."""
    cpu_s: float = 0.0
    taken: int = 0
    """Pieces used up, from the first on, whether they could be read or not."""
    full_ns: int = 0
    """Time until which all readers had work."""
    slices: list[tuple[float, float]] = field(default_factory=list)
    """(seconds, bytes) of stretches of the steady part; of an engine that reports nothing per piece, or only some."""
    completed: int | None = None
    """Pieces read to their end; None for as many as there are times."""
    counted: dict[str, int | None] = field(default_factory=dict)
    """By name, what counters have risen by; None where one could not be read. Of an engine, those it alone sees."""
    evictions: int = 0
    """How often the files had been evicted before."""

    @property
    def pieces(self) -> int:
        """Pieces read to their end."""
        return len(self.read_ns) if self.completed is None else self.completed

    @property
    def rates(self) -> list[float]:
        """Bytes/s of the slices, in time."""
        return [size_bytes / seconds for seconds, size_bytes in self.slices]

    @property
    def bw_bytes(self) -> float:
        """Bytes/s over the steady part; over all of it where nothing ended in the steady part."""
        steady = sum(size for _, size in self.slices) / sum(seconds for seconds, _ in self.slices)
        return steady or self.delivered_bytes / self.seconds

    @property
    def half_width(self) -> float:
        """Half the 95 % interval of the rate, bytes/s."""
        return half_width_in_time(self.rates)

    @property
    def knows_interval(self) -> bool:
        """True when there are enough slices for one."""
        return len(self.slices) > 2

    def settled(self, share: float) -> bool:
        """True when half the interval is within this share of the rate."""
        return self.knows_interval and self.half_width <= share * self.bw_bytes


COLUMNS = ("end_ns", "size_bytes", "read_ns", "piece_ns")


def in_a_row(parts: Sequence[Reading]) -> Reading:
    """Readings that followed each other as one."""
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    return Reading(
        **columns,
        seconds=sum(part.seconds for part in parts),
        ios=sum(part.ios for part in parts),
        delivered_bytes=sum(part.delivered_bytes for part in parts),
        unread={path: reason for part in parts for path, reason in part.unread.items()},
        cpu_s=sum(part.cpu_s for part in parts),
        slices=[span for part in parts for span in part.slices],
        completed=sum(part.pieces for part in parts),
        counted={name: summed(part.counted[name] for part in parts) for name in parts[0].counted},
    )


def together(parts: Sequence[Reading]) -> Reading:
    """Readings that began together as one, which takes as long as the last of them."""
    whole = in_a_row(parts)
    order = np.argsort(whole.end_ns, kind="stable") if len(whole.end_ns) else slice(None)
    return replace(
        whole,
        **{name: getattr(whole, name)[order] for name in COLUMNS},
        seconds=max(part.seconds for part in parts),
        taken=len(parts) * max(part.taken for part in parts),
        full_ns=min(part.full_ns for part in parts),
        slices=[(at[0][0], sum(size for _, size in at)) for at in zip(*(part.slices for part in parts), strict=True)],
    )


def summed(counts: Iterable[int | None]) -> int | None:
    """None where one of them is."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))


T = TypeVar("T")


def encoded(value: Any) -> bytes:
    """An order or a reading, as one line of JSON for another process."""
    return msgspec.json.encode(value, enc_hook=lambda column: column.tolist())


def decoded(line: bytes, type_: type[T]) -> T:
    """What `encoded` made a line of, as that type."""
    return msgspec.json.decode(line, type=type_, dec_hook=lambda _, column: np.array(column, np.int64))


class ReadEngine(Protocol):
    """An engine that reads pieces: threads, processes or ranks."""

    name: Engine

    def read(self, pieces: Sequence[Piece], order: ReadOrder) -> Reading:
        """Read pieces in their order, each at most once, for at most the ordered seconds."""
        ...


Act = Callable[[Piece, memoryview, int], tuple[int, int, int]]
"""What is done with a piece, by a buffer and flags of `open`: (bytes, calls, ns within them). Raises OSError."""


class ThreadEngine:
    """Implements `ReadEngine` with threads of this process."""

    name: Engine = "threads"

    def read(self, pieces: Sequence[Piece], order: ReadOrder) -> Reading:
        """Read with `order.readers` threads; each takes the next piece when it is free."""
        return ReadRun(pieces, order).run()


class ReadRun:
    """The threads of one run of reads, and their shared state."""

    def __init__(self, pieces: Sequence[Piece], order: ReadOrder, act: Act | None = None) -> None:
        self._pieces, self._order = pieces, order
        self._act = act or {"read": _read, "open": _open, "stat": _stat}[order.operation]
        largest = min(MOST_BYTES_A_READ, max(piece.size_bytes for piece in pieces)) if order.operation == "read" else 1
        # Allocated here, where a lack of memory is an error and not a thread that never starts.
        self._buffers = [mmap.mmap(-1, _whole_pages(max(largest, 1))) for _ in range(order.readers)]
        self._lock = threading.Lock()
        self._start = threading.Event()
        self._begun_ns = 0
        self._deadline_ns = 0
        self._full_ns: int | None = None
        self._taken = 0
        self._rows: list[tuple[int, int, int, int]] = []
        self._result = Reading(seconds=0.0)

    def run(self) -> Reading:
        """Start all threads at once, wait for all to end. Raises BadValue where not all can start."""
        threads = [threading.Thread(target=self._reader, args=(buffer,), daemon=True) for buffer in self._buffers]
        try:
            for thread in threads:
                thread.start()
            cpu_s = cpu_seconds()
            self._begun_ns = time.perf_counter_ns()
            self._deadline_ns = self._begun_ns + round(self._order.seconds * 1e9)
            self._start.set()
            for thread in threads:
                thread.join()
        except BaseException as error:
            # Ctrl-C as much as a limit: no thread may continue to read, or wait to begin.
            self._pieces = ()
            self._start.set()
            if not isinstance(error, RuntimeError):
                raise
            hint = "ask for fewer with --readers, or raise the limit of processes (ulimit -u, pids.max of a cgroup)"
            raise BadValue(f"not all of {len(threads)} reading threads can start: {error}", hint=hint) from None
        now_ns = time.perf_counter_ns()
        result = self._result
        result.seconds = (now_ns - self._begun_ns) / 1e9
        result.cpu_s = cpu_seconds() - cpu_s
        result.taken = self._taken
        result.full_ns = min(self._full_ns or now_ns, self._deadline_ns) - self._begun_ns
        if self._rows:
            columns = np.array(sorted(self._rows), np.int64).T
            result.end_ns, result.size_bytes, result.read_ns, result.piece_ns = columns
        return result

    def _next(self) -> Piece | None:
        with self._lock:
            now_ns = time.perf_counter_ns()
            # On a busy machine the time may be over before all threads run: each has a first piece.
            late = now_ns >= self._deadline_ns and self._taken >= self._order.readers
            if self._taken >= len(self._pieces) or late:
                self._full_ns = self._full_ns or now_ns
                return None
            self._taken += 1
            return self._pieces[self._taken - 1]

    def _reader(self, buffer: mmap.mmap) -> None:
        view = memoryview(buffer)
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if self._order.direct else 0)
        rows: list[tuple[int, int, int, int]] = []
        unread: dict[str, str] = {}
        ios = delivered = 0
        self._start.wait()
        while (piece := self._next()) is not None:
            begun = time.perf_counter_ns()
            try:
                got, calls, reading_ns = self._act(piece, view, flags)
            except OSError as error:
                unread[os.fsencode(piece.path).decode(errors="replace")] = _trouble(error)
                continue
            ended = time.perf_counter_ns()
            ios += calls
            delivered += got
            rows.append((ended - self._begun_ns, got, reading_ns // calls, ended - begun))
            if self._order.pause_s_per_byte:
                time.sleep(self._order.pause_s_per_byte * got)
        with self._lock:
            self._rows += rows
            self._result.ios += ios
            self._result.delivered_bytes += delivered
            self._result.unread |= unread


def _read(piece: Piece, view: memoryview, flags: int) -> tuple[int, int, int]:
    done = calls = reading_ns = 0
    fd = os.open(piece.path, flags)
    try:
        while done < piece.size_bytes:
            # O_DIRECT allows only whole blocks; the kernel stops at the end of the file.
            wanted = min(len(view), _whole_pages(piece.size_bytes - done))
            begun = time.perf_counter_ns()
            got = os.preadv(fd, [view[:wanted]], piece.offset + done)
            reading_ns += time.perf_counter_ns() - begun
            calls += 1
            # The next block of a scratch file does not belong to this piece.
            done += min(got, piece.size_bytes - done)
            if got < wanted:
                break
    finally:
        os.close(fd)
    if done < piece.size_bytes:
        raise OSError("shrank while being read")
    return done, calls, reading_ns


def _open(piece: Piece, _: memoryview, flags: int) -> tuple[int, int, int]:
    """Open and close, in the form of `_read`: of 1 byte."""
    begun = time.perf_counter_ns()
    os.close(os.open(piece.path, flags))
    return 1, 1, time.perf_counter_ns() - begun


def _stat(piece: Piece, _: memoryview, __: int) -> tuple[int, int, int]:
    """The same for a stat by name."""
    begun = time.perf_counter_ns()
    os.stat(piece.path)  # noqa: PTH116  # without the cost of a method: it is what is timed
    return 1, 1, time.perf_counter_ns() - begun


def _trouble(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return VANISHED
    if error.errno in (errno.EACCES, errno.EPERM):
        return "no read permission"
    return os.strerror(error.errno) if error.errno else str(error)


def _whole_pages(size_bytes: int) -> int:
    return -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def why_not_direct(pieces: Sequence[Piece]) -> Remark | None:
    """Why pieces cannot be read past the page cache, tried on the first that still exists; None when they can."""
    buffer = mmap.mmap(-1, mmap.PAGESIZE)
    for piece in pieces:
        try:
            with os.fdopen(os.open(piece.path, os.O_RDONLY | os.O_DIRECT), "rb", buffering=0) as file:
                os.preadv(file.fileno(), [buffer], piece.offset)
        except FileNotFoundError:
            continue
        except OSError as error:
            return Remark(code="direct_refused", facts={"error": str(error.strerror)})
        return None
    return Remark(code="files_vanished")


def cpu_seconds() -> float:
    """User and system time of this process and its ended children, seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


RESIDENCY_FILES = 256


@dataclass(slots=True)
class Supply:
    """Gives each piece at most once after an eviction; then evicts exactly these files again."""

    sample: Sample
    cache: PageCache | None
    """None where it is not this process that evicts them, or nothing does."""
    seed: int
    shuffled: bool = True
    drop_all: Callable[[], None] | None = None
    """Empties all caches of the machine, where the user asked for that."""
    rounds: int = field(init=False, default=0)
    """How often the files were evicted."""
    _pieces: list[Piece] = field(init=False, default_factory=list)
    _next: int = field(init=False, default=0)

    def ahead(self, least: int) -> Sequence[Piece]:
        """The pieces still cold; evicts first when fewer than `least` are left."""
        if self.left < min(least, len(self.sample.pieces)):
            self._renew()
        return self._pieces[self._next :]

    @property
    def left(self) -> int:
        """Pieces until the next eviction."""
        return len(self._pieces) - self._next

    def take(self, count: int) -> None:
        """Mark the first `count` pieces ahead as read."""
        self._next += count

    def spoil(self) -> None:
        """Mark all files as no longer cold, because another engine has read them."""
        self._next = len(self._pieces)

    def resident(self) -> float | None:
        """Share of the next files in the page cache; None where it cannot be known."""
        paths = dict.fromkeys(piece.path for piece in self._pieces[self._next : self._next + RESIDENCY_FILES])
        return self.cache.resident(list(paths)) if self.cache else None

    def _renew(self) -> None:
        if self.cache:
            self.cache.evict(self.sample.paths)
        if self.drop_all:
            self.drop_all()
        self._pieces = list(self.sample.pieces)
        if self.shuffled:
            random.Random(self.seed + self.rounds).shuffle(self._pieces)
        self._next = 0
        self.rounds += 1


SLICE_S = 0.5
# A throttled device first spends its credit from idle time: 0.1 to 0.25 s of its rate under blkio. It grants reads
# every 0.1 s from the first read on: the edge lies between two grants.
WARM_UP_S = 0.35
WARM_UP_SHARE = 0.25


def steady_slices(reading: Reading, least_s: float = 0.0) -> list[tuple[float, float]]:
    """(seconds, bytes) of the slices between the warm-up and the moment when a reader runs out of work.

    The bytes of a piece are spread evenly over its reading time, so a piece across an edge counts on both
    sides. A run too short for a steady part, or of less than `least_s`, is one slice.
    """
    if reading.slices:
        return reading.slices
    if reading.full_ns < reading.seconds * 1e9 / 3 or reading.seconds < least_s:
        # In the first case most of the time was spent waiting for the last pieces.
        return [(reading.seconds, float(reading.size_bytes.sum()))]
    return slices_until(reading, reading.full_ns)


def slices_until(reading: Reading, until_ns: int) -> list[tuple[float, float]]:
    """(seconds, bytes) of the slices between the warm-up and a time: the same slices for all that began together."""
    first_ns = min(WARM_UP_S * 1e9, WARM_UP_SHARE * until_ns)
    length_ns = until_ns - first_ns
    edges = np.linspace(first_ns, until_ns, max(1, round(length_ns / 1e9 / SLICE_S)) + 1)
    begun = reading.end_ns - reading.piece_ns
    took = np.maximum(reading.piece_ns, 1)
    before = [float((reading.size_bytes * np.clip((edge - begun) / took, 0.0, 1.0)).sum()) for edge in edges]
    return [(length_ns / (len(edges) - 1) / 1e9, after - since) for since, after in pairwise(before)]


Child = subprocess.Popen[bytes]


class ProcessEngine:
    """Implements `ReadEngine` with threads in `processes` processes, for storage faster than one interpreter.

    Each child is this module run with `python -m`. It gets its share of the pieces and reports that it is ready; then
    all start together.
    """

    name: Engine = "processes"

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def read(self, pieces: Sequence[Piece], order: ReadOrder) -> Reading:
        """Read with `order.readers` threads in total; each of n children takes every n-th piece."""
        count = min(self._processes, order.readers, len(pieces))
        children: list[Child] = []
        try:
            for _ in range(count):
                children.append(_start())
            for number, child in enumerate(children):
                readers = order.readers // count + (number < order.readers % count)
                _tell(child, encoded(replace(order, readers=readers)) + b"\n")
                _tell(child, encoded_pieces(pieces[number::count]) + b"\n")
            for child in children:
                _line(child)
            for child in children:
                _tell(child, b"go\n")
            parts = [decoded(_line(child), Reading) for child in children]
        finally:
            for child in children:
                child.kill()
                child.communicate()
        return together(parts)


def _start() -> Child:
    command = [sys.executable, "-P", "-m", __name__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment())


def _tell(child: Child, line: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(line)
        child.stdin.flush()
    except BrokenPipeError as error:
        raise _dead(child) from error


def _dead(child: Child) -> LoaderprobeError:
    how, hint = end_of(child)
    return LoaderprobeError(f"a reading process of the probe {how}", hint=hint)


def _line(child: Child) -> bytes:
    assert child.stdout is not None
    if line := child.stdout.readline():
        return line
    raise _dead(child)


def _child() -> None:
    # Ctrl-C reaches the whole group; the parent ends its children itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = sys.stdin.buffer
    order, pieces = decoded(lines.readline(), ReadOrder), decoded_pieces(lines.readline())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if lines.readline() != b"go\n":
        sys.exit(1)  # the parent has gone
    sys.stdout.buffer.write(encoded(ThreadEngine().read(pieces, order)) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _child()

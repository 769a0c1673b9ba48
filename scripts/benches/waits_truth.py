"""The truth of a row of `waits`: plain training loops, with one resource after the other removed.

Nothing of loaderprobe measures here: a DataLoader is iterated, its batches are stepped on, and a clock is read. Each
variant has a fresh loader with workers of its own; files are evicted before each cold one, when no process has them
mapped, and read whole before the warm one. How much of them then lies in memory is asked of the kernel, and where the
disk is the row's own, its counter says how many bytes come from storage for those delivered.

**Cold** is the rate over a set larger than memory: what is read ahead for one sample serves no other. How a plain loop
gets there goes with how the files are read.

- A file a sample: read-ahead ends with the file. The loop is timed once what was prefetched is used up.
- Shards as a stream: read-ahead is what the next samples need. The first pass after eviction is timed, without its
  first batch, as that is when the workers start.
- Anywhere in one file: the loop runs on a copy ten times as large, and its samples are drawn at random, but each at
  least twice the read-ahead from any other. Eviction before each batch would need no copy, but one worker's eviction
  takes what another's read-ahead has just brought, and a mapping must be undone in each worker first.

Beside it stand the first pass over the row's own set, which read-ahead may bring into memory early, and the warm rate,
that of later epochs. Each loop keeps samples, seconds and bytes from storage since its start.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import active_children
from pathlib import Path
from typing import Any, Literal

from scripts.benches.waits_loaders import Place, make_loader
from scripts.benches.waits_readers import READERS
from scripts.benches.waits_rows import Row

BASE = "base"
FEWEST_BATCHES = 12
FEWEST_SERIAL = 6
FLUSH_S = 0.5
"""At least, so that the credit of a token bucket is used up."""
ENOUGH_S = 1.0
AT_MOST_S = 3.0
FIRST_PASS_S = 10.0
"""At most, of a first pass."""
TRACED_FROM = 20
"""Samples since the start; then each time that they have doubled."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CACHESTAT = 451
"""The system call that counts the cached pages of a file, by its number on all 64-bit Linux from 6.5 on."""
WARM = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
if sys.argv[1]:
    with open(sys.argv[1], "w") as members:
        members.write(str(os.getpid()))
def read(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 22):
            pass
with ThreadPoolExecutor(32) as pool:
    list(pool.map(read, sys.stdin.read().split("\\n")))
"""


Timed = Literal["after flush", "after first group", "first pass"]


def files_in(folder: Path | None) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file()) if folder else []


def files_of(row: Row, place: Place) -> list[Path]:
    """Those of its own set, and of the large copy."""
    return [] if row.remote else [*files_in(place.folder), *files_in(place.large)]


def sample_bytes(row: Row, place: Place) -> float:
    """In pages, of which files are read; 0 for what is no file."""
    files = [] if row.remote else files_in(place.folder)
    return sum(-(-file.stat().st_size // PAGE_BYTES) * PAGE_BYTES for file in files) / row.samples


def read_ahead_kb(folder: Path) -> int | None:
    """Of files that are opened there; None where the kernel does not say."""
    setting = Path(f"/sys/class/bdi/{_device(folder)}/read_ahead_kb")
    return int(setting.read_text()) if setting.exists() else None


def _device(folder: Path) -> str:
    number = folder.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def counter_of(row: Row, folder: Path) -> Path | None:
    """Counts what is read from the row's own disk; None where others read from it too, or nothing counts."""
    counter = Path(f"/sys/dev/block/{_device(folder)}/stat")
    return counter if row.disk.startswith("bucket") and counter.exists() else None


def evict(files: Sequence[Path]) -> None:
    """Out of the page cache; no process may have them mapped."""
    gc.collect()
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm(files: Sequence[Path], unlimited: str) -> None:
    """Into the page cache, read by a process that joins the members of `unlimited` first."""
    names = "\n".join(str(file) for file in files)
    subprocess.run([sys.executable, "-c", WARM, unlimited], input=names, text=True, check=True)


def resident(files: Sequence[Path]) -> float | None:
    """The share of these files that lies in memory; None where the kernel cannot tell."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    pages = 0
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        asked, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
        failed = call(CACHESTAT, fd, asked, found, 0)
        os.close(fd)
        if failed:
            return None
        pages += found[0]
    total = sum(-(-file.stat().st_size // os.sysconf("SC_PAGE_SIZE")) for file in files)
    return pages / total if total else None


def measure_round(
    row: Row, place: Place, step: Callable[[Any], Any] | None, unlimited: str, number: int
) -> dict[str, Any]:
    """One round: each variant once; every other round in the opposite order."""
    files, own = files_of(row, place), [] if row.remote else files_in(place.folder)
    size, counter = sample_bytes(row, place), counter_of(row, place.folder)
    access = READERS[row.reader].access
    ahead = 1024 * (read_ahead_kb(place.folder) or 0)
    apart = math.ceil(2 * ahead / size) + 1 if place.large else 0
    cold: Timed = "first pass" if access == "stream" else "after first group" if apart else "after flush"
    variants = [BASE, *row.resources]
    found = {}
    for variant in variants if number % 2 == 0 else reversed(variants):
        if variant == "storage":
            warm(own, unlimited)
            there = resident(own)
            seen = train(make_loader(row, place, variant), step, "after flush", counter)
        else:
            evict(files)
            there = resident(files)
            loader = make_loader(row, place, variant, apart)
            seen = train(loader, None if variant == "compute" else step, cold, counter)
        found[variant] = {**_with_amplification(seen, size), "resident": there}
    if apart and number == 0:
        evict(files)
        seen = train(make_loader(row, place), step, "first pass", counter)
        found[BASE]["first_pass"] = _with_amplification(seen, size)
    return found


def _with_amplification(seen: dict[str, Any], size: float) -> dict[str, Any]:
    """With bytes from storage over bytes of samples, where both are known."""
    read_bytes = seen.pop("read_bytes")
    known = read_bytes is not None and size
    return {**seen, "read_amplification": read_bytes / (seen["read_samples"] * size) if known else None}


class _Trace:
    """Samples, seconds, and bytes from storage (None where they are not counted) since its start."""

    def __init__(self, counter: Path | None) -> None:
        self._counter = counter
        self._before = self._read() or 0
        self._begin_s = time.perf_counter()
        self._next = TRACED_FROM
        self.points: list[tuple[int, float, int | None]] = []

    def _read(self) -> int | None:
        return 512 * int(self._counter.read_text().split()[2]) if self._counter else None

    def at(self, samples: int) -> tuple[int, float, int | None]:
        read = self._read()
        return samples, time.perf_counter() - self._begin_s, None if read is None else read - self._before

    def add(self, samples: int) -> None:
        if samples >= self._next:
            self.points.append(self.at(samples))
            self._next *= 2


class _Loop:
    """A plain training loop, some batches at a time; StopIteration ends it, as it does the epoch."""

    def __init__(self, loader: Any, step: Callable[[Any], Any] | None, counter: Path | None) -> None:
        # WebLoader has it inside.
        self.inner = loader.pipeline[0] if hasattr(loader, "pipeline") else loader
        self._step = step
        self.trace = _Trace(counter)
        self._batches = iter(loader)
        self.samples = self.steps = 0
        self.spent: tuple[float, float] | None = None
        """CPU s of this process and of the workers, and when that was asked, while all of them were there."""

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.samples += _one(self._batches, self._step)
            self.steps += 1
            self.trace.add(self.samples)
        cpu_s = _cpu_s([os.getpid(), *(worker.pid or 0 for worker in active_children())])
        self.spent = self.spent if cpu_s is None else (cpu_s, time.perf_counter())


def train(loader: Any, step: Callable[[Any], Any] | None, timed: Timed, counter: Path | None) -> dict[str, Any]:
    """Rate and cores in use of a plain training loop, once it is to be timed; bytes from storage; and its trace.

    Bytes are those of the samples timed; in a first pass those of all samples, as a stream is read ahead at first.
    """
    loop = _Loop(loader, step, counter)
    inner = loop.inner
    group = max(1, inner.num_workers)
    fewest = FEWEST_BATCHES if inner.num_workers else FEWEST_SERIAL
    at_most_s = FIRST_PASS_S if timed == "first pass" else AT_MOST_S
    _flush(loop, inner, group, timed)
    begun, before, steps = loop.trace.at(loop.samples), loop.spent, loop.steps
    now = begun
    while loop.steps == steps or (
        now[1] - begun[1] < at_most_s
        and (timed == "first pass" or loop.steps - steps < fewest or now[1] - begun[1] < ENOUGH_S)
    ):
        try:
            loop.run(group)
        except StopIteration:
            now = loop.trace.at(loop.samples)
            break
        now = loop.trace.at(loop.samples)
    after, trace = loop.spent, [*loop.trace.points, now]
    # Its workers end.
    del loop
    gc.collect()
    first = (0, 0.0, 0) if timed == "first pass" else begun
    return {
        "images_per_s": (now[0] - begun[0]) / (now[1] - begun[1]),
        "samples": now[0] - begun[0],
        "seconds": now[1] - begun[1],
        "timed": timed,
        "cores": (after[0] - before[0]) / (after[1] - before[1]) if after and before and after[1] > before[1] else None,
        "read_samples": now[0] - first[0],
        "read_bytes": None if now[2] is None else now[2] - (first[2] or 0),
        "trace": trace,
    }


def _flush(loop: _Loop, inner: Any, group: int, timed: Timed) -> None:
    """What is not timed at the begin."""
    begin_s = time.perf_counter()
    if timed == "first pass":
        loop.run(1)
        return
    flush = group * ((inner.prefetch_factor or 0) + 1) + 1 if timed == "after flush" else group
    # A quick loader must not use up its samples.
    half = len(inner) // 2 if hasattr(inner.dataset, "__len__") else math.inf
    while loop.steps < flush or (time.perf_counter() - begin_s < FLUSH_S and loop.steps < half):
        loop.run(1 if timed == "after flush" else group)


def _one(batches: Any, step: Callable[[Any], Any] | None) -> int:
    batch = next(batches)
    if step:
        step(batch)
    return len(batch if hasattr(batch, "shape") else batch[0])


def _cpu_s(pids: Sequence[int]) -> float | None:
    """CPU s of these processes; None once a worker has ended, as they do with the epoch."""
    found = 0.0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found

"""The truth of a row of `waits`: plain training loops, with one resource after the other removed.

Nothing of loaderprobe measures here: a DataLoader is iterated, its batches are stepped on, and a clock is read. Each
variant has a fresh loader with workers of its own; files are evicted before each cold one, when no process has them
mapped, and read whole before the warm one. How much of them then lies in memory is asked of the kernel, and where it
counts the bytes that come from storage, they are compared with those delivered.
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
from pathlib import Path
from typing import Any

from scripts.benches.waits_loaders import Place, make_loader
from scripts.benches.waits_rows import Row
from scripts.benches.waits_samples import PHOTOGRAPHS
from scripts.benches.waits_texts import TEXTS

BASE = "base"
FEWEST_BATCHES = 12
FEWEST_SERIAL = 6
FLUSH_S = 0.5
"""At least, so that the credit of a token bucket is used up."""
ENOUGH_S = 1.0
AT_MOST_S = 3.0
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


def files_of(row: Row, folder: Path) -> list[Path]:
    return [] if row.remote else sorted(file for file in folder.rglob("*") if file.is_file())


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
    files = files_of(row, place.folder)
    variants = [BASE, *row.resources]
    found = {}
    for variant in variants if number % 2 == 0 else reversed(variants):
        if variant == "storage":
            warm(files, unlimited)
        else:
            evict(files)
        there = resident(files)
        seen = train(make_loader(row, place, variant), None if variant == "compute" else step)
        size = sum(file.stat().st_size for file in files) / (TEXTS if row.reader == "text" else PHOTOGRAPHS)
        read_bytes = seen.pop("read_bytes")
        seen["read_fraction"] = None if read_bytes is None or not size else read_bytes / (seen["samples"] * size)
        found[variant] = {**seen, "resident": there}
    return found


def train(loader: Any, step: Callable[[Any], Any] | None) -> dict[str, Any]:
    """A plain training loop: rate, cores in use and bytes from storage, once what was prefetched is used up."""
    group = max(1, loader.num_workers)
    flush = group * ((loader.prefetch_factor or 0) + 1) + 1
    fewest = FEWEST_BATCHES if loader.num_workers else FEWEST_SERIAL
    batches = iter(loader)
    begin = time.perf_counter()
    flushed = 0
    # A quick loader must not use up its samples.
    half = len(loader) // 2 if hasattr(loader.dataset, "__len__") else math.inf
    while flushed < flush or (time.perf_counter() - begin < FLUSH_S and flushed < half):
        _one(batches, step)
        flushed += 1
    pids = [os.getpid(), *(worker.pid for worker in getattr(batches, "_workers", ()))]
    before, begin = _spent(pids), time.perf_counter()
    samples = steps = 0
    seconds = 0.0
    while not steps or (seconds < AT_MOST_S and (steps < fewest or seconds < ENOUGH_S)):
        try:
            for _ in range(group):
                samples += _one(batches, step)
                steps += 1
        except StopIteration:
            break
        seconds = time.perf_counter() - begin
    after = _spent(pids)
    del batches
    gc.collect()
    return {
        "images_per_s": samples / seconds,
        "samples": samples,
        "seconds": seconds,
        "cores": (after[0] - before[0]) / seconds if after and before else None,
        "read_bytes": after[1] - before[1] if after and before else None,
    }


def _one(batches: Any, step: Callable[[Any], Any] | None) -> int:
    batch = next(batches)
    if step:
        step(batch)
    return len(batch if hasattr(batch, "shape") else batch[0])


def _spent(pids: Sequence[int]) -> tuple[float, int] | None:
    """CPU s, and bytes from storage, of these processes; None once a worker has ended, as they do with the epoch."""
    cpu_s, read_bytes = 0.0, 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        except OSError:
            return None
        cpu_s += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        read_bytes += int(io["read_bytes"])
    return cpu_s, read_bytes

"""Kind `caches`: what stays of a set in little memory, against the formula; in a memory cgroup, as root.

Photographs on a loop device are read whole, epoch after epoch, by processes in a memory cgroup that has memory for a
share c of them. Hits are 1 - bytes that the device served / bytes of the files, in whole pages, so that what the kernel
reads ahead counts. c is what the cgroup held in fact, seen twice a second. Shuffled: each epoch in an order of its own.
Same order: what a loader without shuffling does. The hits of shuffled epochs must lie in the range of the formula
(`page_cache_hits`), to what orders of 4000 files differ by.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loaderprobe.analyze.forecast import lru_hits, page_cache_hits
from loaderprobe.stats import mean
from scripts.benches.compared import Compared, Limits
from scripts.benches.harness import Progress, child, photographs, photographs_in
from tests.planted.slow_reader import evict
from tests.planted.small_memory import SmallMemory, pages_bytes, small_memory

RESOLUTION = "500x375"
IMAGES = 4000
READERS = 4
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
EPOCHS = 6
WARM_UP = 32
"""Files that are read before."""
LOOK_S = 0.5

LIMITS = Limits()
NOISE = 0.025
"""What orders of 4000 files differ by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    order: str = "shuffled"
    share: float

    @property
    def name(self) -> str:
        return f"{self.order}, c = {self.share:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One repetition of a row."""

    row: Row
    held: float
    """Share of the files in the page cache, mean from epoch 2 on."""
    hits: tuple[float, ...]
    """By epoch."""

    @property
    def later(self) -> float:
        """Hits from epoch 3 on."""
        return mean(self.hits[2:])


def read_file(path: Path) -> int:
    return len(path.read_bytes())


def read_epochs(folder: str) -> None:
    """In the cgroup: an epoch for each line of standard input, which has the numbers of its files."""
    files = photographs_in(Path(folder))
    with multiprocessing.get_context("fork").Pool(READERS) as pool:
        # Without a limit as yet: all processes have started, and have what memory they need.
        pool.map(read_file, files[:WARM_UP])
        print("ready", flush=True)
        for line in sys.stdin:
            pool.map(read_file, [files[number] for number in json.loads(line)], chunksize=8)
            print("done", flush=True)


def orders(row: Row, count: int, seed: int) -> Iterator[list[int]]:
    chance = random.Random(seed)
    numbers = list(range(count))
    chance.shuffle(numbers)
    for _ in range(EPOCHS):
        if row.order == "shuffled":
            chance.shuffle(numbers)
        yield list(numbers)


def _answered(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout
    if process.stdout.readline() != f"{word}\n":
        raise SystemExit(f"the readers ended with code {process.wait()}")


MOST_IMAGE_BYTES = 200_000
"""On average, with its inode."""
REPEATS = 3


def _in_little_memory(undo: ExitStack, count: int) -> SmallMemory:
    scratch = undo.enter_context(tempfile.TemporaryDirectory(prefix="loaderprobe-memory-"))

    def fill(disk: Path) -> None:
        photographs(disk, RESOLUTION, count)

    size = count * MOST_IMAGE_BYTES
    memory = undo.enter_context(small_memory(fill=fill, scratch=Path(scratch), size_bytes=size))
    files = pages_bytes(photographs_in(memory.folder / RESOLUTION))
    print(f"Linux {os.uname().release}, {memory.how}, {files / 1e6:.0f} MB of files")
    return memory


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    only = [row for row in ROWS if any(part in row.name for part in chosen.only.split(","))]
    repeats, trials = chosen.rounds or REPEATS, list[Trial]()
    progress = Progress(len(only))
    with ExitStack() as undo:
        memory = _in_little_memory(undo, chosen.images or IMAGES)
        for row in only:
            trials += [measure_row(memory, memory.folder / RESOLUTION, row, seed) for seed in range(repeats)]
            progress.done(row.name)
    (out / "caches.json").write_text(json.dumps([asdict(trial) for trial in trials]))
    return True


def measure_row(memory: SmallMemory, folder: Path, row: Row, seed: int) -> Trial:
    files = photographs_in(folder)
    sizes = [pages_bytes([file]) for file in files]
    hits: list[float] = []
    shares: list[float] = []
    command = memory.command(child(read_epochs, folder))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        _answered(process, "ready")
        evict(files)
        for numbers in orders(row, len(files), seed):
            memory.leave_for_files(row.share * sum(sizes))
            before = memory.read_bytes()
            process.stdin.write(json.dumps(numbers) + "\n")
            process.stdin.flush()
            cached: list[float] = []
            while not select.select([process.stdout], [], [], LOOK_S)[0]:
                cached.append(float(memory.cached_bytes()))
            _answered(process, "done")
            cached.append(float(memory.cached_bytes()))
            shares.append(mean(cached) / sum(sizes))
            hits.append(1 - (memory.read_bytes() - before) / sum(sizes[number] for number in numbers))
        memory.lift()
        process.stdin.close()
    return Trial(row=row, held=mean(shares[1:]), hits=tuple(hits))


ROWS = (*(Row(share=share) for share in SHARES), *(Row(share=share, order="same order") for share in (0.5, 0.9)))


def load(folder: Path, _: Any) -> list[Compared]:
    stored = json.loads((folder / "caches.json").read_text())
    trials = [Trial(row=Row(**kept["row"]), held=kept["held"], hits=tuple(kept["hits"])) for kept in stored]
    rows = []
    for row in dict.fromkeys(trial.row for trial in trials):
        of_row = [trial for trial in trials if trial.row == row]
        share, spoken = mean([trial.held for trial in of_row]), row.order == "shuffled"
        later = [trial.later for trial in of_row]
        bands = {"epoch 2": page_cache_hits(share, 2), "later": page_cache_hits(share)}
        hits = {"epoch 2": [mean([trial.hits[1] for trial in of_row])], "later": [min(later), max(later)]}
        for epoch, (low, high) in {name: (band.low - NOISE, band.high + NOISE) for name, band in bands.items()}.items():
            off = spoken and not (low <= min(hits[epoch]) and max(hits[epoch]) <= high)
            said: dict[str, Any] = {"predicted": (low + high) / 2, "low": low, "high": high} if spoken else {}
            made = Compared(
                group=row.order, name=f"{row.name}, {epoch}", measured=mean(hits[epoch]), **said,
                wrong="outside the formula" * off,
                note=f"held {share:.3f}; LRU {lru_hits(share):.3f}",
            )  # fmt: skip
            rows.append(made)
    return rows

"""What does Linux's page cache answer when it holds a part of the files? Shuffled epochs in little memory; as root.

Some 4 minutes. Photographs on a loop device are read whole, epoch after epoch, by processes in a memory cgroup that
has memory for a share c of them. Hits are 1 - bytes that the device served / bytes of the files, in whole pages, so
that what the kernel reads ahead counts. c is what the cgroup held in fact, seen twice a second.

Shuffled: each epoch in an order of its own. With M nodes, one node: each epoch a random part of 1/M of the files.
Same order: what a loader without shuffling does. loader: a DataLoader whose workers read the files.

Ends with code 1 when the hits of a shuffled epoch lie outside the range of the law (`page_cache_hits`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loaderprobe.analyze.caches import lru_hits, page_cache_hits, pinned_hits
from loaderprobe.stats import mean
from scripts.benches.harness import Progress, child, parser, photographs
from tests.planted.slow_reader import evict
from tests.planted.small_memory import SmallMemory, pages_bytes, small_memory

RESOLUTION = "500x375"
IMAGES = 4000
READERS = 4
WORKERS, BATCH_SIZE = 2, 32
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
EPOCHS = 6
NODES = (2, 8)
WARM_UP = 32
"""Files that are read before."""
LOOK_S = 0.5
MOST_IMAGE_BYTES = 200_000
"""On average, with its inode."""
NOISE = 0.025
"""What orders of 4000 files differ by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way of reading."""

    order: str = "shuffled"
    reader: str = "plain"
    share: float
    nodes: int = 1

    @property
    def epochs(self) -> int:
        """Enough for a cache that many nodes fill slowly."""
        return EPOCHS if self.nodes == 1 else 4 * self.nodes + 1

    @property
    def name(self) -> str:
        return f"{self.order}, {self.reader}, {self.nodes} node{'s' if self.nodes > 1 else ''}, c = {self.share:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One repetition of a row."""

    row: Row
    held: float
    """Share of the files in the page cache, mean from epoch 2 on."""
    hits: tuple[float, ...]
    """By epoch."""

    @property
    def later(self) -> float:
        """Hits from epoch 3 on; with several nodes, once these have filled their caches."""
        return mean(self.hits[2 * self.row.nodes :])


def read_plain(folder: Path) -> Callable[[Sequence[int]], None]:
    """Processes that read whole files."""
    files = photographs_of(folder)
    pool = multiprocessing.get_context("fork").Pool(READERS)

    def epoch(numbers: Sequence[int]) -> None:
        for _ in pool.imap_unordered(read_file, [files[number] for number in numbers], chunksize=8):
            pass

    return epoch


def read_file(path: Path) -> int:
    with path.open("rb") as file:
        return len(file.read())


class Sizes:
    """A data set that reads whole files."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def __getitem__(self, number: int) -> int:
        return read_file(self._files[number])


def read_by_loader(folder: Path) -> Callable[[Sequence[int]], None]:
    """A DataLoader whose workers live on."""
    from torch.utils.data import DataLoader

    order: list[int] = []
    files: Any = Sizes(photographs_of(folder))
    loader = DataLoader(files, batch_size=BATCH_SIZE, sampler=order, num_workers=WORKERS, persistent_workers=True)

    def epoch(numbers: Sequence[int]) -> None:
        order[:] = numbers
        for _ in loader:
            pass

    return epoch


READ = {"plain": read_plain, "loader": read_by_loader}


def photographs_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.JPEG"))


def read(folder: Path, reader: str) -> None:
    """In the cgroup: an epoch for each line of standard input, which has the numbers of its files."""
    epoch = READ[reader](folder)
    # Without a limit as yet: all processes have started, and have what memory they need.
    epoch(range(WARM_UP))
    print("ready", flush=True)
    for line in sys.stdin:
        epoch(json.loads(line))
        print("done", flush=True)


def orders(row: Row, count: int, seed: int) -> Iterator[list[int]]:
    """The files of each epoch."""
    chance = random.Random(seed)
    numbers = list(range(count))
    chance.shuffle(numbers)
    for _ in range(row.epochs):
        if row.order == "shuffled":
            chance.shuffle(numbers)
        yield numbers[: count // row.nodes]


def measure(place: SmallMemory, folder: Path, row: Row, seed: int) -> Seen:
    files = photographs_of(folder)
    sizes = [pages_bytes([file]) for file in files]
    hits: list[float] = []
    held: list[float] = []
    command = place.command(child("cache", "--child", folder, row.reader))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        _answered(process, "ready")
        evict(files)
        for numbers in orders(row, len(files), seed):
            place.leave_for_files(row.share * sum(sizes))
            before = place.read_bytes()
            process.stdin.write(json.dumps(numbers) + "\n")
            process.stdin.flush()
            cached: list[float] = []
            while not select.select([process.stdout], [], [], LOOK_S)[0]:
                cached.append(float(place.cached_bytes()))
            _answered(process, "done")
            cached.append(float(place.cached_bytes()))
            held.append(mean(cached) / sum(sizes))
            hits.append(1 - (place.read_bytes() - before) / sum(sizes[number] for number in numbers))
        place.lift()
        process.stdin.close()
    return Seen(row=row, held=mean(held[row.nodes :]), hits=tuple(hits))


def _answered(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout
    if process.stdout.readline() != f"{word}\n":
        raise SystemExit(f"the readers ended with code {process.wait()}")


def rows() -> list[Row]:
    return [
        *(Row(share=share) for share in SHARES),
        *(Row(share=share, nodes=nodes) for nodes in NODES for share in (0.3, 0.5, 0.7)),
        *(Row(share=share, order="same order") for share in (0.5, 0.9)),
        Row(share=0.5, reader="loader"),
    ]


def options() -> argparse.Namespace:
    found = parser(__doc__)
    found.add_argument("--images", type=int, default=IMAGES, help="in the set (%(default)s)")
    found.add_argument("--repeat", type=int, default=3, help="of each row (%(default)s)")
    found.add_argument("--only", default="", help="rows whose name this regular expression finds")
    found.add_argument("--keep", type=Path, help="write all hits to this file, as JSON")
    found.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return found.parse_args()


def main() -> int:
    chosen = options()
    if chosen.child:
        folder, reader = chosen.child
        read(Path(folder), reader)
        return 0
    # As Ctrl-C does: unwinding removes what was planted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    wanted = [row for row in rows() if re.search(chosen.only, row.name)]
    progress = Progress(len(wanted))
    seen: list[Seen] = []
    good = True

    def fill(disk: Path) -> None:
        photographs(disk, RESOLUTION, chosen.images)

    with (
        tempfile.TemporaryDirectory(prefix="loaderprobe-cache-") as scratch,
        small_memory(fill=fill, scratch=Path(scratch), size_bytes=chosen.images * MOST_IMAGE_BYTES) as place,
    ):
        folder = place.folder / RESOLUTION
        print(f"Linux {os.uname().release}, {place.how}, {pages_bytes(photographs_of(folder)) / 1e6:.0f} MB of files")
        print(f"{'':44} {'held':>11} {'epoch 2':>11} {'later':>11} {'LRU':>5} {'pinned':>6} {'law':>11}")
        for row in wanted:
            found = [measure(place, folder, row, seed) for seed in range(chosen.repeat)]
            seen += found
            good &= judged(row, found)
            progress.done(row.name)
    if chosen.keep:
        chosen.keep.write_text(json.dumps([asdict(each) for each in seen]))
    return 0 if good else 1


def judged(row: Row, found: Sequence[Seen]) -> bool:
    """Print one row; True when the law holds, or does not speak of it."""
    held, later = mean([each.held for each in found]), [each.later for each in found]
    second, law = page_cache_hits(held, row.nodes, 2), page_cache_hits(held, row.nodes)
    close = second.low - NOISE <= mean([each.hits[1] for each in found]) <= second.high + NOISE
    right = close and law.low - NOISE <= min(later) and max(later) <= law.high + NOISE
    print(
        f"{row.name:44} {ranged([each.held for each in found])} {ranged([each.hits[1] for each in found])} "
        f"{ranged(later)} {lru_hits(held, row.nodes):5.3f} {pinned_hits(held):6.3f} {ranged([law.low, law.high])} "
        f"{'' if row.order != 'shuffled' else 'right' if right else 'WRONG'}",
        flush=True,
    )
    return right or row.order != "shuffled"


def ranged(values: Sequence[float]) -> str:
    return f"{min(values):.3f}-{max(values):.3f}"


if __name__ == "__main__":
    sys.exit(main())

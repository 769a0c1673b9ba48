"""Is the plan right? One accelerator measured on a slow disk, a plan, then several accelerators there; as root.

Some 5 minutes. Two disks are planted, one slow in bytes/s and one in requests/s. On each a sweep measures one emulated
accelerator, `plan` is asked for 2, 3 and 4, and then as many train there at once, each a process with a loader and
files of its own, which are always cold. The disk's own counters say what was read.

Ends with code 1 when the planned need, at the utilization that was reached, is over 3 % off what the counters saw;
when accelerators that the plan feeds do not reach 90 % of their rate, or more than it feeds do; or when what the disk
gave while it was short is over 3 % off what the plan says that it gives; it may be more where the plan says `at least`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from loaderprobe.api.plan import Plan, plan
from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.measure.clock import SystemClock
from loaderprobe.protocols import ComputeArguments
from loaderprobe.records.config import ComputeSpec, LoaderSpec
from scripts.benches.harness import Plant, child, parser, photographs, planted
from scripts.benches.verdict_blocks import Photographs

RATE = 60.0
"""Images/s of one accelerator: four of them leave the cores half idle."""
BATCH_SIZE = 8
WORKERS = 2
SWEPT = (4, 8)
"""Workers of the sweep; it probes the disk with as many readers as the most of them."""
IMAGES, SIDE = 1024, 256
COUNTS = (2, 3, 4)
UTILIZATION = 0.9
SETTLE_S, WINDOW_S = 3.0, 10.0
PAGE_BYTES = 4096
OFF_AT_MOST = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What a disk is limited in, and how many accelerators it is made to feed."""

    kind: str
    feeds: float


DISKS = (Disk(kind="token_bucket", feeds=2.5), Disk(kind="requests", feeds=3.5))


class ColdPhotographs(Photographs):
    """A part of the photographs, each read from the disk however often it was read before."""

    def __init__(self, folder: Path, part: int, parts: int) -> None:
        super().__init__(folder, "plain")
        self._files = self._files[part::parts]

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        with self._files[index].open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return super().__getitem__(index)


class Endless(Sampler[int]):
    """Epoch after epoch, each in a random order."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from torch.randperm(self._size).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What so many accelerators did in the window, and the disk's own counters meanwhile."""

    utilizations: tuple[float, ...]
    bytes_per_s: float
    requests_per_s: float

    @property
    def mean(self) -> float:
        return sum(self.utilizations) / len(self.utilizations)


def train(folder: Path, part: int, parts: int) -> None:
    """One accelerator, until standard input ends; then the end of each of its steps, in ns, as JSON."""
    arguments = ComputeArguments(
        spec=ComputeSpec(name=f"emulated:{RATE:g}", batch_size=BATCH_SIZE),
        loader=LoaderSpec(workers=WORKERS, prefetch_factor=2),
        clock=SystemClock(),
    )
    device, ended = EmulatedCompute(arguments), threading.Event()
    files = ColdPhotographs(folder, part, parts)
    loader = DataLoader(files, batch_size=BATCH_SIZE, sampler=Endless(len(files)), num_workers=WORKERS)
    threading.Thread(target=_at_end_of_input, args=[ended], daemon=True).start()
    for number, batch in enumerate(loader):
        device.step(batch[0])
        if number == 0:
            print("ready", flush=True)
        if ended.is_set():
            break
    print(json.dumps(device.finish()), flush=True)
    # The loader has no end of its own.
    os._exit(0)


def _at_end_of_input(ended: threading.Event) -> None:
    # Not through sys.stdin: a process that is forked meanwhile would wait for the lock in there.
    while os.read(0, 1):
        pass
    ended.set()


def together(place: Plant, folder: Path, count: int) -> Seen:
    """So many accelerators at once, once all of them have begun and settled."""
    with ExitStack() as undo:
        commands = [place.command(child("plan", "--child", folder, part, count)) for part in range(count)]
        running = [undo.enter_context(_started(command)) for command in commands]
        for process in running:
            assert process.stdout
            if process.stdout.readline() != "ready\n":
                raise SystemExit("an accelerator did not begin")
        time.sleep(SETTLE_S)
        before, begin_ns = counters(folder), time.monotonic_ns()
        time.sleep(WINDOW_S)
        after, end_ns = counters(folder), time.monotonic_ns()
        ends = [json.loads(process.communicate("")[0]) for process in running]
    spent_s = (end_ns - begin_ns) / 1e9
    return Seen(
        utilizations=tuple(images_per_s(each, begin_ns, end_ns) / RATE for each in ends),
        bytes_per_s=(after[1] - before[1]) / spent_s,
        requests_per_s=(after[0] - before[0]) / spent_s,
    )


def _started(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def images_per_s(ends_ns: Sequence[int], begin_ns: int, end_ns: int) -> float:
    """Between the first and the last step that ended in the window."""
    inside = [each for each in ends_ns if begin_ns <= each <= end_ns]
    return BATCH_SIZE * (len(inside) - 1) / (inside[-1] - inside[0]) * 1e9


def counters(folder: Path) -> tuple[int, int]:
    """(Read requests, bytes) that the device under a folder has served."""
    device = folder.stat().st_dev
    found = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    return int(found[0]), int(found[2]) * 512


def swept(place: Plant, folder: Path, run: Path) -> None:
    """One accelerator, measured by a sweep into `run`."""
    command = [
        sys.executable, "-m", "loaderprobe", "sweep", str(folder), "--workers", ",".join(map(str, SWEPT)),
        "--no-serial", "--compute", f"emulated:{RATE:g}", "--batch-size", str(BATCH_SIZE), "--out", str(run),
        "--quiet", "--json",
    ]  # fmt: skip
    subprocess.run(place.command(command), check=True, stdout=subprocess.DEVNULL)


def limit_of(disk: Disk, photos: Path) -> float:
    """Bytes/s, or requests/s, that feed as many accelerators as the disk is made for."""
    images = disk.feeds * UTILIZATION * RATE
    if disk.kind == "requests":
        return round(images)
    sizes = [path.stat().st_size for path in photos.rglob("*.JPEG")]
    return images * sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes) / len(sizes)


def asked(run: Path, count: int, utilization: float) -> Plan:
    return plan(run, accelerators=count, utilization=min(utilization, 1.0), use=1.0)


def off(told: float, seen: float) -> float:
    return told / seen - 1


def judged(run: Path, count: int, seen: Seen) -> bool:
    """Print one row; True when every claim of the plan held."""
    found, reached = asked(run, count, UTILIZATION), asked(run, count, seen.mean)
    supply, need = found.supplies[0], reached.need("read_bytes")
    assert need and supply.feeds is not None
    needed, gives = need.at_utilization.value, supply.limits[0].limit.value
    is_fed, short = seen.mean >= UTILIZATION, off(gives, seen.bytes_per_s)
    claims = {
        "need": abs(off(needed, seen.bytes_per_s)) <= OFF_AT_MOST,
        "feeds": is_fed == (count <= supply.feeds),
        "gives": is_fed or (short <= OFF_AT_MOST if supply.at_least else abs(short) <= OFF_AT_MOST),
    }
    wrong = [name for name, held in claims.items() if not held]
    least = ">=" if supply.at_least else ""
    print(
        f"{count:12} {seen.mean:8.1%} {min(seen.utilizations):7.1%} {seen.bytes_per_s / 1e6:9.2f} "
        f"{needed / 1e6:8.2f} {off(needed, seen.bytes_per_s):+7.1%} {seen.requests_per_s:11.0f} "
        f"{f'{least}{gives / 1e6:.2f}':>9} {'' if is_fed else f'{short:+.1%}':>7} {f'{least}{supply.feeds:.2f}':>7}  "
        f"{'right' if not wrong else 'WRONG: ' + ', '.join(wrong)}",
        flush=True,
    )
    return not wrong


def measure(disk: Disk, photos: Path, scratch: Path, undo: ExitStack) -> bool | None:
    """All rows of one disk; None where it cannot be planted."""
    limit, own = limit_of(disk, photos), scratch / disk.kind
    own.mkdir()
    fill = partial(shutil.copytree, photos, dirs_exist_ok=True)
    unit = "requests/s" if disk.kind == "requests" else "bytes/s"
    place = planted(undo, f"{disk.kind}, {limit:.0f} {unit}", disk.kind, limit, fill=fill, scratch=own)
    if place is None or not place.unlimited:
        print(f"{disk.kind}: left out: only a block device has counters of its own")
        return None
    folder, run = place.folder / f"{SIDE}x{SIDE}", own / "run"
    swept(place, folder, run)
    print(
        f"{'accelerators':>12} {'used':>8} {'least':>7} {'MB/s read':>9} {'planned':>8} {'off':>7} {'requests/s':>11} "
        f"{'it gives':>9} {'off':>7} {'feeds':>7}"
    )
    held = [judged(run, count, together(place, folder, count)) for count in COUNTS]
    return all(held)


def options() -> argparse.Namespace:
    found = parser(__doc__)
    found.add_argument("--keep", type=Path, help="keep the runs in this folder")
    found.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return found.parse_args()


def main() -> int:
    chosen = options()
    if chosen.child:
        folder, part, parts = chosen.child
        train(Path(folder), int(part), int(parts))
        return 0
    with tempfile.TemporaryDirectory(prefix="loaderprobe-plan-") as temporary:
        scratch = Path(temporary)
        photographs(scratch / "photographs", f"{SIDE}x{SIDE}", IMAGES)
        held: list[bool | None] = []
        for disk in DISKS:
            with ExitStack() as undo:
                held.append(measure(disk, scratch / "photographs", scratch, undo))
                if chosen.keep:
                    shutil.copytree(scratch / disk.kind / "run", chosen.keep / disk.kind, dirs_exist_ok=True)
    print("the plan is right" if all(held) else "the plan is WRONG, or a disk is missing")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Kind `plan`: one accelerator measured on a slow disk, a plan, then several accelerators there; as root.

Two disks are planted, one slow in bytes/s and one in requests/s. On each a sweep measures one emulated accelerator,
`plan` is asked for 2, 3 and 4, and then as many train there at once, each a process with a loader and files of its
own, which are always cold. The disk's own counters say what was read.

The planned need, at the utilization that was reached, is within 3 % of what the counters saw; accelerators that the
plan feeds reach 90 % of their rate, and more than it feeds do not; and what the disk gave while it was short is within
3 % of what the plan says that it gives; it may be more where the plan says `at least`.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from loaderprobe.api.plan import plan
from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.stats import mean
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import example_arguments
from scripts.benches.compared import Compared, Limits
from scripts.benches.harness import child, device_reads, photographs, photographs_in, planted, program
from scripts.benches.loaders import PythonFiles, Work
from tests.planted.slow_disk import SlowDisk
from tests.planted.slow_reader import evict
from tests.planted.small_memory import pages_bytes

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
OFF_AT_MOST = 0.03
LIMITS = Limits()


DISKS = {"token_bucket": 2.5, "requests": 3.5}
"""How many accelerators each disk is made to feed, by its kind, which says what it is limited in."""


class ColdFiles(PythonFiles):
    """A part of the photographs, each read from the disk however often it was read before."""

    def __init__(self, folder: Path, part: int, parts: int) -> None:
        super().__init__(folder, Work(count=len(photographs_in(folder)[part::parts])))
        self.files = self.files[part::parts]

    def read(self, index: int) -> Any:
        evict([Path(self.files[index])])
        return super().read(index)


class Endless(Sampler[int]):
    """Epoch after epoch, each in a random order."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from torch.randperm(self._size).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What so many accelerators did in the window, and the disk's own counters meanwhile."""

    utilizations: tuple[float, ...]
    bytes_per_s: float
    requests_per_s: float

    @property
    def utilization(self) -> float:
        return mean(self.utilizations)


def _at_end_of_input(ended: threading.Event) -> None:
    # Not through sys.stdin: a process that is forked meanwhile would wait for the lock in there.
    while os.read(0, 1):
        pass
    ended.set()


def images_per_s(ends_ns: Sequence[int], begin_ns: int, end_ns: int) -> float:
    """Between the first and the last step that ended in the window."""
    inside = [step_ns for step_ns in ends_ns if begin_ns <= step_ns <= end_ns]
    return BATCH_SIZE * (len(inside) - 1) / (inside[-1] - inside[0]) * 1e9


def limit_of(kind: str, photos: Path) -> float:
    """Bytes/s, or requests/s, that feed as many accelerators as the disk is made for."""
    images = DISKS[kind] * UTILIZATION * RATE
    if kind == "requests":
        return round(images)
    files = photographs_in(photos)
    return images * pages_bytes(files) / len(files)


def train_alone(folder: str, part: int, parts: int) -> None:
    """One accelerator, until standard input ends; then the end of each of its steps, in ns, as JSON."""
    device, ended = EmulatedCompute(example_arguments(SystemClock(), compute=f"emulated:{RATE:g}")), threading.Event()
    files = ColdFiles(Path(folder), part, parts)
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


def together(disk: SlowDisk, folder: Path, count: int) -> Trial:
    """So many accelerators at once, once all of them have begun and settled."""
    with ExitStack() as undo:
        commands = [disk.command(child(train_alone, folder, part, count)) for part in range(count)]
        running = [
            undo.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for command in commands
        ]
        for process in running:
            assert process.stdout
            if process.stdout.readline() != "ready\n":
                raise SystemExit("an accelerator did not begin")
        time.sleep(SETTLE_S)
        before, begin_ns = device_reads(folder), time.monotonic_ns()
        time.sleep(WINDOW_S)
        after, end_ns = device_reads(folder), time.monotonic_ns()
        ends = [json.loads(process.communicate("")[0]) for process in running]
    spent_s = (end_ns - begin_ns) / 1e9
    return Trial(
        utilizations=tuple(images_per_s(ends_ns, begin_ns, end_ns) / RATE for ends_ns in ends),
        bytes_per_s=(after[1] - before[1]) / spent_s,
        requests_per_s=(after[0] - before[0]) / spent_s,
    )


def measure(_: Any, out: Path) -> bool:
    """A run of each disk into `out`, and what so many accelerators did there."""
    complete = True
    with tempfile.TemporaryDirectory(prefix="loaderprobe-plan-") as temporary:
        photos = photographs(Path(temporary, "photographs"), f"{SIDE}x{SIDE}", IMAGES)
        for kind in DISKS:
            limit = limit_of(kind, photos)
            with ExitStack() as undo:
                name = f"{kind}, {limit:.0f}/s"
                disk = planted(undo, name, kind, limit, fill=photos.parent, scratch=Path(temporary))
                if disk is None or disk.members is None:
                    print(f"{kind}: left out: only a block device has counters of its own")
                    complete = False
                    continue
                folder = disk.folder / f"{SIDE}x{SIDE}"
                command = program(
                    "sweep", folder, "--workers", ",".join(map(str, SWEPT)), "--no-serial", "--batch-size", BATCH_SIZE,
                    "--compute", f"emulated:{RATE:g}", "--out", out / kind, "--quiet", "--json",
                )  # fmt: skip
                subprocess.run(disk.command(command), check=True, stdout=subprocess.DEVNULL)
                trials = {count: asdict(together(disk, folder, count)) for count in COUNTS}
            (out / f"{kind}.json").write_text(json.dumps(trials))
    return complete


def load(folder: Path, _: Any) -> list[Compared]:
    rows: list[Compared] = []
    for kind in DISKS:
        kept = folder / f"{kind}.json"
        trials = json.loads(kept.read_text()) if kept.exists() else {}
        for count, fields in trials.items():
            rows += judged(folder / kind, kind, int(count), Trial(**fields))
    return rows


def judged(run: Path, kind: str, count: int, trial: Trial) -> Iterator[Compared]:
    """Need and supply of so many accelerators."""
    planned, reached = (
        plan(run, accelerators=count, utilization=min(busy, 1.0), use=1.0) for busy in (UTILIZATION, trial.utilization)
    )
    supply, need = planned.supplies[0], reached.need("read_bytes")
    assert need and supply.feeds is not None
    is_fed, name = trial.utilization >= UTILIZATION, f"{kind}, {count} accelerators"
    used = f"used {trial.utilization:.1%}, least {min(trial.utilizations):.1%}; {trial.requests_per_s:.0f} requests/s"
    least = "at least " * supply.at_least
    feeds = f"the plan feeds {least}{supply.feeds:.2f}"
    needed, measured_mb = need.at_utilization.value / 1e6, trial.bytes_per_s / 1e6
    yield Compared(
        group="need", name=name, predicted=needed, measured=measured_mb, note=f"{used}; {feeds}",
        wrong=f"off by over {OFF_AT_MOST:.0%} " * (abs(needed / measured_mb - 1) > OFF_AT_MOST)
        + "feeds" * (is_fed != (count <= supply.feeds)),
    )  # fmt: skip
    if not is_fed:
        gives = supply.limits[0].limit.value / 1e6
        off = gives / measured_mb - 1
        wrong = off > OFF_AT_MOST or (not supply.at_least and off < -OFF_AT_MOST)
        yield Compared(
            group="gives", name=name, predicted=gives, measured=measured_mb, note=least,
            wrong=f"off by over {OFF_AT_MOST:.0%}" * wrong,
        )  # fmt: skip

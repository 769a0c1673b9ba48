"""What `forecast` measures: pipelines on planted disks of two speeds and two kinds, and on warm files.

All disks stand side by side, and each is visited several times, every visit in a process of its own, so that the
same configuration is measured again minutes later. A visit measures each number of workers: in every round the loader
alone and one training segment for each emulated accelerator, and in the first round the loader alone on warm files.

The server of a single_server disk is a process of this machine and uses its cores while it serves. That is part
of every figure: it is in what is fitted as in what comes of it, as waiting for storage and, where the cores are the
limit, as fewer cores. Where they are that only in the forecast, the law does not know of it, and is too high by that
much.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torch.utils.data import DataLoader

from loaderprobe.api.bandwidth import bandwidth
from loaderprobe.api.policy import JUDGING
from loaderprobe.measure.own import loader as learning
from loaderprobe.measure.own.loader import LoaderRequest, measure_loader
from loaderprobe.protocols import ComputeArguments
from loaderprobe.records.config import with_options
from loaderprobe.records.files import UnknownFiles
from loaderprobe.records.measurement import Activity, Measurement, Mode
from loaderprobe.store.codec import encode, write_atomically
from loaderprobe.system.limits import cores_available
from scripts.benches.harness import Plant, Progress, child, photographs, ran
from scripts.benches.verdict import disk_of
from scripts.benches.verdict_blocks import Photographs
from scripts.benches.verdict_rounds import Rack

DiskKind = Literal["token_bucket", "single_server", "warm"]
IMAGES = 512
SIDE = 256
BATCH_SIZE = 8
ACCELERATORS = ("200", "400", "1000")
"""Images/s: below what the slower disks give, near what two cores or the faster disks do, and beyond all."""
WORKERS = (1, 2, 4, 8)
ROUNDS = 3
# Each file is read only once in a segment: enough for 0.7 s on the fastest of these disks, and 2 s on the slowest.
POOL_BATCHES = 40
PROBE_READERS = (1, 4, 16)
CHILD_LIMIT_S = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk that is planted; `mb_per_s` is 0 for the warm one."""

    kind: DiskKind
    mb_per_s: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.kind}{self.mb_per_s:g}" if self.mb_per_s else self.kind


DISKS = (
    Disk(kind="token_bucket", mb_per_s=10),
    Disk(kind="single_server", mb_per_s=10),
    Disk(kind="warm"),
    Disk(kind="token_bucket", mb_per_s=20),
    Disk(kind="single_server", mb_per_s=20),
)


def worker_counts() -> tuple[int, ...]:
    """Up to twice the cores: beyond that nothing is forecast."""
    return tuple(count for count in WORKERS if count <= max(2 * cores_available(), 2))


def measure(out: Path, visits: Sequence[int]) -> bool:
    """Plant all disks, probe them, and visit each in turn; what `out` holds already is not measured again."""
    complete = True
    with tempfile.TemporaryDirectory(prefix="loaderprobe-forecast-") as scratch, ExitStack() as undo:
        source = Path(scratch, "photographs")
        photographs(source, f"{SIDE}x{SIDE}", IMAGES)
        places = {disk: place for disk in DISKS if (place := _place_of(disk, source, Path(scratch), undo))}
        progress = Progress((1 + len(visits)) * len(places))
        for visit in (0, *visits):
            for disk, place in places.items():
                name = f"{disk.name}.v{visit}" if visit else disk.name
                if not (out / f"{name}.done").exists() and (visit or disk.kind != "warm"):
                    own = ("--child", disk.name, visit, place.folder / f"{SIDE}x{SIDE}", out)
                    if ran(place.command(child("forecast", *own)), name, CHILD_LIMIT_S):
                        (out / f"{name}.done").touch()
                    else:
                        complete = False
                progress.done(name)
    return complete


def _place_of(disk: Disk, source: Path, scratch: Path, undo: ExitStack) -> Plant | None:
    own = scratch / disk.name
    own.mkdir()
    return disk_of(undo, disk.kind, disk.mb_per_s, source, own)


def measure_visit(name: str, visit: int, folder: Path, out: Path) -> None:
    """Measure all of one visit to one disk in this process; visit 0 is the probe's."""
    disk = next(disk for disk in DISKS if disk.name == name)
    if not visit:
        found = bandwidth(folder, readers=PROBE_READERS, seconds=1.0)
        write_atomically(out / f"{name}.bandwidth.json", encode("bandwidth", found))
        return
    learning.POOL_BATCHES = POOL_BATCHES
    # More workers than cores are what is to be measured.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    for workers in worker_counts():
        rounds = Rounds()
        loader = DataLoader(Photographs(folder, "plain"), batch_size=BATCH_SIZE, shuffle=True, num_workers=workers)
        asked = LoaderRequest(
            judging=JUDGING,
            cache="warm" if disk.kind == "warm" else "cold",
            budget_s=None,
            rounds=ROUNDS,
            next_round=rounds,
        )
        seen = measure_loader(loader, rounds.rack, asked, lambda *_: None)
        if isinstance(seen.files, UnknownFiles):
            raise SystemExit(f"{name}, {workers} workers: {seen.files.code}")
        for accelerator in ACCELERATORS:
            stem = f"{name}-n{workers}-a{accelerator}.v{visit}"
            write_atomically(out / f"{stem}.json", encode("measurement", rounds.of(accelerator, seen.measurement)))


class Rounds:
    """Decides the rounds of one loader, in which the accelerators take turns at being first."""

    def __init__(self) -> None:
        self._done = 0
        self._order: list[tuple[str, ...]] = []

    def rack(self, arguments: ComputeArguments) -> Rack:
        self._rack = Rack(ACCELERATORS, arguments)
        return self._rack

    def __call__(self, measurement: Measurement, *, thorough: bool) -> tuple[tuple[Mode, Activity], ...]:
        if self._done == ROUNDS:
            return ()
        first = self._done % len(ACCELERATORS)
        self._done += 1
        self._order.append((*ACCELERATORS[first:], *ACCELERATORS[:first]))
        self._rack.turns = deque(self._order[-1])
        base: Mode = "warm" if measurement.config.cache == "warm" else "baseline"
        warm: tuple[tuple[Mode, Activity], ...] = (
            (("warm", "loader_only"),) if base == "baseline" and self._done == 1 else ()
        )
        return ((base, "loader_only"), *warm, *[(base, "training") for _ in ACCELERATORS])

    def of(self, accelerator: str, measurement: Measurement) -> Measurement:
        """What one accelerator saw, as if it had been measured alone: all of the loader alone, and its own training."""
        turns = [iter(order) for order in self._order]
        kept = [
            segment
            for segment in measurement.segments
            if segment.activity == "loader_only" or next(turns[segment.round]) == accelerator
        ]
        info = self._rack.devices[accelerator].info()
        config = with_options(measurement.config, compute=info.name)
        return replace(measurement, config=config, compute=info, segments=tuple(kept))

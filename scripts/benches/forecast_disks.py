"""Kind `disks`: pipelines on planted disks of two speeds and two kinds, and on warm files, for several accelerators.

All disks stand side by side, and each is visited several times, every visit in a process of its own, so that the
same configuration is measured again minutes later. A visit measures each number of workers: in every round the loader
alone and one training segment for each emulated accelerator, and in the first round the loader alone on warm files.

From each visit is forecast: more workers, from one and two; fewer, from four; each other accelerator; and the faster
disk of the same kind, from the slower, as much faster as `loaderprobe bandwidth` found. Each forecast is compared with
what *other* visits measured there, so that its error holds what the machine changes meanwhile, as does the error
beside it: that of one visit's rate taken for another's (repeat). Rows where the accelerator's own rate is all there is
to it, by forecast as by measurement, are counted apart. A measurement during which other processes had the cores is
left out on both sides, and named: its workers waited for cores that they did not use, on warm files as well.

The median error may be 1.5 times that of repeats. (It was 1.2 times before, for the 95th percentile too: of some
fifteen rows that is the worst.) The lines of one kind of disk each have few rows, and are not judged.

The server of a single_server disk is a process of this machine and uses its cores while it serves. That is part
of every figure: it is in what is fitted as in what comes of it, as waiting for storage and, where the cores are the
limit, as fewer cores. Where they are that only in the forecast, the law does not know of it, and is too high by that
much.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import DataLoader

from loaderprobe.analyze.forecast.changes import accelerator as faster_accelerator
from loaderprobe.analyze.forecast.changes import disk as faster_disk
from loaderprobe.analyze.forecast.changes import worker_forecasts
from loaderprobe.analyze.forecast.fit import Fit, Point, Storage, fit, point_of
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.rates import cores_in_training, rates_by_round, worker_cost
from loaderprobe.api.bandwidth import bandwidth
from loaderprobe.measure.user import loader as learning
from loaderprobe.measure.user.loader import LoaderRequest, measure_loader
from loaderprobe.protocols import ComputeArguments
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.config import CacheState, with_options
from loaderprobe.records.measurement import Activity, Measurement, Mode, base_mode, segments_of
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Forecast
from loaderprobe.render.words import remark_words
from loaderprobe.stats import median
from loaderprobe.store.codec import decode, encode, write_atomically
from loaderprobe.system.limits import cores_available
from loaderprobe.units import join_words
from scripts.benches.compared import Compared, Kind, Limits
from scripts.benches.harness import Plant, Progress, part_of, photographs, ran
from scripts.benches.truth_verdict import Photographs, Rack, disk_of

FITTED = ((1, 2), (4,))
VISITS = 2
GIVEN = 0.01
"""Nearer than this to the accelerator's own rate, the accelerator was the limit."""

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

    kind: Literal["token_bucket", "single_server", "warm"]
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


def _place_of(disk: Disk, source: Path, scratch: Path, undo: ExitStack) -> Plant | None:
    own = scratch / disk.name
    own.mkdir()
    return disk_of(undo, disk.kind, disk.mb_per_s, source, own)


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


# Workers on warm files that wait this share of their time for a core, while they use less than this share of all,
# wait for other processes. On an idle machine of two cores, two workers used 0.85 to 0.98 of them, and four as much.
WAITED, USED = 0.2, 0.75


def others_had_cores(measurement: Measurement) -> bool:
    """True where other processes computed beside the workers."""
    warm = segments_of(measurement, "warm", "loader_only")
    cost, used = worker_cost(measurement.worker_batches, warm), cores_in_training(measurement, warm)
    if cost is None or used is None:
        return False
    return cost.run_delay_s > WAITED * cost.wall_s and used < USED * measurement.cores_available


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A configuration."""

    disk: str
    workers: int
    accelerator: str

    def __str__(self) -> str:
        return f"{self.disk} n{self.workers} a{self.accelerator}"


class Kept:
    """All that a folder holds: the measurements of each visit, and what the probe found."""

    def __init__(self, folder: Path) -> None:
        self.disturbed: list[str] = []
        """Names of what was left out, since other processes had the cores meanwhile."""
        self._found: dict[int, dict[Place, Measurement]] = {}
        self.storage = {each.name: _storage(folder, each) for each in DISKS}
        for each in DISKS:
            for workers in WORKERS:
                for name in ACCELERATORS:
                    place = Place(disk=each.name, workers=workers, accelerator=name)
                    self._read(folder, place)

    def _read(self, folder: Path, place: Place) -> None:
        for file in folder.glob(f"{place.disk}-n{place.workers}-a{place.accelerator}.v*.json"):
            visit = int(file.stem.rpartition(".v")[2])
            found = decode("measurement", file.read_bytes(), Measurement, str(file))
            if others_had_cores(found):
                self.disturbed.append(file.stem)
            else:
                self._found.setdefault(visit, {})[place] = found

    @property
    def visits(self) -> list[int]:
        return sorted(self._found)

    def measured(self, visit: int) -> dict[Place, Measurement]:
        return self._found[visit]

    def rate(self, place: Place, visit: int) -> float | None:
        found = self._found[visit].get(place)
        return median(list(rates_by_round(found, base_mode(found), "training").values())) if found else None

    def point(self, place: Place, visit: int) -> Point | Remark:
        found = self._found[visit].get(place)
        return (
            point_of(found, run_experiments(found, self.storage[place.disk].ceiling))
            if found
            else Remark(code="no_complete_round")
        )

    def points(self, disk: str, name: str, visit: int, among: tuple[int, ...] = WORKERS) -> tuple[Point, ...]:
        """Those that can be fitted, of the configurations that differ in workers only."""
        places = [Place(disk=disk, workers=workers, accelerator=name) for workers in among]
        found = [self.point(place, visit) for place in places]
        return tuple(point for point in found if isinstance(point, Point))

    def fit(self, place: Place, visit: int) -> Fit | Remark:
        """As a sweep fits it: with all numbers of workers."""
        point = self.point(place, visit)
        if isinstance(point, Remark):
            return point
        return fit(self.points(place.disk, place.accelerator, visit), point, self.storage[place.disk])


def _storage(folder: Path, disk: Disk) -> Storage:
    """What a sweep would know: the kind, and what readers got where reads from storage are counted."""
    file = folder / f"{disk.name}.bandwidth.json"
    if not file.exists():
        return Storage()
    found = decode("bandwidth", file.read_bytes(), BandwidthReport, str(file))
    return Storage(ceiling=StorageCeiling(data=disk.name, phases=found.ladder, kind=found.kind))


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    """Plant all disks, probe them, and visit each in turn; what `out` holds already is not measured again."""
    complete, visits = True, range(1, 1 + (chosen.rounds or VISITS))
    with tempfile.TemporaryDirectory(prefix="loaderprobe-forecast-") as scratch, ExitStack() as undo:
        source = Path(scratch, "photographs")
        photographs(source, f"{SIDE}x{SIDE}", IMAGES)
        places = {disk: place for disk in DISKS if (place := _place_of(disk, source, Path(scratch), undo))}
        progress = Progress((1 + len(visits)) * len(places))
        for visit in (0, *visits):
            for disk, place in places.items():
                name = f"{disk.name}.v{visit}" if visit else disk.name
                if not (out / f"{name}.done").exists() and (visit or disk.kind != "warm"):
                    folder = place.folder / f"{SIDE}x{SIDE}"
                    own = {"disk": disk.name, "visit": visit, "folder": str(folder), "out": str(out)}
                    if ran(place.command(part_of("forecast", "disks", own)), name, CHILD_LIMIT_S):
                        (out / f"{name}.done").touch()
                    else:
                        complete = False
                progress.done(name)
    return complete


def measure_visit(given: dict[str, Any]) -> None:
    """Measure all of one visit to one disk in this process; visit 0 is the probe's."""
    name, visit, folder, out = given["disk"], given["visit"], Path(given["folder"]), Path(given["out"])
    disk = next(disk for disk in DISKS if disk.name == name)
    if not visit:
        found = bandwidth(folder, readers=PROBE_READERS, seconds=1.0)
        write_atomically(out / f"{name}.bandwidth.json", encode("bandwidth", found))
        return
    learning.POOL_BATCHES = POOL_BATCHES
    # More workers than cores are what is to be measured.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    cache: CacheState = "warm" if disk.kind == "warm" else "cold"
    for workers in worker_counts():
        rounds = Rounds()
        loader = DataLoader(Photographs(folder, "plain"), batch_size=BATCH_SIZE, shuffle=True, num_workers=workers)
        asked = LoaderRequest(cache=cache, budget_s=None, rounds=ROUNDS, decide=rounds)
        seen = measure_loader(loader, rounds.rack, asked, lambda *_: None)
        if seen.data.hidden:
            raise SystemExit(f"{name}, {workers} workers: {seen.data.hidden.code}")
        for accelerator in ACCELERATORS:
            stem = f"{name}-n{workers}-a{accelerator}.v{visit}"
            write_atomically(out / f"{stem}.json", encode("measurement", rounds.of(accelerator, seen.measurement)))


def outcomes(
    kept: Kept, group: str, place: Place, visit: int, source: str, made: Forecast | Remark
) -> Iterator[Compared]:
    """A forecast against what every other visit measured there."""
    found = made.images_per_s if isinstance(made, Forecast) else None
    refused = made if isinstance(made, Remark) else made.refused
    for other in kept.visits:
        rate, before = kept.rate(place, other), kept.rate(place, visit)
        if other != visit and rate is not None:
            near = [abs(each / float(place.accelerator) - 1) <= GIVEN for each in (rate, before) if each]
            yield Compared(
                group=f"{group}:{place.disk.rstrip('0123456789')}",
                name=f"{place} from {source} v{visit}",
                measured=rate,
                repeat=None if before is None else abs(before / rate - 1),
                predicted=found.value if found else None,
                low=found.low if found else None,
                high=found.high if found else None,
                trivial=bool(
                    found and abs(found.value / float(place.accelerator) - 1) <= GIVEN and len(near) == 2 and all(near)
                ),
                note=remark_words(refused) if refused else "",
            )


def unmeasured_workers(kept: Kept, visit: int) -> Iterator[Compared]:
    for name in {(place.disk, place.accelerator) for place in kept.measured(visit)}:
        for fitted in FITTED:
            known = kept.points(*name, visit, fitted)
            made = worker_forecasts(known, kept.storage[name[0]]) if known else {}
            for workers in WORKERS:
                place = Place(disk=name[0], workers=workers, accelerator=name[1])
                if workers not in fitted and place in kept.measured(visit):
                    source = f"{join_words([*map(str, fitted)])} workers"
                    yield from outcomes(
                        kept, "workers", place, visit, source, made.get(workers) or Remark(code="no_model_fits")
                    )


def from_one_place(kept: Kept, visit: int) -> Iterator[Compared]:
    """Each other accelerator, and from the slower disk the faster of the same kind."""
    faster = {a.name: b.name for a in DISKS for b in DISKS if a.kind == b.kind and a.mb_per_s < b.mb_per_s}
    for place in kept.measured(visit):
        found = kept.fit(place, visit)
        for name in ACCELERATORS:
            if name != place.accelerator:
                made = found if isinstance(found, Remark) else faster_accelerator(found, float(name))
                target = replace(place, accelerator=name)
                yield from outcomes(kept, "accelerators", target, visit, f"a{place.accelerator}", made)
        if place.disk in faster:
            target = replace(place, disk=faster[place.disk])
            rates = [kept.storage[each.disk].bytes_per_s or 1.0 for each in (target, place)]
            made = found if isinstance(found, Remark) else faster_disk(found, rates[0] / rates[1])
            yield from outcomes(kept, "disk speeds", target, visit, place.disk, made)


def load(folder: Path, _: Any) -> list[Compared]:
    kept = Kept(folder)
    for name, storage in kept.storage.items():
        if storage.ceiling and storage.ceiling.kind:
            print(f"{name}: {storage.ceiling.kind.kind} by the probe, {(storage.bytes_per_s or 0) / 1e6:.1f} MB/s")
    if kept.disturbed:
        print(f"left out, since other processes had the cores: {', '.join(sorted(kept.disturbed))}")
    if len(kept.visits) < 2:
        print("fewer than two visits were measured, so there is nothing to judge")
        return []
    return [each for visit in kept.visits for each in (*unmeasured_workers(kept, visit), *from_one_place(kept, visit))]


LIMITS = Limits(times_repeat=1.5, held=0.9)
KINDS = {"disks": Kind(measure=measure, load=load, limits=LIMITS, child=measure_visit)}

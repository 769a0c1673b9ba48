"""What `forecast` keeps of its measurements, and which of them tell nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loaderprobe.analyze.forecast.fit import Fit, Point, Storage, fit, point_of
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.rates import cores_in_training, rates_by_round, worker_cost
from loaderprobe.records.bandwidth import BandwidthReport, StorageCeiling
from loaderprobe.records.measurement import Measurement, base_mode, segments_of
from loaderprobe.records.remark import Remark
from loaderprobe.stats import median
from loaderprobe.store.codec import decode
from scripts.benches.forecast_disks import ACCELERATORS, DISKS, WORKERS, Disk

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

"""Kind `disks`: sweeps of planted disks of two speeds and two kinds, and of warm files, for several accelerators.

All disks stand side by side, and each is visited several times: a visit is one sweep of all numbers of workers and all
emulated accelerators, which finds the ceiling of the storage, too. From each visit are forecast more workers than one
and two, fewer than four, each other accelerator, and the faster disk of the same kind, as much faster as the two sweeps
found. Each is compared with what *other* visits measured there, minutes later, so that its error holds what the machine
changes meanwhile, as does the error beside it: that of one visit's rate taken for another's (repeat), of which the
median error may be 1.5 times. The lines of one kind of disk each have few rows, and are not judged.

Rows where the accelerator's own rate is all there is to it are counted apart. A measurement during which other
processes had the cores is left out on both sides, and named.

The server of a single_server disk uses the cores of this machine, in what is fitted as in what comes of it. Where they
are the limit only in the forecast, the formula does not know of it, and is too high by that much.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import loaderprobe
from loaderprobe.analyze.forecast import Fit, Point, fit, point_of, worker_forecasts
from loaderprobe.analyze.forecast import accelerator as faster_accelerator
from loaderprobe.analyze.forecast import disk as faster_disk
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.rates import cores_in_training, rates_by_round, worker_cost
from loaderprobe.records.measurement import Measurement, segments_of
from loaderprobe.records.phases import NO_CEILING, StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Forecast
from loaderprobe.render.words import remark_words
from loaderprobe.stats import median
from loaderprobe.system.limits import cores_available
from loaderprobe.units import join_words
from scripts.benches.compared import Compared, Limits
from scripts.benches.harness import Progress, measurements, own_disk, photographs, planted, program, ran, wanted
from tests.planted.slow_disk import SlowDisk

DISKS = {
    "token_bucket10": 10e6,
    "single_server10": 10e6,
    "warm": 0.0,
    "token_bucket20": 20e6,
    "single_server20": 20e6,
}
"""Bytes/s of each disk that is planted, by its kind and MB/s."""
FASTER = {"token_bucket10": "token_bucket20", "single_server10": "single_server20"}
FITTED = ((1, 2), (4,))
VISITS = 2
LIMITS = Limits(times_repeat=1.5, in_range=0.9)
GIVEN = 0.01
"""Nearer than this to the accelerator's own rate, the accelerator was the limit."""
IMAGES, SIDE = 512, 256
ACCELERATORS = (200, 400, 1000)
"""Images/s: below what the slower disks give, near what two cores or the faster disks do, and beyond all."""
WORKERS = (1, 2, 4, 8)
SWEEP_LIMIT_S = 900
# Workers on warm files that wait this share of their time for a core, while they use less than this share of all,
# wait for other processes. On an idle machine of two cores, two workers used 0.85 to 0.98 of them, and four as much.
WAITED, USED = 0.2, 0.75


def kind_of(disk: str) -> str:
    return disk.rstrip("0123456789")


def worker_counts() -> tuple[int, ...]:
    """Up to twice the cores: beyond that nothing is forecast."""
    return tuple(count for count in WORKERS if count <= max(2 * cores_available(), 2))


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    """Plant all disks, and sweep each in turn, visit after visit; one that has ended is not measured again."""
    visits = range(1, 1 + (chosen.rounds or VISITS))
    with tempfile.TemporaryDirectory(prefix="loaderprobe-forecast-") as scratch, ExitStack() as undo:
        source = photographs(Path(scratch, "photographs"), f"{SIDE}x{SIDE}", IMAGES)
        names = wanted([*DISKS], chosen.only)
        disks = {name: disk for name in names if (disk := _plant(undo, name, source, Path(scratch)))}
        progress, complete = Progress(len(visits) * len(disks)), len(disks) == len(names)
        for visit in visits:
            for name, disk in disks.items():
                run = out / f"{name}.v{visit}"
                if not (run / "summary.json").exists():
                    shutil.rmtree(run, ignore_errors=True)
                    command = disk.command(_sweep(name, disk.folder, run))
                    complete &= ran(command, run.name, SWEEP_LIMIT_S, quiet=True)
                progress.done(run.name)
    return complete


def _plant(undo: ExitStack, name: str, source: Path, scratch: Path) -> SlowDisk | None:
    if not DISKS[name]:
        return own_disk(source)
    return planted(undo, name, kind_of(name), DISKS[name], fill=source, scratch=scratch, keep_cache=True)


def _sweep(name: str, folder: Path, run: Path) -> list[str]:
    workers, rates = ",".join(map(str, worker_counts())), ",".join(f"emulated:{rate}" for rate in ACCELERATORS)
    return program(
        "sweep", folder, "--workers", workers, "--no-serial", "--batch-size", 8, "--compute", rates,
        "--cache", "cold" if DISKS[name] else "warm", "--out", run, "--quiet",
    )  # fmt: skip


def others_had_cores(measurement: Measurement) -> bool:
    """True where other processes computed beside the workers."""
    warm = segments_of(measurement, "warm", "loader_only")
    cost, used = worker_cost(measurement.worker_batches, warm), cores_in_training(measurement, warm)
    if cost is None or used is None:
        return False
    return cost.run_delay_s > WAITED * cost.wall_s and used < USED * measurement.cores_available


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    disk: str
    workers: int
    accelerator: int

    def __str__(self) -> str:
        return f"{self.disk} n{self.workers} a{self.accelerator}"


class Visit:
    """What one sweep of each disk measured, but for what other processes disturbed."""

    def __init__(self, folder: Path, number: str) -> None:
        self.number = number
        self.measured: dict[Setting, Measurement] = {}
        self.storage: dict[str, StorageCeiling] = {}
        for disk in DISKS:
            if ((run := folder / f"{disk}.{number}") / "summary.json").exists():
                self._read(disk, run)

    def _read(self, disk: str, run: Path) -> None:
        directory = loaderprobe.load(run).directory
        self.storage[disk] = directory.ceiling(directory.record.spec.configs[0].data) or NO_CEILING
        for measurement in measurements(run):
            rate = round(measurement.compute.specified_images_per_s or 0)
            setting = Setting(disk=disk, workers=measurement.config.loader.workers, accelerator=rate)
            if others_had_cores(measurement):
                print(f"{setting} {self.number}: left out, since other processes had the cores")
            else:
                self.measured[setting] = measurement

    def rate(self, setting: Setting) -> float | None:
        measured = self.measured.get(setting)
        return median(list(rates_by_round(measured, measured.config.mode, "training").values())) if measured else None

    def point(self, setting: Setting) -> Point | Remark:
        if setting not in self.measured:
            return Remark(code="no_complete_round")
        measurement = self.measured[setting]
        return point_of(run_experiments(measurement, self.storage[setting.disk]))

    def points(self, like: Setting, among: Sequence[int] = WORKERS) -> tuple[Point, ...]:
        """Those that can be fitted, of the configurations that differ in workers only."""
        points = [self.point(replace(like, workers=workers)) for workers in among]
        return tuple(point for point in points if isinstance(point, Point))

    def fit(self, setting: Setting) -> Fit | Remark:
        """As a sweep fits it: with all numbers of workers."""
        point = self.point(setting)
        return fit(self.points(setting), point, self.storage[setting.disk]) if isinstance(point, Point) else point


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A forecast of a configuration, from another."""

    group: str
    setting: Setting
    source: str
    forecast: Forecast | Remark


def by_workers(visit: Visit) -> Iterator[Prediction]:
    for like in dict.fromkeys(replace(setting, workers=0) for setting in visit.measured):
        for fitted in FITTED:
            known = visit.points(like, fitted)
            forecasts = worker_forecasts(known, visit.storage[like.disk]) if known else {}
            for workers in sorted({*WORKERS} - {*fitted}):
                yield Prediction(
                    group="workers", setting=replace(like, workers=workers),
                    source=f"{join_words([*map(str, fitted)])} workers",
                    forecast=forecasts.get(workers) or Remark(code="no_model_fits"),
                )  # fmt: skip


def from_one_setting(visit: Visit) -> Iterator[Prediction]:
    """Each other accelerator, and from the slower disk the faster of the same kind."""
    for setting in visit.measured:
        fitted = visit.fit(setting)
        for rate in sorted({*ACCELERATORS} - {setting.accelerator}):
            forecast = faster_accelerator(fitted, rate) if isinstance(fitted, Fit) else fitted
            target, source = replace(setting, accelerator=rate), f"a{setting.accelerator}"
            yield Prediction(group="accelerators", setting=target, source=source, forecast=forecast)
        if (faster := FASTER.get(setting.disk, "")) in visit.storage:
            target, source = replace(setting, disk=faster), setting.disk
            rates = [visit.storage[disk].bytes_per_s or 1.0 for disk in (faster, setting.disk)]
            forecast = faster_disk(fitted, rates[0] / rates[1]) if isinstance(fitted, Fit) else fitted
            yield Prediction(group="disk speeds", setting=target, source=source, forecast=forecast)


def compared(prediction: Prediction, visit: Visit, other: Visit) -> Compared | None:
    """With what another visit measured there."""
    setting, measured, before = prediction.setting, other.rate(prediction.setting), visit.rate(prediction.setting)
    if measured is None:
        return None
    forecast = prediction.forecast if isinstance(prediction.forecast, Forecast) else None
    predicted, refused = forecast and forecast.images_per_s, forecast.refused if forecast else prediction.forecast
    rates = (measured, before, predicted and predicted.value)
    return Compared(
        group=f"{prediction.group}:{kind_of(setting.disk)}",
        name=f"{setting} from {prediction.source} {visit.number}",
        measured=measured,
        repeat=None if before is None else abs(before / measured - 1),
        predicted=predicted.value if predicted else None,
        low=predicted.low if predicted else None,
        high=predicted.high if predicted else None,
        trivial=all(rate and abs(rate / setting.accelerator - 1) <= GIVEN for rate in rates),
        note=remark_words(refused) if isinstance(refused, Remark) else "",
    )


def load(folder: Path, _: argparse.Namespace) -> list[Compared]:
    numbers = sorted({path.parent.name.rpartition(".")[2] for path in folder.glob("*.v*/summary.json")})
    visits = [Visit(folder, number) for number in numbers]
    for visit in visits:
        for name, storage in visit.storage.items():
            print(f"{name} {visit.number}: {storage.device_kind}, {(storage.bytes_per_s or 0) / 1e6:.1f} MB/s")
    if len(visits) < 2:
        print("fewer than two visits were measured, so there is nothing to judge")
    return [
        row
        for visit in visits
        for prediction in (*by_workers(visit), *from_one_setting(visit))
        for other in visits
        if other is not visit and (row := compared(prediction, visit, other))
    ]

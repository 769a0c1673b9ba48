"""What a plan is made from: the configuration of a sweep that fits, a result of `run`, or one of `bandwidth`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.plan.sources import (
    cold_and_fastest,
    workload_of,
    workload_of_bandwidth,
    workload_of_run,
    workload_of_trace,
)
from loaderprobe.analyze.plan.supply import Offer, rank_offer
from loaderprobe.analyze.plan.workload import Workload, known
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.api.load import Run, load_any, type_of
from loaderprobe.api.shown import Documented
from loaderprobe.api.stored import damaged_ceiling
from loaderprobe.api.values import PathLike
from loaderprobe.compute.emulated import parse_rate
from loaderprobe.errors import BadValue, DamagedRun, LoaderprobeError
from loaderprobe.records.bandwidth import BandwidthReport, StorageCeiling
from loaderprobe.records.config import RunConfig
from loaderprobe.records.diagnosis import WatchReport
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.plan import PlanSource, Quantity
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.trace import TraceReport
from loaderprobe.store.results import read_bandwidth, read_result, schema_in
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.units import join_words

IMAGENET_BYTES = 110_000.0
"""Mean size of ImageNet's training images: without a choice, the data set nearest to it is planned for."""
IMAGENET_IMAGES = 1_281_167
"""Of its training set; a generated data set has only as many as the sweep needed."""
GENERATED = "as in ImageNet: the data set is generated"
RECORDED = "as in ImageNet: a recording holds no files"
MEASURED = "measured"
Accelerator = tuple[str, Quantity]
"""Its name and its rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the plan's figures come from."""

    workload: Workload
    source: PlanSource
    by_ranks: Offer | None = None
    """What the ranks of the run read from storage."""


def find(
    run: Run | BandwidthReport | Diagnosis | TraceReport | PathLike, data: str | None,
    kind: str | None, mean_size: float | None,
) -> Found:  # fmt: skip
    """The workload in a result. Raises BadValue where there is none that fits."""
    if isinstance(run, BandwidthReport):
        return _of_bandwidth(run, run.path, data, kind)
    if isinstance(run, Run):
        return _of_sweep(run, data, kind)
    if isinstance(run, Diagnosis):
        return _of_diagnosis(run, "a diagnosis", data, kind, mean_size)
    if isinstance(run, TraceReport):
        return _of_trace(run, run.ranks[0].path, data, kind, mean_size)
    path = Path(run)
    loaded = load_any(path) if path.is_dir() else _in_file(path)
    if isinstance(loaded, BandwidthReport):
        return _of_bandwidth(loaded, str(path), data, kind)
    if isinstance(loaded, Run):
        return _of_sweep(loaded, data, kind)
    if isinstance(loaded, Diagnosis):
        return _of_diagnosis(loaded, str(path), data, kind, mean_size)
    if isinstance(loaded, TraceReport):
        return _of_trace(loaded, str(path), data, kind, mean_size)
    if isinstance(loaded, WatchReport):
        raise BadValue(
            f"{path} holds a training that was only watched: what an image costs was not measured",
            hint="loaderprobe run without --watch",
        )
    raise BadValue(
        f"{path} holds a result that nothing is planned from", hint="give one of sweep, run, bandwidth or trace"
    )


def _in_file(path: Path) -> Documented | BandwidthReport:
    with suppress(LoaderprobeError):  # what is wrong with the file is said below
        if type_of(schema_in(path)):
            found: Documented = read_result(path, type_of)
            return found
    return read_bandwidth(path)


def accelerator_of(kind: str) -> Accelerator:
    """An accelerator by its name, or by its images/s. Raises BadValue."""
    name = kind.removeprefix("emulated:")
    rate, source = parse_rate(name)
    return name, known(rate, "images/s", "given", source)


def _of_bandwidth(report: BandwidthReport, path: str, data: str | None, kind: str | None) -> Found:
    if kind in (None, MEASURED):
        raise BadValue("a bandwidth result has no accelerator", hint="name one: --kind mlperf-h100, or its images/s")
    if data is not None:
        raise BadValue("a bandwidth result has no data sets to choose from", hint="leave --data out")
    assert kind is not None
    name, rate = accelerator_of(kind)
    workload = workload_of_bandwidth(report, name, rate)
    source = PlanSource(
        kind="bandwidth", path=path, data=report.path, other_data=(), accelerator=name, configuration=""
    )
    return Found(workload=workload, source=source)


def _of_diagnosis(found: Diagnosis, path: str, data: str | None, kind: str | None, mean_size: float | None) -> Found:
    if data is not None:
        raise BadValue("a result of run has one data set", hint="leave --data out")
    other = None if kind in (None, MEASURED) else accelerator_of(str(kind))
    measured = found.measurement
    judged = verdict(measured, found.ceiling)
    workload = workload_of_run(
        measured, judged, found.ceiling, samples=found.dataset_samples, other=other, mean_size=mean_size
    )
    source = PlanSource(
        kind="run", path=path, data=measured.config.resolution, other_data=(), accelerator=workload.accelerator,
        configuration=measured.config.title(),
    )  # fmt: skip
    return Found(workload=workload, source=source)


def _of_trace(found: TraceReport, path: str, data: str | None, kind: str | None, mean_size: float | None) -> Found:
    if data is not None:
        raise BadValue("a recording has no data sets to choose from", hint="leave --data out")
    other = None if kind in (None, MEASURED) else accelerator_of(str(kind))
    workload = workload_of_trace(
        found, other=other, mean_size=mean_size or IMAGENET_BYTES, size_source="mean_size" if mean_size else RECORDED,
        images=known(IMAGENET_IMAGES, "images", "assumed", RECORDED),
    )  # fmt: skip
    source = PlanSource(
        kind="trace", path=path, data="", other_data=(), accelerator=workload.accelerator, configuration=""
    )
    return Found(workload=workload, source=source)


def _of_sweep(run: Run, data: str | None, kind: str | None) -> Found:
    rows = [row for row in run.report().summary.configurations if row.verdict is not None]
    if not rows:
        raise BadValue(f"{run.path} holds no measured configuration", hint=f"loaderprobe sweep --resume {run.path}")
    label, others = _choose_data(run, rows, data)
    rows = [row for row in rows if row.config.resolution == label]
    other = None if kind in (None, MEASURED) else accelerator_of(str(kind))
    row = _choose_row(rows, kind, other)
    measurement = run.directory.result(row.key)
    assert isinstance(measurement, Measurement) and row.verdict is not None
    ceiling = _ceiling(run.directory, row.config.data)
    files = run.directory.files(row.config.data)
    own = row.config.compute.name.removeprefix("emulated:")
    planned = None if other is None or (row.emulated and own == other[0]) else other
    workload = workload_of(measurement, row.verdict, files, ceiling, planned)
    if any(each.generated and each.root == files.root for each in run.report().summary.run.data):
        workload = replace(workload, images=known(IMAGENET_IMAGES, "images", "assumed", GENERATED))
    source = PlanSource(
        kind="sweep", path=str(run.path), data=files.root, other_data=others, accelerator=workload.accelerator,
        configuration=row.config.title(),
    )  # fmt: skip
    alike = [each for each in rows if _of_one_rank(each) == _of_one_rank(row)]
    by_ranks = rank_offer(alike, workload.storage.read_bytes_per_s.value if workload.storage else None)
    if isinstance(by_ranks, Remark):
        return Found(workload=workload.refusing("rank_storage", by_ranks), source=source)
    return Found(workload=workload, source=source, by_ranks=by_ranks)


def _of_one_rank(row: ConfigurationRow) -> RunConfig:
    return replace(row.config, ranks=1, nodes=1)


def _choose_data(run: Run, rows: Sequence[ConfigurationRow], data: str | None) -> tuple[str, tuple[str, ...]]:
    """(label, the other labels); without a choice, the set whose files are nearest to ImageNet's in size."""
    labels = list(dict.fromkeys(row.config.resolution for row in rows))
    if data is None:
        sizes = {each.label: each.mean_size_bytes for each in run.report().summary.run.data}
        chosen = min(labels, key=lambda label: abs(math.log(max(sizes.get(label, 1.0), 1.0) / IMAGENET_BYTES)))
    elif data in labels:
        chosen = data
    else:
        raise BadValue(f"the run has no measured data set '{data}'", hint=f"use --data {join_words(labels, 'or')}")
    return chosen, tuple(label for label in labels if label != chosen)


def _choose_row(rows: Sequence[ConfigurationRow], kind: str | None, other: Accelerator | None) -> ConfigurationRow:
    """The fastest training, cold if there is one, on the accelerator that is asked for or on the fastest."""
    if kind == MEASURED:
        rows = [row for row in rows if not row.emulated]
        if not rows:
            raise BadValue("no accelerator was measured in this run", hint="name one: --kind mlperf-h100")
    if other is not None:
        rows = [row for row in rows if row.config.compute.name == f"emulated:{other[0]}"] or list(rows)
    else:
        fastest = max(rows, key=_compute_rate).config.compute.name
        rows = [row for row in rows if row.config.compute.name == fastest]
    return cold_and_fastest(rows)


def _compute_rate(row: ConfigurationRow) -> float:
    return (row.verdict.rates_images_per_s.compute if row.verdict else None) or 0.0


def _ceiling(run: RunDirectory, fingerprint: str) -> StorageCeiling | None:
    try:
        return run.ceiling(fingerprint)
    except DamagedRun as error:
        return damaged_ceiling(fingerprint, run.damaged(error))

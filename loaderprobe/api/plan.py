"""`plan`: what N accelerators need of storage, what limits it first, what to test. Measures nothing, needs no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from math import ceil
from pathlib import Path
from typing import Any

from loaderprobe.analyze.plan.plan import as_asked, catalogue_offer, given_offer, make_plan
from loaderprobe.analyze.plan.sources import sure_as_run, workload_of_bandwidth, workload_of_run, workload_of_trace
from loaderprobe.analyze.plan.workload import (
    IMAGENET_BYTES,
    PlanWorkload,
    cold_and_fastest,
    known,
    nearest_to_imagenet,
    workload_of,
)
from loaderprobe.api import quantities
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.api.load import Run, beside_results, load_any
from loaderprobe.api.shown import Tabled
from loaderprobe.api.values import IMAGENET_IMAGES, PathLike
from loaderprobe.compute.emulated import parse_rate
from loaderprobe.errors import BadValue
from loaderprobe.records import values
from loaderprobe.records.attached import WatchReport
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.plan import CatalogueEntry, PlanReport, PlanSource
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.supply import Asked, PlanSupply, Quantity
from loaderprobe.records.thresholds import USE, UTILIZATION
from loaderprobe.records.trace import TraceReport
from loaderprobe.render.plan import need_columns, plan_document
from loaderprobe.storage.catalogue import catalogue, entry_named
from loaderprobe.system.environment import own_version
from loaderprobe.units import join_words, parse_bytes

GENERATED = "as in ImageNet: the data set is generated"
RECORDED = "as in ImageNet: a recording holds no files"
MEASURED = "measured"
Accelerator = tuple[str, Quantity]
"""Its name and its rate."""
Basis = tuple[PlanWorkload, PlanSource]
"""The figures of a plan, and what they come from."""


def find(
    run: Run | BandwidthReport | Diagnosis | TraceReport | PathLike, data: str | None,
    kind: str | None, file_bytes: Quantity | None,
) -> Basis:  # fmt: skip
    """The workload in a result. Raises BadValue where there is none that fits."""
    path = str(run) if isinstance(run, str | os.PathLike) else ""
    loaded: Any = load_any(Path(path)) if path else run
    accelerator = accelerator_of(kind)
    if isinstance(loaded, Run):
        return _of_sweep(loaded, data, kind, accelerator)
    if data is not None:
        raise BadValue("only a sweep has data sets to choose from", hint="leave --data out")
    if isinstance(loaded, BandwidthReport):
        if accelerator is None:
            hint = "name one: --kind mlperf-h100, or its images/s"
            raise BadValue("a bandwidth result has no accelerator", hint=hint)
        workload = workload_of_bandwidth(loaded, *accelerator)
        source = PlanSource(kind="bandwidth", path=path or loaded.path, data=loaded.path, accelerator=accelerator[0])
        return workload, source
    if isinstance(loaded, Diagnosis):
        workload = workload_of_run(
            loaded.measurement, loaded.verdict, loaded.ceiling, samples=loaded.data.samples, other=accelerator,
            given=file_bytes,
        )  # fmt: skip
        workload, doubts = sure_as_run(workload, loaded.row, loaded.report().how_sure)
        config = loaded.row.config
        return workload, PlanSource(
            kind="run", path=path or "a diagnosis", data=config.resolution, accelerator=workload.accelerator,
            configuration=config.title(), doubts=doubts,
        )  # fmt: skip
    if isinstance(loaded, TraceReport):
        file_bytes = file_bytes or known(IMAGENET_BYTES, "B", "assumed", RECORDED)
        images = known(IMAGENET_IMAGES, "images", "assumed", RECORDED)
        workload = workload_of_trace(loaded, other=accelerator, file_bytes=file_bytes, images=images)
        return workload, PlanSource(kind="trace", path=path or loaded.ranks[0].path, accelerator=workload.accelerator)
    if isinstance(loaded, WatchReport):
        raise BadValue(
            f"{path} holds a training that was only watched: what an image costs was not measured",
            hint="loaderprobe run without --watch",
        )
    raise BadValue(
        f"{path} holds a result that nothing is planned from", hint="give one of sweep, run, bandwidth or trace"
    )


def accelerator_of(kind: str | None) -> Accelerator | None:
    """An accelerator by its name, or by its images/s; None for the one that was measured. Raises BadValue."""
    if kind in (None, MEASURED):
        return None
    name = str(kind).removeprefix("emulated:")
    rate, source = parse_rate(name)
    return name, known(rate, "images/s", "given", source)


def _of_sweep(run: Run, data: str | None, kind: str | None, accelerator: Accelerator | None) -> Basis:
    rows = [row for row in run.report().configurations if row.verdict is not None]
    if not rows:
        raise BadValue(f"{run.path} holds no measured configuration", hint=f"loaderprobe sweep --resume {run.path}")
    label, others = _choose_data(run, rows, data)
    rows = [row for row in rows if row.config.resolution == label]
    row = _choose_row(rows, kind, accelerator)
    assert row.verdict and row.measurement
    files, fingerprint = run.directory.files(row.config.data), row.config.data
    ceiling = beside_results(run.directory, [fingerprint])[1].get(fingerprint)
    emulated = row.config.compute.name.removeprefix("emulated:")
    planned = None if accelerator is None or (row.emulated and emulated == accelerator[0]) else accelerator
    workload = workload_of(row.measurement, row.verdict, files, ceiling, planned)
    if any(data_set.generated and data_set.root == files.root for data_set in run.report().run.data):
        workload = replace(workload, images=known(IMAGENET_IMAGES, "images", "assumed", GENERATED))
    workload, doubts = sure_as_run(workload, row, run.report().how_sure)
    source = PlanSource(
        kind="sweep", path=str(run.path), data=files.root, other_data=others, accelerator=workload.accelerator,
        configuration=row.config.title(), doubts=doubts,
    )  # fmt: skip
    return workload, source


def _choose_data(run: Run, rows: Sequence[ConfigurationRow], data: str | None) -> tuple[str, tuple[str, ...]]:
    """(label, the other labels); without a choice, the set whose files are nearest to ImageNet's in size."""
    labels = list(dict.fromkeys(row.config.resolution for row in rows))
    if data is None:
        sizes = {data_set.label: data_set.mean_size_bytes for data_set in run.report().run.data}
        chosen = nearest_to_imagenet({label: sizes.get(label, 1.0) for label in labels})
    elif data in labels:
        chosen = data
    else:
        raise BadValue(f"the run has no measured data set '{data}'", hint=f"use --data {join_words(labels, 'or')}")
    return chosen, tuple(label for label in labels if label != chosen)


def _choose_row(rows: Sequence[ConfigurationRow], kind: str | None, wanted: Accelerator | None) -> ConfigurationRow:
    """The fastest training, cold if there is one, on the accelerator that is asked for or on the fastest."""
    if kind == MEASURED:
        rows = [row for row in rows if not row.emulated]
        if not rows:
            raise BadValue("no accelerator was measured in this run", hint="name one: --kind mlperf-h100")
    if wanted is not None:
        rows = [row for row in rows if row.config.compute.name == f"emulated:{wanted[0]}"] or list(rows)
    else:
        fastest = max(rows, key=lambda row: (row.verdict and row.verdict.rates_images_per_s.compute) or 0.0)
        rows = [row for row in rows if row.config.compute.name == fastest.config.compute.name]
    return cold_and_fastest(rows)


MOST_ACCELERATORS = 1e7


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Tabled, PlanReport):
    """The storage plan: needs, supplies, caches, its inputs, the acceptance test. Shows itself."""

    document = plan_document
    columns = need_columns

    def made_by(self) -> str:
        """The version of the tool, and of the plan's schema."""
        return f"loaderprobe {self.loaderprobe}, {self.schema} {self.schema_version}"


def plan(
    run: Run | BandwidthReport | Diagnosis | TraceReport | PathLike,
    *,
    accelerators: int | str = 8,
    kind: str | float | None = None,
    utilization: float | str | None = None,
    per_node: int | str | None = None,
    nic: float | str | None = None,
    storage: str | Iterable[str] = (),
    use: float | str | None = None,
    cache: str = "none",
    layout: str | None = None,
    data: str | None = None,
    images: float | str | None = None,
    mean_size: float | str | None = None,
    growth: float | str = 1,
    checkpoint: str | None = None,
    now: datetime | None = None,
) -> Plan:
    """Plan storage for `accelerators` from a sweep, a result of `run`, `bandwidth` or `trace`, or the path of one.

    `kind` is `measured`, the name of an accelerator, or its images/s; without it, the run's fastest. `utilization`
    (0.9) is the share of their rate that the accelerators shall reach, `use` (0.8) the share of a storage's limits
    that one dares to use. `per_node` is 8, of machines that train on their CPU 1. `storage` names entries of the
    catalogue with their size (`fsx-lustre-250:24TiB`) or gives figures (`5GB/s,60kopens/s,2ms,1.5GB/s/client`).
    `cache` is of one node: `page:1TB`, `pinned:1TB`. `layout` is `folder` or `shards:IMAGES`; without it, as a
    sweep read its files, of other results `folder`. `data` chooses a data set of the run; `images` and `mean_size`
    replace what was measured of it. `growth` multiplies the accelerators. `checkpoint` is what training writes, and
    each how many seconds: `205MB:600`. `now` is when the plan is made, in UTC, against which published figures may
    be stale; without it, this moment.

    Raises BadValue for what cannot be planned from, and for impossible values; MissingPart for a broken plug-in.
    """
    if now is None:
        from loaderprobe.system.host import utc_now

        now = utc_now()
    file_bytes = count = None
    if mean_size is not None:
        file_bytes = known(quantities.size(mean_size, "--mean-size"), "B", "given", "mean_size")
    if images is not None:
        count = known(quantities.count(images, "--images", most=quantities.MOST), "images", "given", "images")
    workload, source = find(run, data, None if kind is None else str(kind), file_bytes)
    times, usual = quantities.factor(growth, "--growth"), 1 if source.on_cpu else 8
    grown = times * quantities.count(accelerators, "--accelerators", most=MOST_ACCELERATORS)
    asked = Asked(
        accelerators=ceil(round(grown, 6)),  # a part of one counts as one
        utilization=UTILIZATION if utilization is None else quantities.share(utilization, "--utilization"),
        utilization_given=utilization is not None,
        use=USE if use is None else quantities.share(use, "--use"),
        use_given=use is not None,
        per_node=quantities.count(usual if per_node is None else per_node, "--per-node", most=MOST_ACCELERATORS),
        nic_bytes_per_s=None if nic is None else quantities.byte_rate(nic, "--nic"),
        images_per_file=workload.images_an_open if layout is None else quantities.layout(layout),
        growth=times,
        cache=quantities.cache(cache),
        checkpoint=None if checkpoint is None else quantities.checkpoint(checkpoint),
    )
    storages = [storage] if isinstance(storage, str) else list(storage)
    entries = catalogue() if any(not text[:1].isdigit() for text in storages) else ()
    offers = [_offer(text.strip(), entries, now.date()) for text in storages]
    workload = as_asked(workload, asked.images_per_file, images=count, file_bytes=file_bytes)
    if asked.cache.kind != "none" and workload.images is None:
        raise BadValue("a cache is compared with the size of the set, which is not known", hint="add --images")
    made = make_plan(
        workload, asked, offers, source, loaderprobe=own_version(),
        created_utc=now.isoformat(timespec="seconds"),
    )  # fmt: skip
    return Plan(**values(made))


def _offer(text: str, entries: tuple[CatalogueEntry, ...], today: date) -> PlanSupply:
    if text[:1].isdigit():
        return given_offer(text, quantities.storage_figures(text))
    name, colon, bought = text.partition(":")
    entry, size = entry_named(entries, name), None
    if colon and entry.unit == "TiB":
        size = parse_bytes(bought) / 2**40
    elif colon:
        size = float(quantities.count(bought.removesuffix(entry.unit).strip(), f"--storage {entry.name}:"))
    return catalogue_offer(entry, name, size, today)

"""From the results of a run to the `Report` that renderers show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import ceil

from loaderprobe.analyze.advice import Recommendation, recommend, recommend_groups
from loaderprobe.analyze.answer import answered, layout_notes, with_warm_notes
from loaderprobe.analyze.forecast import Surroundings
from loaderprobe.analyze.gpu import checked_against_rates
from loaderprobe.analyze.plan.workload import (
    cold_and_fastest,
    cores_of,
    demand,
    feed_of,
    known,
    nearest_to_imagenet,
    pace_of,
    workload_of,
)
from loaderprobe.analyze.verdict.experiments import rates_alone
from loaderprobe.analyze.verdict.judge import Judged, ablations, steps_held_up
from loaderprobe.analyze.verdict.one_thread import one_thread_notes
from loaderprobe.analyze.verdict.rates import NS, function_times, segment_rate
from loaderprobe.analyze.verdict.validity import disturbance_notes
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.records import by_key, values
from loaderprobe.records.config import RATES, RunConfig
from loaderprobe.records.environment import Environment
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import NO_STEP, Measurement, RunFailure, Segment
from loaderprobe.records.phases import NO_CEILING, StorageCeiling
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.report import (
    ConfigurationRow,
    DamagedFile,
    DataInfo,
    Detail,
    Outlook,
    RankRow,
    Report,
    Role,
    RunInfo,
    Status,
    StorageNeed,
)
from loaderprobe.records.resources import INPUTS, Bottleneck
from loaderprobe.records.studies import (
    ITERATIONS,
    BufferEffect,
    EpochFigures,
    Epochs,
    EpochsMeasured,
    Fit,
    Prefilled,
    ShortRun,
    free_batches,
    over_steady,
)
from loaderprobe.records.supply import Quantity
from loaderprobe.records.thresholds import ALIKE, AT_LIMIT, FITS_IN_PART, NO_NEXT_LIMIT, USE, UTILIZATION
from loaderprobe.records.verdict import Knee, Verdict
from loaderprobe.stats import median


def next_limits(verdict: Verdict, workers: int, *, own_threads: bool = False) -> dict[str, Bottleneck]:
    """What limits training next, by resource that is made free, for the speed-ups that are known.

    Of a loader with threads of its own, the training thread just waits: only looks show for what.
    """
    if own_threads and verdict.worker_time and not verdict.worker_time.waits:
        verdict = replace(verdict, worker_time=None)
    known = {name: speedup.value for name in (*INPUTS, "compute") if (speedup := verdict.speedups[name])}
    compute, cores = verdict.rates_images_per_s.compute, verdict.rates_images_per_s.cpu_limit
    limits: dict[str, Bottleneck] = {}
    for free, gain in known.items():
        rate = verdict.images_per_s.value * gain
        if free != "compute" and compute and rate >= AT_LIMIT * compute:
            limits[free] = "compute"
        elif free != "preprocessing" and cores and rate >= AT_LIMIT * cores:
            limits[free] = "cores"
        elif part := _largest_part(verdict, free, gain, workers):
            limits[free] = part
    return limits


def _largest_part(verdict: Verdict, free: str, gain: float, workers: int) -> Bottleneck | None:
    """Of a worker's time for one image; the rest of it is sending."""
    spent, loader = verdict.worker_time, verdict.rates_images_per_s.loader
    if spent is None or not loader:
        return None
    helped_s = max(0.0, spent.blocked_s - sum(spent.waits.values())) if spent.waits else 0.0
    parts: dict[Bottleneck, float] = {
        "storage": spent.waits.get("storage", spent.blocked_s),
        "preprocessing": spent.cpu_s + spent.run_delay_s + helped_s,
        "transport": max(0.0, max(workers, 1) / loader - spent.cpu_s - spent.run_delay_s - spent.blocked_s),
    }
    # The faster training would ask for little of its ceiling.
    idle = verdict.disk_ceiling_fraction is not None and verdict.disk_ceiling_fraction * gain < NO_NEXT_LIMIT
    left = {name: part_s for name, part_s in parts.items() if name != free and not (idle and name == "storage")}
    return max(left, key=lambda name: left[name])


SEEN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Of what was measured."""


def enough(free: float, most: float) -> int:
    """Iterations from which on `over_steady` is within 2 % of 1: 51 times the free batches, unless compute limits."""
    return 1 if most <= 1 + ALIKE else ceil(free * (1 + ALIKE) / ALIKE)


def buffer_effect(measurement: Measurement, verdict: Verdict, study: Prefilled | None) -> BufferEffect | None:
    """How much too fast a short run is that begins with a full buffer; None without a buffer, or without rates.

    As measured, else as the rates of the verdict have it.
    """
    loader, compute = measurement.config.loader, verdict.rates_images_per_s.compute
    if not loader.batches_ahead or compute is None:
        return None
    free = free_batches(loader)
    # The study is of one process.
    usable = study if study is not None and study.prefilled is not None and measurement.ranks == 1 else None
    rates = [verdict.images_per_s.value]
    if usable:
        rates = [segment_rate(measurement, part) for part in usable.steady]
    steady = len(rates) / sum(1 / rate for rate in rates)
    most = max(1.0, compute / steady)
    first = {iteration: over_steady(iteration, free, most) for iteration in ITERATIONS}
    if usable and usable.prefilled:
        first = {count: rate / steady for count, rate in _rates(usable.prefilled).items()}
    return BufferEffect(
        batches=loader.batches_ahead,
        free=free,
        how="measured" if usable else "estimated",
        runs=tuple(ShortRun(iterations=count, over_steady=ratio) for count, ratio in first.items()),
        most=most,
        enough=enough(free, most),
        noise=(max(rates) - min(rates)) / 2 / steady,
        reason=study.reason if study else None,
    )


def _rates(segment: Segment) -> dict[int, float]:
    """Images/s over the first `SEEN` of its steps, to the end of the last of them on the device."""
    begin = segment.begin_ns[0]
    return {
        count: count * segment.batch_size * NS / (segment.finished_ns[count - 1] - begin)
        for count in SEEN
        if count <= len(segment.finished_ns) and segment.finished_ns[count - 1] > begin
    }


def epochs_of(measured: EpochsMeasured, files: FileSet | None) -> Epochs:
    """Rate and cold share of each epoch. `files` are those that an epoch reads; None where they are not known."""
    whole_over_used = files.images_found / files.count if files else 1.0
    size, memory = measured.set_bytes, measured.memory_bytes
    fit: Fit | None = None
    if memory is not None:
        fit = "fits" if memory >= size else "fits in part" if memory >= FITS_IN_PART * size else "does not fit"
    return Epochs(
        epochs=tuple(
            EpochFigures(images_per_s=epoch.images / epoch.wall_s, cold_fraction=epoch.cold_fraction)
            for epoch in measured.epochs
        ),
        set_bytes=size,
        memory_bytes=memory,
        fit=fit,
        whole_set_bytes=size * max(1.0, whole_over_used),
        reason=measured.reason,
    )


COUNTS = (1, 8, 64)
"""Accelerators: one, a machine, a small cluster."""
REFERENCE = "mlperf-h100"
"""What is planned for where only a CPU trained: its own rate says nothing of an accelerator."""
_REFERENCE_SOURCE = "MLPerf Storage v1.0, ResNet-50 on H100"


def outlooks(
    rows: Sequence[ConfigurationRow], files: Iterable[FileSet], ceilings: Mapping[str, StorageCeiling]
) -> tuple[Outlook, ...]:
    """What `COUNTS` accelerators ask of storage and cores, for each data set and accelerator: the figures of a plan.

    For a CPU only where the run has nothing else, and then of `REFERENCE`.
    """
    by_fingerprint = {file.fingerprint: file for file in files}
    judged = [row for row in rows if row.verdict and row.config.compute.kind != NO_STEP]
    devices = [row for row in judged if row.config.compute.kind != "cpu"]
    reference = None if devices else (REFERENCE, known(RATES[REFERENCE], "images/s", "given", _REFERENCE_SOURCE))

    def alike(row: ConfigurationRow) -> tuple[str, str, str]:
        """The rate of a reference does not depend on what was trained here."""
        return row.config.data, row.config.compute.name, row.config.compute.model if devices else ""

    needs: list[Outlook] = []
    for (data, _, _), group in by_key(devices or judged, alike).items():
        fewest = min(row.config.ranks for row in group)
        row = cold_and_fastest([row for row in group if row.config.ranks == fewest])
        if file_set := by_fingerprint.get(data):
            made = _outlook(row, file_set, ceilings.get(data), reference)
            needs += [made] if made else []
    sizes, planned = {file_set.label: file_set.mean_size_bytes for file_set in by_fingerprint.values()}, ""
    if needs and len(sizes) > 1:
        planned = nearest_to_imagenet({outlook.data: sizes.get(outlook.data, 1.0) for outlook in needs})
    return tuple(replace(outlook, planned=outlook.data == planned) for outlook in needs)


def _outlook(
    row: ConfigurationRow, files: FileSet, ceiling: StorageCeiling | None, reference: tuple[str, Quantity] | None
) -> Outlook | None:
    measurement = row.measurement
    assert row.verdict and measurement
    try:
        workload = workload_of(measurement, row.verdict, files, ceiling, reference)
    except BadValue:
        return None
    demands = demand(workload, UTILIZATION, workload.images_an_open)
    specified = reference is not None or measurement.compute.specified_images_per_s is not None
    cores = cores_of(workload, UTILIZATION)
    feed, storage = feed_of(workload), workload.storage
    supply = replace(storage.limits[0], feeds=feed.count) if feed and storage else None
    return Outlook(
        data=row.config.resolution,
        compute=row.config.compute.name,
        model=row.config.compute.model,
        accelerator=workload.accelerator if specified else measurement.compute.device,
        images_per_s=workload.rate.value,
        source=workload.rate.source,
        specified=specified,
        utilization=UTILIZATION,
        use=USE,
        needs=tuple(
            StorageNeed(
                accelerators=count,
                read_bytes_per_s=count * demands["read_bytes"].value,
                files_per_s=count * demands["opens"].value,
            )
            for count in COUNTS
        ),
        cores=cores.value if cores else None,
        supply=supply,
        missing=None if supply else workload.refused.get("measured_storage"),
        pace=pace_of(workload.accelerator) if specified else None,
    )


def rank_rows(measurement: Measurement) -> tuple[RankRow, ...]:
    """The ranks by how fast each is by itself, the slowest first; none of one rank, and of those of a script."""
    if len(measurement.by_rank) < 2:
        return ()
    in_step, alone = (measurement.config.mode, "loader_only", None), rates_alone(measurement)
    positions = [index for index, segment in enumerate(measurement.segments) if segment.kind == in_step]
    rows = [
        RankRow(
            rank=rank.rank,
            node=rank.node,
            host=rank.host,
            alone_images_per_s=alone.get(rank.rank),
            input_s=median([rank.input_ns[index] / NS for index in positions] or [0.0]),
            waiting_s=median([rank.meet_ns[index] / NS for index in positions] or [0.0]),
        )
        for rank in measurement.by_rank
    ]
    order = sorted(rows, key=lambda row: (row.alone_images_per_s or 0.0, -row.input_s))
    roles: dict[int, Role] = {order[len(order) // 2].rank: "median"}
    roles |= {order[-1].rank: "fastest", order[0].rank: "slowest"}
    return tuple(replace(row, role=roles.get(row.rank)) for row in order)


Result = Measurement | RunFailure | DamagedFile | None
Outcome = Judged | RunFailure | DamagedFile | None
Study = Prefilled | EpochsMeasured
BROKEN_DOWN = (LoaderprobeError, ArithmeticError, ValueError, LookupError)
"""What arithmetic raises on figures that no machine measured."""


def build_report(
    *, name: str, created_utc: str, command: str, environment: Environment,
    files: Sequence[FileSet], results: Sequence[tuple[RunConfig, Result]],
    ceilings: Mapping[str, StorageCeiling],
    damaged: Sequence[DamagedFile] = (), studies: Iterable[Study] = (),
) -> Report:  # fmt: skip
    """Judge every result and put them together, in the order of the sweep.

    `ceilings` of the storage are by file set; `damaged` are files of the run beside its results; `studies` were
    measured beside the verdicts. A measurement that cannot be judged spoils its own row.
    """
    around = {file.fingerprint: _around(file, environment, ceilings.get(file.fingerprint)) for file in files}

    def judged(*, alone: bool) -> tuple[list[tuple[RunConfig, Outcome]], dict[str, Recommendation], tuple[Knee, ...]]:
        outcomes = [(config, _judged(result, ceilings.get(config.data), alone=alone)) for config, result in results]
        experiments = {config.key: outcome.experiments for config, outcome in outcomes if isinstance(outcome, Judged)}
        made, knees = recommend_groups([*experiments.values()], around, RATES)
        if not alone:
            json.dumps([asdict(advice) for advised in made.values() for advice in advised.advice], allow_nan=False)
        return outcomes, made, knees

    try:
        outcomes, recommendations, knees = judged(alone=False)
    except BROKEN_DOWN:  # advice on each alone shows which measurements are at fault
        outcomes, recommendations, knees = judged(alone=True)
    beside = by_key(studies, lambda study: study.config.key)
    rows = [
        _measured_row(outcome, recommendations[config.key], beside.get(config.key, ()), files)
        if isinstance(outcome, Judged)
        else _unmeasured_row(config, outcome)
        for config, outcome in outcomes
    ]
    plain_results = [outcome.measurement if isinstance(outcome, Judged) else outcome for _, outcome in outcomes]
    report = answered(
        Report(
            run=run_info(name, created_utc, command, files, plain_results, damaged),
            environment=environment,
            configurations=tuple(rows),
            knees=knees,
            needs=outlooks(rows, files, ceilings),
        )
    )
    run = replace(report.run, notes=(*report.run.notes, *layout_notes(report)))
    return with_warm_notes(replace(report, run=run))


def _judged(result: Result, ceiling: StorageCeiling | None, *, alone: bool) -> Outcome:
    """A measurement, judged; file and reason where its verdict, or advice on it alone, breaks down. Else the result."""
    if not isinstance(result, Measurement):
        return result
    try:
        judged = Judged(measurement=result, ceiling=ceiling)
        advice = recommend(judged.experiments, Surroundings(storage=ceiling or NO_CEILING)).advice if alone else ()
        json.dumps(asdict(replace(judged.verdict, advice=advice)), allow_nan=False)
        return judged
    except BROKEN_DOWN as error:
        reason = f"{type(error).__name__}: {error}"
    return DamagedFile(file=f"measurements/{result.config.key}.json", reason=f"cannot be judged: {reason}")


def run_info(
    name: str, created_utc: str, command: str, files: Sequence[FileSet], results: Sequence[Result],
    damaged: Sequence[DamagedFile],
) -> RunInfo:  # fmt: skip
    """The run that these results are of, in the order of its configurations."""
    pending = sum(result is None for result in results)
    return RunInfo(
        name=name,
        created_utc=created_utc,
        command=command,
        complete=pending == 0,
        pending=pending,
        wall_s=sum(result.wall_s for result in results if isinstance(result, Measurement | RunFailure)),
        data=tuple(
            DataInfo(
                **values(file_set, "label", "root", "generated", "images_found", "mean_size_bytes", "skipped_count"),
                images_used=len(file_set.paths),
                skipped=tuple(f"{file.path}: {file.reason}" for file in file_set.skipped),
                staged=file_set.staged,
            )
            for file_set in files
        ),
        notes=disturbance_notes(result for result in results if isinstance(result, Measurement)),
        damaged=(*damaged, *dict.fromkeys(result for result in results if isinstance(result, DamagedFile))),
    )


def _around(files: FileSet, environment: Environment, ceiling: StorageCeiling | None) -> Surroundings:
    mean, below = files.mean_size_bytes, environment.below(files.root)
    return Surroundings(
        storage=ceiling or NO_CEILING, root=files.root, size_bytes=mean * files.images_found,
        memory_bytes=environment.memory_bytes, image_bytes=mean if files.layout == "files" else 0.0,
        read_ahead_bytes=(below.read_ahead_bytes if below else None) or 0, generated=files.generated,
    )  # fmt: skip


def row_of(judged: Judged, advised: Recommendation) -> ConfigurationRow:
    """What a measurement says, with the advice on it. Raises BadValue without a complete round."""
    measurement, verdict = judged.measurement, judged.verdict
    return ConfigurationRow(
        config=measurement.config,
        status="measured",
        reason=None,
        verdict=replace(verdict, advice=advised.advice),
        emulated=measurement.compute.specified_images_per_s is not None,
        forecasts=advised.forecasts,
        gpu_window=checked_against_rates(judged.window[0], verdict.accelerator_utilization),
        measurement=measurement,
    )


def _measured_row(
    judged: Judged, advised: Recommendation, beside: Sequence[Study], files: Sequence[FileSet]
) -> ConfigurationRow:
    """With what was measured beside it."""
    row = row_of(judged, advised)
    prefilled = next((study for study in beside if isinstance(study, Prefilled)), None)
    epochs = next((study for study in beside if isinstance(study, EpochsMeasured)), None)
    file_set = next((file for file in files if file.fingerprint == row.config.data), None)
    return replace(
        row,
        buffer=buffer_effect(judged.measurement, judged.verdict, prefilled),
        epochs=None if epochs is None else epochs_of(epochs, file_set),
        detail=detail_of(judged),
    )


def _unmeasured_row(config: RunConfig, failure: RunFailure | DamagedFile | None) -> ConfigurationRow:
    status: Status = "skipped" if failure is None else "failed"
    reason = Remark(code="not_measured")
    if isinstance(failure, DamagedFile):
        reason = Remark(code="result_damaged", facts={"file": failure.file, "error": failure.reason})
    elif failure is not None:
        facts: Facts = {"error": failure.reason, "stage": failure.stage, "hint": failure.hint}
        if failure.rank is not None:
            facts |= {"rank": str(failure.rank), "host": failure.host}
        reason = Remark(code="failed", facts=facts)
    emulated = config.compute.name.startswith("emulated")
    return ConfigurationRow(config=config, status=status, reason=reason, verdict=None, emulated=emulated)


def detail_of(judged: Judged) -> Detail:
    """What the report draws of a measurement beyond its row. Raises BadValue without a complete round."""
    measurement, verdict, stacks = judged.measurement, judged.verdict, judged.measurement.stacks
    workers = max(1, measurement.workers) * measurement.ranks
    held_up = steps_held_up(judged.experiments.measurement)
    others = round(float(verdict.gpu.get("other_processes", 0))) - (measurement.ranks - 1)
    shared = (Remark(code="gpu_shared", facts={"processes": others}),) if others > 0 else ()
    return Detail(
        key=measurement.config.key,
        compute_device=measurement.compute.device,
        compute_source=measurement.compute.source,
        first_batch_s=measurement.first_batch_s,
        notes=(*measurement.notes, *one_thread_notes(measurement), *held_up, *shared),
        ablations=ablations(measurement),
        view=judged.window[1],
        ranks=rank_rows(measurement),
        then=next_limits(verdict, workers, own_threads=measurement.own_threads),
        sample="image" if measurement.images else "sample",
        functions=function_times(stacks),
        looks=sum(stacks.counts) if stacks else 0,
        looks_cpu_s=stacks.cpu_ns / NS if stacks else 0.0,
    )

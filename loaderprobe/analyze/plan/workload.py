"""What a plan starts from: figures of one accelerator, file and read; what accelerators need, and storage gives."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from loaderprobe.analyze.verdict.rates import rate_interval, rates_by_round
from loaderprobe.errors import BadValue
from loaderprobe.records.config import RATES, RECIPES
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import NO_STEP, Measurement, segments_of
from loaderprobe.records.phases import FROM_STORAGE, BandwidthPhase, StorageCeiling, fastest
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.resources import SingleCause
from loaderprobe.records.supply import WEAKNESS, Asked, Feed, Label, PlanPart, PlanSupply, Quantity, SupplyLimit
from loaderprobe.records.thresholds import NORMAL, OTHER_READS, SATURATED, WORTH
from loaderprobe.records.verdict import Verdict

# Figures with ranges and labels, and the two ways to put them together: products and sums.
#
# Relative half-widths of a product, absolute ones of a sum, add in quadrature: the inputs were measured independently.


def known(
    value: float, unit: str, label: Label, source: str, *, half: float = 0.0, low: float | None = None
) -> Quantity:
    """A figure that is an input: measured, given, published or assumed. `half` is half its 95 % interval."""
    least = max(0.0, value - half) if low is None else low
    return Quantity(value=value, low=least, high=value + half, unit=unit, label=label, weakest=label, source=source)


def product(
    inputs: Sequence[Quantity], unit: str, formula: str, *, factor: float = 1.0, over: Sequence[Quantity] = ()
) -> Quantity:
    """The inputs multiplied with each other and with `factor`, divided by those in `over`."""
    value = factor * math.prod(input_.value for input_ in inputs) / math.prod(divisor.value for divisor in over)
    halves = (input_.half / input_.value for input_ in (*inputs, *over) if input_.value)
    half = min(1.0, math.sqrt(math.fsum(half**2 for half in halves)))
    return _derived(value, value * half, unit, formula, (*inputs, *over))


def total(inputs: Sequence[Quantity], unit: str, formula: str, *, less: Sequence[Quantity] = ()) -> Quantity:
    """The inputs added up, less the others."""
    value = math.fsum(input_.value for input_ in inputs) - math.fsum(part.value for part in less)
    half = math.sqrt(math.fsum(part.half**2 for part in (*inputs, *less)))
    return _derived(value, half, unit, formula, (*inputs, *less))


def scaled(quantity: Quantity, factor: float, formula: str) -> Quantity:
    """The same figure times an exact number."""
    return replace(
        quantity,
        value=quantity.value * factor,
        low=quantity.low * factor,
        high=quantity.high * factor,
        label="derived",
        formula=formula,
    )


def assumed_too(quantity: Quantity) -> Quantity:
    """The same figure, when an assumption went into it besides."""
    return replace(quantity, label="derived", weakest="assumed")


def _derived(value: float, half: float, unit: str, formula: str, inputs: Sequence[Quantity]) -> Quantity:
    """No better than the weakest label among the inputs."""
    weakest = max((input_.weakest for input_ in inputs), key=WEAKNESS.index)
    return replace(known(value, unit, weakest, "", half=half), label="derived", formula=formula)


REQUEST_BYTES = 128 * 1024
"""What the kernel's read-ahead asks storage for at a time (read_ahead_kb of most Linux systems)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWorkload:
    """One accelerator and its data. None is what the run does not tell; `refused` says why."""

    accelerator: str
    compute: str
    """For `sweep --compute`; empty where the accelerator is a real one."""
    rate: Quantity
    """Images/s of one accelerator alone."""
    file_bytes: Quantity
    """Bytes of one image's file."""
    requests_per_file: Quantity
    amplification: Quantity
    """Storage bytes over bytes asked for."""
    images: Quantity | None
    """In the whole data set; None where it was not counted."""
    images_an_open: int = 1
    """Images that are read before another file is opened; 0 where large files hold them, how many is not known."""
    times: Mapping[str, Quantity] = field(default_factory=dict)
    """Of a worker for one image, as far as they are known: cpu_s, wait_s for its file, other_s that is neither."""
    storage: PlanSupply | None = None
    """That the run itself measured; its first limit is the bandwidth."""
    files: SupplyLimit | None = None
    """The files/s that it gave: of files of another size, what it opens at least."""
    refused: Mapping[PlanPart, Remark] = field(default_factory=dict)
    notes: tuple[Remark, ...] = ()


def requests(sizes: Sequence[float], *, exact: bool) -> Quantity:
    """Read requests of one file, on average; not `exact` where only the mean size is known."""
    mean = sum(max(1, math.ceil(size / REQUEST_BYTES)) for size in sizes) / len(sizes)
    source = "sizes of the files" if exact else "the mean size"
    return known(mean, "requests", "assumed", f"{source}, requests of {REQUEST_BYTES // 1024} KiB")


HERE = "measured here"


def storage_of(
    measurement: Measurement, file_bytes: float, ceiling: StorageCeiling | None
) -> tuple[PlanSupply, SupplyLimit] | Remark:
    """What the measured ceiling says, over files of this mean size; or why it says nothing."""
    if measurement.storage_kind == "memory":
        return Remark(code="no_storage_behind_files")
    if ceiling is None or not ceiling.phases:
        if ceiling is None or ceiling.missing is None:
            return Remark(code="no_ceiling")
        return Remark(code="unavailable", facts=ceiling.missing.because)
    return best_of(ceiling.phases, file_bytes)


def best_of(ladder: Sequence[BandwidthPhase], file_bytes: float) -> tuple[PlanSupply, SupplyLimit] | Remark:
    """The fastest step of a ladder over files of this mean size, and its files/s; or why it is no storage's rate.

    Of those very files, files/s and bytes/s are one figure: only that of the bytes is a limit of the storage.
    """
    best = fastest(ladder)
    if best is None or not best.bw_bytes > 0:
        return Remark(code="ladder_not_measured")
    if best.cache == "unproved":
        return Remark(code="reads_unproved")
    if best.cache not in FROM_STORAGE:
        return Remark(code="reads_not_cold", facts={"files": best.cache})
    readers, half = f"{best.readers} readers", max(0.0, best.bw_high - best.bw_bytes)
    source, moved = f"{readers} of whole files", best.moved_bytes_per_s
    read = known(moved, "B/s", "measured", source, half=half * (moved / best.bw_bytes))
    rising = rises({phase.readers: phase.bw_bytes for phase in ladder})
    # To open and read one, with the fewest readers and at the best step.
    first = min(ladder, key=lambda phase: phase.readers)
    (low, high), timed = sorted((_mean_s(first), _mean_s(best))), f"{first.readers} and {readers}"
    storage = PlanSupply(
        name=HERE,
        label="measured",
        source=source,
        limits=(SupplyLimit(resource="bandwidth", limit=read, at_least=best.at_least or rising),),
        latency_s=known(high, "s", "measured", timed if first is not best else readers, low=low),
        nodes=best.nodes,
        notes=_notes(best),
    )
    files = known(best.files_per_s, "1/s", "measured", readers, half=half / file_bytes)
    return storage, SupplyLimit(resource="opens", limit=files, at_least=True)


def rises(rates: Mapping[int, float]) -> bool:
    """True when the most readers that were tried gained over fewer: more would get more."""
    last = max(rates)
    return rates[last] > WORTH * max((rate for readers, rate in rates.items() if readers < last), default=0.0)


def _mean_s(phase: BandwidthPhase) -> float:
    """Seconds of one whole file; by Little's law where the engine does not time files."""
    if phase.file_ns is not None:
        return phase.file_ns.mean / 1e9
    return phase.readers / phase.files_per_s if phase.files_per_s else 0.0


def _notes(phase: BandwidthPhase) -> tuple[Remark, ...]:
    others = phase.other_bytes_per_s or 0.0
    busy = others > OTHER_READS * phase.bw_bytes
    read = (Remark(code="others_read", facts={"bytes_per_s": others}),) if busy else ()
    return read if phase.settled else (*read, Remark(code="rate_unsettled"))


IMAGENET_BYTES = 110_000.0
"""Mean size of ImageNet's files."""


def nearest_to_imagenet(mean_sizes: Mapping[str, float]) -> str:
    """The label of the data set whose files are nearest to ImageNet's in size: the usual one to plan for."""
    return min(mean_sizes, key=lambda label: abs(math.log(max(mean_sizes[label], 1.0) / IMAGENET_BYTES)))


def pace_of(accelerator: str) -> Remark | None:
    """That a rate is the pace of a storage benchmark, with that of a training beside it; None for other rates."""
    if (recipe := RECIPES.get(accelerator)) is None:
        return None
    return Remark(
        code="pace_of_a_benchmark",
        facts={"accelerator": accelerator, "recipe": recipe, "recipe_images_per_s": RATES[recipe]},
    )


def cold_and_fastest(rows: Sequence[ConfigurationRow]) -> ConfigurationRow:
    """The configuration to plan from: the fastest training, cold if there is one."""
    return max(rows, key=lambda row: (row.config.cache != "warm", row.images_per_s.value if row.images_per_s else 0.0))


def workload_of(
    measurement: Measurement,
    verdict: Verdict,
    files: FileSet,
    ceiling: StorageCeiling | None,
    other: tuple[str, Quantity] | None = None,
) -> PlanWorkload:
    """The figures of one configuration; `other` names an accelerator that is planned instead, and its rate.

    Raises BadValue where bytes an image or the rate of compute are not known.
    """
    if not files.mean_size_bytes > 0:
        raise BadValue(f"the files of {files.label} are empty: they need nothing of storage")
    workload = measured_workload(
        measurement, verdict, ceiling, other,
        file_bytes=_file_bytes(files),
        requests_per_file=requests(files.size_bytes, exact=True),
        amplification=amplification_of(verdict.read_amplification, "counted in the run"),
        images=known(files.images_found, "images", "measured", "files found"),
    )  # fmt: skip
    return replace(workload, images_an_open=files.images_an_open)


def measured_workload(
    measurement: Measurement, verdict: Verdict, ceiling: StorageCeiling | None, other: tuple[str, Quantity] | None, *,
    file_bytes: Quantity, requests_per_file: Quantity, amplification: Quantity, images: Quantity | None,
) -> PlanWorkload:  # fmt: skip
    """The same from figures of the files. Raises BadValue where the rate of compute is not known."""
    refused: dict[PlanPart, Remark] = {}
    rate, ranks = other[1] if other else _rate(measurement, verdict), measurement.ranks
    if ranks > 1 and not other:
        rate = scaled(rate, 1 / ranks, f"rate of all / {ranks} ranks")
    supply = storage_of(measurement, file_bytes.value, ceiling)
    if isinstance(supply, Remark):
        refused["measured_storage"] = supply
    storage, files = (None, None) if isinstance(supply, Remark) else supply
    times = _worker_times(measurement, verdict, storage)
    if not times:
        refused["cores"] = Remark(code="no_worker_times")
    if (lock := verdict.speedups.get("lock")) and lock.value >= WORTH and times.pop("wait_s", None):
        refused["workers"] = Remark(code="waits_for_lock")
    elif "wait_s" not in times:
        refused["workers"] = Remark(code="file_wait_unknown" if times else "no_worker_times")
    emulated = measurement.compute.specified_images_per_s is not None
    return PlanWorkload(
        accelerator=other[0] if other else measurement.config.compute.name.removeprefix("emulated:"),
        compute=f"emulated:{other[0]}" if other else measurement.config.compute.name if emulated else "",
        rate=rate,
        file_bytes=file_bytes,
        requests_per_file=requests_per_file,
        amplification=amplification,
        images=images,
        storage=storage,
        files=files,
        refused=refused,
        times=times,
    )


def _rate(measurement: Measurement, verdict: Verdict) -> Quantity:
    compute, stepless = measurement.compute, measurement.compute.name == NO_STEP
    if compute.specified_images_per_s is not None and not stepless:
        return known(compute.specified_images_per_s, "images/s", "given", compute.source or "emulated accelerator")
    rates = rates_by_round(measurement, "resident", "training")
    rounds = [s for s in segments_of(measurement, "resident", "training") if math.isfinite(rates[s.round])]
    if stepless or not rounds or verdict.rates_images_per_s.compute is None:
        raise BadValue(
            "the rate of compute alone was not measured in this configuration",
            hint="name an accelerator: --kind mlperf-h100",
        )
    rate = rate_interval(measurement, rounds)
    number = "1 round" if len(rounds) == 1 else f"{len(rounds)} rounds"
    source = f"one batch that stays on the device, {number}"
    return known(rate.value, "images/s", "measured", source, half=rate.high - rate.value)


def _file_bytes(files: FileSet) -> Quantity:
    """The mean size, with the error of a sample from a finite set."""
    used, whole = len(files.size_bytes), max(files.images_found, len(files.size_bytes))
    half = 0.0
    if 1 < used < whole:
        half = NORMAL * statistics.stdev(files.size_bytes) / math.sqrt(used) * math.sqrt((whole - used) / (whole - 1))
    return known(files.mean_size_bytes, "B", "measured", f"{used} of {whole} files", half=half)


def amplification_of(counted: float | None, source: str) -> Quantity:
    """Bytes from storage over bytes of the files: at least 1, as caches may hide reads; 1 where they are not known."""
    if counted is None:
        return known(1.0, "x", "assumed", "what is read ahead was not measured")
    return known(max(1.0, counted), "x", "measured", source if counted >= 1 else f"{source}: below 1, counts as 1")


FOR_FILES: tuple[SingleCause, ...] = ("storage", "network")
"""What a worker waits for until it has a file, wherever that is; other waiting stays the same with faster storage."""


def _worker_times(measurement: Measurement, verdict: Verdict, storage: PlanSupply | None) -> dict[str, Quantity]:
    """The times of a workload.

    Of a loader with threads of its own, only the CPU time of the process is: the training thread just waits.
    """
    times, loader, limit = verdict.worker_time, verdict.rates_images_per_s.loader, verdict.rates_images_per_s.cpu_limit
    own_threads = measurement.own_threads
    if times is None or not loader or (own_threads and not (limit and measurement.worker_batches.process_cpu_ns)):
        return {}
    # With that of other threads of the workers, and of their commands: all of it takes cores.
    cpu_s = measurement.ranks * measurement.cores_available / limit if limit else times.cpu_s
    if own_threads:
        return {"cpu_s": known(cpu_s, "s", "measured", "all threads of the run")}
    source = "workers of the run"
    waited_s = sum(times.waits.get(name, 0.0) for name in FOR_FILES) if times.waits else times.blocked_s
    spent = max(measurement.workers, 1) * measurement.ranks / loader
    other_s = spent - cpu_s - waited_s - times.run_delay_s
    # Below 0 where threads of a worker compute side by side, so that the three are the time of a worker. One thread
    # cannot compute longer than it takes: then batches that were ready before made the loader look faster.
    other_s = other_s if cpu_s > WORTH * times.cpu_s else max(0.0, other_s)
    parts = {
        "cpu_s": known(cpu_s, "s", "measured", source),
        "other_s": known(other_s, "s", "measured", source, low=other_s),
    }
    # Waiting for a file: with the fewest readers, up to what workers waited where the storage kept up.
    from_memory = verdict.files_were in ("warm", "partly warm") or measurement.config.cache == "warm"
    starved = (verdict.disk_ceiling_fraction or 0.0) >= SATURATED
    waits = {} if from_memory or starved else {source: waited_s}
    if storage is not None and storage.latency_s is not None:
        waits["one file at low load"] = storage.latency_s.low
    if waits:
        middle, half = (max(waits.values()) + min(waits.values())) / 2, (max(waits.values()) - min(waits.values())) / 2
        parts["wait_s"] = known(middle, "s", "measured", ", ".join(waits), half=half)
    return parts


# What accelerators need of storage, workers and cores.
#
# G images/s of one accelerator alone, u its wanted utilization, s bytes of a file, a storage bytes over bytes asked
# for, f files opened an image. N accelerators need N times that.

Demand = dict[str, Quantity]
"""Of one accelerator at one utilization, by the name of the need."""


def demand(workload: PlanWorkload, utilization: float, images_per_file: int = 1) -> Demand:
    """What one accelerator needs of storage a second, files cold: bytes, requests and, where they are known, opens."""
    read = product([workload.rate, workload.file_bytes, workload.amplification], "B/s", "G u s a", factor=utilization)
    limit = f"{REQUEST_BYTES // 1024} KiB"
    if images_per_file <= 1:
        factors = [workload.rate, workload.requests_per_file]
        requests = product(factors, "1/s", f"G u ceil(s / {limit})", factor=utilization)
    else:
        requests = assumed_too(scaled(replace(read, unit="1/s"), 1 / REQUEST_BYTES, f"{read.formula} / {limit}"))
    if not images_per_file:
        return {"read_bytes": read, "requests": requests}
    opens = product([workload.rate], "1/s", "G u f", factor=utilization / images_per_file)
    return {"read_bytes": read, "opens": opens, "requests": requests}


def cores_of(workload: PlanWorkload, utilization: float) -> Quantity | None:
    """Cores that one accelerator needs; None where the workload has a reason not to know."""
    if "cpu_s" not in workload.times:
        return None
    workers = product([workload.rate, workload.times["cpu_s"]], "cores", "", factor=utilization / SATURATED)
    training = known(1.0, "cores", "assumed", "one training thread")
    return total([workers, training], "cores", f"G u cpu / {SATURATED:g} + 1")


def in_flight(opens: Quantity, file_s: Quantity) -> Quantity:
    """Reads under way at a time (Little 1961): their rate times how long one takes."""
    reads = product([opens, file_s], "reads", f"{opens.formula} x time of a file")
    return replace(reads, low=opens.value * file_s.low, high=opens.value * file_s.high)


def judge_supply(offer: PlanSupply, one: Demand, asked: Asked) -> PlanSupply:
    """A storage on offer, judged; the limit that is reached first stands first."""
    offered = [limit for limit in offer.limits if limit.resource != "opens" or "opens" in one]
    if asked.nic_bytes_per_s is not None:
        offered.append(SupplyLimit(resource="nic", limit=known(asked.nic_bytes_per_s, "B/s", "given", "nic")))
    limits = sorted((_judged_limit(limit, one, asked) for limit in offered), key=lambda limit: limit.feeds)
    first = limits[0] if limits else None
    timed = offer.latency_s if asked.images_per_file == 1 else None
    return replace(
        offer,
        limits=tuple(limits),
        first_limit=first.resource if first else None,
        feeds=first.feeds if first else None,
        at_least=first.at_least if first else False,
        reads_in_flight=None if timed is None else in_flight(one["opens"], timed),
    )


ONE = Asked(accelerators=1)
"""What is asked of a storage when nothing else is said."""


def feed_of(workload: PlanWorkload) -> Feed | None:
    """How many of the accelerators of a workload its storage feeds; None where it has none that counts."""
    offer = workload.storage
    supply = judge_supply(offer, demand(workload, ONE.utilization), ONE) if offer else None
    if supply is None or supply.feeds is None or supply.first_limit is None:
        return None
    return Feed(
        accelerator=workload.accelerator, images_per_s=workload.rate.value, count=supply.feeds,
        utilization=ONE.utilization, use=ONE.use, first_limit=supply.first_limit, at_least=supply.at_least,
    )  # fmt: skip


def _judged_limit(offered: SupplyLimit, one: Demand, asked: Asked) -> SupplyLimit:
    limit, need = offered.limit, one.get(offered.resource, one["read_bytes"])
    if offered.resource in ("client", "nic"):
        # Of each node, and of the last node only as much as of the others: what it has to spare is of no use to them.
        nodes = asked.accelerators / asked.of_node
        limit = replace(scaled(limit, nodes, "N/A x limit of a node"), label=limit.label)
    return replace(offered, limit=limit, feeds=asked.use * limit.value / need.value)

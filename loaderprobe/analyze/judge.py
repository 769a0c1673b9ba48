"""Everything that follows from one measurement, as one `Verdict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from loaderprobe.analyze.gpu import (
    WindowReading,
    checked_against_rates,
    gpu_figures,
    read_window,
    why_missing,
    why_no_counters,
)
from loaderprobe.analyze.verdict.experiments import Experiments, run_experiments
from loaderprobe.analyze.verdict.rates import bytes_per_image, step_time
from loaderprobe.analyze.verdict.rule import judge, speedups_among, with_certainty, with_gaps, with_ranks
from loaderprobe.analyze.verdict.validity import by_waiting, disk_use, evidence_of, files_were
from loaderprobe.errors import BadValue
from loaderprobe.records.measurement import NO_STEP, Measurement, Segment, segments_of
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.resources import IN_GAPS, INPUTS, ONLY_WAITED, SPEEDUPS, SingleCause
from loaderprobe.records.thresholds import CLEAR_LEAD, SATURATED, UNBOUNDED, UNEVEN, UTILIZATION, WAIT_MODERATE, WORTH
from loaderprobe.records.verdict import Bound, Evidence, GpuWindow, Rates, Verdict
from loaderprobe.stats import median


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A measurement, judged with the ceiling of its storage where there is one. Each figure is made once, when asked.

    Raises BadValue for a verdict, or what follows from it, without a complete round; `is_open` and its kin do not.
    Advice needs to know what is beside a measurement: a report adds it.
    """

    measurement: Measurement
    ceiling: StorageCeiling | None = None

    @cached_property
    def experiments(self) -> Experiments:
        return run_experiments(self.measurement, self.ceiling)

    @cached_property
    def window(self) -> WindowReading:
        return read_window(self.measurement)

    @cached_property
    def verdict(self) -> Verdict:
        return _verdict(self.experiments, self.ceiling, self.window)

    @property
    def bound(self) -> Bound:
        return self.verdict.bound

    @property
    def is_complete(self) -> bool:
        """False without a complete round: then there is no verdict."""
        return bool(self.experiments.end_to_end and self.experiments.loader)

    @property
    def is_open(self) -> bool:
        """True where no cause can be named yet."""
        return not self.is_complete or self.bound.cause == "inconclusive"

    @property
    def is_unsure(self) -> bool:
        """True where no cause can be named, or one of several may be it."""
        return self.is_open or self.bound.cause == "either"

    @property
    def is_uneven(self) -> bool:
        """True where the rates of rounds differ by a factor: something else happened in one of them."""
        rates = self.experiments.end_to_end.values()
        return len(rates) > 1 and max(rates) >= UNEVEN * min(rates)

    @property
    def images_per_s(self) -> float | None:
        """Of training; None without a complete round."""
        return self.verdict.images_per_s.value if self.is_complete else None

    @property
    def storage_advised(self) -> bool:
        """True where faster storage may be advised, or more workers, which ask more of it than was seen."""
        return self.is_complete and (self.bound.cause == "preprocessing" or self.storage_matters(WORTH))

    def storage_matters(self, least: float = CLEAR_LEAD) -> bool:
        """False where storage, or the network to it, cannot be the limit, and if free would gain less than `least`."""
        if not self.is_complete:
            return False  # nothing is known that a ceiling could explain
        bound, speedups = self.bound, self.verdict.speedups
        estimate = speedups["preprocessing"]
        if estimate is not None and estimate.how == "estimated" and bound.cause in ("preprocessing", "cpu", "either"):
            return True  # however little workers wait: without their work the storage may be at its limit
        name, gain = "storage", speedups["storage"]
        if self.measurement.is_remote:
            name, gain = "network", speedups["network"]
        return gain is None or gain.value >= least or name in (bound.cause, *bound.candidates)


def verdict(measurement: Measurement, ceiling: StorageCeiling | None = None) -> Verdict:
    """The verdict on one measurement, without advice. Raises BadValue without a complete round."""
    return Judged(measurement=measurement, ceiling=ceiling).verdict


def _verdict(found: Experiments, ceiling: StorageCeiling | None, reading: WindowReading) -> Verdict:
    measurement = found.measurement
    images_per_s = found.rate
    if images_per_s is None or not found.loader:
        raise BadValue(f"{measurement.config.title()}: the measurement has no complete round")
    trained = segments_of(measurement, found.base, measurement.judged)
    rates = _rates(found)
    disk, not_counted = disk_use(measurement, trained, ceiling, images_per_s.value)
    wait = _wait_fraction(trained, found.loop.overhead_s)
    utilization = median(found.end_to_end.values()) / found.compute if found.compute else None
    # The verdict uses none of these. The first two are what other tools judge by.
    beside = (
        *evidence_of(
            [
                ("input_wait_fraction", wait, WAIT_MODERATE),
                ("accelerator_utilization", utilization, UTILIZATION),
                ("disk_ceiling_fraction", disk["disk_ceiling_fraction"], SATURATED),
                ("cold_fraction", disk["cold_fraction"], None),
            ]
        ),
        *evidence_of([("read_amplification", disk["read_amplification"], None)], unit="x"),
        *evidence_of([("other_read_bytes_per_s", disk["other_read_bytes_per_s"], None)], unit="bytes/s"),
    )
    gpu = gpu_figures(measurement, trained)
    speedups = speedups_among(found) | found.speedups
    timed = next((way for way in measurement.alternatives if way.name == "decoded"), None)
    # Of the CPU time of an image, what is gone where it was decoded before.
    decoding = None if timed is None else max(0.0, 1 - timed.cpu_s / timed.usual_cpu_s)
    return Verdict(
        images_per_s=images_per_s,
        complete_rounds=len(found.end_to_end),
        rates_images_per_s=rates,
        speedups={name: speedups.get(name) for name in SPEEDUPS},
        predicted_images_per_s=median(found.predictions.values()) if found.predicted else None,
        prediction_error=found.prediction_error[0],
        input_wait_fraction=wait,
        accelerator_utilization=utilization,
        bytes_per_image=bytes_per_image(measurement, trained),
        **disk,
        gpu=gpu,
        bound=_bound(found, disk, beside, checked_against_rates(reading.window, utilization)),
        advice=(),
        step_time=step_time(trained, images_per_s.value),
        worker_time=found.cost.per_image(measurement.ranks) if found.cost else None,
        files_were=files_were(measurement),
        decoding_cpu_fraction=decoding,
        instrument_cpu_fraction=found.cost.instrument_cpu_fraction if found.cost else None,
        unavailable=not_counted
        | _unavailable(found, rates)
        | why_no_counters(measurement, gpu)
        | reading.missing
        | ({} if decoding is not None else {"decoding_cpu_fraction": Remark(code="decoding_not_timed")}),
    )


def _bound(
    found: Experiments, disk: Mapping[str, float | None], beside: tuple[Evidence, ...], window: GpuWindow | None
) -> Bound:
    by_rates = with_certainty(judge(found), found)
    judgement = with_ranks(with_gaps(by_rates, window), found)
    facts = judgement.reason.facts | _rate_facts(found) | _file_facts(found.measurement, judgement)
    read, share = disk["disk_read_bytes_per_s"], disk["disk_ceiling_fraction"]
    if judgement.cause == "storage" and read is not None and share is not None:
        readers = float(found.measurement.config.readers)
        facts |= {"read_bytes_per_s": read, "ceiling_fraction": share, "concurrency": readers}
    reason, evidence = replace(judgement.reason, facts=facts), (*judgement.evidence, *beside)
    return replace(judgement, reason=reason, evidence=evidence)


def _rate_facts(found: Experiments) -> Facts:
    """Images/s of what is judged, of the loader and of compute; whether compute is emulated."""
    compute = found.measurement.compute
    alone = compute.name == NO_STEP
    training, loader = median(found.end_to_end.values()), median(found.loader.values())
    facts: Facts = {
        "judged": "loader" if alone else "training",
        "images_per_s": loader if alone else training,
        "loader_images_per_s": loader,
        "device": "emulated" if compute.specified_images_per_s is not None else "measured",
    }
    facts |= {f"{estimated_part}_how": "estimated" for estimated_part in sorted(found.estimated_parts)}
    if found.compute:
        facts |= {"compute_images_per_s": found.compute, "utilization": training / found.compute}
    return facts


def _file_facts(measurement: Measurement, judgement: Bound) -> Facts:
    """That files were not cold as asked; that only the workers' waiting separates cold reads from warm ones."""
    if judgement.cause == "inconclusive":
        return {}
    facts: Facts = {}
    state = files_were(measurement)
    if state in ("warm", "partly warm") and measurement.config.cache != "warm":
        facts["files_were"] = state
    if by_waiting(measurement) and judgement.cause not in ("compute", "balanced", *IN_GAPS):
        facts["cold_reads_known_by"] = "waiting"
    return facts


def _rates(found: Experiments) -> Rates:
    def without(resource: SingleCause) -> float | None:
        rates = found.without.get(resource, {})
        # A rate without bound (nothing else takes time) is no figure to print.
        bounded = all(rate < UNBOUNDED * found.loader[number] for number, rate in rates.items())
        return median(rates.values()) if rates and bounded else None

    cpu_s, loader = found.cost.all_cpu_s / found.cost.images if found.cost else 0.0, median(found.loader.values())
    of_cores = found.measurement.cores_available / cpu_s if cpu_s else None
    if of_cores and found.cost and found.cost.commands_s:
        of_cores = max(of_cores, loader)  # of so many commands not all had a core
    return Rates(
        compute=found.compute,
        loader=loader,
        cpu_limit=of_cores,
        loader_without={name: without(name) for name in INPUTS},
    )


def _wait_fraction(segments: Sequence[Segment], overhead_s: float) -> float:
    """Share of wall time in `next()` beyond what the training thread itself works there."""
    total = sum(segment.seconds for segment in segments)
    wait = sum(
        max(0.0, (ready - begin) / 1e9 - overhead_s)
        for segment in segments
        for begin, ready in zip(segment.begin_ns, segment.ready_ns, strict=True)
    )
    return wait / total if total else 0.0


def _of_both(reasons: Mapping[SingleCause, Remark]) -> dict[str, Remark]:
    """Of the speed-up if a resource were free, and of the loader's rate without it."""
    figures = ("speedups.{}", "rates_images_per_s.loader_without.{}")
    return {figure.format(name): reason for name, reason in reasons.items() for figure in figures}


def _unavailable(found: Experiments, rates: Rates) -> dict[str, Remark]:
    known, reasons = speedups_among(found), _of_both(found.missing)
    reasons |= {f"speedups.{name}": reason for name, reason in found.among.missing.items() if name not in known}
    for resource in found.without:
        if rates.loader_without[resource] is None:
            reasons[f"rates_images_per_s.loader_without.{resource}"] = Remark(code="nothing_else_takes_time")
    if rates.cpu_limit is None:
        reasons["rates_images_per_s.cpu_limit"] = Remark(code="no_worker_cpu_times")
    if found.cost is None or found.cost.instrument_cpu_fraction is None:
        reasons["instrument_cpu_fraction"] = Remark(code="overhead_not_recorded")
    if found.compute is None:
        reasons["rates_images_per_s.compute"] = Remark(code="no_resident_segment")
        reasons["accelerator_utilization"] = Remark(code="compute_unknown")
    unseen = why_missing(found.measurement, "waits") or Remark(code="too_few_wait_samples")
    left = [name for name in INPUTS if name not in found.speedups and name not in found.missing]
    reasons |= _of_both({name: Remark(code="no_mode_without") for name in left if name not in found.without})
    return reasons | _of_both({name: unseen for name in left if name in ONLY_WAITED})

"""The experiments: the speed-up of training if storage, preprocessing, transport or compute were free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from loaderprobe.analyze.effects import FAR_LEAD, of_rounds
from loaderprobe.analyze.verdict import estimate
from loaderprobe.analyze.verdict.ablations import Parts, Without, in_training, possible_modes
from loaderprobe.analyze.verdict.among_ranks import AmongRanks, among_ranks
from loaderprobe.analyze.verdict.counted import counted, fair
from loaderprobe.analyze.verdict.disk import ceiling_phase
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.from_training import compute_rates, input_at_most, loader_rates
from loaderprobe.analyze.verdict.prediction import Loop
from loaderprobe.analyze.verdict.rates import (
    WorkerCost,
    attributed_cost,
    bytes_over,
    bytes_per_image,
    cold_fraction,
    cores_in_training,
    parent_overhead_s,
    rate_interval,
    rates_by_round,
    read_over,
    segments_of,
    spread_of_both,
    step_images,
    worker_cost,
)
from loaderprobe.analyze.verdict.validity import base_mode, by_waiting, files_were, waiting_evidence
from loaderprobe.analyze.verdict.waiting import Waiting
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.measurement import NO_STEP, Activity, Measurement, Mode, Segment
from loaderprobe.records.resources import ABLATIONS
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.records.verdict import How
from loaderprobe.stats import median

# A ceiling is measured for 1.5 s, and the credit of a token bucket is spent within it: no cold rate is above this.
MOST_OF_CEILING = 1.15


def run_experiments(measurement: Measurement, ceiling: StorageCeiling | None = None) -> Experiments:
    """All rates and speed-ups of a measurement; estimates also heed the storage's ceiling where it is known."""
    measurement = counted(measurement)
    base, seen = base_mode(measurement), _Seen.of(measurement, ceiling)
    judged = segments_of(measurement, base, judged_activity(measurement))
    waiting = seen.cost.waiting if seen.cost else None
    parts = Parts(measurement=measurement, loader=seen.loader, costs=seen.costs, limits=seen.limits)
    taken = parts.all()
    known = {name: each for name, each in taken.items() if each.missing is None}
    trained = in_training(measurement, base, seen.loader, seen.end_to_end)
    how: dict[str, How] = {name: "estimated" if seen.estimated else each.how for name, each in known.items()}
    how |= dict.fromkeys(trained, "measured")
    how["compute"] = "estimated" if seen.estimated else "measured"
    among = among_ranks(measurement, seen.loader, seen.loops)
    ratios = _all_ratios(seen, known, trained, among)
    how |= {name: "measured" for name in ratios if name not in how}
    unlimited = math.isinf(seen.limits.storage_images_per_s) or measurement.access != "files"
    asked = base == "baseline" and measurement.storage_kind != "memory" and unlimited
    return Experiments(
        base=base,
        compute=median(list(seen.alone.values())) if seen.alone else None,
        loader=seen.loader,
        without={name: each.rates for name, each in known.items()},
        how=how,
        speedups={name: of_rounds(found, how=how[name]).speedup for name, found in ratios.items() if found},
        ratios=ratios,
        end_to_end=seen.end_to_end,
        rate=rate_interval(measurement, judged) if judged else None,
        fair=_fair(measurement, in_training=bool(trained)),
        predicted=seen.predicted,
        predicted_by_bytes=seen.predicted_by_bytes,
        spread_of_steps=seen.spread,
        free_input_speedup=seen.free_input_speedup,
        cost=seen.cost,
        overhead_s=seen.overhead_s,
        batch_size=step_images(measurement),
        missing={name: each.missing for name, each in taken.items() if each.missing and name not in trained},
        at_most=frozenset(n for n in estimate.BY_TIMES if asked and how.get(n) == "estimated"),
        bounds=_bounds(seen, taken),
        open=_still_open(measurement, how),
        in_training=bool(trained),
        seen_without=frozenset(trained) or _of_loader(measurement, how),
        compute_over_training=seen.most if math.isfinite(seen.most) else None,
        loader_over_training=seen.loader_over_training,
        estimated_parts=seen.estimated,
        input_at_most=input_at_most(measurement, base),
        training_cores=cores_in_training(measurement, judged),
        waiting=waiting,
        ranges={name: each for name in known if (each := _range(parts, name, seen.most)) and name not in trained},
        met_warm=_met_warm(measurement, seen, taken),
        above_ceiling=_above_ceiling(measurement, judged, [seen.loader, seen.end_to_end], ceiling),
        by_waiting=by_waiting(measurement),
        evidence=waiting_evidence(measurement),
        among=among,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Rates by round, as measured or from training alone, and what the parts predict of training."""

    loader: dict[int, float]
    alone: dict[int, float]
    """Of compute."""
    end_to_end: dict[int, float]
    loops: dict[int, Loop]
    cost: WorkerCost | None
    """Of the loader's batches in all rounds."""
    costs: dict[int, WorkerCost | None]
    limits: estimate.Limits
    bytes_over_training: dict[int, float]
    """How many times as many bytes the loader's images had, on average, as those of training."""
    spread: dict[int, float]
    overhead_s: float
    estimated: frozenset[str]
    """Of `loader` and `compute`."""

    @classmethod
    def of(cls, measurement: Measurement, ceiling: StorageCeiling | None) -> _Seen:
        base = base_mode(measurement)
        judged = segments_of(measurement, base, judged_activity(measurement))
        loader_only = segments_of(measurement, base, "loader_only")
        # Where the loader did not run alone, its batches cost what they cost in training.
        made = loader_only or judged
        cost = attributed_cost(measurement, made)
        waiting = cost.waiting if cost else None
        costs = {s.round: _with(worker_cost(measurement.worker_batches, [s]), waiting) for s in made}
        overhead_s = parent_overhead_s(made) if measurement.config.loader.workers else 0.0
        limits = _limits(measurement, made, overhead_s, ceiling)
        loader = rates_by_round(measurement, base, "loader_only") or loader_rates(judged, costs, limits)
        compute, estimated = _compute_rates(measurement), [] if loader_only else ["loader"]
        if estimated and not compute and measurement.compute.synchronous:
            compute, estimated = compute_rates(judged), ["loader", "compute"]
        alone = _in_rounds(compute, loader)
        return cls(
            loader=loader,
            alone=alone,
            end_to_end=rates_by_round(measurement, base, judged_activity(measurement)),
            loops={number: _loop(measurement, rate, overhead_s) for number, rate in alone.items()},
            cost=cost,
            costs={number: each for number, each in costs.items() if number in loader},
            limits=limits,
            bytes_over_training=bytes_over(made, judged) or _read_over(measurement, made, judged),
            spread=spread_of_both(
                loader_only,
                judged,
                measurement.config.loader.workers,
                synchronous=measurement.compute.synchronous or judged_activity(measurement) != "training",
            ),
            overhead_s=overhead_s,
            estimated=frozenset(estimated),
        )

    @property
    def predicted(self) -> dict[int, float]:
        return {n: self.loops[n].end_to_end(rate) for n, rate in self.loader.items() if n in self.loops}

    @property
    def predicted_by_bytes(self) -> dict[int, float]:
        both = self.predicted.keys() & self.bytes_over_training.keys()
        return {n: self.loops[n].end_to_end(self.loader[n] * self.bytes_over_training[n]) for n in sorted(both)}

    @property
    def most(self) -> float:
        """The most that any input can gain."""
        return _most_speedup(self.alone, self.end_to_end)

    @property
    def free_input_speedup(self) -> float:
        predicted = self.predicted
        free = [replace(self.loops[n], overhead_s=0.0).end_to_end(math.inf) / rate for n, rate in predicted.items()]
        return min(median(free), self.most) if free else math.inf

    @property
    def loader_over_training(self) -> float | None:
        both = sorted(self.loader.keys() & self.end_to_end.keys())
        return median([self.loader[n] / self.end_to_end[n] for n in both]) if both else None


def _fair(measurement: Measurement, *, in_training: bool) -> dict[str, tuple[int, int]]:
    activity: Activity = "training" if in_training else "loader_only"
    kinds: dict[str, tuple[Mode, Activity]] = {name: (mode, activity) for name, mode in ABLATIONS.items()}
    kinds["compute"] = base_mode(measurement), judged_activity(measurement)
    ran = {name: len(segments_of(measurement, *kind)) for name, kind in kinds.items()}
    undisturbed = fair(measurement)
    return {name: (undisturbed.get(kinds[name], 0), times) for name, times in ran.items() if times}


def _read_over(measurement: Measurement, made: Sequence[Segment], judged: Sequence[Segment]) -> dict[int, float]:
    """Where files are read in parts: read-ahead gives one segment more than it uses, and another less."""
    counted = measurement.access != "files" and measurement.storage_counts_reads
    return read_over(measurement.worker_batches, made, judged) if counted else {}


def _all_ratios(
    seen: _Seen, known: Mapping[str, Without], trained: Mapping[str, dict[int, float]], among: AmongRanks
) -> dict[str, dict[int, float]]:
    """Speedups by round: by the law of the loop or, where resources were removed in training, as measured."""
    predicted, most = seen.predicted, seen.most
    ratios = {name: _ratios(seen.loops, predicted, each, most) for name, each in known.items()}
    ratios["compute"] = {n: seen.loader[n] / rate for n, rate in predicted.items()}
    if trained:
        # The prediction failed: a resource that was not removed in training has only an upper bound.
        estimated = {name: each for name, each in known.items() if each.how == "estimated"}
        ratios |= {n: _at_most(each.rates, seen.loader, most) for n, each in estimated.items()} | dict(trained)
    # A free device still exchanges gradients.
    ratios["compute"] = {n: min(each, among.compute.get(n, each)) for n, each in ratios["compute"].items()}
    return ratios | ({"gradients": dict(among.ratios["gradients"])} if "gradients" in among.ratios else {})


def _bounds(seen: _Seen, taken: Mapping[str, Without]) -> dict[str, float]:
    """The most that can be gained without what is missing, where that is known."""
    predicted = seen.predicted
    known = {name: each for name, each in taken.items() if each.missing and each.at_most and predicted}
    return {
        name: median(list(_ratios(seen.loops, predicted, replace(each, rates=each.at_most), seen.most).values()))
        for name, each in known.items()
    }


def _of_loader(measurement: Measurement, how: Mapping[str, How]) -> frozenset[str]:
    """Where the loader alone is judged, without a step: what it was measured without."""
    alone = judged_activity(measurement) == "loader_only"
    return frozenset(name for name, each in how.items() if each == "measured" and alone)


def _still_open(measurement: Measurement, how: Mapping[str, How]) -> frozenset[str]:
    """What is only estimated, and could be run. One that was run and showed nothing is not open any more."""
    possible = possible_modes(measurement)
    return frozenset(
        name
        for name, mode in ABLATIONS.items()
        if mode in possible and how.get(name) == "estimated" and not segments_of(measurement, mode, "loader_only")
    )


def _range(parts: Parts, name: str, most: float) -> tuple[float, float] | None:
    """By the interval of the share of samples; None where it does not come from samples."""
    found = parts.range_of(name)
    return None if found is None else (min(most, found[0]), min(most, found[1]))


def _met_warm(measurement: Measurement, seen: _Seen, taken: Mapping[str, Without]) -> Unavailable | None:
    """Why files that were to be cold were warm, in part at least.

    None where warm files were asked for, or where a part was cold and the rest would hold up nothing.
    """
    if measurement.config.cache == "warm" or measurement.storage_kind == "memory":
        return None
    state = files_were(measurement)
    held_up = state == "warm" or (state == "partly warm" and not _keeps_up_cold(measurement, seen))
    return taken["storage"].missing if held_up else None


def _keeps_up_cold(measurement: Measurement, seen: _Seen) -> bool:
    """True where the loader would be far ahead of training if workers waited for every byte as for those from storage.

    A device at its limit makes them wait longer, so it must be ahead by 2.25.
    """
    made = segments_of(measurement, base_mode(measurement), "loader_only")
    share, cost = cold_fraction(measurement, made), seen.cost
    if not share or cost is None or not seen.loader or not seen.end_to_end:
        return False
    more_s = cost.blocked_s / cost.images * max(0.0, 1 / share - 1) / max(1, measurement.config.loader.workers)
    cold = 1 / (1 / min(seen.loader.values()) + more_s)
    return cold >= FAR_LEAD * max(seen.end_to_end.values())


def _above_ceiling(
    measurement: Measurement, judged: Sequence[Segment], rates: Sequence[Mapping[int, float]],
    ceiling: StorageCeiling | None,
) -> tuple[float, float] | None:  # fmt: skip
    """Cold files cannot come faster than the storage delivers: then memory served a part of them."""
    phase, _ = ceiling_phase(measurement, ceiling, measurement.config.readers)
    size = bytes_per_image(measurement, judged)
    fastest = max((median(list(each.values())) for each in rates if each), default=0.0)
    if phase is None or size is None or measurement.config.cache == "warm" or files_were(measurement) != "cold":
        return None
    return (fastest * size, phase.bw_bytes) if fastest * size > MOST_OF_CEILING * phase.bw_bytes else None


def judged_activity(measurement: Measurement) -> Activity:
    """What the verdict is on: training or, without a step, the loader alone."""
    return "loader_only" if measurement.compute.name == NO_STEP else "training"


def _at_most(rates: Mapping[int, float], loader: Mapping[int, float], most: float) -> dict[int, float]:
    """Training gains no more from a faster loader than the loader itself."""
    return {number: min(most, rate / loader[number]) for number, rate in rates.items()}


def _with(cost: WorkerCost | None, waiting: Waiting | None) -> WorkerCost | None:
    """What workers waited for is known of all rounds together: one has too few samples."""
    return None if cost is None else replace(cost, waiting=waiting)


def _loop(measurement: Measurement, compute: float, overhead_s: float) -> Loop:
    return Loop(
        workers=measurement.config.loader.workers,
        batch_size=step_images(measurement),
        synchronous=measurement.compute.synchronous,
        compute_images_per_s=compute,
        overhead_s=overhead_s,
    )


def _compute_rates(measurement: Measurement) -> dict[int, float]:
    """By round, or as specified; empty where compute did not run alone."""
    given = measurement.compute.specified_images_per_s
    return rates_by_round(measurement, "resident", "training") if given is None else {0: given}


def _in_rounds(compute: Mapping[int, float], loader: Mapping[int, float]) -> dict[int, float]:
    """In every round of the loader: rounds that were only to take resources away did not measure compute again."""
    if not compute:
        return {}
    usual = median(list(compute.values()))
    return {number: compute.get(number, usual) for number in loader}


def _limits(
    measurement: Measurement, made: Sequence[Segment], overhead_s: float, ceiling: StorageCeiling | None
) -> estimate.Limits:
    workers = measurement.config.loader.workers
    phase, _ = ceiling_phase(measurement, ceiling, measurement.config.readers)
    images = sum(s.steps * s.batch_size for s in made if s.delivered_bytes)
    bytes_per_image = sum(s.delivered_bytes or 0 for s in made) / images if images else 0.0
    cost = worker_cost(measurement.worker_batches, made)
    if not images and cost is not None:
        bytes_per_image = cost.read_bytes / cost.images
    return estimate.Limits(
        workers=workers,
        cores=measurement.cores_available,
        parent_s=overhead_s / step_images(measurement),
        storage_images_per_s=phase.bw_bytes / bytes_per_image if phase and bytes_per_image else math.inf,
    )


def _most_speedup(alone: Mapping[int, float], end_to_end: Mapping[int, float]) -> float:
    """The most that any input can gain: compute alone over training."""
    if not alone or not end_to_end:
        return math.inf
    return max(1.0, median(list(alone.values())) / median(list(end_to_end.values())))


def _ratios(loops: Mapping[int, Loop], predicted: Mapping[int, float], found: Without, most: float) -> dict[int, float]:
    def loop(number: int) -> Loop:
        return loops[number] if found.overhead_s is None else replace(loops[number], overhead_s=found.overhead_s)

    return {n: min(most, loop(n).end_to_end(rate) / predicted[n]) for n, rate in found.rates.items() if n in predicted}

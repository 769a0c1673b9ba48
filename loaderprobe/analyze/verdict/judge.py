"""The rule: the cause is the resource with the largest speed-up if it were free; else the verdict is inconclusive.

Chosen in experiments before this code was written; `scripts/bench truth waits` shows how often this code is right.
All that follows from one measurement is one `Verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from loaderprobe.analyze.effects import DRIFT, Effect, of_rounds
from loaderprobe.analyze.gpu import (
    checked_against_rates,
    gpu_figures,
    read_window,
    why_missing,
    why_no_counters,
    why_no_window,
)
from loaderprobe.analyze.verdict.experiments import Experiments, run_experiments
from loaderprobe.analyze.verdict.rates import SlowHost, bytes_per_image, compute_rates, input_at_most, step_time
from loaderprobe.analyze.verdict.validity import (
    by_waiting,
    disk_use,
    evidence_of,
    fair,
    files_were,
    speedup_evidence,
    waiting_evidence,
)
from loaderprobe.errors import BadValue
from loaderprobe.records import thresholds
from loaderprobe.records.measurement import NO_STEP, Activity, Measurement, Mode, Segment, segments_of
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.resources import (
    ABLATIONS,
    IN_GAPS,
    IN_STEP,
    INPUTS,
    ONLY_WAITED,
    RESOURCE,
    SPEEDUPS,
    GapCause,
    ResourceName,
    SingleCause,
)
from loaderprobe.records.thresholds import CLEAR_LEAD, SATURATED, UNBOUNDED, UNEVEN, UTILIZATION, WAIT_MODERATE, WORTH
from loaderprobe.records.verdict import (
    Bound,
    Evidence,
    EvidenceCode,
    Gaps,
    GapSide,
    GapVerdict,
    GpuWindow,
    How,
    Rates,
    Reason,
    ReasonCode,
    Side,
    Speedup,
    TimelineView,
    Verdict,
)
from loaderprobe.stats import half_width, half_width_beside, median


def slowed(trials: Experiments) -> tuple[SingleCause, float] | None:
    """The resource without which the loader (or training) was slowest, and by what factor; None within the noise band.

    Nothing gets slower by having less to do. Something else did: another process, or a device that recovers.
    """
    rates = {
        name: {n: rate / trials.loader[n] for n, rate in by_round.items()} for name, by_round in trials.without.items()
    }
    factors: dict[SingleCause, float] = {}
    trained = {name: effect.rounds for name, effect in trials.effects.items()}
    for name, ratios in (trained if trials.in_training else rates).items():
        logs = [math.log(ratio) for ratio in ratios.values()]
        noise = half_width(logs) if len(logs) >= thresholds.ENOUGH_ROUNDS else thresholds.MOST_PREDICTION_ERROR
        band = max(thresholds.LEAST_PREDICTION_ERROR, min(thresholds.MOST_PREDICTION_ERROR, noise))
        if name != "compute" and logs and median(logs) < -math.log1p(band):
            factors[name] = math.exp(-median(logs))
    worst = max(factors, key=lambda name: factors[name], default=None)
    return None if worst is None else (worst, factors[worst])


def judge(trials: Experiments) -> Bound:
    """Apply the rule to the experiments of one configuration."""
    prediction_error, tolerance = trials.prediction_error
    evidence = (
        *(speedup_evidence(name, speedup, thresholds.WORTH) for name, speedup in trials.speedups.items()),
        *waiting_evidence(trials.measurement),
        *evidence_of([("prediction_error", prediction_error, tolerance)]),
    )
    names = contenders(trials)
    reason = _why_inconclusive(trials, prediction_error, tolerance) or contradiction(trials)
    if reason:
        return inconclusive(trials, reason, evidence)
    if not names:
        return _nothing_gains(trials, evidence)
    top = names[0]
    if len(names) > 1 or (top == "compute" and not input_cannot_matter(trials)):
        return _several(trials, names, evidence)
    far = lead_of(trials, top) >= thresholds.FAR_LEAD
    # A lead that others may have made is not believed, unless a round was free of them, or it is far.
    reason = _why_not_firm(trials, top) or (None if far else _all_disturbed(trials, top))
    if reason:
        return inconclusive(trials, reason, evidence)
    cpu_evidence = cores_are_busy(trials)
    if top == "preprocessing" and cpu_evidence:
        waits = _waiting_for_cores(trials, *cpu_evidence)
        taken = _all_disturbed(trials, top) if waits else None
        if taken and lead_of(trials, top) < thresholds.FAR_LEAD**2:
            return inconclusive(trials, taken, evidence)
        if not taken:
            kept = "idle_cores" in waits
            reason = _reason("kept_from_cores" if kept else "all_cores_busy", **_speedup(trials, top), **waits)
            evidence += cpu_evidence
            return Bound(side="input", cause="preprocessing" if kept else "cpu", reason=reason, evidence=evidence)
        # Whoever had the cores, no neighbour makes a lead as far as this one.
    reason = _reason("largest_speedup", **_speedup(trials, top), **_waited(trials, top), **_beside_compute(trials, top))
    return Bound(side=side_of((top,)), cause=top, reason=reason, evidence=(*evidence, *cpu_evidence))


def side_of(names: Sequence[SingleCause]) -> Side:
    """The side that all of these resources are on."""
    sides: set[Side] = {RESOURCE[name].side for name in names}
    return sides.pop() if len(sides) == 1 else "inconclusive"


def _reason(code: ReasonCode, **facts: float | str) -> Reason:
    return Reason(code=code, facts=facts)


def _speedup(trials: Experiments, resource: SingleCause) -> Facts:
    speedup = trials.speedups[resource]
    unlimited: Facts = {"limit": "unknown"} if speedup.at_most else {}
    return {"resource": resource, "speedup": speedup.value, "how": speedup.how, **unlimited}


def _alike(trials: Experiments, names: tuple[SingleCause, ...]) -> Facts:
    """The speed-up of each candidate, and how it is known."""
    facts: Facts = {}
    for name in names:
        facts |= {f"{name}_speedup": trials.speedups[name].value, f"{name}_how": trials.speedups[name].how}
    return facts


def _nothing_gains(trials: Experiments, evidence: tuple[Evidence, ...]) -> Bound:
    """Balanced; not where the loader starves training all the same: then two parts limit it at once."""
    largest = max(trials.speedups, key=lambda name: trials.speedups[name].value)
    disturbed, reason = _all_disturbed(trials, largest), _reason("no_speedup", least_speedup=thresholds.WORTH)
    if disturbed or _starves(trials):
        return inconclusive(trials, disturbed or reason, evidence)
    return Bound(side="balanced", cause="balanced", reason=reason, evidence=evidence)


def _several(trials: Experiments, names: tuple[SingleCause, ...], evidence: tuple[Evidence, ...]) -> Bound:
    """Resources with alike speed-ups; or compute, which leads each part of the input, but not all of it.

    Where the two do not overlap, input only has more names. The side is the input's where that starves training.
    """
    if len(names) > 1 and (why := why_alike(trials, names[0], names[1])):
        reason = replace(why, facts=_alike(trials, names) | why.facts)
        return Bound(side=side_of(names), cause="either", candidates=names, reason=reason, evidence=evidence)
    names = (*names, *_inputs(trials, thresholds.WORTH))
    reason = _reason("input_in_parts", **_alike(trials, names), input_speedup=trials.free_input_speedup)
    unnamed = inconclusive(trials, reason, evidence)
    known = unnamed.side == "input" or len(names) == 1
    return unnamed if known else replace(unnamed, cause="either", candidates=names)


def _waited(trials: Experiments, resource: SingleCause) -> Facts:
    """The share of their time that workers wait for a network, a lock or otherwise, and for whom or what."""
    if resource not in ONLY_WAITED or trials.cost is None or trials.cost.waiting is None:
        return {}
    share = trials.cost.waited_s(resource) / trials.cost.wall_s
    subject = trials.cost.waiting.subjects.get(resource)
    return {"waiting_share": share, **({"subject": subject} if subject else {})}


def _inputs(trials: Experiments, least: float = 1.0) -> list[SingleCause]:
    """The parts of the input that gain so much, the largest speed-up first."""
    known = [name for name in INPUTS if name in trials.speedups and trials.speedups[name].value >= least]
    return sorted(known, key=lambda name: -trials.speedups[name].value)


def _beside_compute(trials: Experiments, top: SingleCause) -> Facts:
    """The input resource that is worth most beside compute: there is one only where the two do not overlap."""
    if top != "compute" or not (inputs := _inputs(trials, thresholds.WORTH)):
        return {}
    best = trials.speedups[inputs[0]]
    return {"input": inputs[0], "input_speedup": best.value, "input_how": best.how}


def input_cannot_matter(trials: Experiments) -> bool:
    """True when even an input without cost would not change the bottleneck."""
    compute, free = trials.speedups.get("compute"), trials.free_input_speedup
    return free < thresholds.WORTH or (compute is not None and compute.value >= free * thresholds.CLEAR_LEAD)


def _why_not_firm(trials: Experiments, top: SingleCause) -> Reason | None:
    """Why the largest speed-up allows no firm verdict; None when it does."""
    speedup = trials.speedups[top]
    if trials.is_open(top) and not far_seen(trials, top):
        return _reason("estimate_not_measured", **_speedup(trials, top))
    if speedup.how == "estimated" and speedup.value < thresholds.CLEAR_LEAD:
        return _reason("estimate_too_small", **_speedup(trials, top))
    if not beyond_noise(trials, top):
        return _reason("within_noise", **_speedup(trials, top))
    return None


def far_seen(trials: Experiments, top: SingleCause) -> bool:
    """True where the least that workers were seen waiting for it leads the most of all else by `FAR_LEAD` squared.

    The factor is assumed: a neighbour may halve the one rate and double the other.
    """
    others = [trials.ranges.get(name, (0.0, gain.value))[1] for name, gain in trials.speedups.items() if name != top]
    return top in trials.ranges and trials.ranges[top][0] >= thresholds.FAR_LEAD**2 * max(1.0, *others, 1.0)


def _all_disturbed(trials: Experiments, name: SingleCause) -> Reason | None:
    """The reason where others disturbed every round that shows a speed-up; None where one was free of them.

    Others that hold the cores hide what a resource would gain, and make the lack of a core the limit. So neither that
    nothing is worth removing, nor that workers wait for cores that they do not fill, is known from such rounds.
    """
    measurement, activity = trials.measurement, trials.measurement.judged
    # An estimate is of the loader as asked or, where that did not run alone, of training.
    kinds: list[tuple[Mode, Activity]] = [(trials.base, "loader_only"), (trials.base, activity)]
    if name == "compute":
        kinds = kinds[1:]
    elif name in ABLATIONS:
        kinds.insert(0, (ABLATIONS[name], "training" if trials.in_training else "loader_only"))
    ran = {kind: len(segments_of(measurement, *kind)) for kind in kinds}
    kind = next((kind for kind, times in ran.items() if times), kinds[-1])
    if name == "gradients" or fair(measurement).get(kind):
        return None
    return _reason("rounds_disturbed", rounds=float(ran[kind]), **_speedup(trials, name))


def inconclusive(trials: Experiments, reason: Reason, evidence: tuple[Evidence, ...]) -> Bound:
    """No cause; but the side, where enough rounds show that the loader starves training, or fewer show it clearly."""
    enough = len(trials.end_to_end) >= thresholds.ENOUGH_ROUNDS
    # A loader that alone is slower than in training was held up.
    sound = thresholds.WORTH * (trials.loader_over_training or 0.0) >= 1
    lead = thresholds.OPEN_LEAD if enough else thresholds.CERTAIN_LEAD
    side: Side = "input" if (enough or sound) and _starves(trials, lead) else "inconclusive"
    return Bound(side=side, cause="inconclusive", reason=reason, evidence=evidence)


def _starves(trials: Experiments, lead: float = thresholds.OPEN_LEAD) -> bool:
    """True where the loader starves training, and compute does not hold it up.

    Neither figure is a prediction: compute alone over training, and the loader alone over training.
    """
    free, starved = trials.most_gain, trials.loader_over_training
    return math.isfinite(free) and starved is not None and free >= lead * max(1.0, starved)


# Sides of a device's idle time: the input with copies and the loader's own kernels, the host, other GPUs.
SIDES_OF_GAPS: tuple[GapSide, ...] = ("input", "host", "communication")
NOT_COLD: tuple[ReasonCode, ...] = ("files_were_warm", "above_ceiling")


def judged_by_gaps(gaps: Gaps) -> GapVerdict:
    """The side that takes most of the device's idle time, if it clearly leads the others and what is not known."""
    sides = {side: gaps.share(*RESOURCE[side].gaps) for side in SIDES_OF_GAPS}
    largest = max(sides.values())
    if gaps.share("device", "unknown") > max(thresholds.LEAST_IDLE, largest):
        return GapVerdict(side="inconclusive", cause="inconclusive")
    if largest < thresholds.LEAST_IDLE:
        return GapVerdict(side="compute", cause="compute")
    by_size = sorted(sides, key=lambda side: -sides[side])
    alike = [side for side in by_size if thresholds.OPEN_LEAD * sides[side] > largest]
    # Copies are a part of the input: its name where they clearly lead the rest of it.
    copied = gaps.share("copy") >= thresholds.OPEN_LEAD * gaps.share("input", "loader")
    names: tuple[GapSide, ...] = tuple("copy" if side == "input" and copied else side for side in alike)
    if len(alike) > 1:
        side: Side = "balanced" if "input" in alike else "compute"
        return GapVerdict(side=side, cause="either", candidates=names)
    gap: GapCause = max(RESOURCE[names[0]].gaps, key=gaps.of)
    return GapVerdict(side=RESOURCE[alike[0]].side, cause=names[0], gap=gap)


def with_gaps(judgement: Bound, window: GpuWindow | None) -> Bound:
    """The judgement by rates, unless the device's gaps show a cause that no rate can see.

    That is copying, the host, or communication with other GPUs. Compute alone runs on the same host, so a late host
    looks like a slow device; a copy is in no rate of the loader. Where rates name an input, or the exchange of
    gradients, which was measured, or the gaps leave a doubt, nothing changes. Nor where files that memory served say
    nothing of how a loader keeps up with cold ones: the window saw the same files.
    """
    kept = judgement.side == "input" or judgement.cause == "gradients" or judgement.reason.code in NOT_COLD
    if kept or window is None or window.gaps is None:
        return judgement
    # Where rates say compute, a queue that is full is no exception.
    harmless = {"window_too_short"} if judgement.side == "compute" else set()
    if {doubt.code for doubt in window.doubts} - harmless:
        return judgement
    gaps, by_gaps = window.gaps, judged_by_gaps(window.gaps)
    named = by_gaps.candidates or (by_gaps.cause,)
    idle = {cause: gaps.share(*RESOURCE[cause].gaps) for cause in IN_GAPS if cause in named}
    if len(idle) < len(named):
        return judgement
    cause = max(idle, key=lambda name: idle[name])
    if idle[cause] < thresholds.LEAST_IDLE:
        return judgement
    evidence = evidence_of(
        [
            ("gpu_window.gaps.copy_ns", gaps.share("copy"), thresholds.LEAST_IDLE),
            ("gpu_window.gaps.launch_ns", gaps.share("launch"), thresholds.LEAST_IDLE),
            ("gpu_window.gaps.sync_ns", gaps.share("sync"), thresholds.LEAST_IDLE),
            ("gpu_window.gaps.waiting", gaps.share("input", "loader"), None),
            ("gpu_window.gaps.communication_ns", gaps.share("communication") or None, thresholds.LEAST_IDLE),
        ]
    )
    facts: Facts = {f"{gap}_share": gaps.share(gap) for gap in RESOURCE[cause].gaps}
    if cause == "copy" and 2 * gaps.pageable_ns > gaps.copy_ns:
        facts["copies_from"] = "pageable memory"
    reason, evidence = _reason("device_idle", **facts), (*judgement.evidence, *evidence)
    return Bound(side=RESOURCE[cause].side, cause=cause, reason=reason, evidence=evidence)


def contenders(trials: Experiments) -> tuple[SingleCause, ...]:
    """The resource with the largest speed-up, then those not clearly below it; empty when none is large enough."""
    ranked = sorted(trials.speedups.items(), key=lambda item: -item[1].value)
    worth = [name for name, speedup in ranked if speedup.value >= thresholds.WORTH]
    return tuple(name for name in worth if name == worth[0] or why_alike(trials, worth[0], name))


def beyond_noise(trials: Experiments, top: SingleCause) -> bool:
    """True when a speed-up is outside the noise band of the rounds; of few, it must be as large as an estimate's.

    A small one needs an interval above 1, too: of three rounds, a compute-bound one of 1.11 (1.00 to 1.26) was none.
    And it exceeds what the two segments of a round are known to vary by, since rounds may agree by luck: simulated
    with segments that vary by 3 %, three resources that gain nothing had firm words 34 times of 1,000, 6 times with
    this. One of 1.08 was found in 78 % instead of 80 %, one of 1.12 in 98 % as before.
    """
    effect, speedup = trials.effects[top], trials.speedups[top]
    if len(effect.rounds) < thresholds.ENOUGH_ROUNDS and speedup.value < thresholds.OPEN_LEAD:
        return False
    known = half_width_beside([math.log(max(1e-9, ratio)) for ratio in effect.rounds.values()], DRIFT + DRIFT)
    surely = speedup.low > 1 and math.log(speedup.value) > known
    return effect.exceeds() and (speedup.value >= thresholds.CLEAR_LEAD or surely)


def contradiction(trials: Experiments) -> Reason | None:
    """Why the rounds cannot be believed, where the lead of the largest speed-up does not outweigh it; None if it does.

    A load that slows segments by a factor may have slowed those as asked and those without the next resource: only a
    lead of more than its square is no work of it. A balanced verdict has no lead.
    """
    names = contenders(trials)
    lead = lead_of(trials, names[0]) if names else 1.0
    if (slower := slowed(trials)) and lead < slower[1] ** 2:
        activity = "training" if trials.in_training else "loader_only"
        return _reason("slower_without", resource=slower[0], rate_share=1 / slower[1], activity=activity)
    rate = trials.rate
    if rate is not None and rate.too_wide and lead < rate.factor**2:
        return _reason("interval_too_wide", low_per_s=rate.low, high_per_s=rate.high)
    return None


def _withstands(trials: Experiments, prediction_error: float) -> bool:
    """True where a measured input leads by so much that the parts, off by this error, cannot have made the lead.

    Of a loader in short segments on a disk that grants reads in slices: 143 % of its prediction, and a lead of 4. The
    parts may be off by the error to either side. Compute needs its prediction: what holds it up is not known.
    """
    top = max(trials.speedups, key=lambda name: trials.speedups[name].value)
    off = math.exp(abs(math.log1p(max(prediction_error, -0.99))))
    measured = trials.is_measured(top) and top in INPUTS
    return measured and off <= 1 + thresholds.MOST_NOISE and lead_of(trials, top) >= thresholds.CLEAR_LEAD * off**2


def lead_of(trials: Experiments, top: SingleCause) -> float:
    """By what factor a speed-up leads the next, or 1 where that is more."""
    others = [speedup.value for name, speedup in trials.speedups.items() if name != top]
    return trials.speedups[top].value / max(1.0, *others, 1.0)


def _why_inconclusive(trials: Experiments, prediction_error: float | None, tolerance: float) -> Reason | None:
    """Why no cause can be named; None when one can."""
    if prediction_error is None or not trials.speedups:
        return _reason("no_complete_round")
    if trials.met_warm:
        return _reason("files_were_warm", **trials.met_warm.because)
    if trials.above_ceiling:
        return _reason("above_ceiling", **trials.above_ceiling)
    if abs(prediction_error) > tolerance and not trials.in_training and not _withstands(trials, prediction_error):
        code: ReasonCode = "one_round_does_not_fit" if len(trials.misfits) == 1 else "outside_noise_band"
        return _reason(code, predicted_fraction=1 + prediction_error, noise_band=tolerance)
    noise = trials.noise
    if noise > thresholds.MOST_NOISE and not trials.in_training:
        return _reason("rounds_differ", spread=noise)
    best = max(trials.speedups, key=lambda name: trials.speedups[name].value)
    lead = thresholds.CLEAR_LEAD if trials.is_measured(best) else thresholds.OPEN_LEAD
    for resource, reason in trials.missing.items():
        # Whatever the missing experiment would have shown is at most what a free input would gain.
        possible = min(trials.free_input_speedup, trials.ranges.get(resource, (1.0, math.inf))[1])
        if possible >= thresholds.WORTH and trials.speedups[best].value < possible * lead:
            return _reason("ablation_missing", resource=resource, **reason.because)
    return None


def why_alike(trials: Experiments, top: SingleCause, second: SingleCause) -> Reason | None:
    """Why one speed-up does not lead the other, round by round; None where its lead is large and beyond noise."""
    lead = trials.effects[top].over(trials.effects[second])
    if lead is None:  # no round has both: as little is known of them as of one round
        lead = of_rounds({0: trials.speedups[top].value / trials.speedups[second].value})
    needed = _least_lead(trials, top, second, lead)
    if lead.log <= math.log(needed):
        return _reason("speedups_alike", **({"rounds": 1.0} if needed == thresholds.LEAD_OF_ONE_ROUND else {}))
    if _may_be_limited(trials, top, second):
        return _reason("limit_not_known")
    if not lead.exceeds():
        return _reason("lead_within_spread", lead=math.exp(lead.log), spread=math.expm1(lead.spread))
    # The least that one can be, and the most that the other can, by the samples of what workers wait for.
    least, _ = trials.ranges.get(top, (trials.speedups[top].value, 0.0))
    _, most = trials.ranges.get(second, (0.0, trials.speedups[second].value))
    return _reason("ranges_meet", least=least, most=most) if least < thresholds.CLEAR_LEAD * max(1.0, most) else None


def _may_be_limited(trials: Experiments, top: SingleCause, second: SingleCause) -> bool:
    """True where an estimate may be of no speed-up: at its limit, storage or network makes workers wait as they do."""
    ratios = trials.effects[second].rounds
    # One of three rounds or more may be an outlier.
    largest = sorted(ratios.values())[-2 if len(ratios) >= thresholds.ENOUGH_ROUNDS else -1 :][0] if ratios else 1.0
    return trials.speedups[top].at_most and second in ("storage", "network") and largest >= thresholds.CLEAR_LEAD


def _least_lead(trials: Experiments, top: SingleCause, second: SingleCause, lead: Effect) -> float:
    """The factor that one speed-up must lead another by: less where its least was compared with the other's most.

    More of one round alone, which shows no noise: each mode is a segment of its own. Two estimates are of the same one.
    """
    if top in trials.ranges and trials.speedups[second].at_most:
        return thresholds.CLEAR_LEAD
    hows = {trials.speedups[top].how, trials.speedups[second].how}
    if len(lead.rounds) < 2 and "measured" in hows:
        return thresholds.LEAD_OF_ONE_ROUND
    return thresholds.OPEN_LEAD if "estimated" in hows else thresholds.CLEAR_LEAD


def cores_are_busy(trials: Experiments) -> tuple[Evidence, ...]:
    """Evidence that cores limit the loader, so that more workers would only wait for each other; else empty."""
    if trials.run_delay is None or not trials.loop.workers:
        return ()
    metric: EvidenceCode = "loader_cores"
    in_use = 0.0
    if trials.in_training and trials.training_cores is not None:
        metric, in_use = "training_cores", trials.training_cores
    elif trials.cost and trials.loader:
        # Reading, preprocessing and receiving keep them busy while the loader runs alone.
        per_image_s = trials.cost.all_cpu_s / trials.cost.images + trials.loop.parent_s
        in_use = median(trials.loader.values()) * per_image_s
    least = thresholds.CORES_IN_USE_SHARE * trials.loop.cores
    if trials.run_delay <= thresholds.RUN_DELAY_SHARE and in_use < least:
        return ()
    # Of the whole node: both figures are of one of the ranks that share it.
    of_node = trials.measurement.ranks_here
    return (
        *evidence_of([("run_delay_fraction", trials.run_delay, thresholds.RUN_DELAY_SHARE)]),
        *evidence_of([(metric, in_use * of_node, least * of_node)], unit="cores"),
    )


def _waiting_for_cores(trials: Experiments, delay: Evidence, cores: Evidence) -> Facts:
    """Facts where workers wait for cores that they do not keep busy themselves: others do, or they stay idle."""
    if cores.threshold is None or cores.value >= cores.threshold:
        return {}
    available = cores.threshold / thresholds.CORES_IN_USE_SHARE
    facts: Facts = {"run_delay_share": delay.value, "own_cores": cores.value, "cores": available}
    taken = [s.others.cpu_ns / s.others.span_ns for s in trials.measurement.segments if s.others]
    idle = available - cores.value - median(taken) if taken else 0.0
    if delay.value >= thresholds.KEPT_DELAY and idle >= thresholds.KEPT_CORES:
        facts |= {"idle_cores": idle}
    return facts


# Where compute is the limit for certain, although the rates of the parts do not predict training well enough.
#
# One round, or a step on the CPU that shares its cores, may miss the prediction by more than the noise band. Two things
# that were measured apart from each other may still leave nothing but compute: the loader alone is many times as fast
# as training, and training itself spends next to nothing outside its steps.


def compute_is_certain(trials: Experiments) -> tuple[Evidence, ...]:
    """The evidence that leaves nothing but compute, in every round; empty where something else is left.

    The files must have been what was asked for: warm ones say nothing of how a loader keeps up with cold ones.
    """
    lead = min(trials.loader.values(), default=0.0) / max(trials.end_to_end.values(), default=1.0)
    gain, alone = input_at_most(trials.measurement), trials.most_gain
    # Training that exceeds compute alone saw another state of the machine, which may have made as much of the lead.
    over = max(1.0, median(trials.end_to_end.values() or [0.0]) / (trials.compute or math.inf))
    if trials.met_warm or trials.above_ceiling or "storage" in trials.missing or trials.in_training:
        return ()
    if lead < thresholds.CERTAIN_LEAD * over**2 or gain >= thresholds.WORTH or alone > thresholds.MOST_UNEXPLAINED:
        return ()
    how: How | None = "estimated" if trials.estimated_parts else None
    return (
        *evidence_of([("loader_over_training", lead, thresholds.CERTAIN_LEAD)], unit="x", how=how),
        *evidence_of([("free_input_at_most", gain, thresholds.WORTH)], unit="x"),
        *evidence_of([("compute_over_training", alone, thresholds.MOST_UNEXPLAINED)], unit="x", how=how),
    )


def below_compute(trials: Experiments) -> bool:
    """True where training stays far below compute alone, and nothing that was removed in training explains it.

    What else ran beside the steps, or the machine itself, held them up: compute is not all that is left.
    """
    # An estimate is only an upper bound here.
    measured = [trials.speedups[name].value for name in _inputs(trials) if trials.is_measured(name)]
    return trials.in_training and math.inf > trials.most_gain >= thresholds.OPEN_LEAD * max(measured, default=1.0)


def cores_shared(trials: Experiments) -> bool:
    """True where compute alone is estimated from steps that workers may have held up, since all cores were busy.

    Not where the most that they can have taken from the steps is far less than what free compute would gain.
    """
    busy = (trials.training_cores or 0.0) >= thresholds.CORES_IN_USE_SHARE * trials.loop.cores
    needed = thresholds.OPEN_LEAD * input_at_most(trials.measurement)
    return "compute" in trials.estimated_parts and busy and trials.speedups["compute"].value < needed


def steps_held_up(measurement: Measurement) -> tuple[Remark, ...]:
    """That steps take longer beside the loader than without it, beyond the spread between rounds, with both times.

    Waits for input are left out: the rest is what the loader takes from the steps.
    """
    modes: tuple[Mode, ...] = (measurement.config.mode, "resident")
    beside, alone = (compute_rates(segments_of(measurement, mode, "training")) for mode in modes)
    both = sorted(beside.keys() & alone.keys())
    if measurement.ranks > 1 or not measurement.workers or len(both) < thresholds.ENOUGH_ROUNDS:
        return ()
    if not of_rounds({number: alone[number] / beside[number] for number in both}).exceeds(thresholds.WORTH):
        return ()
    batch, times = float(measurement.config.compute.batch_size), {"beside_s": beside, "alone_s": alone}
    facts: Facts = {name: batch / median([rates[n] for n in both]) for name, rates in times.items()}
    return (Remark(code="steps_held_up", facts=facts),)


def with_certainty(judgement: Bound, trials: Experiments) -> Bound:
    """Compute-bound where the rule names no cause and nothing but compute is left; not where more than that is."""
    if judgement.cause in ("compute", "balanced") and cores_shared(trials):
        reason = _reason("cores_shared", own_cores=trials.training_cores or 0.0, cores=trials.loop.cores)
        return inconclusive(trials, reason, judgement.evidence)
    if judgement.cause == "compute" and below_compute(trials):
        error, tolerance = trials.prediction_error
        reason = _reason("outside_noise_band", predicted_fraction=1 + (error or 0.0), noise_band=tolerance)
        return inconclusive(trials, reason, judgement.evidence)
    evidence = compute_is_certain(trials)
    if judgement.cause not in ("inconclusive", "either") or not evidence or trials.loader_over_training is None:
        return judgement
    gradients = trials.speedups.get("gradients")
    if gradients is not None and gradients.value >= thresholds.WORTH:
        # Not the device alone: its exchange with the other ranks may be what takes the time.
        side_only = replace(judgement, side="compute", evidence=(*evidence, *judgement.evidence))
        return side_only if judgement.cause == "inconclusive" else judgement
    alone, how = trials.loader_over_training, trials.speedups["compute"].how
    reason = _reason("largest_speedup", resource="compute", speedup=alone, how=how)
    return Bound(side="compute", cause="compute", reason=reason, evidence=(*evidence, *judgement.evidence))


def ablations(measurement: Measurement) -> Remark:
    """Which resources were made free in this measurement, and why no more."""
    trials = run_experiments(measurement)
    measurement = trials.measurement
    measured = {name: times for name, mode in ABLATIONS.items() if (times := times_measured(measurement, mode))}
    if trials.base == "warm":
        measured.pop("storage", None)
    if trials.in_training:
        rounds = max(times_measured(measurement, mode, "training") for mode in ABLATIONS.values())
        return Remark(code="ablated_in_training", facts={"rounds": rounds})
    if measured:
        facts: Facts = {name: float(times) for name, times in measured.items()}
        return Remark(code="ablated", facts=facts | {"rounds": float(max(measured.values()))})
    if not trials.predicted:
        return Remark(code="nothing_to_ablate", facts={})
    if input_cannot_matter(trials):
        facts = {"input": trials.free_input_speedup, "compute": trials.speedups["compute"].value}
        return Remark(code="ablations_cannot_matter", facts=facts)
    ranked = sorted(trials.speedups.items(), key=lambda item: -item[1].value)
    code = "ablations_not_possible" if open_causes(trials) else "ablations_not_needed"
    return Remark(code=code, facts={name: speedup.value for name, speedup in ranked})


def times_measured(measurement: Measurement, mode: Mode, activity: Activity = "loader_only") -> int:
    """How many segments of this are there, one a round."""
    return len(segments_of(measurement, mode, activity))


def open_causes(trials: Experiments) -> set[SingleCause]:
    """The resources among which the cause is to be found; empty when it is clear, or when nothing can make it so."""
    if not trials.predicted or input_cannot_matter(trials):
        return set()
    worth = {name for name, speedup in trials.speedups.items() if speedup.value >= thresholds.WORTH}
    unmeasured = {name for name, why in trials.missing.items() if why.code == "not_measured"}
    if (trials.missing.keys() - unmeasured) & ABLATIONS.keys():
        # Where reads are not counted, warm reads beside cold ones prove them cold. What else is missing stays so.
        provable = not trials.missing.keys() & (ABLATIONS.keys() - {"storage"}) and by_waiting(trials.measurement)
        return {"storage", *worth} if provable and not times_measured(trials.measurement, "warm") else set()
    if not worth or unmeasured:
        return unmeasured
    top = max(trials.speedups, key=lambda name: trials.speedups[name].value)
    # Parts of an input that lies behind compute one by one may lie before it together.
    near = {name for name in worth if name != top and (top == "compute" or not _far(trials, top, name))}
    if trials.is_open(top):
        # An estimate is no basis for spending where it can be measured; these two may hide behind each other.
        beside: set[SingleCause] = {"storage", "preprocessing"} if top in ("storage", "preprocessing") else set()
        return {top, *near, *beside}
    return {top, *near} if near else set()


def _far(trials: Experiments, top: SingleCause, other: SingleCause) -> bool:
    """True when one speed-up leads the other clearly: with an estimate among them in every round, by a wide margin."""
    leading, behind = trials.effects[top].rounds, trials.effects[other].rounds
    wide = all(leading[n] >= thresholds.OPEN_LEAD * max(1.0, behind[n]) for n in leading.keys() & behind.keys())
    measured = trials.is_measured(top) and trials.is_measured(other)
    return not why_alike(trials, top, other) and (measured or wide)


def with_ranks(judgement: Bound, trials: Experiments) -> Bound:
    """The judgement on all ranks, unless their input is the limit and that of one rank, or host, makes others wait."""
    speedups = speedups_among(trials)
    least: dict[ResourceName, float] = {"imbalance": thresholds.CLEAR_LEAD, "straggler": thresholds.WORTH}
    evidence = tuple(
        speedup_evidence(name, speedup, threshold)
        for name, threshold in least.items()
        if (speedup := speedups.get(name))
    )
    judgement = replace(judgement, evidence=(*judgement.evidence, *evidence))
    if judgement.cause in IN_STEP:
        return _with_facts(judgement, _beside_gradients(judgement, trials))
    if judgement.side != "input":
        return judgement
    waited_for, slowest = ranks_wait_for(trials), trials.among.slowest
    if waited_for is None or waited_for == "batches":
        return _with_facts(judgement, {"straggler_speedup": speedups["straggler"].value} if waited_for else {})
    facts: Facts = {"speedup": speedups["imbalance"].value, "how": speedups["imbalance"].how}
    facts |= {"resource": inputs[0]} if (inputs := _inputs(trials)) else {}
    judgement = replace(judgement, cause="imbalance", candidates=())
    # Numbers of ranks would be worded as a range where several configurations share a sentence.
    if isinstance(waited_for, SlowHost):
        facts |= {"host": waited_for.host, "slow_ranks": str(waited_for.slow), "host_ranks": str(waited_for.ranks)}
        facts |= {"slow_images_per_s": waited_for.rate, "other_images_per_s": waited_for.elsewhere}
        return replace(judgement, reason=_reason("slow_host", **facts), host=waited_for.host)
    assert slowest is not None, "the rank that went without input first"
    facts |= {"rank": str(slowest.rank), "host": slowest.host}
    facts |= {"slow_images_per_s": trials.among.slowest_alone, "middle_images_per_s": trials.among.middle_alone}
    return replace(judgement, reason=_reason("slow_rank", **facts), rank=slowest.rank, host=slowest.host)


def ranks_wait_for(trials: Experiments) -> SlowHost | Literal["rank", "batches"] | None:
    """What ranks in step wait for, beyond noise: the slowest rank, a slow host, or slow batches of ranks alike.

    A rank whose input holds up the others, in every round, of few rounds by a wide margin, and that is slower by
    itself, too: what two experiments do not agree on is noise.

    A host nearly all of whose ranks are slower by themselves than each rank elsewhere, just as surely. All together
    must also load faster by themselves than in step: where hosts share a saturated storage unevenly, the faster ones
    only leave more to the others in step.
    """
    among, alone = trials.among, list(trials.among.ratios.get("straggler", {}).values())
    ratios = among.ratios.get("imbalance", {})
    slower = bool(ratios) and among.middle_alone >= thresholds.WORTH * among.slowest_alone
    if slower and of_rounds(ratios).leads_in_each():
        return "rank"
    if among.hosts and among.host_ratios and min(alone, default=0.0) >= thresholds.WORTH:
        leads = ({number: host.lead for number, host in among.hosts.items()}, among.host_ratios)
        if all(of_rounds(lead).leads_in_each() for lead in leads):
            # As it was in the middle one of these rounds.
            return sorted(among.hosts.values(), key=lambda host: host.lead)[len(among.hosts) // 2]
    least = thresholds.WORTH if len(alone) >= thresholds.ENOUGH_ROUNDS else thresholds.OPEN_LEAD
    late = among.alike and min(alone, default=0.0) > 1.0 and median(alone) >= least
    return "batches" if late else None


def speedups_among(trials: Experiments) -> dict[ResourceName, Speedup]:
    """Over the rounds. Where a host is slow, imbalance is that of the host: estimated, and the most that it gains."""
    speedups = {name: of_rounds(ratios).speedup() for name, ratios in trials.among.ratios.items()}
    if not isinstance(ranks_wait_for(trials), SlowHost):
        return speedups
    gain = median(trials.among.host_ratios.values())
    low = min(gain, speedups["straggler"].value)
    return {**speedups, "imbalance": Speedup(value=gain, low=low, high=gain, how="estimated", at_most=True)}


def _beside_gradients(judgement: Bound, trials: Experiments) -> Facts:
    """What a free device, and no exchange of gradients, gain: a free device still exchanges them."""
    gradients, compute = trials.speedups.get("gradients"), trials.speedups.get("compute")
    if gradients is None or compute is None:
        return {}
    limited = bool(trials.among.compute) and trials.effects["compute"].rounds == trials.among.compute
    if judgement.cause == "compute" and gradients.value < thresholds.WORTH and not limited:
        return {}
    return {"compute_speedup": compute.value, "gradients_speedup": gradients.value}


def _with_facts(judgement: Bound, facts: Facts) -> Bound:
    return replace(judgement, reason=replace(judgement.reason, facts={**judgement.reason.facts, **facts}))


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
    def window(self) -> tuple[GpuWindow | None, TimelineView | None]:
        return read_window(self.measurement)

    @cached_property
    def verdict(self) -> Verdict:
        return _verdict(self.experiments, self.ceiling, self.window[0])

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


def _verdict(trials: Experiments, ceiling: StorageCeiling | None, window: GpuWindow | None) -> Verdict:
    measurement = trials.measurement
    images_per_s = trials.rate
    if images_per_s is None or not trials.loader:
        raise BadValue(f"{measurement.config.title()}: the measurement has no complete round")
    trained = segments_of(measurement, trials.base, measurement.judged)
    rates = _rates(trials)
    disk, not_counted = disk_use(measurement, trained, ceiling, images_per_s.value)
    wait = _wait_fraction(trained, trials.loop.overhead_s)
    utilization = median(trials.end_to_end.values()) / trials.compute if trials.compute else None
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
    speedups = speedups_among(trials) | trials.speedups
    timed = next((way for way in measurement.alternatives if way.name == "decoded"), None)
    # Of the CPU time of an image, what is gone where it was decoded before.
    decoding = None if timed is None else max(0.0, 1 - timed.cpu_s / timed.usual_cpu_s)
    return Verdict(
        images_per_s=images_per_s,
        complete_rounds=len(trials.end_to_end),
        rates_images_per_s=rates,
        speedups={name: speedups.get(name) for name in SPEEDUPS},
        predicted_images_per_s=median(trials.predictions.values()) if trials.predicted else None,
        prediction_error=trials.prediction_error[0],
        input_wait_fraction=wait,
        accelerator_utilization=utilization,
        bytes_per_image=bytes_per_image(measurement, trained),
        **disk,
        gpu=gpu,
        bound=_bound(trials, disk, beside, checked_against_rates(window, utilization)),
        advice=(),
        step_time=step_time(trained, images_per_s.value),
        worker_time=trials.cost.per_image(measurement.ranks) if trials.cost else None,
        files_were=files_were(measurement),
        decoding_cpu_fraction=decoding,
        instrument_cpu_fraction=trials.cost.instrument_cpu_fraction if trials.cost else None,
        unavailable=not_counted
        | _unavailable(trials, rates)
        | why_no_counters(measurement, gpu)
        | why_no_window(measurement, window)
        | ({} if decoding is not None else {"decoding_cpu_fraction": Remark(code="decoding_not_timed")}),
    )


def _bound(
    trials: Experiments, disk: Mapping[str, float | None], beside: tuple[Evidence, ...], window: GpuWindow | None
) -> Bound:
    by_rates = with_certainty(judge(trials), trials)
    judgement = with_ranks(with_gaps(by_rates, window), trials)
    facts = judgement.reason.facts | _rate_facts(trials) | _file_facts(trials.measurement, judgement)
    read, share = disk["disk_read_bytes_per_s"], disk["disk_ceiling_fraction"]
    if judgement.cause == "storage" and read is not None and share is not None:
        readers = float(trials.measurement.config.readers)
        facts |= {"read_bytes_per_s": read, "ceiling_fraction": share, "concurrency": readers}
    reason, evidence = replace(judgement.reason, facts=facts), (*judgement.evidence, *beside)
    return replace(judgement, reason=reason, evidence=evidence)


def _rate_facts(trials: Experiments) -> Facts:
    """Images/s of what is judged, of the loader and of compute; whether compute is emulated."""
    compute = trials.measurement.compute
    alone = compute.name == NO_STEP
    training, loader = median(trials.end_to_end.values()), median(trials.loader.values())
    facts: Facts = {
        "judged": "loader" if alone else "training",
        "images_per_s": loader if alone else training,
        "loader_images_per_s": loader,
        "device": "emulated" if compute.specified_images_per_s is not None else "measured",
    }
    facts |= {f"{estimated_part}_how": "estimated" for estimated_part in sorted(trials.estimated_parts)}
    if trials.compute:
        facts |= {"compute_images_per_s": trials.compute, "utilization": training / trials.compute}
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


def _rates(trials: Experiments) -> Rates:
    def without(resource: SingleCause) -> float | None:
        rates = trials.without.get(resource, {})
        # A rate without bound (nothing else takes time) is no figure to print.
        bounded = all(rate < UNBOUNDED * trials.loader[number] for number, rate in rates.items())
        return median(rates.values()) if rates and bounded else None

    cpu_s, loader = trials.cost.all_cpu_s / trials.cost.images if trials.cost else 0.0, median(trials.loader.values())
    of_cores = trials.measurement.cores_available / cpu_s if cpu_s else None
    if of_cores and trials.cost and trials.cost.commands_s:
        of_cores = max(of_cores, loader)  # of so many commands not all had a core
    return Rates(
        compute=trials.compute,
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


def _unavailable(trials: Experiments, rates: Rates) -> dict[str, Remark]:
    known, reasons = speedups_among(trials), _of_both(trials.missing)
    reasons |= {f"speedups.{name}": reason for name, reason in trials.among.missing.items() if name not in known}
    for resource in trials.without:
        if rates.loader_without[resource] is None:
            reasons[f"rates_images_per_s.loader_without.{resource}"] = Remark(code="nothing_else_takes_time")
    if rates.cpu_limit is None:
        reasons["rates_images_per_s.cpu_limit"] = Remark(code="no_worker_cpu_times")
    if trials.cost is None or trials.cost.instrument_cpu_fraction is None:
        reasons["instrument_cpu_fraction"] = Remark(code="overhead_not_recorded")
    if trials.compute is None:
        reasons["rates_images_per_s.compute"] = Remark(code="no_resident_segment")
        reasons["accelerator_utilization"] = Remark(code="compute_unknown")
    unseen = why_missing(trials.measurement, "waits") or Remark(code="too_few_wait_samples")
    left = [name for name in INPUTS if name not in trials.speedups and name not in trials.missing]
    reasons |= _of_both({name: Remark(code="no_mode_without") for name in left if name not in trials.without})
    return reasons | _of_both({name: unseen for name in left if name in ONLY_WAITED})

"""The rule: the cause is the resource with the largest speed-up if it were free; else the verdict is inconclusive.

Chosen in experiments before this code was written; `scripts/bench verdict` shows how often this code is right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.analyze.effects import CLEAR_LEAD, ENOUGH_ROUNDS, FAR_LEAD, OPEN_LEAD, Effect, of_rounds
from loaderprobe.analyze.verdict.evidence import evidence_of, speedup_evidence, waiting_for_cores
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.misfit import MOST_NOISE, misfits_of, noise_of, prediction_error_of, slowed
from loaderprobe.records.gaps import Gaps, GpuWindow
from loaderprobe.records.resources import IN_GAPS, INPUTS, ONLY_WAITED, RESOURCE
from loaderprobe.records.verdict import WORTH, Cause, Evidence, EvidenceCode, Reason, ReasonCode, Side
from loaderprobe.stats import half_width, median

# Workers that wait this share of their time for a core do not gain from more workers.
RUN_DELAY_SHARE = 0.2
CORES_IN_USE_SHARE = 0.9
# What keeps the device idle for less of its time is no cause.
LEAST_IDLE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Side and cause, with the candidates, the reason and its evidence."""

    side: Side
    cause: Cause
    reason: Reason
    candidates: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()


def judge(found: Experiments, *, workers: int, cores_available: float) -> Judgement:
    """Apply the rule to the experiments of one configuration."""
    prediction_error, tolerance = prediction_error_of(found)
    evidence = (
        *speedup_evidence(found.speedups, WORTH),
        *found.evidence,
        *evidence_of([("prediction_error", prediction_error, tolerance)]),
    )
    reason = _why_inconclusive(found, prediction_error, tolerance)
    if reason:
        return inconclusive(found, reason, evidence)
    names = contenders(found)
    reason = contradiction(found, names)
    if reason:
        return inconclusive(found, reason, evidence)
    if not names:
        reason = _reason("no_speedup", least_speedup=WORTH)
        return Judgement(side="balanced", cause="balanced", reason=reason, evidence=evidence)
    top = names[0]
    if len(names) > 1:
        reason = _why_alike(found, names)
        return Judgement(side=side_of(names), cause="either", reason=reason, candidates=names, evidence=evidence)
    reason = _why_not_firm(found, top) or _why_unfair(found, top)
    if reason:
        return inconclusive(found, reason, evidence)
    cpu_evidence = _cpu_limit(found, workers, cores_available)
    if top == "preprocessing" and cpu_evidence:
        reason = _reason(
            "all_cores_busy", **_speedup(found, top), **waiting_for_cores(*cpu_evidence, full=CORES_IN_USE_SHARE)
        )
        return Judgement(side="input", cause="cpu", reason=reason, evidence=(*evidence, *cpu_evidence))
    reason = _reason("largest_speedup", **_speedup(found, top), **_waited(found, top), **_beside_compute(found, top))
    return Judgement(side=side_of((top,)), cause=top, reason=reason, evidence=(*evidence, *cpu_evidence))


def side_of(names: Sequence[str]) -> Side:
    """The side that all of these resources are on."""
    sides: set[Side] = {RESOURCE[name].side for name in names}
    return sides.pop() if len(sides) == 1 else "inconclusive"


def _reason(code: ReasonCode, **facts: float | str) -> Reason:
    return Reason(code=code, facts=facts)


def _speedup(found: Experiments, resource: str) -> dict[str, float | str]:
    speedup = found.speedups[resource]
    return {"resource": resource, "speedup": speedup.value, "how": speedup.how}


def _alike(found: Experiments, names: tuple[str, ...]) -> dict[str, float | str]:
    """The speed-up of each candidate, and how it is known."""
    facts: dict[str, float | str] = {}
    for name in names:
        facts |= {f"{name}_speedup": found.speedups[name].value, f"{name}_how": found.speedups[name].how}
    return facts


def _why_alike(found: Experiments, names: tuple[str, ...]) -> Reason:
    """Speed-ups within 15 % of each other; or the first leads by more, but by less than the rounds differ."""
    facts = _alike(found, names)
    lead = _lead_over(found, names[0], names[1])
    if lead and lead.pairs > 1 and lead.log > math.log(_least_lead(found, names[0], names[1])):
        return _reason("lead_within_spread", **facts, lead=math.exp(lead.log), spread=math.expm1(lead.spread))
    return _reason("speedups_alike", **facts)


def _waited(found: Experiments, resource: str) -> dict[str, float | str]:
    """The share of their time that workers wait for a network, a lock or otherwise, and for whom or what."""
    if resource not in ONLY_WAITED or found.cost is None or found.waiting is None:
        return {}
    share = (found.cost.waited_s(resource) or 0.0) / found.cost.wall_s
    subject = found.waiting.subjects.get(resource)
    return {"waiting_share": share, **({"subject": subject} if subject else {})}


def _beside_compute(found: Experiments, top: str) -> dict[str, float | str]:
    """The input resource that is worth most beside compute: there is one only where the two do not overlap."""
    known = {name: found.speedups[name] for name in INPUTS if name in found.speedups}
    inputs = {name: speedup for name, speedup in known.items() if speedup.value >= WORTH}
    if top != "compute" or not inputs:
        return {}
    best = max(inputs, key=lambda name: inputs[name].value)
    return {"input": best, "input_speedup": inputs[best].value, "input_how": inputs[best].how}


def _why_not_firm(found: Experiments, top: str) -> Reason | None:
    """Why the largest speed-up allows no firm verdict; None when it does."""
    speedup = found.speedups[top]
    if top in found.open and not far_seen(found, top):
        return _reason("estimate_not_measured", **_speedup(found, top))
    if speedup.how == "estimated" and speedup.value < CLEAR_LEAD:
        return _reason("estimate_too_small", **_speedup(found, top))
    if not beyond_noise(found, top):
        return _reason("within_noise", **_speedup(found, top))
    return None


def far_seen(found: Experiments, top: str) -> bool:
    """True where the least that workers were seen waiting for it leads the most of all else by `FAR_LEAD` squared.

    The factor is assumed: a neighbour may halve the one rate and double the other.
    """
    others = [found.ranges.get(name, (0.0, each.value))[1] for name, each in found.speedups.items() if name != top]
    return top in found.ranges and found.ranges[top][0] >= FAR_LEAD**2 * max(1.0, *others, 1.0)


def _why_unfair(found: Experiments, top: str) -> Reason | None:
    """Why a lead that others may have made is not believed: none of its rounds was free of them, and it is not far."""
    fair = found.fair.get(top)
    if fair is None or fair[0] or lead_of(found, top) >= FAR_LEAD:
        return None
    return _reason("rounds_disturbed", rounds=float(fair[1]), **_speedup(found, top))


def inconclusive(found: Experiments, reason: Reason, evidence: tuple[Evidence, ...]) -> Judgement:
    """No cause; but the side, where the loader starves training and compute does not hold it up.

    Neither figure is a prediction: compute alone over training, and the loader alone over training.
    """
    free, starved = found.compute_over_training, found.loader_over_training
    side: Side = "inconclusive"
    if free is not None and starved is not None and len(found.end_to_end) >= ENOUGH_ROUNDS:
        noise = 1 + 2 * half_width([math.log(rate) for rate in found.end_to_end.values()])
        lead = max(OPEN_LEAD, min(noise, 1 + MOST_NOISE))
        if free >= lead * max(1.0, starved):
            side = "input"
    return Judgement(side=side, cause="inconclusive", reason=reason, evidence=evidence)


def with_gaps(judgement: Judgement, window: GpuWindow | None) -> Judgement:
    """The judgement by rates, unless the device's gaps show a cause that no rate can see.

    That is copying, the host, or communication with other GPUs. Compute alone runs on the same host, so a late host
    looks like a slow device; a copy is in no rate of the loader. Where rates name an input, or the exchange of
    gradients, which was measured, or the gaps leave a doubt, nothing changes.
    """
    if judgement.side == "input" or judgement.cause == "gradients":
        return judgement
    if window is None or window.gaps is None or window.doubts:
        return judgement
    gaps = window.gaps
    waiting = gaps.share("input", "loader")
    idle = {name: gaps.share(*RESOURCE[name].gaps) for name in IN_GAPS}
    cause = max(idle, key=lambda name: idle[name])
    largest = max(waiting * OPEN_LEAD, idle[cause], gaps.share("device", "other"))
    if idle[cause] < largest or largest <= LEAST_IDLE:
        return judgement
    evidence = evidence_of(
        [
            ("gpu_window.gaps.copy_ns", idle["copy"], LEAST_IDLE),
            ("gpu_window.gaps.launch_ns", gaps.share("launch"), LEAST_IDLE),
            ("gpu_window.gaps.sync_ns", gaps.share("sync"), LEAST_IDLE),
            ("gpu_window.gaps.waiting", waiting, None),
            ("gpu_window.gaps.communication_ns", gaps.share("communication") or None, LEAST_IDLE),
        ]
    )
    return Judgement(
        side=RESOURCE[cause].side,
        cause=cause,
        reason=_idle_reason(gaps, cause),
        evidence=(*judgement.evidence, *evidence),
    )


def _idle_reason(gaps: Gaps, cause: Cause) -> Reason:
    facts: dict[str, float | str] = {f"{gap}_share": gaps.share(gap) for gap in RESOURCE[cause].gaps}
    if cause == "copy" and 2 * gaps.pageable_ns > gaps.copy_ns:
        facts["copies_from"] = "pageable memory"
    return _reason("device_idle", **facts)


def contenders(found: Experiments) -> tuple[str, ...]:
    """The resource with the largest speed-up, then those not clearly below it; empty when none is large enough."""
    ranked = sorted(found.speedups.items(), key=lambda item: -item[1].value)
    worth = [name for name, speedup in ranked if speedup.value >= WORTH]
    return tuple(name for name in worth if name == worth[0] or not is_clear(found, worth[0], name))


def beyond_noise(found: Experiments, top: str) -> bool:
    """True when a speed-up is outside the noise band of the rounds; of few, it must be as large as an estimate's."""
    if len(found.ratios[top]) < ENOUGH_ROUNDS and found.speedups[top].value < OPEN_LEAD:
        return False
    return of_rounds(found.ratios[top]).exceeds()


def contradiction(found: Experiments, names: Sequence[str]) -> Reason | None:
    """Why the rounds cannot be believed, where the lead of the first of `names` does not outweigh it; None if it does.

    A load that slows segments by a factor may have slowed those as asked and those without the next resource: only a
    lead of more than its square is no work of it. `names` is empty for a balanced verdict, which has no lead.
    """
    lead = lead_of(found, names[0]) if names else 1.0
    slower = slowed(found)
    if slower is not None and lead < slower[1] ** 2:
        activity = "training" if found.in_training else "loader_only"
        return _reason("slower_without", resource=slower[0], rate_share=1 / slower[1], activity=activity)
    rate = found.rate
    if rate is not None and rate.too_wide and lead < rate.factor**2:
        return _reason("interval_too_wide", low_per_s=rate.low, high_per_s=rate.high)
    return None


def _withstands(found: Experiments, prediction_error: float) -> bool:
    """True where a measured input leads by so much that the parts, off by this error, cannot have made the lead.

    Of a loader in short segments on a disk that grants reads in slices: 143 % of its prediction, and a lead of 4. The
    parts may be off by the error to either side. Compute needs its prediction: what holds it up is not known.
    """
    top = max(found.speedups, key=lambda name: found.speedups[name].value)
    off = math.exp(abs(math.log1p(max(prediction_error, -0.99))))
    measured = found.speedups[top].how == "measured" and top in INPUTS
    return measured and off <= 1 + MOST_NOISE and lead_of(found, top) >= CLEAR_LEAD * off**2


def lead_of(found: Experiments, top: str) -> float:
    """By what factor a speed-up leads the next, or 1 where that is more."""
    others = [speedup.value for name, speedup in found.speedups.items() if name != top]
    return found.speedups[top].value / max(1.0, *others, 1.0)


def _why_inconclusive(found: Experiments, prediction_error: float | None, tolerance: float) -> Reason | None:
    """Why no cause can be named; None when one can."""
    if prediction_error is None or not found.speedups:
        return _reason("no_complete_round")
    if found.met_warm:
        return _reason("files_were_warm", **found.met_warm.because)
    if found.above_ceiling:
        read, ceiling = found.above_ceiling
        return _reason("above_ceiling", samples_bytes_per_s=read, ceiling_bytes_per_s=ceiling)
    if abs(prediction_error) > tolerance and not found.in_training and not _withstands(found, prediction_error):
        single = len(misfits_of(found)) == 1
        return _reason(
            "one_round_does_not_fit" if single else "outside_noise_band",
            predicted_share=1 + prediction_error,
            noise_band=tolerance,
        )
    noise = noise_of(found)
    if noise > MOST_NOISE and not found.in_training:
        return _reason("rounds_differ", spread=noise)
    best = max(found.speedups, key=lambda name: found.speedups[name].value)
    lead = CLEAR_LEAD if found.speedups[best].how == "measured" else OPEN_LEAD
    for resource, reason in found.missing.items():
        # Whatever the missing experiment would have shown is at most what a free input would gain.
        most = min(found.free_input_speedup, found.bounds.get(resource, math.inf))
        if most >= WORTH and found.speedups[best].value < most * lead:
            return _reason("ablation_missing", resource=resource, **reason.because)
    return None


def is_clear(found: Experiments, top: str, second: str) -> bool:
    """True when the lead of one speed-up over the other, round by round, is large and beyond noise."""
    ratios = found.ratios[second]
    # One of three rounds or more may be an outlier.
    largest = sorted(ratios.values())[-2 if len(ratios) >= ENOUGH_ROUNDS else -1 :][0] if ratios else 1.0
    if top in found.at_most and second in ("storage", "network") and largest >= CLEAR_LEAD:
        # Were the storage at its limit, the workers would wait as they do, and the estimate would be of no speed-up.
        return False
    least, _ = found.ranges.get(top, (found.speedups[top].value, 0.0))
    _, most = found.ranges.get(second, (0.0, found.speedups[second].value))
    if least < CLEAR_LEAD * max(1.0, most):
        return False
    lead = _lead_over(found, top, second)
    return lead is not None and lead.exceeds(_least_lead(found, top, second))


def _least_lead(found: Experiments, top: str, second: str) -> float:
    """The factor that one speed-up must lead another by."""
    estimated = "estimated" in (found.speedups[top].how, found.speedups[second].how)
    return OPEN_LEAD if estimated else CLEAR_LEAD


def _lead_over(found: Experiments, top: str, second: str) -> Effect | None:
    """One speed-up over the other, round by round: neither is less than 1 but by noise."""
    return of_rounds(found.ratios[top]).over(of_rounds(found.ratios[second]), least=1.0)


def _cpu_limit(found: Experiments, workers: int, cores_available: float) -> tuple[Evidence, ...]:
    """Evidence that the cores are the limit, so that more workers would not help; empty when they are not."""
    if found.cost is None or not workers or not found.cost.wall_s:
        return ()
    delay = found.cost.run_delay_s / found.cost.wall_s
    metric: EvidenceCode = "loader_cores"
    in_use = cores_in_use(found)
    if found.in_training and found.training_cores is not None:
        metric, in_use = "training_cores", found.training_cores
    least = CORES_IN_USE_SHARE * cores_available
    if delay <= RUN_DELAY_SHARE and in_use < least:
        return ()
    # Of the whole node: both figures are of one of the ranks that share it.
    of_node = found.among.on_a_node
    return (
        *evidence_of([("run_delay_fraction", delay, RUN_DELAY_SHARE)]),
        *evidence_of([(metric, in_use * of_node, least * of_node)], unit="cores"),
    )


def cores_are_busy(found: Experiments, *, workers: int, cores_available: float) -> bool:
    """True when the cores limit the loader, so that more workers would only wait for each other."""
    return bool(_cpu_limit(found, workers, cores_available))


def cores_in_use(found: Experiments) -> float:
    """Cores that reading, preprocessing and receiving keep busy while the loader runs alone."""
    if found.cost is None or not found.loader:
        return 0.0
    cpu_s = max(found.cost.cpu_s, found.cost.process_cpu_s or 0.0)
    per_image_s = cpu_s / found.cost.images + found.overhead_s / found.batch_size
    return median(list(found.loader.values())) * per_image_s

"""The rule: the cause is the resource whose removal gains most, or we say that we cannot tell.

Chosen in experiments before this code was written; `scripts/bench verdict` shows how often this code is right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.records.gaps import GpuWindow
from loaderprobe.records.verdict import Cause, Evidence, Side, Speedup
from loaderprobe.stats import half_width, mean, median, standard_error

# A change that gains less than this is not worth a word: CPU speed alone drifts by more.
WORTH = 1.05
# Two gains closer than this, or than two standard errors, cannot be told apart.
CLEAR_LEAD = 1.15
# An estimate may be off by more than the noise: a firm word that rests on one needs this lead.
OPEN_LEAD = 1.5
# Workers that wait this share of their time for a core do not gain from more workers.
RUN_DELAY_SHARE = 0.2
CORES_IN_USE_SHARE = 0.9
# The median drift of CPU speed within 15 s on an idle virtual machine was 8 %.
RESIDUAL_FLOOR = 0.1
# Noise between rounds excuses no more than this.
MOST_RESIDUAL = 0.25
# Rounds that differ by more than this from the middle one tell nothing of a whole and its parts.
MOST_NOISE = 0.5
# With fewer rounds there is no telling noise from gain, and a gain must be as large as an estimate's.
LEAST_ROUNDS = 3
# What keeps the device idle for less of its time is no cause.
LEAST_IDLE = 0.1
INPUT_RESOURCES = ("storage", "preprocessing", "transport", "network", "lock", "wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Side and cause, with what could have been meant and why nothing firmer can be said."""

    side: Side
    cause: Cause
    candidates: tuple[str, ...] = ()
    why: str = ""
    evidence: tuple[Evidence, ...] = ()


def judge(found: Experiments, *, workers: int, cores_available: float) -> Judgement:
    """Apply the rule to the experiments of one configuration."""
    prediction_error, tolerance = prediction_error_of(found)
    evidence = [*_gain_evidence(found.gains), *found.evidence]
    if prediction_error is not None:
        evidence.append(_evidence("prediction_error of the end-to-end rate", prediction_error, tolerance, ""))
    reason = _why_undecided(found, prediction_error, tolerance)
    if reason:
        return _inconclusive(found, reason, evidence)
    names = contenders(found)
    if not names:
        return Judgement(side="balanced", cause="balanced", evidence=tuple(evidence))
    top = names[0]
    if len(names) > 1:
        side: Side = "input" if all(name in INPUT_RESOURCES for name in names) else "inconclusive"
        return Judgement(side=side, cause="either", candidates=names, evidence=tuple(evidence))
    reason = _why_not_firm(found, top)
    if reason:
        return _inconclusive(found, reason, evidence)
    cpu_evidence = _cpu_limit(found, workers, cores_available)
    if top == "preprocessing" and cpu_evidence:
        return Judgement(side="input", cause="cpu", evidence=(*evidence, *cpu_evidence))
    side = "compute" if top == "compute" else "input"
    causes: dict[str, Cause] = {
        "compute": "compute", "storage": "storage", "preprocessing": "preprocessing", "transport": "transport",
        "network": "network", "lock": "lock", "wait": "wait",
    }  # fmt: skip
    return Judgement(side=side, cause=causes[top], evidence=(*evidence, *cpu_evidence))


def _why_not_firm(found: Experiments, top: str) -> str:
    """Why the gain that leads cannot carry a firm word; empty when it can."""
    gain = found.gains[top]
    if top in found.open:
        return f"the gain without {top} ({gain.value:.2f}) is only estimated, and there was no time to measure it"
    if gain.how == "estimated" and gain.value < CLEAR_LEAD:
        return f"the gain without {top} is only estimated, and at {gain.value:.2f} too small to rest on"
    if not beyond_noise(found, top):
        return f"the gain without {top} ({gain.value:.2f}) is within what rounds differ by"
    return ""


def _inconclusive(found: Experiments, why: str, evidence: list[Evidence]) -> Judgement:
    """No cause; but the side, where the loader starves training and compute does not hold it up.

    Both figures are measured: compute alone over training, and the loader alone over training.
    """
    free, starved = found.free_gain, found.starved_gain
    side: Side = "inconclusive"
    if free is not None and starved is not None and len(found.end_to_end) >= LEAST_ROUNDS:
        noise = 1 + 2 * half_width([math.log(rate) for rate in found.end_to_end.values()])
        lead = max(OPEN_LEAD, min(noise, 1 + MOST_NOISE))
        if free >= lead * max(1.0, starved):
            side = "input"
    return Judgement(side=side, cause="inconclusive", why=why, evidence=tuple(evidence))


def with_gaps(judgement: Judgement, window: GpuWindow | None) -> Judgement:
    """The judgement by rates, unless the device's gaps show a cause that no rate can see: copying, or the host.

    Compute alone runs on the same host, so a late host looks like a slow device; a copy is in no rate of the loader.
    Where rates name an input, or the gaps leave a doubt, nothing changes.
    """
    if judgement.side == "input" or window is None or window.gaps is None or window.doubts:
        return judgement
    gaps = window.gaps
    waiting, copying, late = gaps.share("input", "loader"), gaps.share("copy"), gaps.share("launch", "sync")
    largest = max(waiting * OPEN_LEAD, copying, late, gaps.share("device", "other"))
    if max(copying, late) < largest or largest <= LEAST_IDLE:
        return judgement
    evidence = (
        _evidence("share of the device's time idle for copies to it", copying, LEAST_IDLE, ""),
        _evidence("share of the device's time idle for the host: launching", gaps.share("launch"), LEAST_IDLE, ""),
        _evidence("share of the device's time idle for the host: synchronising", gaps.share("sync"), LEAST_IDLE, ""),
        _evidence("share of the device's time idle for the loader", waiting, None, ""),
    )
    side: Side = "input" if copying >= late else "compute"
    cause: Cause = "copy" if copying >= late else "host"
    return Judgement(side=side, cause=cause, evidence=(*judgement.evidence, *evidence))


def contenders(found: Experiments) -> tuple[str, ...]:
    """The resource that gains most, then those that cannot be told apart from it; empty when nothing gains enough."""
    ranked = sorted(found.gains.items(), key=lambda item: -item[1].value)
    worth = [name for name, gain in ranked if gain.value >= WORTH]
    return tuple(name for name in worth if name == worth[0] or not is_clear(found, worth[0], name))


def beyond_noise(found: Experiments, top: str) -> bool:
    """True when a gain is there in spite of what rounds differ by."""
    logs = [math.log(max(1e-9, ratio)) for ratio in found.ratios[top].values()]
    if len(logs) < LEAST_ROUNDS:
        return found.gains[top].value >= OPEN_LEAD
    return mean(logs) > 2 * standard_error(logs)


def prediction_error_of(found: Experiments) -> tuple[float | None, float]:
    """(measured end-to-end rate over the predicted one minus 1, the most that noise explains).

    Rounds are compared pair by pair, since both rates of a round saw the same machine.
    """
    logs = [math.log(found.end_to_end[n] / found.predicted[n]) for n in found.predicted if n in found.end_to_end]
    if not logs:
        return None, RESIDUAL_FLOOR
    return math.expm1(median(logs)), max(RESIDUAL_FLOOR, min(MOST_RESIDUAL, half_width(logs)))


def noise_of(found: Experiments) -> float:
    """By how much, at most, a round's training over its parts differs from that of the middle round."""
    logs = [math.log(found.end_to_end[n] / found.predicted[n]) for n in found.predicted if n in found.end_to_end]
    return max((abs(each - median(logs)) for each in logs), default=0.0)


def _why_undecided(found: Experiments, prediction_error: float | None, tolerance: float) -> str:
    """The reason why no firm word is possible; empty when one is."""
    if prediction_error is None or not found.gains:
        return "no round measured both the loader and training on it"
    if found.met_warm:
        return found.met_warm
    misfit = abs(prediction_error) > tolerance and not found.in_training
    if misfit and len(found.predicted) == 1:
        return (
            f"in the one round that there was time for, training ran at {1 + prediction_error:.0%} of what its parts "
            "predict, and a single round has no measure of noise"
        )
    if misfit:
        return (
            f"training ran at {1 + prediction_error:.0%} of what its parts predict, more than noise explains, "
            "so the parts do not describe the whole"
        )
    noise = noise_of(found)
    if noise > MOST_NOISE and not found.in_training:
        return f"rounds differ by {noise:.0%} in how training compares with its parts, so nothing can be told"
    best = max(found.gains, key=lambda name: found.gains[name].value)
    lead = CLEAR_LEAD if found.gains[best].how == "measured" else OPEN_LEAD
    for resource, reason in found.missing.items():
        # Whatever the missing experiment would have shown is at most what a free input would gain.
        most = min(found.ceiling_gain, found.bounds.get(resource, math.inf))
        if most >= WORTH and found.gains[best].value < most * lead:
            return f"the experiment without {resource} is missing: {reason}"
    return ""


def is_clear(found: Experiments, top: str, second: str) -> bool:
    """True when the lead of one gain over the other, round by round, is large and beyond noise."""
    ratios = found.ratios[second]
    if top in found.at_most and second in ("storage", "network") and max(ratios.values(), default=1.0) >= CLEAR_LEAD:
        # Were the storage at its limit, the workers would wait as they do, and the estimate would be of no gain.
        return False
    least, _ = found.ranges.get(top, (found.gains[top].value, 0.0))
    _, most = found.ranges.get(second, (0.0, found.gains[second].value))
    if least < CLEAR_LEAD * max(1.0, most):
        return False
    estimated = "estimated" in (found.gains[top].how, found.gains[second].how)
    least = math.log(OPEN_LEAD if estimated else CLEAR_LEAD)
    rounds = found.ratios[top].keys() & ratios.keys()
    leads = [math.log(max(1.0, found.ratios[top][n]) / max(1.0, ratios[n])) for n in sorted(rounds)]
    return bool(leads) and mean(leads) > max(least, 2 * standard_error(leads))


def _cpu_limit(found: Experiments, workers: int, cores_available: float) -> tuple[Evidence, ...]:
    """Evidence that the cores are the limit, so that more workers would not help; empty when they are not."""
    if found.cost is None or not workers or not found.cost.wall_s:
        return ()
    delay = found.cost.run_delay_s / found.cost.wall_s
    in_use, of = cores_in_use(found), "the loader"
    if found.in_training and found.training_cores is not None:
        in_use, of = found.training_cores, "training and its workers"
    if delay <= RUN_DELAY_SHARE and in_use < CORES_IN_USE_SHARE * cores_available:
        return ()
    return (
        _evidence("share of worker time waiting for a core", delay, RUN_DELAY_SHARE, ""),
        _evidence(f"cores in use by {of}", in_use, CORES_IN_USE_SHARE * cores_available, "cores"),
    )


def cores_are_taken(found: Experiments, *, workers: int, cores_available: float) -> bool:
    """True when the cores limit the loader, so that more workers would only wait for each other."""
    return bool(_cpu_limit(found, workers, cores_available))


def cores_in_use(found: Experiments) -> float:
    """Cores that reading, preprocessing and receiving keep busy while the loader runs alone."""
    if found.cost is None or not found.loader:
        return 0.0
    cpu_s = max(found.cost.cpu_s, found.cost.process_cpu_s or 0.0)
    per_image_s = cpu_s / found.cost.images + found.overhead_s / found.batch_size
    return median(list(found.loader.values())) * per_image_s


def _gain_evidence(gains: Mapping[str, Speedup]) -> list[Evidence]:
    return [_evidence(f"gain without {name} ({gain.how})", gain.value, WORTH, "x") for name, gain in gains.items()]


def _evidence(metric: str, value: float, threshold: float | None, unit: str) -> Evidence:
    return Evidence(metric=metric, value=value, threshold=threshold, unit=unit)

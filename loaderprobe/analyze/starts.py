"""The verdict on a script that starts its workers in each epoch: a wait that no segment of training holds."""

from __future__ import annotations

import math
from dataclasses import replace

from loaderprobe.analyze.verdict.rule import NOT_COLD
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.remark import Facts
from loaderprobe.records.resources import JUDGED, RESOURCE, SPEEDUPS, ResourceName
from loaderprobe.records.thresholds import FAR_LEAD, LEAD_OF_ONE_ROUND, WORTH
from loaderprobe.records.verdict import Action, Advice, Bound, Interval, Reason, ReasonCode, Side, Speedup, Verdict

NOTE = "workers_start_each_epoch"


def starts_workers(measurement: Measurement) -> bool:
    """True where the rate of a verdict is less than that of the segments, by the start of workers."""
    return any(note.code == NOTE for note in measurement.notes)


def with_starts(verdict: Verdict, measurement: Measurement) -> Verdict:
    """Of a script that starts its workers before each epoch, as a note says; the same of any other.

    That is a wait of its own kind: all rates of training have it, and a part that costs nothing gains less beside it.
    """
    for note in measurement.notes:
        if note.code == NOTE:
            starts = float(note.facts.get("starts", 1))  # earlier results do not say
            verdict = _with_start(verdict, float(note.facts["start_s"]), float(note.facts["epoch_s"]), starts)
    return verdict


def _with_start(verdict: Verdict, start_s: float, epoch_s: float, starts: float) -> Verdict:
    """With `start_s` before each epoch, the median of so many starts, which then trains for `epoch_s`.

    Both are estimates: the time of a batch is taken off a start, and few steps stand for an epoch. A single start may
    be off by as much as a single segment.
    """
    now, beside = verdict.images_per_s.value, start_s / epoch_s

    def slowed(rate: float) -> float:
        """Images/s, with the start."""
        return rate / (1 + beside * rate / now)

    def lessened(gain: float) -> float:
        """A factor by which training would be faster, beside the start."""
        return slowed(now * gain) / slowed(now)

    known = {name: gain for name in SPEEDUPS if (gain := verdict.speedups[name])}
    waits = known.pop("wait", Speedup(value=1.0, low=1.0, high=1.0, how="measured"))
    others = {
        name: replace(gain, low=lessened(gain.low), value=lessened(gain.value), high=lessened(gain.high))
        for name, gain in known.items()
    }
    rates, used = verdict.images_per_s, verdict.accelerator_utilization
    off = LEAD_OF_ONE_ROUND ** (1 / math.sqrt(starts))
    low, value, high = (1 + beside * end / now for end in (rates.low / off, now, rates.high * off))
    start = Speedup(low=low * waits.low, value=value * waits.value, high=high * waits.high, how="estimated")
    rate = Interval(
        low=rates.low / (1 + beside * off * rates.low / now),
        value=slowed(now),
        high=rates.high / (1 + beside / off * rates.high / now),
    )
    figures: dict[str, float] = {
        **{f"speedups.{name}": gain.value for name, gain in others.items()},
        "speedups.wait": start.value,
        "input_wait_fraction": (verdict.input_wait_fraction + beside) / (1 + beside),
    }
    facts, old = Facts(images_per_s=rate.value), verdict.bound.reason.facts
    if used is not None:
        figures["accelerator_utilization"] = facts["utilization"] = used / (1 + beside)
    facts |= {name: lessened(float(fact)) for name, fact in old.items() if _is_gain(name)}
    of_wait = {"wait_speedup", *(["speedup"] if old.get("resource") == "wait" else [])}
    facts |= dict.fromkeys(of_wait & set(old), start.value)
    evidence = tuple(replace(part, value=figures.get(part.metric, part.value)) for part in verdict.bound.evidence)
    reason = replace(verdict.bound.reason, facts=old | facts)
    bound = _bound(replace(verdict.bound, reason=reason, evidence=evidence), start, others)
    if bound.cause == "wait":
        timed: Facts = {"start_s": start_s, "whole_s": start_s + epoch_s}
        bound = replace(bound, reason=replace(bound.reason, facts=bound.reason.facts | timed))
    stay = Advice(
        action=Action(code="persistent_workers"), command="persistent_workers=True", speedup=1 + beside, before=rate,
        after=rates, how="estimated",
    )  # fmt: skip
    advice = [each for each in verdict.advice if each.is_worth_making or bound.cause != "wait"]
    return replace(
        verdict,
        images_per_s=rate,
        speedups={**verdict.speedups, **others, "wait": start},
        accelerator_utilization=figures.get("accelerator_utilization"),
        input_wait_fraction=figures["input_wait_fraction"],
        bound=bound,
        advice=(
            stay,
            *(
                replace(
                    each,
                    before=rate,
                    after=Interval(
                        low=slowed(each.after.low), value=slowed(each.after.value), high=slowed(each.after.high)
                    ),
                    speedup=lessened(each.speedup) if each.is_worth_making else each.speedup,
                )
                for each in advice
            ),
        ),
        unavailable={name: why for name, why in verdict.unavailable.items() if name != "speedups.wait"},
    )


def _bound(within: Bound, start: Speedup, others: dict[ResourceName, Speedup]) -> Bound:
    """Of what limited training within an epoch, and the start.

    The start is the cause where it leads all others far, since one may be all that was seen; one of two where it just
    leads another that is worth removing, and no firm one where there is no other. Its share of cold epochs is not known
    from epochs that memory served; and what is not known may gain as much as all of the epoch would.
    """
    if within.reason.code in NOT_COLD:
        return within
    rivals = {name: others[name].value for name in JUDGED if name in others and others[name].value >= WORTH}
    next_to_it = max(rivals, key=lambda name: rivals[name], default=None)
    lead = start.value / (rivals[next_to_it] if next_to_it else 1.0)
    if within.reason.code in _PARTS_UNKNOWN:
        lead = min(lead, start.value - 1)
    facts = {name: fact for name, fact in within.reason.facts.items() if name in _OF_RATES}
    of_start: Facts = {"resource": "wait", "speedup": start.value, "how": start.how}
    if lead >= FAR_LEAD:
        reason = Reason(code="largest_speedup", facts=facts | of_start)
        return replace(within, side="input", cause="wait", candidates=(), reason=reason)
    if lead <= 1 or not within.firm or within.cause == "wait":
        return within
    if next_to_it is None:
        reason = Reason(code="estimate_too_small", facts=facts | of_start)
        return replace(within, side="inconclusive", cause="inconclusive", reason=reason)
    facts |= {"wait_speedup": start.value, "wait_how": start.how}
    facts |= {f"{next_to_it}_speedup": rivals[next_to_it], f"{next_to_it}_how": others[next_to_it].how}
    side: Side = "input" if RESOURCE[next_to_it].side == "input" else "inconclusive"
    reason = Reason(code="speedups_alike", facts=facts)
    return replace(within, side=side, cause="either", candidates=("wait", next_to_it), reason=reason)


def _is_gain(fact: str) -> bool:
    """True of a fact that says by what factor training would be faster; `least_speedup` is a threshold."""
    return fact in ("speedup", "least", "most") or (fact.endswith("_speedup") and fact != "least_speedup")


_PARTS_UNKNOWN: tuple[ReasonCode, ...] = ("no_complete_round", "ablation_missing")
_OF_RATES = (
    "judged", "device", "images_per_s", "utilization", "loader_images_per_s", "compute_images_per_s", "compute_how",
    "files_were",
)  # fmt: skip
"""Facts of a reason that stay, whatever the cause."""

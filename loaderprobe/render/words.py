"""Codes and facts of one record as a sentence, by the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from loaderprobe.records import values
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.remark import Coded, Remark
from loaderprobe.records.resources import RESOURCE
from loaderprobe.records.thresholds import WIDE_RANGE
from loaderprobe.records.verdict import Action, Advice, Bound, Interval, Knee
from loaderprobe.render.format import Facts, Sentence, first_upper, noun
from loaderprobe.render.messages import MESSAGES
from loaderprobe.units import join_words


def message(code: str, facts: Facts) -> str:
    """The text of a code. Raises KeyError for a code without one, and where a fact is missing."""
    return Sentence(MESSAGES, facts).of(code)


def remark_words(remark: Remark) -> str:
    """A clause without a full stop: `no warm segment was measured`."""
    by_resource = {name: value for name, value in remark.facts.items() if name in RESOURCE}
    facts = {**remark.facts, "resources": by_resource}
    return message(remark.code, facts) + message("part.readings_end", facts)


def sentence(bound: Bound, *, sample: str = "image") -> str:
    """Side, cause and reason of one verdict; `sample` is what is counted, in the singular."""
    return f"{heading(bound)}: {_reason(bound, sample)}"


def explanation(bound: Bound, *, sample: str = "image") -> str:
    """The same without side and cause, for where these stand above it."""
    return first_upper(_reason(bound, sample))


def heading(bound: Bound) -> str:
    """`Input-bound by storage`, `Compute-bound`, `Inconclusive`."""
    side = {"input": "Input-bound", "compute": "Compute-bound", "balanced": "Balanced"}.get(bound.side, "Inconclusive")
    if bound.cause == "either":
        how, last = ("between", "and") if bound.side == "inconclusive" else ("by", "or")
        return f"{side} {how} {join_words([noun(name) for name in bound.candidates], last)}"
    if bound.cause == "inconclusive":
        return side if bound.side == "inconclusive" else f"{side}, cause inconclusive"
    if bound.cause in (bound.side, "balanced"):
        return side
    cause = message("part.slow", bound.reason.facts) if bound.cause == "imbalance" else noun(bound.cause)
    return f"{side} by {cause}"


def _reason(bound: Bound, sample: str) -> str:
    facts = {**bound.reason.facts, **_of_candidates(bound), "cause": bound.cause, "sample": sample}
    return message(f"reason.{bound.reason.code}", facts) + message("part.beside_reason", facts)


def _of_candidates(bound: Bound) -> dict[str, Any]:
    """Of a verdict between several: the speed-ups of all, and the first two by themselves."""
    given = bound.reason.facts
    known = [(name, given[f"{name}_speedup"], given[f"{name}_how"]) for name in bound.candidates]
    alike = [message("part.alike", {"speedup": speedup, "how": how}) for _, speedup, how in known]
    facts: dict[str, Any] = {"alike": join_words(alike)}
    for ordinal, (name, speedup, how) in zip(("first", "second"), known, strict=False):
        facts |= {ordinal: name, f"{ordinal}_speedup": speedup, f"{ordinal}_how": how}
    return facts


def action_words(action: Action, *, sample: str = "image") -> str:
    """`use 4 workers`; for a change that gains nothing, the whole sentence. `sample` is what is counted."""
    return message(f"action.{action.code}", {**action.facts, "sample": sample})


def code_line(action: Action) -> str:
    """The line of the user's code to change; empty for a change of anything else."""
    code = f"line.{action.code}"
    return message(code, action.facts) if code in MESSAGES else ""


def forecast_words(advice: Advice, sample: str = "images") -> str:
    """`205 → 391 images/s (352 to 430), 1.91x, estimated; then CPU cores are the limit`.

    A model that can say little says so: `205 → about 391 images/s (211 to 530), 1.0 to 2.6x`. Where the range of the
    forecast includes that training gets slower, it says so first. `sample` is what is counted, in the plural.
    """
    before, after = advice.before.value, advice.after
    facts = {**values(advice), **values(after), "before": before, "after": after.value, "then": advice.bottleneck}
    facts |= {"doubt": "slower" if after.low < before else "", "sample": sample}
    if _is_rough(after):
        facts |= {"about": after.value, "least": after.low / before, "most": after.high / before}
    return message("part.forecast", facts)


def _is_rough(forecast: Interval) -> bool:
    """True where the range leaves open how much a change gains."""
    return forecast.half > WIDE_RANGE * forecast.value


def knee_words(knee: Knee) -> str:
    """`2 workers, 640 images/s; beyond it, CPU cores are the limit.`, or why there is no knee."""
    beyond = [forecast for forecast in knee.forecasts if knee.workers is None or int(forecast.to) > knee.workers]
    why = next((remark_words(forecast.refused) for forecast in beyond if forecast.refused), "")
    if knee.workers is None or knee.images_per_s is None:
        return message("knee.unknown", {"why": why})
    rate = knee.images_per_s.value
    facts = {**values(knee), "images_per_s": rate, "why": why, "then": knee.bottleneck}
    facts["about"] = rate if _is_rough(knee.images_per_s) else None
    if knee.inconclusive:
        end = "inconclusive"
    elif why:
        end = "no_forecast"
    elif knee.bottleneck is None:
        end = "no_gain" if beyond else "rises"
    else:
        end = "no_gain" if knee.bottleneck == "preprocessing" else "limited"
    return message(f"knee.{end}", facts)


def enough(there: float, wanted: float, *, at_least: bool, at_most: bool = False) -> str:
    """`enough`, `not enough`, or `not known`: of a lower bound that is too low, or an upper one that is not."""
    if there >= wanted:
        return "not known" if at_most else "enough"
    return "not known" if at_least else "not enough"


ENOUGH_MARK = {"enough": "●", "not known": "○", "not enough": "▼"}
"""By what `enough` says."""


def enough_mark(there: float, wanted: float, *, at_least: bool = False) -> str:
    """The mark of what `enough` says."""
    return ENOUGH_MARK[enough(there, wanted, at_least=at_least)]


def location_words(location: StorageLocation) -> str:
    """`ext4 (block) mounted on /data from /dev/vdb1, device vda, read-ahead 128 KiB`."""
    hidden = "" if location.kind in ("memory", "network", "fuse") else "not visible"
    facts = {**values(location), "devices": join_words(location.devices) or hidden}
    facts |= {"kind": ""} if location.kind == "unknown" else {}
    return message("part.objects" if location.kind == "object" else "part.place", facts)


def sweep_plan_words(plan: Sequence[Coded]) -> Iterator[str]:
    """A sentence for each part; remarks are what is known beforehand to weaken the result."""
    for part in plan:
        if isinstance(part, Remark):
            yield f"{remark_words(part)}."
        else:
            yield message(f"sweep_plan.{part.code}", part.facts)

"""Among which resources the cause may still be, and which were made free to find it."""

from __future__ import annotations

from loaderprobe.analyze.verdict.experiments import Experiments, run_experiments
from loaderprobe.analyze.verdict.rule import input_cannot_matter, is_clear
from loaderprobe.analyze.verdict.validity import by_waiting
from loaderprobe.records import thresholds
from loaderprobe.records.measurement import Activity, Measurement, Mode, segments_of
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.resources import ABLATIONS, SingleCause


def ablations(measurement: Measurement) -> Remark:
    """Which resources were made free in this measurement, and why no more."""
    found = run_experiments(measurement)
    measurement = found.measurement
    measured = {name: times for name, mode in ABLATIONS.items() if (times := times_measured(measurement, mode))}
    if found.base == "warm":
        measured.pop("storage", None)
    if found.in_training:
        rounds = max(times_measured(measurement, mode, "training") for mode in ABLATIONS.values())
        return Remark(code="ablated_in_training", facts={"rounds": rounds})
    if measured:
        facts: Facts = {name: float(times) for name, times in measured.items()}
        return Remark(code="ablated", facts=facts | {"rounds": float(max(measured.values()))})
    if not found.predicted:
        return Remark(code="nothing_to_ablate", facts={})
    if input_cannot_matter(found):
        facts = {"input": found.free_input_speedup, "compute": found.speedups["compute"].value}
        return Remark(code="ablations_cannot_matter", facts=facts)
    ranked = sorted(found.speedups.items(), key=lambda item: -item[1].value)
    code = "ablations_not_possible" if open_causes(found) else "ablations_not_needed"
    return Remark(code=code, facts={name: speedup.value for name, speedup in ranked})


def times_measured(measurement: Measurement, mode: Mode, activity: Activity = "loader_only") -> int:
    """How many segments of this are there, one a round."""
    return len(segments_of(measurement, mode, activity))


def open_causes(found: Experiments) -> set[SingleCause]:
    """The resources among which the cause is to be found; empty when it is clear, or when nothing can make it so."""
    if not found.predicted or input_cannot_matter(found):
        return set()
    worth = {name for name, speedup in found.speedups.items() if speedup.value >= thresholds.WORTH}
    unmeasured = {name for name, why in found.missing.items() if why.code == "not_measured"}
    if (found.missing.keys() - unmeasured) & ABLATIONS.keys():
        # Where reads are not counted, warm reads beside cold ones prove them cold. What else is missing stays so.
        provable = not found.missing.keys() & (ABLATIONS.keys() - {"storage"}) and by_waiting(found.measurement)
        return {"storage", *worth} if provable and not times_measured(found.measurement, "warm") else set()
    if not worth or unmeasured:
        return unmeasured
    top = max(found.speedups, key=lambda name: found.speedups[name].value)
    # Parts of an input that lies behind compute one by one may lie before it together.
    near = {name for name in worth if name != top and (top == "compute" or not _far(found, top, name))}
    if found.is_open(top):
        # An estimate is no basis for spending where it can be measured; these two may hide behind each other.
        beside: set[SingleCause] = {"storage", "preprocessing"} if top in ("storage", "preprocessing") else set()
        return {top, *near, *beside}
    return {top, *near} if near else set()


def _far(found: Experiments, top: SingleCause, other: SingleCause) -> bool:
    """True when one speed-up leads the other clearly: with an estimate among them in every round, by a wide margin."""
    rounds = found.ratios[top].keys() & found.ratios[other].keys()
    wide = all(found.ratios[top][n] >= thresholds.OPEN_LEAD * max(1.0, found.ratios[other][n]) for n in rounds)
    measured = found.is_measured(top) and found.is_measured(other)
    return is_clear(found, top, other) and (measured or wide)

"""Two results of `trace`: each cause of a step's time, and the whole step with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from loaderprobe.analyze.compare.comparable import Facts
from loaderprobe.analyze.compare.rows import SideRow
from loaderprobe.analyze.effects import Reading, interval
from loaderprobe.records.compare import ShortVerdict, Subject
from loaderprobe.records.trace import PART_NAMES, PartName, TraceReport
from loaderprobe.records.verdict import Cause

LEAST_SHARE = 0.01
"""Of a step of A. A cause that takes less on both sides is no row, and less counts as this much in a ratio: of nearly
nothing, ratios say nothing."""


def trace_facts(found: TraceReport) -> Facts:
    """What was recorded; not the machine that read it."""
    sizes = {each.batch_size for each in found.ranks}
    return {
        "gpus": ", ".join(sorted({each.gpu for each in found.ranks if each.gpu})) or None,
        "ranks": float(max(len(found.ranks), *(each.world_size or 1 for each in found.ranks))),
        "batch_size": float(size) if len(sizes) == 1 and (size := next(iter(sizes))) else None,
    }


def trace_rows(before: Sequence[TraceReport], after: Sequence[TraceReport]) -> tuple[tuple[SideRow, SideRow], ...]:
    """A pair for each cause that takes a share worth a row on either side."""
    least_ms = LEAST_SHARE * 1e3 * fmean(run.step_s for run in before)
    pairs = [(_cause(before, name, least_ms), _cause(after, name, least_ms)) for name in PART_NAMES]
    return tuple(pair for pair in pairs if max(side.figure.value for side in pair) >= least_ms)


def _cause(runs: Sequence[TraceReport], name: PartName, least_ms: float) -> SideRow:
    columns = [[each.steps_parts_s[name] for each in run.ranks] for run in runs]
    readings = tuple(_reading(ranks, least_ms) for ranks in columns)
    return SideRow(subject=Subject(kind="cause", name=name), unit="ms", readings=readings)


def whole_step(runs: Sequence[TraceReport]) -> SideRow:
    """The step, with the verdict on which all recordings of the side agree."""
    verdicts = {_verdict(run) for run in runs}
    doubt = ShortVerdict(side="inconclusive", cause="inconclusive")
    return SideRow(
        subject=Subject(kind="step"),
        unit="ms",
        readings=tuple(_reading([each.steps_s for each in run.ranks]) for run in runs),
        verdict=verdicts.pop() if len(verdicts) == 1 else doubt,
    )


def _reading(ranks: Sequence[Sequence[float]], least_ms: float = 0.0) -> Reading:
    """Milliseconds of each step, the mean of all ranks."""
    steps = [1e3 * fmean(step) for step in zip(*ranks, strict=False)]
    return Reading(values=tuple(max(least_ms, each) for each in steps), figure=interval(steps))


def _verdict(run: TraceReport) -> ShortVerdict:
    """In the words of other verdicts."""
    causes: dict[str, Cause] = {"mixed": "either", "not_known": "inconclusive", "sync": "host"}
    bound = run.bound
    cause = causes.get(bound.cause) or bound.cause
    return ShortVerdict(side=bound.side, cause=cause, candidates=bound.candidates)

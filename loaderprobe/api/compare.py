"""`compare`: what changed between two results beyond noise, and what is too noisy to say. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loaderprobe.analyze.compare.rows import compare_rows, judge_gates
from loaderprobe.analyze.compare.sides import check_names, differences, refuse_others
from loaderprobe.api.compare_match import match
from loaderprobe.api.compare_source import Result, Source, kind_of, meant_to_differ, side_of, sources, taken_in_turn
from loaderprobe.api.origin import origin_now
from loaderprobe.api.plan_values import share
from loaderprobe.api.shown import Documented
from loaderprobe.errors import BadValue, NotComparable
from loaderprobe.records.compare import MATTERS, ComparisonReport, Difference, GateName
from loaderprobe.render.compare import compare_columns, compare_document, compare_exhibits
from loaderprobe.render.compare_words import answers
from loaderprobe.render.document import Document
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.json import result_json

MOST_MATTERS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Documented, ComparisonReport):
    """What changed from A to B, row by row and in all. Shows itself."""

    table_name = "compare.csv"

    def document(self) -> Document:
        """What changed, verdicts first; then what is too noisy to say, and what differs between the sides."""
        return compare_document(self)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """One row a configuration, phase or layer; the mean of all, or the whole step, last."""
        return compare_columns(self)

    def exhibits(self) -> Mapping[str, Sequence[Exhibit]]:
        """The ratios with their intervals, and the maps of both sides."""
        return compare_exhibits(self)

    def json(self) -> str:
        """With whether all gates hold, and what the page says first."""
        return result_json(self, passed=self.passed, answers=[text for text, _ in answers(self)])


def compare(
    a: Result | Iterable[Result],
    b: Result | Iterable[Result],
    *,
    differ: str | Iterable[str] = (),
    fail_if_slower: str | float | None = None,
    fail_if_unclear: bool = False,
    fail_if_verdict_changes: bool = False,
    allow_unclear: bool = False,
    command: str = "loaderprobe.compare(...)",
) -> Comparison:
    """Compare two sweeps, or two results of `bandwidth`, `layers`, `run` or `trace`: results, or their paths.

    A side may be several runs of the same thing; from three on, the runs themselves show how they vary. The two runs
    of `sweep_against` are compared in pairs of rounds, and need no `differ`. Of others, `differ`
    names what was meant to differ: `machine`, `software`, `storage`, `data`, `options`, `state`, or single fields such
    as `torch`. `fail_if_slower` is a gate, and the size of a change that matters (5 % without it). It fails, too, where
    a row is too noisy to show such a loss, unless `allow_unclear`. `passed` of the result says whether all gates hold.

    Raises NotComparable, with the names of the fields, where the sides differ in anything else; BadValue for results of
    different kinds.
    """
    named = differ.split(",") if isinstance(differ, str) else differ
    names = check_names(name for each in named if (name := each.strip()))
    matters = MATTERS if fail_if_slower is None else _size(fail_if_slower)
    before, after = sources(a), sources(b)
    names |= meant_to_differ(before, after)
    kind = kind_of(before, after)
    if fail_if_unclear and allow_unclear:
        raise BadValue("rows that are unclear cannot both fail a gate and be allowed", hint="give one of the two")
    if fail_if_verdict_changes and kind not in ("sweep", "diagnosis", "trace"):
        raise BadValue(f"results of {kind} have no verdicts", hint="leave --fail-if-verdict-changes out")
    matched = match(kind, before, after, names)
    found = _differences(before, after, matched.differences)
    refuse_others(found, names)
    if not matched.pairs:
        raise NotComparable("A and B have nothing in common to compare", fields=(), hint="measure both alike")
    rows, whole = compare_rows(matched.pairs, matters=matters, step=matched.step, averaged=matched.averaged)
    wanted = _gates(slower=fail_if_slower is not None, unclear=fail_if_unclear, verdict_changes=fail_if_verdict_changes)
    gates = judge_gates(
        wanted, rows, whole, matters=matters, missing=len(matched.only_before), kind=kind, allow_unclear=allow_unclear,
    )  # fmt: skip
    return Comparison(
        origin=origin_now(command),
        kind=kind,
        matters=matters,
        before=side_of(before),
        after=side_of(after),
        rows=rows,
        whole=whole,
        only_before=matched.only_before,
        only_after=matched.only_after,
        differences=found,
        gates=gates,
        allow_unclear=allow_unclear,
        notes=matched.notes,
        in_turn=taken_in_turn(before, after),
    )


def _named(side: str, runs: Sequence[Source]) -> list[tuple[str, Source]]:
    """(A, or A1 and so on where there are several; the run)."""
    return [(f"{side}{number}" if len(runs) > 1 else side, run) for number, run in enumerate(runs, 1)]


def _gates(**asked: bool) -> list[GateName]:
    names: tuple[GateName, ...] = ("slower", "unclear", "verdict_changes")
    return [name for name in names if asked[name]]


def _size(value: str | float) -> float:
    found = share(value, "--fail-if-slower")
    if found > MOST_MATTERS:
        raise BadValue(f"--fail-if-slower {value} lets B be half as fast", hint="write --fail-if-slower 5%")
    return found


def _differences(
    before: Sequence[Source], after: Sequence[Source], others: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Of every result from the first, each field once."""
    first, *rest = [*_named("A", before), *_named("B", after)]
    # Of a field that differs within A, too, the value of B is shown.
    ordered = sorted(rest, key=lambda pair: pair[0].startswith("A"))
    found = [
        replace(each, between=(first[0], name))
        for name, source in ordered
        for each in differences(first[1].facts, source.facts)
    ]
    return tuple({each.field: each for each in reversed((*found, *others))}.values())[::-1]

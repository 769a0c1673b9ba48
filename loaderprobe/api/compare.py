"""`compare`: what changed between two results beyond noise, and what is too noisy to say. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

from loaderprobe.analyze import comparison
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.api.load import Run, load_any
from loaderprobe.api.quantities import share
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.errors import BadValue, NotComparable
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.compare import ComparedSide, ComparisonReport, Difference, GateName, ResultKind
from loaderprobe.records.environment import Origin
from loaderprobe.records.thresholds import MATTERS
from loaderprobe.render.compare import compare_columns, compare_document
from loaderprobe.render.json import result_json

Result = Run | BandwidthReport | Diagnosis | str | PathLike[str]
"""What can be compared: a result, or the path of its directory or file."""


@dataclass(frozen=True, slots=True)
class Source:
    """One result."""

    kind: ResultKind
    path: str
    origin: Origin
    facts: comparison.Facts
    roots: tuple[str, ...]
    result: Any
    """What its kind is matched by: of a sweep `MeasuredRow`s, of a diagnosis one of them, else its report."""


def sources(results: Result | Iterable[Result]) -> list[Source]:
    """One side, of one result or several. Raises BadValue for what cannot be read or compared, or is given twice."""
    single = isinstance(results, str | PathLike) or not isinstance(results, Iterable)
    side = [_source(result) for result in cast(Iterable[Result], [results] if single else results)]
    if not side:
        raise BadValue("a side of the comparison has no result", hint="give a run or its directory")
    for index, source in enumerate(side):
        again = next((before for before in side[:index] if replace(source, path=before.path) == before), None)
        if again:
            hint = "a measurement counts once on a side: give others, measured again"
            raise BadValue(f"on one side, {source.path} is {again.path} again, or a copy of it", hint=hint)
    return side


def side_of(side: Sequence[Source]) -> ComparedSide:
    """What is kept of a side beside its rows."""
    return ComparedSide(
        paths=tuple(source.path for source in side),
        created_utc=tuple(source.origin.created_utc for source in side),
        command=side[0].origin.command,
        environment=side[0].origin.environment,
        roots=tuple(dict.fromkeys(root for source in side for root in source.roots)),
    )


def _source(given: Result) -> Source:
    path = str(Path(given)) if isinstance(given, str | PathLike) else ""
    result = load_any(Path(path)) if path else given
    if isinstance(result, Run):
        return _of_run(result)
    if isinstance(result, BandwidthReport):
        facts, roots = comparison.bandwidth_facts(result), (result.path,)
        return Source("bandwidth", path or result.path, result.origin, facts, roots, result)
    if isinstance(result, Diagnosis):
        measured = comparison.MeasuredRow(row=result.row, measurement=result.measurement)
        facts = comparison.loader_facts(measured, result.origin)
        return Source("diagnosis", path or "a diagnosis", result.origin, facts, (), measured)
    raise BadValue(
        f"{path or type(result).__name__} holds a result that does not compare",
        hint="give two runs of sweep, two results of bandwidth, or two of run or diagnose",
    )


def _of_run(run: Run) -> Source:
    record = run.directory.record
    rows = []
    for row in run.report().configurations:
        if row.verdict and row.measurement:
            files = run.directory.files(row.config.data)
            rows.append(comparison.MeasuredRow(row=row, measurement=row.measurement, files=files))
    if not rows:
        raise BadValue(f"{run.path} holds no measured configuration", hint=f"loaderprobe sweep --resume {run.path}")
    origin = Origin(
        created_utc=record.created_utc, command=" ".join(record.spec.command), environment=record.environment
    )
    roots = tuple(dict.fromkeys(row.files.root for row in rows if row.files))
    return Source("sweep", str(run.path), origin, comparison.environment_facts(record.environment), roots, tuple(rows))


def match(
    kind: ResultKind, before: Sequence[Source], after: Sequence[Source], names: frozenset[str]
) -> comparison.Matched:
    """The rows of both sides; `names` are those of what may differ."""
    sides = [source.result for source in before], [source.result for source in after]
    if kind == "sweep":
        return comparison.match_sweeps(*sides, names)
    if kind == "bandwidth":
        a, b = (comparison.bandwidth_rows(side) for side in sides)
        return a, b, [], (*comparison.bandwidth_notes("A", sides[0]), *comparison.bandwidth_notes("B", sides[1]))
    of_a, of_b = ({"loader": comparison.side_row(side)} for side in sides)
    return of_a, of_b, [], ()


MOST_MATTERS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Documented, ComparisonReport):
    """What changed from A to B, row by row and in all. Shows itself."""

    table_name = "compare.csv"
    document = compare_document
    columns = compare_columns

    def json(self) -> str:
        """With whether all gates hold."""
        return result_json(self, passed=self.passed)


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
    """Compare two sweeps, two results of `bandwidth`, or two of `run` or `diagnose`: results, or their paths.

    A side may be several runs of the same thing; from three on, the runs themselves show how they vary. `differ` names
    what was meant to differ: `machine`, `software`, `storage`, `data`, `options`, `state`, or single fields such as
    `torch`. `fail_if_slower` is a gate, and the size of a change that matters (5 % without it). It fails, too, where a
    row is too noisy to show such a loss, unless `allow_unclear`. `passed` of the result says whether all gates hold.

    Raises NotComparable, with the names of the fields, where the sides differ in anything else; BadValue for results of
    different kinds, or of one that does not compare.
    """
    named = differ.split(",") if isinstance(differ, str) else differ
    names = comparison.check_names(name for word in named if (name := word.strip()))
    matters = MATTERS if fail_if_slower is None else share(fail_if_slower, "--fail-if-slower")
    if matters > MOST_MATTERS:
        raise BadValue(f"--fail-if-slower {fail_if_slower} lets B be half as fast", hint="write --fail-if-slower 5%")
    before, after = sources(a), sources(b)
    paths = {source.kind: source.path for source in (*before, *after)}
    if len(paths) > 1:
        of = {kind: "run or diagnose" if kind == "diagnosis" else kind for kind in paths}
        said = " and ".join(f"{path} is a result of {of[kind]}" for kind, path in paths.items())
        raise BadValue(f"results of different kinds do not compare: {said}", hint="give two of one kind")
    (kind,) = paths
    if fail_if_unclear and allow_unclear:
        raise BadValue("rows that are unclear cannot both fail a gate and be allowed", hint="give one of the two")
    if fail_if_verdict_changes and kind == "bandwidth":
        raise BadValue("results of bandwidth have no verdicts", hint="leave --fail-if-verdict-changes out")
    rows_of_a, rows_of_b, differ_in_rows, notes = match(kind, before, after, names)
    differences = _differences(before, after, differ_in_rows)
    comparison.refuse_others(differences, names)
    pairs = [(row, rows_of_b[key]) for key, row in rows_of_a.items() if key in rows_of_b]
    only_before, only_after = (
        tuple(row.subject for key, row in side.items() if key not in beside)
        for side, beside in ((rows_of_a, rows_of_b), (rows_of_b, rows_of_a))
    )
    if not pairs:
        raise NotComparable("A and B have nothing in common to compare", fields=(), hint="measure both alike")
    rows, whole = comparison.compare_rows(pairs, matters=matters)
    requested: dict[GateName, bool] = {
        "slower": fail_if_slower is not None, "unclear": fail_if_unclear, "verdict_changes": fail_if_verdict_changes,
    }  # fmt: skip
    gates = comparison.judge_gates(
        [name for name in requested if requested[name]], rows, whole, matters=matters, missing=len(only_before),
        kind=kind, allow_unclear=allow_unclear,
    )  # fmt: skip
    return Comparison(
        origin=origin_now(command),
        kind=kind,
        matters=matters,
        before=side_of(before),
        after=side_of(after),
        rows=rows,
        whole=whole,
        only_before=only_before,
        only_after=only_after,
        differences=differences,
        gates=gates,
        allow_unclear=allow_unclear,
        notes=notes,
    )


def _differences(
    before: Sequence[Source], after: Sequence[Source], others: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Of every result from the first, each field once; they are A and B, or A1 and so on where a side has several."""
    first, *rest = [
        (f"{side}{number}" if len(runs) > 1 else side, run)
        for side, runs in (("A", before), ("B", after))
        for number, run in enumerate(runs, 1)
    ]
    # Of a field that differs within A, too, the value of B is shown.
    ordered = sorted(rest, key=lambda pair: pair[0].startswith("A"))
    listed = [
        replace(difference, between=(first[0], name))
        for name, source in ordered
        for difference in comparison.differences(first[1].facts, source.facts)
    ]
    return tuple({difference.field: difference for difference in reversed((*listed, *others))}.values())[::-1]

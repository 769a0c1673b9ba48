"""The two sides of a comparison: what they are, what they were made with, and their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeVar, cast

from loaderprobe.analyze.compare.sides import (
    Diagnosed,
    Facts,
    MeasuredRow,
    bandwidth_facts,
    diagnosis_facts,
    environment_facts,
    layers_facts,
    trace_facts,
)
from loaderprobe.analyze.effects import in_turn
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.api.load import Run, load_any, type_of
from loaderprobe.api.shown import Documented
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import BANDWIDTH_SCHEMA, BandwidthReport
from loaderprobe.records.compare import ComparedSide, ResultKind
from loaderprobe.records.config import Turns
from loaderprobe.records.environment import Environment
from loaderprobe.records.layers import LayersReport
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.trace import TraceReport
from loaderprobe.store.results import read_bandwidth, read_result, schema_in

Result = Run | BandwidthReport | LayersReport | Diagnosis | TraceReport | str | PathLike[str]
"""What can be compared: a result, or the path of its directory or file."""
T = TypeVar("T")
_KINDS: dict[ResultKind, str] = {
    "sweep": "a sweep", "bandwidth": "a result of bandwidth", "layers": "one of layers", "diagnosis": "one of run",
    "trace": "one of trace",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One result; it has what its kind has."""

    kind: ResultKind
    path: str
    created_utc: str
    command: str
    environment: Environment | None
    facts: Facts
    roots: tuple[str, ...]
    found: tuple[MeasuredRow, ...] = ()
    turns: Turns | None = None
    bandwidth: BandwidthReport | None = None
    layers: LayersReport | None = None
    diagnosed: Diagnosed | None = None
    trace: TraceReport | None = None


def sources(results: Result | Iterable[Result]) -> list[Source]:
    """One side, of one result or several. Raises BadValue for what cannot be read or compared."""
    one = isinstance(results, str | PathLike | Run | BandwidthReport | LayersReport | Diagnosis | TraceReport)
    found = [_source(each) for each in cast(Iterable[Result], [results] if one else results)]
    if not found:
        raise BadValue("a side of the comparison has no result", hint="give a run or its directory")
    return found


def side_of(side: Sequence[Source]) -> ComparedSide:
    """What is kept of a side beside its rows."""
    return ComparedSide(
        paths=tuple(each.path for each in side),
        created_utc=tuple(each.created_utc for each in side),
        command=side[0].command,
        environment=side[0].environment,
        roots=tuple(dict.fromkeys(root for each in side for root in each.roots)),
    )


def kind_of(before: Sequence[Source], after: Sequence[Source]) -> ResultKind:
    """The one kind of all results. Raises BadValue where they are of several."""
    kinds = {each.kind: each.path for each in (*before, *after)}
    if len(kinds) > 1:
        said = ", ".join(f"{path} is {_KINDS[kind]}" for kind, path in kinds.items())
        raise BadValue(f"results of different kinds do not compare: {said}", hint="give two of one kind")
    return before[0].kind


def meant_to_differ(before: Sequence[Source], after: Sequence[Source]) -> frozenset[str]:
    """What runs that were measured in turn say of themselves: the options that were changed, and where the data are."""
    if not taken_in_turn(before, after):
        return frozenset()
    return frozenset({"storage", "state", *(before[0].turns.changes if before[0].turns else ())})


def taken_in_turn(before: Sequence[Source], after: Sequence[Source]) -> bool:
    """True for the two runs that `sweep --against` has measured."""
    return len(before) == len(after) == 1 and in_turn(before[0].turns, after[0].turns)


def present(values: Iterable[T | None]) -> list[T]:
    """Those that are not None."""
    return [each for each in values if each is not None]


def _source(result: Result) -> Source:
    if not isinstance(result, str | PathLike):
        return _made(result, "")
    path = Path(result)
    if path.is_file() and schema_in(path) == BANDWIDTH_SCHEMA:
        return _of_bandwidth(read_bandwidth(path), str(path))
    loaded: Run | Documented = read_result(path, type_of) if path.is_file() else load_any(path)
    if isinstance(loaded, Run | BandwidthReport | LayersReport | Diagnosis | TraceReport):
        return _made(loaded, str(path))
    taken = "give runs of sweep, JSON of bandwidth, or results of layers, run or trace"
    raise BadValue(f"{path} holds a result that does not compare", hint=taken)


def _made(result: Run | BandwidthReport | LayersReport | Diagnosis | TraceReport, path: str) -> Source:
    """Of a result; without a `path`, it is named by what it is of."""
    if isinstance(result, Run):
        return _of_run(result)
    if isinstance(result, BandwidthReport):
        return _of_bandwidth(result, path or result.path)
    if isinstance(result, LayersReport):
        return _of_layers(result, path or result.model)
    if isinstance(result, TraceReport):
        return _of_trace(result, path or result.ranks[0].path)
    return _of_diagnosis(result, path or "a diagnosis")


def _of_run(run: Run) -> Source:
    record = run.directory.record
    found = []
    for row in run.report().summary.configurations:
        measurement = run.directory.result(row.key)
        if row.verdict is not None and isinstance(measurement, Measurement):
            files, turns = run.directory.files(row.config.data), record.spec.turns
            found.append(MeasuredRow(row=row, measurement=measurement, files=files, turns=turns))
    if not found:
        raise BadValue(f"{run.path} holds no measured configuration", hint=f"loaderprobe sweep --resume {run.path}")
    return Source(
        kind="sweep", path=str(run.path), created_utc=record.created_utc, command=" ".join(record.spec.command),
        environment=record.environment, facts=environment_facts(record.environment),
        roots=tuple(dict.fromkeys(each.files.root for each in found)), found=tuple(found), turns=record.spec.turns,
    )  # fmt: skip


def _of_bandwidth(report: BandwidthReport, path: str) -> Source:
    return Source(
        kind="bandwidth", path=path, created_utc=report.created_utc, command=f"loaderprobe bandwidth {report.path}",
        environment=None, facts=bandwidth_facts(report), roots=(report.path,), bandwidth=report,
    )  # fmt: skip


def _of_layers(report: LayersReport, path: str) -> Source:
    return Source(
        kind="layers", path=path, created_utc=report.origin.created_utc, command=report.origin.command,
        environment=report.origin.environment, facts=layers_facts(report), roots=(), layers=report,
    )  # fmt: skip


def _of_diagnosis(found: Diagnosis, path: str) -> Source:
    return Source(
        kind="diagnosis", path=path, created_utc=found.origin.created_utc, command=found.origin.command,
        environment=found.origin.environment, facts=diagnosis_facts(found), roots=(),
        diagnosed=Diagnosed(findings=found, measurement=found.measurement),
    )  # fmt: skip


def _of_trace(found: TraceReport, path: str) -> Source:
    return Source(
        kind="trace", path=path, created_utc=found.origin.created_utc, command=found.origin.command,
        environment=found.origin.environment, facts=trace_facts(found), roots=(), trace=found,
    )  # fmt: skip

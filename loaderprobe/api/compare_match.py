"""The rows of two sides that belong together, by the kind of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from loaderprobe.analyze.compare.rows import Pair, SideRow
from loaderprobe.analyze.compare.sides import (
    bandwidth_notes,
    bandwidth_rows,
    diagnosis_row,
    ignored_options,
    in_ladder,
    layer_rows,
    option_differences,
    partners,
    row_differences,
    side_row,
    step_row,
    sweep_notes,
    trace_rows,
    whole_step,
)
from loaderprobe.api.compare_source import Source, present
from loaderprobe.records.compare import CompareNote, Difference, ResultKind, Subject

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The rows of both sides."""

    pairs: tuple[Pair, ...]
    only_before: tuple[Subject, ...]
    only_after: tuple[Subject, ...]
    differences: tuple[Difference, ...]
    notes: tuple[CompareNote, ...] = ()
    step: Pair | None = None
    averaged: tuple[int, ...] = ()


def match(kind: ResultKind, before: Sequence[Source], after: Sequence[Source], names: frozenset[str]) -> Matched:
    """The rows of both sides; `names` are those of what may differ."""
    return {
        "sweep": _sweeps, "bandwidth": _bandwidths, "layers": _layers, "diagnosis": _diagnoses,
        "trace": _traces,
    }[kind](before, after, names)  # fmt: skip


def _sweeps(before: Sequence[Source], after: Sequence[Source], names: frozenset[str]) -> Matched:
    runs = [each.found for each in before], [each.found for each in after]
    ignored = ignored_options(*runs, names)
    mine, other = (partners(side, ignored) for side in runs)
    common = {key: (mine[key], other[key]) for key in mine if key in other}
    return Matched(
        pairs=tuple((side_row(one), side_row(two)) for one, two in common.values()),
        only_before=tuple(side_row(found).subject for key, found in mine.items() if key not in common),
        only_after=tuple(side_row(found).subject for key, found in other.items() if key not in common),
        differences=(*option_differences(*runs, ignored), *row_differences(common)),
        notes=sweep_notes(list(common.values())),
    )


def _bandwidths(before: Sequence[Source], after: Sequence[Source], _: frozenset[str]) -> Matched:
    sides = [present(each.bandwidth for each in side) for side in (before, after)]
    found = _matched(*(bandwidth_rows(side) for side in sides))
    ladder = tuple(place for place, pair in enumerate(found.pairs) if in_ladder(pair[0]))
    return replace(found, averaged=ladder, notes=(*bandwidth_notes("A", sides[0]), *bandwidth_notes("B", sides[1])))


def _layers(before: Sequence[Source], after: Sequence[Source], _: frozenset[str]) -> Matched:
    sides = [present(each.layers for each in side) for side in (before, after)]
    found = _matched(*(layer_rows(side) for side in sides))
    return replace(found, step=(step_row(sides[0]), step_row(sides[1])))


def _diagnoses(before: Sequence[Source], after: Sequence[Source], _: frozenset[str]) -> Matched:
    one, two = (diagnosis_row(present(each.diagnosed for each in side)) for side in (before, after))
    return Matched(pairs=((one, two),), only_before=(), only_after=(), differences=())


def _traces(before: Sequence[Source], after: Sequence[Source], _: frozenset[str]) -> Matched:
    one, two = (present(each.trace for each in side) for side in (before, after))
    return Matched(
        pairs=trace_rows(one, two), only_before=(), only_after=(), differences=(),
        step=(whole_step(one), whole_step(two)),
    )  # fmt: skip


def _matched(mine: Mapping[Key, SideRow], other: Mapping[Key, SideRow]) -> Matched:
    return Matched(
        pairs=tuple((row, other[key]) for key, row in mine.items() if key in other),
        only_before=tuple(row.subject for key, row in mine.items() if key not in other),
        only_after=tuple(row.subject for key, row in other.items() if key not in mine),
        differences=(),
    )

"""Two sweeps: configurations that differ in nothing but where their data are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from loaderprobe.analyze.compare.comparable import ALL, differences
from loaderprobe.analyze.compare.rows import SideRow
from loaderprobe.analyze.effects import Reading, sample, too_few_rounds
from loaderprobe.analyze.verdict.counted import counted
from loaderprobe.analyze.verdict.rates import rates_by_round, segments_of
from loaderprobe.analyze.verdict.speedups import judged_activity
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.errors import BadValue
from loaderprobe.records.compare import CompareNote, Difference, ShortVerdict, Subject
from loaderprobe.records.config import Turns
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.options import OPTIONS
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.units import format_bytes, join_words

BESIDE = ("data", "rounds")
"""Options in which the same configuration may differ: a fingerprint that holds the root, and how often it ran."""
NOTICED = 0.05
"""Reads of other processes that are more than this share of a configuration's own."""

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A measured configuration of a run, with its files."""

    row: ConfigurationRow
    measurement: Measurement
    files: FileSet
    turns: Turns | None = None
    """Of its run."""

    @property
    def reading(self) -> Reading:
        """Images/s of its rounds that count; of all, where they were measured in turn."""
        assert self.row.verdict is not None
        # Rounds that two runs measured in turn are compared in pairs: none may be missing on one side.
        found = self.measurement if self.turns else counted(self.measurement)
        judged = base_mode(found), judged_activity(found)
        return Reading(
            values=tuple(rates_by_round(found, *judged).values()),
            figure=self.row.verdict.images_per_s,
            turns=self.turns,
            at_s=tuple(segment.begin_ns[0] / 1e9 for segment in segments_of(found, *judged)),
        )


Run = Sequence[Found]


def option_differences(before: Sequence[Run], after: Sequence[Run], ignored: frozenset[str]) -> list[Difference]:
    """Those of the options to be ignored that differ; and what keeps all of A from having a partner in B, if so."""
    differ = [name for name in OPTIONS if name not in BESIDE and _values(before, name) != _values(after, name)]
    names = [name for name in differ if name in ignored]
    if not set(_by_key(before[0], ignored)) & set(_by_key(after[0], ignored)):
        others = [name for name in differ if name not in ignored]
        names += [name for name in others if _apart(before, after, name)] or others
    return [
        Difference(field=name, group="options", before=_shown(before, name), after=_shown(after, name))
        for name in names
    ]


def ignored_options(before: Sequence[Run], after: Sequence[Run], names: frozenset[str]) -> frozenset[str]:
    """The options that may differ: those named; with the whole group, all that have other values in B than in A."""
    whole = {name for name in OPTIONS if name not in BESIDE and _apart(before, after, name)}
    return frozenset((names & set(OPTIONS)) | (whole if names & {"options", ALL} else set()))


def _apart(before: Sequence[Run], after: Sequence[Run], name: str) -> bool:
    return not _values(before, name) & _values(after, name)


def _values(side: Sequence[Run], name: str) -> set[object]:
    return {OPTIONS[name].of(each.row.config) for run in side for each in run}


def _shown(side: Sequence[Run], name: str) -> str:
    return join_words(sorted(map(str, _values(side, name))))


def partners(side: Sequence[Run], ignored: frozenset[str]) -> dict[Key, list[Found]]:
    """The measured configurations of all runs of a side, by what makes them the same. Raises BadValue where a run has
    several of them."""
    found: dict[Key, list[Found]] = {}
    for run in side:
        for key, each in _by_key(run, ignored).items():
            found.setdefault(key, []).append(each)
    # Where a run of a side lacks a configuration, the others speak for it.
    return found


def _by_key(run: Run, ignored: frozenset[str]) -> dict[Key, Found]:
    keys = [_key(each, ignored) for each in run]
    if several := [key for key, count in Counter(keys).items() if count > 1]:
        titles = [each.row.config.title() for each, key in zip(run, keys, strict=True) if key == several[0]]
        without = join_words(sorted(ignored)) or "their data"
        said = f"configurations of one run are the same without {without}: {join_words(titles)}"
        raise BadValue(said, hint="let fewer options differ")
    return dict(zip(keys, run, strict=True))


def _key(found: Found, ignored: frozenset[str]) -> Key:
    return tuple(each.of(found.row.config) for name, each in OPTIONS.items() if name not in (*BESIDE, *ignored))


def side_row(found: Sequence[Found]) -> SideRow:
    """One configuration of a side, of all its runs."""
    first = found[0]
    config = replace(first.row.config, data=first.files.content)
    return SideRow(
        subject=Subject(kind="configuration", name=config.key, config=config),
        unit="images/s",
        readings=tuple(each.reading for each in found),
        verdict=_verdict(found),
    )


def _verdict(found: Sequence[Found]) -> ShortVerdict:
    """Of the runs together: inconclusive where they do not agree."""
    bounds = [each.row.bound for each in found if each.row.bound]
    words = {ShortVerdict(side=each.side, cause=each.cause, candidates=each.candidates) for each in bounds}
    return words.pop() if len(words) == 1 else ShortVerdict(side="inconclusive", cause="inconclusive")


def row_differences(common: Mapping[Key, tuple[list[Found], list[Found]]]) -> list[Difference]:
    """Other files, and files in another state of the cache, among configurations that are otherwise the same."""
    mine, other = ([each for pair in common.values() for each in pair[place]] for place in (0, 1))
    sets = _sets(mine), _sets(other)
    apart = [label for label in sets[0] if sets[0][label].keys() != sets[1].get(label, {}).keys()]
    before, after = ([_described(side.get(label, {}).values()) for label in apart] for side in sets)
    if before == after:
        before, after = ([_named(side.get(label, {})) for label in apart] for side in sets)
    data = [Difference(field="data", group="data", before="; ".join(before), after="; ".join(after))] if apart else []
    return [*data, *differences({"files_were": _states(mine)}, {"files_were": _states(other)})]


def _sets(side: Sequence[Found]) -> dict[str, dict[str, FileSet]]:
    """The file sets by their fingerprint without the root, by label."""
    found: dict[str, dict[str, FileSet]] = {}
    for each in side:
        found.setdefault(each.files.label, {})[each.files.content] = each.files
    return found


def _described(sets: Iterable[FileSet]) -> str:
    return join_words([f"{each.label}: {each.count} files of {format_bytes(each.mean_size_bytes)}" for each in sets])


def _named(sets: Mapping[str, FileSet]) -> str:
    """With the fingerprints, where nothing else sets them apart."""
    return join_words([f"{each.label}: files {key}" for key, each in sets.items()])


def _states(side: Sequence[Found]) -> str | None:
    found = {each.row.verdict.files_were for each in side if each.row.verdict and each.row.verdict.files_were}
    return join_words(sorted(found)) or None


def sweep_notes(pairs: Sequence[tuple[Sequence[Found], Sequence[Found]]]) -> tuple[CompareNote, ...]:
    """Of each side, the configurations during which other processes read, and those with too few rounds.

    The latter only where the interval of their rates stands in; where there is none, their rows say so.
    """
    sides: tuple[tuple[Literal["A", "B"], int], ...] = (("A", 0), ("B", 1))
    read = [[tuple(each.reading for each in side) for side in pair] for pair in pairs]
    compared = [pair for pair in read if all(sample(side) for side in pair)]
    notes = [
        note
        for name, place in sides
        for note in (
            CompareNote(code="other_reads", side=name, rows=sum(any(map(_disturbed, pair[place])) for pair in pairs)),
            CompareNote(code="few_rounds", side=name, rows=sum(too_few_rounds(pair[place]) for pair in compared)),
        )
    ]
    return tuple(note for note in notes if note.rows)


def _disturbed(found: Found) -> bool:
    verdict = found.row.verdict
    if verdict is None or verdict.other_read_bytes_per_s is None:
        return False
    return verdict.other_read_bytes_per_s > NOTICED * (verdict.disk_read_bytes_per_s or 0.0)

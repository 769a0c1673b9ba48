"""The files of ranks: what each saw of a measurement, in about 4 kB however long it was measured.

A segment takes about 65 bytes. So of many segments, only the first rank and those that went without input (the slowest
and one in the middle) keep all figures; the others keep the mean of segments that are alike, which keeps their sums.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loaderprobe.errors import DamagedRun
from loaderprobe.records.measurement import COLUMNS, Measurement, RankSeen, Segment
from loaderprobe.store.codec import decode, encode, read, write_atomically, writing

RANK = "rank"
"""The kind of the file of one rank."""
MOST_SEGMENTS = 40


def write_ranks(measurement: Path, measured: Measurement) -> None:
    """A file for each rank of a measurement, in the folder that has its name. Raises NoSpace, MissingPart."""
    with writing(measurement):
        if measured.by_rank:
            measurement.with_suffix("").mkdir(exist_ok=True)
    whole = {0, *(segment.without for segment in measured.segments)}
    for rank in measured.by_rank:
        kept = rank if rank.rank in whole else shortened(rank, measured.segments)
        write_atomically(_path(measurement, rank.rank), encode(RANK, kept))


def read_rank(measurement: Path, rank: int, of: Measurement) -> RankSeen:
    """What a rank saw, in as many segments as the measurement has. Raises DamagedRun."""
    path = _path(measurement, rank)
    data = read(path)
    if data is None:
        raise DamagedRun(str(path), "is missing from the run")
    seen = expanded(decode(RANK, data, RankSeen, str(path)), of.segments)
    if seen.rank != rank or len(seen.steps) != len(of.segments):
        raise DamagedRun(str(path), "is damaged: it is of another measurement")
    return seen


def shortened(seen: RankSeen, segments: Sequence[Segment]) -> RankSeen:
    """With one entry, the mean, for all segments that are alike; as it is where they are few."""
    if len(segments) <= MOST_SEGMENTS:
        return seen
    groups = _alike(segments)
    short: dict[str, Any] = {
        name: tuple(_mean([column[n] for n in entry]) for entry in groups) for name, column in _columns(seen)
    }
    return replace(seen, **short)


def expanded(kept: RankSeen, segments: Sequence[Segment]) -> RankSeen:
    """With an entry for each segment again; as it is where it has neither that many nor as many as were alike."""
    groups = _alike(segments)
    if len(kept.steps) == len(segments) or len(kept.steps) != len(groups):
        return kept
    entry = {index: number for number, group in enumerate(groups) for index in group}
    long: dict[str, Any] = {
        name: tuple(column[entry[n]] for n in range(len(segments))) for name, column in _columns(kept)
    }
    return replace(kept, **long)


def _columns(seen: RankSeen) -> Iterator[tuple[str, tuple[int | None, ...]]]:
    """The columns that it has, by name."""
    yield from ((name, getattr(seen, name)) for name in COLUMNS if getattr(seen, name))


def _alike(segments: Sequence[Segment]) -> list[list[int]]:
    """The indices of segments that are alike. Ranks alone are compared by round: of these each stands for itself."""
    groups: dict[Hashable, list[int]] = {}
    for index, segment in enumerate(segments):
        alone = segment.activity == "alone"
        key = (segment.activity, index) if alone else (segment.mode, segment.activity, segment.without)
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _mean(values: Sequence[int | None]) -> int | None:
    """None where one is not known."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known)) if len(known) == len(values) else None


def _path(measurement: Path, rank: int) -> Path:
    return measurement.with_suffix("") / f"rank-{rank}.json"

"""`bandwidth`: what the storage under a path delivers to readers of whole files, what limits it, what it feeds.

Also to several processes, or nodes, that read at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from loaderprobe.analyze.bandwidth import UNPACED, feeds, judge_bandwidth
from loaderprobe.analyze.rank_bandwidth import ranks_limit
from loaderprobe.api.shown import Documented, ShownRecord, origin_now
from loaderprobe.api.values import PathLike, counts, unheard
from loaderprobe.errors import BadValue, LoaderprobeError, LostRank
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks.crew import parse_layout, spread, taking_part
from loaderprobe.measure.ranks.launch import comes, ends_by_itself
from loaderprobe.measure.session import OnStage
from loaderprobe.protocols import Crew
from loaderprobe.records.bandwidth import BandwidthReport, RankBandwidthReport
from loaderprobe.records.config import ACCELERATORS
from loaderprobe.records.options import BANDWIDTH, check
from loaderprobe.records.ranks import Launched, Node, Place
from loaderprobe.render.bandwidth import (
    bandwidth_document,
    bandwidth_headline,
    rank_bandwidth_columns,
    rank_bandwidth_exhibits,
)
from loaderprobe.render.rows import phase_columns
from loaderprobe.render.wording import counted
from loaderprobe.storage.by_ranks import RankLadder, RankReader, RanksStep, Whereabouts
from loaderprobe.storage.files import Sample, as_text, locate_pieces, sample_files
from loaderprobe.storage.probe import LIMIT_BYTES, OnPhase, ProbeRequest, place_of, probe_bandwidth
from loaderprobe.store.results import check_out
from loaderprobe.system.limits import cores_available
from loaderprobe.system.pagecache import LinuxPageCache, drop_all_caches
from loaderprobe.units import parse_bytes

RATES = {name: each.images_per_s for name, each in ACCELERATORS.items()}
"""Images/s by the name of an accelerator."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Bandwidth(ShownRecord, BandwidthReport):
    """The report of a probe, its phases and what follows from them. Shows itself in terminals and notebooks."""

    headline = bandwidth_headline
    document = bandwidth_document

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """One row a phase, opens and stats last."""
        return phase_columns(self.phases, self.metadata)


def bandwidth(
    path: PathLike,
    *,
    readers: str | int | Iterable[int] = "auto",
    seconds: float = 3.0,
    scratch: str | int | None = None,
    engine: Literal["loaderprobe", "fio"] = "loaderprobe",
    drop_caches: bool = False,
    seed: int = 0,
    progress: OnStage | None = None,
) -> Bandwidth:
    """Read files under `path` at random, cold, at higher and higher concurrency. Writes nothing there.

    `readers` are the concurrencies; `auto` doubles them until that gains nothing. A phase takes `seconds`, up to five
    times that until its rate is known. `scratch`, such as `"1GB"`, writes a file of this size, reads that, and
    removes it. `drop_caches` empties all caches of the machine before each reading, where this user may: only then are
    opens/s and stats/s those of cold names and inodes.
    `progress(stage, done, total)` hears what is being read. Ctrl-C ends it with what is there, `interrupted`.

    Raises BadValue for a path that cannot be probed and for values that cannot be; MissingPart for files that may
    not be read, caches that may not be dropped, and fio where it is not installed; NoSpace for too large a scratch.
    """
    check(BANDWIDTH, locals())
    request = ProbeRequest(
        path=Path(path),
        readers=None if isinstance(readers, str) and readers == "auto" else counts(readers, "--readers"),
        seconds=seconds,
        scratch_bytes=parse_bytes(str(scratch)) if scratch else None,
        seed=seed,
        fio=engine == "fio",
        drop_all=drop_all_caches if drop_caches else None,
        metadata=True,
    )
    measured = probe_bandwidth(request, cache=LinuxPageCache(), on_phase=progress or unheard, clock=SystemClock())
    return Bandwidth.of(judge_bandwidth(measured, RATES))


# By ranks: each process of a launcher reads its own share.

READERS = 4
"""Of each rank, unless asked for."""
FEWEST_PIECES = 4
"""For each reader of each rank."""
TURN_S = 600.0
"""For the slowest rank to evict its shard and to read, and for rank 0 to list the files."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RankBandwidth(Documented, RankBandwidthReport):
    """What ranks got from storage, together and each. Shows itself."""

    table_name = "ladder.csv"
    headline = bandwidth_headline
    document = bandwidth_document
    columns = rank_bandwidth_columns
    exhibits = rank_bandwidth_exhibits


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProbe:
    """What is read, and how."""

    path: Path
    steps: tuple[RanksStep, ...] = ()
    seconds: float = 3.0
    seed: int = 0
    command: str = ""
    out: Path | None = None
    """The directory that the report is going to be kept in."""


def steps_of(layouts: Sequence[tuple[Sequence[int], int]], readers: int) -> tuple[RanksStep, ...]:
    """The ladder of these (seats, nodes), with so many readers a rank; then as many readers as its end in one rank."""
    ordered = sorted(layouts, key=lambda each: (len(each[0]), each[1]))
    steps = [RanksStep(seats=tuple(seats), nodes=nodes, readers=readers) for seats, nodes in ordered]
    last, first = steps[-1], steps[0]
    if len(first.seats) == 1 and len(last.seats) > 1:
        steps.append(RanksStep(seats=first.seats, nodes=1, readers=readers * len(last.seats)))
    return tuple(dict.fromkeys(steps))


def ladder_of(ranks: str | None, nodes: Sequence[Node], readers: int) -> tuple[RanksStep, ...]:
    """The steps that `--ranks` asks for on these nodes; without it, all their processes and half as many down to one.

    Raises BadValue for more than there are.
    """
    there = sum(len(node.seats) for node in nodes)
    texts = ranks.split(",") if ranks else [str(each) for each in _doubling(there)]
    spreads = dict.fromkeys(spread(parse_layout(text), nodes) for text in texts)
    layouts = [([seat for seat, _ in taking_part(count, over, nodes)], over) for count, over in spreads]
    return steps_of(layouts, readers)


def most_ranks_of(ranks: str) -> int:
    """That `--ranks` asks for on this machine. Raises BadValue, also for several nodes."""
    return max(spread(parse_layout(text), None)[0] for text in ranks.split(","))


def _doubling(most: int) -> list[int]:
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def read_in_seat(
    here: Launched, asked: RankProbe, ranks: str | None, readers: int, on_phase: OnPhase
) -> RankBandwidth | int:
    """The part of one process of a launcher; the report of rank 0, of the others the exit code.

    Raises LostRank when another has gone, BadValue for what cannot be read.
    """
    from loaderprobe.loaders.ranks import JOIN_S, joined_at

    seat = comes(here)
    nodes = seat.nodes
    number = next(number for number, node in enumerate(nodes) if here.rank in node.seats)
    place = Place(
        rank=here.rank, size=here.size, node=number, local_rank=nodes[number].seats.index(here.rank),
        local_size=len(nodes[number].seats), address=here.address, port=here.port,
        prefix=f"{seat.prefix}/bandwidth", timeout_s=TURN_S,
    )  # fmt: skip
    at = joined_at(place, join_s=JOIN_S)
    # All of it is kept: a group that ends here while another rank still joins it would be that rank's lost connection.
    crew = at.crew
    where = Whereabouts(host=nodes[number].host, node=number)
    reader = RankReader(crew=crew, cache=LinuxPageCache())
    try:
        if here.rank:
            return reader.follow(where)
        return lead_ranks(crew, where, replace(asked, steps=_asked(reader, ranks, nodes, readers)), on_phase)
    finally:
        ends_by_itself()
        # Rank 0 may hold the store, which must not go before the others have left.
        with suppress(LostRank):
            crew.most(0, leaving=True)


def _asked(reader: RankReader, ranks: str | None, nodes: Sequence[Node], readers: int) -> tuple[RanksStep, ...]:
    """The ladder, as rank 0 finds it; where it cannot be, the others hear of that before it raises BadValue."""
    try:
        return ladder_of(ranks, nodes, readers)
    except BadValue as error:
        reader.refuse(error.exit_code)
        raise


def lead_ranks(crew: Crew, here: Whereabouts, asked: RankProbe, on_phase: OnPhase) -> RankBandwidth:
    """Rank 0's part: lets the others read, and makes the report.

    Raises BadValue where a rank reads nothing, Refused where the report cannot be kept.
    """
    reader = RankReader(crew=crew, cache=LinuxPageCache())
    try:
        if asked.out is not None:
            check_out(asked.out)
        sample = _sample(asked)
    except LoaderprobeError as error:
        reader.refuse(error.exit_code)
        raise
    location = as_text(locate_pieces(asked.path, sample.pieces))
    reader.counts_reads = location.counts_reads
    places = reader.begin(sample, here)
    ladder = RankLadder(
        reader=reader, places=places, sample=sample, location=location, seconds=asked.seconds, cores=cores_available(),
        seed=asked.seed,
    )  # fmt: skip
    phases, interrupted = ladder.climb(asked.steps, on_phase, clock=SystemClock())
    origin = origin_now(asked.command)
    environment = origin.environment
    found = RankBandwidth(
        **place_of(asked.path, sample, location),
        loaderprobe=environment.loaderprobe,
        fio=None,
        created_utc=origin.created_utc,
        kernel=environment.kernel,
        cores_available=environment.cores_available,
        scratch=False,
        drop_caches=False,
        interrupted=interrupted,
        phases=tuple(phases),
        limit=ranks_limit(phases),
        kind=UNPACED,
        feeds=(),
        notes=sample.notes,
        origin=origin,
        hosts=tuple({each.node: each.host for each in places}.values()),
    )
    return replace(found, feeds=feeds(found, RATES), feeds_in_step=feeds(found, RATES, in_step=True))


def _sample(asked: RankProbe) -> Sample:
    sample = sample_files(asked.path, limit_bytes=LIMIT_BYTES, seed=asked.seed)
    most = max(asked.steps, key=lambda step: len(step.seats) * step.readers)
    least = FEWEST_PIECES * len(most.seats) * most.readers
    if len(sample.pieces) < least:
        there = counted(len(sample.pieces), "file" if sample.block_bytes is None else "block")
        ranks, readers = counted(len(most.seats), "rank"), counted(most.readers, "reader")
        raise BadValue(
            f"{asked.path} has {there} to read, too few for {ranks} of {readers}: {least:,} are needed",
            hint="give more files, or larger ones; or fewer ranks, or fewer --readers",
        )
    return sample

"""The bandwidth of ranks as a page, the answer first; and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from loaderprobe.records.rank_bandwidth import RankBandwidthReport, RanksPhase
from loaderprobe.render.bandwidth import feeding, feeding_in_step, half_interval, other_feeds
from loaderprobe.render.cells import as_columns
from loaderprobe.render.document import Document, Item, Paragraph, Part, Section, Table
from loaderprobe.render.note_words import note_words
from loaderprobe.render.rank_bandwidth_words import NOTICED, headline, layout, noun, ranks_limit_words
from loaderprobe.render.wording import counted, megabytes_per_s
from loaderprobe.units import format_bytes, format_duration, significant

MOST_RANKS = 8
"""Of more, the slowest, the middle and the fastest are shown."""


def rank_bandwidth_document(found: RankBandwidthReport) -> Document:
    """What all ranks get together, what they would get in step, and what limits them."""
    return Document(
        title=f"Storage under {found.path}, read by ranks",
        sections=(
            Section(parts=tuple(_answer(found))),
            *([Section(title="Ladder of ranks", name="ladder", parts=tuple(_ladder(found)))] if found.phases else []),
            *(_of_ranks(found)),
            Section(title="What was read", parts=tuple(_read(found))),
        ),
    )


def rank_bandwidth_columns(found: RankBandwidthReport) -> dict[str, list[Any]]:
    """One row a step, units in the names."""
    return as_columns([_row(phase) for phase in found.phases])


def _row(phase: RanksPhase) -> dict[str, Any]:
    return {
        "ranks": phase.ranks,
        "nodes": phase.nodes,
        "readers_a_rank": phase.readers,
        "bw_bytes": phase.bw_bytes,
        "bw_low": phase.bw_low,
        "bw_high": phase.bw_high,
        "last_done_bw_bytes": phase.last_done_bw_bytes,
        "in_step_bw_bytes": phase.in_step_bw_bytes,
        "slowest_rank": phase.slowest.rank,
        "slowest_host": phase.slowest.host,
        "fairness": phase.fairness,
        "files_per_s": phase.files_per_s,
        "p50_ms": phase.file_ns.percentile["50.000000"] / 1e6,
        "p99_ms": phase.file_ns.percentile["99.000000"] / 1e6,
        "cold_fraction": phase.cold_fraction,
        "cache": phase.cache,
    }


def _answer(found: RankBandwidthReport) -> Iterator[Part]:
    yield Paragraph(text=headline(found), strong=True)
    if found.interrupted:
        yield Paragraph(text="Interrupted: the ladder is not complete.")
    if fed := feeding(found.feeds):
        most = found.largest
        in_step = feeding_in_step(found.feeds_in_step) if most and most.fairness < NOTICED else ""
        yield Paragraph(text=f"{fed} {in_step}".rstrip(), strong=True)
    yield Item(subject="Limit", text=ranks_limit_words(found.limit))
    if others := other_feeds(found.feeds):
        yield Item(subject="ResNet-50 on others", text=others)


def _ladder(found: RankBandwidthReport) -> Iterator[Part]:
    head = ("ranks", "readers", "MB/s", "±95 %", "last done", "R x slowest", "fair", f"{noun(found)}s/s", "p99 ms",
            "cache")  # fmt: skip
    yield Table(head=head, lines=tuple(map(_line, found.phases)), right=frozenset(range(9)))
    yield Paragraph(
        text="readers: of all ranks. MB/s: of all together while all read (first done). last done: all bytes over the "
        "time of the last rank. R x slowest: what ranks in step get if the others' share stays unused. fair: slowest "
        "over fastest. *: not settled."
    )


def _line(phase: RanksPhase) -> tuple[str, ...]:
    half = (phase.bw_high - phase.bw_bytes) / 1e6
    return (
        layout(phase),
        str(phase.clients),
        f"{'>=' if phase.at_least else ''}{megabytes_per_s(phase.bw_bytes)}",
        f"{half_interval(phase.bw_bytes / 1e6, half)}{'' if phase.settled else '*'}",
        megabytes_per_s(phase.last_done_bw_bytes),
        megabytes_per_s(phase.in_step_bw_bytes),
        f"{phase.fairness:.2f}",
        significant(phase.files_per_s),
        significant(phase.file_ns.percentile["99.000000"] / 1e6),
        phase.cache,
    )


def _of_ranks(found: RankBandwidthReport) -> Iterator[Section]:
    """Each rank of the largest step; of many the slowest, the middle and the fastest."""
    most = found.largest
    if most is None or most.ranks == 1:
        return
    ordered = sorted(most.by_rank, key=lambda each: each.bw_bytes)
    shown = ordered if len(ordered) <= MOST_RANKS else [ordered[0], ordered[len(ordered) // 2], ordered[-1]]
    lines = tuple(
        (str(each.rank), each.host, megabytes_per_s(each.bw_bytes), format_duration(each.seconds)) for each in shown
    )
    which = "Ranks, the slowest first" if shown is ordered else f"Slowest, middle and fastest of {most.ranks:,} ranks"
    yield Section(
        title=which,
        name="ranks",
        parts=(
            Table(head=("rank", "host", "MB/s", "done after"), lines=lines, right=frozenset({0, 2, 3})),
            *_of_hosts(most),
        ),
    )


def _of_hosts(most: RanksPhase) -> Iterator[Table]:
    """The ranks of each host, where hosts have several; of many hosts the slowest, the middle and the fastest."""
    hosts = dict.fromkeys(each.host for each in most.by_rank)
    if not 1 < len(hosts) < most.ranks:
        return
    rates = {host: sorted(each.bw_bytes for each in most.by_rank if each.host == host) for host in hosts}
    ordered = sorted(hosts, key=lambda host: rates[host][0])
    shown = ordered if len(ordered) <= MOST_RANKS else [ordered[0], ordered[len(ordered) // 2], ordered[-1]]
    lines = tuple(
        (host, str(len(rates[host])), *(megabytes_per_s(each) for each in (sum(rates[host]), *_ends(rates[host]))))
        for host in shown
    )
    yield Table(head=("host", "ranks", "MB/s", "slowest", "fastest"), lines=lines, right=frozenset(range(1, 5)))


def _ends(rates: Sequence[float]) -> tuple[float, float]:
    return rates[0], rates[-1]


def _read(found: RankBandwidthReport) -> Iterator[Part]:
    size = format_bytes(found.mean_size_bytes)
    how = "read whole in random order" if found.whole_files else "read in blocks in random order"
    yield Paragraph(
        text=f"{found.files_used} of {counted(found.files_found, noun(found))}, {size} on average, {how}; each rank "
        f"reads a share of its own, cold, after a common start. {found.location.filesystem} ({found.location.kind}) on "
        f"{', '.join(found.hosts)}."
    )
    unread = {why: count for phase in found.phases for why, count in phase.unread.items()}
    for why, count in unread.items():
        yield Item(subject="Not read", text=f"{counted(count, noun(found))}: {why}")
    for note in found.notes:
        yield Paragraph(text=f"{note_words(note)}.")

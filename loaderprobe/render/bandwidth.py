"""The bandwidth of a storage as a document, the answer first: what it delivers, what limits it, what to know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from loaderprobe.records.bandwidth import (
    BandwidthPhase,
    BandwidthReport,
    Feed,
    MetadataLabel,
    MetadataPhase,
    PhaseName,
    RankRead,
)
from loaderprobe.records.measurement import CEILING_COLD_AT_LEAST
from loaderprobe.render.document import Cell, Document, Exhibit, Item, Paragraph, Part, Section, Table, items
from loaderprobe.render.figures import evidence_words
from loaderprobe.render.format import MISSING, counted, first_upper, megabytes_per_s, percent, plus_minus, rate
from loaderprobe.render.plan_words import at_utilization, fed, grouped, in_use, limited_by
from loaderprobe.render.plots import BLUE, GREY, RED, Axis, Plot, rank_chart
from loaderprobe.render.words import kind_words, limit_words, remark_words
from loaderprobe.stats import median
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

# How many accelerators a storage feeds, in words: what `plan` says of the same result.

STANDARD = "mlperf-"
"""Accelerators of MLPerf Storage, by which storage is planned, are named first."""


def feeding(feeds: Sequence[Feed]) -> str:
    """How many accelerators that feeds, as `plan` says it of this result; empty where none are counted."""
    chosen = _main_feeds(feeds)
    if not chosen:
        return ""
    first = chosen[0]
    named = join_words([f"{fed(feed.count, feed.at_least)} {_name(feed)}s" for feed in chosen], "or")
    rates = join_words([rate(feed.images_per_s) for feed in chosen])
    terms = in_use(first.use)
    return (
        f"{first_upper(terms)} it feeds {named} {at_utilization(first.utilization)} "
        f"({rates} images/s, ResNet-50){'' if first.at_least else f', {limited_by(first.first_limit)}'}."
    )


def feeding_in_step(feeds: Sequence[Feed]) -> str:
    """`In step, at the rate of the slowest rank, 3.10 MLPerf A100s.`; empty where none are counted."""
    chosen = _main_feeds(feeds)
    named = join_words([f"{fed(feed.count, feed.at_least)} {_name(feed)}s" for feed in chosen], "or")
    return f"In step, at the rate of the slowest rank, it feeds {named}." if chosen else ""


def other_feeds(feeds: Sequence[Feed]) -> str:
    """Those that the answer leaves out: `2.20 x V100 AMP (1200 images/s)`."""
    rest = [feed for feed in feeds if feed not in _main_feeds(feeds)]
    return ", ".join(
        f"{fed(feed.count, feed.at_least)} x {_name(feed)} ({rate(feed.images_per_s)} images/s)" for feed in rest
    )


def _main_feeds(feeds: Sequence[Feed]) -> list[Feed]:
    return [feed for feed in feeds if feed.accelerator.startswith(STANDARD)] or list(feeds[:2])


def _name(feed: Feed) -> str:
    return feed.accelerator.replace("-", " ").upper().replace("MLPERF", "MLPerf")


# Intervals and ranges of figures in words.


def value_range(values: Sequence[float]) -> str:
    """`12.5`, or `12.5 to 20.1`; empty without a value."""
    return " to ".join(dict.fromkeys(significant(value) for value in (min(values), max(values)))) if values else ""


_ALONE: tuple[PhaseName, ...] = ("direct", "sequential")
"""The phases below the ladder. The paced one is evidence of the kind of device: its rate means nothing."""
_TONES = {"cold": "good", "warm": "warning", "mixed": "warning", "unproved": "quiet"}
OTHER_READS_FROM = 0.05
"""Other processes' reads are reported from this share of the phase's own rate on."""
FALLEN_FROM = 0.2
AMPLIFIED_FROM = 1.1
RESIDENT_FROM = 0.05
# AWS: a full bucket of credits lets a gp2 volume burst for at least 30 minutes.
BURST_MS = 30 * 60 * 1000

FAR_APART = 0.9
"""What ranks get until the last is done, below this share of what they get while all read, stands beside it."""
NOTICED = 0.95
"""A fairness below this is said in the answer."""
MOST_RANKS = 8
"""Of more, the slowest, the middle and the fastest are shown."""
OF_RANKS = (
    "readers: of all ranks",
    "MB/s: of all together while all read (first done)",
    "last done: all bytes over the time of the last rank",
    "R x slowest: what ranks in step get if the others' share stays unused",
    "fair: slowest over fastest",
)

Notes = list[tuple[str, str]]
SHORT = ", measured for under a second at a time: the rate that lasts may be lower"
TITLE = "Opens and stats of the same files, which are not read"
LABELS: dict[MetadataLabel, str] = {
    "cold": "cold: names and inodes were dropped before and came from storage or its server, by count",
    "warm": "warm: names and inodes were in memory",
    "unproved": "unproved: names and inodes were dropped, but nothing counts what came from storage again",
}


def bandwidth_document(report: BandwidthReport) -> Document:
    """The answer, then what each number of readers gets, and each rank, then what to know of it."""
    return Document(
        title=f"Storage under {report.path}",
        sections=(
            Section(parts=tuple(_answer(report))),
            Section(title="Ladder", name="ladder", parts=tuple(_ladder(report))),
            *_of_ranks(report.best),
            Section(title=TITLE, parts=tuple(_operations(report))),
            *(_alone(report, name) for name in _ALONE),
            Section(title="Notes", parts=items(notes(report))),
            Section(parts=(Paragraph(text=made(report), tone="quiet"),)),
        ),
    )


def _answer(report: BandwidthReport) -> Iterator[Part]:
    best = report.best
    if report.interrupted:
        yield Paragraph(text=interrupted(report), strong=True, tone="warning")
    yield Paragraph(text=answer(report, best) if best else "No step of the ladder was measured.", strong=True)
    if best and (said := in_step(report, best)):
        yield Paragraph(text=said, strong=True)
    if best and not (in_memory(report, best) and report.limit.by != "memory"):  # else the words would be about memory
        yield Item(subject="Limit", text=limit_words(report.limit))
        if report.kind.kind != "unknown":
            yield Item(subject="Device", text=kind_words(report.kind))
        if opens := opens_sentence(report):
            yield Item(subject="Opens", text=opens)
    yield Paragraph(text=place(report))
    yield Paragraph(text=files(report))


def _ladder(report: BandwidthReport) -> Iterator[Part]:
    steps = _rows(report)
    phases = [*steps, *(phase for name in _ALONE if (phase := report.phase(name)))]
    if steps:
        yield _table(report, steps)
    if phases:
        yield Paragraph(text=legend(report, phases), tone="quiet")


def _alone(report: BandwidthReport, name: PhaseName) -> Section:
    """A phase that is made once, or why it was not made."""
    phase = report.phase(name)
    if phase:
        return Section(title=title(name, phase), parts=(_table(report, [phase]),))
    reasons = [remark_words(part.reason) for part in report.missing if part.name == name]
    return Section(parts=items((title(name), f"not measured, {reason}") for reason in reasons))


def _rows(report: BandwidthReport) -> Sequence[BandwidthPhase]:
    """All steps; those of ranks in the order of reading, also where others have as many readers."""
    return report.steps if report.by_ranks else report.ladder


def _table(report: BandwidthReport, phases: Sequence[BandwidthPhase]) -> Table:
    lines = [_cells(report, phase) for phase in phases]
    most = max(phase.bw_bytes for phase in phases)
    return Table(
        head=tuple(lines[0]),
        lines=tuple(tuple(cells.values()) for cells in lines),
        right=frozenset(number for number, name in enumerate(lines[0]) if name not in ("±95 %", "cache")),
        bars=tuple(phase.bw_bytes / most if most else 0.0 for phase in phases) if len(phases) > 1 else (),
    )


def _cells(report: BandwidthReport, phase: BandwidthPhase) -> dict[str, str | Cell]:
    """By the heads of their columns."""
    least = ">=" if phase.at_least else ""
    rate = f"{least}{megabytes_per_s(phase.bw_bytes)}"
    half = (phase.bw_high - phase.bw_bytes) / 1e6
    spread = f"{plus_minus(phase.bw_bytes / 1e6, half)}{'' if phase.settled else '*'}" if half > 0 else MISSING
    times = (phase.file_ns or phase.clat_ns).percentile
    cells: dict[str, str | Cell] = {"ranks": layout(phase)} if report.by_ranks else {}
    cells["readers"] = str(phase.readers)
    cells["MB/s"] = Cell(text=rate, tone="strong") if phase == report.best else rate
    cells["±95 %"] = spread if phase.settled else Cell(text=spread, tone="warning")
    if report.by_ranks:
        cells["last done"] = megabytes_per_s(phase.last_done_bw_bytes)
        cells["R x slowest"] = megabytes_per_s(phase.in_step_bw_bytes)
        cells["fair"] = f"{phase.fairness:.2f}"
    cells[f"{noun(phase, report)}s/s"] = f"{least}{significant(phase.files_per_s)}"
    if not report.by_ranks:
        cells["p50 ms"] = significant(times["50.000000"] / 1e6)
    cells["p99 ms"] = significant(times["99.000000"] / 1e6)
    cells["cache"] = Cell(text=phase.cache, tone=_TONES[phase.cache])
    if not report.by_ranks:
        cells["cold"] = "" if phase.cold_fraction is None else percent(phase.cold_fraction)
    return cells


def _of_ranks(most: BandwidthPhase | None) -> Iterator[Section]:
    """Each rank of this step; of many the slowest, the middle and the fastest."""
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


def _of_hosts(most: BandwidthPhase) -> Iterator[Table]:
    """The ranks of each host, where hosts have several; of many hosts the slowest, the middle and the fastest."""
    hosts = dict.fromkeys(rank.host for rank in most.by_rank)
    if not 1 < len(hosts) < most.ranks:
        return
    rates = {host: sorted(rank.bw_bytes for rank in most.by_rank if rank.host == host) for host in hosts}
    ordered = sorted(hosts, key=lambda host: rates[host][0])
    shown = ordered if len(ordered) <= MOST_RANKS else [ordered[0], ordered[len(ordered) // 2], ordered[-1]]
    lines = tuple(
        (host, str(len(rates[host])), *(megabytes_per_s(end) for end in (sum(rates[host]), *_ends(rates[host]))))
        for host in shown
    )
    yield Table(head=("host", "ranks", "MB/s", "slowest", "fastest"), lines=lines, right=frozenset(range(1, 5)))


def _ends(rates: Sequence[float]) -> tuple[float, float]:
    return rates[0], rates[-1]


def _operations(report: BandwidthReport) -> Iterator[Part]:
    """Opens, and stats beside them, for each number of readers."""
    opens = {phase.readers: phase for phase in report.operations("open")}
    stats = {phase.readers: phase for phase in report.operations("stat")}
    readers = sorted({*opens, *stats})
    if not readers:
        return
    yield Table(
        head=("readers", "opens/s", "±95 %", "p50 ms", "p99 ms", "stats/s", "±95 %", "p50 ms", "p99 ms", "metadata"),
        lines=tuple(
            (
                str(count),
                *_operation(opens.get(count)),
                *_operation(stats.get(count)),
                _label(opens.get(count), stats.get(count)),
            )
            for count in readers
        ),
        right=frozenset({0, 1, 3, 4, 5, 7, 8}),
    )
    yield Paragraph(text=metadata_legend(report), tone="quiet")


def _operation(phase: MetadataPhase | None) -> tuple[str, ...]:
    if phase is None:
        return (MISSING,) * 4
    return (
        f"{'>=' if phase.at_least else ''}{grouped(phase.ops_per_s)}", _spread(phase), _time_ms(phase, "50.000000"),
        _time_ms(phase, "99.000000"),
    )  # fmt: skip


def _label(opens: MetadataPhase | None, stats: MetadataPhase | None) -> Cell:
    """One word where both have the same."""
    labels = list(dict.fromkeys(each.metadata for each in (opens, stats) if each is not None))
    return Cell(text=" / ".join(labels), tone=_TONES[labels[0]])


def place(report: BandwidthReport) -> str:
    """`ext4 (block) mounted on /data from /dev/vdb1, device vdb, read-ahead 128 KiB`."""
    found = report.location
    kind = "" if found.kind == "unknown" else f" ({found.kind})"
    devices = f", device {join_words(found.devices)}" if found.devices else ""
    if not found.devices and found.kind not in ("memory", "network", "fuse"):
        devices = ", no block device to see"
    ahead = "" if found.read_ahead_bytes is None else f", read-ahead {found.read_ahead_bytes / 1024:.0f} KiB"
    return f"{found.filesystem}{kind} mounted on {found.mount} from {found.source}{devices}{ahead}"


def files(report: BandwidthReport) -> str:
    """What was read: `200 of 4094 images, 114 kB on average, read whole in random order`; of ranks, where they are."""
    shares, hosts = "", dict.fromkeys(rank.host for phase in report.phases for rank in phase.by_rank)
    if hosts:
        shares = f"; each rank on {join_words([*hosts])} reads a share of its own, cold, after a common start"
    noun = "image" if report.images else "file"
    block_bytes = next((phase.block_bytes for phase in report.ladder), None)
    if report.scratch:
        which = "A scratch file written for this test"
    elif report.files_used == report.files_found:
        which = counted(report.files_found, noun)
    else:
        which = f"{report.files_used} of {counted(report.files_found, noun)}"
    if block_bytes is not None:
        return f"{which}, read in blocks of {block(block_bytes)} in random order{shares}"
    return f"{which}, {format_bytes(report.mean_size_bytes)} on average, read whole in random order{shares}"


def block(size_bytes: int) -> str:
    """A size that is a power of two, in its own unit: `128 KiB`, `1 MiB`."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= size and size_bytes % size == 0:
            return f"{size_bytes // size} {unit}"
    return f"{size_bytes} B"


def noun(phase: BandwidthPhase, report: BandwidthReport) -> str:
    """What the phase counts."""
    if phase.block_bytes is not None:
        return "block"
    return "image" if report.images else "file"


def title(phase_name: str, phase: BandwidthPhase | None = None) -> str:
    """What a phase is called where it stands alone."""
    if phase_name == "sequential":
        return f"Sequential, {block(phase.block_bytes)} blocks" if phase and phase.block_bytes else "Sequential"
    return {"direct": "Past the page cache (O_DIRECT)", "paced": "With pauses", "files": "More readers"}[phase_name]


def interrupted(report: BandwidthReport) -> str:
    """How far the probe came."""
    how_far = "the ladder is not complete" if report.ladder_cut_short else "not all phases were measured"
    return f"Interrupted: {how_far}."


def in_step(report: BandwidthReport, most: BandwidthPhase) -> str:
    """What ranks get that wait for the slowest; empty of one rank."""
    slow = most.slowest
    if slow is None or most.ranks == 1:
        return ""
    said = f"{most.ranks} x the slowest is {megabytes_per_s(most.in_step_bw_bytes)} MB/s."
    if most.last_done_bw_bytes < FAR_APART * most.bw_bytes:
        said += f" Until the last was done, all got {megabytes_per_s(most.last_done_bw_bytes)} MB/s."
    if most.fairness >= NOTICED:
        return f"All ranks get alike: {said}"
    if most.long_enough:
        # Of a slow host the limit says more.
        alone = report.limit.code != "slow_host"
        who = f"The slowest, rank {slow.rank} on {slow.host}," if alone else "The slowest rank"
        said += f" {who} gets {percent(most.fairness)} of the fastest."
    return f"Ranks in step may get less: {said} {feeding_in_step(report.feeds_in_step)}".rstrip()


def layout(phase: BandwidthPhase) -> str:
    """`4`, or `2x8` of two nodes with eight ranks each."""
    return f"{phase.nodes}x{phase.ranks // phase.nodes}" if phase.nodes > 1 else str(phase.ranks)


def bandwidth_headline(report: BandwidthReport) -> str:
    """The path, and what the fastest step delivers."""
    found = answer(report, report.best) if report.best else "no step of the ladder was measured"
    return f"{report.path}: {found}"


def answer(report: BandwidthReport, best: BandwidthPhase) -> str:
    """What the best step delivers, and whether that can be held to be the device's."""
    if in_memory(report, best):
        return f"From memory, not from the device: {_amount(report, best)}."
    if best.cache == "mixed":
        return (
            f"Partly from memory ({percent(best.cold_fraction)} from storage): {_amount(report, best)}; "
            "what the device alone delivers is not known."
        )
    sentence = f"Delivers {_amount(report, best)}."
    if not best.settled and best.bw_high > best.bw_bytes:
        sentence += " That rate had not settled: longer phases (--seconds) narrow it."
    fed = feeding(report.feeds)
    sentence += f" {fed}" if fed else ""
    if best.cache == "unproved":
        sentence += " Nothing counts what storage delivers here: cached files cannot be ruled out"
        sentence += ", so no accelerators are counted." if report.images else "."
    return sentence


def in_memory(report: BandwidthReport, phase: BandwidthPhase) -> bool:
    """True when no device stands behind the phase: files in the page cache, or a file system in memory."""
    return phase.cache == "warm" or report.location.in_memory


def _amount(report: BandwidthReport, best: BandwidthPhase) -> str:
    """`301 ±9 MB/s and 2640 images/s of this size with 32 readers`; of ranks: `in 4 ranks on 2 nodes`."""
    least = "at least " if best.at_least else ""
    size = "this size" if best.block_bytes is None else block(best.block_bytes)
    pieces = f"{significant(best.files_per_s)} {noun(best, report)}s/s of {size}"
    ranks = ""
    if best.by_rank:
        ranks = f" in {counted(best.ranks, 'rank')}" + (f" on {best.nodes} nodes" if best.nodes > 1 else "")
    return f"{least}{_with_interval(best)} and {pieces} with {counted(best.readers, 'reader')}{ranks}"


def _with_interval(phase: BandwidthPhase) -> str:
    """`301 ±9 MB/s`; without an interval `301 MB/s`."""
    number, unit = format_rate(phase.bw_bytes).split(" ")
    half = phase.bw_high - phase.bw_bytes
    if half <= 0:
        return f"{number} {unit}"
    shown = float(number)
    return f"{number} {plus_minus(shown, half * shown / phase.bw_bytes)} {unit}"


def legend(report: BandwidthReport, phases: Sequence[BandwidthPhase]) -> str:
    """The signs and words that stand in the table, and no others."""
    calls = all(phase.file_ns is None for phase in phases)
    timed = "read call" if calls else " or ".join(dict.fromkeys(noun(phase, report) for phase in phases))
    parts = ["MB: 10^6 bytes", "±: 95 % interval"]
    if report.by_ranks:
        parts += OF_RANKS
    if any(not phase.settled and phase.bw_high > phase.bw_bytes for phase in phases):
        parts.append("*: still wider than asked")
    if any(phase.bw_high <= phase.bw_bytes for phase in phases):
        parts.append(f"{MISSING}: too short for an interval")
    parts.append(f"{'p99' if report.by_ranks else 'p50, p99'}: time of one {timed}")
    if any(phase.at_least for phase in phases):
        parts.append(">=: at least, as the probe's own CPU use may be the limit")
    if any(phase.cold_fraction is not None for phase in phases):
        parts.append(f"cache: share of the bytes that came from storage, cold from {percent(CEILING_COLD_AT_LEAST)}")
    if any(phase.cache == "unproved" for phase in phases):
        parts.append("unproved: not counted, so cached files cannot be ruled out")
    return "; ".join(parts) + "."


def made(report: BandwidthReport) -> str:
    """By what, when and where: `loaderprobe 0.1.0, 2026-11-21 07:00 UTC, Linux 6.8.0, 16 cores`."""
    environment = report.origin.environment
    cores = f"{environment.cores_available:g} core{'' if environment.cores_available == 1 else 's'}"
    when = report.origin.created_utc[:16].replace("T", " ")
    return f"loaderprobe {environment.loaderprobe}, {when} UTC, Linux {environment.kernel}, {cores}"


def notes(report: BandwidthReport) -> Notes:
    """(subject, fact), each once, only what applies."""
    notes: Notes = [("Files", remark_words(note)) for note in report.notes]
    notes += [("Storage", remark_words(note)) for note in report.location.notes]
    notes += _not_made(report)
    notes += _grouped(report, ((phase, note) for phase in report.phases for note in _of_phase(report, phase)))
    notes += _compared(report)
    notes += _of_operations(report)
    notes += _method(report)
    return list(dict.fromkeys(notes))


def _not_made(report: BandwidthReport) -> Notes:
    """The phases without a place in the table."""
    return [
        (title(part.name), f"not measured, {remark_words(part.reason)}")
        for part in report.missing
        if part.name == "files" or (part.name == "paced" and report.kind.code != "not_paced")
    ]


def _of_phase(report: BandwidthReport, phase: BandwidthPhase) -> list[str]:
    piece = noun(phase, report)
    found = [remark_words(note) for note in phase.notes]
    found += [f"{counted(count, piece)} could not be read to the end: {why}" for why, count in phase.unread.items()]
    if phase.cache == "unproved" and not in_memory(report, phase) and (phase.resident_before or 0) > RESIDENT_FROM:
        found.append(f"the page cache held {percent(phase.resident_before)} of the files before")
    if phase.engine == "processes":
        found.append("read by several processes, which got more than the threads of one")
    return found


def _compared(report: BandwidthReport) -> Notes:
    """One line a matter, with the figures of all the phases that it concerns."""
    shared = [phase for phase in report.phases if (phase.other_bytes_per_s or 0) > OTHER_READS_FROM * phase.bw_bytes]
    fell = [
        phase
        for phase in report.phases
        if phase.name != "paced" and phase.last_third_bw_bytes < (1 - FALLEN_FROM) * phase.first_third_bw_bytes
    ]
    ahead = [phase for phase in report.phases if (phase.amplification or 0) > AMPLIFIED_FROM]
    others = value_range([(phase.other_bytes_per_s or 0) / 1e6 for phase in shared])
    falls = join_words(
        [
            f"from {megabytes_per_s(phase.first_third_bw_bytes)} to {megabytes_per_s(phase.last_third_bw_bytes)}"
            for phase in fell
        ]
    )
    more = value_range([phase.amplification or 0 for phase in ahead])
    each = (
        (shared, f"other processes read {others} MB/s from the same device meanwhile"),
        (fell, f"fell {falls} MB/s within the phase: burst credit, or a throttle"),
        (ahead, f"{more} times as many bytes were read from storage as delivered: unused read-ahead"),
    )
    return [(_subject(report, phases), text) for phases, text in each if phases]


def _method(report: BandwidthReport) -> Notes:
    notes: Notes = []
    if report.drop_caches:
        notes.append(
            ("Caches", "those of the whole machine were dropped before each reading, of other programs as well")
        )
    best = report.best
    if best and not in_memory(report, best):
        notes += _judged(report, best)
    if report.phases and _may_burst(report):
        notes.append(
            (
                "Burst",
                "cloud volumes may keep up a rate for minutes on credit, then fall; phases of seconds cannot tell",
            )
        )
    return notes


def _judged(report: BandwidthReport, best: BandwidthPhase) -> Notes:
    """What the kind of device was judged by, and the accelerators that the answer left out."""
    evidence = [
        f"{evidence_words(part)} {_measured(part.value, part.unit)}"
        + ("" if part.threshold is None else f" (threshold {_measured(part.threshold, part.unit)})")
        for part in report.kind.evidence
    ]
    notes = [("Kind of device", kind_words(report.kind))] if report.kind.kind == "unknown" else []
    notes += [("Evidence of the kind of device", "; ".join(evidence))] if evidence else []
    others = other_feeds(report.feeds)
    if others and best.cache != "mixed":
        notes.append(("ResNet-50 on others", others))
    return notes


def _measured(value: float, unit: str) -> str:
    return significant(value) if unit == "x" else f"{significant(value)} {unit}"


def _may_burst(report: BandwidthReport) -> bool:
    kind = report.location.kind
    devices = kind in ("block", "network") or (kind == "overlay" and report.location.counts_reads)
    return devices and sum(phase.runtime for phase in report.phases) < BURST_MS


def _grouped(report: BandwidthReport, facts: Iterable[tuple[BandwidthPhase, str]]) -> Notes:
    """Each text once, with all the phases that it belongs to."""
    phases: dict[str, list[BandwidthPhase]] = {}
    for phase, text in facts:
        phases.setdefault(text, []).append(phase)
    return [(_subject(report, among), text) for text, among in phases.items()]


def _subject(report: BandwidthReport, phases: Sequence[BandwidthPhase]) -> str:
    """`4 and 8 readers`, `1 to 16 readers` of a whole ladder, `1 reader, past the page cache (O_DIRECT)`."""
    steps = sorted({phase.readers for phase in report.steps if phase in phases})
    subjects = [f"{join_words([str(count) for count in steps])} reader{'' if steps == [1] else 's'}"] if steps else []
    if len(steps) > 2 and len(steps) == len(report.ladder):
        subjects = [f"{steps[0]} to {steps[-1]} readers"]
    for phase in phases:
        if phase.name != "files":
            name = title(phase.name, phase)
            subjects.append(name[0].lower() + name[1:] if subjects else name)
    return ", ".join(subjects)


def opens_sentence(report: BandwidthReport) -> str:
    """What a storage plan may count on: opens/s cold, or why there is no such figure; empty where none was tried."""
    best = report.best_opens
    if best is None:
        reasons = (remark_words(part.reason) for part in report.missing if part.name == "metadata")
        return next((f"not measured, {reason}" for reason in reasons), "")
    least = "at least " if best.at_least and not best.short else ""
    half = "" if _spread(best) == MISSING else f" {_spread(best)}"
    figure = f"{least}{grouped(best.ops_per_s)}{half} opens/s with {counted(best.readers, 'reader')}"
    if best.metadata == "cold":
        return f"{figure}, cold metadata{SHORT if best.short else ''}."
    if best.metadata == "unproved":
        return f"{figure} after names and inodes were dropped; nothing here counts whether storage answered (unproved)."
    place = report.location
    if place.in_memory:
        return f"{figure}: the file system is in memory."
    why = "memory answered although they were dropped" if best.drops else "dentries were not dropped"
    hint = "" if best.drops else "; --drop-caches (root) measures cold opens/s"
    worth = "which says nothing of storage"
    if place.kind in ("fuse", "network"):
        worth = "of which the kernel may have answered a part"  # its server is asked for some operations every time
    return f"{figure}, warm metadata ({why}), {worth}{hint}."


def _spread(phase: MetadataPhase) -> str:
    if phase.ops_high <= phase.ops_per_s:
        return MISSING
    half = phase.ops_high - phase.ops_per_s
    return f"±{float(significant(half, 2)):,.0f}" if half >= 100 else plus_minus(phase.ops_per_s, half)


def _time_ms(phase: MetadataPhase | None, percentile: str) -> str:
    return MISSING if phase is None else significant(phase.op_ns.percentile[percentile] / 1e6, 2)


def metadata_legend(report: BandwidthReport) -> str:
    """What the labels in the table mean, and no others."""
    used = dict.fromkeys(phase.metadata for phase in report.metadata)
    return "metadata " + "; ".join(LABELS[label] for label in used) + "."


def _of_operations(report: BandwidthReport) -> list[tuple[str, str]]:
    """(subject, fact) of the phases, each once."""
    if not report.metadata:
        return []
    facts: list[str] = []
    if any(phase.short for phase in report.metadata):
        facts.append(
            "a pass over the files lasted under a second: the device's saved credit and read-ahead of inodes weigh in; "
            "use more files, or longer phases (--seconds), for the rate that lasts"
        )
    failed = {why: count for phase in report.metadata for why, count in phase.unread.items()}
    facts += [f"{counted(count, 'file')} could not be reached: {why}" for why, count in failed.items()]
    if any(phase.at_least for phase in report.metadata):
        facts.append(">= marks where the probe's own CPU use may be the limit")
    if report.location.kind in ("fuse", "network") and any(phase.metadata != "cold" for phase in report.metadata):
        facts.append(
            "the kernel may keep names and attributes for a time that the mount sets, and the server has caches of its "
            "own: which of them answered is not known"
        )
    return [("Opens and stats", fact) for fact in dict.fromkeys([*facts, *_proof(report)])]


def _proof(report: BandwidthReport) -> list[str]:
    """What proves that cold operations were cold, and what it leaves open."""
    cold = [phase for phase in report.metadata if phase.metadata == "cold"]
    size = value_range([phase.storage_bytes / phase.total_ops for phase in cold if phase.storage_bytes])
    calls = value_range([phase.server_calls / phase.total_ops for phase in cold if phase.server_calls])
    found = [f"an operation read {size} B of names and inodes from storage"] if size else []
    found += [f"an operation took {calls} calls to the server, those of the whole mount counted"] if calls else []
    return [f"{fact}, whose own cache cannot be dropped from here" for fact in found]


# The charts: rates against readers, of ranks all together and in step, and the rate of each rank.

TALL = 250
"""Pixels of a chart against readers."""
BEYOND = 2.0
"""Over the highest value of a logarithmic axis, and under the lowest, for their names."""
BESIDE = 1.4
"""Left of the fewest readers, and right of the most."""


def bandwidth_exhibits(report: BandwidthReport) -> dict[str, tuple[Exhibit, ...]]:
    """By the name of the section of the document that they belong to."""
    return {"ladder": tuple(_against_readers(report)), "ranks": tuple(_each_rank(report))}


def _against_readers(report: BandwidthReport) -> Iterator[Exhibit]:
    best = report.best
    if best is None or len(report.steps) < 2:
        return
    piece = noun(best, report)
    what = f"{piece.capitalize()}s/s"
    text = "Both axes are logarithmic; bars are 95 % intervals."
    if report.by_ranks:
        text += (
            " Solid: all ranks together, while all read. Dashed: as many times the slowest rank, which is what ranks "
            "in step get if what the others could read beyond it stays unused. Training in step lies between the two."
        )
    if len(_alike(report)) < len(report.steps):
        text += " Grey: as many readers in fewer ranks; far below the solid line, a process or a node is the limit."
    if piece != "block":
        text += f" Each {piece} is opened once, so these are opens/s as well."
    yield Exhibit(
        title=_title(report, best),
        text=text,
        figures=(
            ("MB/s against readers", _lines(report, "MB/s", lambda _: 1e-6)),
            (f"{what} against readers", _lines(report, what, lambda phase: phase.files_per_s / phase.bw_bytes)),
        ),
    )


def _alike(report: BandwidthReport) -> list[BandwidthPhase]:
    """All steps of one process; of ranks those with as many readers each as the first one, by ranks and nodes."""
    if not report.by_ranks:
        return [*report.ladder]
    alike = [step for step in report.steps if step.readers_a_rank == report.steps[0].readers_a_rank]
    return sorted(alike, key=lambda each: (each.ranks, each.nodes))


def _title(report: BandwidthReport, best: BandwidthPhase) -> str:
    """What the fastest step gets, of ranks both ways."""
    if not report.by_ranks:
        return f"{counted(best.readers, 'reader')} get {megabytes_per_s(best.bw_bytes)} MB/s"
    together = f"{counted(best.ranks, 'rank')} together get {megabytes_per_s(best.bw_bytes)} MB/s"
    if best.fairness >= NOTICED:
        return f"{together}, all alike"
    return f"{together}; in step they may get as little as {megabytes_per_s(best.in_step_bw_bytes)}"


def _lines(report: BandwidthReport, unit: str, scale: Callable[[BandwidthPhase], float]) -> str:
    """SVG of the ladder; `scale` is one byte/s of a step in the unit."""
    steps, of_all = _alike(report), " of all ranks" if report.by_ranks else ""
    others = [step for step in report.steps if step not in steps]

    def rate(phase: BandwidthPhase) -> float:
        return phase.bw_bytes * scale(phase)

    def in_step(phase: BandwidthPhase) -> float:
        return phase.in_step_bw_bytes * scale(phase)

    x = [step.readers for step in report.steps]
    y = [value for step in report.steps for value in (rate(step), in_step(step))]
    plot = Plot(
        unit,
        Axis(name=f"readers{of_all}", low=min(x) / BESIDE, high=max(x) * BESIDE, base=2),
        Axis(name="", low=min(y) / BEYOND, high=max(y) * BEYOND, base=10),
        height=TALL,
    )
    # Of steps with as many readers, the lines go through the fastest.
    best = [
        max((step for step in steps if step.readers == at), key=rate) for at in sorted({*(s.readers for s in steps)})
    ]
    plot.spans(((step.readers, step.bw_low * scale(step), step.bw_high * scale(step)) for step in steps), BLUE)
    plot.line([(each.readers, rate(each)) for each in best], BLUE, width=2.5)
    plot.dots([(step.readers, rate(step)) for step in steps], BLUE, radius=3.5)
    if report.by_ranks:
        plot.line([(each.readers, in_step(each)) for each in best], RED, dash="6 4")
        plot.dots([(step.readers, in_step(step)) for step in steps], RED, shape="open", radius=3.5)
    plot.dots([(each.readers, rate(each)) for each in others], GREY, shape="diamond")
    last = best[-1]
    together, slowest = rate(last), f"{last.ranks} x slowest"
    # Of lines that end alike one name, which leaves the place below to others.
    if not report.by_ranks:
        plot.name(last.readers, together, significant(together), "above left")
    elif in_step(last) >= NOTICED * together:
        plot.name(last.readers, together, f"together, and {slowest}: {significant(together)}", "above left")
    else:
        plot.name(last.readers, together, f"together {significant(together)}", "above left")
        plot.name(last.readers, in_step(last), f"{slowest} {significant(in_step(last))}", "below left")
    for step in steps:
        if sum(other.readers == step.readers for other in steps) > 1:
            plot.name(step.readers, rate(step), layout(step), "right")
    for each in others:
        plot.name(each.readers, rate(each), counted(each.ranks, "rank"), "left")
    return plot.svg()


def _each_rank(report: BandwidthReport) -> Iterator[Exhibit]:
    most = report.best
    if most is None or most.slowest is None or most.ranks == 1:
        return
    slow, fast = most.slowest, max(most.by_rank, key=lambda each: each.bw_bytes)
    middle = median([each.bw_bytes for each in most.by_rank])
    host = report.limit.facts["host"] if report.limit.code == "slow_host" else None
    behind = {rank.rank for rank in most.by_rank if rank.host == host} or {slow.rank}
    yield Exhibit(
        title=f"The slowest of {most.ranks:,} ranks gets {100 * most.fairness:.0f} % of the fastest",
        text=f"Of {layout(most)} ranks that read at once, the slowest is {_named(slow)} with "
        f"{megabytes_per_s(slow.bw_bytes)} MB/s, the median {megabytes_per_s(middle)}, the fastest {_named(fast)} with "
        f"{megabytes_per_s(fast.bw_bytes)}. Ranks in step wait for the slowest.",
        figures=((f"MB/s of each of {most.ranks} ranks", spread_chart(most, behind)),),
    )


def _named(rank: RankRead) -> str:
    return f"rank {rank.rank} on {rank.host}"


def spread_chart(phase: BandwidthPhase, slow: Set[int]) -> str:
    """SVG of a bar for each rank, in their order, those that are `slow` in red; a line at the median."""
    rates = [each.bw_bytes / 1e6 for each in phase.by_rank]
    colors = [RED if rank in slow else BLUE for rank in range(len(rates))]
    nodes = [each.node for each in phase.by_rank]
    borders = [rank for rank in range(1, phase.ranks) if nodes[rank] != nodes[rank - 1]]
    marked = len(borders) == phase.nodes - 1 and phase.ranks > phase.nodes > 1
    plot = rank_chart("MB/s of each rank", "", rates, colors, axis="marks between nodes" if marked else "")
    plot.level(median(rates), f"median {significant(median(rates))}")
    for rank in borders if marked else ():
        plot.add(f'<path class="axis" d="M{plot.x(rank):.1f} {plot.floor:g}v7"/>')
    return plot.svg()

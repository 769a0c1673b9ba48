"""The bandwidth of a storage as a document: what it delivers, what limits it, what it feeds, how far that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from loaderprobe.records import by_key, values
from loaderprobe.records.bandwidth import BandwidthReport, MetadataLabel, MetadataOperation, MetadataPhase
from loaderprobe.records.phases import FROM_STORAGE, BandwidthPhase, CacheLabel, Latency, RankRead
from loaderprobe.records.supply import Feed
from loaderprobe.records.thresholds import CEILING_COLD_AT_LEAST, OTHER_READS
from loaderprobe.records.verdict import Interval
from loaderprobe.render.charts import Bar, Chart, ChartRow, How, first_and_last
from loaderprobe.render.document import Cell, Column, Document, Paragraph, Part, Section, items, table, tags
from loaderprobe.render.figures import EVIDENCE
from loaderprobe.render.format import counted, grouped, interval, megabytes_per_s, percent, plus_minus, rate, span
from loaderprobe.render.rows import Value, as_columns
from loaderprobe.render.words import location_words, message, remark_words
from loaderprobe.stats import median
from loaderprobe.units import format_bytes, format_duration, format_rate, significant

_ONCE: dict[str, str] = {"direct": "O_DIRECT", "sequential": "sequential", "paced": "with pauses"}
"""Phases beside the ladder, as rows are named. The paced one is evidence of the kind of device: its rate means nothing.
"""
_TONES: dict[CacheLabel | MetadataLabel, tuple[str, str, str, str]] = {
    "asked": ("storage", "", "from the server", ""),
    "cold": ("storage", "", "from storage", "Storage delivers {}"),
    "mixed": ("either", "M", "partly from memory", "Storage and memory deliver {}"),
    "warm": ("warning", "M", "from memory", "Memory, not storage, delivers {}"),
    "unproved": ("quiet", "?", "not counted: perhaps from memory", "Readers get {}, perhaps from memory"),
    "remote": ("storage", "", "from storage", "Storage delivers {}"),
}
"""By where the bytes came from: tone and letter of a bar, what they stand for, and the headline of a best step."""
_NAMES = {
    "cold": "names and inodes were dropped, and came back by count",
    "asked": "the server was asked each time, by count; names may have been in memory",
    "warm": "names and inodes were in memory",
    "unproved": "names and inodes were dropped; nothing counts whether storage answered",
}
_MOST_RANKS = 8
_FALLEN_FROM = 0.2
_AMPLIFIED_FROM = 1.1
_RESIDENT_FROM = 0.05
# AWS: a full bucket of credits lets a gp2 volume burst for at least 30 minutes.
_BURST_MS = 30 * 60 * 1000


def bandwidth_document(report: BandwidthReport) -> Document:
    """What it delivers by concurrency, what limits it, what it feeds; then each phase and each rank."""
    best, location, machine = report.best, report.location, report.origin.environment
    made = f"{counted(machine.cores_available, 'core')}, {report.origin.created_utc[:10]}"
    made = f"on this machine, {made}" if location.is_here else made
    return Document(
        title=f"Storage under {report.path} · {location.filesystem} on {location.source}, {made}",
        headline=_headline(report, best),
        subline=_condition(report, best) if best else "",
        tone=_TONES[report.cache_of(best)][0] if best else "inconclusive",
        unsure=best is None or report.from_memory or best.cache not in FROM_STORAGE or report.read_again is not None,
        sections=tuple(_sections(report, best)),
    )


def _headline(report: BandwidthReport, best: BandwidthPhase | None) -> str:
    if best is None:
        return "No bandwidth was measured"
    *_, words = _TONES[report.cache_of(best)]
    words = words.replace("Storage delivers", "Storage, or its cache, delivers") if report.read_again else words
    # Of steps that came partly from memory it is not known what more readers get.
    least = best.at_least or (report.from_memory and best.cache in FROM_STORAGE)
    return words.format(f"{'at least ' if least else ''}{format_rate(best.bw_bytes)}")


def _condition(report: BandwidthReport, best: BandwidthPhase) -> str:
    """`7050 images/s of 11.6 kB with 4 readers in 2 ranks, cold`."""
    size = format_bytes(report.mean_size_bytes) if best.block_bytes is None else _block(best.block_bytes)
    ranks = f" in {counted(best.ranks, 'rank')}" if best.by_rank else ""
    nodes = f" on {counted(best.nodes, 'node')}" if best.nodes > 1 else ""
    pieces = f"{significant(best.files_per_s)} {_noun(best, report)}s/s of {size}"
    cache = report.cache_of(best)
    state = "" if cache == "remote" else f", {cache}"
    again = message("part.read_again", report.read_again.facts) if report.read_again else ""
    return f"{pieces} with {counted(best.readers, 'reader')}{ranks}{nodes}{state}{again}"


def _sections(report: BandwidthReport, best: BandwidthPhase | None) -> Iterator[Section]:
    # A file server is asked for each name, which is its first limit; names in memory say nothing of a storage.
    served, cold = report.location.kind in ("fuse", "network"), any(step.metadata != "warm" for step in report.metadata)
    title, names = "Opens/s and stats/s by concurrency", tuple(_names(report))
    yield Section(title=title, parts=names if served else (), panel="main")
    yield Section(title="MB/s by concurrency", parts=tuple(_ladder(report)), panel="main")
    kind, known = Paragraph(text=message(f"kind.{report.kind.code}", report.kind.facts)), report.kind.kind != "unknown"
    limits = [Paragraph(text=message(f"ladder.{report.limit.code}", report.limit.facts)), *([kind] if known else [])]
    if report.interrupted:
        how_far = "the ladder is not complete" if report.ladder_cut_short else "not all phases were measured"
        limits.insert(0, Paragraph(text=f"Interrupted: {how_far}.", tone="warning"))
    yield Section(title="What limits it", parts=tuple(limits), panel="side")
    yield Section(title="How many accelerators that feeds", parts=tuple(_feeds(report)), panel="main")
    yield Section(title=title, parts=names if cold and not served else (), panel="main")
    yield Section(title="How sure", parts=tags(_how_sure(best) if best else ()), panel="side")
    yield Section(title="Not known", parts=tags(_not_known(report)), panel="side")
    phases = [*(report.steps if report.by_ranks else report.ladder), *(p for p in report.phases if p.name != "files")]
    words = "first: p50, p99 from a request to the first byte of its reply"
    columns = (Column("", partial(_label, report)), Column("first, ms", partial(_first, report), words), *_COLUMNS)
    yield Section(title="Phases", parts=table(phases, columns))
    yield Section(title="MB/s of each rank", parts=tuple(_ranks(best)))
    yield Section(title=title, parts=() if served or cold else names)
    unknown = not known and report.phases and not report.from_memory
    evidence = (*table(report.kind.evidence, EVIDENCE), *([kind] if unknown else []))
    yield Section(title="Evidence of the kind of device", parts=evidence)
    yield Section(title="Notes", parts=items(dict.fromkeys(_notes(report))))


def _ladder(report: BandwidthReport) -> Iterator[Part]:
    """All steps, those of ranks in the order of reading, then what was read in other ways."""
    steps = report.steps if report.by_ranks else report.ladder
    phases = [*steps, *(phase for phase in report.phases if phase.name in ("direct", "sequential"))]
    best = report.best
    if not phases:
        return
    ranks, cache = ", all ranks" if report.by_ranks else "", " or its cache" if report.read_again else ""
    words = {tone: f"{letter} {said}".lstrip() for tone, letter, said, _ in _TONES.values()}
    names = {tone: f"{said}{cache if tone == 'storage' else ''}{ranks}" for tone, said in words.items()}
    yield Chart(
        rows=tuple(_ladder_row(report, phase, best) for phase in phases),
        unit="MB/s",
        level=f"best step: {_label(report, best)}, {format_rate(best.bw_bytes)}" if best else "",
        names=(*names.items(), ("now", "R x the slowest rank: training in step gets at least this")),
        ends="readers,MB/s",
    )
    wide = ["* interval wider than asked: longer phases (--seconds)"] if not all(p.settled for p in phases) else []
    yield from _marks(phases, *wide)


def _marks(phases: Sequence[BandwidthPhase | MetadataPhase], *others: str) -> Iterator[Part]:
    """What the marks beside their figures stand for."""
    entries = [*others, *(["≥ the probe itself may be the limit"] if any(phase.at_least for phase in phases) else [])]
    if entries:
        yield Paragraph(text="  ".join(entries), tone="legend")


def _ladder_row(report: BandwidthReport, phase: BandwidthPhase, best: BandwidthPhase | None) -> ChartRow:
    tone, letter, *_ = _TONES[report.cache_of(phase)]
    in_step = Bar(end=phase.in_step_bw_bytes / 1e6) if phase.ranks > 1 else None
    mean, high = phase.bw_bytes / 1e6, phase.bw_high / 1e6
    return ChartRow(
        label=_label(report, phase),
        value=("≥" if phase.at_least else "") + interval(Interval(value=mean, low=2 * mean - high, high=high)),
        note=f"{significant(phase.files_per_s)} {_noun(phase, report)}s/s{'' if phase.settled else ' *'}",
        bars=(Bar(end=phase.bw_bytes / 1e6, tone=tone, letter=letter),),
        interval=(phase.bw_low / 1e6, phase.bw_high / 1e6),
        point=in_step,
        level=best.bw_bytes / 1e6 if best else None,
        level_how="estimated" if best is None or best.at_least or best.cache not in FROM_STORAGE else "measured",
    )


def _feeds(report: BandwidthReport) -> Iterator[Part]:
    """As `plan` counts them; a terminal has those of MLPerf Storage, by which storage is planned."""
    if not report.feeds:
        return
    in_step = {feed.accelerator: feed for feed in report.feeds_in_step}
    how: How = "unsure" if report.read_again else "estimated"
    rows = tuple(_feed_row(feed, in_step.get(feed.accelerator), how) for feed in report.feeds)
    terms = report.feeds[0]
    yield Chart(
        rows=rows,
        unit="feeds",
        caption=f"ResNet-50 at {percent(terms.utilization)} of the published rate, {percent(terms.use)} of a limit in "
        "use. mlperf is the pace of MLPerf Storage; GPUs can be faster.",
        names=(("now", "training in step, at the rate of the slowest rank"),),
        brief=tuple(row for row in rows if row.label.startswith("mlperf-")),
        ends="accelerator,feeds",
    )


def _feed_row(feed: Feed, in_step: Feed | None, how: How) -> ChartRow:
    limit = "" if feed.at_least else f", then {message(f'supply.{feed.first_limit}', {})}"
    return ChartRow(
        label=feed.accelerator,
        value=f"{'≥' if feed.at_least else ''}{grouped(feed.count)}",
        note=f"of {rate(feed.images_per_s)} images/s{limit}",
        bars=(Bar(end=feed.count, tone="storage", how=how),),
        point=Bar(end=in_step.count, how="estimated") if in_step else None,
    )


def _names(report: BandwidthReport) -> Iterator[Part]:
    """Opens and stats, with p50 and p99 of one, and what proves where it came from."""
    operations: tuple[MetadataOperation, ...] = ("open", "stat")
    said = ""
    for operation in operations:
        best, phases = report.best_of(operation), report.operations(operation)
        if best:
            labels = dict.fromkeys(phase.metadata for phase in phases)
            tones = [_TONES[label] for label in labels]
            read = ", and what it read from storage" * any(phase.storage_bytes for phase in phases)
            called = ", and its calls to the server" * any(phase.server_calls for phase in phases)
            caption = (
                f"The files are not read; {'; '.join(_NAMES[label] for label in labels)}. "
                f"Beside the rate: p50, p99 of one{read}{called}"
            )
            yield Chart(
                rows=tuple(_names_row(phase, best) for phase in phases),
                caption=caption if caption != said else "",
                unit=f"{operation}s/s",
                level=f"best step: {counted(best.readers, 'reader')}, {grouped(best.ops_per_s)} {operation}s/s",
                names=tuple((tone, f"{letter} {words}".lstrip()) for tone, letter, words, _ in tones),
                ends=f"concurrency,{operation}s/s",
            )
            said = caption
    yield from _marks(report.metadata)


def _names_row(phase: MetadataPhase, best: MetadataPhase) -> ChartRow:
    tone, letter, *_ = _TONES[phase.metadata]
    counts = {"B": phase.storage_bytes, "calls": phase.server_calls}
    costs = "".join(f", {significant(count / phase.total_ops)} {unit}" for unit, count in counts.items() if count)
    return ChartRow(
        label=counted(phase.readers, "reader"),
        value=_per_s(phase),
        note=f"{_p50_p99(phase.op_ns)} ms{costs}",
        bars=(Bar(end=phase.ops_per_s, tone=tone, letter=letter),),
        interval=(phase.ops_low, phase.ops_high),
        level=best.ops_per_s,
        level_how="measured" if best.metadata == "cold" and not best.short else "estimated",
    )


def _per_s(phase: MetadataPhase) -> str:
    """`≥131,000 ±17,000`."""
    half = phase.ops_high - phase.ops_per_s
    shown = f"{'≥' if phase.at_least else ''}{grouped(phase.ops_per_s, half)}"
    if half >= 100:
        return f"{shown} ±{float(significant(half, 2)):,.0f}"
    return f"{shown} {plus_minus(phase.ops_per_s, half)}" if half else shown


def _how_sure(best: BandwidthPhase) -> Iterator[str]:
    half = best.bw_high - best.bw_bytes
    yield f"best step ±{percent(half / best.bw_bytes)} (95 %)" if half > 0 else "best step too short for an interval"
    if best.cold_fraction is not None:
        yield f"{percent(best.cold_fraction)} of its bytes came from storage, by count"
    if best.ranks > 1:
        yield f"the slowest rank gets {percent(best.fairness)} of the fastest"


def _not_known(report: BandwidthReport) -> Iterator[str]:
    best, opens = report.best, report.best_of("open")
    if best and best.cache == "unproved":
        yield "what came from storage: nothing counts it here"
    if report.kind.kind == "unknown":
        yield "the kind of device"
    if report.read_again and report.location.kind != "object":
        yield "what a cache below this machine served: more data than it holds would tell"
    if best and best.cache == "remote":
        yield "what a cache of the store served"
        yield "what several processes get: one reads here"
    elif opens is None or opens.metadata in ("asked", "warm"):
        yield "cold opens/s: --drop-caches (root)"
    elif opens.metadata == "unproved":
        yield "which cache answered opens"
    elif opens.short:
        yield "opens/s that last: a pass took under a second"
    if not report.by_ranks and report.location.kind != "object":
        yield "several processes or nodes: --ranks"
    kind = report.location.kind
    devices = kind in ("block", "network", "object") or (kind == "overlay" and report.location.counts_reads)
    if report.phases and devices and sum(phase.runtime for phase in report.phases) < _BURST_MS:
        yield "burst credit, which can last for minutes on cloud volumes"


def _first(report: BandwidthReport, phase: BandwidthPhase) -> str:
    """Of an object, where the library shows it."""
    hidden = phase.cache != "remote" or any(part.name == "first byte" for part in report.missing)
    return "" if hidden else _p50_p99(phase.clat_ns)


def _fell(phase: BandwidthPhase) -> str:
    first, last = phase.first_third_bw_bytes, phase.last_third_bw_bytes
    fell = phase.name != "paced" and last < (1 - _FALLEN_FROM) * first
    return f"{megabytes_per_s(first)} to {megabytes_per_s(last)}" if fell else ""


def _cache_cell(phase: BandwidthPhase) -> Cell:
    share = "" if phase.cold_fraction is None else f", {percent(phase.cold_fraction)}"
    return Cell(text=f"{phase.cache}{share}", tone="good" if phase.cache in FROM_STORAGE else _TONES[phase.cache][0])


def _p50_p99(latency: Latency) -> str:
    """In milliseconds."""
    return ", ".join(significant(latency.percentile[key] / 1e6) for key in ("50.000000", "99.000000"))


_COLUMNS = (
    Column(
        "p50, p99 ms",
        lambda phase: _p50_p99(phase.file_ns or phase.clat_ns),
        "p50, p99: time of one file, block or read call",
    ),
    Column(
        "last done",
        lambda phase: megabytes_per_s(phase.last_done_bw_bytes) if phase.by_rank else "",
        "last done: MB/s, all bytes over the time of the last rank",
    ),
    Column(
        "R x slowest",
        lambda phase: megabytes_per_s(phase.in_step_bw_bytes) if phase.by_rank else "",
        "R x slowest: MB/s that ranks in step get if the others' share stays unused",
    ),
    Column("fair", lambda phase: f"{phase.fairness:.2f}" if phase.by_rank else "", "fair: slowest rank over fastest"),
    Column(
        "read-ahead",
        lambda phase: f"{significant(more)}x" if (more := phase.amplification or 0.0) > _AMPLIFIED_FROM else "",
        "read-ahead: bytes read from storage over bytes delivered",
    ),
    Column(
        "others",
        lambda phase: (
            megabytes_per_s(rate) if (rate := phase.other_bytes_per_s or 0) > OTHER_READS * phase.bw_bytes else ""
        ),
        "others: MB/s that other processes read from the same device meanwhile",
    ),
    Column("fell", _fell, "fell: MB/s of the first and the last third, where credit or a throttle may end"),
    Column(
        "cache",
        _cache_cell,
        f"cache: cold where {percent(CEILING_COLD_AT_LEAST)} of the bytes or more came from storage, by count",
    ),
)


_HOSTS = (
    Column("host", lambda ranks: ranks[0].host),
    Column("ranks", lambda ranks: str(len(ranks))),
    Column("MB/s of a rank", lambda ranks: span([rank.bw_bytes for rank in ranks], megabytes_per_s)),
)


def _ranks(phase: BandwidthPhase | None) -> Iterator[Part]:
    """The slowest first, with a mark at the median rank; then hosts of several ranks."""
    if phase is None or phase.ranks == 1:
        return
    ordered = sorted(phase.by_rank, key=lambda rank: rank.bw_bytes)
    middle = median([rank.bw_bytes for rank in ordered])
    rows = (
        ChartRow(
            label=f"{rank.rank} on {rank.host}",
            value=megabytes_per_s(rank.bw_bytes),
            note=f"done after {format_duration(rank.seconds)}",
            bars=(Bar(end=rank.bw_bytes / 1e6, tone="storage"),),
            level=middle / 1e6,
        )
        for rank in first_and_last(ordered, _MOST_RANKS)
    )
    level = f"median: {megabytes_per_s(middle)} MB/s"
    yield Chart(rows=tuple(rows), unit="MB/s", caption=_caption(ordered, "ranks"), level=level, ends="rank,MB/s")
    hosts: list[list[RankRead]] = [*by_key(ordered, lambda rank: rank.host).values()]
    if 1 < len(hosts) < phase.ranks:
        yield from table(first_and_last(hosts, _MOST_RANKS), _HOSTS, caption=_caption(hosts, "hosts"))


def _caption(ordered: Sequence[object], noun: str) -> str:
    few = len(ordered) > _MOST_RANKS
    return f"The slowest and the fastest of {len(ordered):,} {noun}" if few else ""


def _notes(report: BandwidthReport) -> Iterator[tuple[str, str]]:
    """(subject, fact), with all the phases that it belongs to."""
    yield "Storage", location_words(report.location)
    yield "Files", _files(report)
    yield from (("Files", remark_words(note)) for note in report.notes)
    yield from (("Storage", remark_words(note)) for note in report.location.notes)
    for part in report.missing:
        if part.name != "paced" or report.kind.code != "not_paced":
            yield _ONCE.get(part.name, part.name), f"not measured, {remark_words(part.reason)}"
    of_phases = [(text, _label(report, phase)) for phase in report.phases for text in _of_phase(report, phase)]
    for text, pairs in by_key(of_phases, lambda pair: pair[0]).items():
        yield ", ".join(label for _, label in pairs), text
    for operation in report.metadata:
        for why, count in operation.unread.items():
            subject = f"{operation.operation}s, {counted(operation.readers, 'reader')}"
            yield subject, f"{counted(count, 'file')} could not be reached: {why}"


def _of_phase(report: BandwidthReport, phase: BandwidthPhase) -> Iterator[str]:
    yield from map(remark_words, phase.notes)
    for why, count in phase.unread.items():
        yield f"{counted(count, _noun(phase, report))} could not be read to the end: {why}"
    if report.cache_of(phase) == "unproved" and (phase.resident_before or 0) > _RESIDENT_FROM:
        yield f"the page cache held {percent(phase.resident_before)} of the files before"
    if phase.engine == "processes":
        yield "read by several processes, which got more than the threads of one"


def _label(report: BandwidthReport, phase: BandwidthPhase) -> str:
    """`4 readers`, `2x8 ranks, 64 readers`, `16, O_DIRECT`, `1, sequential 1 MiB`."""
    if phase.name != "files":
        block = f" {_block(phase.block_bytes)}" if phase.name == "sequential" and phase.block_bytes else ""
        return f"{phase.readers}, {_ONCE[phase.name]}{block}"
    if not report.by_ranks:
        return counted(phase.readers, "reader")
    layout = f"{phase.nodes}x{phase.ranks // phase.nodes} ranks" if phase.nodes > 1 else counted(phase.ranks, "rank")
    return f"{layout}, {counted(phase.readers, 'reader')}"


def _noun(phase: BandwidthPhase, report: BandwidthReport) -> str:
    if phase.block_bytes is not None:
        return "block"
    return "image" if report.images else "file"


def _block(size_bytes: int) -> str:
    """A size that is a power of two, in its own unit: `128 KiB`, `1 MiB`."""
    return f"{size_bytes >> 10} KiB" if size_bytes < 1 << 20 else f"{size_bytes >> 20} MiB"


def _files(report: BandwidthReport) -> str:
    """`200 of 4094 images, 114 kB on average, read whole in random order`; of ranks, each a share."""
    used = f"{report.files_used} of " if report.files_used != report.files_found else ""
    which = f"{used}{counted(report.files_found, 'image' if report.images else 'file')}"
    if report.scratch:
        which = "a scratch file written for this test"
    block_bytes = next((phase.block_bytes for phase in report.ladder), None)
    how = f", {format_bytes(report.mean_size_bytes)} on average, read whole"
    if block_bytes is not None:
        how = f", read in blocks of {_block(block_bytes)}"
    shares = "; each rank reads a share of its own, cold, after a common start" if report.by_ranks else ""
    return f"{which}{how} in random order{shares}"


def bandwidth_columns(report: BandwidthReport) -> dict[str, list[Value]]:
    """The phases of a bandwidth probe, a row each, opens and stats last; latencies in ns with their percentiles."""
    return as_columns([*map(_phase_cells, report.phases), *map(_phase_cells, report.metadata)])


def _phase_cells(phase: BandwidthPhase | MetadataPhase) -> dict[str, Value]:
    """By fio's names, with the units that those lack."""
    cells: dict[str, Value] = {}
    for name, value in values(phase).items():
        if isinstance(value, Latency):
            of = name.removesuffix("_ns")
            cells |= {f"{of}_{part}_ns": getattr(value, part) for part in ("min", "mean", "max")}
            cells |= {f"{of}_p{float(share):g}_ns": latency for share, latency in value.percentile.items()}
        elif name == "notes":
            cells["notes"] = "; ".join(map(remark_words, value)) or None
        elif "bw_" in name:
            cells[f"{name.removesuffix('_bytes')}_bytes_per_s"] = value
        elif name not in ("unread", "clat_ns", "file_ns", "op_ns", "by_rank"):
            cells[{"operation": "name", "runtime": "runtime_ms"}.get(name, name)] = value
    if isinstance(phase, BandwidthPhase) and phase.slowest:
        cells |= {
            "readers_a_rank": phase.readers // phase.ranks,
            "last_done_bw_bytes_per_s": phase.last_done_bw_bytes,
            "in_step_bw_bytes_per_s": phase.in_step_bw_bytes,
            "slowest_rank": phase.slowest.rank,
            "slowest_host": phase.slowest.host,
            "fairness": phase.fairness,
        }
    return cells

"""Opens/s and stats/s of a bandwidth report: a table, a sentence, the notes. No figure stands without its label."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.bandwidth import BandwidthReport, MetadataLabel, MetadataPhase
from loaderprobe.render.columns import Column, column, half_interval, value_range
from loaderprobe.render.plan_words import grouped
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import MISSING, counted
from loaderprobe.units import significant

SHORT = ", measured for under a second at a time: the rate that lasts may be lower"
TITLE = "Opens and stats of the same files, which are not read"
LABELS: dict[MetadataLabel, str] = {
    "cold": "cold: names and inodes were dropped before and came from storage or its server, by count",
    "warm": "warm: names and inodes were in memory",
    "unproved": "unproved: names and inodes were dropped, but nothing counts what came from storage again",
}
_STYLES: dict[MetadataLabel, str] = {"cold": "green", "warm": "yellow", "unproved": "dim"}


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


def columns(report: BandwidthReport, width: int) -> list[Column]:
    """A row for each number of readers: opens, stats beside them; times of one where they fit."""
    opens = {phase.readers: phase for phase in report.operations("open")}
    stats = {phase.readers: phase for phase in report.operations("stat")}
    readers = sorted({*opens, *stats})
    found: list[Column] = []
    for times in (True, False):
        found = [column("readers", [str(count) for count in readers], [""] * len(readers), gap=2)]
        for head, phases in (("opens/s", opens), ("stats/s", stats)):
            found += _operation(head, [phases.get(count) for count in readers], times)
        labels = [_label(opens.get(count), stats.get(count)) for count in readers]
        styles = [_STYLES.get((opens.get(count) or stats[count]).metadata, "") for count in readers]
        found.append(column("metadata", labels, styles, left=True, gap=2))
        if sum(each.width for each in found) <= width:
            break
    return found


def _operation(head: str, phases: Sequence[MetadataPhase | None], times: bool) -> list[Column]:
    plain = [""] * len(phases)
    rates = [
        MISSING if each is None else f"{'>=' if each.at_least else ''}{grouped(each.ops_per_s)}" for each in phases
    ]
    made = [column(head, rates, plain, gap=2), column("±95 %", [_spread(each) for each in phases], plain, left=True)]
    if times:
        made += [
            column(f"{name} ms", [_time_ms(each, key) for each in phases], plain, gap=1)
            for name, key in (("p50", "50.000000"), ("p99", "99.000000"))
        ]
    return made


def _spread(phase: MetadataPhase | None) -> str:
    if phase is None or phase.ops_high <= phase.ops_per_s:
        return MISSING
    half = phase.ops_high - phase.ops_per_s
    return f"±{float(significant(half, 2)):,.0f}" if half >= 100 else half_interval(phase.ops_per_s, half)


def _time_ms(phase: MetadataPhase | None, percentile: str) -> str:
    return MISSING if phase is None else significant(phase.op_ns.percentile[percentile] / 1e6, 2)


def _label(opens: MetadataPhase | None, stats: MetadataPhase | None) -> str:
    """One word where both have the same."""
    return " / ".join(dict.fromkeys(each.metadata for each in (opens, stats) if each is not None))


def legend(report: BandwidthReport) -> str:
    """What the labels in the table mean, and no others."""
    used = dict.fromkeys(phase.metadata for phase in report.metadata)
    return "metadata " + "; ".join(LABELS[label] for label in used) + "."


def notes(report: BandwidthReport) -> list[tuple[str, str]]:
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
    return [("Opens and stats", fact) for fact in dict.fromkeys([*facts, *_evidence(report)])]


def _evidence(report: BandwidthReport) -> list[str]:
    """What proves that cold operations were cold, and what it leaves open."""
    cold = [phase for phase in report.metadata if phase.metadata == "cold"]
    size = value_range([phase.storage_bytes / phase.total_ops for phase in cold if phase.storage_bytes])
    calls = value_range([phase.server_calls / phase.total_ops for phase in cold if phase.server_calls])
    found = [f"an operation read {size} B of names and inodes from storage"] if size else []
    found += [f"an operation took {calls} calls to the server, those of the whole mount counted"] if calls else []
    return [f"{fact}, whose own cache cannot be dropped from here" for fact in found]

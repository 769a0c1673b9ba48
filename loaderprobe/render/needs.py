"""What accelerators would ask of storage and cores, beside what this machine has, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.records.report import Outlook, Report
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import MISSING, percent, rate
from loaderprobe.units import format_rate, join_words, significant


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The needs of accelerators of one kind, a line a data set."""

    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    note: str


def named(accelerator: str, counts: str = "") -> str:
    """`one mlperf-h100`, `1, 8 and 64 x mlperf-h100`; of a rate `one accelerator of 500 images/s`."""
    if accelerator[:1].isdigit():
        return f"{f'{counts} accelerators' if counts else 'one accelerator'} of {accelerator} images/s"
    return f"{counts} x {accelerator}" if counts else f"one {accelerator}"


def needs(report: Report) -> tuple[Needs, ...]:
    """One table for each kind of accelerator."""
    found: dict[str, list[Outlook]] = {}
    for each in report.outlooks:
        found.setdefault(each.compute, []).append(each)
    return tuple(_needs(some, report.summary.environment.cores_available) for some in found.values())


def _needs(some: Sequence[Outlook], cores: float) -> Needs:
    first = some[0]
    counts = [str(need.accelerators) for need in first.needs]
    assumed = "" if first.compute != "cpu" else f" No accelerator ran here: the rate of {first.accelerator} is assumed."
    opens = join_words([f"{float(significant(need.files_per_s)):,.0f}" for need in first.needs])
    missing: dict[str, list[str]] = {}
    for each in some:
        if each.missing:
            missing.setdefault(remark_words(each.missing), []).append(each.data)
    reason = "".join(f" {_without_rate(names, len(some))}: {why}." for why, names in missing.items())
    return Needs(
        title=f"What {named(first.accelerator, join_words(counts))} need at {percent(first.utilization)} of "
        f"{rate(first.images_per_s)} images/s, cold{f' ({first.source})' if first.specified else ''}",
        head=("data", *(f"{count} x" for count in counts), "storage here", "feeds", "cores each"),
        lines=tuple(_line(each) for each in some),
        note=f"And they open {opens} files a second. No headroom in these needs; feeds: accelerators, at "
        f"{percent(first.use)} of the storage's rate. cores each: for one accelerator, estimated; {cores:g} here."
        f"{assumed}{reason} More: loaderprobe plan",
    )


def _without_rate(names: Sequence[str], among: int) -> str:
    """`No rate of this storage for 500x375`; without the names where no data set has one."""
    return "No rate of this storage" + (f" for {join_words(names)}" if len(names) < among else "")


def _line(each: Outlook) -> tuple[str, ...]:
    least = ">= " if each.supply and each.supply.at_least else ""
    return (
        each.data,
        *(format_rate(need.read_bytes_per_s) for need in each.needs),
        f"{least}{format_rate(each.supply.read_bytes_per_s)}" if each.supply else MISSING,
        f"{least}{significant(each.supply.feeds, 2)}" if each.supply else MISSING,
        significant(each.cores, 2) if each.cores is not None else MISSING,
    )

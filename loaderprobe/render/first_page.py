"""The first page: what was examined, the answer, the map, the next change, and what accelerators would ask.

It is made once, and shown by the terminal, Markdown and HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Advice, ReasonCode
from loaderprobe.render.answer import answers
from loaderprobe.render.forecast_words import advice_words, worth_making
from loaderprobe.render.groups import Group, groups, measured, then_of
from loaderprobe.render.limits import LETTERS, LimitMap, gain_words, limit_map, used_words
from loaderprobe.render.needs import Needs, named, needs
from loaderprobe.render.overview import joint_name
from loaderprobe.render.reads import read_words
from loaderprobe.render.recommend import advised, best_rows, too_noisy
from loaderprobe.render.verdicts import firm
from loaderprobe.render.wording import MISSING, option_words, speed
from loaderprobe.units import format_duration, join_words, significant

BEST_HEAD = ("best", "workers", "images/s", "of alone", "MB/s of max", "if free → then limited by")
BEST_RIGHT = frozenset({1, 2, 3, 4})
BEST_NOTE = (
    "best: with the workers that are enough; ±: 95 % interval, from rounds and steps. alone: "
    "compute without a loader. MB/s: read while training, of the most that the storage alone gave. if free: speed-up "
    "of training if that cost nothing."
)
ESTIMATED_NOTE = " est.: estimated, not measured."
PREFETCH_NOTE = " 8 x 4: 8 workers, prefetch factor 4."
WANT_OF_TIME: tuple[ReasonCode, ...] = (
    "no_complete_round", "one_round_does_not_fit", "rounds_differ", "estimate_not_measured", "within_noise",
    "slower_without", "interval_too_wide", "lead_within_spread", "rounds_disturbed",
)  # fmt: skip
"""Reasons for which more rounds may be the remedy."""
TOO_NOISY = ", too noisy"
"""Beside a rate whose band is wider than itself."""
MORE_TIME = 2.0
CPU_ADVICE = "No GPU trained here. An emulated accelerator shows what this input would feed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to do, and what to type for it."""

    text: str
    command: str = ""
    labels: str = ""
    """For which configurations."""

    @property
    def words(self) -> str:
        """The change, what to type, and what for."""
        typed = f"; try it: {self.command}" if self.command else ""
        return f"{self.text}{typed}{f' (for {self.labels})' if self.labels else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """One device and cache state."""

    title: str
    emulated: bool
    map: LimitMap
    best: tuple[tuple[str, ...], ...]
    """Lines under `BEST_HEAD`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPage:
    """The page, in the order in which it is read."""

    title: str
    facts: str
    answer: tuple[str, ...]
    devices: tuple[DevicePart, ...]
    changes: tuple[Change, ...]
    needs: tuple[Needs, ...]
    unknown: str
    """What does not follow from this run."""

    @property
    def key(self) -> str:
        """The letters of all maps."""
        seen = {letter for part in self.devices for letter, _, _ in part.map.legend}
        found = [f"{letter} {words}" for letter, words in LETTERS.values() if letter in seen]
        cells = [cell for part in self.devices for _, line in part.map.lines for cell in line if cell]
        if any(cell.tone == "skipped" for cell in cells):
            found.append(f"{MISSING} not measured")
        return "; ".join(found)

    @property
    def best_note(self) -> str:
        """What the columns of `BEST_HEAD` are; empty where there are none."""
        if not any(part.best for part in self.devices):
            return ""
        estimated = any("est." in line[-1] for part in self.devices for line in part.best)
        factors = any(" x " in line[1] for part in self.devices for line in part.best)
        return BEST_NOTE + (PREFETCH_NOTE if factors else "") + (ESTIMATED_NOTE if estimated else "")


def first_page(report: Report) -> FirstPage:
    """The first page of a report, empty where nothing was measured."""
    return FirstPage(
        title=_title(report),
        facts=_facts(report),
        answer=answers(report),
        devices=tuple(_part(report, group) for group in groups(report)),
        changes=_changes(report),
        needs=needs(report),
        unknown=_unknown(report),
    )


def _title(report: Report) -> str:
    """Data, storage, machine, day."""
    run, machine = report.summary.run, report.summary.environment
    names = list(dict.fromkeys(row.config.resolution for row in report.summary.configurations))
    data = joint_name(names, "", report.summary.configurations) if names else "no data"
    made = " (generated)" if run.data and all(each.generated for each in run.data) else ""
    places = dict.fromkeys(f"{each.filesystem} ({join_words(each.devices) or each.kind})" for each in machine.storage)
    storage = f" on {join_words(list(places))}" if places else ""
    gpus = join_words(list(dict.fromkeys(gpu.name for gpu in machine.gpus))) or "no GPU"
    return f"{data}{made}{storage}, {machine.cores_available:g} cores, {gpus}, {run.created_utc[:10]}"


def _facts(report: Report) -> str:
    run = report.summary.run
    sizes = [f"{each.label} {significant(each.mean_size_bytes / 1e3)} kB" for each in run.data]
    mean = f"; {', '.join(sizes)} an image" if sizes else ""
    return f"loaderprobe {run.name}, measured in {format_duration(run.wall_s)}{mean}."


def _part(report: Report, group: Group) -> DevicePart:
    batches = {row.config.compute.batch_size for row in group.rows}
    batch = [option_words(group.rows[0].config, "batch_size")] if len(batches) == 1 else []
    title = ", ".join((group.heading, f"alone {group.ceiling}", group.cache, *group.common, *batch))
    # What a CPU trains beside an accelerator shows no more than its map does.
    less = group.cpu and any(not other.cpu for other in groups(report))
    return DevicePart(
        title=title,
        emulated=group.emulated,
        map=limit_map(group),
        best=() if less else tuple(_best(report, group, row) for row in best_rows(report, group)),
    )


def _best(report: Report, group: Group, row: ConfigurationRow) -> tuple[str, ...]:
    return (
        row.config.resolution,
        _workers(row, group),
        f"{speed(row)}{TOO_NOISY if too_noisy(row) else ''}",
        used_words(row, beside_rate=not group.emulated),
        read_words(report, row),
        gain_words(row, then_of(report, row)),
    )


def _workers(row: ConfigurationRow, group: Group) -> str:
    """`serial`, `8`, or `8 x 4` where the prefetch factors differ."""
    loader = row.config.loader
    several = len({other.config.loader.prefetch_factor for other in group.rows if other.config.loader.workers}) > 1
    return (
        f"{loader.workers} x {loader.prefetch_factor}"
        if loader.workers and several
        else str(loader.workers or "serial")
    )


def _changes(report: Report) -> tuple[Change, ...]:
    """The cores that are missing, and the change that gains most; on a CPU alone, what would show more."""
    found = [group for group in groups(report) if not group.cpu]
    longer = _longer(report, found)
    if not found:
        rows = measured(report.summary.configurations)
        return (*longer, Change(text=CPU_ADVICE, command="--compute emulated:mlperf-h100")) if rows else ()
    made: list[Change] = longer
    for group in found:
        made += [*_cores(report, group)]
        # What rests on an inconclusive row may be said later, but is not what to do next.
        sure = [row for row in best_rows(report, group) if row.bound and row.bound.cause != "inconclusive"]
        gains = [each for each in advised(report, group, sure) if worth_making(each[1][0])]
        if gains:
            labels, advice = max(gains, key=lambda each: max(one.speedup for one in each[1]))
            made.append(change_of(labels + of_ranks(report, group), advice))
    return tuple(dict.fromkeys(made))


def of_ranks(report: Report, group: Group) -> str:
    """`, 2 ranks` where the report has several numbers of them, which labels within a group do not name; else empty."""
    several = len({other.rows[0].config.ranks for other in groups(report)}) > 1
    return f", {option_words(group.rows[0].config, 'ranks')}" if several else ""


def _longer(report: Report, accelerators: Sequence[Group]) -> list[Change]:
    """To measure longer, where no verdict is conclusive for want of time; of accelerators, if there are any."""
    rows = measured([row for group in accelerators or groups(report) for row in group.rows])
    short = [row for row in rows if row.bound and row.bound.reason.code in WANT_OF_TIME]
    if not short or any(firm(row) for row in rows):
        return []
    budget_s = 60 * ceil(MORE_TIME * report.summary.run.wall_s / 60)
    return [Change(text="measure longer: no configuration is conclusive yet", command=f"--budget {budget_s}")]


def _cores(report: Report, group: Group) -> list[Change]:
    if not any(row.bound and row.bound.cause == "cpu" for row in best_rows(report, group)):
        return []
    mine = [each for each in report.outlooks if each.compute == group.compute]
    values = sorted(each.cores for each in mine if each.cores is not None)
    if not values:
        return []
    ends = " to ".join(dict.fromkeys(significant(value, 2) for value in (values[0], values[-1])))
    have = report.summary.environment.cores_available
    sizes = " by the size of the images" if len(values) > 1 else ""
    need = f"{named(mine[0].accelerator)} needs {ends}{sizes} (estimated)"
    return [Change(text=f"more cores: {need}, this machine has {have:g}")]


def change_of(labels: str, advice: Sequence[Advice]) -> Change:
    """One piece of advice: the change in the training code first, then what to type."""
    return Change(text=advice_words(advice), command=advice[0].command, labels=labels)


def _unknown(report: Report) -> str:
    run, rows = report.summary.run, measured(report.summary.configurations)
    parts = [
        *([] if report.summary.environment.gpus else ["a real GPU"]),
        *(["your own images"] if any(each.generated for each in run.data) else []),
        *([] if any(row.config.nodes > 1 for row in rows) else ["several machines on one storage"]),
    ]
    return f"Not known: {', '.join(parts)}." if parts else ""

"""The first page: what was examined, the answer, the map, the next change, and what accelerators would ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, hypot

from loaderprobe.records.config import RunConfig
from loaderprobe.records.report import ConfigurationRow, Outlook, Report
from loaderprobe.records.verdict import Advice, Interval, Knee, ReasonCode
from loaderprobe.render.forecast_words import action_words, advice_words, knee_kind, knee_words, worth_making
from loaderprobe.render.groups import Group, groups, measured, then_of
from loaderprobe.render.limits import LETTERS, LimitMap, gain_words, limit_map, used_words
from loaderprobe.render.overview import joint_label, joint_name
from loaderprobe.render.reads import best_ceiling, read_rate, read_words
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.verdicts import NOUNS, families, firm
from loaderprobe.render.wording import (
    MISSING,
    counted,
    differing,
    interval,
    loading,
    main_speedups,
    option_words,
    percent,
    rate,
    speed,
    times_as_fast,
    variation,
)
from loaderprobe.units import format_duration, format_rate, join_words, significant

# Which knees and which advice stand under the table of a group.


def knees(report: Report, group: Group) -> list[tuple[str, str]]:
    """(what, sentence) for the knees of the group, one for each set of rows that differ in workers only.

    Knees that share all but their rate share a sentence.
    """
    rows = {row.key: row for row in group.rows}
    found: dict[tuple[object, ...], list[tuple[str, Knee]]] = {}
    for knee in report.summary.knees:
        row = next((rows[key] for key in reversed(knee.keys) if key in rows), None)
        if row:
            extra = variation(row, group.rows)
            found.setdefault((extra, *knee_kind(knee)), []).append((row.config.resolution, knee))
    return [
        (joint_name([name for name, _ in some], str(kind[0]), group.rows), knee_words([knee for _, knee in some]))
        for kind, some in found.items()
    ]


def best_rows(report: Report, group: Group) -> list[ConfigurationRow]:
    """Of each data set the row with the workers that are enough, where that was measured; else the fastest.

    A rate that is `too_noisy` ranks behind all others.
    """
    found: dict[str, ConfigurationRow] = {}
    for row in group.rows:
        best = found.get(row.config.resolution)
        if row.images_per_s and (best is None or _better(report, row) > _better(report, best)):
            found[row.config.resolution] = row
    return [found[name] for name in dict.fromkeys(row.config.resolution for row in group.rows) if name in found]


def _at_knee(report: Report, row: ConfigurationRow) -> bool:
    """True for the configuration that is the knee of those that differ from it in workers only."""
    return any(row.key in knee.keys and knee.workers == row.config.loader.workers for knee in report.summary.knees)


def too_noisy(row: ConfigurationRow) -> bool:
    """True for a rate whose band is as wide as itself: no measurement to rank by."""
    return row.images_per_s is not None and row.images_per_s.too_wide


def _better(report: Report, row: ConfigurationRow) -> tuple[bool, bool, float]:
    return not too_noisy(row), _at_knee(report, row), row.images_per_s.value if row.images_per_s else 0.0


def advised(
    report: Report, group: Group, rows: Sequence[ConfigurationRow] | None = None
) -> list[tuple[str, tuple[Advice, ...]]]:
    """(labels, advice) for the best row of each data set, two at most; the same action is given once for all.

    `rows` are asked instead of these.
    """
    best = best_rows(report, group) if rows is None else rows
    found: dict[tuple[object, ...], list[tuple[ConfigurationRow, Advice]]] = {}
    for wanted in (True, False):
        for row in best:
            some = [each for each in row.advice if worth_making(each) == wanted]
            for each in some[:2] if wanted else some:
                same = (wanted, action_words(each.action), each.command)
                found.setdefault(same, []).append((row, each))
    return [
        (joint_label([row for row, _ in some], group.rows), tuple(advice for _, advice in some))
        for some in found.values()
    ]


# What more ranks gain: the rate of training from the fewest ranks to the most, of one data set on one device.

Line = tuple[str, str, str]
"""Device, cache state and data set."""


def scaling(report: Report) -> tuple[str, ...]:
    """`With 1 and 2 ranks, 500x375 trains at 205 ±6 and 390 ±9 images/s: with 2, 1.9 times as fast as with 1.`

    A gain within the noise band of both rates is none. Where their loaders differ, each is named.
    """
    return tuple(_sentence(line, rows) for line, rows in _lines(report).items() if len(rows) > 1)


def with_ranks(rows: Sequence[ConfigurationRow]) -> str:
    """`with 1 rank`, `with 1 and 2 ranks`, `with 1 rank and 4 ranks on 2 nodes`."""
    configs = {(row.config.ranks, row.config.nodes): row.config for row in rows}
    chosen = [configs[each] for each in sorted(configs)]
    if len(chosen) == 1 or any(config.nodes > 1 for config in chosen):
        return f"with {join_words([_ranks(config) for config in chosen])}"
    return f"with {join_words([str(config.ranks) for config in chosen])} ranks"


def _lines(report: Report) -> dict[Line, list[ConfigurationRow]]:
    """Of each number of ranks the row with the workers that are enough, from few ranks to many."""
    found: dict[Line, list[ConfigurationRow]] = {}
    for group in groups(report):
        for row in best_rows(report, group):
            found.setdefault((row.config.compute.name, row.config.cache, row.config.resolution), []).append(row)
    return {line: sorted(rows, key=lambda row: (row.config.ranks, row.config.nodes)) for line, rows in found.items()}


def _sentence(line: Line, rows: list[ConfigurationRow]) -> str:
    over_nodes = any(row.config.nodes > 1 for row in rows)
    names = [_ranks(row.config) if over_nodes else str(row.config.ranks) for row in rows]
    counts = join_words(names) + ("" if over_nodes else " ranks")
    rates = [f"{interval(row.images_per_s)}{_loader(row, rows)}" for row in rows]
    first, last = rows[0].images_per_s, rows[-1].images_per_s
    gain = f": {_gain(names, first, last)}" if first and last else ""
    return f"With {counts}, {line[-1]} trains at {join_words(rates)} images/s{gain}."


def _gain(names: Sequence[str], first: Interval, last: Interval) -> str:
    if not beyond_noise(first, last):
        return f"between {names[0]} and {names[-1]}, no difference beyond noise"
    return f"with {names[-1]}, {significant(last.value / first.value)} times as fast as with {names[0]}"


def beyond_noise(one: Interval, other: Interval) -> bool:
    """True where the rates differ by more than the 95 % band of their difference: both bands, in quadrature."""
    return abs(other.value - one.value) > hypot((one.high - one.low) / 2, (other.high - other.low) / 2)


def _loader(row: ConfigurationRow, rows: Sequence[ConfigurationRow]) -> str:
    """` (2 workers a rank)`; empty where all rows have the same loader."""
    said = [] if len({each.config.loader.workers for each in rows}) == 1 else [_scaling_workers(row)]
    said += [option_words(row.config, name) for name in differing(row, rows) if name not in ("ranks", "nodes")]
    return f" ({', '.join(said)})" if said else ""


def _scaling_workers(row: ConfigurationRow) -> str:
    return f"{loading(row)} a rank" if row.config.loader.workers and row.config.ranks > 1 else loading(row)


def _ranks(config: RunConfig) -> str:
    """`1 rank`, `4 ranks`, `4 ranks on 2 nodes`."""
    return f"{counted(config.ranks, 'rank')}{f' on {config.nodes} nodes' if config.nodes > 1 else ''}"


# Whether storage limits training, in a sentence or two, and on how many ranks that rests.

_LITTLE = 1.25
"""A resource whose speed-up is larger is the next to look at."""
_NEAR = 0.5
"""From this share of the ceiling on, how many times more there is says little."""


def storage_answer(report: Report) -> str:
    """Whether storage limits, by the ablation first, and what it gives beside what was read.

    Where configurations differ in ranks, with which of them; and with which nothing is known. Needs a firm verdict.
    """
    firmly = [row for row in report.summary.configurations if firm(row)]
    rows = [row for row in firmly if row.config.compute.kind != "cpu"] or firmly
    cold = [row for row in rows if row.config.cache != "warm"]
    if not cold:
        return "All files were in memory, as asked: nothing follows for storage."
    every = [row for row in report.summary.configurations if row.config.cache != "warm"]
    on_cpu = cold[0].config.compute.kind == "cpu"
    asked = [row for row in every if (row.config.compute.kind == "cpu") == on_cpu]
    several = any(row.config.ranks > 1 for row in asked)
    # An accelerator that was asked for, and of which nothing is conclusive, is not answered for by a CPU.
    on = (" on this CPU" if len(asked) < len(every) and on_cpu else "") + (f" {with_ranks(cold)}" if several else "")
    limited = [row for row in cold if "storage" in families(row)]
    said = _limiting(report, cold, limited, on) if limited else _not_limiting(report, cold, on)
    return said + (_not_known(asked, cold) if several else "")


def _limiting(report: Report, cold: Sequence[ConfigurationRow], limited: Sequence[ConfigurationRow], on: str) -> str:
    sure = [row for row in limited if families(row) == ("storage",)]
    whole = counted(len(cold), "conclusive configuration")
    said = f"Storage limits {len(sure)} of {whole}" if sure else f"Storage may limit {len(limited)} of {whole}"
    more = f", and may limit {len(limited) - len(sure)} more" if sure and len(sure) < len(limited) else ""
    return f"{said}{on}{more}{_reserve(report, limited, limits=True)}."


def _not_limiting(report: Report, cold: Sequence[ConfigurationRow], on: str) -> str:
    gains = [row.verdict.speedups.storage.value for row in cold if row.verdict and row.verdict.speedups.storage]
    most = f": if it cost nothing, training would be {times_as_fast(max(gains), 'at most ')}" if gains else ""
    following = _following(report, cold)
    first = "the first limit" if following or (gains and max(gains) > _LITTLE) else "the limit"
    return f"Storage is not {first}{on}{most}{_reserve(report, cold, limits=False)}.{following}"


def _not_known(asked: Sequence[ConfigurationRow], cold: Sequence[ConfigurationRow]) -> str:
    """` Nothing is known of storage with 4 ranks: no configuration with them is conclusive.`"""
    known = {(row.config.ranks, row.config.nodes) for row in cold}
    rest = [row for row in asked if (row.config.ranks, row.config.nodes) not in known]
    if not rest:
        return ""
    return f" Nothing is known of storage {with_ranks(rest)}: no configuration there is conclusive."


def _following(report: Report, rows: Sequence[ConfigurationRow]) -> str:
    """` If JPEG decoding cost nothing, storage would limit 1024x768 next.`, as the table of the best has it."""
    best = {row.key for group in groups(report) for row in best_rows(report, group)}
    found: dict[str, list[str]] = {}
    for row in (row for row in rows if row.key in best):
        if "storage" in [then_of(report, row).get(name) for name, _ in main_speedups(row)]:
            noun = join_words([NOUNS.get(name, name) for name in families(row)], "or")
            found.setdefault(noun, []).append(row.config.resolution)
    return "".join(
        f" If {noun} cost nothing, storage would limit {joint_name(list(dict.fromkeys(names)), '', rows)} next."
        for noun, names in found.items()
    )


def _reserve(report: Report, rows: Sequence[ConfigurationRow], *, limits: bool) -> str:
    """`; alone it gave at least 415 MB/s, 14.9 times what training read`: of the row nearest to the ceiling.

    Of the rows in the table of the best, where there are any, so that the figures are found there. Where storage
    limits far below its ceiling, it is the time of a read that does.
    """
    best = {row.key for group in groups(report) for row in best_rows(report, group)}
    near = [
        (read / ceiling.read_bytes_per_s, read, ceiling)
        for row in [row for row in rows if row.key in best] or rows
        if (read := read_rate(row)) and (ceiling := best_ceiling(report, row))
    ]
    if not near:
        return ""
    share, read, ceiling = max(near, key=lambda each: each[0])
    most = f"{'at least ' if ceiling.at_least else ''}{format_rate(ceiling.read_bytes_per_s)}"
    if share > _NEAR:
        return f"; training read {format_rate(read)}, and the storage alone gave {most}"
    by = ": the time that a read takes, not bandwidth" if limits else ""
    return f"; alone it gave {most}, {significant(1 / share, 2)} times the {format_rate(read)} that training read{by}"


# The answer of a report in a few sentences: what limits where, and whether storage does.

_MOST_CLAUSES = 3


def answers(report: Report) -> tuple[str, ...]:
    """A sentence for each device, and one on storage, which says in as many words that it is not the limit.

    What more ranks gain comes next; storage comes before what a CPU trained beside an accelerator.
    """
    found = [(group.cpu, words) for group in groups(report) if (words := _of_group(group, report))]
    storage = [storage_answer(report)] if any(firm(row) for row in report.summary.configurations) else []
    first = [words for cpu, words in found if not cpu]
    rest = [words for cpu, words in found if cpu]
    more = scaling(report)
    return (*first, *more, *storage, *rest) if first else (*rest, *more, *storage)


def _of_group(group: Group, report: Report) -> str:
    rows = [row for row in group.rows if firm(row)]
    if not measured(group.rows):
        return ""
    if not rows:
        return f"{_on(group, report)}, no configuration is conclusive."
    if group.cpu and {families(row) for row in rows} == {("compute",)}:
        return f"On this CPU, training itself is the limit, at {_rates(rows)} images/s: nothing follows for a GPU."
    nothing = ": nothing follows for a GPU" if group.cpu else _reach(report, group) + _busy(rows, report)
    return f"{_on(group, report)}, {'; '.join(_clauses(rows, group))}{_where(rows, group)}{nothing}."


def _on(group: Group, report: Report) -> str:
    """The device; and the state of the files, where it was asked for several."""
    states = {each.cache for each in groups(report) if each.compute == group.compute}
    files = "files as found" if group.cache == "as-found" else f"{group.cache} files"
    return f"On {group.short}{f' with {files}' if len(states) > 1 else ''}"


def _where(rows: Sequence[ConfigurationRow], group: Group) -> str:
    """With which numbers of workers the clauses hold; the map has single ones."""
    if not all(firm(row) for row in measured(group.rows)):
        return " wherever the verdict is conclusive"
    if any(where for name in _names(rows) for _, where in _signature(name, rows)):
        return ""
    counts = {row.config.loader.workers for row in rows}
    if len(counts) == 1:
        return f" with {_answer_workers(list(counts))}"
    return f" with every number of workers {'tried' if len(measured(group.rows)) == len(group.rows) else 'measured'}"


def _clauses(rows: Sequence[ConfigurationRow], group: Group) -> list[str]:
    """`256x256 to 1024x768 are limited by JPEG decoding`; data sets that are alike share a clause."""
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in _names(rows):
        alike.setdefault(_signature(name, rows), []).append(name)
    clauses = []
    for signature, names in list(alike.items())[:_MOST_CLAUSES]:
        verb = "is" if len(names) == 1 else "are"
        causes = join_words([f"by {noun}{where}" for noun, where in signature])
        clauses.append(f"{joint_name(names, '', group.rows)} {verb} limited {causes}")
    return [*clauses, *(["the map shows the rest"] if len(alike) > _MOST_CLAUSES else [])]


def _names(rows: Sequence[ConfigurationRow]) -> list[str]:
    return list(dict.fromkeys(row.config.resolution for row in rows))


def _signature(name: str, rows: Sequence[ConfigurationRow]) -> tuple[tuple[str, str], ...]:
    """(noun, with which numbers of workers) of one data set; of one noun, without the numbers."""
    found: dict[str, list[int]] = {}
    for row in (row for row in rows if row.config.resolution == name):
        noun = join_words([NOUNS.get(name, name) for name in families(row)], "or")
        found.setdefault(noun, []).append(row.config.loader.workers)
    if len(found) == 1:
        return tuple((noun, "") for noun in found)
    return tuple(
        (noun, f" with {_answer_workers(sorted(set(counts)))}{_prefetch(counts, found, noun)}")
        for noun, counts in found.items()
    )


def _prefetch(counts: Sequence[int], found: Mapping[str, Sequence[int]], noun: str) -> str:
    """Where something else limits with as many workers, it is the prefetch factor that decides."""
    others = {count for other, some in found.items() if other != noun for count in some}
    return " and some prefetch factors" if others & set(counts) else ""


def _answer_workers(counts: Sequence[int]) -> str:
    words = join_words([str(count) if count else "the serial loader" for count in counts])
    return words if counts == [0] else f"{words} worker{'s' if counts[-1] > 1 else ''}"


def _reach(report: Report, group: Group) -> str:
    """How much of the accelerator each data set uses with the workers that are enough for it."""
    best = [row.verdict for row in best_rows(report, group) if row.verdict]
    known = sorted(share for verdict in best if (share := verdict.accelerator_utilization) is not None)
    if not known:
        return ""
    ends = dict.fromkeys(percent(share).removesuffix(" %") for share in (known[0], known[-1]))
    return f": at best, training reaches {' to '.join(ends)} % of its rate"


def _busy(rows: Sequence[ConfigurationRow], report: Report) -> str:
    """From how many workers on the cores are full: the least number of each data set."""
    full: dict[str, list[int]] = {}
    for row in rows:
        if row.bound and row.bound.cause == "cpu":
            full.setdefault(row.config.resolution, []).append(row.config.loader.workers)
    if not full:
        return ""
    counts = sorted({min(each) for each in full.values()})
    ends = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    cores = report.summary.environment.cores_available
    which = "both" if cores == 2 else f"all {cores:g}"
    return f", with {which} cores busy from {ends} worker{'s' if counts[-1] > 1 else ''} on"


def _rates(rows: Sequence[ConfigurationRow]) -> str:
    values = sorted(row.images_per_s.value for row in rows if row.images_per_s)
    return " to ".join(dict.fromkeys(rate(value) for value in (values[0], values[-1])))


# What accelerators would ask of storage and cores, beside what this machine has, as a table.


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


#

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

"""What every page calls a configuration, the group that it stands in, and what limits it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from loaderprobe.analyze.answer import by_device, main_speedups, on_cpu
from loaderprobe.records import by_key
from loaderprobe.records.config import OPTIONS, REQUIRED, CacheState, RunConfig
from loaderprobe.records.measurement import NO_STEP
from loaderprobe.records.options import label_of
from loaderprobe.records.report import ConfigurationRow, Report, Status
from loaderprobe.records.resources import AMONG_RANKS, BOTTLENECKS, JUDGED, RESOURCE, RESOURCES, ResourceName
from loaderprobe.records.verdict import FilesWere, SideAndCause
from loaderprobe.render.document import Cell, Table
from loaderprobe.render.format import MISSING, counted, interval, named, times, workers_words
from loaderprobe.units import join_words

FILES: dict[CacheState, str] = {"cold": "cold files", "warm": "warm files", "as-found": "files as found"}
STATED = ("resolution", "layout", "workers", "compute", "cache")
"""Options that a heading or a label's beginning states."""


def option_words(config: RunConfig, name: str) -> str:
    """`batch 64`, `fp16 precision`, `pageable memory`, `rounds 5`."""
    value = OPTIONS[name].of(config)
    if name in ("ranks", "nodes"):
        return counted(value, name.removesuffix("s"))
    if name == "batch_size" and config.ranks > 1:
        return f"batch {value} a rank"
    form = label_of(name)
    return form.format(value) if isinstance(form, str) else form[bool(value)]


def loading(row: ConfigurationRow) -> str:
    """`serial`, `1 worker`, `4 workers`."""
    return workers_words(row.config.loader.workers)


def several(name: str, rows: Iterable[ConfigurationRow]) -> bool:
    """True where the rows differ in this option."""
    return len({OPTIONS[name].of(row.config) for row in rows}) > 1


def differing(row: ConfigurationRow, among: Sequence[ConfigurationRow]) -> list[str]:
    """The options, beyond the stated ones, of which the rows do not all have this row's value."""
    compared = {
        "prefetch_factor": [peer for peer in among if peer.config.loader.workers and row.config.loader.workers],
        "data": [peer for peer in among if peer.config.resolution == row.config.resolution],
    }
    return [name for name in OPTIONS if name not in STATED and several(name, compared.get(name, among))]


def unusual(row: ConfigurationRow) -> list[str]:
    """The options, beyond the stated ones, that do not have their default."""
    return [name for name, option in OPTIONS.items() if not (name in (*STATED, *REQUIRED) or option.usual(row.config))]


def label(row: ConfigurationRow, among: Sequence[ConfigurationRow], *, workers: bool = True) -> str:
    """`500x375, 2 workers, batch 64`: what sets a row apart within its group, whose title has what all share."""
    options = (option_words(row.config, name) for name in differing(row, among))
    return ", ".join((row.config.resolution, *([loading(row)] if workers else []), *options))


def full_label(row: ConfigurationRow, among: Sequence[ConfigurationRow], *, without: Collection[str] = ()) -> str:
    """The same for a row out of its group: with device and cache state, and each option that is not as usual."""
    named = {name for name in ("compute", "cache") if several(name, among)}
    named |= {*differing(row, among), *unusual(row), *([] if OPTIONS["cache"].usual(row.config) else ["cache"])}
    said = {"resolution": row.config.resolution, "workers": loading(row)}
    said |= {name: option_words(row.config, name) for name in OPTIONS if name in named}
    return ", ".join(words for name, words in said.items() if name not in without)


def short_label(row: ConfigurationRow, among: Sequence[ConfigurationRow], *, workers: bool = True) -> str:
    """`500x375, 2 workers`, with the options that set the row apart from the others on the ladder."""
    named = [name for name in ("loader", "model", "compute", "ranks", "cache") if several(name, among)]
    options = (option_words(row.config, name).removesuffix(" files") for name in named)
    return ", ".join((row.config.resolution, *([loading(row)] if workers else []), *options))


def bound_words(bound: SideAndCause | Status | None) -> str:
    """`compute`, `input: decoding, cores full`, `storage or compute`, `inconclusive`, `failed`, `not measured`.

    Of a verdict, or of the status of a configuration that has none.
    """
    if not isinstance(bound, SideAndCause):
        return "not measured" if bound == "skipped" else bound or MISSING
    if bound.cause == "either":
        words = join_words(bound.candidates, "or")
        return f"input: {words}" if bound.side == "input" else words
    if bound.side in ("balanced", "inconclusive") or bound.cause == bound.side:
        return bound.side
    cell = RESOURCE[bound.cause].cell if bound.cause in RESOURCE else ""
    return f"{bound.side}: {cell or bound.cause}"


def tone(bound: SideAndCause | Status | None) -> str:
    """One word for the colour of a verdict: its cause, or a status without a verdict."""
    return bound.cause if isinstance(bound, SideAndCause) else bound or "inconclusive"


def trains(row: ConfigurationRow) -> bool:
    """False where the loader was judged alone."""
    return row.config.compute.kind != NO_STEP


def resources_of(row: ConfigurationRow) -> tuple[ResourceName, ...]:
    """Whose speed-ups a row can have: with several ranks, also what they lose to each other."""
    if row.config.ranks > 1:
        return (*JUDGED, *(name for name in AMONG_RANKS if name not in JUDGED))
    return tuple(name for name in JUDGED if name not in AMONG_RANKS)


def speed(row: ConfigurationRow, gap: str = " ") -> str:
    """`205 ±6`, and ` warm` where cold files were asked for and the reads were not cold."""
    state = state_word(row.config.cache, row.verdict.files_were) if row.verdict else ""
    return interval(row.images_per_s, gap) + state


def state_word(configured: CacheState, files_were: FilesWere | None) -> str:
    """` warm` or ` partly warm` where cold files were asked for and the reads were not cold; else empty.

    No rate of such a run is shown without it.
    """
    return f" {files_were}" if configured != "warm" and files_were in ("warm", "partly warm") else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Configurations that share a model, a device, a cache state and a number of ranks: their figures compare."""

    rows: tuple[ConfigurationRow, ...]
    device: str
    """In words, as the measurements name it; an emulated one always says so."""
    model: str = ""
    """What is trained; empty where the report has one model only."""

    @property
    def emulated(self) -> bool:
        return any(row.emulated for row in self.rows)

    @property
    def cpu(self) -> bool:
        """True where a CPU trains."""
        return on_cpu(self.rows)

    @property
    def short(self) -> str:
        """The device within a sentence: `an emulated mlperf-h100`, `this CPU (mlp)`; `4 ranks, each with this CPU`."""
        config = self.rows[0].config
        ranks, nodes = (option_words(config, name) for name in ("ranks", "nodes"))
        over = f" on {nodes}" if config.nodes > 1 else ""
        emulated = f"an emulated {named(config.compute.argument)}" if self.emulated else ""
        device = emulated or ("this CPU" if self.cpu else self.device)
        device += f" ({self.model})" if self.model else ""
        return device if config.ranks == 1 else f"{ranks}{over}, each with {device}"

    @property
    def alone_images_per_s(self) -> list[float]:
        """Images/s of compute alone, of the rows in which it is known; they differ by what else the machine did."""
        rates = (row.verdict.rates_images_per_s.compute for row in self.rows if row.verdict)
        return [value for value in rates if value is not None]

    @property
    def title(self) -> str:
        """Device and cache state, as a heading, and the options that are not as usual in any row."""
        first = self.rows[0]
        common = {*unusual(first), *(["model"] if self.model else [])}.difference(differing(first, self.rows))
        options = (option_words(first.config, name) for name in OPTIONS if name in common)
        return ", ".join((self.device, FILES[first.config.cache], *options))

    @property
    def lines(self) -> dict[str, list[ConfigurationRow]]:
        """The rows by data set, and by what else sets lines apart, the fewest workers first."""
        lines = by_key(self.rows, lambda row: label(row, self.rows, workers=False))
        return {name: sorted(rows, key=lambda row: row.config.loader.workers) for name, rows in lines.items()}


def groups(report: Report) -> tuple[RowGroup, ...]:
    """The rows as they stand together."""
    row_groups, models = [], several("model", report.configurations)
    for rows in by_device(report.configurations):
        compute, emulated = rows[0].config.compute, any(row.emulated for row in rows)
        devices = (row.detail.compute_device for row in rows if row.detail)
        device = compute.name if emulated else next(filter(None, devices), compute.name)
        row_groups.append(RowGroup(rows=rows, device=device, model=compute.model if models else ""))
    return tuple(row_groups)


LETTERS = {
    resource.name: (resource.letter, resource.legend or resource.noun)
    for resource in sorted(RESOURCES, key=lambda resource: resource.name != "compute")
    if resource.is_cause
} | {"balanced": ("B", "balanced"), "inconclusive": ("?", "inconclusive"), "failed": ("x", "failed")}
"""By tone: the letter of a cell, and what it stands for."""


def limits_of(bound: SideAndCause | Status | None) -> tuple[str, ...]:
    """The tones of what limits; both of two that cannot be separated, none of what was skipped."""
    if isinstance(bound, SideAndCause) and bound.cause == "either":
        return bound.candidates
    return () if bound == "skipped" else (tone(bound),)


def letters_of(bound: SideAndCause | Status | None) -> str:
    """`F`, or `S/C`; empty for what was skipped."""
    return "/".join(LETTERS[name][0] for name in limits_of(bound))


def next_limit(row: ConfigurationRow, name: str) -> str:
    """What limits training once this resource is free, in short; empty where that is not known."""
    limit = row.detail.then.get(name) if row.detail else None
    return BOTTLENECKS[limit].short or limit if limit else ""


def gain_words(row: ConfigurationRow) -> str:
    """`decoding 2.55x → compute`: the speed-ups that the verdict names, and what limits next."""
    none = "" if row.bound is None else "inconclusive" if row.bound.cause == "inconclusive" else MISSING
    gains = (
        f"{RESOURCE[name].short or name} {times(speedup)}{' est.' * (speedup.how == 'estimated')}"
        f"{f' → {limit}' if (limit := next_limit(row, name)) else ''}"
        for name, speedup in main_speedups(row)
    )
    return ", ".join(gains) or none


_MOST_RATES = 6
"""Columns of a map whose cells have rates; of more, letters alone."""


def limit_maps(row_groups: Sequence[RowGroup]) -> Iterator[Table]:
    """Of each group a line a data set, and what else sets lines apart; a column a number of workers.

    The key of all letters stands over the first: `C compute; F preprocessing, cores full`.
    """
    rows = [row for group in row_groups for row in group.rows]
    limits = {name for row in rows for name in limits_of(row.bound or row.status)}
    key = [f"{letter} {words}" for name, (letter, words) in LETTERS.items() if name in limits]
    key += ["/ either"] if any(row.bound and row.bound.cause == "either" for row in rows) else []
    key += [f"{MISSING} not measured"] if any(row.status == "skipped" for row in rows) else []
    for number, group in enumerate(row_groups):
        counts = sorted({row.config.loader.workers for row in group.rows})
        brief = len(counts) > _MOST_RATES
        lines = {name: {row.config.loader.workers: row for row in reversed(rows)} for name, rows in group.lines.items()}
        caption = (*([] if number else ["; ".join(key)]), *([group.title] if len(row_groups) > 1 else []))
        yield Table(
            head=("workers", *("serial" if count == 0 else str(count) for count in counts)),
            lines=tuple(
                (name, *(_cell(cells[count], brief=brief) if count in cells else "" for count in counts))
                for name, cells in lines.items()
            ),
            map=True,
            caption=". ".join(caption),
            further=True,
        )


def _cell(row: ConfigurationRow, *, brief: bool) -> Cell | str:
    """`690±181 F`, or `F`; without a letter for what was skipped."""
    bound = row.bound or row.status
    text = letters_of(bound) if brief else f"{speed(row, gap='')} {letters_of(bound)}".strip()
    limits = " or ".join(LETTERS[name][1] for name in limits_of(bound))
    return Cell(text=text, tone=tone(bound), words=limits) if limits else text

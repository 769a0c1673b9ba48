"""A diagnosis as a document, and its rates as the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from loaderprobe.records.diagnosis import Findings
from loaderprobe.records.ranks import RanksView
from loaderprobe.records.resources import ABLATIONS, AMONG_RANKS, ONLY_WAITED, RESOURCE, ResourceName
from loaderprobe.records.thresholds import WORTH
from loaderprobe.records.verdict import Advice, Speedup
from loaderprobe.render.document import Cell, Command, Document, Item, Line, Paragraph, Part, Section, Table, Tags
from loaderprobe.render.first import LADDER, Step, ladder, limits_training
from loaderprobe.render.format import (
    MISSING,
    counted,
    factor,
    figure,
    first_upper,
    interval,
    noun,
    percent,
    workers_words,
)
from loaderprobe.render.panels import rank_chart, rank_table
from loaderprobe.render.wording import state_word, verdict_tone
from loaderprobe.render.words import action_words, explanation, forecast_words, remark_words
from loaderprobe.units import format_duration, significant

# Shown only where the speed-up is worth a line.
_AMONG_RANKS = {name: RESOURCE[name].if_free or f"if {RESOURCE[name].noun} were free" for name in AMONG_RANKS}
"""What only ranks lose to each other."""
_COSTS_ALL: tuple[str, ...] = ("same_samples", "same_batches")
_LONGEST_BAR = 5.0
"""Times the measured rate: what is faster has a bar of this length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One rate, and the speed-up of training at that rate of the loader."""

    label: str
    rate: float | None
    shown: str
    speedup: str = ""
    measured: bool = False
    """True for the rate that all others are compared with."""


def diagnosis_document(found: Findings, ranks: RanksView | None = None) -> Document:
    """The verdict and the ladder, what to change, how sure; then the rates, ranks, functions, and what to know."""
    warnings = tuple(Paragraph(text=warning, strong=True, tone="warning") for warning in warnings_on(found))
    return Document(
        title=setting(found),
        headline=limits_training(found, what="training" if found.with_step else "this loader"),
        subline=_subline(found),
        tone=verdict_tone(found),
        unsure=found.side == "inconclusive",
        sections=(
            *([Section(title="Read first", panel="main", parts=warnings)] if warnings else []),
            Section(
                title=LADDER.format(unit=first_upper(f"{found.sample}/s"), files=""),
                panel="main",
                parts=(ladder([_step(found)], unit=f"{found.sample}/s"),),
            ),
            *_change_first(found),
            Section(
                title="How sure",
                panel="side",
                parts=(
                    _how_sure(found),
                    Paragraph(text=explanation(found, sample=found.sample.removesuffix("s"))),
                ),
            ),
            *([Section(title="Not known", panel="side", parts=(unknown,))] if (unknown := _unknown(found)) else []),
            Section(
                title="Where the workers are, by function",
                parts=tuple(_functions(found)),
            ),
            Section(title="Rates", name="rates", parts=(_table(found), Paragraph(text=footer(found), tone="quiet"))),
            *([_ranks(ranks, found.sample)] if ranks is not None else []),
            Section(title="More advice", parts=tuple(_advice(found, found.advice[1:]))),
            Section(title="Notes", parts=tuple(Item(text=remark) for remark in remarks_on(found))),
        ),
    )


def _subline(found: Findings) -> str:
    """How fast it is, and what that is of compute alone."""
    alone = found.ceilings.compute
    now = f"{interval(found.images_per_s)} {found.sample}/s"
    if not found.with_step or not alone:
        return f"The loader alone delivers {now}." if not found.with_step else f"Training runs at {now}."
    share = percent(min(1.0, found.images_per_s.value / alone))
    return f"Training runs at {now}, {share} of compute alone ({figure(alone)})."


def _step(found: Findings) -> Step:
    return Step(
        label="training" if found.with_step else "the loader",
        bound=found,
        now=found.images_per_s,
        rounds=found.rounds,
        speedups=found.speedups,
        alone=found.ceilings.compute if found.with_step else None,
        advice=next((advice for advice in found.advice[:1] if advice.is_worth_making), None),
    )


def _change_first(found: Findings) -> list[Section]:
    parts = tuple(_advice(found, found.advice[:1]))
    return [Section(title="Change first", panel="side", parts=parts)] if parts else []


def _how_sure(found: Findings) -> Paragraph:
    """The rounds, and how wide the rate's interval is."""
    band = (found.images_per_s.high - found.images_per_s.low) / 2 / found.images_per_s.value
    noise = f"rate ±{significant(100 * band, 2)} %" if found.rounds > 1 else "noise not known"
    clear = "one cause leads" if found.firm else "causes alike" if found.cause == "either" else "inconclusive"
    return Paragraph(text=f"{clear}, {counted(found.rounds, 'round')}, {noise}", strong=True)


def _unknown(found: Findings) -> Tags | None:
    """The parts of the pipeline whose speed-up is not known."""
    names = [name.removeprefix("speedups.") for name in found.unavailable if name.startswith("speedups.")]
    known = [name for name in names if name in RESOURCE and name not in (*ONLY_WAITED, *AMONG_RANKS)]
    said = [f"gain if {noun(name)} were free" for name in known if found.with_step or name != "compute"]
    said += ["noise between rounds"] if found.rounds < 2 else []
    return Tags(texts=tuple(said)) if said else None


def _ranks(view: RanksView, sample: str) -> Section:
    drawn = rank_chart(view, sample=sample) if view.uneven else ()
    return Section(title="Ranks", name="ranks", parts=(*drawn, *rank_table(view, sample)))


def rate_columns(found: Findings) -> dict[str, list[Any]]:
    """One row a rate, the measured one first; None where it is not known."""
    listed = rates(found)
    return {
        "what": [each.label for each in listed],
        f"{found.sample}_per_s": [each.rate for each in listed],
        "speed_up": [each.speedup for each in listed],
    }


def _table(found: Findings) -> Table:
    listed = rates(found)
    known = [each.rate for each in listed if each.rate is not None]
    full = min(max(known, default=0.0), _LONGEST_BAR * found.images_per_s.value)
    return Table(
        head=("", f"{found.sample}/s", f"speed-up of {what_runs(found)}"),
        lines=tuple(map(_line, listed)),
        right=frozenset({1}),
        bars=tuple(min(1.0, (each.rate or 0.0) / full) if full else 0.0 for each in listed),
    )


def _line(rate: Rate) -> Line:
    if rate.measured:
        return Cell(text=rate.label, tone="strong"), Cell(text=rate.shown, tone="strong"), rate.speedup
    return rate.label, rate.shown, rate.speedup


def _functions(found: Findings) -> Iterator[Part]:
    """The functions of the pipeline that take most time, and how that is known."""
    if not found.functions:
        return
    yield Table(
        head=("function", "own", "total"),
        lines=tuple(
            (str(function.function), percent(function.own), percent(function.total)) for function in found.functions
        ),
        right=frozenset({1, 2}),
    )
    text = (
        f"Of {found.looks} looks at the stacks of workers while they made batches. own: in the function itself, with "
        "the compiled code that it calls; total: with the functions that it calls, waits included. "
        f"Looking took {format_duration(found.looks_cpu_s)} of CPU time."
    )
    yield Paragraph(text=text, tone="quiet")


def _advice(found: Findings, some: Sequence[Advice]) -> Iterator[Part]:
    for each in some:
        forecast = forecast_words(each, sample=found.sample) if each.is_worth_making else ""
        yield Item(subject=action_words(each.action, sample=found.sample.removesuffix("s")), text=forecast)
        if each.command:
            yield Command(text=each.command)


def rates(found: Findings) -> list[Rate]:
    """The rates, from the measured one to the limit of the CPU cores."""
    now = interval(found.images_per_s) if found.rounds > 1 else figure(found.images_per_s.value)
    ceilings = found.ceilings
    first = Rate(
        label="training" if found.with_step else "loader", rate=found.images_per_s.value, shown=now, measured=True
    )
    listed = [first]
    if found.with_step:
        listed.append(Rate(label="compute alone", rate=ceilings.compute, shown=figure(ceilings.compute)))
        # Which is training with compute free.
        speedup = _speedup(found, "compute")
        listed.append(Rate(label="loader alone", rate=ceilings.loader, shown=figure(ceilings.loader), speedup=speedup))
    worth = [name for name in ONLY_WAITED if _worth(found.speedups.of(name))]
    for name in (*ABLATIONS, *worth):
        rate = ceilings.without(name)
        label = f"loader if {noun(name)} were free"
        listed.append(Rate(label=label, rate=rate, shown=figure(rate), speedup=_speedup(found, name)))
    for among, label in _AMONG_RANKS.items():
        if _worth(found.speedups.of(among)) and _is_shown(found, among):
            listed.append(Rate(label=label, rate=None, shown=MISSING, speedup=_speedup(found, among)))
    if ceilings.cpu_limit is not None:
        listed.append(
            Rate(label="loader if it had all cores", rate=ceilings.cpu_limit, shown=figure(ceilings.cpu_limit))
        )
    return listed


def _is_shown(found: Findings, name: ResourceName) -> bool:
    """Of a slow rank and of slow batches only what the verdict goes by: ranks that differ show both."""
    if name == "straggler":
        return "straggler_speedup" in found.reason.facts
    return name != "imbalance" or found.cause == "imbalance"


def _worth(speedup: Speedup | None) -> bool:
    return speedup is not None and speedup.value > WORTH


def what_runs(found: Findings) -> str:
    """What speed-ups are of."""
    return "training" if found.with_step else "the loader"


def _speedup(found: Findings, name: ResourceName) -> str:
    speedup = found.speedups.of(name)
    if speedup is None:
        return MISSING
    known = found.rounds > 1 and speedup.high - speedup.low >= 0.005 * speedup.value
    return factor(speedup) + (f" ({significant(speedup.low)} to {significant(speedup.high)})" if known else "")


def setting(found: Findings) -> str:
    """Workers, batch size and state of the files."""
    loading = workers_words(found.workers)
    if found.ranks > 1:
        loading = f"{found.ranks} ranks, each {loading}"
    files = {"cold": "cold files", "warm": "warm files", "as-found": "files as found"}[found.cache]
    if state_word(found.cache, found.files_were):
        files = f"{found.files_were} files, although cold ones were asked for"
    if any(note.code == "reads_no_files" for note in found.notes):
        files = "no files read"
    return f"{loading}, {found.batch_size} a batch, {files}"


def footer(found: Findings) -> str:
    """How long it was measured, and what that took."""
    parts = [f"Measured in {format_duration(found.wall_s)}, {counted(found.rounds, 'round')}."]
    if found.instrument_cpu_fraction is not None:
        parts.append(f"Recording took {percent(found.instrument_cpu_fraction)} of the loader's CPU time.")
    parts.append("Speed-ups are compared round by round, so they may differ from the ratio of two rates.")
    if any("est." in line.speedup for line in rates(found)):
        parts.append("est.: estimated from the workers' times, not measured.")
    return " ".join(parts)


def warnings_on(found: Findings) -> list[str]:
    """What spoils the training itself, whatever its speed: to be read before the verdict. In sentences."""
    words = [remark_words(note) for note in found.notes if note.code in _COSTS_ALL]
    return [f"Warning: {word}." for word in words]


def remarks_on(found: Findings) -> list[str]:
    """What else is to know, and why speed-ups are not known."""
    return [
        *(remark_words(note) for note in found.notes if note.code not in _COSTS_ALL),
        *(
            f"no speed-up is known for {noun(name.removeprefix('speedups.'))}: {remark_words(why)}"
            for name, why in found.unavailable.items()
            if name.startswith("speedups.") and not (name == "speedups.compute" and not found.with_step)
            if name.removeprefix("speedups.") not in (*ONLY_WAITED, *_AMONG_RANKS)
        ),
    ]

"""What is said of a training script: while it is measured, where it was not, and of one that was only watched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from loaderprobe.records import values
from loaderprobe.records.attached import Attached, WatchedInterval, WatchReport
from loaderprobe.render.charts import Bar, Chart, ChartRow, first_and_last
from loaderprobe.render.document import Column, Document, Paragraph, Section, table, tags
from loaderprobe.render.format import MISSING, Facts, counted, percent, span, workers_words
from loaderprobe.render.groups import letters_of, tone
from loaderprobe.render.messages import MESSAGES
from loaderprobe.render.rows import as_columns
from loaderprobe.render.words import explanation, heading, message
from loaderprobe.units import format_duration, format_rate, join_words, significant

_SHOWN, _BRIEF = 30, 10
"""Intervals of the page, and of a terminal: of more, the first and the last."""
_UNITS = {True: "images/s", False: "samples/s"}


def watch_document(report: WatchReport) -> Document:
    """The verdict, the rate of training over time, then what the workers did."""
    steps = sum(interval.steps for interval in report.intervals)
    rates = [interval.images_per_s for interval in report.intervals if interval.images_per_s is not None]
    rate = f"{span(rates)} {_UNITS[report.images]}, " if rates else ""
    rank = f"rank 0 of {report.ranks}, " if report.ranks > 1 else ""
    size = f", batches of {report.batch_size}" if report.batch_size else ""
    few = f"too few training steps{', or other ranks limit' if report.ranks > 1 else ''}"
    none = "steps run on a GPU" if report.on_gpu else few
    return Document(
        title=f"Watched training: {rank}{report.loader}, {workers_words(report.workers)}{size}",
        headline=heading(report.bound) if report.bound else f"No verdict: {none}",
        subline=f"{rate}{counted(steps, 'step')}; estimated, as nothing was changed",
        tone=tone(report.bound),
        unsure=report.bound is None or not report.bound.firm,
        sections=tuple(_sections(report)),
    )


def _sections(report: WatchReport) -> Iterator[Section]:
    unit = _UNITS[report.images]
    rows, brief = (tuple(map(_row, first_and_last(report.intervals, limit))) for limit in (_SHOWN, _BRIEF))
    course = (Chart(rows=rows, unit=unit, ends=f"until,{unit}", brief=brief),) if rows else ()
    yield Section(title=f"{unit.capitalize()} over time", parts=course, panel="main")
    yield Section(title="Why", parts=(Paragraph(text=explanation(report.bound)),) if report.bound else (), panel="side")
    waits = ("what limits: on a GPU, steps end later than the loop sees",) if report.on_gpu else ()
    sure = (
        "estimated from waits and the workers' clocks; without --watch it comes from an experiment",
        f"watching took {report.overhead_s:.2g} s of the training thread's CPU time",
    )
    ranks = ("what limits other ranks: where rank 0 waits for them, that is in its steps",) if report.ranks > 1 else ()
    others = (f"waits for {join_words(report.others)} count as compute",) if report.others else ()
    yield Section(title="How sure", parts=tags((*waits, *ranks, *others, *sure)), panel="side")
    yield Section(title="Workers", parts=table(first_and_last(report.intervals, _SHOWN), _WORKERS))


def _row(interval: WatchedInterval) -> ChartRow:
    bound, rate = interval.bound, interval.images_per_s
    return ChartRow(
        label=f"until {format_duration(interval.begin_s + interval.seconds)}",
        value=MISSING if rate is None else significant(rate),
        note=f"waits {percent(interval.input_wait_fraction)}: {bound.cause if bound else MISSING}",
        bars=() if rate is None else (Bar(end=rate, tone=tone(bound), letter=letters_of(bound)),),
    )


_WORKERS = (
    Column("until", lambda interval: format_duration(interval.begin_s + interval.seconds)),
    Column("workers compute", lambda interval: percent(interval.worker_cpu_fraction)),
    Column("workers wait", lambda interval: percent(interval.worker_blocked_fraction)),
    Column("read", lambda interval: format_rate(read) if (read := interval.read_bytes_per_s) is not None else MISSING),
)


def watch_columns(report: WatchReport) -> dict[str, list[Any]]:
    """One row an interval."""
    rows = [values(interval) for interval in report.intervals]
    for row in rows:
        bound = row.pop("bound")
        row |= {"side": bound and bound.side, "cause": bound and bound.cause}
    return as_columns(rows)


def said(code: str, facts: Facts) -> str:
    """What is said to its user; of what was watched, and of a script without a verdict, from their records."""
    if "interval" in facts:
        interval = facts["interval"]
        rest = f", rank 0 of {facts['ranks']}" if facts["ranks"] > 1 else ""
        rest += f": {heading(interval.bound)} (estimated)" if interval.bound else ""
        at_s, unit = interval.begin_s + interval.seconds, _UNITS[facts["images"]]
        return message(code, {**values(interval), "unit": unit, "at_s": at_s, "rest": rest})
    return not_measured(facts["attached"]) if "attached" in facts else message(code, facts)


def not_measured(attached: Attached) -> str:
    """Why there is no verdict, and what to do."""
    if attached.why_not is None:
        return message("script.no_verdict", {})
    facts, code = values(attached), f"why_not.{attached.why_not}"
    if attached.why_not == "ranks_apart" and attached.apart:
        facts, code = values(attached.apart), f"apart.{attached.apart.code}"
    step = "why_not.endangered" if attached.why_not == "ended_early" and attached.endangered else code
    hint = message(f"try.{step}", facts) if f"try.{step}" in MESSAGES else facts["hint"]
    return message("script.no_verdict", {"reason": message(code, facts), "hint": hint})


def without_verdict(processes: Sequence[Attached], exit_code: int = 0, *, imported_torch: bool = False) -> list[str]:
    """What to say after a command that was not measured: the reasons, and the loaders that were seen."""
    if not processes:
        code = "exit_code" if exit_code else "no_training" if imported_torch else "no_python"
        return [message(f"script.{code}", {"exit_code": exit_code})]
    # Of ranks, rank 0 speaks, unless it ran on another machine.
    leading = [process for process in processes if process.why_not != "follows"] or processes[:1]
    lines = [line for process in leading for line in (not_measured(process), *_loader_lines(process))]
    if {"no_backward", "no_loader"} <= {process.why_not for process in leading}:
        lines.append(message("script.two_processes", {}))
    return lines


def _loader_lines(attached: Attached) -> Iterator[str]:
    """An indented line for each loader, and what can be said of a training without one."""
    for loader in attached.loaders:
        yield f"  {message('seen.loader', {**values(loader), 'loader': loader})}"
    if outside := attached.outside:
        facts = {**values(outside), "most": 1 / (1 - outside.share) if outside.share < 0.99 else None}
        texts = [message(f"seen.{code}", facts) for code in ("calls", "place", "thread")]
        yield from (f"  {text}" for text in texts if text)

"""A diagnosis for people: in a terminal, and in a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from loaderprobe.records.diagnosis import Findings
from loaderprobe.records.resources import ABLATIONS, AMONG_RANKS, ONLY_WAITED, RESOURCE
from loaderprobe.records.verdict import WORTH, Advice, Speedup
from loaderprobe.render.forecast_words import forecast_words, worth_making
from loaderprobe.render.page import Page
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.terminal import STYLES
from loaderprobe.render.verdict_words import NOUN, explanation, heading
from loaderprobe.render.wording import MISSING, counted, factor, figure, interval, state_word, visible
from loaderprobe.units import format_duration, significant

# Shown only where the speed-up is worth a line.
_AMONG_RANKS = {name: RESOURCE[name].if_free or f"if {RESOURCE[name].noun} were free" for name in AMONG_RANKS}
"""What only ranks lose to each other."""
_COSTS_ALL: tuple[str, ...] = ("same_samples", "same_batches")
# Colours that can be read on white and on black.
_COLORS = {"compute": "#2a9d5c", "balanced": "#3a8fb7", "inconclusive": "#8a8a8a"}
_INPUT_COLOR = "#d9731a"
_FAINT = "opacity:.65"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One rate, and the speed-up of training at that rate of the loader."""

    label: str
    rate: float | None
    shown: str
    speedup: str = ""
    measured: bool = False
    """True for the rate that all others are compared with."""


def lines(found: Findings) -> list[Line]:
    """The rates, from the measured one to the limit of the CPU cores."""
    now = interval(found.images_per_s) if found.rounds > 1 else figure(found.images_per_s.value)
    ceilings = found.ceilings
    first = Line(
        label="training" if found.with_step else "loader", rate=found.images_per_s.value, shown=now, measured=True
    )
    listed = [first]
    if found.with_step:
        listed.append(Line(label="compute alone", rate=ceilings.compute, shown=figure(ceilings.compute)))
        # Which is training with compute free.
        speedup = _speedup(found, "compute")
        listed.append(Line(label="loader alone", rate=ceilings.loader, shown=figure(ceilings.loader), speedup=speedup))
    worth = [name for name in ONLY_WAITED if _worth(getattr(found.speedups, name))]
    for name in (*ABLATIONS, *worth):
        rate = getattr(ceilings, f"loader_without_{name}")
        label = f"loader if {NOUN[name]} were free"
        listed.append(Line(label=label, rate=rate, shown=figure(rate), speedup=_speedup(found, name)))
    for name, label in _AMONG_RANKS.items():
        if _worth(getattr(found.speedups, name)) and _is_shown(found, name):
            listed.append(Line(label=label, rate=None, shown=MISSING, speedup=_speedup(found, name)))
    if ceilings.cpu_limit is not None:
        listed.append(
            Line(label="loader if it had all cores", rate=ceilings.cpu_limit, shown=figure(ceilings.cpu_limit))
        )
    return listed


def _is_shown(found: Findings, name: str) -> bool:
    """Of a slow rank and of slow batches only what the verdict goes by: ranks that differ show both."""
    if name == "straggler":
        return "straggler_speedup" in found.reason.facts
    return name != "imbalance" or found.cause == "imbalance"


def _worth(speedup: Speedup | None) -> bool:
    return speedup is not None and speedup.value > WORTH


def terminal(found: Findings, *, width: int = 80, color: bool = False) -> str:
    """The diagnosis as text of at most `width` columns that ends with a newline."""
    page = Page(width=width, color=color)
    for warning in warnings_on(found):
        page.paragraph(warning, style="bold red")
        page.gap()
    page.paragraph(heading(found), style=_style(found))
    page.paragraph(explained(found))
    page.gap()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column(f"  {setting(found)}", overflow="fold")
    table.add_column(f"{found.sample}/s", justify="right", no_wrap=True)
    table.add_column(f"speed-up of {what_runs(found)}", overflow="fold")
    for line in lines(found):
        style = "bold" if line.measured else ""
        table.add_row(Text(f"  {line.label}", style=style), Text(line.shown, style=style), Text(line.speedup))
    page.add(table)
    if found.advice:
        page.heading("Advice")
    for advice in found.advice:
        page.item(advice.sentence, advice_forecast(found, advice))
        if advice.command:
            page.command(advice.command)
    remarks = remarks_on(found)
    if remarks:
        page.heading("Notes")
        page.add(_bulleted(remarks))
    page.gap()
    page.paragraph(footer(found), style="dim")
    return page.text()


def explained(found: Findings) -> str:
    """The sentence without its heading."""
    return explanation([found], sample=found.sample.removesuffix("s"))


def _bulleted(remarks: list[str]) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    for remark in remarks:
        grid.add_row("  -", Text(visible(remark), overflow="fold"))
    return grid


def notebook(found: Findings) -> str:
    """The diagnosis as a piece of HTML that needs nothing else, on light and on dark pages."""
    color = _COLORS.get(found.side, _INPUT_COLOR)
    head = f'<div style="font-weight:600;font-size:1.15em;color:{color}">{_safe(heading(found))}</div>'
    advice = "".join(_list_item(found, each) for each in found.advice)
    notes = "".join(f"<li>{_safe(remark)}</li>" for remark in remarks_on(found))
    warnings = "".join(f'<div style="margin-bottom:.8em"><b>{_safe(each)}</b></div>' for each in warnings_on(found))
    parts = (
        warnings,
        head,
        f'<div style="margin:.3em 0 .8em">{_safe(explained(found))}</div>',
        _bars(found, color),
        _section("Advice", advice),
        _section("Notes", notes, style=_FAINT),
        f'<div style="margin-top:.8em;font-size:.85em;{_FAINT}">{_safe(footer(found))}</div>',
    )
    return (
        f'<div style="border:1px solid rgba(128,128,128,.35);border-left:4px solid {color};border-radius:4px;'
        'padding:.8em 1.1em;max-width:46em;font:14px/1.45 system-ui,sans-serif;text-align:left">'
        f"{''.join(parts)}</div>"
    )


def _bars(found: Findings, color: str) -> str:
    """Every rate with a bar; one that would be many times the measured one fades out."""
    listed = lines(found)
    most = max((line.rate for line in listed if line.rate is not None), default=1.0)
    full = min(most, 5 * found.images_per_s.value)
    cell = "padding:.1em .8em .1em 0;border:0;white-space:nowrap;background:none;text-align:"
    body = "".join(
        f'<div style="display:table-row;{"font-weight:600" if line.measured else ""}">'
        f'<div style="display:table-cell;{cell}left;white-space:pre">{_safe(line.label)}</div>'
        f'<div style="display:table-cell;{cell}right">{_safe(line.shown)}</div>'
        f'<div style="display:table-cell;width:40%;vertical-align:middle">{_bar(line, full, color)}</div>'
        f'<div style="display:table-cell;{cell}left;padding-left:.8em">{_safe(line.speedup)}</div></div>'
        for line in listed
    )
    title = f"{setting(found)}; {found.sample}/s, and speed-up of {what_runs(found)}"
    return (
        f'<div style="font-size:.85em;{_FAINT}">{_safe(title)}</div><div style="display:table;width:100%">{body}</div>'
    )


def _bar(line: Line, full: float, color: str) -> str:
    if line.rate is None:
        return ""
    share = min(1.0, line.rate / full) if full else 0.0
    fill = color if line.measured else "rgba(128,128,128,.5)"
    if full and line.rate > 1.001 * full:
        fill = f"linear-gradient(90deg,{fill} 70%,transparent)"
    return f'<div style="height:.75em;border-radius:2px;width:{share:.1%};background:{fill}"></div>'


def _section(title: str, items: str, style: str = "") -> str:
    if not items:
        return ""
    listing = f'<ul style="margin:.1em 0 0;padding-left:1.3em">{items}</ul>'
    return f'<div style="margin-top:.8em;{style}"><b>{title}</b>{listing}</div>'


def _list_item(found: Findings, advice: Advice) -> str:
    rest = advice_forecast(found, advice)
    code = f' <code style="font-size:.95em">{_safe(advice.command)}</code>' if advice.command else ""
    return f"<li>{_safe(advice.sentence)}{': ' if rest else ''}{_safe(rest)}{code}</li>"


def advice_forecast(found: Findings, advice: Advice) -> str:
    """What the change is forecast to give; empty for one that gains nothing."""
    return forecast_words([advice], sample=found.sample) if worth_making(advice) else ""


def _style(found: Findings) -> str:
    style = STYLES.get(found.cause, "bold")
    return style if "bold" in style else f"bold {style}"


def what_runs(found: Findings) -> str:
    """What speed-ups are of."""
    return "training" if found.with_step else "the loader"


def _speedup(found: Findings, name: str) -> str:
    speedup: Speedup | None = getattr(found.speedups, name)
    if speedup is None:
        return MISSING
    known = found.rounds > 1 and speedup.high - speedup.low >= 0.005 * speedup.value
    return factor(speedup) + (f" ({significant(speedup.low)} to {significant(speedup.high)})" if known else "")


def setting(found: Findings) -> str:
    """Workers, batch size and state of the files."""
    loading = counted(found.workers, "worker") if found.workers else "serial"
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
        parts.append(f"Recording took {found.instrument_cpu_fraction:.2%} of the loader's CPU time.")
    parts.append("Speed-ups are compared round by round, so they may differ from the ratio of two rates.")
    if any("est." in line.speedup for line in lines(found)):
        parts.append("est.: estimated from the workers' times, not measured.")
    return " ".join(parts)


def warnings_on(found: Findings) -> list[str]:
    """What spoils the training itself, whatever its speed: to be read before the verdict. In sentences."""
    words = [remark_words(note) for note in found.notes if note.code in _COSTS_ALL]
    return [f"Warning: {each}." for each in words]


def remarks_on(found: Findings) -> list[str]:
    """What else is to know, and why speed-ups are not known."""
    return [
        *(remark_words(note) for note in found.notes if note.code not in _COSTS_ALL),
        *(
            f"no speed-up is known for {NOUN.get(name.removeprefix('speedups.'), name)}: {remark_words(why)}"
            for name, why in found.unavailable.items()
            if name.startswith("speedups.") and not (name == "speedups.compute" and not found.with_step)
            if name.removeprefix("speedups.") not in (*ONLY_WAITED, *_AMONG_RANKS)
        ),
    ]


def _safe(text: str) -> str:
    return html.escape(visible(text))

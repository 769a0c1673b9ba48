"""A diagnosis for people: in a terminal, and in a notebook."""

from __future__ import annotations

import html

from rich.table import Table
from rich.text import Text

from loaderprobe.records.diagnosis import Findings
from loaderprobe.records.verdict import Gain
from loaderprobe.render.page import Page
from loaderprobe.render.wording import MISSING
from loaderprobe.units import format_duration, significant

_GAINS = {
    "storage": ("storage", "loader_without_storage"),
    "preprocess": ("preprocessing", "loader_without_preprocess"),
    "transport": ("handing over", "loader_without_transport"),
}
_STYLE = (
    "border:1px solid #8884;border-left:4px solid #c60;border-radius:4px;padding:.6em .9em;max-width:46em;"
    "font:14px/1.45 system-ui,sans-serif"
)


def heading(found: Findings) -> str:
    """`input: storage`, `compute`, `either storage or preprocess`."""
    if found.cause == "either":
        return f"either {' or '.join(found.candidates)}"
    return found.cause if found.cause == found.side else f"{found.side}: {found.cause}"


def rows(found: Findings) -> list[tuple[str, str, str]]:
    """(what is taken away, rate of the loader then, gain of training)."""
    return [
        (name, _rate(getattr(found.ceilings, field)), _gain(getattr(found.gains, key)))
        for key, (name, field) in _GAINS.items()
    ]


def terminal(found: Findings, *, width: int = 80, color: bool = False) -> str:
    """The diagnosis as text of at most `width` columns."""
    page = Page(width=width, color=color)
    page.title(f"loaderprobe: {heading(found)}")
    page.paragraph(found.sentence)
    page.gap()
    page.paragraph(_rates(found))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("  without")
    table.add_column(f"the loader, {found.sample}/s", justify="right")
    table.add_column("training gains" if found.with_step else "gains", justify="right")
    for name, rate, gain in rows(found):
        table.add_row(Text(f"  {name}"), Text(rate), Text(gain))
    page.add(table)
    if found.advice:
        page.heading("Advice")
        for advice in found.advice:
            page.item(f"x{significant(advice.gain)}" if advice.gain > 1 else "no gain", _advised(found, advice.action))
            if advice.command:
                page.command(advice.command)
    if found.notes:
        page.heading("Notes")
        for note in found.notes:
            page.item("note", note)
    page.gap()
    page.paragraph(_footer(found), style="dim")
    return page.text()


def notebook(found: Findings) -> str:
    """The diagnosis as a piece of HTML that needs nothing else, on light and on dark pages."""
    body = "".join(
        f"<tr><td>without {html.escape(name)}</td><td align=right>{rate}</td><td align=right>{html.escape(gain)}</td></tr>"
        for name, rate, gain in rows(found)
    )
    advice = "".join(
        f"<li>{html.escape(_advised(found, each.action))}"
        + (f" <code>{html.escape(each.command)}</code>" if each.command else "")
        + (f": x{significant(each.gain)}" if each.gain > 1 else "")
        + "</li>"
        for each in found.advice
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in found.notes)
    return (
        f'<div style="{_STYLE}"><strong>{html.escape(heading(found))}</strong><p style="margin:.3em 0">'
        f"{html.escape(found.sentence)}</p><p style='margin:.3em 0'>{html.escape(_rates(found))}</p>"
        f"<table><thead><tr><th></th><th>loader, {found.sample}/s</th><th>gain</th></tr></thead>{body}</table>"
        + (f"<ul style='margin:.4em 0'>{advice}</ul>" if advice else "")
        + (f"<details><summary>Notes</summary><ul>{notes}</ul></details>" if notes else "")
        + f"<p style='opacity:.7;margin:.3em 0'>{html.escape(_footer(found))}</p></div>"
    )


def _rates(found: Findings) -> str:
    rate, margin = found.images_per_s, (found.images_per_s.high - found.images_per_s.low) / 2
    what = "training" if found.with_step else "the loader alone"
    parts = [f"{significant(rate.value)} ±{significant(margin, 2)} {found.sample}/s {what}"]
    if found.with_step:
        parts.append(f"compute alone {_rate(found.ceilings.compute)}, the loader alone {_rate(found.ceilings.loader)}")
    if found.ceilings.cpu_limit is not None:
        parts.append(f"the cores allow {_rate(found.ceilings.cpu_limit)}")
    return "; ".join(parts) + "."


def _advised(found: Findings, action: str) -> str:
    return action.replace("images/s", f"{found.sample}/s")


def _rate(rate: float | None) -> str:
    return MISSING if rate is None else significant(rate)


def _gain(gain: Gain | None) -> str:
    return MISSING if gain is None else f"x{significant(gain.value)}" + (" est." if gain.how == "estimated" else "")


def _footer(found: Findings) -> str:
    cost = found.instrument_cpu_fraction
    own = f" Measuring took {cost:.2%} of a worker's CPU time." if cost is not None else ""
    estimated = " est.: estimated from the workers' time, not performed." if "est." in str(rows(found)) else ""
    missing = "".join(f" No gain without {name.removeprefix('gains.')}: {why}." for name, why in _missing(found))
    loading = f"{found.workers} workers" if found.workers else "serial"
    return (
        f"{loading}, {found.batch_size} {found.sample} a batch; measured in {format_duration(found.wall_s)}."
        f"{own}{estimated}{missing}"
    )


def _missing(found: Findings) -> list[tuple[str, str]]:
    return [(name, why) for name, why in found.unavailable.items() if name.startswith("gains.")]

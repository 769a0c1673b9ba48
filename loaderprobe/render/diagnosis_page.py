"""A diagnosis as a document, and its rates as the rows of a table."""

from __future__ import annotations

from typing import Any

from loaderprobe.records.diagnosis import Findings
from loaderprobe.records.ranks import RanksView
from loaderprobe.render.diagnosis import (
    advice_forecast,
    explained,
    footer,
    lines,
    remarks_on,
    setting,
    warnings_on,
    what_runs,
)
from loaderprobe.render.document import Command, Document, Item, Paragraph, Part, Section, Table
from loaderprobe.render.panels import rank_section
from loaderprobe.render.verdict_words import heading


def diagnosis_document(found: Findings, ranks: RanksView | None = None) -> Document:
    """The verdict, the rates that it follows from, those of each of several ranks, what to do, what to know."""
    sections = [
        Section(parts=tuple(Paragraph(text=each, strong=True) for each in (*warnings_on(found), explained(found)))),
        Section(title=f"Rates: {setting(found)}", name="rates", parts=(_rates(found), Paragraph(text=footer(found)))),
    ]
    if ranks is not None:
        sections.append(rank_section(ranks, found.sample))
    if found.advice:
        sections.append(Section(title="Advice", parts=_advice(found)))
    notes = remarks_on(found)
    if notes:
        sections.append(Section(title="Notes", parts=tuple(Paragraph(text=each) for each in notes)))
    return Document(title=heading(found), sections=tuple(sections))


def rate_columns(found: Findings) -> dict[str, list[Any]]:
    """One row a rate, the measured one first; None where it is not known."""
    listed = lines(found)
    return {
        "what": [each.label.strip() for each in listed],
        f"{found.sample}_per_s": [each.rate for each in listed],
        "speed_up": [each.speedup for each in listed],
    }


def _rates(found: Findings) -> Table:
    return Table(
        head=("", f"{found.sample}/s", f"speed-up of {what_runs(found)}"),
        lines=tuple((each.label.strip(), each.shown, each.speedup) for each in lines(found)),
        right=frozenset({1}),
    )


def _advice(found: Findings) -> tuple[Part, ...]:
    parts: list[Part] = []
    for each in found.advice:
        parts.append(Item(subject=each.sentence, text=advice_forecast(found, each)))
        if each.command:
            parts.append(Command(text=each.command))
    return tuple(parts)

"""Results as pieces of HTML for a notebook: nothing is fetched, and they are read on light and on dark pages."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from loaderprobe.records.bandwidth import BandwidthPhase, BandwidthReport
from loaderprobe.records.environment import Capability
from loaderprobe.records.report import Report
from loaderprobe.render import bandwidth_words, metadata_words
from loaderprobe.render.answer import answers
from loaderprobe.render.capability_words import TITLES, step_words, why_words
from loaderprobe.render.document import Command, Document, Item, Paragraph, Part, Section, Table
from loaderprobe.render.groups import groups
from loaderprobe.render.overview import EMULATED_NOTE, counts, without_figures
from loaderprobe.render.table import GROUP_HEAD, GROUP_RIGHT, group_cells
from loaderprobe.render.wording import megabytes_per_s, percent, visible
from loaderprobe.units import significant

_FRAME = (
    "border:1px solid rgba(128,128,128,.35);border-radius:4px;padding:.8em 1.1em;font:14px/1.45 system-ui,sans-serif;"
    "text-align:left"
)
_CELL = "padding:.15em .9em .15em 0;border:0;background:none;vertical-align:top;text-align:"


def document_html(document: Document) -> str:
    """A document in a frame."""
    parts = [f'<div style="font-weight:600;font-size:1.15em">{_safe(document.title)}</div>'] if document.title else []
    for section in document.sections:
        if section.title:
            parts.append(f'<div style="font-weight:600;margin:.8em 0 0">{_safe(section.title)}</div>')
        parts += map(_part, section.parts)
    return f'<div style="{_FRAME}">{"".join(parts)}</div>'


def run_html(report: Report) -> str:
    """The headline, a table a device and cache state, and what failed."""
    return _page(f"loaderprobe: {report.summary.run.name}", _of_run(report))


def bandwidth_html(report: BandwidthReport) -> str:
    """The answer, and what each concurrency gets."""
    return _page(f"Storage under {report.path}", _of_bandwidth(report))


def capabilities_html(found: Sequence[Capability]) -> str:
    """What is measured, whether here, and why not."""
    lines = tuple((TITLES[each.name], each.state, why_words(each), step_words(each)) for each in found)
    return _page("", [Table(head=("measured", "here", "why", "to get it"), lines=lines, right=frozenset())])


def paths_html(paths: Sequence[Path]) -> str:
    """A list of paths."""
    return _page("", [Command(text=str(path)) for path in paths])


def _page(title: str, parts: Iterator[Part] | Sequence[Part]) -> str:
    return document_html(Document(title=title, sections=(Section(parts=tuple(parts)),)))


def _of_run(report: Report) -> Iterator[Part]:
    yield Paragraph(text=counts(report))
    for answer in answers(report):
        yield Paragraph(text=answer, strong=True)
    for group in groups(report):
        yield Paragraph(text=f"{group.title}; {group.ceiling}", strong=True)
        lines = tuple(tuple(line) for line in group_cells(report, group))
        yield Table(head=GROUP_HEAD, lines=lines, right=frozenset(GROUP_RIGHT))
    for title, status in (("Failed", "failed"), ("Skipped", "skipped")):
        for subject, reason in without_figures(report, status):
            yield Item(subject=f"{title}: {subject}", text=reason)
    if any(row.emulated for row in report.summary.configurations):
        yield Paragraph(text=EMULATED_NOTE)


def _of_bandwidth(report: BandwidthReport) -> Iterator[Part]:
    yield Paragraph(text=bandwidth_words.place(report))
    yield Paragraph(text=bandwidth_words.files(report))
    if report.interrupted:
        yield Paragraph(text=bandwidth_words.interrupted(report))
    if report.best is not None:
        yield Paragraph(text=bandwidth_words.answer(report, report.best), strong=True)
    if report.ladder:
        head = ("readers", "MB/s", "files/s", "p50 ms", "p99 ms", "cache", "from storage")
        yield Table(head=head, lines=tuple(map(_step, report.ladder)), right=frozenset((0, 1, 2, 3, 4, 6)))
    opens = metadata_words.opens_sentence(report)
    if opens:
        yield Item(subject="Opens", text=opens)
    for subject, note in bandwidth_words.notes(report):
        yield Item(subject=subject, text=note)


def _step(phase: BandwidthPhase) -> tuple[str, ...]:
    times = (phase.file_ns or phase.clat_ns).percentile
    return (
        str(phase.readers),
        megabytes_per_s(phase.bw_bytes),
        significant(phase.files_per_s),
        significant(times["50.000000"] / 1e6),
        significant(times["99.000000"] / 1e6),
        phase.cache,
        percent(phase.cold_fraction),
    )


def _part(part: Part) -> str:
    if isinstance(part, Paragraph):
        return f'<div style="margin:.4em 0{";font-weight:600" if part.strong else ""}">{_safe(part.text)}</div>'
    if isinstance(part, Command):
        return f'<pre style="margin:.2em 0">{_safe(part.text)}</pre>'
    if isinstance(part, Item):
        subject = f"{part.subject}:" if part.text else part.subject
        return f'<div style="margin:.4em 0"><b>{_safe(subject)}</b> {_safe(part.text)}</div>'
    head = _cells("th", part.head, part)
    lines = "".join(f"<tr>{_cells('td', line, part)}</tr>" for line in part.lines)
    return f'<table style="border:0;margin:.3em 0"><tr>{head}</tr>{lines}</table>'


def _cells(tag: str, line: Sequence[str], table: Table) -> str:
    sides = ("right" if column in table.right else "left" for column in range(len(line)))
    cells = zip(sides, line, strict=True)
    return "".join(f'<{tag} style="{_CELL}{side}">{_safe(text)}</{tag}>' for side, text in cells)


def _safe(text: str) -> str:
    return html.escape(visible(text)).replace("\n", "<br>")

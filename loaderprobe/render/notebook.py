"""Results as pieces of HTML for a notebook: nothing is fetched, and they are read on light and on dark pages."""

from __future__ import annotations

import html
from collections.abc import Container, Sequence
from pathlib import Path

from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.capability import Capability
from loaderprobe.records.report import Report
from loaderprobe.render import bandwidth_words, metadata_words
from loaderprobe.render.answer import answers
from loaderprobe.render.capability_words import TITLES, step_words, why_words
from loaderprobe.render.groups import groups
from loaderprobe.render.overview import EMULATED_NOTE, counts, without_figures
from loaderprobe.render.table import GROUP_HEAD, GROUP_RIGHT, group_cells
from loaderprobe.render.wording import megabytes_per_s, percent, visible
from loaderprobe.units import significant

_CELL = "padding:.15em .9em .15em 0;border:0;background:none;vertical-align:top;text-align:"


def run_html(report: Report) -> str:
    """The headline, a table a device and cache state, and what failed."""
    parts = [_title(f"loaderprobe: {report.summary.run.name}"), _paragraph(counts(report))]
    parts += [_paragraph(each, bold=True) for each in answers(report)]
    for group in groups(report):
        parts += [_paragraph(f"{group.title}; {group.ceiling}", bold=True)]
        parts += [_table(GROUP_HEAD, group_cells(report, group), GROUP_RIGHT)]
    for title, status in (("Failed", "failed"), ("Skipped", "skipped")):
        for subject, reason in without_figures(report, status):
            parts.append(_paragraph(f"{title}: {subject}: {reason}"))
    if any(row.emulated for row in report.summary.configurations):
        parts.append(_paragraph(EMULATED_NOTE, faint=True))
    return _framed(parts)


def bandwidth_html(report: BandwidthReport) -> str:
    """The answer, and what each concurrency gets."""
    best = report.best
    parts = [
        _title(f"Storage under {report.path}"),
        _paragraph(bandwidth_words.place(report)),
        _paragraph(bandwidth_words.files(report)),
    ]
    if report.interrupted:
        parts.append(_paragraph(bandwidth_words.interrupted(report)))
    if best is not None:
        parts.append(_paragraph(bandwidth_words.answer(report, best), bold=True))
    lines = [
        [
            str(phase.readers),
            megabytes_per_s(phase.bw_bytes),
            significant(phase.files_per_s),
            significant((phase.file_ns or phase.clat_ns).percentile["50.000000"] / 1e6),
            significant((phase.file_ns or phase.clat_ns).percentile["99.000000"] / 1e6),
            phase.cache,
            percent(phase.cold_fraction),
        ]
        for phase in report.ladder
    ]
    if lines:
        head = ("readers", "MB/s", "files/s", "p50 ms", "p99 ms", "cache", "from storage")
        parts.append(_table(head, lines, (0, 1, 2, 3, 4, 6)))
    opens = metadata_words.opens_sentence(report)
    if opens:
        parts.append(_paragraph(f"Opens: {opens}"))
    parts += [_paragraph(f"{subject}: {note}", faint=True) for subject, note in bandwidth_words.notes(report)]
    return _framed(parts)


def capabilities_html(found: Sequence[Capability]) -> str:
    """What is measured, whether here, and why not."""
    lines = [[TITLES[each.name], each.state, why_words(each), step_words(each)] for each in found]
    return _framed([_table(("measured", "here", "why", "to get it"), lines, ())])


def paths_html(paths: Sequence[Path]) -> str:
    """A list of paths."""
    return _framed([f"<div><code>{_safe(str(path))}</code></div>" for path in paths])


def _framed(parts: Sequence[str]) -> str:
    return (
        '<div style="border:1px solid rgba(128,128,128,.35);border-radius:4px;padding:.8em 1.1em;'
        f'font:14px/1.45 system-ui,sans-serif;text-align:left">{"".join(parts)}</div>'
    )


def _title(text: str) -> str:
    return f'<div style="font-weight:600;font-size:1.15em">{_safe(text)}</div>'


def _paragraph(text: str, *, bold: bool = False, faint: bool = False) -> str:
    style = f"margin:.4em 0{';font-weight:600' if bold else ''}{';opacity:.65' if faint else ''}"
    return f'<div style="{style}">{_safe(text)}</div>'


def _table(head: Sequence[str], lines: Sequence[Sequence[str]], right: Container[int]) -> str:
    def cells(tag: str, line: Sequence[str]) -> str:
        sides = ["right" if column in right else "left" for column in range(len(line))]
        return "".join(
            f'<{tag} style="{_CELL}{side}">{_safe(text)}</{tag}>' for side, text in zip(sides, line, strict=True)
        )

    body = "".join(f"<tr>{cells('td', line)}</tr>" for line in lines)
    return f'<table style="border:0;margin:.3em 0"><tr>{cells("th", head)}</tr>{body}</table>'


def _safe(text: str) -> str:
    return html.escape(visible(text)).replace("\n", "<br>")

"""The report as CSV for a spreadsheet, and as Markdown for an issue or a storage plan."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO

from loaderprobe.records.report import Report
from loaderprobe.render.cells import Cell, as_columns
from loaderprobe.render.figures import flat, shown
from loaderprobe.render.first_markdown import first_blocks
from loaderprobe.render.first_page import change_of, first_page
from loaderprobe.render.gpu import profiled
from loaderprobe.render.groups import Group, groups, then_of
from loaderprobe.render.limits import gain_words
from loaderprobe.render.markdown import escaped as _escaped
from loaderprobe.render.markdown import pipe_table as _pipe_table
from loaderprobe.render.overview import CPU_NOTE, EMULATED_NOTE, HOW_TO_READ, counts, environment_facts, sentences
from loaderprobe.render.panels import epoch_cells, short_run_cells
from loaderprobe.render.recommend import advised, knees
from loaderprobe.render.sections import sections
from loaderprobe.render.wording import bound_words, label, speed
from loaderprobe.units import format_bytes


def csv_report(report: Report) -> str:
    """One line a configuration, units in the column names, an empty cell where there is no figure."""
    return csv_text(report_columns(report))


def csv_text(columns: Mapping[str, Sequence[object]]) -> str:
    """CSV of these columns, with a header line and LF line ends; None is an empty cell."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


def report_columns(report: Report) -> dict[str, list[Cell]]:
    """The configurations as flat columns with units in their names; None where there is no figure."""
    rows = [flat(row) | epoch_cells(row) | short_run_cells(row) for row in report.summary.configurations]
    columns = as_columns(rows)
    # The reasons stand last, whatever GPU counters a single row brings.
    reasons = columns.pop("unavailable", [])
    return {**columns, "unavailable": reasons}


def markdown_report(report: Report) -> str:
    """GitHub-flavoured Markdown: the first page, then every configuration by device and cache state, data, machine."""
    first = first_page(report)
    blocks = [f"# {_escaped(first.title)}", _escaped(f"{first.facts} {counts(report)}"), *first_blocks(first)]
    if any(row.emulated for row in report.summary.configurations):
        blocks.append(f"> {EMULATED_NOTE}")
    if any(row.config.compute.kind == "cpu" for row in report.summary.configurations):
        blocks.append(f"> {CPU_NOTE}")
    for group in groups(report):
        blocks += _group_blocks(report, group)
    for title, entries in sections(report):
        blocks += _section(title, entries)
    blocks += ["## Data", _data_table(report)]
    blocks += _section("Machine", environment_facts(report))
    blocks += ["## How to read this", HOW_TO_READ, f"Command: {_escaped(report.summary.run.command)}"]
    return "\n\n".join(blocks) + "\n"


GROUP_HEAD = (
    "configuration", "images/s", "used", "MB/s", "of max", "input wait", "bound", "speed-up if free → then limited by",
)  # fmt: skip
GROUP_RIGHT = range(1, 6)
"""The columns of figures."""


def group_cells(report: Report, group: Group) -> list[list[str]]:
    """A line a configuration, as long as `GROUP_HEAD`."""
    return [
        [
            label(row, group.rows),
            speed(row),
            shown(row, "accelerator_utilization"),
            shown(row, "disk_read_bytes_per_s"),
            shown(row, "disk_ceiling_fraction"),
            shown(row, "input_wait_fraction"),
            bound_words(row),
            gain_words(row, then_of(report, row)),
        ]
        for row in group.rows
    ]


def _group_blocks(report: Report, group: Group) -> list[str]:
    return [
        f"## {_escaped(group.title)}",
        f"Compute alone: {group.ceiling}.",
        _pipe_table(GROUP_HEAD, group_cells(report, group), right=GROUP_RIGHT),
        *_bullets(sentences(group.rows)),
        *_bullets([(f"Knee of {subject}", words) for subject, words in knees(report, group)]),
        *_bullets([(f"GPU of {subject}", words) for subject, words in profiled(group)]),
        *_bullets([(f"Advice for {labels}", change_of("", advice).words) for labels, advice in advised(report, group)]),
    ]


def _section(title: str, entries: Sequence[tuple[str, str]]) -> list[str]:
    return [f"## {title}", *_bullets(entries)] if entries else []


def _bullets(entries: Sequence[tuple[str, str]]) -> list[str]:
    """One list, or nothing."""
    lines = [f"- **{_escaped(what)}:** {_escaped(text)}" for what, text in entries]
    return ["\n".join(lines)] if lines else []


def _data_table(report: Report) -> str:
    lines = [
        [
            data.label,
            data.root,
            f"{data.images_used} of {data.images_found}",
            format_bytes(data.mean_size_bytes),
            "; ".join(data.skipped) + (" …" if data.skipped_count > len(data.skipped) else "") or "none",
        ]
        for data in report.summary.run.data
    ]
    return _pipe_table(["data", "path", "images used", "mean size", "skipped files"], lines, right=range(2, 4))

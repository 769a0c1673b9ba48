"""Reports on rows of stored runs, of which a test changes what it is about; and through the writers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from loaderprobe.analyze.answer import answered
from loaderprobe.api.load import load
from loaderprobe.records import by_key
from loaderprobe.records.config import OPTIONS, with_options
from loaderprobe.records.remark import reported
from loaderprobe.records.report import ConfigurationRow, Outlook, Report
from loaderprobe.records.verdict import Knee, Verdict
from loaderprobe.render.pages import document_markdown, document_page
from loaderprobe.render.rows import csv_text
from loaderprobe.render.sweep import report_columns, sweep_document
from loaderprobe.render.terminal import document_text
from tests.stored import RUNS

STORED, CAUSES, ON_CPU = (load(RUNS / name).report() for name in ("storage", "causes", "cpu"))
"""Files from a slow disk and from memory, on an emulated H100; a row for each cause; a CPU, and a row without time."""


def with_changes(row: ConfigurationRow, **changes: Any) -> ConfigurationRow:
    """The row with options of its configuration, figures of its verdict, or fields of its own changed.

    A row that gets another status than `measured` loses its verdict.
    """
    names = {field.name for field in fields(Verdict)} - {field.name for field in fields(row)}
    options = {name: value for name, value in changes.items() if name in OPTIONS}
    figures = {name: value for name, value in changes.items() if name in names}
    of_row = {name: value for name, value in changes.items() if name not in options and name not in figures}
    if isinstance(of_row.get("reason"), str):
        of_row["reason"] = reported(of_row["reason"])
    if options.get("workers") == 0:
        options["prefetch_factor"] = 0
    if row.verdict and of_row.get("status", "measured") == "measured":
        of_row = {"verdict": replace(row.verdict, **figures), **of_row}
    else:
        of_row = {"verdict": None, "forecasts": (), **of_row}
    return replace(row, config=with_options(row.config, **options), **of_row)


def example_row(**changes: Any) -> ConfigurationRow:
    """A measured row, input-bound by storage (2 workers, emulated H100), with `changes` as above."""
    return with_changes(STORED.configurations[0], **changes)


def _knee(rows: Sequence[ConfigurationRow]) -> Knee:
    """Of rows of one data set on one device, the fastest."""
    best = max(rows, key=lambda row: row.images_per_s.value if row.images_per_s else 0.0)
    assert best.verdict
    keys = tuple(row.key for row in rows)
    workers, rate = best.config.loader.workers, best.verdict.images_per_s
    return replace(STORED.knees[0], keys=keys, workers=workers, images_per_s=rate, forecasts=())


def outlook_of(row: ConfigurationRow) -> Outlook:
    """What 1, 8 and 64 H100 ask of the slow disk, for this data set and device."""
    label = row.config.resolution
    return replace(STORED.needs[0], data=label, compute=row.config.compute.name, planned=label == "500x375")


def example_report(rows: Sequence[ConfigurationRow] | None = None) -> Report:
    """On these rows; without any on rows of every kind: of each verdict, a failed one, and one that was skipped."""
    failed = example_row(workers=8, status="failed", reason="a worker was killed by SIGBUS")
    every = [row for report in (STORED, CAUSES, ON_CPU) for row in report.configurations]
    chosen = (*every, failed) if rows is None else tuple(rows)
    judged = (row for row in chosen if row.verdict)
    together = by_key(judged, lambda row: (row.config.compute.name, row.config.resolution))
    detail = STORED.configurations[0].detail
    chosen = tuple(replace(row, detail=detail if row.status == "measured" else None) for row in chosen)
    labels = dict.fromkeys(row.config.resolution for row in chosen)
    stored = STORED.run.data[0]
    data = tuple(replace(stored, label=label, root=f"{stored.root}/{label}") for label in labels)
    made = replace(
        STORED, run=replace(STORED.run, data=data), configurations=chosen,
        knees=tuple(_knee(group) for group in together.values()),
        needs=tuple(outlook_of(group[0]) for group in together.values() if group[0].emulated),
    )  # fmt: skip
    return answered(made)


def with_details(report: Report, **changes: Any) -> Report:
    """The report, with other details of each measured row, and the answer that follows from them."""
    rows = report.configurations
    made = (replace(row, detail=replace(row.detail, **changes)) if row.detail else row for row in rows)
    return answered(replace(report, configurations=tuple(made)))


def terminal_report(report: Report, *, color: bool = False) -> str:
    return document_text(sweep_document(report), width=80, color=color)


def markdown_report(report: Report) -> str:
    return document_markdown(sweep_document(report))


def html_report(report: Report) -> str:
    return document_page(sweep_document(report), made_by="")


def csv_report(report: Report) -> str:
    return csv_text(report_columns(report))

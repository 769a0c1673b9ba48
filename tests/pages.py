"""Results through the writers, in one call each."""

from __future__ import annotations

from loaderprobe.records.report import Report
from loaderprobe.render.pages import document_markdown, document_page
from loaderprobe.render.rows import csv_text
from loaderprobe.render.sweep import report_columns, sweep_document
from loaderprobe.render.terminal import document_text


def terminal_report(report: Report, *, color: bool = False) -> str:
    return document_text(sweep_document(report), width=80, color=color)


def markdown_report(report: Report) -> str:
    return document_markdown(sweep_document(report))


def html_report(report: Report) -> str:
    return document_page(sweep_document(report), made_by="")


def csv_report(report: Report) -> str:
    return csv_text(report_columns(report))

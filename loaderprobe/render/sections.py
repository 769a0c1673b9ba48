"""What stands below the figures of a report, in a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.report import Report
from loaderprobe.render.overview import missing, notes, without_figures
from loaderprobe.render.panels import epoch_sentences, rank_sentences, short_run_sentences
from loaderprobe.render.wording import MISSING


def sections(report: Report, only: Sequence[str] = ()) -> tuple[tuple[str, list[tuple[str, str]]], ...]:
    """Titles and their (subject, text) entries, perhaps none; `only` are the figures whose absence is explained."""
    return (
        ("Ranks", rank_sentences(report)),
        ("Epochs", epoch_sentences(report)),
        ("Short benchmarks", short_run_sentences(report)),
        ("Failed", without_figures(report, "failed")),
        ("Skipped", without_figures(report, "skipped")),
        ("Notes", notes(report)),
        (f"Not measured ({MISSING})", missing(report, only)),
    )

"""Short benchmarks: the sentence, the chart, the columns."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.records.remark import reported
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.studies import ShortRun
from loaderprobe.render.panels import short_run_panels, short_run_sentences
from loaderprobe.render.sweep import report_columns
from tests.examples.reports import example_report, example_row
from tests.examples.studies import example_effect
from tests.pages import csv_report, html_report, markdown_report, terminal_report


def row(factor: int, workers: int = 8, **changes: Any) -> ConfigurationRow:
    effect = example_effect(factor, workers, **changes)
    return example_row(workers=workers, prefetch_factor=factor, buffer=effect)


def report(*rows: ConfigurationRow) -> Report:
    return example_report([example_row(workers=0), *rows])


def test_the_sentence_compares_prefetch_factors() -> None:
    """Of the most workers, with what is enough; fewer workers stand in the table only."""
    found = report(row(2, workers=2), row(2), row(4))
    (said,) = short_run_sentences(found)
    assert said == (
        "1024x768, 8 workers",
        "the first 100 iterations from a full buffer are 14 % too fast with prefetch 2 and 40 % too fast with prefetch "
        "4 (measured); 638 and 1,454 are enough for 2 % (estimated).",
    )
    estimated = short_run_sentences(report(row(2, how="estimated", reason=reported("too few batches"))))[0][1]
    assert "are up to 14 % too fast with prefetch 2 (estimated)" in estimated and "too few batches" in estimated
    for renderer in (terminal_report, markdown_report):
        assert "Short benchmarks" in renderer(found)
    (panel,) = short_run_panels(found)
    (figure,) = panel.charts
    assert figure.title == "1024x768, 8 workers: 100 iterations +14 % to +40 %"
    assert figure.lines[0][:5] == ("2", "2", "4", "+54 %", "+21 %")
    assert [line[-2:] for line in figure.lines] == [("179", "measured"), ("638", "measured"), ("1,454", "measured")]
    assert figure.svg.count("<circle") == 10


def test_what_lies_within_the_noise_is_none() -> None:
    """The steady rates before and after differ by as much."""
    found = report(row(1, noise=0.3))
    ((_, said),) = short_run_sentences(found)
    assert "are within 30 % with prefetch 1 (measured)" in said
    assert short_run_panels(found)[0].charts[0].lines[0][6] == "±30 %"


def test_the_noise_of_what_was_measured_is_not_that_of_the_law() -> None:
    """A run that ended before 100 iterations: what stands there is estimated, like the iterations that are enough."""
    found = report(row(1, workers=2, noise=0.06, runs=(ShortRun(iterations=10, over_steady=1.2),)))
    ((_, said),) = short_run_sentences(found)
    assert "are within 2 % with prefetch 1 (estimated); 77 are enough" in said
    assert short_run_panels(found)[0].charts[0].title.endswith("100 iterations ±2 %")


def test_what_is_only_estimated_is_no_news_in_a_terminal() -> None:
    """The page has it, dashed and without dots; where it was to be measured, the reason is given."""
    found = report(row(2, how="estimated"))
    assert short_run_sentences(found) == []
    assert "Short benchmarks" not in terminal_report(found)
    page = html_report(found)
    assert '<section id="short_runs">' in page and "estimated" in page
    ((_, said),) = short_run_sentences(report(row(2, how="estimated", reason=reported("99 images are too few"))))
    assert said.endswith("(estimated). Not measured: 99 images are too few.")


def test_where_compute_is_the_limit_one_iteration_is_enough() -> None:
    """And the words do not speak of an error of 0.3 %."""
    ((_, said),) = short_run_sentences(report(row(2, most=1.003), row(4, most=1.003)))
    assert said.endswith("within 2 % with prefetch 2 and 4 (measured); any number is within 2 % (estimated).")


def test_the_columns_are_there_where_a_buffer_is() -> None:
    """The serial loader has empty cells; without any effect there is no column."""
    columns = report_columns(report(row(2)))
    assert columns["buffered_batches"] == [None, 16]
    assert columns["rate_over_steady_after_100_iterations"] == [None, pytest.approx(100 / 87.5)]
    assert columns["iterations_within_2_percent"] == [None, 638]
    assert "buffered_batches" not in csv_report(report())

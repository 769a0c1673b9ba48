from __future__ import annotations

import csv
from dataclasses import replace
from io import StringIO

from loaderprobe.render.figures import reason_words
from loaderprobe.render.groups import groups
from loaderprobe.render.overview import EMULATED_NOTE, sentences
from loaderprobe.render.verdict_words import heading
from tests.examples.reports import example_report, example_row
from tests.pages import csv_report, markdown_report


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_csv_round_trip() -> None:
    """Every configuration is one line, and figures read back are exactly those of the report."""
    report = example_report()
    lines = read(csv_report(report))
    assert len(lines) == len(report.summary.configurations)
    for line, row in zip(lines, report.summary.configurations, strict=True):
        assert line["key"] == row.key
        assert line["emulated"] == str(row.emulated)
        if row.images_per_s:
            assert float(line["images_per_s"]) == row.images_per_s.value


def test_csv_leaves_missing_cells_empty() -> None:
    """What has no figure is an empty cell, never 0 or None, and the reason is in `unavailable`."""
    lines = read(csv_report(example_report()))
    (line,) = [line for line in lines if "another process" in line["unavailable"]]
    assert line["disk_read_bytes_per_s"] == ""
    assert "None" not in {cell for line in lines for cell in line.values()}


def test_csv_quotes_what_needs_it() -> None:
    """Commas, quotes and newlines in a reason stay in their cell."""
    reason = 'disk said "no", then\nstopped'
    (line,) = read(csv_report(example_report([example_row(status="failed", reason=reason)])))
    assert line["reason"] == reason


def test_csv_takes_gpu_counters_of_any_row() -> None:
    """A GPU counter that only one row has becomes a column, before the reasons."""
    rows = [example_row(), example_row(seed=1, gpu={"sm_active_fraction": 0.4})]
    text = csv_report(example_report(rows))
    assert [line["gpu_sm_active_fraction"] for line in read(text)] == ["", "0.4"]
    assert text.splitlines()[0].endswith("unavailable")


def test_csv_of_nothing_has_no_rows() -> None:
    """A run without configurations gives a header and no line."""
    assert read(csv_report(example_report([]))) == []


def test_markdown_has_every_row_and_sentence() -> None:
    """Each configuration has a table line, each verdict its sentence, each failure its reason."""
    report = example_report()
    text = markdown_report(report)
    for row in report.summary.configurations:
        assert row.config.resolution in text
        assert (heading(row.bound) if row.bound else reason_words(row)) in text
    for group in groups(report):
        for labels, words in sentences(group.rows, group.rows):
            assert f"- **{labels}:** {words}" in text


def test_markdown_marks_emulated() -> None:
    """The heading of an emulated group says so, and the note stands at the top."""
    text = markdown_report(example_report())
    assert "## Emulated accelerator: mlperf-h100" in text
    assert EMULATED_NOTE in text.split("## Every configuration")[0]


def test_markdown_tables_survive_hostile_text() -> None:
    """Pipes, newlines and tags in a path change neither the table nor the page."""
    report = example_report()
    data = replace(report.summary.run.data[0], root="/data/a|b\n<script>alert(1)</script>`*")
    run = replace(report.summary.run, data=(data,))
    text = markdown_report(replace(report, summary=replace(report.summary, run=run)))
    assert "<script>" not in text
    (line,) = [line for line in text.splitlines() if "/data/a" in line]
    assert line.replace("\\|", "").count("|") == 6


def test_csv_has_the_best_advice_as_figures() -> None:
    """Beside all advice in words, what to type for the best of it, and the rate it is forecast to give."""
    row = example_row()
    (line,) = read(csv_report(example_report([row])))
    assert float(line["best_advice_images_per_s"]) == row.advice[0].after.value
    assert line["best_advice_command"] == row.advice[0].command
    (other,) = read(csv_report(example_report([example_row(advice=())])))
    assert other["best_advice_images_per_s"] == other["best_advice_command"] == ""


def test_markdown_has_knees_and_advice() -> None:
    """Escaped, as lists of their own."""
    text = markdown_report(example_report())
    assert "- **Knee of 256x256 to 1024x768:** 2 workers, 63.4 to 634 images/s; beyond it, CPU cores" in text
    assert "- **Advice for 500x375 and 1024x768, 2 workers:** keep all files in the page cache: 2.3x to 2.8x" in text
    assert "; try it:\n\n```\nfind /data/imagenet-like -type f -exec cat {} + >/dev/null\n```" in text


def test_markdown_begins_with_the_first_page() -> None:
    """The answer, the map, what to do next and what accelerators would ask, before any configuration's own line."""
    text = markdown_report(example_report())
    marks = (
        "Storage limits 3 of 5",
        "| workers | serial | 2 | 8 |",
        "## Do next",
        "## What 1, 8 and 64 x mlperf-h100 need",
        "| configuration |",
    )
    assert [text.index(mark) for mark in marks] == sorted(text.index(mark) for mark in marks)

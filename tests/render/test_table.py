from __future__ import annotations

import csv
from dataclasses import replace
from io import StringIO

from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.render.document import Document, Section, Table
from loaderprobe.render.rows import csv_text
from loaderprobe.render.terminal import document_text
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


def test_csv_quotes_what_needs_it() -> None:
    """Commas, quotes and newlines in a reason stay in their cell."""
    reason = 'disk said "no", then\nstopped'
    (line,) = read(csv_report(example_report([example_row(status="failed", reason=reason)])))
    assert line["reason"] == reason


def test_csv_has_no_formula() -> None:
    """A name that a spreadsheet would run is text there; a negative number stays a number."""
    rows = read(csv_text({"name": ["=cmd()", "+1", "-x", "@SUM(A1)", "\t=1", "a=b\x1b[2J\udcff"], "s": [-1.5] * 6}))
    assert [row["name"] for row in rows] == ["'=cmd()", "'+1", "'-x", "'@SUM(A1)", "'\\t=1", "a=b\\x1b[2J\\udcff"]
    assert {row["s"] for row in rows} == {"-1.5"}


def test_csv_takes_gpu_counters_of_any_row() -> None:
    """A GPU counter that only one row has becomes a column, before the reasons."""
    rows = [example_row(), example_row(seed=1, gpu={"sm_active_fraction": 0.4})]
    text = csv_report(example_report(rows))
    assert [line["gpu_sm_active_fraction"] for line in read(text)] == ["", "0.4"]
    assert text.splitlines()[0].endswith("unavailable")


def test_csv_of_nothing_has_no_rows() -> None:
    """A run without configurations gives a header and no line."""
    assert read(csv_report(example_report([]))) == []


def test_markdown_tables_survive_hostile_text() -> None:
    """Pipes, newlines and tags in a path change neither the table nor the page."""
    report = example_report()
    data = replace(report.summary.run.data[0], root="/data/a|b\n<script>alert(1)</script>`*")
    run = replace(report.summary.run, data=(data,))
    text = markdown_report(replace(report, summary=replace(report.summary, run=run)))
    assert "<script>" not in text
    (line,) = [line for line in text.splitlines() if "/data/a" in line]
    assert line.replace("\\|", "").count("|") == 5


@given(width=st.integers(50, 130), long=st.integers(5, 120))
def test_a_table_that_does_not_fit_loses_no_word(width: int, long: int) -> None:
    """Texts are folded, and nothing is cut off at the edge of the page."""
    table = Table(
        head=("figure", "value", "label", "source"),
        lines=(
            ("wait of a worker for a file", "522 us (433 us to 611 us)", "measured", "one file at low load"),
            ("size of a request", "131 kB", "assumed", "128 KiB, the read-ahead of most Linux systems"[:long]),
            ("G, rate of one accelerator", "1786 images/s", "given", "ResNet-50 on H100: 0.224 s per batch of 400"),
        ),
    )
    shown = document_text(Document(title="", sections=(Section(parts=(table,)),)), width=width)
    assert max(map(len, shown.splitlines())) <= width
    assert {word for line in (table.head, *table.lines) for cell in line for word in str(cell).split()} <= set(
        shown.split()
    )

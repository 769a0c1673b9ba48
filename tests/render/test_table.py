from __future__ import annotations

import csv
from dataclasses import replace
from io import StringIO

from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.render.document import Document, Section, Table
from loaderprobe.render.rows import csv_text
from loaderprobe.render.terminal import document_text
from tests.examples.reports import example_report
from tests.pages import markdown_report


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_csv_has_no_formula() -> None:
    """A name that a spreadsheet would run is text there; a negative number stays a number."""
    rows = read(csv_text({"name": ["=cmd()", "+1", "-x", "@SUM(A1)", "\t=1", "a=b\x1b[2J\udcff"], "s": [-1.5] * 6}))
    assert [row["name"] for row in rows] == ["'=cmd()", "'+1", "'-x", "'@SUM(A1)", "'\\t=1", "a=b\\x1b[2J\\udcff"]
    assert {row["s"] for row in rows} == {"-1.5"}


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

"""The words and charts of a comparison."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from loaderprobe.records.compare import (
    Compared,
    ComparedSide,
    ComparisonReport,
    Subject,
)
from loaderprobe.records.environment import Origin
from loaderprobe.records.verdict import Interval, ShortVerdict
from loaderprobe.render.compare import (
    MOST_ROWS,
    compare_columns,
    compare_document,
    compare_exhibits,
)
from loaderprobe.render.writers import document_page
from loaderprobe.testing import example_config, example_environment
from tests.render.test_html import EVIL, Page

STORAGE, COMPUTE = (ShortVerdict(side="input", cause="storage"), ShortVerdict(side="compute", cause="compute"))


def compared(ratio: float = 1.0, *, workers: int = 1, **changes: Any) -> Compared:
    """A configuration whose ratio is known to 2 %."""
    config = example_config(workers=workers, compute="emulated:1000")
    row = Compared(
        subject=Subject(kind="configuration", name=config.key, config=config),
        unit="images/s",
        before=Interval(value=200.0, low=196.0, high=204.0),
        after=Interval(value=200.0 * ratio, low=196.0 * ratio, high=204.0 * ratio),
        rounds=(3, 3),
        ratio=Interval(value=ratio, low=0.98 * ratio, high=1.02 * ratio),
        p=0.01,
        visible=0.021,
        rounds_needed=None,
        word="slower" if ratio < 0.95 else "faster" if ratio > 1.05 else "same",
        reason="beyond_noise" if abs(ratio - 1) > 0.05 else "within_size",
        verdict_before=STORAGE,
        verdict_after=STORAGE,
    )
    return replace(row, **changes)


def report(*rows: Compared, **changes: Any) -> ComparisonReport:
    """Of these rows."""
    side = ComparedSide(
        paths=("runs/a",), created_utc=("2026-11-21T07:00:00",), command="loaderprobe sweep", environment=None,
        roots=("/data",),
    )  # fmt: skip
    made = ComparisonReport(
        origin=Origin(created_utc="2026-11-22T07:00:00", command="", environment=example_environment()),
        kind="sweep", matters=0.05, before=side, after=side, rows=rows, whole=None, only_before=(), only_after=(),
        differences=(), gates=(), notes=(),
    )  # fmt: skip
    return replace(made, **changes)


def test_charts_draw_every_row_and_frame_what_changed() -> None:
    """The ratios with the whole, up to a limit; a map of each side."""
    rows = [compared(1.0 - 0.002 * number, workers=number) for number in range(MOST_ROWS + 9)]
    ratios, both = compare_exhibits(report(*rows[:8], compared(workers=9, verdict_after=COMPUTE)))["rows"]
    drawn = ratios.figures[0][1]
    assert drawn.count("<circle") == 9 and "as fast" in drawn
    assert [label for label, _ in both.figures] == [f"What limits in {side}, by data set and workers" for side in "AB"]
    cells = "".join(drawn for _, drawn in both.figures)
    assert cells.count('stroke-width="2"') == 2 and cells.count(": storage</title>") == 17
    assert re.search(r" C</text>", cells) and "framed" in both.text.lower()
    assert compare_exhibits(report(*rows))["rows"][0].figures[0][1].count("<circle") == MOST_ROWS


def test_names_from_outside_do_nothing_in_a_page() -> None:
    """A layer's path and class, a path of a run, a value that differs."""
    subject = Subject(kind="layer", name=EVIL, classes=(EVIL, "Other"))
    row = compared(2.5, subject=subject, unit="ms", verdict_before=None, verdict_after=None)
    found = report(row, kind="layers")
    html = document_page(compare_document(found), compare_exhibits(found), made_by="x")
    page = Page(html)
    assert not {"script", "img"} & set(page.tags) and EVIL in page.text


def test_the_table_has_every_row_and_the_whole() -> None:
    """Units beside the figures; a figure that does not exist is None."""
    whole = compared(0.9, subject=Subject(kind="all"), before=None, after=None, verdict_before=None)
    found = compare_columns(report(compared(), replace(compared(0.8, workers=2), ratio=None), whole=whole))
    assert found["kind"] == ["configuration", "configuration", "all"] and found["before"][2] is None
    assert found["ratio"] == [1.0, None, 0.9] and found["cause_before"] == ["storage", "storage", None]

"""The timeline of a GPU, as rows of bars and in words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.answer import answered
from loaderprobe.analyze.gpu import read_window
from loaderprobe.records.measurement import Rejected, Timeline
from loaderprobe.records.report import Report
from loaderprobe.records.resources import MOMENTS
from loaderprobe.records.verdict import TimelineView
from loaderprobe.render.document import Chart, Table
from loaderprobe.render.gpu import common_length_ns, timelines_chart, typical_begin_ns, window_parts
from loaderprobe.render.groups import groups
from loaderprobe.render.pages import chart_html
from tests.analyze.runs import Cost, alike, run
from tests.examples import timelines
from tests.examples.reports import example_report, with_changes
from tests.pages import html_report
from tests.render.test_html import Page

MS = 1_000_000
MOMENT_NAMES = {moment.name for moment in MOMENTS.values()}
EVIL = '<script>alert("1")</script>'


def seen(timeline: Timeline) -> Any:
    return read_window(run(alike(baseline=800, warm=800), Cost(), facts={"timeline": timeline}))


def drawn(timeline: Timeline) -> TimelineView:
    view = seen(timeline).view
    assert isinstance(view, TimelineView)
    return view


def with_windows(*made: Timeline) -> Report:
    """The example, in which the first so many rows of 500x375 were profiled."""
    report = example_report()
    chosen = [r for r in report.summary.configurations if r.config.resolution == "500x375" and r.status == "measured"]
    # The example has two worker counts on each device; here they are one device with as many counts as windows.
    rows = tuple(
        with_changes(chosen[0], workers=2 * number, prefetch_factor=2, gpu_window=seen(each).window)
        for number, each in enumerate(made)
    )
    details = tuple(
        replace(report.details[0], key=row.key, view=seen(each).view) for row, each in zip(rows, made, strict=True)
    )
    return answered(replace(report, summary=replace(report.summary, configurations=rows), details=details))


def areas(chart: Chart) -> dict[str, float]:
    """Time of each part of the device's time."""
    parts = {row.bars[0].tone: row for row in chart.rows if row.bars and row.bars[0].tone in MOMENT_NAMES}
    return {name: sum(bar.end - bar.begin for bar in row.bars) for name, row in parts.items()}


@pytest.mark.parametrize(
    ("timeline", "cause", "share"),
    [
        (timelines.starved(), "input", 0.6),
        (timelines.launch_bound(), "host", 0.67),
        (timelines.copied_pageable(), "copy", 0.4),
    ],
)
def test_areas_are_shares_of_time(timeline: Timeline, cause: str, share: float) -> None:
    """Whether a gap is hundreds of columns wide or a tenth of one, its area is right."""
    view = drawn(timeline)
    found = areas(timelines_chart([("", view)], view.window_ns))
    assert found[cause] / sum(found.values()) == pytest.approx(share, abs=0.03)


def test_a_view_is_small_and_escaped() -> None:
    """Few marks even for thousands of kernels, and nothing of a name acts."""
    view = drawn(timelines.launch_bound(100))
    for length_ns in (view.window_ns, view.window_ns // 100, 40_000):
        html = chart_html(timelines_chart([(EVIL, view)], length_ns))
        assert html.count("<rect") < 300 and len(html) < 60_000
        assert not re.search(r"http|<script|href", html)


def test_wide_gaps_carry_their_letter() -> None:
    """Printed without colour, a gap is still known by its letter."""
    html = chart_html(timelines_chart([("", drawn(timelines.starved()))], 125 * MS))
    assert {"C", "I"} == set(re.findall(r">([A-Z])</text>", html))


def test_hidden_waits_and_copies_are_drawn_but_not_as_gaps() -> None:
    """They have rows of their own."""
    chart = timelines_chart([("", drawn(timelines.copied_beside()))], 50 * MS)
    assert [row.label for row in chart.rows][-2:] == ["training thread in next()", "copies, hidden or not"]
    assert not {"input", "copy"} & set(areas(chart))


def test_all_share_an_axis_that_fits_a_step_of_the_slowest() -> None:
    """A step of 100 ms and one of 40 ms are drawn on 125 ms; a window that is much shorter holds that down."""
    slow, fast = drawn(timelines.starved()), drawn(timelines.compute_bound())
    assert common_length_ns([slow, fast]) == 125 * MS
    assert common_length_ns([slow, drawn(timelines.launch_bound(1))]) == 16 * MS


def test_the_stretch_shown_is_a_typical_one() -> None:
    """Waits come in bursts: a stretch without any would mislead when half of the time is waiting."""
    script = timelines.TimelineScript(unit_ns=MS)
    for at in range(0, 40, 10):
        script.step(at)
        script.kernel(at, at + 10, 0)
    for at in range(40, 100, 20):
        script.step(at)
        script.wait(at, at + 14)
        script.kernel(at + 14, at + 20, at + 14)
    assert typical_begin_ns(drawn(script.build(100)), 30 * MS) >= 20 * MS


def test_a_window_that_ends_early_is_blank_from_there() -> None:
    """Nothing is drawn for time that was not recorded."""
    view = drawn(timelines.compute_bound(1))
    chart = timelines_chart([("", view)], 80 * MS)
    assert max(bar.end for row in chart.rows for bar in row.bars) <= view.window_ns / MS + 1


def test_three_of_many_are_drawn_and_all_are_in_the_table() -> None:
    """Serial, the middle and the most workers on one axis; the table has every configuration."""
    report = with_windows(*[timelines.starved()] * 5)
    chart, table = window_parts(report, groups(report)[0])
    assert isinstance(chart, Chart)
    names = [row.label for row in chart.rows if row.head]
    assert names == ["serial", "4 workers", "8 workers"]
    assert isinstance(table, Table)
    assert table.head == ("", "serial", "2 workers", "4 workers", "6 workers", "8 workers")


def test_a_refused_window_shows_its_reason_and_nothing_else() -> None:
    """No timeline, no table; the same where records were left out, which is said beside the figures."""
    page = Page(html_report(with_windows(timelines.starved(plain_ns=MS))))
    assert "refused above 5.0 %" in page.text
    assert "training thread in next()" not in page.text
    rejected = (Rejected(reason="no_stamp", count=3),)
    kept = html_report(with_windows(timelines.starved(rejected=rejected)))
    assert "3 records of the profiler left out: without a valid time" in kept

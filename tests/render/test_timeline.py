"""The timeline of a GPU, as rows of bars and in words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from loaderprobe.analyze.answer import answered
from loaderprobe.analyze.gpu import read_window
from loaderprobe.records.measurement import Rejected, Timeline
from loaderprobe.records.report import Report
from loaderprobe.records.verdict import TimelineView
from loaderprobe.render.gpu import timelines_chart
from loaderprobe.render.pages import chart_html
from tests.analyze.runs import Cost, alike, run
from tests.examples import timelines
from tests.examples.reports import example_report, with_changes
from tests.pages import html_report
from tests.render.test_html import Page

MS = 1_000_000
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


def test_a_view_is_small_and_escaped() -> None:
    """Few marks even for thousands of kernels, and nothing of a name acts."""
    view = drawn(timelines.launch_bound(100))
    for length_ns in (view.window_ns, view.window_ns // 100, 40_000):
        html = chart_html(timelines_chart([(EVIL, view)], length_ns))
        assert html.count("<rect") < 300 and len(html) < 60_000
        assert not re.search(r"http|<script|href", html)


def test_a_refused_window_shows_its_reason_and_nothing_else() -> None:
    """No timeline, no table; the same where records were left out, which is said beside the figures."""
    page = Page(html_report(with_windows(timelines.starved(plain_ns=MS))))
    assert "refused above 5.0 %" in page.text
    assert "training thread in next()" not in page.text
    rejected = (Rejected(reason="no_stamp", count=3),)
    kept = html_report(with_windows(timelines.starved(rejected=rejected)))
    assert "3 records of the profiler left out: without a valid time" in kept

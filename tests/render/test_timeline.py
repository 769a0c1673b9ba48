"""The timeline of a GPU, as an image and in words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from loaderprobe.analyze.answer import answered
from loaderprobe.analyze.gpu import read_window
from loaderprobe.records.measurement import Rejected, Timeline
from loaderprobe.records.report import Report
from loaderprobe.records.verdict import TimelineView
from loaderprobe.render.document import Table
from loaderprobe.render.gpu import common_length_ns, timeline_chart, typical_begin_ns, window_exhibits, window_parts
from loaderprobe.render.groups import groups
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


def areas(svg: str) -> dict[str, float]:
    """Square pixels of each part of the GPU's row."""
    found = {}
    for name, path in re.findall(r'<path class="(\w+)"[^>]* d="(M[^"]*)"', svg):
        boxes = re.findall(r"M[\d.]+ [\d.]+h(\d+)v([\d.]+)h", path)
        found[name] = sum(int(width) * float(height) for width, height in boxes)
    return found


@pytest.mark.parametrize(
    ("timeline", "cause", "share"),
    [
        (timelines.starved(), "input", 0.6),
        (timelines.launch_bound(), "launch", 0.67),
        (timelines.copied_pageable(), "copy", 0.4),
    ],
)
def test_areas_are_shares_of_time(timeline: Timeline, cause: str, share: float) -> None:
    """Whether a gap is hundreds of columns wide or a tenth of one, its area is right."""
    view = drawn(timeline)
    found = areas(timeline_chart(view, "", view.window_ns))
    assert found[cause] / sum(found.values()) == pytest.approx(share, abs=0.03)


def test_a_view_is_well_formed_and_small() -> None:
    """XML without addresses, and few elements even for thousands of kernels."""
    view = drawn(timelines.launch_bound(100))
    for length_ns in (view.window_ns, view.window_ns // 100, 40_000):
        svg = timeline_chart(view, EVIL, length_ns)
        assert len(list(ElementTree.fromstring(svg).iter())) < 300
        assert len(svg) < 60_000
        assert not re.search(r"http|url\(|<script|href", svg)


def test_wide_gaps_carry_their_letter() -> None:
    """Printed without colour, a gap is still known by its letter."""
    svg = timeline_chart(drawn(timelines.starved()), "", 125 * MS)
    assert sorted(re.findall(r">([A-Z])</text>", svg)) == ["C", "I", "I"]


def test_hidden_waits_and_copies_are_drawn_but_not_as_gaps() -> None:
    """They have thin rows of their own."""
    svg = timeline_chart(drawn(timelines.copied_beside()), "", 50 * MS)
    assert svg.count('class="lane"') == 2
    assert not {"input", "copy"} & set(areas(svg))


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
    """Nothing is drawn, not even the background, for time that was not recorded."""
    svg = timeline_chart(drawn(timelines.compute_bound(1)), "", 80 * MS)
    assert 'width="150" height="68"' in svg


def test_three_of_many_are_drawn_and_all_are_in_the_table() -> None:
    """Serial, the middle and the most workers beside each other; the table has every configuration."""
    report = with_windows(*[timelines.starved()] * 5)
    (found,) = window_exhibits(report, groups(report)[0])
    names = [label.removeprefix("GPU timeline of ") for label, _ in found.figures]
    assert names == ["500x375, serial", "500x375, 4 workers", "500x375, 8 workers"]
    (table,) = window_parts(groups(report)[0])
    assert isinstance(table, Table)
    assert table.head == ("", "serial", "2 workers", "4 workers", "6 workers", "8 workers")


def test_a_refused_window_shows_its_reason_and_nothing_else() -> None:
    """No timeline, no table; the same where records were left out, which is said beside the figures."""
    page = Page(html_report(with_windows(timelines.starved(plain_ns=MS))))
    assert "refused above 5.0 %" in page.text
    assert not any(value.startswith("GPU timeline of") for _, value in page.attributes)
    rejected = (Rejected(reason="no_stamp", count=3),)
    kept = html_report(with_windows(timelines.starved(rejected=rejected)))
    assert "3 records of the profiler left out: without a valid time" in kept

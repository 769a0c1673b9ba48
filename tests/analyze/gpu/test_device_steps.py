from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.gpu import gpu_figures, step_figures, why_no_counters
from loaderprobe.records.measurement import Segment
from tests.analyze.gpu.test_counters import _measurement, _segment

MS = 1_000_000


def _timed(*pairs: tuple[int, int]) -> Segment:
    """Steps that the device began and ended at these milliseconds."""
    begun, ended = zip(*pairs, strict=True)
    return replace(
        _segment(0, 1), device_begin_ns=tuple(at * MS for at in begun), finished_ns=tuple(at * MS for at in ended)
    )


def test_the_wait_is_what_lies_between_two_steps() -> None:
    """Steps of 10 ms with pauses of 0, 30 and 10: a wait of 40 in 80 ms, and none before the first step."""
    found = step_figures([_timed((100, 110), (110, 120), (150, 160), (170, 180))])
    assert found["exposed_wait_fraction"] == pytest.approx(40 / 80)
    assert [found["step_ms_p50"], found["step_ms_p95"]] == [pytest.approx(10)] * 2
    assert found["exposed_wait_ms_p50"] == pytest.approx(10)


def test_pauses_between_segments_are_no_wait() -> None:
    """Two segments far apart, each without a pause, have no wait."""
    found = step_figures([_timed((0, 10), (10, 20)), _timed((900, 910), (910, 920))])
    assert found["exposed_wait_fraction"] == 0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=2, max_size=20), st.integers(2, 9))
def test_a_slower_clock_changes_no_share(waits_and_steps: list[tuple[int, int]], factor: int) -> None:
    """The share is that of the pauses, and stays when all times are scaled; percentiles scale with them."""
    at, pairs = 0, []
    for wait, step in waits_and_steps:
        pairs.append((at + wait, at + wait + step))
        at += wait + step
    found = step_figures([_timed(*pairs)])
    slower = step_figures([_timed(*((begin * factor, end * factor) for begin, end in pairs))])
    paused = sum(wait for wait, _ in waits_and_steps[1:])
    assert found["exposed_wait_fraction"] == pytest.approx(paused / (pairs[-1][1] - pairs[0][0]))
    assert slower["exposed_wait_fraction"] == pytest.approx(found["exposed_wait_fraction"])
    assert slower["step_ms_p95"] == pytest.approx(factor * float(found["step_ms_p95"]))


def test_a_device_without_events_has_no_figures() -> None:
    """Neither a CPU nor a single step shows waits."""
    assert step_figures([_segment(0, 1)]) == {}
    assert step_figures([_timed((0, 10))]) == {}


def test_events_are_shown_where_no_counter_can_be_read() -> None:
    """Without NVML the steps of the device are still reported, and the reason for the rest beside them."""
    found = gpu_figures(_measurement(), [_timed((0, 10), (20, 30))])
    assert found["exposed_wait_ms_p50"] == pytest.approx(10)
    assert why_no_counters(_measurement(), found) == {}

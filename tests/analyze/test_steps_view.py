"""The steps of training as stretches of time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from loaderprobe.analyze.report import MOST_STEPS, steps_view
from loaderprobe.records.measurement import segments_of
from loaderprobe.records.verdict import Stretches
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth


def total(ranges: Stretches) -> int:
    return sum(end - begin for begin, end in ranges)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_emulated_device_is_busy_for_its_specified_steps(workers: int) -> None:
    """Each lasts the batch over the specified rate, and none overlaps; idle is what lies in `next()` and in no step."""
    measurement = measured(Truth(compute=1000.0), workers)
    view = steps_view(measurement)
    segment = segments_of(measurement, "baseline", "training")[-1]
    assert view is not None
    busy, idle = view.parts["compute"], view.parts["input"]
    # The first step may have begun before the segment.
    assert segment.steps - 1 <= total(busy) / (segment.batch_size / 1000.0 * 1e9) <= segment.steps
    assert all(before[1] <= after[0] for before, after in pairwise(busy))
    assert total(busy) + total(idle) <= view.window_ns and total(idle) <= total(view.waits)
    assert steps_view(replace(measurement, compute=replace(measurement.compute, name="none"))) is None


def test_long_segments_are_cut() -> None:
    """No more steps are drawn than can be seen."""
    measurement = measured(Truth(compute=1000.0), 0)
    segments = [
        replace(each, **_repeated(each.begin_ns, each.closed_ns)) if each.activity == "training" else each
        for each in measurement.segments
    ]
    view = steps_view(replace(measurement, segments=tuple(segments)))
    assert view is not None and len(view.step_begin_ns) == MOST_STEPS


def _repeated(begin_ns: tuple[int, ...], closed_ns: int) -> dict[str, Any]:
    """Columns of 1,000 steps of 10 us between two times."""
    begins = tuple(begin_ns[0] + 10_000 * number for number in range(1000))
    return {
        "begin_ns": begins, "ready_ns": tuple(at + 2_000 for at in begins),
        "copied_ns": tuple(at + 3_000 for at in begins), "end_ns": tuple(at + 9_000 for at in begins),
        "finished_ns": tuple(at + 9_000 for at in begins), "device_begin_ns": (),
        "closed_ns": max(closed_ns, begins[-1] + 10_000),
    }  # fmt: skip

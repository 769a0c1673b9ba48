"""What a profiler window may be believed, and what the verdict takes from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.analyze.gpu import disagreement, overhead_of, read_window, syncs_per_step, why_refused
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.report import build_report
from loaderprobe.analyze.verdict.rule import with_gaps
from loaderprobe.records.measurement import Measurement, Missing, Rejected, Timeline
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.verdict import TIME_PARTS, Bound, Gaps, GpuWindow, Reason
from loaderprobe.render.words import remark_words
from loaderprobe.testing import example_environment
from tests.analyze.runs import FILES, Cost, alike, run
from tests.examples import timelines

BY_RATES = Reason(code="largest_speedup", facts={})
WINDOW_NS = timelines.STEPS * 40_000_000
shares = st.lists(st.integers(0, 1000), min_size=9, max_size=9).filter(lambda parts: sum(parts) > 0)


def profiled(timeline: Timeline | None, *, training: float = 800, loader: float = 3000, **facts: Any) -> Measurement:
    """Three quiet rounds against a device that does 800 images/s alone, and one window."""
    rounds = alike(baseline=loader, training=training, warm=loader, resident=800)
    return run(rounds, Cost(), facts={"timeline": timeline, **facts}, workers=2)


def bound(measurement: Measurement) -> Bound:
    return verdict(measurement).bound


def window(parts: list[int], **changes: Any) -> GpuWindow:
    """Busy time first, then the causes."""
    names = ("compute", "input", "copy", "loader", "sync", "launch", "device", "unknown", "communication")
    values = {f"{name}_ns": value for name, value in zip(names, parts, strict=True)}
    gaps = Gaps(steps=40, window_ns=sum(parts), pageable_ns=0, **values)
    return replace(
        GpuWindow(device="", steps=40, profiler_overhead=0.0, gaps=gaps, use=None, refused=None), **changes
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"plain_ns": round(WINDOW_NS / 1.06)}, "slowed the steps by 6.0 %, refused above 5.0 %"),
        ({"plain_ns": 0}, "not timed without"),
        ({"launches_without_record": 3}, "1.5 % of the launches left no record of a kernel, refused above 1.0 %"),
        ({"clock_shift_ns": -67_000}, "moved by 67 us while the profiler ran, refused above 66 us"),
        ({"end_ns": 0}, "empty"),
    ],
)
def test_a_window_that_cannot_be_believed_is_refused(changes: dict[str, Any], reason: str) -> None:
    """Each refusal says what was found and where the limit lies."""
    refused = why_refused(timelines.compute_bound(**changes))
    assert refused and reason in remark_words(refused)


@pytest.mark.parametrize(
    "changes",
    [{}, {"plain_ns": round(WINDOW_NS / 1.04)}, {"launches_without_record": 2}, {"clock_shift_ns": 65_000}],
)
def test_a_window_within_the_limits_is_not(changes: dict[str, Any]) -> None:
    """A little overhead, loss or drift is no reason."""
    assert why_refused(timelines.compute_bound(**changes)) is None


def test_launches_without_any_kernel_name_the_usual_reasons() -> None:
    """Another profiler and WSL both leave launches and nothing else."""
    script = timelines.TimelineScript()
    script.copy(0, 10, 0)
    assert why_refused(script.build(100)) == Remark(code="kernels_not_seen", facts={"launches": 1.0})
    assert why_refused(timelines.TimelineScript().build(100)) == Remark(code="no_kernel_launched")


def test_the_overhead_is_against_steps_without_the_profiler() -> None:
    """A window of 1.1 times their time is 10 % of overhead; not known without them."""
    assert overhead_of(timelines.compute_bound(plain_ns=round(WINDOW_NS / 1.1))) == pytest.approx(0.1)
    assert overhead_of(timelines.compute_bound(plain_ns=0)) is None


def test_refused_figures_are_nowhere() -> None:
    """A refused window has its reason in the summary, and neither figures nor a timeline."""
    seen = read_window(profiled(timelines.starved(plain_ns=10**9)))
    assert seen.window
    assert (seen.window.gaps, seen.window.use, seen.view) == (None, None, None)
    assert seen.missing == {"gpu_window": seen.window.refused}


def test_without_a_window_the_reason_is_that_of_the_measurement() -> None:
    """No timeline: the recorded reason, and in old runs, which record none, not a word."""
    missing = (Missing(name="gpu_timeline", reason=reported("CUDA is not available")),)
    assert verdict(profiled(None, missing=missing)).unavailable["gpu_window"] == reported("CUDA is not available")
    assert "gpu_window" not in verdict(profiled(None)).unavailable


def test_a_window_shorter_than_the_queue_is_doubted() -> None:
    """Two workers with 2 batches ahead: under 8 steps may all come from batches that were ready."""
    enough, short = (read_window(profiled(timelines.compute_bound(steps))).window for steps in (8, 7))
    assert enough
    assert short
    assert enough.doubts == ()
    assert short.doubts == (Remark(code="window_too_short", facts={"steps": 7.0, "ahead": 4.0}),)


def test_gaps_and_rates_must_agree() -> None:
    """Idle for input for 62 % of the time is training at 38 % of what compute can do, give or take 10 %."""
    gaps = window([38, 60, 2, 0, 0, 0, 0, 0, 0]).gaps
    assert gaps
    assert disagreement(gaps, 0.38) is disagreement(gaps, 0.47) is None
    found = disagreement(gaps, 0.49)
    assert found and found.code == "gaps_disagree"
    assert found.facts == {"idle_by_gaps": pytest.approx(0.62), "idle_by_rates": pytest.approx(0.51)}
    assert disagreement(gaps, None) == Remark(code="gaps_not_checked")


def test_the_measured_exchange_of_gradients_keeps_its_name() -> None:
    """Leaving it out of the steps has shown it: one window says no more."""
    measured = Bound(side="compute", cause="gradients", candidates=(), reason=BY_RATES, evidence=())
    assert with_gaps(measured, window([20, 0, 0, 0, 0, 0, 0, 0, 80])) is measured


def syncs(*calls: tuple[str, int, int]) -> float:
    """Of one step that makes these calls (what, begin, end), and then the window's own wait."""
    script = timelines.TimelineScript()
    script.kernel(0, 900, 0)
    for what, begin, end in calls:
        if what == "sync":
            script.sync(begin, end)
        elif what == "kernel":
            script.kernel(end, end + 1, begin)
        else:
            kind: Any = what
            script.copy(end - 2, end - 1, begin, kind=kind, pageable=True, blocked_until=end)
    script.sync(990, 1000)
    return syncs_per_step(script.build(1000))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], 0),
        ([("sync", 100, 200)], 1),
        ([("d2h", 100, 200), ("sync", 201, 203)], 1),
        ([("h2d", 100, 200), ("sync", 201, 203)], 1),
        ([("d2h", 100, 200), ("sync", 201, 203), ("sync", 204, 206)], 2),
        ([("d2h", 100, 200), ("kernel", 201, 202), ("sync", 203, 205)], 2),
        ([("d2h", 100, 200), ("sync", 201, 203), ("h2d", 300, 350), ("sync", 351, 353)], 2),
    ],
    ids=["none", "plain", "item", "pageable copy", "item and more", "work between", "both"],
)
def test_a_copy_and_the_wait_right_behind_it_are_one_sync(calls: list[tuple[str, int, int]], expected: int) -> None:
    """As PyTorch makes blocking copies, in either direction; the window's own wait at its end is not counted."""
    assert syncs(*calls) == expected


@pytest.mark.parametrize(
    ("timeline", "training"),
    [
        (timelines.launch_bound(plain_ns=10**6), 800),
        (timelines.launch_bound(7), 800),
        (timelines.copied_pageable(), 800),
        (timelines.compute_bound(), 800),
    ],
    ids=["refused", "too short", "disagrees", "busy"],
)
def test_a_window_in_doubt_changes_no_verdict(timeline: Timeline, training: float) -> None:
    """Refused, too short, at odds with the rates, or without idle time: the verdict is that of the rates."""
    assert bound(profiled(timeline, training=training)) == bound(profiled(None, training=training))


def test_an_input_that_rates_name_is_not_overruled() -> None:
    """The experiment comes first."""
    slow = profiled(timelines.copied_pageable(), training=480, loader=480)
    assert bound(slow) == bound(profiled(None, training=480, loader=480))
    assert bound(slow).side == "input"


@settings(max_examples=80)
@given(
    shares, st.sampled_from(("compute", "balanced", "inconclusive", "input")), st.sampled_from(("", "refused", "doubt"))
)
def test_the_cause_is_the_largest_idle_part_or_that_of_the_rates(parts: list[int], side: Any, trouble: str) -> None:
    """Copy, host and communication come from the gaps alone; with a doubt, a refusal or an input nothing changes."""
    by_rates = Bound(
        side=side, cause=side if side != "input" else "storage", candidates=(), reason=BY_RATES, evidence=()
    )
    changes: dict[str, Any] = {
        "refused": {"gaps": None, "refused": reported("why")},
        "doubt": {"doubts": (reported("why"),)},
    }
    found = with_gaps(by_rates, window(parts, **changes.get(trouble, {})))
    compute, waiting, copying, loading, sync, launch, device, unknown, exchanging = parts
    if found == by_rates:
        return
    assert not trouble
    assert side != "input"
    idle = {("copy", "input"): copying, ("host", "compute"): sync + launch, ("communication", "compute"): exchanging}
    largest = idle[found.cause, found.side]
    # Copies may lead together with the rest of the input, of which they are most.
    assert largest >= 0.9 * max(idle.values())
    assert largest >= 1.5 * (waiting + loading) - 1e-6
    assert sum(parts) - compute - device - unknown >= device + unknown
    assert largest >= 0.1 * sum(parts)


def test_a_judgement_without_a_window_is_the_same() -> None:
    """Everything that was judged before there were windows is judged as before."""
    for judgement in (
        Bound(side="compute", cause="compute", candidates=(), reason=BY_RATES, evidence=()),
        Bound(side="inconclusive", cause="either", candidates=(), reason=BY_RATES, evidence=()),
    ):
        assert with_gaps(judgement, None) is judgement


def test_the_report_carries_figures_and_timeline() -> None:
    """The row has shares that sum to 1, the detail the same time as stretches."""
    rejected = (Rejected(reason="no_stamp", count=3),)
    made = profiled(timelines.starved(rejected=rejected), training=320, loader=320)
    report = build_report(
        name="", created_utc="", command="", environment=example_environment(), files=[FILES],
        results=[(made.config, made)], ceilings={},
    )  # fmt: skip
    row, detail = report.summary.configurations[0], report.details[0]
    assert row.gpu_window
    assert row.gpu_window.gaps
    assert detail.view
    assert row.gpu_window.rejected == rejected
    drawn = {part: sum(high - low for low, high in ranges) for part, ranges in detail.view.parts.items()}
    assert drawn == {part: row.gpu_window.gaps.of(part) for part in TIME_PARTS}
    assert detail.view.parts["compute"][0][0] == 62_200_000

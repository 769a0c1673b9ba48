"""Scripted windows with a known cause: read from a file of the profiler and recorded live, they are judged alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import loaderprobe
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rule import judged_by_gaps
from loaderprobe.records.measurement import Timeline
from loaderprobe.records.verdict import TIME_PARTS, GapCause, Gaps
from tests.analyze.runs import Cost, alike, run
from tests.examples import timelines
from tests.examples.timelines import TimelineScript
from tests.examples.traces import NEXT, event, written


class Case(NamedTuple):
    """A window, the share of what takes most of its idle time, and the verdicts."""

    timeline: Timeline
    gap: GapCause
    share: float
    """Of the window, by that gap."""
    recorded: tuple[str, str]
    """Side and cause by the gaps alone."""
    live: tuple[str, str]
    """Side and cause beside rates."""
    training: float = 800
    """Images/s beside compute alone at 800 and the loader at 3000."""
    loader: float = 3000


def stepped(length: int, draw: Any) -> Timeline:
    """A window of `timelines.STEPS` steps of so many microseconds."""
    script = TimelineScript()
    for at in range(0, timelines.STEPS * length, length):
        script.step(at)
        draw(script, at)
    return script.build(timelines.STEPS * length)


def exchanging(script: TimelineScript, at: int) -> None:
    """Communication for 25 of 40 ms that nothing runs beside."""
    script.kernel(at, at + 15_000, max(0, at - 100))
    script.kernel(at + 10_000, at + 39_990, at + 5_000, exchange=True, stream=20)


def synchronized(script: TimelineScript, at: int) -> None:
    """The host waits for the device in each step, and launches half a step later."""
    script.kernel(at + 300, at + 800, at + 290)
    script.sync(at + 310, at + 810)


def decoding(script: TimelineScript, at: int) -> None:
    """The loader decodes on the device inside next() for 15 of 40 ms."""
    script.wait(at, at + 15_000)
    script.kernel(at + 10, at + 15_000, at + 5, loader=True, stream=13)
    script.kernel(at + 15_010, at + 39_990, at + 15_005)


def torn(script: TimelineScript, at: int) -> None:
    """A wait for input of 8 ms, and a host that then takes 7 to launch."""
    script.wait(at, at + 8_000)
    script.kernel(at + 15_000, at + 39_990, at + 14_999)


CASES = {
    "starved": Case(timelines.starved(), "input", 0.6, ("input", "input"), ("input", "either"), 304, 304),
    "launch-bound": Case(timelines.launch_bound(), "launch", 0.67, ("compute", "host"), ("compute", "host")),
    "pageable copies": Case(timelines.copied_pageable(), "copy", 0.4, ("input", "copy"), ("input", "copy"), 480),
    "CUDA graph": Case(timelines.as_graph(), "launch", 0.097, ("compute", "compute"), ("compute", "compute")),
    "syncs": Case(stepped(1_000, synchronized), "sync", 0.473, ("compute", "host"), ("compute", "host")),
    "communication": Case(
        stepped(40_000, exchanging), "communication", 0.625, ("compute", "communication"), ("compute", "communication")
    ),
    "decoding on the device": Case(
        stepped(40_000, decoding), "loader", 0.375, ("input", "input"), ("inconclusive", "inconclusive"), 500
    ),
    "input and host": Case(
        stepped(40_000, torn), "input", 0.2, ("balanced", "either"), ("inconclusive", "inconclusive"), 640
    ),
    "compute-bound": Case(timelines.compute_bound(), "device", 0.0, ("compute", "compute"), ("compute", "compute")),
    "copies beside": Case(timelines.copied_beside(), "device", 0.0, ("compute", "compute"), ("compute", "compute")),
}
EACH_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def as_file(timeline: Timeline, path: Path) -> Path:
    """The same as torch.profiler writes it."""

    def span(cat: str, name: str, begin: int, end: int, **details: Any) -> dict[str, Any]:
        return event(cat, name, (begin - timeline.begin_ns) / 1e3 + 1e6, (end - begin) / 1e3, **details)

    records, calls, names = timeline.records, timeline.calls, timeline.names
    steps = (*timeline.step_begin_ns, timeline.end_ns)
    events = [
        span("user_annotation", f"ProfilerStep#{number}", steps[number], steps[number + 1])
        for number in range(len(steps) - 1)
    ]
    waits = zip(timeline.wait_begin_ns, timeline.wait_end_ns, strict=True)
    events += [span("user_annotation", NEXT, begin, end) for begin, end in waits]
    for i, kind in enumerate(records.kind):
        where = {"device": 0, "stream": records.stream[i], "correlation": records.correlation[i]}
        cat = "kernel" if kind == "kernel" else "gpu_memcpy"
        events.append(span(cat, names[records.name[i]], records.begin_ns[i], records.end_ns[i], **where))
    for i, number in enumerate(calls.correlation):
        # A copy that blocks is one call, which both issues and waits.
        if calls.kind[i] == "launch" or number not in records.correlation:
            name = names[calls.name[i]]
            events.append(span("cuda_runtime", name, calls.begin_ns[i], calls.end_ns[i], correlation=number))
    return written(path, events)


@EACH_CASE
def test_a_recorded_window_has_its_cause(case: Case, tmp_path: Path) -> None:
    """Read from a file: the gap that was planted takes most of the idle time, and the verdict follows."""
    found = loaderprobe.trace(as_file(case.timeline, tmp_path / "t.json"))
    assert found.gaps.share(case.gap) == pytest.approx(case.share, abs=0.01)
    assert (found.bound.side, found.bound.cause, found.bound.how) == (*case.recorded, "estimated")
    assert bool(found.bound.candidates) == (found.bound.cause == "either")
    if found.bound.cause not in ("compute", "either"):
        assert found.bound.gap == case.gap


@EACH_CASE
def test_a_live_window_has_its_cause(case: Case) -> None:
    """The same split and the same judge; but what rates show goes before, and input has more names."""
    rounds = alike(baseline=case.loader, training=case.training, warm=3000, resident=800)
    found = verdict(run(rounds, Cost(), facts={"timeline": case.timeline}, workers=2))
    assert (found.bound.side, found.bound.cause) == case.live
    named = found.bound.reason.code == "device_idle"
    assert named == (case.live in {("compute", "host"), ("input", "copy"), ("compute", "communication")})
    if named:
        shares = [float(value) for name, value in found.bound.reason.facts.items() if name.endswith("_share")]
        assert max(shares) == pytest.approx(case.share, abs=0.01)
        assert f"gpu_window.gaps.{case.gap}_ns" in [each.metric for each in found.bound.evidence]
    assert found.bound.reason.facts.get("copies_from") == ("pageable memory" if case.gap == "copy" else None)


@pytest.mark.parametrize(
    ("percent", "side", "cause"),
    [
        ({"input": 34, "launch": 9}, "input", "input"),
        ({"copy": 16, "input": 10}, "input", "copy"),
        ({"copy": 14, "input": 10}, "input", "input"),
        ({"loader": 20, "copy": 15}, "input", "input"),
        ({"launch": 20, "input": 5}, "compute", "host"),
        ({"launch": 16, "input": 10}, "compute", "host"),
        ({"launch": 14, "input": 10}, "balanced", "either"),
        ({"launch": 20, "input": 12, "copy": 5}, "balanced", "either"),
        ({"launch": 27, "input": 12, "copy": 5}, "compute", "host"),
        ({"launch": 20, "communication": 18}, "compute", "either"),
        ({"launch": 20, "communication": 18, "loader": 15}, "balanced", "either"),
        ({"communication": 30, "launch": 10}, "compute", "communication"),
        ({"launch": 9, "input": 9}, "compute", "compute"),
        ({"launch": 10}, "compute", "host"),
        ({"unknown": 50, "launch": 40}, "inconclusive", "inconclusive"),
        ({"unknown": 40, "launch": 40}, "compute", "host"),
        ({"device": 11, "launch": 5}, "inconclusive", "inconclusive"),
        ({"device": 9, "launch": 5}, "compute", "compute"),
    ],
)
def test_the_largest_side_is_the_verdict(percent: dict[str, int], side: str, cause: str) -> None:
    """From 10 % of the time on, and by a factor of 1.5; what is not known outweighs a smaller side."""
    parts = {f"{part}_ns": percent.get(part, 0) for part in TIME_PARTS}
    parts["compute_ns"] = 100 - sum(percent.values())
    found = judged_by_gaps(Gaps(steps=1, window_ns=100, pageable_ns=0, **parts))
    assert (found.side, found.cause) == (side, cause)

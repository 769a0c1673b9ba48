"""What a profiler window shows: of known causes, to the verdict, by counters, and by a label for each nanosecond."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loaderprobe.analyze.gpu import (
    attribute,
    checked_against_rates,
    gpu_figures,
    read_window,
    step_figures,
    total,
    use_of,
    why_no_counters,
    why_no_window,
    without_profiler,
)
from loaderprobe.analyze.verdict.judge import judged_by_gaps, verdict, with_gaps
from loaderprobe.analyze.verdict.rates import rates_by_round
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import DeviceKind, Measurement, Missing, Segment, Series, Timeline
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.resources import TIME_PARTS, GapCause
from loaderprobe.records.verdict import Bound, Cause, Gaps, GpuWindow, Reason, Side
from loaderprobe.store.codec import decode
from tests.analyze.runs import BATCH, Cost, alike, run, segment, with_read
from tests.analyze.scripted import Truth, measured
from tests.examples import timelines
from tests.examples.timelines import TimelineScript

WINDOW_NS = timelines.STEPS * 40_000_000


def profiled(timeline: Timeline | None, *, training: float = 800, loader: float = 3000, **facts: Any) -> Measurement:
    """Three quiet rounds against a device that does 800 images/s alone, and one window."""
    rounds = alike(baseline=loader, training=training, warm=3000, resident=800)
    return run(rounds, Cost(), facts={"timeline": timeline, **facts}, workers=2)


def window(parts: list[int]) -> GpuWindow:
    """Busy time first, then the causes."""
    names = ("compute", "input", "copy", "loader", "sync", "launch", "device", "unknown", "communication")
    values = {f"{name}_ns": value for name, value in zip(names, parts, strict=True)}
    gaps = Gaps(steps=40, window_ns=sum(parts), pageable_ns=0, **values)
    return GpuWindow(device="", steps=40, profiler_overhead=0.0, gaps=gaps, use=None, refused=None)


def bare(*kinds: str) -> Timeline:
    """Launches without a kernel, as another profiler and WSL leave them; or none at all."""
    script = TimelineScript()
    return (script.copy(0, 10, 0) if kinds else script).build(100)


def why(code: str, **facts: Any) -> Remark:
    return Remark(code=code, facts=facts)


WINDOWS: dict[str, tuple[Timeline, Remark | None, dict[str, Any]]] = {
    "nothing is wrong": (timelines.compute_bound(), None, {"profiler_overhead": 0.0, "doubts": ()}),
    "4 % slower": (
        timelines.compute_bound(plain_ns=round(WINDOW_NS / 1.04)), None, {"profiler_overhead": pytest.approx(0.04)},
    ),
    "6 % slower": (
        timelines.compute_bound(plain_ns=round(WINDOW_NS / 1.06)),
        why("profiler_slows", cost_fraction=pytest.approx(0.06), most=0.05), {},
    ),
    "by more than launching takes": (
        timelines.launch_bound(plain_ns=22_400_000),
        why("profiler_slows", cost_fraction=pytest.approx(3.6 / 22.4), most=0.05), {},
    ),
    "not timed without": (
        timelines.compute_bound(plain_ns=0), why("steps_not_timed"), {"profiler_overhead": None},
    ),
    "1 % of the launches are lost": (timelines.compute_bound(launches_without_record=2), None, {}),
    "1.5 % are": (
        timelines.compute_bound(launches_without_record=3),
        why("launches_lost", exact_share=pytest.approx(0.015), most=0.01), {},
    ),
    "a clock that moved by 65 us": (timelines.compute_bound(clock_shift_ns=65_000), None, {}),
    "by 67 us": (
        timelines.compute_bound(clock_shift_ns=-67_000),
        why("clock_moved", clock_s=pytest.approx(67e-6), most_s=pytest.approx(66e-6)), {},
    ),
    "empty": (timelines.compute_bound(end_ns=0), why("window_empty"), {}),
    "launches, and no kernel": (bare("h2d"), why("kernels_not_seen", launches=1.0), {}),
    "no launch": (bare(), why("no_kernel_launched"), {}),
    # Two workers with 2 batches ahead: under 8 steps may all come from batches that were ready.
    "as long as the queue": (timelines.compute_bound(8), None, {"doubts": ()}),
    "shorter": (
        timelines.compute_bound(7), None,
        {"doubts": (why("window_too_short", steps=7.0, ahead=4.0),)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_that_cannot_be_believed_is_refused(name: str) -> None:
    """With what was found and where the limit lies; its figures are then nowhere."""
    timeline, refused, figures = WINDOWS[name]
    measurement = profiled(timeline)
    seen, view = read_window(measurement)
    assert seen and seen.refused == refused
    assert {figure: getattr(seen, figure) for figure in figures} == figures
    hidden = (seen.gaps, seen.use, view)
    assert hidden == (None, None, None) if refused else None not in hidden
    assert why_no_window(measurement, seen) == ({"gpu_window": refused} if refused else {})


@pytest.mark.parametrize(
    ("utilization", "code"), [(0.38, None), (0.47, None), (0.49, "gaps_disagree"), (None, "gaps_not_checked")]
)
def test_gaps_and_rates_must_agree(utilization: float | None, code: str | None) -> None:
    """Idle for input for 62 % of the time is training at 38 % of what compute can do, give or take 10 %."""
    found = checked_against_rates(window([38, 60, 2, 0, 0, 0, 0, 0, 0]), utilization)
    assert found and [doubt.code for doubt in found.doubts] == ([code] if code else [])
    if code == "gaps_disagree":
        assert found.doubts[0].facts == {"idle_by_gaps": pytest.approx(0.62), "idle_by_rates": pytest.approx(0.51)}


H100 = Path(__file__).parents[3] / "fixtures" / "measurements" / "h100-500x375-n8.json.gz"


def test_on_an_h100_the_window_says_what_events_counters_and_rates_say() -> None:
    """A window of our own, beside the rounds: NVIDIA H100 80GB, driver 580, torch 2.11, ResNet-50, 8 workers.

    They are of different moments of one configuration, whose rates differed by 10 % from minute to minute.
    """
    measurement = decode("measurement", gzip.decompress(H100.read_bytes()), Measurement, H100.name)
    judged, window = verdict(measurement), read_window(measurement)[0]
    assert window and window.gaps and window.use and not window.rejected
    assert measurement.timeline and measurement.timeline.launches == 26_709
    assert measurement.timeline.launches_without_record == 0 and window.profiler_overhead == pytest.approx(0, abs=0.02)
    busy, counted = window.gaps.share("compute"), {k: v for k, v in judged.gpu.items() if isinstance(v, float)}
    assert counted["graphics_utilization"] == pytest.approx(busy, abs=0.15)
    assert counted["exposed_wait_fraction"] == pytest.approx(1 - busy, abs=0.1)
    assert 0.4 < counted["sm_utilization"] / counted["utilization"] < 1
    trained, alone = (rates_by_round(measurement, mode, "training")[0] for mode in ("baseline", "resident"))
    assert checked_against_rates(window, trained / alone) == window
    assert window.gaps.share("unknown", "launch", "sync", "loader") < 0.002
    assert window.use.occupancy_coverage == 1 and 0.5 < (window.use.occupancy_estimated or 0) < 0.7


LATE_NS = 2_680_000
"""What launching takes of each step of `launch_bound`."""
Window = Callable[[], Timeline]


@pytest.mark.parametrize(
    ("make", "step_cost_ns", "paced"),
    [
        (timelines.launch_bound, 0, False),
        (timelines.launch_bound, LATE_NS // 3, False),
        (timelines.launch_bound, LATE_NS // 3, True),
        (timelines.launch_bound, LATE_NS, False),
        (timelines.starved, 7_000_000, False),
        (timelines.starved, 7_000_000, True),
    ],
)
def test_what_the_profiler_cost_comes_off_launches_and_then_off_the_input(
    make: Window, step_cost_ns: int, paced: bool
) -> None:
    """Kernels take as long with it. Where the loader sets the pace the window is as long, too, and waits are shorter by
    the cost: that time is input. What lies beneath kernels is no gap of launches: the next wait began later by it.

    On an H100 it slowed steps of 16 images by 40 %: the window was busy for 27 % of the time, for 38 % at the pace
    without it, and by NVML's counter for 45 %. Steps of 256 images behind a loader that slept for two of them were
    slowed by 7.5 %, and refused.
    """
    timeline = make()
    cost_ns, whole_ns = timeline.steps * step_cost_ns, timeline.end_ns - timeline.begin_ns
    slower = replace(timeline, plain_ns=whole_ns - cost_ns)
    waited = replace(timeline, plain_wait_ns=timeline.plain_wait_ns + cost_ns)
    before, found = (read_window(profiled(each))[0] for each in (timeline, waited if paced else slower))
    assert before and before.gaps and before.use and found and found.gaps and found.use
    was, now = before.gaps, found.gaps
    gone_ns, issued_ns = 0 if paced else cost_ns, was.launch_ns + was.sync_ns
    assert now.window_ns == whole_ns - gone_ns and now.compute_ns == was.compute_ns
    assert now.launch_ns == max(0, was.launch_ns - cost_ns)
    assert now.launch_ns + now.sync_ns == max(0, issued_ns - cost_ns)
    assert now.input_ns + now.copy_ns == was.input_ns + was.copy_ns + min(cost_ns, issued_ns) - gone_ns
    assert found.use.training_busy == pytest.approx(before.use.training_busy * whole_ns / now.window_ns)
    # What may be noise of a single stretch has copies not lead the rest of the input.
    assert now.copy_ns * was.input_ns <= (1 + 1e-6) * was.copy_ns * now.input_ns
    assert make is not timelines.starved or (found.profiler_overhead or 0.0) > 0.05


@pytest.mark.parametrize("timeline", [timelines.launch_bound(), timelines.copied_pageable()], ids=["host", "copy"])
def test_files_from_memory_show_no_cause_in_gaps(timeline: Timeline) -> None:
    """Cold ones were asked for, and may starve the device before its host is late."""
    found = profiled(timeline)
    warm = verdict(with_read(found, found.worker_batches.batch, 0.0)).bound
    assert (warm.cause, warm.reason.code) == ("inconclusive", "files_were_warm")


@pytest.mark.parametrize(
    ("cause", "parts", "found"),
    [
        ("balanced", [62, 0, 0, 0, 0, 20, 0, 0, 18], "host"),
        ("balanced", [62, 0, 0, 0, 0, 18, 0, 0, 20], "communication"),
        ("balanced", [880, 10, 100, 0, 0, 0, 0, 0, 10], "copy"),
        ("balanced", [885, 10, 95, 0, 0, 0, 0, 0, 10], "balanced"),
        ("gradients", [20, 0, 0, 0, 0, 0, 0, 0, 80], "gradients"),
    ],
)
def test_gaps_name_the_largest_of_their_causes(cause: Cause, parts: list[int], found: str) -> None:
    """Where several are alike, too; from a tenth of the time on. Where the exchange of gradients was left out and
    measured, one window says no more."""
    side: Side = "compute" if cause == "gradients" else "balanced"
    reason = Reason(code="largest_speedup", facts={})
    by_rates = Bound(side=side, cause=cause, candidates=(), reason=reason, evidence=())
    assert with_gaps(by_rates, window(parts)).cause == found


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
    # Whether the device or its host is late is seen in a few steps.
    "launch-bound, in fewer steps than batches are ready": Case(
        timelines.launch_bound(7), "launch", 0.67, ("compute", "host"), ("compute", "host")
    ),
    # Refused, at odds with rates or too short where these name no cause: rates stand.
    "launch-bound, slowed by the profiler": Case(
        timelines.launch_bound(plain_ns=10**6), "launch", 0.67, ("compute", "host"), ("compute", "compute")
    ),
    "launch-bound, and too short for rates that are balanced": Case(
        timelines.launch_bound(7), "launch", 0.67, ("compute", "host"), ("balanced", "balanced"), loader=800
    ),
    "pageable copies, which rates deny": Case(
        timelines.copied_pageable(), "copy", 0.4, ("input", "copy"), ("compute", "compute")
    ),
    "pageable copies, beside a loader that rates name": Case(
        timelines.copied_pageable(), "copy", 0.4, ("input", "copy"), ("input", "either"), 480, 480
    ),
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


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_window_has_its_cause(case: Case) -> None:
    """The gap that was planted takes most of the idle time, and the verdict of a recording follows from it alone. Of a
    live window what rates show goes before, and input has more names."""
    gaps = attribute(case.timeline).gaps_of(case.timeline.steps)
    alone = judged_by_gaps(gaps)
    assert gaps.share(case.gap) == pytest.approx(case.share, abs=0.01)
    assert (alone.side, alone.cause, alone.how) == (*case.recorded, "estimated")
    assert alone.gap == (None if alone.cause in ("compute", "either") else case.gap)
    assert bool(alone.candidates) == (alone.cause == "either")
    found = verdict(profiled(case.timeline, training=case.training, loader=case.loader))
    assert (found.bound.side, found.bound.cause) == case.live
    named = found.bound.reason.code == "device_idle"
    assert named == (case.live in {("compute", "host"), ("input", "copy"), ("compute", "communication")})
    if named:
        shares = [float(value) for name, value in found.bound.reason.facts.items() if name.endswith("_share")]
        assert max(shares) == pytest.approx(case.share, abs=0.01)
        assert f"gpu_window.gaps.{case.gap}_ns" in [each.metric for each in found.bound.evidence]
    assert found.bound.reason.facts.get("copies_from") == ("pageable memory" if named and case.gap == "copy" else None)


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


SECOND, MS = 1_000_000_000, 1_000_000
STEPS = 10


def _segment(begin_s: float, seconds: float) -> Segment:
    """Ten steps of 16 images, beginning and closing at these seconds."""
    rate = STEPS * BATCH / seconds
    return segment(
        "baseline", "training", 0, 0, rate, steps=STEPS, begin_s=begin_s, thread_cpu_ns=0, delivered_bytes=None
    )


def _series(name: str, *readings: tuple[float, float]) -> Series:
    times = tuple(round(seconds * SECOND) for seconds, _ in readings)
    return Series(name=name, unit="", source=f"source of {name}", time_ns=times, values=tuple(v for _, v in readings))


def _missing(reason: Remark, *names: str) -> tuple[Missing, ...]:
    return tuple(Missing(name=f"gpu_{name}", reason=reason) for name in names)


def _timed(*pairs: tuple[int, int], begin: int = 0) -> Segment:
    """Steps that the device began and ended at these milliseconds."""
    begun, ended = zip(*pairs, strict=True)
    return replace(
        _segment(begin / 1000, 1),
        device_begin_ns=tuple(at * MS for at in begun),
        finished_ns=tuple(at * MS for at in ended),
    )


TRAINING = [_segment(10, 1), _segment(20, 1)]
POWER = _series("gpu_power", (10.5, 300.0), (15, 50.0), (20.5, 340.0))


MEASURED = measured(Truth(cpu_s=0.01, compute=1000.0, cores=2.0), 1)
SHARES = ("graphics_utilization", "sm_utilization", "sm_occupancy", "tensor_utilization", "dram_utilization")
NAMES = (*SHARES, "pcie_to_device", "pcie_from_device", "jpeg_utilization")
KEYS = (*SHARES, "pcie_to_device_bytes_per_s", "pcie_from_device_bytes_per_s", "jpeg_utilization")
UTILIZATION = _series("gpu_utilization", (10.5, 0.4))
JOULES = _series("gpu_energy", (10.25, 0.0), (10.75, 100.0))
NO_DRIVER, NO_GPM = reported("the driver is not loaded"), reported("no GPM")
LOST = Remark(code="nvml", facts={"status": 15, "ended_after_s": 3.0})
# Fields of the measurement, the figures, and reasons for those that there are not.
COUNTERS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Remark]]] = {
    "the mean of readings inside the segments, with its source": (
        {"series": [_series("gpu_utilization", (9.9, 0.0), (10.5, 0.4), (15, 0.0), (21, 0.8))]},
        {"utilization": pytest.approx(0.6), "source": "source of gpu_utilization"}, {},
    ),
    # GPM's reading belongs to the time since the one before.
    "of averages only those wholly inside, by their length": (
        {"series": [
            _series("gpu_sm_occupancy", (9.9, 0.0), (10.1, 9.0), (10.3, 0.2), (10.9, 0.4), (20.1, 9.0), (20.3, 0.6)),
        ]},
        {"sm_occupancy": pytest.approx((0.2 * 0.2 + 0.6 * 0.4 + 0.2 * 0.6) / 1.0)}, {},
    ),
    "a single average in a segment is no figure, never 0": (
        {"series": [_series("gpu_sm_occupancy", (9.9, 0.1), (10.1, 0.9))]}, {},
        {"gpu": Remark(code="no_reading_in_training")},
    ),
    "each series of the sampler under its key": (
        {"series": [_series(f"gpu_{name}", (10.2, 0.0), (10.4, float(n))) for n, name in enumerate(NAMES, 1)]},
        {key: float(n) for n, key in enumerate(KEYS, 1)}, {},
    ),
    # Pauses between segments cost nothing: 1 s of the 2 s of training, and 160 of its 320 images, took 400 J.
    "joules between readings inside segments, over the images of that time": (
        {"series": [
            _series("gpu_energy", (9, 0.0), (10.25, 1000.0), (10.75, 1160.0), (20.25, 9000.0), (20.75, 9240.0)),
            _series("gpu_power", (10.5, 77.0)),
        ]},
        {"power_w": pytest.approx(400.0), "energy_j_per_image": pytest.approx(400 / 160)}, {},
    ),
    "a counter that stands still is no energy": (
        {"series": [POWER, _series("gpu_energy", (10.2, 5.0), (10.8, 5.0))]}, {"power_w": pytest.approx(320.0)}, {},
    ),
    "nor is one that was reset": (
        {"series": [POWER, _series("gpu_energy", (10.2, 5.0), (10.8, 1.0))]}, {"power_w": pytest.approx(320.0)}, {},
    ),
    "samples that are no images have no energy an image": (
        {"series": [JOULES], "images": False}, {"power_w": pytest.approx(200.0)}, {},
    ),
    # Idleness is no throttling; reasons are in words, known or not.
    "the share of readings with another reason": (
        {"series": [_series("gpu_throttle", (10.1, 1), (10.2, 0), (10.3, 4), (10.4, 0x845), (15, 8))]},
        {"throttled": 0.5, "throttle_reasons": "sw_power_cap, hw_thermal_slowdown, 0x800"}, {},
    ),
    "no other reason": ({"series": [_series("gpu_throttle", (10.1, 1), (10.2, 0))]}, {"throttled": 0.0}, {}),
    "clocks are means, and of other processes the most at once counts": (
        {"series": [
            _series("gpu_sm_clock", (9, 200), (10.1, 1900), (20.1, 1800)), _series("gpu_memory_clock", (10.1, 2600)),
            _series("gpu_other_processes", (9, 5), (10.1, 0), (20.1, 2)),
        ]},
        {"sm_clock_mhz": 1850.0, "memory_clock_mhz": 2600.0, "other_processes": 2}, {},
    ),
    "no reading has the sampler's reason": ({"missing": _missing(NO_DRIVER, "utilization")}, {}, {"gpu": NO_DRIVER}),
    "or there was no sampler": ({}, {}, {"gpu": Remark(code="no_gpu_sampled")}),
    "a GPU without GPM has the rest, and why there is no occupancy": (
        {"series": [UTILIZATION], "missing": (*_missing(NO_GPM, "sm_occupancy"), *_missing(reported("no"), "power"))},
        {"utilization": 0.4, "source": "source of gpu_utilization"}, {"gpu.sm_occupancy": NO_GPM},
    ),
    "a GPU that was lost leaves its figures, and why there are no more of each": (
        {
            "series": [UTILIZATION, _series("gpu_sm_clock", (10.5, 1900))],
            "missing": _missing(LOST, "utilization", "sm_clock"),
        },
        {"utilization": 0.4, "source": "source of gpu_utilization", "sm_clock_mhz": 1900.0},
        {"gpu.utilization": LOST, "gpu.sm_clock_mhz": LOST},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTERS)
def test_readings_inside_training_make_the_figures(name: str) -> None:
    """Of each counter by its own rule, and nothing else; what is missing has its reason."""
    facts, figures, reasons = COUNTERS[name]
    measurement = replace(MEASURED, **{"series": (), "missing": (), **facts})
    found = gpu_figures(measurement, TRAINING)
    assert found == figures
    assert why_no_counters(measurement, found) == reasons


STEPPED: dict[str, tuple[list[Segment], dict[str, Any]]] = {
    # Steps of 10 ms with pauses of 20, 0, 30 and 10: on an H100, 16 workers that began together made one wait of all.
    "what lies before a step": (
        [_timed((20, 30), (30, 40), (70, 80), (90, 100))],
        {
            "exposed_wait_fraction": 60 / 100, "exposed_wait_ms_p50": 15, "exposed_wait_ms_p95": 28.5,
            "step_ms_p50": 10, "step_ms_p95": 10,
        },
    ),
    "pauses between segments are no wait": (
        [_timed((0, 10), (10, 20)), _timed((900, 910), (910, 920), begin=900)], {"exposed_wait_fraction": 0},
    ),
    "no events": ([_segment(0, 1)], {}),
    "a single step": ([_timed((10, 20))], {"exposed_wait_fraction": 0.5}),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPPED)
def test_the_device_waits_between_its_steps(name: str) -> None:
    """By its own events; without them there is no figure."""
    segments, figures = STEPPED[name]
    found = step_figures(segments)
    assert {figure: found[figure] for figure in figures} == pytest.approx(figures)
    assert bool(found) == bool(figures)


def test_on_an_h100_a_starved_window_is_input() -> None:
    """Twelve steps of 256 images behind a loader that sleeps for two: launching takes the time of 64 ms of kernels."""
    stored = Path(__file__).with_name("h100-starved-timeline.json.gz")
    timeline = decode("timeline", gzip.decompress(stored.read_bytes()), Timeline, stored.name)
    split = attribute(timeline).gaps_of(timeline.steps)
    cost_ns = timeline.end_ns - timeline.begin_ns - timeline.plain_ns
    assert cost_ns > 0.08 * timeline.plain_ns and split.launch_ns + split.sync_ns < 0.02 * timeline.plain_ns
    found = without_profiler(split, timeline)
    assert isinstance(found, Gaps)
    assert found.share("input") == pytest.approx(1 - 64.2e6 * timeline.steps / timeline.plain_ns, abs=0.02)
    assert found.share("compute") == pytest.approx(64.2e6 * timeline.steps / timeline.plain_ns, abs=0.02)


END, BEGIN, LATENCY, AFTER_SYNC = 60, 1_000, 4, 6


@st.composite
def windows(draw: st.DrawFn) -> Timeline:
    """Anything at all on two streams in a window of a few nanoseconds, in any order, some of it beyond either end."""
    script = TimelineScript(unit_ns=1, begin_ns=BEGIN)
    times = st.integers(-10, END + 10)

    def span() -> tuple[int, int]:
        low, high = sorted((draw(times), draw(times)))
        return low, high

    for _ in range(draw(st.integers(0, 7))):
        issued = draw(st.none() | times)
        script.kernel(
            *span(), issued, loader=draw(st.booleans()), stream=draw(st.sampled_from((7, 13))),
            graph=draw(st.none() | st.just(99)), returned=issued and issued + draw(st.integers(0, 9)),
            exchange=draw(st.booleans()),
        )  # fmt: skip
    kinds: list[DeviceKind] = ["h2d", "d2h", "d2d", "memset"]
    for _ in range(draw(st.integers(0, 4))):
        (begin, end), (issued, until) = span(), span()
        script.copy(
            begin, end, issued, kind=draw(st.sampled_from(kinds)), pageable=draw(st.booleans()),
            blocked_until=draw(st.sampled_from((None, max(1, until)))),
        )  # fmt: skip
    for _ in range(draw(st.integers(0, 3))):
        script.wait(*span())
        script.sync(*span(), training=draw(st.booleans()))
    made = script.build(END)
    records, calls = (draw(st.permutations(range(len(table.kind)))) for table in (made.records, made.calls))
    return replace(made, records=_ordered(made.records, records), calls=_ordered(made.calls, calls))


def _ordered(table: Any, rows: Sequence[int]) -> Any:
    return replace(table, **{c.name: tuple(getattr(table, c.name)[row] for row in rows) for c in fields(table)})


def labels(timeline: Timeline) -> Counter[str]:
    """Every nanosecond of the window by its own label: the rules again, as plainly as they can be said."""
    found = Counter(_label(timeline, at) for at in range(timeline.begin_ns, timeline.end_ns))
    late = {label: count for label, count in found.items() if label.startswith("late")}
    for label, count in late.items():
        del found[label]
        found["device" if count <= LATENCY else "unknown"] += count
    return found


def _label(timeline: Timeline, at: int) -> str:
    records = timeline.records
    rows = range(len(records.kind))
    exchanges = [i for i in rows if "nccl" in timeline.names[records.name[i]]]
    trains = [i for i in rows if records.kind[i] != "h2d" and not records.loader[i]]
    if _runs(timeline, at, [i for i in trains if i not in exchanges]):
        return "compute"
    if _runs(timeline, at, trains):
        return "communication"
    if _runs(timeline, at, [i for i in rows if records.kind[i] == "h2d"]) or _blocked(timeline, at, staging=True):
        return "copy"
    if _runs(timeline, at, [i for i in rows if records.loader[i]]):
        return "loader"
    end = next((t for t in range(at, timeline.end_ns) if _runs(timeline, t, trains)), timeline.end_ns)
    ended = {records.correlation[i] for i in trains if records.begin_ns[i] == end < records.end_ns[i]}
    calls = zip(timeline.calls.begin_ns, timeline.calls.end_ns, timeline.calls.correlation, strict=True)
    issued = min(((begin, until) for begin, until, number in calls if number in ended), default=None)
    if issued is not None and at >= max(issued):
        return f"late for {end}"
    waiting = any(b <= at < e for b, e in zip(timeline.wait_begin_ns, timeline.wait_end_ns, strict=True))
    if waiting and (issued is None or at < issued[0]):
        return "input"
    if _blocked(timeline, at) or _held_up(timeline, at):
        return "sync"
    return "unknown" if issued is None else "launch"


def _runs(timeline: Timeline, at: int, some: Sequence[int]) -> bool:
    return any(timeline.records.begin_ns[i] <= at < timeline.records.end_ns[i] for i in some)


def _syncs(timeline: Timeline) -> list[tuple[int, int, bool]]:
    """(begin, end, whether it only stages its own copy) of each wait of a thread that trains."""
    calls, records = timeline.calls, timeline.records
    rows = zip(records.kind, records.begin_ns, records.end_ns, records.correlation, strict=True)
    copied = {number: end - begin for kind, begin, end, number in rows if kind == "h2d"}
    waits = zip(calls.kind, calls.training, calls.begin_ns, calls.end_ns, calls.correlation, strict=True)
    return [
        (begin, end, number in copied and end - begin <= 10 * copied[number])
        for kind, training, begin, end, number in waits
        if kind == "sync" and training
    ]


def _blocked(timeline: Timeline, at: int, *, staging: bool | None = None) -> bool:
    return any(begin <= at < end and staging in (None, of_copy) for begin, end, of_copy in _syncs(timeline))


def _held_up(timeline: Timeline, at: int) -> bool:
    """Since a thread was let go by a sync a short time ago, nothing has been launched."""
    launched = [b for kind, b in zip(timeline.calls.kind, timeline.calls.begin_ns, strict=True) if kind == "launch"]
    return any(
        end <= at < end + AFTER_SYNC and not of_copy and not any(end <= begin <= at for begin in launched)
        for _, end, of_copy in _syncs(timeline)
    )


def no_length() -> Timeline:
    """A copy of no length where the window ends, for which the host was blocked: nothing was launched after that."""
    script = TimelineScript(unit_ns=1, begin_ns=BEGIN)
    return script.copy(END, END, 0, kind="d2h", blocked_until=1).build(END)


def issued_twice() -> Timeline:
    """Two kernels that begin at once, two calls for those of one graph, and two about as late as the latency."""
    script = TimelineScript(unit_ns=1, begin_ns=BEGIN).kernel(0, 3, 0).kernel(20, 30, 5).kernel(20, 31, 12)
    script.kernel(40, 44, 38, graph=99).kernel(42, 44, 33, graph=99)
    return script.kernel(50, 51, 50 - LATENCY - 1).kernel(58, END, 58 - LATENCY - 2).build(END)


def held_up() -> Timeline:
    """A host that was let go, and issued twice; the calls in another order."""
    made = TimelineScript(unit_ns=1, begin_ns=BEGIN).sync(0, 5).kernel(12, 16, 8).kernel(24, END, 20).build(END)
    return replace(made, calls=_ordered(made.calls, (2, 1, 0)))


@settings(max_examples=100)
@example(no_length())
@example(issued_twice())
@example(held_up())
@given(windows())
def test_every_nanosecond_gets_the_label_of_the_rules(timeline: Timeline) -> None:
    """The sums are those of labelling one nanosecond after the other, and no range counts twice."""
    found = attribute(timeline, latency_ns=LATENCY, after_sync_ns=AFTER_SYNC)
    gaps = found.gaps_of(1)
    assert +Counter({str(part): gaps.of(part) for part in TIME_PARTS}) == labels(timeline)
    pieces = chain.from_iterable(found.parts.values())
    assert sum(high - low for low, high in pieces) == END
    assert total(found.pageable) <= total(found.parts["copy"])


def test_parts_that_do_not_sum_are_an_error() -> None:
    """A split with a rest is a bug and is never shown."""
    whole = attribute(timelines.starved()).gaps_of(timelines.STEPS)
    with pytest.raises(LoaderprobeError, match="sum to"):
        replace(whole, sync_ns=whole.sync_ns + 1)


kernels = st.tuples(
    st.integers(-10, 60), st.integers(0, 30), st.sampled_from((0.125, 0.5, 2.0)), st.booleans(), st.booleans()
)


@given(st.lists(kernels, max_size=8))
def test_efficiency_is_the_mean_over_every_nanosecond(drawn: list[tuple[int, int, float, bool, bool]]) -> None:
    """Streams that overlap add up to at most all SMs."""
    script = TimelineScript(unit_ns=1)
    for begin, length, blocks, loader, second in drawn:
        script.kernel(begin, begin + length, blocks_per_sm=blocks, loader=loader, stream=13 if second else 7)
    timeline = script.build(50)
    filled = sum(min(1.0, sum(k[2] for k in drawn if k[0] <= at < k[0] + k[1])) for at in range(50)) / 50
    ran = any(k[0] < 50 and k[0] + k[1] > 0 and k[1] for k in drawn)
    assert use_of(timeline, timeline.end_ns - timeline.begin_ns).sm_efficiency_estimated == (
        pytest.approx(filled) if ran else None
    )

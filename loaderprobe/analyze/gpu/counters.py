"""What the GPU's counters say of training alone: only readings inside end-to-end segments count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from loaderprobe.analyze.verdict.rates import NS
from loaderprobe.records.measurement import Measurement, Segment, Series, segment_seconds
from loaderprobe.records.remark import Remark
from loaderprobe.stats import mean, quantile

# What pairs of events on the device say of its steps: how long each took, and how long it had nothing to do before.
#
# An event before a step is passed at once while the device has work queued; when its input is late, the time since
# the event behind the step before is the wait that the device saw. What a loader does behind kernels is not in it.

MS = 1e3 / NS


def step_figures(segments: Sequence[Segment]) -> dict[str, float | str]:
    """Milliseconds a step of the device, and of exposed wait before it, at the middle and the 95th percentile.

    `exposed_wait_fraction` is the share of the segments' time that the device waited. Empty where the device has no
    events. The first step of a segment begins from an idle device, so no wait is counted before it.
    """
    timed = [segment for segment in segments if segment.device_begin_ns and segment.finished_ns]
    steps = [
        end - begin
        for segment in timed
        for begin, end in zip(segment.device_begin_ns, segment.finished_ns, strict=True)
    ]
    waits = [
        max(0, begin - ended)
        for segment in timed
        for ended, begin in zip(segment.finished_ns[:-1], segment.device_begin_ns[1:], strict=True)
    ]
    if not waits:
        return {}
    whole_ns = sum(segment.finished_ns[-1] - segment.device_begin_ns[0] for segment in timed)
    found: dict[str, float | str] = {"exposed_wait_fraction": sum(waits) / whole_ns} if whole_ns > 0 else {}
    for name, values in (("step_ms", steps), ("exposed_wait_ms", waits)):
        found[f"{name}_p50"] = quantile([value * MS for value in values], 0.5)
        found[f"{name}_p95"] = quantile([value * MS for value in values], 0.95)
    return found


Figures = dict[str, float | str]
Points = list[tuple[int, float]]
"""(time in ns, value)"""

UTILIZATION = "gpu_utilization"
# By key of the result, with the sampler's name of the series.
_AT_AN_INSTANT = {"sm_clock_mhz": "gpu_sm_clock", "memory_clock_mhz": "gpu_memory_clock"}
_OVER_INTERVALS = {
    "graphics_utilization": "gpu_graphics_utilization",
    "sm_utilization": "gpu_sm_utilization",
    "sm_occupancy": "gpu_sm_occupancy",
    "tensor_utilization": "gpu_tensor_utilization",
    "dram_utilization": "gpu_dram_utilization",
    "pcie_to_device_bytes_per_s": "gpu_pcie_to_device",
    "pcie_from_device_bytes_per_s": "gpu_pcie_from_device",
    "jpeg_utilization": "gpu_jpeg_utilization",
}
_SERIES = {
    "utilization": UTILIZATION, **_OVER_INTERVALS, **_AT_AN_INSTANT,
    "power_w": "gpu_power", "energy_j_per_image": "gpu_energy", "throttled": "gpu_throttle",
    "other_processes": "gpu_other_processes",
}  # fmt: skip
_IDLE = 1
# As nvidia-smi names the bits of nvmlClocksEventReason* in nvml.h.
_THROTTLE_REASONS = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}


def gpu_figures(measurement: Measurement, segments: Sequence[Segment]) -> Figures:
    """The `gpu` part of a verdict: means over the end-to-end `segments`; shares are 0 to 1.

    `utilization` is coarse (any kernel at all); `sm_utilization`, `sm_occupancy` and the others of GPM are
    averages over the stretches that lie wholly inside a segment. `power_w` is the energy over its time where the GPU
    counts energy, for NVML's power reading looks back over as much as 1 s. `throttled` is the share of readings with
    a reason to hold clocks down other than idleness.
    What the device's own events say is `step_figures`. Why there is none is `why_no_counters`.
    """
    series = {each.name: each for each in measurement.series}
    found: Figures = {}
    if inside := _inside(series.get(UTILIZATION), segments):
        found["utilization"] = mean(inside)
        found["source"] = series[UTILIZATION].source
    for key, name in _OVER_INTERVALS.items():
        _keep(found, key, _average(series.get(name), segments))
    for key, name in _AT_AN_INSTANT.items():
        _keep(found, key, _mean(_inside(series.get(name), segments)))
    found |= _energy(measurement, series, segments)
    found |= _throttling(_inside(series.get("gpu_throttle"), segments))
    if others := _inside(series.get("gpu_other_processes"), segments):
        found["other_processes"] = max(others)
    found |= step_figures(segments)
    return found


def _keep(found: Figures, key: str, value: float | None) -> None:
    if value is not None:
        found[key] = value


def _mean(values: Sequence[float]) -> float | None:
    return mean(list(values)) if values else None


def _points(series: Series, segment: Segment) -> Points:
    """The readings whose time lies inside a segment."""
    points = zip(series.time_ns, series.values, strict=True)
    return [(time_ns, value) for time_ns, value in points if segment.begin_ns[0] <= time_ns <= segment.closed_ns]


def _inside(series: Series | None, segments: Sequence[Segment]) -> list[float]:
    return [] if series is None else [value for segment in segments for _, value in _points(series, segment)]


def _stretches(
    series: Series | None, segments: Sequence[Segment], value: Callable[[float, float], float]
) -> list[tuple[int, float]]:
    """(ns, value of the readings at both ends) of each time between two neighbouring readings inside one segment."""
    return (
        []
        if series is None
        else [
            (end_ns - begin_ns, value(first, last))
            for segment in segments
            for (begin_ns, first), (end_ns, last) in pairwise(_points(series, segment))
        ]
    )


def _average(series: Series | None, segments: Sequence[Segment]) -> float | None:
    """Of readings that are averages since the reading before. The first inside reaches back out, and is left out."""
    stretches = _stretches(series, segments, lambda _, last: last)
    total_ns = sum(length_ns for length_ns, _ in stretches)
    return sum(length_ns * value for length_ns, value in stretches) / total_ns if total_ns else None


def _energy(measurement: Measurement, series: dict[str, Series], segments: Sequence[Segment]) -> Figures:
    """Power, and energy an image at the rate of the segment in which the energy was counted."""
    counted = series.get("gpu_energy")
    joules = seconds = images = 0.0
    for segment in segments:
        for length_ns, energy in _stretches(counted, [segment], lambda first, last: last - first):
            if energy >= 0:  # else the driver was reloaded
                joules += energy
                seconds += length_ns / NS
                own = segment.batch_size / measurement.ranks  # the counter is of one rank's GPU
                images += segment.steps * own * length_ns / NS / segment_seconds(segment)
    if joules > 0 and images:
        per_image: Figures = {"energy_j_per_image": joules / images} if measurement.images else {}
        return {"power_w": joules / seconds} | per_image
    power = _mean(_inside(series.get("gpu_power"), segments))
    return {} if power is None else {"power_w": power}


def _throttling(masks: Sequence[float]) -> Figures:
    if not masks:
        return {}
    reasons = [int(mask) & ~_IDLE for mask in masks]
    found: Figures = {"throttled": mean([float(reason != 0) for reason in reasons])}
    seen = 0
    for reason in reasons:
        seen |= reason
    names = [_THROTTLE_REASONS.get(1 << bit, f"{1 << bit:#x}") for bit in range(seen.bit_length()) if seen >> bit & 1]
    return found | {"throttle_reasons": ", ".join(names)} if names else found


def why_missing(measurement: Measurement, name: str) -> Remark | None:
    """What the sampler of a figure reported; None where it reported nothing."""
    return next((each.reason for each in measurement.missing if each.name == name), None)


def why_no_counters(measurement: Measurement, found: Figures) -> dict[str, Remark]:
    """Place in the summary to the reason, for all counters where `found` has none, else for the two that count most.

    Of those that were read, for each whose readings ended before the measurement did.
    """
    if not found:
        read = any(series.name.startswith("gpu_") for series in measurement.series)
        usual = Remark(code="no_reading_in_training" if read else "no_gpu_sampled")
        return {"gpu": usual if read else why_missing(measurement, UTILIZATION) or usual}
    reasons = {
        f"gpu.{key}": why_missing(measurement, name)
        for key, name in (("utilization", UTILIZATION), ("sm_occupancy", "gpu_sm_occupancy"))
        if key not in found
    }
    ended = {
        f"gpu.{key}": reason
        for key, name in _SERIES.items()
        if key in found and (reason := why_missing(measurement, name))
    }
    return {at: reason for at, reason in reasons.items() if reason} | ended

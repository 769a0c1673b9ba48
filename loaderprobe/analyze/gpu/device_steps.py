"""What pairs of events on the device say of its steps: how long each took, and how long it had nothing to do before.

An event before a step is passed at once while the device has work queued; when its input is late, the time since
the event behind the step before is the wait that the device saw. What a loader does behind kernels is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.analyze.verdict.rates import NS
from loaderprobe.records.measurement import Segment
from loaderprobe.stats import quantile

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

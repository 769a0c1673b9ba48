"""What counters, events and a profiler window say of the GPU: its gaps and why, and how well kernels filled it.

Reading a recording is in `compute/`, and the cause that follows from it in `verdict/`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from loaderprobe.records import thresholds
from loaderprobe.records.measurement import Measurement, Segment, Series, Timeline, communicates
from loaderprobe.records.remark import Remark
from loaderprobe.records.resources import TimePart
from loaderprobe.records.verdict import DeviceUse, Gaps, GpuWindow, TimelineView
from loaderprobe.stats import mean, quantile

# Why a GPU was idle: every gap between its kernels goes to what held up the kernel that ended it.
#
# The union of all streams is what counts: that one stream is idle costs nothing while another works. A gap is split
# where the host issued the work that ended it: at the begin of the call, and at its end. What the host did before may
# have caused the gap, and the call itself takes time; what the host did after cannot have. So a wait for input that is
# hidden behind kernels, or behind kernels issued before, costs nothing. Time in which nothing but communication with
# other GPUs ran is no gap, and no training either.

# Sets of time as half-open ranges (begin, end) of whole nanoseconds.
#
# A *merged* tuple is sorted, and its ranges are not empty and neither overlap nor touch. Every function but `merge`
# takes merged ranges and gives merged ranges, in time linear in their number.

Ranges = tuple[tuple[int, int], ...]


def merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The union of any ranges, in any order; empty and reversed ones hold no time."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(span for span in ranges if span[0] < span[1]):
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def within(ranges: Ranges, begin: int, end: int) -> Ranges:
    """What lies in the range from `begin` to `end`, found quickly among many; they need only be sorted and apart."""
    first = max(0, bisect_right(ranges, begin, key=lambda span: span[0]) - 1)
    near = ranges[first : bisect_left(ranges, end, key=lambda span: span[0])]
    inside = ((max(low, begin), min(high, end)) for low, high in near)
    return tuple(span for span in inside if span[0] < span[1])


def overlap(ranges: Ranges, begin: int, end: int) -> int:
    """Nanoseconds of them between two times."""
    return total(within(ranges, begin, end))


def columns(ranges: Ranges, begin: int, length: int, count: int) -> list[float]:
    """The share that ranges take of each of so many equal columns, of a stretch of `length` from `begin` on."""
    shares = [0.0] * count
    for low, high in within(ranges, begin, begin + length):
        at, end = ((edge - begin) * count / length for edge in (low, high))
        while at < end and at < count:
            upto = min(end, int(at) + 1.0)
            shares[int(at)] += upto - at
            at = upto
    return shares


def filled(ranges: Ranges, begin: int, length: int, count: int) -> Ranges:
    """Runs of such columns that together are as long as what ranges take of them.

    Each column is filled or not, so that the filled share is right also where ranges are shorter than one.
    """
    owed, full = 0.0, [False]
    for share in columns(ranges, begin, length, count):
        owed += share
        full.append(owed >= 0.5)
        owed -= full[-1]
    edges = [number for number, (before, now) in enumerate(pairwise([*full, False])) if before != now]
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """What lies in both."""
    out: list[tuple[int, int]] = []
    i = j = 0
    lefts, rights = len(left), len(right)
    while i < lefts and j < rights:
        (begin, end), (low, high) = left[i], right[j]
        low = low if low > begin else begin
        if end <= high:
            high = end
            i += 1
        else:
            j += 1
        if low < high:
            out.append((low, high))
    return tuple(out)


def subtract(ranges: Ranges, taken: Ranges) -> Ranges:
    """What lies in `ranges` and not in `taken`: in `ranges` and between those of `taken`."""
    if not ranges:
        return ()
    edges = [ranges[0][0], *(edge for span in taken for edge in span), ranges[-1][1]]
    between = zip(edges[::2], edges[1::2], strict=True)
    return intersect(ranges, tuple(span for span in between if span[0] < span[1]))


def total(ranges: Ranges) -> int:
    """Nanoseconds in all."""
    return sum(high - low for low, high in ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """A window as ranges on the timeline's clock: its `parts` do not overlap, and fill it.

    Communication is only what is exposed.
    """

    begin_ns: int
    end_ns: int
    parts: dict[TimePart, Ranges]
    copies: Ranges
    """From the host, hidden behind kernels or not."""
    waits: Ranges
    """The training thread inside `next()`, hidden or not."""
    pageable: Ranges
    """The part of the gaps of cause copy that came from pageable memory."""

    def gaps_of(self, steps: int) -> Gaps:
        """The figures. Raises LoaderprobeError when the parts do not sum to the window."""
        return Gaps(
            steps=steps,
            window_ns=self.end_ns - self.begin_ns,
            pageable_ns=total(self.pageable),
            **{f"{part}_ns": total(ranges) for part, ranges in self.parts.items()},
        )


def attribute(
    timeline: Timeline,
    *,
    latency_ns: int = thresholds.HARDWARE_LATENCY_NS,
    after_sync_ns: int = thresholds.AFTER_SYNC_NS,
) -> Attribution:
    """Split a window by the rules above.

    A copy to the device goes before any wait that covers it, then what the loader ran on the device; what is left
    of a gap goes to waits for input, to syncs and to launching, or, once the work was issued, to the device.
    """
    exchanges, trains, kind = _named(timeline, "kernel", communicates), _is_training(timeline), timeline.records.kind
    busy = _on_device(timeline, lambda i: trains(i) and not exchanges(i))
    exposed = subtract(_on_device(timeline, lambda i: trains(i) and exchanges(i)), busy)
    copies = _on_device(timeline, lambda i: kind[i] == "h2d")
    waits = _clipped(timeline, zip(timeline.wait_begin_ns, timeline.wait_end_ns, strict=True))
    gaps = subtract(((timeline.begin_ns, timeline.end_ns),), merge([*busy, *exposed]))
    before_call, calling, after_call, unknown = _split(gaps, _issued(timeline))
    copying, rest = _take(gaps, merge([*copies, *_staging(timeline, lambda i: kind[i] == "h2d")]))
    loading, rest = _take(rest, _on_device(timeline, lambda i: kind[i] != "h2d" and timeline.records.loader[i]))
    # Inside the call that issues the next kernel the host does not wait for input, but the call may block.
    input_wait, before = _take(intersect(rest, merge([*before_call, *unknown])), waits)
    host = merge([*before, *intersect(rest, calling)])
    blocked, host = _take(host, _held_up(timeline, after_sync_ns))
    short, long = _by_latency(intersect(rest, after_call), after_call, latency_ns)
    # The name of a copy says that the memory on the host was pageable.
    pageable = _named(timeline, "h2d", lambda name: "Pageable" in name)
    return Attribution(
        begin_ns=timeline.begin_ns,
        end_ns=timeline.end_ns,
        parts={
            "compute": busy,
            "communication": exposed,
            "input": input_wait,
            "copy": copying,
            "loader": loading,
            "sync": blocked,
            "launch": subtract(host, unknown),
            "device": short,
            "unknown": merge([*long, *intersect(host, unknown)]),
        },
        copies=copies,
        waits=waits,
        pageable=intersect(copying, merge([*_on_device(timeline, pageable), *_staging(timeline, pageable)])),
    )


def _take(ranges: Ranges, cause: Ranges) -> tuple[Ranges, Ranges]:
    """(what of the ranges the cause explains, the rest)."""
    return intersect(ranges, cause), subtract(ranges, cause)


def _clipped(timeline: Timeline, ranges: Iterable[tuple[int, int]]) -> Ranges:
    return within(merge(ranges), timeline.begin_ns, timeline.end_ns)


def _on_device(timeline: Timeline, wanted: Callable[[int], bool]) -> Ranges:
    """The union of the records whose number is wanted."""
    records = timeline.records
    spans = zip(records.begin_ns, records.end_ns, strict=True)
    return _clipped(timeline, (span for i, span in enumerate(spans) if wanted(i)))


def _staging(timeline: Timeline, of: Callable[[int], bool]) -> Ranges:
    """The host blocked in the calls that stage these copies to the device."""
    records, staged = timeline.records, staging_calls(timeline)
    copied = {correlation for i, correlation in enumerate(records.correlation) if of(i)}
    return _syncs(timeline, lambda i: i in staged and timeline.calls.correlation[i] in copied)


def staging_calls(timeline: Timeline) -> frozenset[int]:
    """Numbers of the blocking calls that wait for nothing but their own copy to the device.

    From pageable memory such a call first moves the data to where the device can read it. It is a sync by its kind,
    but what it waits for is the copy. One that takes far longer than the copy waits for work that was issued before.
    """
    records, calls = timeline.records, timeline.calls
    copied: Counter[int] = Counter()
    rows = zip(records.kind, records.begin_ns, records.end_ns, records.correlation, strict=True)
    for kind, begin, end, correlation in rows:
        if kind == "h2d":
            copied[correlation] += end - begin
    return frozenset(
        i for i, kind in enumerate(calls.kind)
        if kind == "sync" and calls.correlation[i] in copied
        and calls.end_ns[i] - calls.begin_ns[i] <= thresholds.STAGING_FACTOR * copied[calls.correlation[i]]
    )  # fmt: skip


def _syncs(timeline: Timeline, wanted: Callable[[int], bool] = lambda _: True) -> Ranges:
    """The threads that train blocked in the calls whose number is wanted."""
    calls = timeline.calls
    blocking = [i for i, kind in enumerate(calls.kind) if kind == "sync" and calls.training[i] and wanted(i)]
    return _clipped(timeline, ((calls.begin_ns[i], calls.end_ns[i]) for i in blocking))


def _held_up(timeline: Timeline, after_sync_ns: int) -> Ranges:
    """A thread that trains blocked until the device was there, and then for a while, until anything was issued again.

    While it was blocked it could not run ahead. So the device, having done all that was issued, also waits for the
    first launch after it.
    """
    calls, staged = timeline.calls, staging_calls(timeline)
    launched = sorted(begin for begin, kind in zip(calls.begin_ns, calls.kind, strict=True) if kind == "launch")
    launched.append(max([timeline.end_ns, *launched[-1:]]))
    blocked = [
        (end, min(launched[min(bisect_left(launched, end), len(launched) - 1)], end + after_sync_ns))
        for i, (end, kind) in enumerate(zip(calls.end_ns, calls.kind, strict=True))
        if kind == "sync" and calls.training[i] and i not in staged
    ]
    return merge([*_syncs(timeline), *_clipped(timeline, blocked)])


def _named(timeline: Timeline, kind: str, wanted: Callable[[str], bool]) -> Callable[[int], bool]:
    """Records of this kind whose name is wanted."""
    records = timeline.records
    names = {number for number, name in enumerate(timeline.names) if wanted(name)}
    return lambda i: records.kind[i] == kind and records.name[i] in names


def _is_training(timeline: Timeline) -> Callable[[int], bool]:
    kind, loader = timeline.records.kind, timeline.records.loader
    return lambda i: kind[i] != "h2d" and not loader[i]


def _issued(timeline: Timeline) -> dict[int, tuple[int, int]]:
    """(begin, end) of the host's call that issued the work of training, by that work's begin on the device.

    By correlation, not by thread: autograd launches from a thread of its own. Where several begin at once, the one
    issued first counts.
    """
    calls, records, is_training = timeline.calls, timeline.records, _is_training(timeline)
    called: dict[int, tuple[int, int]] = {}
    for begin, end, correlation in zip(calls.begin_ns, calls.end_ns, calls.correlation, strict=True):
        called[correlation] = min((begin, end), called.get(correlation, (begin, end)))
    issued: dict[int, tuple[int, int]] = {}
    for i, (begin, correlation) in enumerate(zip(records.begin_ns, records.correlation, strict=True)):
        # What takes no time ends no gap.
        if is_training(i) and correlation in called and begin < records.end_ns[i]:
            issued[begin] = min(called[correlation], issued.get(begin, called[correlation]))
    return issued


def _split(gaps: Ranges, issued: dict[int, tuple[int, int]]) -> tuple[Ranges, Ranges, Ranges, Ranges]:
    """All gaps, cut at the call that issued what ended each: (before it, inside it, after it, without a record)."""
    before, calling, after, unknown = [], [], [], []
    for begin, end in gaps:
        if end not in issued:
            unknown.append((begin, end))
            continue
        called, returned = (min(max(at, begin), end) for at in issued[end])
        before.append((begin, called))
        calling.append((called, returned))
        after.append((returned, end))
    return merge(before), merge(calling), merge(after), tuple(unknown)


def _by_latency(pieces: Ranges, stretches: Ranges, latency_ns: int) -> tuple[Ranges, Ranges]:
    """The pieces of the stretches of which the hardware's latency explains all that is left; and the others."""
    short: list[tuple[int, int]] = []
    long: list[tuple[int, int]] = []
    for stretch in stretches:
        mine = within(pieces, *stretch)
        (short if total(mine) <= latency_ns else long).extend(mine)
    return tuple(short), tuple(long)


# What pairs of events on the device say of its steps: how long each took, and how long it had nothing to do before.
#
# An event before a step is passed at once while the device has work queued; when its input is late, the time since
# the event behind the step before is the wait that the device saw. What a loader does behind kernels is not in it.

MS = 1e-6


def step_figures(segments: Sequence[Segment]) -> dict[str, float | str]:
    """Milliseconds a step of the device, and of exposed wait before it, at the middle and the 95th percentile.

    `exposed_wait_fraction` is the share of the segments' time that the device waited. Empty where the device has no
    events. A segment begins as the device has ended the step before it: what it then waits for its first batch counts.
    Where workers began together, that is the wait for them all.
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
        for ended, begin in zip((segment.begin_ns[0], *segment.finished_ns[:-1]), segment.device_begin_ns, strict=True)
    ]
    if not waits:
        return {}
    whole_ns = sum(segment.finished_ns[-1] - segment.begin_ns[0] for segment in timed)
    figures: dict[str, float | str] = {"exposed_wait_fraction": sum(waits) / whole_ns} if whole_ns > 0 else {}
    for name, values in (("step_ms", steps), ("exposed_wait_ms", waits)):
        figures[f"{name}_p50"] = quantile([value * MS for value in values], 0.5)
        figures[f"{name}_p95"] = quantile([value * MS for value in values], 0.95)
    return figures


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
    series = {sampled.name: sampled for sampled in measurement.series}
    figures: Figures = {}
    if inside := _inside(series.get(UTILIZATION), segments):
        figures["utilization"] = mean(inside)
        figures["source"] = series[UTILIZATION].source
    known = {key: _average(series.get(name), segments) for key, name in _OVER_INTERVALS.items()}
    known |= {key: _mean(_inside(series.get(name), segments)) for key, name in _AT_AN_INSTANT.items()}
    figures |= {key: value for key, value in known.items() if value is not None}
    figures |= _energy(measurement, series, segments)
    figures |= _throttling(_inside(series.get("gpu_throttle"), segments))
    if others := _inside(series.get("gpu_other_processes"), segments):
        figures["other_processes"] = max(others)
    figures |= step_figures(segments)
    return figures


def _mean(values: Sequence[float]) -> float | None:
    return mean(list(values)) if values else None


def _points(series: Series | None, segment: Segment) -> Points:
    """The readings whose time lies inside a segment; none of what was not sampled."""
    if series is None:
        return []
    points = zip(series.time_ns, series.values, strict=True)
    return [(time_ns, value) for time_ns, value in points if segment.begin_ns[0] <= time_ns <= segment.closed_ns]


def _inside(series: Series | None, segments: Sequence[Segment]) -> list[float]:
    return [value for segment in segments for _, value in _points(series, segment)]


def _average(series: Series | None, segments: Sequence[Segment]) -> float | None:
    """Of readings that are averages since the reading before. The first inside reaches back out, and is left out."""
    stretches = [
        (end_ns - begin_ns, value)
        for segment in segments
        for (begin_ns, _), (end_ns, value) in pairwise(_points(series, segment))
    ]
    total_ns = sum(length_ns for length_ns, _ in stretches)
    return sum(length_ns * value for length_ns, value in stretches) / total_ns if total_ns else None


def _energy(measurement: Measurement, series: dict[str, Series], segments: Sequence[Segment]) -> Figures:
    """Power, and energy an image at the rate of the segment in which the energy was counted."""
    counted = series.get("gpu_energy")
    joules = seconds = images = 0.0
    for segment in segments:
        per_step = segment.batch_size / measurement.ranks  # the counter is of one rank's GPU
        for (begin_ns, first), (end_ns, last) in pairwise(_points(counted, segment)):
            if last >= first:  # else the driver was reloaded
                joules += last - first
                seconds += (end_ns - begin_ns) / 1e9
                images += segment.steps * per_step * (end_ns - begin_ns) / 1e9 / segment.seconds
    if joules > 0 and images:
        per_image: Figures = {"energy_j_per_image": joules / images} if measurement.images else {}
        return {"power_w": joules / seconds} | per_image
    power = _mean(_inside(series.get("gpu_power"), segments))
    return {} if power is None else {"power_w": power}


def _throttling(masks: Sequence[float]) -> Figures:
    if not masks:
        return {}
    reasons = [int(mask) & ~_IDLE for mask in masks]
    figures: Figures = {"throttled": mean([float(reason != 0) for reason in reasons])}
    bits = 0
    for reason in reasons:
        bits |= reason
    names = [_THROTTLE_REASONS.get(1 << bit, f"{1 << bit:#x}") for bit in range(bits.bit_length()) if bits >> bit & 1]
    return figures | {"throttle_reasons": ", ".join(names)} if names else figures


def why_missing(measurement: Measurement, name: str) -> Remark | None:
    """What the sampler of a figure reported; None where it reported nothing."""
    return next((part.reason for part in measurement.missing if part.name == name), None)


def why_no_counters(measurement: Measurement, figures: Figures) -> dict[str, Remark]:
    """Field of the summary to the reason, for all counters where `figures` has none, else for the two that count most.

    Of those that were read, for each whose readings ended before the measurement did.
    """
    if not figures:
        read = any(series.name.startswith("gpu_") for series in measurement.series)
        usual = Remark(code="no_reading_in_training" if read else "no_gpu_sampled")
        return {"gpu": usual if read else why_missing(measurement, UTILIZATION) or usual}
    counted = (("utilization", UTILIZATION), ("sm_occupancy", "gpu_sm_occupancy"))
    wanted = [(key, name) for key, name in counted if key not in figures]
    wanted += [(key, name) for key, name in _SERIES.items() if key in figures]
    return {f"gpu.{key}": reason for key, name in wanted if (reason := why_missing(measurement, name))}


# How full the kernels of a window made the device, estimated from their grids.
#
# The formulas are those of PyTorch's former profiler plug-in for TensorBoard (kineto, tb_plugin): busy time is the
# union over streams; an SM is in use where a kernel has a block for it; occupancy is a mean over the kernels' time.
# They are estimates: a counter that measured the same (NVML's GPM) has another name everywhere.


Kernel = tuple[int, int, float | None, float | None]
"""(begin, end, occupancy, blocks per SM) of one, cut to the window; ns."""


def use_of(timeline: Timeline, window_ns: int) -> DeviceUse:
    """The figures of one window, over so many ns; estimates are None where too few kernels tell their grid."""
    records, kind = timeline.records, timeline.records.kind
    rows = (
        (max(begin, timeline.begin_ns), min(end, timeline.end_ns), occupancy, blocks)
        for what, begin, end, occupancy, blocks in zip(
            kind, records.begin_ns, records.end_ns, records.occupancy, records.blocks_per_sm, strict=True
        )
        if what == "kernel"
    )
    kernels: list[Kernel] = [row for row in rows if row[0] < row[1]]
    known = [(end - begin, occupancy) for begin, end, occupancy, _ in kernels if occupancy is not None]
    known_ns, whole_ns = sum(ns for ns, _ in known), sum(end - begin for begin, end, *_ in kernels)
    exchanges, trains = _named(timeline, "kernel", communicates), _is_training(timeline)
    training = _on_device(timeline, lambda i: kind[i] == "kernel" and trains(i) and not exchanges(i))
    return DeviceUse(
        training_busy=total(training) / window_ns,
        kernel_busy=total(_on_device(timeline, lambda i: kind[i] == "kernel")) / window_ns,
        sm_efficiency_estimated=_sm_efficiency(kernels, whole_ns, window_ns),
        # Weighted by duration; kernels that overlap both count.
        occupancy_estimated=sum(ns * occupancy for ns, occupancy in known) / known_ns if known_ns else None,
        occupancy_coverage=known_ns / whole_ns if whole_ns else 0.0,
    )


def _sm_efficiency(kernels: Sequence[Kernel], whole_ns: int, window_ns: int) -> float | None:
    """The mean over the window of min(1, blocks per SM of all kernels then active); `whole_ns` is all their time."""
    known = [(begin, end, blocks) for begin, end, _, blocks in kernels if blocks is not None]
    if not known or sum(end - begin for begin, end, _ in known) < thresholds.LEAST_COVERAGE * whole_ns:
        return None
    edges = sorted(edge for begin, end, blocks in known for edge in ((begin, blocks), (end, -blocks)))
    active = filled_ns = 0.0
    before_ns = edges[0][0]
    for at_ns, blocks in edges:
        filled_ns += min(1.0, max(0.0, active)) * (at_ns - before_ns)
        active += blocks
        before_ns = at_ns
    return filled_ns / window_ns


_NO_ESTIMATE = {"occupancy_estimated": "no_kernel_fits", "sm_efficiency_estimated": "blocks_unknown"}
"""By field, why it is None where it is."""
NAME = "gpu_timeline"
"""Of what is missing without a window."""


def read_window(measurement: Measurement) -> tuple[GpuWindow | None, TimelineView | None]:
    """The profiler window of a measurement, if it has one, not yet checked against rates; and what is drawn of it."""
    timeline = measurement.timeline
    if timeline is None:
        return None, None
    refused = why_refused(timeline)
    window = GpuWindow(
        device=timeline.device,
        steps=timeline.steps,
        profiler_overhead=overhead_of(timeline),
        syncs_per_step=syncs_per_step(timeline),
        gaps=None,
        use=None,
        refused=refused,
        rejected=timeline.rejected,
    )
    if refused:
        return window, None
    attribution = attribute(timeline)
    gaps = without_profiler(attribution.gaps_of(timeline.steps), timeline)
    if isinstance(gaps, Remark):
        return replace(window, refused=gaps), None
    use, doubts = use_of(timeline, gaps.window_ns), tuple(_doubts(measurement, timeline))
    return replace(window, gaps=gaps, use=use, doubts=doubts), timeline_view(timeline, attribution)


def why_no_window(measurement: Measurement, window: GpuWindow | None) -> dict[str, Remark]:
    """Field of the summary to the reason, for what a window does not show."""
    if window is None or window.use is None:
        reason = window.refused if window else why_missing(measurement, NAME)
        return {"gpu_window": reason} if reason else {}
    unknown = {name: code for name, code in _NO_ESTIMATE.items() if getattr(window.use, name) is None}
    return {f"gpu_window.use.{name}": Remark(code=code) for name, code in unknown.items()}


def checked_against_rates(window: GpuWindow | None, utilization: float | None) -> GpuWindow | None:
    """The same window, with a doubt more where its gaps and the rates do not say the same of the input.

    `utilization` is the rate of training over that of compute alone; None where it is not known. Training that runs at
    a share u of it leaves the device idle for its input for 1 - u of the time, and so must the gaps on its path.
    """
    if window is None or window.gaps is None:
        return window
    doubt = Remark(code="gaps_not_checked")
    if utilization is not None:
        idle, gone = 1 - utilization, window.gaps.share("input", "copy", "loader")
        if abs(idle - gone) < thresholds.MOST_DISAGREEMENT:
            return window
        doubt = Remark(code="gaps_disagree", facts={"idle_by_gaps": gone, "idle_by_rates": idle})
    return replace(window, doubts=(*window.doubts, doubt))


def overhead_of(timeline: Timeline) -> float | None:
    """By what share of their time the profiler slowed the steps; None when they were not timed without it.

    Without the waits for batches: those differ from one stretch to the next, whatever a profiler does.
    """
    if timeline.plain_ns <= 0:
        return None
    busy_ns = timeline.end_ns - timeline.begin_ns - sum(timeline.wait_end_ns) + sum(timeline.wait_begin_ns)
    return (busy_ns - timeline.plain_ns + timeline.plain_wait_ns) / timeline.plain_ns


def without_profiler(gaps: Gaps, timeline: Timeline) -> Gaps | Remark:
    """The same split at the pace that the steps have without the profiler; the reason where it cannot be had.

    Kernels take as long with it as without. Its cost is the host's time: it comes off launches, then off what follows a
    sync. The rest, spent while kernels ran, had the next wait or copy begin later: it comes off both alike, so that it
    makes no cause of either. Where the loader sets the pace, waits were shorter by it.
    """
    slowed_ns = max(0, round((overhead_of(timeline) or 0.0) * timeline.plain_ns))
    launch_ns = min(slowed_ns, gaps.launch_ns)
    sync_ns = min(slowed_ns - launch_ns, gaps.sync_ns)
    waits_ns = gaps.input_ns + gaps.copy_ns
    hidden_ns = min(slowed_ns - launch_ns - sync_ns, waits_ns)
    cost_ns = launch_ns + sync_ns + hidden_ns
    if (beyond := (slowed_ns - cost_ns) / (timeline.plain_ns or 1)) > thresholds.MOST_OVERHEAD:
        return Remark(code="profiler_slows", facts={"cost_fraction": beyond, "most": thresholds.MOST_OVERHEAD})
    shorter_ns = min(cost_ns, max(0, timeline.plain_wait_ns - sum(timeline.wait_end_ns) + sum(timeline.wait_begin_ns)))
    taken_ns = max(0, hidden_ns - shorter_ns)
    copy_ns = round(taken_ns * gaps.copy_ns / (waits_ns or 1))
    return replace(
        gaps,
        window_ns=gaps.window_ns - cost_ns + shorter_ns,
        input_ns=gaps.input_ns - hidden_ns + shorter_ns + copy_ns,
        copy_ns=gaps.copy_ns - copy_ns,
        launch_ns=gaps.launch_ns - launch_ns,
        sync_ns=gaps.sync_ns - sync_ns,
    )


def why_refused(timeline: Timeline) -> Remark | None:
    """Why a window gives no figures; None when it does."""
    window_ns = timeline.end_ns - timeline.begin_ns
    if window_ns <= 0:
        return Remark(code="window_empty")
    if "kernel" not in timeline.records.kind:
        if not timeline.launches:
            return Remark(code="no_kernel_launched")
        return Remark(code="kernels_not_seen", facts={"launches": float(timeline.launches)})
    lost = timeline.launches_without_record / timeline.launches if timeline.launches else 0.0
    if lost > thresholds.MOST_WITHOUT_RECORD:
        return Remark(code="launches_lost", facts={"exact_share": lost, "most": thresholds.MOST_WITHOUT_RECORD})
    if overhead_of(timeline) is None:
        return Remark(code="steps_not_timed")
    most_ns = thresholds.MOST_CLOCK_SHIFT_NS + thresholds.MOST_CLOCK_DRIFT * window_ns
    moved_ns = abs(timeline.clock_shift_ns)
    if moved_ns > most_ns:
        return Remark(code="clock_moved", facts={"clock_s": moved_ns / 1e9, "most_s": most_ns / 1e9})
    return None


def _doubts(measurement: Measurement, timeline: Timeline) -> Iterator[Remark]:
    """A window that could live off batches that were ready before it began, and steps slower without the profiler."""
    least, overhead = 2 * measurement.config.loader.batches_ahead, overhead_of(timeline)
    if timeline.steps < least:
        yield Remark(code="window_too_short", facts={"steps": float(timeline.steps), "ahead": least / 2})
    # Something else changed by more than the profiler costs.
    if overhead is not None and overhead < -thresholds.MOST_OVERHEAD:
        yield Remark(code="slower_without_profiler", facts={"exact_share": -overhead})


def syncs_per_step(timeline: Timeline, own: int = 1) -> float:
    """How often a thread that trains waits for the device, but for the `own` waits of the recording itself.

    PyTorch waits for a blocking copy by two calls, the copy and a cudaStreamSynchronize right behind it: one wait.
    """
    calls = timeline.calls
    order = [i for i in sorted(range(len(calls.kind)), key=calls.begin_ns.__getitem__) if calls.training[i]]
    names = {i: timeline.names[calls.name[i]] for i in order}
    syncs = [i for i in order if calls.kind[i] == "sync"]
    # A copy that waits is a launch, too: only that, and nothing else of the thread, may lie between the two calls.
    merged = sum(
        calls.kind[i] == calls.kind[before] == "sync"
        and "Memcpy" in names[before]
        and names[i].endswith("StreamSynchronize")
        for before, i in pairwise(order)
    )
    return max(0, len(syncs) - merged - own) / timeline.steps if timeline.steps else 0.0


def timeline_view(timeline: Timeline, attribution: Attribution) -> TimelineView:
    """The window as stretches, for drawing, counted from its begin."""
    begin_ns, end_ns = attribution.begin_ns, attribution.end_ns

    def moved(ranges: Ranges) -> Ranges:
        return tuple((begin - begin_ns, end - begin_ns) for begin, end in ranges)

    return TimelineView(
        window_ns=end_ns - begin_ns,
        step_begin_ns=tuple(at - begin_ns for at in timeline.step_begin_ns if begin_ns <= at < end_ns),
        parts={part: moved(ranges) for part, ranges in attribution.parts.items()},
        waits=moved(attribution.waits),
        copies=moved(attribution.copies),
    )


def typical_begin_ns(view: TimelineView, length_ns: int) -> int:
    """The begin of a step from which on the time is spent most as in the whole window."""

    def shares(begin_ns: int, span_ns: int) -> list[float]:
        return [overlap(ranges, begin_ns, begin_ns + span_ns) / span_ns for ranges in view.parts.values()]

    whole = shares(0, view.window_ns)
    last = view.window_ns - length_ns
    candidates = [at for at in view.step_begin_ns if at <= last] or [0]
    span_ns = min(length_ns, view.window_ns)
    return min(candidates, key=lambda at: sum(abs(a - b) for a, b in zip(shares(at, span_ns), whole, strict=True)))

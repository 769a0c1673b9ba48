"""What a profiler window may be believed: its figures, or why there are none, and what no verdict may rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from loaderprobe.analyze.gpu.counters import why_missing
from loaderprobe.analyze.gpu.gaps import Attribution, Ranges, attribute, merge, total
from loaderprobe.records.measurement import Measurement, Timeline, communicates
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import DeviceUse, Gaps, GpuWindow, TimelineView

# How full the kernels of a window made the device, estimated from their grids.
#
# The formulas are those of PyTorch's former profiler plug-in for TensorBoard (kineto, tb_plugin): busy time is the
# union over streams; an SM is in use where a kernel has a block for it; occupancy is a mean over the kernels' time.
# They are estimates: a counter that measured the same (NVML's GPM) has another name everywhere.

# With less of the kernels' time known, an estimate would be of some kernels and not of the device.
LEAST_COVERAGE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    begin_ns: int
    end_ns: int
    training: bool
    """Not made by the loader, and not communication."""
    occupancy: float | None
    blocks_per_sm: float | None

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.begin_ns


def use_of(timeline: Timeline) -> DeviceUse:
    """The figures of one window; estimates are None where too few kernels tell their grid.

    The window must not be empty.
    """
    kernels = _kernels(timeline)
    window_ns = timeline.end_ns - timeline.begin_ns
    return DeviceUse(
        training_busy=_union_ns([each for each in kernels if each.training]) / window_ns,
        kernel_busy=_union_ns(kernels) / window_ns,
        sm_efficiency_estimated=_sm_efficiency(kernels, window_ns),
        occupancy_estimated=_occupancy(kernels),
        occupancy_coverage=_coverage(kernels, [each for each in kernels if each.occupancy is not None]),
    )


def _kernels(timeline: Timeline) -> list[_Kernel]:
    """The kernels, cut to the window."""
    records = timeline.records
    exchanges = [communicates(name) for name in timeline.names]
    rows = (
        _Kernel(
            begin_ns=max(records.begin_ns[i], timeline.begin_ns),
            end_ns=min(records.end_ns[i], timeline.end_ns),
            training=not records.loader[i] and not exchanges[records.name[i]],
            occupancy=records.occupancy[i],
            blocks_per_sm=records.blocks_per_sm[i],
        )
        for i, kind in enumerate(records.kind)
        if kind == "kernel"
    )
    return [each for each in rows if each.length_ns > 0]


def _union_ns(kernels: Sequence[_Kernel]) -> int:
    return total(merge((each.begin_ns, each.end_ns) for each in kernels))


def _coverage(kernels: Sequence[_Kernel], known: Sequence[_Kernel]) -> float:
    whole_ns = sum(each.length_ns for each in kernels)
    return sum(each.length_ns for each in known) / whole_ns if whole_ns else 0.0


def _occupancy(kernels: Sequence[_Kernel]) -> float | None:
    """Mean weighted by duration; kernels that overlap both count."""
    known = [(each.length_ns, each.occupancy) for each in kernels if each.occupancy is not None]
    whole_ns = sum(length_ns for length_ns, _ in known)
    return sum(length_ns * occupancy for length_ns, occupancy in known) / whole_ns if whole_ns else None


def _sm_efficiency(kernels: Sequence[_Kernel], window_ns: int) -> float | None:
    """The mean over the window of min(1, blocks per SM of all kernels then active)."""
    known = [(each, each.blocks_per_sm) for each in kernels if each.blocks_per_sm is not None]
    if _coverage(kernels, [each for each, _ in known]) < LEAST_COVERAGE:
        return None
    edges = [(each.begin_ns, blocks) for each, blocks in known] + [(each.end_ns, -blocks) for each, blocks in known]
    edges.sort()
    active = filled_ns = 0.0
    before_ns = edges[0][0]
    for at_ns, blocks in edges:
        filled_ns += min(1.0, max(0.0, active)) * (at_ns - before_ns)
        active += blocks
        before_ns = at_ns
    return filled_ns / window_ns


def missing_estimates(use: DeviceUse) -> dict[str, Remark]:
    """Field to reason, for the estimates that are None."""
    reasons = {}
    if use.occupancy_estimated is None:
        reasons["occupancy_estimated"] = Remark(code="no_kernel_fits")
    if use.sm_efficiency_estimated is None:
        reasons["sm_efficiency_estimated"] = Remark(code="blocks_unknown")
    return reasons


# A profiler that slows the steps by more than this has measured itself.
MOST_OVERHEAD = 0.05
# Each lost kernel is a gap that was not there.
MOST_WITHOUT_RECORD = 0.01
# Host and device are compared on one clock: it may be set, and it may drift as good clocks do.
MOST_CLOCK_SHIFT_NS, MOST_CLOCK_DRIFT = 50_000, 20e-6
# Shares of time idle for input, from rates and from gaps, are the same but for noise and for the overhead.
MOST_DISAGREEMENT = 0.1
NAME = "gpu_timeline"
"""Of what is missing without a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReading:
    """What the profiler window of a measurement shows; `missing` is why there is something that it does not."""

    window: GpuWindow | None = None
    view: TimelineView | None = None
    missing: dict[str, Remark] = field(default_factory=dict)
    """Field of the summary to reason."""


def read_window(measurement: Measurement) -> WindowReading:
    """The window of one measurement, if it has one; not yet checked against rates."""
    timeline = measurement.timeline
    if timeline is None:
        reason = why_missing(measurement, NAME)
        return WindowReading(missing={"gpu_window": reason} if reason else {})
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
        return WindowReading(window=window, missing={"gpu_window": refused})
    found = attribute(timeline)
    gaps, use = found.gaps_of(timeline.steps), use_of(timeline)
    doubts = (_too_short(measurement, timeline), _too_fast(window))
    return WindowReading(
        window=replace(window, gaps=gaps, use=use, doubts=tuple(filter(None, doubts))),
        view=timeline_view(timeline, found),
        missing={f"gpu_window.use.{name}": reason for name, reason in missing_estimates(use).items()},
    )


def checked_against_rates(window: GpuWindow | None, utilization: float | None) -> GpuWindow | None:
    """The same window, with a doubt more where its gaps and the rates do not say the same.

    `utilization` is the rate of training over that of compute alone; None where it is not known.
    """
    if window is None or window.gaps is None:
        return window
    doubt = disagreement(window.gaps, utilization)
    return replace(window, doubts=(*window.doubts, doubt)) if doubt else window


def overhead_of(timeline: Timeline) -> float | None:
    """By what share of their time the profiler slowed the steps; None when they were not timed without it.

    Without the waits for batches: those differ from one stretch to the next, whatever a profiler does.
    """
    if timeline.plain_ns <= 0:
        return None
    waits_ns = sum(timeline.wait_end_ns) - sum(timeline.wait_begin_ns)
    busy_ns = timeline.end_ns - timeline.begin_ns - waits_ns
    return (busy_ns - (timeline.plain_ns - timeline.plain_wait_ns)) / timeline.plain_ns


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
    if lost > MOST_WITHOUT_RECORD:
        return Remark(code="launches_lost", facts={"exact_share": lost, "most": MOST_WITHOUT_RECORD})
    overhead = overhead_of(timeline)
    if overhead is None:
        return Remark(code="steps_not_timed")
    if overhead > MOST_OVERHEAD:
        return Remark(code="profiler_slows", facts={"exact_share": overhead, "most": MOST_OVERHEAD})
    most_ns = MOST_CLOCK_SHIFT_NS + MOST_CLOCK_DRIFT * window_ns
    moved_ns = abs(timeline.clock_shift_ns)
    if moved_ns > most_ns:
        return Remark(code="clock_moved", facts={"clock_s": moved_ns / 1e9, "most_s": most_ns / 1e9})
    return None


def disagreement(gaps: Gaps, utilization: float | None) -> Remark | None:
    """Why gaps and rates do not say the same of the input; None when they do.

    Training that runs at a share u of what compute alone reaches leaves the device idle for its input for 1 - u of
    the time, and so must the gaps on the path of the input.
    """
    if utilization is None:
        return Remark(code="gaps_not_checked")
    idle, gone = 1 - utilization, gaps.share("input", "copy", "loader")
    if abs(idle - gone) < MOST_DISAGREEMENT:
        return None
    return Remark(code="gaps_disagree", facts={"idle_by_gaps": gone, "idle_by_rates": idle})


def _too_short(measurement: Measurement, timeline: Timeline) -> Remark | None:
    """A window that could live off batches that were ready before it began."""
    least = 2 * measurement.config.loader.batches_ahead
    if timeline.steps >= least:
        return None
    return Remark(code="window_too_short", facts={"steps": float(timeline.steps), "ahead": least / 2})


def _too_fast(window: GpuWindow) -> Remark | None:
    """Steps that were slower without the profiler: something else changed by more than it costs."""
    if window.profiler_overhead is None or window.profiler_overhead >= -MOST_OVERHEAD:
        return None
    return Remark(code="slower_without_profiler", facts={"exact_share": -window.profiler_overhead})


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
        calls.kind[i] == calls.kind[before] == "sync" and _waits_again(names[before], names[i])
        for before, i in pairwise(order)
    )
    return max(0, len(syncs) - merged - own) / timeline.steps if timeline.steps else 0.0


def _waits_again(before: str, name: str) -> bool:
    return "Memcpy" in before and name.endswith("StreamSynchronize")


def timeline_view(timeline: Timeline, found: Attribution) -> TimelineView:
    """The window as stretches, for drawing, counted from its begin."""

    def moved(ranges: Ranges) -> Ranges:
        return tuple((begin - found.begin_ns, end - found.begin_ns) for begin, end in ranges)

    return TimelineView(
        window_ns=found.end_ns - found.begin_ns,
        step_begin_ns=tuple(
            at - found.begin_ns for at in timeline.step_begin_ns if found.begin_ns <= at < found.end_ns
        ),
        busy=moved(found.busy),
        gaps={cause: moved(ranges) for cause, ranges in found.gaps.items()},
        waits=moved(found.waits),
        copies=moved(found.copies),
    )

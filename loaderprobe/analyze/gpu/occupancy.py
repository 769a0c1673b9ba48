"""How full the kernels of a window made the device, estimated from their grids.

The formulas are those of PyTorch's former profiler plug-in for TensorBoard (kineto, tb_plugin): busy time is the
union over streams; an SM is in use where a kernel has a block for it; occupancy is a mean over the kernels' time.
They are estimates: a counter that measured the same (NVML's GPM) has another name everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.analyze.gpu.intervals import merge, total
from loaderprobe.records.gaps import DeviceUse
from loaderprobe.records.measurement import Timeline, communicates
from loaderprobe.records.remark import Remark

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

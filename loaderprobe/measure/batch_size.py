"""The search for a batch size: a strategy asks, a prober answers, and a meter reads how busy the device is."""

from __future__ import annotations

from collections.abc import Callable

from loaderprobe.errors import MissingPart
from loaderprobe.policy import Ask, Policy, follow
from loaderprobe.protocols import Clock, OnStage
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeStop
from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import Remark
from loaderprobe.samplers.host import CoresSampler
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.samplers.recorded import PERIOD_S, SamplerThread
from loaderprobe.system.limits import cores_available

Probe = Callable[[int], BatchSizeProbe]
"""Trains a copy of a model some steps with batches of a size; where memory ends, a probe that does not fit. Raises
BadValue when the model fails."""


def search(
    strategy: Policy[int, BatchSizeProbe, BatchSizeStop], probe: Probe, *, clock: Clock,
    progress: OnStage = lambda *_: None,
) -> tuple[tuple[BatchSizeProbe, ...], BatchSizeStop]:  # fmt: skip
    """All probes in order, and the end of the search. Ctrl-C ends it with the fastest size so far."""

    def measure(ask: Ask[int]) -> BatchSizeProbe:
        progress("batch sizes tried", round(ask.done), round(ask.total))
        return probe(ask.what)

    results, stop = follow(
        strategy, measure, clock=clock, enough=lambda results: any(each.images_per_s for each in results.found)
    )
    probes = tuple(results.found)
    if stop is not None:
        return probes, stop
    fastest = max(probes, key=lambda probe: probe.images_per_s.value if probe.images_per_s else 0.0)
    return probes, BatchSizeStop(code="interrupted", chosen=fastest.batch_size)


ONE_S = 1.0
"""The paper's period."""


class Meter(SamplerThread):
    """One thread that reads the utilization while it is entered: of the GPU of this `uuid`; None: the CPU's cores."""

    def __init__(self, clock: Clock, uuid: str | None, *, period_s: float = PERIOD_S) -> None:
        self._name = "own_cpu" if uuid is None else "gpu_utilization"
        self._cores = CoresSampler(clock, cores_available()) if uuid is None else None
        super().__init__([self._cores or NvmlSampler(clock, uuid)], period_s)

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if self._cores is not None:
            # What a probe that is shorter than the period used.
            self._cores.sample()

    def readings(self) -> tuple[float, ...] | Missing:
        """Shares, 0 to 1, in the order of time; or why there are none."""
        series, missing = self.collected()
        found = next((each.values for each in series if each.name == self._name), ())
        why = next((each for each in missing if each.name == self._name), None)
        return found or why or Missing(name=self._name, reason=Remark(code="not_read"))


def with_readings(probe: Probe, words: Callable[[Remark], str]) -> Probe:
    """For a strategy that cannot do without utilization: it raises MissingPart where that is not read."""

    def checked(batch_size: int) -> BatchSizeProbe:
        found = probe(batch_size)
        if found.fits and found.utilization is None:
            why = found.unavailable.get("utilization")
            reason = f": {words(why)}" if why else ""
            raise MissingPart(
                f"gpu-usage needs the utilization of the device{reason}", hint="use --strategy throughput"
            )
        return found

    return checked

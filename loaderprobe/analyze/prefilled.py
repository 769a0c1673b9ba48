"""How much too fast a short benchmark is that begins when the loader's buffer is full."""

from __future__ import annotations

from math import ceil

from loaderprobe.analyze.verdict.rates import NS, segment_rate
from loaderprobe.records.measurement import Measurement, Segment
from loaderprobe.records.studies import CLOSE, BufferEffect, Prefilled, ShortRun, free_batches, over_steady
from loaderprobe.records.verdict import Verdict

ITERATIONS = (10, 20, 50, 100, 200)
SEEN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Of what was measured."""


def enough(free: float, most: float) -> int:
    """Iterations from which on `over_steady` is within 2 % of 1: 51 times the free batches, unless compute limits."""
    return 1 if most <= 1 + CLOSE else ceil(free * (1 + CLOSE) / CLOSE)


def buffer_effect(measurement: Measurement, verdict: Verdict, study: Prefilled | None) -> BufferEffect | None:
    """As measured, else as the rates of the verdict have it; None without a buffer, or without those rates."""
    loader, compute = measurement.config.loader, verdict.rates_images_per_s.compute
    if not loader.batches_ahead or compute is None:
        return None
    free = free_batches(loader)
    # The study is of one process.
    seen = study if study is not None and study.prefilled is not None and measurement.ranks == 1 else None
    rates = _steady_rates(measurement, seen) if seen else [verdict.images_per_s.value]
    steady = len(rates) / sum(1 / rate for rate in rates)
    most = max(1.0, compute / steady)
    first = {each: over_steady(each, free, most) for each in ITERATIONS}
    if seen and seen.prefilled:
        first = {count: rate / steady for count, rate in _rates(seen.prefilled, SEEN).items()}
    return BufferEffect(
        batches=loader.batches_ahead,
        free=free,
        how="measured" if seen else "estimated",
        runs=tuple(ShortRun(iterations=count, over_steady=ratio) for count, ratio in first.items()),
        most=most,
        enough=enough(free, most),
        noise=(max(rates) - min(rates)) / 2 / steady,
        reason=study.reason if study else None,
    )


def _steady_rates(measurement: Measurement, study: Prefilled) -> list[float]:
    """Images/s of each steady segment."""
    workers, synchronous = measurement.config.loader.workers, measurement.compute.synchronous
    return [segment_rate(each, synchronous=synchronous, workers=workers) for each in study.steady]


def _rates(segment: Segment, counts: tuple[int, ...]) -> dict[int, float]:
    """Images/s over the first of its steps, to the end of the last of them on the device."""
    begin = segment.begin_ns[0]
    return {
        count: count * segment.batch_size * NS / (segment.finished_ns[count - 1] - begin)
        for count in counts
        if count <= len(segment.finished_ns) and segment.finished_ns[count - 1] > begin
    }

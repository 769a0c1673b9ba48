"""How much too fast a short benchmark is that begins when the loader's buffer is full."""

from __future__ import annotations

from math import ceil

from loaderprobe.analyze.verdict.rates import NS, segment_rate
from loaderprobe.records.measurement import Measurement, Segment
from loaderprobe.records.prefilled import CLOSE, BufferEffect, Prefilled, ShortRun, over_steady
from loaderprobe.records.verdict import Verdict

ITERATIONS = (10, 20, 50, 100, 200)
SEEN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Of what was measured."""


def enough(batches: int, most: float) -> int:
    """Iterations from which on `over_steady` is within 2 % of 1: 51 buffers, where the loader is the limit."""
    return 1 if most <= 1 + CLOSE else ceil(batches * (1 + CLOSE) / CLOSE)


def buffer_effect(measurement: Measurement, verdict: Verdict, study: Prefilled | None) -> BufferEffect | None:
    """As measured, else as the rates of the verdict have it; None without a buffer, or without those rates."""
    batches, compute = measurement.config.loader.batches_ahead, verdict.rates_images_per_s.compute
    if not batches or compute is None:
        return None
    reason = study.reason if study else ""
    if study is not None and study.prefilled is not None:
        rates = _steady_rates(measurement, study)
        steady = len(rates) / sum(1 / rate for rate in rates)
        seen = _rates(study.prefilled, SEEN)
        runs = tuple(ShortRun(iterations=count, over_steady=rate / steady) for count, rate in seen.items())
        most = max(1.0, compute / steady)
        noise = (max(rates) - min(rates)) / 2 / steady
        return BufferEffect(
            batches=batches, how="measured", runs=runs, most=most, enough=enough(batches, most), noise=noise
        )
    most = max(1.0, compute / verdict.images_per_s.value)
    runs = tuple(ShortRun(iterations=each, over_steady=over_steady(each, batches, most)) for each in ITERATIONS)
    return BufferEffect(
        batches=batches, how="estimated", runs=runs, most=most, enough=enough(batches, most), reason=reason
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

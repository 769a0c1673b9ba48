"""A device of a scripted rate for each batch size, with noise and a memory that ends: searches without a model."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from loaderprobe.records.batch_size import BatchSizeProbe
from loaderprobe.records.layers import Milliseconds
from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import reported
from loaderprobe.records.verdict import Interval
from loaderprobe.stats import half_width, mean

STEPS = 10


@dataclass(slots=True)
class ScriptedProber:
    """Answers probes of ten steps by `rate(batch size)` in images/s; times are normally distributed around it."""

    rate: Callable[[int], float]
    noise: float = 0.0
    """Standard deviation of the time of a step, as a share of it."""
    drift: float = 0.0
    """The same of a whole probe: what its own interval does not show."""
    fits_up_to: int | None = None
    utilization: Callable[[int], float] | None = None
    seed: int = 0
    asked: list[int] = field(default_factory=list)
    """The sizes that were probed, in order."""
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def probe(self, batch_size: int) -> BatchSizeProbe:
        """One probe; the same in any process for the same seed."""
        self.asked.append(batch_size)
        memory = batch_size * 1_000_000
        if self.fits_up_to is not None and batch_size > self.fits_up_to:
            return BatchSizeProbe(batch_size=batch_size, fits=False, memory_bytes=memory)
        usual = batch_size / self.rate(batch_size) * max(0.1, self._random.gauss(1.0, self.drift))
        times_s = [usual * max(0.1, self._random.gauss(1.0, self.noise)) for _ in range(STEPS)]
        value = batch_size / mean(times_s)
        half = half_width(times_s) / mean(times_s) * value
        ms = sorted(each * 1e3 for each in times_s)
        busy = self.utilization(batch_size) if self.utilization else None
        return BatchSizeProbe(
            batch_size=batch_size,
            fits=True,
            steps=STEPS,
            images_per_s=Interval(value=value, low=value - half, high=value + half),
            step_ms=Milliseconds(value=ms[STEPS // 2], low=ms[STEPS // 4], high=ms[-STEPS // 4]),
            utilization=busy,
            utilization_samples=() if busy is None else (busy,) * 10,
            memory_bytes=memory,
            wall_s=sum(times_s),
            unavailable={} if busy is not None else {"utilization": reported("the device is scripted")},
        )


@dataclass(slots=True)
class ScriptedMeter:
    """Reads these shares, or has this reason for none."""

    shares: tuple[float, ...] = ()
    reason: str = "the device is scripted"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def readings(self) -> tuple[float, ...] | Missing:
        """What it was made with."""
        return self.shares or Missing(name="utilization", reason=reported(self.reason))

"""The common part of samplers: named columns of readings."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from loaderprobe.protocols import Clock
from loaderprobe.records.measurement import Missing, Series
from loaderprobe.records.unavailable import Unavailable


class RecordedSampler:
    """Keeps readings by name; a subclass's `sample` calls `record`, or `miss` with a reason."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readings: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
        self._missing: dict[str, Unavailable] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def record(self, name: str, unit: str, source: str, value: float) -> None:
        """Keep one reading, stamped now."""
        self._readings.setdefault((name, unit, source), []).append((self._clock.now_ns(), value))

    def miss(self, name: str, reason: Unavailable) -> None:
        """Keep the reason why there is no reading; the first one stays."""
        self._missing.setdefault(name, reason)

    def series(self) -> Sequence[Series | Missing]:
        """All readings, and the reasons for figures that were never read."""
        read = [
            Series(
                name=name,
                unit=unit,
                source=source,
                time_ns=tuple(time_ns for time_ns, _ in readings),
                values=tuple(value for _, value in readings),
            )
            # Copies: the sampling thread may be at work.
            for (name, unit, source), readings in [(key, tuple(kept)) for key, kept in list(self._readings.items())]
        ]
        names = {series.name for series in read}
        return [*read, *(Missing(name=n, reason=reason) for n, reason in list(self._missing.items()) if n not in names)]

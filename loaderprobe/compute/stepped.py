"""A pair of CUDA events around each step, read once at the end: the device's own times, without waiting for it."""

from __future__ import annotations

from typing import Any

import torch

from loaderprobe.protocols import Clock


class StepEvents:
    """Records events on the current stream of one GPU. Events are used again: making one costs a call to the driver."""

    def __init__(self, device: torch.device, clock: Clock) -> None:
        self._device = device
        self._clock = clock
        self._spare: list[Any] = []
        self._pairs: list[tuple[Any, Any]] = []
        self._open: Any = None
        self.begun: tuple[int, ...] = ()
        """Begin of each step that `finish` returned last, on the device, in ns of the clock."""

    def begin(self) -> None:
        """Record the first event of a step: before its copy, or before its kernels where nothing is copied."""
        if self._open is None:
            self._open = self._recorded()

    def end(self) -> None:
        """Record the event after the last kernel of the step."""
        self._pairs.append((self._open, self._recorded()))
        self._open = None

    def finish(self) -> tuple[int, ...]:
        """Synchronise once; the end of each step on the device, in ns of the clock.

        Events give only the time between each other, so the last one is placed at the end of the wait for it.
        """
        torch.cuda.synchronize(self._device)
        end_ns = self._clock.now_ns()
        pairs, self._pairs = self._pairs, []
        last = pairs[-1][1] if pairs else None
        begun, ended = (tuple(end_ns - round(pair[k].elapsed_time(last) * 1e6) for pair in pairs) for k in (0, 1))
        self.begun = begun
        self._spare.extend(event for pair in pairs for event in pair)
        return ended

    def _recorded(self) -> Any:
        event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        event.record(torch.cuda.current_stream(self._device))
        return event

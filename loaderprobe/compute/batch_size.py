"""Trains a copy of a model with batches of one size after the other, and times it."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from loaderprobe.batches import samples_in
from loaderprobe.compute.torch import StepEvents, gradient_bytes
from loaderprobe.compute.trainer import (
    ModelCopy,
    NoMemory,
    changed,
    epochs,
    is_loader,
    moved,
    part_of_step,
    tensors_in,
    trainable,
    uuid_of,
)
from loaderprobe.errors import BadValue
from loaderprobe.protocols import Clock, UtilizationMeter
from loaderprobe.records.batch_size import BatchSizeProbe
from loaderprobe.records.layers import Milliseconds
from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Interval
from loaderprobe.stats import half_width_in_time, mean, median, quantile
from loaderprobe.system.limits import peak_bytes, release_free, reset_peak, resident_bytes


def repeated(batch: Any, batch_size: int) -> Any:
    """A batch of that size, from the samples of another, round and round: tensors whose first dimension counts them.

    Raises BadValue for a batch without samples.
    """
    count = samples_in([*tensors_in(batch)])
    if not count:
        raise BadValue("the batch has no samples", hint="give a batch of tensors whose first dimension is its size")
    order = torch.arange(batch_size) % count

    def taken(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[order.to(tensor.device)] if tensor.ndim and tensor.shape[0] == count else tensor

    return changed(batch, taken)


COPIES = 3
"""Of the weights: themselves, their gradients, the optimizer's momentum."""
MARGIN = 1.1
"""On the growth that is predicted: allocators round up."""


class MemoryBudget:
    """What one process takes on one device, beyond what it had when this was made, and what it may take."""

    def __init__(self, device: torch.device, limit: int | None, weight_bytes: int = 0) -> None:
        """`weight_bytes` do not depend on the batch size."""
        self.limit = limit
        self._device = device
        self._base = 0
        if not self._on_gpu:
            # Memory that was freed before would otherwise hide what training takes.
            release_free()
            self._base = resident_bytes()
        self._known: dict[int, int] = {}
        self._fixed = COPIES * weight_bytes

    @property
    def _on_gpu(self) -> bool:
        return self._device.type == "cuda"

    @property
    def blind(self) -> bool:
        """True while nothing is known, on a machine that must not run out of memory."""
        return not self._on_gpu and not self._known

    def begin(self) -> None:
        if self._on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            release_free()
            reset_peak()

    def end(self, batch_size: int) -> int:
        """The most that a probe of this size took: at least what does not depend on it. 0 where it cannot be read."""
        peak = torch.cuda.max_memory_reserved(self._device) if self._on_gpu else peak_bytes()
        # Memory that was free within the process before does not show.
        used_bytes = max(self._fixed, peak - self._base) if peak else 0
        self._known[batch_size] = max(used_bytes, self._known.get(batch_size, 0))
        return used_bytes

    def beyond(self, taken: int) -> bool:
        return self.limit is not None and taken > self.limit

    def predicted(self, batch_size: int) -> int | None:
        """What this size will take, on a straight line through the sizes so far; None where one of them says enough.

        With one size only, the weights, gradients and momentum are taken to be what does not grow.
        """
        largest = max(self._known, default=0)
        if not largest or batch_size <= largest:
            return None
        smaller = [size for size in self._known if 2 * size <= largest]
        below, at = (max(smaller), self._known[max(smaller)]) if smaller else (0, self._fixed)
        growth = max(0.0, (self._known[largest] - at) / (largest - below))
        return round(self._known[largest] + MARGIN * growth * (batch_size - largest))


LEARNING_RATE = 0.0
"""The update takes its time, but the copy stays what it was, so that all sizes train the same model."""
TRIAL = 2
"""Images of a first step that shows what memory takes, before a larger batch is tried in the machine's own memory."""
LEAST_STEPS, MOST_STEPS = 4, 200
PROBE_S = 2.0
"""Of a probe whose number of steps is not asked for."""
FEW_STEPS = 3
"""Where a single step is longer than a probe should be."""

Take = Callable[[], Any]
Loss = Callable[[Any, Any], torch.Tensor]


class TorchProber:
    """Trains on the device of the model's weights; `batches(size)` gives a batch, or a loader of batches.

    Raises BadValue for a model without weights, and for one that fails, saying in which part of the step.
    """

    def __init__(
        self, model: torch.nn.Module, batches: Callable[[int], Any], *, loss: Loss, clock: Clock,
        meter: Callable[[], UtilizationMeter], steps: int | None, memory_limit: int | None, precision: str = "fp32",
    ) -> None:  # fmt: skip
        """A probe takes `steps`; None: as many as `PROBE_S` holds. `memory_limit` is in bytes; None for no limit."""
        self.device = trainable(model)[0].device
        self._memory = MemoryBudget(self.device, memory_limit, gradient_bytes(model))
        self._model = ModelCopy(model, loss, LEARNING_RATE, precision=precision)
        self.precision = self._model.precision
        self._batches, self._clock, self._meter, self._steps = batches, clock, meter, steps
        self._size = 0

    def probe(self, batch_size: int) -> BatchSizeProbe:
        """Train some steps. Memory that ends, or by prediction would end, is a probe that does not fit."""
        begin_ns = self._clock.now_ns()
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            probed = self._tried(batch_size)
        self._forget(fits=probed.fits)
        return replace(probed, wall_s=(self._clock.now_ns() - begin_ns) / 1e9)

    def step(self, batch: Any) -> None:
        self._size = samples_in(batch)
        self._step(moved(batch, self.device))

    def _tried(self, batch_size: int) -> BatchSizeProbe:
        if self._memory.blind and batch_size > TRIAL:
            self._trial()
        needed = self._memory.predicted(batch_size)
        if needed is not None and self._memory.beyond(needed):
            return BatchSizeProbe(batch_size=batch_size, fits=False, ran=False, memory_bytes=needed)
        try:
            probed = self._measured(batch_size)
        except NoMemory:
            return BatchSizeProbe(batch_size=batch_size, fits=False)
        if self._memory.beyond(probed.memory_bytes or 0):
            return BatchSizeProbe(batch_size=batch_size, fits=False, memory_bytes=probed.memory_bytes)
        return probed

    def _trial(self) -> None:
        """One step with few images. What does not fit shows in the probe itself."""
        self._memory.begin()
        try:
            with self._source(TRIAL) as (take, _):
                self._step(take())
            self._memory.end(TRIAL)
        except NoMemory:
            self._forget(fits=False)
        self._forget(fits=True)

    def _measured(self, batch_size: int) -> BatchSizeProbe:
        self._memory.begin()
        with self._source(batch_size) as (take, prefetched):
            steps = self._warmed(take, prefetched)
            with self._meter() as meter:
                times = self._timed(take, steps)
        return _probe(batch_size, times, meter.readings(), self._memory.end(batch_size))

    @contextmanager
    def _source(self, batch_size: int) -> Iterator[tuple[Take, int]]:
        """(what takes a batch to the device, batches that workers may have ready before the first step).

        The same batch over and over, or one after the other from a loader, whose workers end with this.
        """
        self._size = batch_size
        with self._part("load"):
            made = self._batches(batch_size)
        if not is_loader(made):
            with self._part("copy"):
                batch = moved(made, self.device)
            yield lambda: batch, 0
            return
        with closing(epochs(made)) as stream:

            def take() -> Any:
                with self._part("load"):
                    batch = next(stream)
                with self._part("copy"):
                    return moved(batch, self.device)

            yield take, (getattr(made, "num_workers", 0) or 0) * (getattr(made, "prefetch_factor", 0) or 0)

    def _warmed(self, take: Take, prefetched: int) -> int:
        """Train until first-time costs and prefetched batches, which would flatter a short probe, are behind.

        Returns how many steps a probe takes.
        """
        step_s = 0.0
        for number in range(2 + prefetched):
            begin_ns = self._clock.now_ns()
            self._step(take())
            with self._part("optimizer"):
                self._model.wait()
            step_s = (self._clock.now_ns() - begin_ns) / 1e9
            if self._steps is None and step_s > PROBE_S and number >= prefetched:
                break
        if self._steps is not None:
            return self._steps
        if step_s > PROBE_S:
            return FEW_STEPS
        return min(MOST_STEPS, max(LEAST_STEPS, math.ceil(PROBE_S / max(step_s, 1e-6))))

    def _timed(self, take: Take, steps: int) -> list[tuple[float, int]]:
        """(seconds, images) of each step. On a GPU the host is not made to wait for it: events are read at the end."""
        images: list[int] = []
        events = StepEvents(self._clock, self.device) if self.device.type == "cuda" else None
        stamps = [self._clock.now_ns()]
        for _ in range(steps):
            if events:
                events.begin()
            batch = take()
            self._step(batch)
            images.append(samples_in(batch) or self._size)
            if events:
                events.end()
            else:
                stamps.append(self._clock.now_ns())
        if events:
            with self._part("optimizer"):
                ends = events.finish()
            stamps = [events.begun[0], *ends]
        seconds = [(end - begin) / 1e9 for begin, end in pairwise(stamps)]
        return list(zip(seconds, images, strict=True))

    def _step(self, batch: Any) -> None:
        self._model.step(batch, self._part)

    def _part(self, name: str) -> AbstractContextManager[None]:
        return part_of_step(name, self._size, among=True)

    def _forget(self, *, fits: bool) -> None:
        """Gradients and all that a failed step left."""
        self._model.optimizer.zero_grad(set_to_none=True)
        if not fits:
            gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def _probe(
    batch_size: int, steps: list[tuple[float, int]], readings: tuple[float, ...] | Missing, memory: int
) -> BatchSizeProbe:
    an_image_s = [seconds / images for seconds, images in steps]
    rate = sum(images for _, images in steps) / sum(seconds for seconds, _ in steps)
    half = min(0.99, half_width_in_time(an_image_s) / mean(an_image_s)) * rate
    unavailable: dict[str, Remark] = {}
    if isinstance(readings, Missing):
        unavailable["utilization"] = readings.reason
    samples = () if isinstance(readings, Missing) else readings
    if not memory:
        unavailable["memory_bytes"] = Remark(code="peak_unreadable")
    ms = [seconds * 1e3 for seconds, _ in steps]
    return BatchSizeProbe(
        batch_size=batch_size,
        fits=True,
        steps=len(steps),
        images_per_s=Interval(value=rate, low=rate - half, high=rate + half),
        step_ms=Milliseconds(value=median(ms), low=quantile(ms, 0.25), high=quantile(ms, 0.75)),
        utilization=mean(samples) if samples else None,
        utilization_samples=samples,
        memory_bytes=memory or None,
        unavailable=unavailable,
    )


def gpu_of(model: Any) -> str | None:
    """Of the GPU that holds the model's weights, in NVML's form; None on the CPU. Raises BadValue for no model."""
    if not isinstance(model, torch.nn.Module):
        raise BadValue(f"the model is a {type(model).__name__}", hint="give a torch.nn.Module")
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return uuid_of(device) if device.type == "cuda" else None

"""A user's training step, and the case without a step."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from loaderprobe.compute.torch import StepEvents, gradient_buckets, gradient_bytes
from loaderprobe.errors import LoaderprobeError
from loaderprobe.protocols import ComputeArguments
from loaderprobe.records.measurement import NO_STEP, OWN_STEP, ComputeInfo

# So many images/s that no loader is held up.
ENDLESS_RATE = 1e12
# A host that runs ahead of its device waits for it at the end for more than this share of its own time.
RAN_AHEAD = 0.1
# torch reports a dead worker by a signal, so any code that runs then seems to raise it.
OF_A_WORKER = "DataLoader worker (pid"


def cuda_in_use() -> bool:
    """True once anything in this process has used a GPU."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch leaves it untyped


class StepCompute:
    """Calls `step(batch)`; waits for CUDA, where it is in use, only at the end of a segment."""

    def __init__(self, step: Callable[[Any], Any], arguments: ComputeArguments) -> None:
        self._step = step
        self._clock = arguments.clock
        self._events = StepEvents(arguments.clock)
        self._ended: list[int] = []
        self._begun: tuple[int, ...] = ()
        self._host_ns = self._waited_ns = 0

    def info(self) -> ComputeInfo:
        """Properties of the user's step, and whether it waits for its device itself."""
        on_gpu = cuda_in_use()
        return ComputeInfo(
            name=OWN_STEP,
            device=torch.cuda.get_device_name() if on_gpu else "CPU",
            synchronous=not on_gpu or self._waited_ns <= RAN_AHEAD * self._host_ns,
            specified_images_per_s=None,
            source="your own step, on a resident batch",
        )

    def copy(self, batch: Any) -> Any:
        """Does nothing: the step itself moves the batch to its device."""
        return batch

    def step(self, batch: Any) -> None:
        """One call of the step. Raises LoaderprobeError, with the cause, when it raises."""
        self._launch(lambda: self._step(_fresh(batch)))

    def _launch(self, step: Callable[[], Any]) -> None:
        begin_ns = self._clock.now_ns()
        if cuda_in_use():
            self._events.begin()
        try:
            step()
        except (Exception, SystemExit) as error:
            if str(error).startswith(OF_A_WORKER):
                raise
            raise LoaderprobeError(
                f"your step raised {type(error).__name__}: {error}",
                hint="call step(batch) yourself on a batch of your loader",
            ) from error
        if cuda_in_use():
            self._events.end()
        end_ns = self._clock.now_ns()
        self._host_ns += end_ns - begin_ns
        self._ended.append(end_ns)

    def finish(self) -> tuple[int, ...]:
        """Wait for the device; the end of each step there, or on the host without a device, in ns of the clock."""
        ended, self._ended = self._ended, []
        on_device = self._events.finish() if cuda_in_use() else ()
        if on_device:
            self._waited_ns += on_device[-1] - ended[-1]
        self._begun = self._events.begun if len(on_device) == len(ended) else ()
        # Steps before the first that used the device.
        return (*ended[: len(ended) - len(on_device)], *on_device)

    def begun(self) -> tuple[int, ...]:
        """The time at which the device began each of those steps; empty without a device in use."""
        return self._begun


def _fresh(batch: Any) -> Any:
    """The same tensors in new dicts and lists, because the resident batch is used again and steps may change batches.

    Other containers, and tensors changed in place, stay as the step leaves them.
    """
    if type(batch) is dict:
        return {key: _fresh(part) for key, part in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(map(_fresh, batch))
    return copy.copy(batch) if isinstance(batch, dict) else batch


class NoCompute:
    """A step that takes no time: only the loader is measured."""

    def __init__(self, arguments: ComputeArguments) -> None:
        self._clock = arguments.clock
        self._ended: list[int] = []

    def info(self) -> ComputeInfo:
        return ComputeInfo(
            name=NO_STEP,
            device="no step given",
            synchronous=False,
            specified_images_per_s=ENDLESS_RATE,
            source="no step",
        )

    def copy(self, batch: Any) -> Any:
        return batch

    def step(self, batch: Any) -> None:
        self._ended.append(self._clock.now_ns())

    def finish(self) -> tuple[int, ...]:
        ended, self._ended = tuple(self._ended), []
        return ended


def step_in_ranks(step: Callable[[Any], Any], arguments: ComputeArguments) -> StepCompute:
    """The step of this rank. Where nothing exchanges gradients, or something else does, they count as compute."""
    wrapped = [thing for thing in gc.get_objects() if issubclass(type(thing), DistributedDataParallel)]
    # The collector's own order may differ between ranks, whose buckets would then not match.
    models = sorted(wrapped, key=gradient_bytes)
    return ExchangingStep(step, arguments, models) if models else StepCompute(step, arguments)


class ExchangingStep(StepCompute):
    """A step that exchanges the gradients of some models, in the group that they were made with."""

    def __init__(
        self, step: Callable[[Any], Any], arguments: ComputeArguments, models: Sequence[DistributedDataParallel]
    ) -> None:
        super().__init__(step, arguments)
        self._models = models
        self._buckets = [(bucket, model.process_group) for model in models for bucket in gradient_buckets(model)]

    def exchange(self, *, on: bool) -> None:
        """Whether steps from now on exchange gradients; as the models' own `no_sync` does."""
        for model in self._models:
            model.require_backward_grad_sync = on

    def exchange_alone(self) -> None:
        self._launch(self._exchange)

    def _exchange(self) -> None:
        for handle in [dist.all_reduce(bucket, group=group, async_op=True) for bucket, group in self._buckets]:
            handle.wait()

"""Emulated accelerators: a step takes a specified time on the device's own timeline.

CUDA is asynchronous: the host launches a step and runs ahead. A tool that sleeps for the step time on the training
thread adds the loading time to the step. This emulation keeps a timeline of the device instead, and lets the host
run two steps ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loaderprobe.batches import samples_in
from loaderprobe.errors import BadValue
from loaderprobe.protocols import ComputeArguments
from loaderprobe.records.measurement import ComputeInfo
from loaderprobe.records.options import refuse_options
from loaderprobe.units import join_words, significant

STEPS_AHEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A device with a published rate of training ResNet-50."""

    images: float
    seconds: float
    source: str

    @property
    def images_per_s(self) -> float:
        """The rate as one figure."""
        return self.images / self.seconds


ACCELERATORS: dict[str, Accelerator] = {
    "mlperf-a100": Accelerator(
        images=400, seconds=0.435, source="MLPerf Storage v1.0, ResNet-50 on A100: 0.435 s per batch of 400"
    ),
    "mlperf-h100": Accelerator(
        images=400, seconds=0.224, source="MLPerf Storage v1.0, ResNet-50 on H100: 0.224 s per batch of 400"
    ),
    "v100-amp": Accelerator(
        images=1200, seconds=1, source="NVIDIA DeepLearningExamples, ResNet-50 PyTorch, V100 16 GB, mixed precision"
    ),
    "a100-amp": Accelerator(
        images=2470, seconds=1, source="NVIDIA DeepLearningExamples, ResNet-50 PyTorch, A100 80 GB, mixed precision"
    ),
    "a100-tf32": Accelerator(
        images=938, seconds=1, source="NVIDIA DeepLearningExamples, ResNet-50 PyTorch, A100 80 GB, TF32"
    ),
    "rtx3090-amp": Accelerator(
        images=1218, seconds=1, source="timm benchmark results, ResNet-50, RTX 3090, mixed precision, channels_last"
    ),
}


def parse_rate(argument: str) -> tuple[float, str]:
    """(images/s, source) of `mlperf-h100` or of a number. Raises BadValue."""
    if argument in ACCELERATORS:
        known = ACCELERATORS[argument]
        return known.images_per_s, known.source
    try:
        rate = float(argument)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e9:
        names = join_words(sorted(ACCELERATORS), "or")
        raise BadValue(
            f"'{argument}' is neither a known accelerator nor a rate in images/s", hint=f"use {names}, or a number"
        )
    return rate, "specified on the command line"


class EmulatedCompute:
    """A device with a step time and its own timeline; the host may run two steps ahead."""

    synchronous = False

    def __init__(self, arguments: ComputeArguments) -> None:
        self._name = arguments.spec.argument
        self._rate, self._source = self._specified()
        self._clock = arguments.clock
        self._free_ns = 0
        self._finished: list[int] = []

    @staticmethod
    def check(arguments: ComputeArguments) -> None:
        """Raises BadValue for every option, and for a name that is no accelerator and no rate."""
        refuse_options(arguments.loader, arguments.spec, "an emulated accelerator has a specified rate")
        parse_rate(arguments.spec.argument)

    def info(self) -> ComputeInfo:
        """The name of the accelerator, its rate and the source of the rate."""
        return ComputeInfo(
            name=f"emulated{'-sync' if self.synchronous else ''}:{self._name}",
            device=f"emulated accelerator, {significant(self._rate)} images/s",
            synchronous=self.synchronous,
            specified_images_per_s=self._rate,
            source=self._source,
        )

    def copy(self, batch: Any) -> Any:
        """Copies nothing: the step of a real device hides the copy."""
        return batch

    def step(self, batch: Any) -> None:
        """Queue one step; waits while `STEPS_AHEAD` steps are queued."""
        images = samples_in(batch)
        if len(self._finished) >= STEPS_AHEAD:
            self._wait_until(self._finished[-STEPS_AHEAD])
        self._free_ns = max(self._clock.now_ns(), self._free_ns) + round(images / self._rate * 1e9)
        self._finished.append(self._free_ns)

    def finish(self) -> tuple[int, ...]:
        """Wait for the end of the timeline; when each step ended, in ns."""
        self._wait_until(self._free_ns)
        finished, self._finished = tuple(self._finished), []
        return finished

    def _specified(self) -> tuple[float, str]:
        """(images/s, their source)."""
        return parse_rate(self._name)

    def _wait_until(self, time_ns: int) -> None:
        remaining_ns = time_ns - self._clock.now_ns()
        if remaining_ns > 0:
            self._clock.sleep(remaining_ns / 1e9)


class SynchronousCompute(EmulatedCompute):
    """The same device, but the training thread waits for each step, as in tools that sleep."""

    synchronous = True

    def step(self, batch: Any) -> None:
        """Queue one step and wait for its end."""
        super().step(batch)
        self._wait_until(self._free_ns)

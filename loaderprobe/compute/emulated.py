"""Emulated accelerators: a step takes a specified time on the device's own timeline.

CUDA is asynchronous: the host launches a step and runs ahead. A tool that sleeps for the step time on the training
thread adds the loading time to the step. This emulation keeps a timeline of the device instead, and lets the host
run two steps ahead. The devices of several ranks have one timeline together.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from loaderprobe.batches import samples_in
from loaderprobe.errors import BadValue
from loaderprobe.protocols import ComputeArguments
from loaderprobe.records.config import ACCELERATORS, refuse_options
from loaderprobe.records.measurement import ComputeInfo
from loaderprobe.units import join_words, significant

STEPS_AHEAD = 2


def parse_rate(argument: str) -> tuple[float, str]:
    """(images/s, source) of `mlperf-h100` or of a number. Raises BadValue."""
    if argument in ACCELERATORS:
        return ACCELERATORS[argument]
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
    """A device with a step time and its own timeline; the host may run two steps ahead.

    A step of several ranks ends when the last rank's does. Ranks exchange how long a step lasts since the end of that
    before, which is common to all. So no clock is compared with another, and neither sleeping too long nor the time of
    the exchange enters the rate. A thread of the device exchanges, so that the host goes on.
    """

    synchronous = False

    def __init__(self, arguments: ComputeArguments) -> None:
        self._name = arguments.spec.argument
        self._rate, self._source = parse_rate(self._name)
        self._clock = arguments.clock
        self._group = group = None if arguments.peers is None else arguments.peers.group
        self.in_step = group is not None
        if group is not None:
            group.all_reduce_max(0)  # the devices of all ranks begin together
        self._device = None if group is None else ThreadPoolExecutor(1, thread_name_prefix="device")
        self._free_ns = self._clock.now_ns()
        self._ends: list[Callable[[], int]] = []
        """The end of each step in ns, when asked for: with ranks that waits for the others, and raises LostRank."""

    @staticmethod
    def check(arguments: ComputeArguments) -> None:
        """Raises BadValue for every option, and for a name that is no accelerator and no rate."""
        refuse_options(arguments.loader, arguments.spec, "an emulated accelerator has a specified rate")
        parse_rate(arguments.spec.argument)

    def info(self) -> ComputeInfo:
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
        images = samples_in(batch) or 1
        if len(self._ends) >= STEPS_AHEAD:
            self._wait_until(self._ends[-STEPS_AHEAD]())
        begin_ns, step_ns = self._clock.now_ns(), round(images / self._rate * 1e9)
        if self._device is not None:
            self._ends.append(self._device.submit(self._run, begin_ns, step_ns).result)
        else:
            end_ns = self._run(begin_ns, step_ns)
            self._ends.append(lambda: end_ns)

    def _run(self, begin_ns: int, step_ns: int) -> int:
        """Runs a step whose batch is there at `begin_ns`; its end on the device."""
        length_ns = max(begin_ns - self._free_ns, 0) + step_ns
        self._free_ns += length_ns if self._group is None else self._group.all_reduce_max(length_ns)[0]
        return self._free_ns

    def finish(self) -> tuple[int, ...]:
        ended, self._ends = tuple(end() for end in self._ends), []
        self._wait_until(ended[-1] if ended else 0)
        return ended

    def _wait_until(self, time_ns: int) -> None:
        remaining_ns = time_ns - self._clock.now_ns()
        if remaining_ns > 0:
            self._clock.sleep(remaining_ns / 1e9)


class SynchronousCompute(EmulatedCompute):
    """The same device, but the training thread waits for each step, as in tools that sleep."""

    synchronous = True

    def step(self, batch: Any) -> None:
        super().step(batch)
        self._wait_until(self._ends[-1]())

"""What a compute device must do, what it is made from, and what it may do besides: several ranks, a profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from loaderprobe.protocols.machine import Clock
from loaderprobe.protocols.ranks import Crew, SharedStore
from loaderprobe.records.config import ComputeSpec, LoaderSpec
from loaderprobe.records.measurement import ComputeInfo, Timeline


class MakeModel(Protocol):
    """Makes a model: any function of the number of classes."""

    def __call__(self, *, num_classes: int) -> Any:
        """A `torch.nn.Module` that takes images N x 3 x H x W and gives a tensor of N x `num_classes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The other ranks, for a compute that takes each step together with them."""

    crew: Crew
    """The device's own: no one else meets by it, so that it may be used in another thread."""
    local_rank: int
    """Among the ranks of its node, from 0."""
    cores: float
    """For this rank."""
    store: SharedStore
    """For groups of processes of its own; torch's."""
    timeout_s: float
    """For the others to come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeArguments:
    """What a compute is made from."""

    spec: ComputeSpec
    """The options of training. `spec.argument` is what follows the colon of its name."""
    loader: LoaderSpec
    """How batches reach it: pinned, encoded."""
    clock: Clock
    """For all times that it returns."""
    make_model: MakeModel | None = None
    """Makes the model to train; None for torchvision's ResNet-50."""
    peers: Peers | None = None
    """None for one rank."""


class Compute(Protocol):
    """A device that trains. Made by `Class(arguments)` with `ComputeArguments`, after the loader has started."""

    def info(self) -> ComputeInfo: ...
    def copy(self, batch: Any) -> Any:
        """Launch the copy of a batch to the device; returns the argument of `step`. Does not wait."""

    def step(self, batch: Any) -> None:
        """Launch one training step; waits only while the device's queue is full."""

    def finish(self) -> tuple[int, ...]:
        """Wait for all launched steps; the end of each since the last call, in ns of the clock."""


MakeCompute = Callable[[ComputeArguments], Compute]
"""A class of `Compute`, or whatever else makes one."""


@runtime_checkable
class Checked(Protocol):
    """A class of `Compute` that takes options, or that not every argument or machine suits.

    One without `check` takes no options: those that are not as usual are refused.
    """

    @staticmethod
    def check(arguments: ComputeArguments) -> None:
        """Raise BadValue for an option or argument that it does not take, MissingPart without its device.

        Called in the process that starts the workers, which must not use a device.
        """


@runtime_checkable
class OnGpu(Protocol):
    """A `Compute` on an NVIDIA GPU, whose counters are read during training."""

    def uuid(self) -> str:
        """The GPU's UUID in NVML's form."""


@runtime_checkable
class Timed(Protocol):
    """A `Compute` whose device reports the begin of each step."""

    def begun(self) -> tuple[int, ...]:
        """The time at which the device began the copy of each step that `finish` returned last, in ns of the clock."""


@runtime_checkable
class InStepCompute(Protocol):
    """A `Compute` of one of several ranks. One without this is waited for after each step."""

    @property
    def in_step(self) -> bool:
        """True where each step ends on all ranks together, by itself."""


@runtime_checkable
class Exchanging(Protocol):
    """A `Compute` that exchanges gradients with the other ranks in each step. Only called with several ranks."""

    def exchange(self, *, on: bool) -> None:
        """Whether steps from now on exchange gradients; without, ranks still end each step together."""

    def exchange_alone(self) -> None:
        """Launch as `step` does, but nothing other than the exchange of as many bytes as the gradients have."""


@runtime_checkable
class Profiling(Protocol):
    """A `Compute` that can record the kernels of its device."""

    def profile(self, feed: Callable[[int], Iterator[Any]], *, steps: int, warm_up: int, batch_size: int) -> Timeline:
        """A window of `steps` steps after `warm_up` others, and the same before it without the profiler.

        `feed(count)` prepares storage and loader and gives `count` batches; it is called once for each of the two.
        May raise any error: its message is the reason for the missing timeline.
        """

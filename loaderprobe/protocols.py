"""The protocols of exchangeable parts. Every one is small, and `loaderprobe.testing` has a fake of each.

Loaders and computes may come from other packages: `loaderprobe explain plug-ins`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import (
    Activity,
    Alternative,
    ComputeInfo,
    Missing,
    Mode,
    Series,
    Timeline,
    WorkerBatches,
)

OnStage = Callable[[str, int, int], None]
"""Hears how far something is: (stage, done, total)."""
OnImages = Callable[[int, int], None]
"""The same of one stage: (done, total)."""


class Clock(Protocol):
    """Time for the measuring loop; one clock for everything in a measurement."""

    def now_ns(self) -> int: ...
    def sleep(self, seconds: float) -> None: ...
    def thread_cpu_ns(self) -> int:
        """CPU time of the calling thread."""

    def process_cpu_ns(self) -> int:
        """CPU time of all threads of this process."""


class Sampler(AbstractContextManager[Any, None], Protocol):
    """Reads one kind of counter periodically during training."""

    def sample(self) -> None:
        """Take one reading."""

    def series(self) -> Sequence[Series | Missing]:
        """All readings; a `Missing` with the reason for each figure without readings."""


class PageCache(Protocol):
    """The operating system's file cache, as far as it can be controlled."""

    def evict(self, paths: Sequence[Path]) -> None:
        """Drop the files from the cache."""

    def warm(self, paths: Sequence[Path]) -> None:
        """Read the files once, so that the cache holds them."""

    def resident(self, paths: Sequence[Path]) -> float | None:
        """Share of the files' pages in the cache; None where it is unknown for this user or file system."""


class UtilizationMeter(AbstractContextManager[Any, None], Protocol):
    """Reads how busy the training device is, in a thread of its own, while it is entered."""

    def readings(self) -> tuple[float, ...] | Missing:
        """Shares, 0 to 1, in the order of time; or why there are none. Called after leaving it."""


class SharedStore(Protocol):
    """Where ranks leave word for each other: torch's store. No call waits for a rank."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        ...

    def check(self, keys: list[str]) -> bool:
        """True when all are there."""
        ...

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Set the key if it has the expected value, or none where that is empty; returns the value it has then."""
        ...


class Group(Protocol):
    """All ranks of a training. Each call is made by all of them, and waits for all.

    Raises LostRank when one does not arrive.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def all_reduce_max(self, *values: int, leaving: bool = False) -> tuple[int, ...]:
        """The largest of each value over all ranks. A rank that is `leaving` does not wait for long."""
        ...

    def gather(self, value: bytes) -> tuple[bytes, ...]:
        """The value of each rank, in their order, on rank 0; empty on the others."""
        ...

    def broadcast(self, value: bytes) -> bytes:
        """The value of rank 0, on all ranks."""
        ...


class MakeModel(Protocol):
    """Makes a model: any function of the number of classes."""

    def __call__(self, *, num_classes: int) -> Any:
        """A `torch.nn.Module` that takes images N x 3 x H x W and gives a tensor of N x `num_classes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The other ranks, for a compute that takes each step together with them."""

    group: Group
    """The device's own group: nothing else uses it, so that it may be used in another thread."""
    local_rank: int
    """Among the ranks of its node, from 0."""
    cores: float
    """The cores of this rank."""
    store: SharedStore
    """torch's store, for process groups of the device's own."""
    timeout_s: float
    """Seconds for the others to arrive."""


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


class Files(Protocol):
    """What holds the samples that a loader serves, known batch by batch: the samples come round in one order.

    One file a sample, or one of many samples, such as a shard: both methods speak of the samples that a batch holds.
    """

    @property
    def count(self) -> int:
        """Samples before the first comes again."""

    def absolute(self, first: int, count: int) -> Sequence[Path]:
        """The files that hold `count` samples from sample `first` on."""

    def delivered_bytes(self, first: int, count: int) -> int:
        """Bytes that a loader reads for those samples."""


class Loader(AbstractContextManager[Any, None], Protocol):
    """Serves the batches of one file set in one configuration, without end.

    Made by `Class(config, files, scratch)`; `scratch` is a directory for its temporary files.
    Batch `k` holds the images `k * batch_size` to `(k + 1) * batch_size - 1` of the file set, which is
    read round and round in its own order. A context manager: leaving it stops the workers.
    """

    def batches(self) -> Iterator[Any]:
        """A batch is (images, labels) as torch tensors: images float N x 3 x 224 x 224."""

    def workers(self) -> Sequence[int]:
        """Ids of the processes that read and decode; empty when the training thread does that."""

    def records(self) -> WorkerBatches:
        """The cost of each batch made so far; what an earlier call returned is in it."""


@runtime_checkable
class WithAlternatives(Protocol):
    """A class of `Loader` that knows other ways to make its samples."""

    @staticmethod
    def alternatives(config: RunConfig, files: FileSet) -> tuple[Alternative, ...]:
        """CPU time of an image in each of them; empty where none applies. Called before the loader is made."""


@runtime_checkable
class Switched(Protocol):
    """A `Loader` whose workers can switch modes without a restart."""

    def modes(self) -> frozenset[Mode]:
        """The modes it can be switched to; it begins in the baseline."""

    def switch(self, mode: Mode) -> None:
        """Make batches begun from now on in this mode. The caller prepares the page cache for it."""

    def begun_before(self, first_batch: int, time_ns: int) -> bool:
        """True when a requested batch from `first_batch` on was begun before `time_ns`."""

    def still(self, taken: int) -> bool:
        """True when, with `taken` batches taken, workers have made all requested batches and are idle."""


@runtime_checkable
class OwnThreads(Protocol):
    """A `Loader` whose own threads or processes make each batch together: its records show one worker."""

    own_threads: bool
    new_processes: Callable[[], None]
    """Is called when other processes make the batches than before."""


@runtime_checkable
class Renewing(Protocol):
    """A `Loader` that can make new batches, or repeat old ones, to keep files cold or warm."""

    def batches(self) -> Iterator[Any]: ...
    def take_new(self) -> None:
        """From now on make only new batches."""

    def repeats(self) -> bool:
        """True when it can repeat batches."""

    def repeat(self, batches: int) -> None:
        """From now on repeat the last batches."""

    def new_left(self) -> float:
        """Number of batches that were never made, as far as known; below 0 when some were repeated."""


@runtime_checkable
class Evicting(Protocol):
    """A `Loader` whose workers can let go of files, and evict them ahead of each sample.

    Then nothing that is read ahead serves the next sample.
    """

    def release(self, taken: int) -> None:
        """Make this process and all workers unmap the pages of mapped files, which could not be evicted otherwise.

        Waits until no batch is being made; `taken` have been taken so far.
        """

    def evicts(self) -> bool:
        """True where samples are drawn in random order: a stream goes on with what was read ahead."""

    def evict_ahead(self, paths: Sequence[Path]) -> None:
        """From now on evict these files ahead of each sample; with none, no more."""

    def extend_pool(self, batches: int) -> int:
        """Let a stream begin again only after so many batches, or more; returns after how many it does."""


Round = tuple[tuple[Mode, Activity], ...]


Say = Callable[[str, Mapping[str, Any]], None]
"""Says something to the user of a script: the code of a sentence in `render/messages.py`, with its facts."""

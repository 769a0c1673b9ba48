"""What a loader must do, and what it may do besides: switch modes, keep files cold, compare decoders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Alternative, Mode, WorkerBatches


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


class Loader(Protocol):
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
        """The cost of each batch made so far."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Compared(Protocol):
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
class Renewing(Protocol):
    """A `Loader` that can make new batches, or repeat old ones, to keep files cold or warm."""

    def batches(self) -> Iterator[Any]: ...
    def release(self, taken: int) -> None:
        """Make this process and all workers unmap the pages of mapped files, which could not be evicted otherwise.

        Waits until no batch is being made; `taken` have been taken so far.
        """

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
    """A `Loader` whose workers can evict files ahead of each sample, so that no read-ahead serves the next one."""

    def evicts(self) -> bool:
        """True where samples are drawn in random order: a stream goes on with what was read ahead."""

    def evict_ahead(self, paths: Sequence[Path]) -> None:
        """From now on evict these files ahead of each sample; with none, no more."""

    def extend_pool(self, batches: int) -> int:
        """Let a stream begin again only after so many batches, or more; returns after how many it does."""

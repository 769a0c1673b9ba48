"""What people wrap around a DataLoader, in the forms of the libraries that do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader


class Doubling:
    """Works on each batch, and notes its length."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.seen: list[int] = []

    def __iter__(self) -> Iterator[Any]:
        for images, labels in self.inner:
            self.seen.append(len(labels))
            yield images * 2, labels * 2


class Ahead(Doubling):
    """Holds one batch back, as those do that prefetch to a device."""

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        held = next(batches)
        for batch in batches:
            yield held
            held = batch
        yield held


class Joining(Doubling):
    """Makes one batch of two."""

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        for first in batches:
            yield first, next(batches)


class Disguised:
    """Passes for its DataLoader, and calls its sampler's set_epoch, as Accelerate does."""

    def __init__(self, base: DataLoader[Any]) -> None:
        self.base = base
        self.iteration = 0

    @property  # type: ignore[misc]  # the point of it
    def __class__(self) -> Any:
        return self.base.__class__

    def __getattr__(self, name: str) -> Any:
        if name == "base":
            raise AttributeError(name)
        return getattr(self.base, name)

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self.batch_sampler.sampler, "set_epoch"):
            self.batch_sampler.sampler.set_epoch(self.iteration)
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(self.iteration)
        yield from self.base
        self.iteration += 1


class Piped:
    """A list of stages, the first a DataLoader, as WebDataset's."""

    def __init__(self, stages: list[Any]) -> None:
        self.stages = stages

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.stages[0])
        for stage in self.stages[1:]:
            batches = stage(batches)
        yield from batches

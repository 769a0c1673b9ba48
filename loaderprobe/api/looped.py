"""What a training script iterates in place of a DataLoader's own iterator, and which loaders are the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

from loaderprobe.records.attachment import SeenLoader


class LoopIterator:
    """Gives what `batch(real)` returns; everything else is that of the real iterator."""

    def __init__(self, real: Iterator[Any], batch: Callable[[Iterator[Any]], Any]) -> None:
        self._real, self._batch = real, batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._batch(self._real)

    def __len__(self) -> int:
        return len(self._real)  # type: ignore[arg-type]  # a DataLoader's iterator has a length where the loader has

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def seen_loader(number: int, loader: Any, batches: int, backward_passes: int) -> SeenLoader:
    """A DataLoader for the report."""
    return SeenLoader(
        number=number,
        dataset=type(loader.dataset).__name__,
        batch_size=loader.batch_size,
        workers=loader.num_workers,
        batches=batches,
        backward_passes=backward_passes,
    )


def same_loader(known: Any, loader: Any) -> bool:
    """True for a DataLoader that is made again for each epoch."""
    same = known.dataset is loader.dataset and known.batch_size == loader.batch_size
    return known is loader or (same and known.num_workers == loader.num_workers)

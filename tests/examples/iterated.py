"""Loaders that are iterated in other ways than torch's own, in the forms of the libraries that do, and loops over them.

`KINDS` make a loader of a data set; the loops below make and take batches in their own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from tests.examples.training import BATCH, SAMPLES, Costly, Training

EPOCH = SAMPLES // BATCH


class Endless:
    """A batch sampler that begins again."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


class Eager(DataLoader[Any]):
    """One iterator for all epochs, made at once or at the first, whose workers end with the loader, as in YOLO."""

    def __init__(self, *given: Any, at_once: bool = True, **options: Any) -> None:
        super().__init__(*given, **options)
        self.__dict__["batch_sampler"] = Endless(self.batch_sampler)
        self.iterator: Any = super().__iter__() if at_once else None

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)  # type: ignore[union-attr]  # set above

    def __iter__(self) -> Any:
        if self.iterator is None:
            self.iterator = super().__iter__()
        for _ in range(len(self)):
            yield next(self.iterator)

    def __del__(self) -> None:
        if hasattr(self.iterator, "_workers"):
            self.iterator._shutdown_workers()


class Resetting(Eager):
    """The same, made again for each epoch without its `__iter__`."""

    def __iter__(self) -> Any:
        self.iterator = self._get_iterator()
        yield from super().__iter__()


class Itself(DataLoader[Any]):
    """Is its own iterator, and begins again by itself."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.batches = super().__iter__()

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = super().__iter__()
            return next(self.batches)


class Asking(DataLoader[Any]):
    """Asks for its iterator itself."""

    def __iter__(self) -> Any:
        return self._get_iterator()


class _Serial(_SingleProcessDataLoaderIter):
    finished = False

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except StopIteration:
            self.finished = True
            raise


class _Parallel(_MultiProcessingDataLoaderIter):
    finished = False


class Stateful(DataLoader[Any]):
    """Has iterators of its own kinds, keeps the last, and asks it whether it is over, as torchdata's."""

    def _get_iterator(self) -> Any:
        return _Parallel(self) if self.num_workers else _Serial(self)

    def __iter__(self) -> Any:
        made = self._iterator = self._get_iterator()
        if made.finished:
            made = self._iterator = self._get_iterator()
        return made


class _Transformed:
    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        inputs, targets = next(self.batches)
        return inputs * 2, targets

    def __len__(self) -> int:
        return len(self.batches)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self.batches._reset(loader, first_iter)


class Transforming(DataLoader[Any]):
    """Wraps the iterator that torch's class makes, and transforms its batches, as PyTorch Geometric's."""

    def _get_iterator(self) -> Any:
        return _Transformed(super()._get_iterator())


class Holding:
    """No DataLoader: keeps nothing but an iterator of one that has no end, as DomainBed's."""

    def __init__(self, dataset: Any, size: int, *, shuffle: bool, **options: Any) -> None:
        sampler: Any = Endless(BatchSampler(RandomSampler(dataset), size, drop_last=True))
        self.batches = iter(DataLoader(dataset, batch_sampler=sampler, **options))

    def __iter__(self) -> Any:
        for _ in range(EPOCH):
            yield next(self.batches)


KINDS: dict[str, Callable[..., Any]] = {
    kind.__name__: kind for kind in (DataLoader, Eager, Resetting, Itself, Asking, Stateful, Holding, Transforming)
}


def over(loader: Any) -> Callable[[Training], None]:
    """Epochs of a fixed length over one loader."""

    def loop(training: Training) -> None:
        for _ in training.epochs():
            batches = iter(loader)
            for _ in range(EPOCH):
                training.step(next(batches))

    return loop


def arrays(seed: int) -> DataLoader[Any]:
    """As keras makes one of arrays for each epoch: its data set returns finished batches."""

    class ArrayDataset(Dataset[Any]):
        def __init__(self) -> None:
            self.inner = Costly()

        def __len__(self) -> int:
            return SAMPLES

        def __getitems__(self, indices: list[int]) -> Any:
            samples = [self.inner[index] for index in indices]
            return torch.stack([inputs for inputs, _ in samples]), torch.tensor([target for _, target in samples])

    class Shuffling(Sampler[Any]):
        def __iter__(self) -> Iterator[Any]:
            order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(seed))
            yield from map(tuple, order.reshape(-1, BATCH).tolist())

        def __len__(self) -> int:
            return EPOCH

    return DataLoader(ArrayDataset(), batch_sampler=Shuffling(), collate_fn=lambda batch: batch)


def made_again(training: Training) -> None:
    """Data set and loader are made for each epoch."""
    for epoch in training.epochs():
        batches = iter(arrays(epoch))
        for _ in range(EPOCH):
            training.step(next(batches))


def never_again(training: Training) -> None:
    """Another loader for each epoch, all of them kept."""
    loaders = []
    for epoch in training.epochs():
        loaders.append(arrays(epoch))
        batches = iter(loaders[-1])
        for _ in range(EPOCH):
            training.step(next(batches))


def begun_each_batch(training: Training) -> None:
    """For each batch."""
    for _ in training.epochs():
        training.step(next(iter(training.loader)))

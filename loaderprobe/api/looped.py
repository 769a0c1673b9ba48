"""What a training script iterates while it is measured, and which loaders are the same one."""

from __future__ import annotations

import inspect
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self

from loaderprobe.batches import length_of
from loaderprobe.records.diagnosis import SeenLoader

NOT_THE_SCRIPT = ("loaderprobe.", "torch.utils.data", "torchdata.")
"""Modules whose functions stand between a loop and its batches."""
REMEMBERED_PASSES = 9
UPDATES_A_BATCH = 10
"""A loop that updates a model more often without a new batch of a loader does not train on it. Scripts that train on
one batch repeatedly do so up to eight times."""


class Passes:
    """The batches of one loader, and the backward passes after them: a period without a pass is no training.

    A loop that adds up the losses of several batches makes one pass for all of them, which is usual there. The second
    and third pass of one step, as for the two networks of a GAN, are of the same step.
    """

    def __init__(self) -> None:
        self.since = 0
        """Batches that were taken since the last backward pass, or since a loop began."""
        self.steps = 0
        """Backward passes, those of one step counted once, since a loop last did without this loader."""
        self.updates = 0
        """Updates since the last batch: those after one backward pass, of several optimizers, counted once."""
        self._passed = False
        self._apart: deque[int] = deque(maxlen=REMEMBERED_PASSES)

    def began(self) -> None:
        """A loop begins to iterate the loader."""
        self.since = 0

    def took(self) -> None:
        """A batch was taken."""
        self.since += 1
        self.updates = 0

    def backward(self) -> None:
        """A backward pass began."""
        if self.since:
            self._apart.append(self.since)
            self.steps += 1
        self.since = 0
        self._passed = True

    def updated(self) -> None:
        """An optimizer made a step."""
        self.updates += self._passed
        self._passed = False
        if self.updates >= UPDATES_A_BATCH:
            self.steps = 0

    @property
    def trains(self) -> bool:
        """False when more batches than usual were taken without a backward pass: an evaluation, say."""
        return self.since < self._usual

    @property
    def evaluates(self) -> bool:
        """True when one more was taken: wrappers that are a batch ahead take two before the first pass of an epoch."""
        return self.since > self._usual

    @property
    def _usual(self) -> int:
        return sorted(self._apart)[len(self._apart) // 2] if self._apart else 1


class LoopIterator:
    """Gives what `batch(this)` returns; all else is that of an iterator that is over, so that no worker starts."""

    def __init__(self, real: Iterator[Any], batch: Callable[[Iterator[Any]], Any]) -> None:
        self._real, self._batch = real, batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._batch(self)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """A loader with persistent workers begins its next epoch."""

    def __len__(self) -> int:
        return len(self._real)  # type: ignore[arg-type]  # a DataLoader's iterator has a length where the loader has

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def counts_to(length: int) -> bool:
    """True where the function that iterates has a variable with the number of its batches, or that of the last.

    It may not expect more: timm's train.py divides by zero. Generators on the way to it are asked, too. Ask before the
    last batches, when its counter is another number.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if not str(frame.f_globals.get("__name__")).startswith(NOT_THE_SCRIPT):
            held = tuple(frame.f_locals.values())  # of a module, other threads may add to them meanwhile
            if any(type(each) is int and each in (length - 1, length) for each in held):
                return True
            if not frame.f_code.co_flags & inspect.CO_GENERATOR:
                return False
        frame = frame.f_back
    return False


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


class KnownLoader:
    """A DataLoader of a script, known again when it is iterated again, and when it is made again for each epoch."""

    def __init__(self, loader: Any) -> None:
        self._look_at(loader)

    @property
    def loader(self) -> Any:
        """The script's own; once that is gone, a copy without its iterators."""
        own = self._own()
        return self._copy if own is None else own

    def to_measure(self) -> Any:
        """The loader, or a copy, so that it shows when the script lets go of it.

        One that keeps iterators or has a `__del__` is itself: the copy would lack the ones, or run the other.
        """
        from loaderprobe.loaders.unwrap import bare_copy, kept_iterators

        loader = self.loader
        return loader if hasattr(type(loader), "__del__") or kept_iterators(loader) else bare_copy(loader)

    def keeps(self, real: Any) -> bool:
        """True where the loader keeps an iterator for all its epochs, which has no end."""
        return any(value is real for name, value in vars(self.loader).items() if name != "_iterator")

    def is_itself(self, loader: Any) -> bool:
        """True for the loader, and not one in its place."""
        return self._own() is loader

    def comes_again(self, loader: Any) -> bool:
        """True for the loader itself, and for one in its place, which is the known one from now on.

        That is one of the same data set, batch size and workers; or, where the script has let go of the known one,
        one of the same kind, iterated at the same place of the code.
        """
        own, known = self._own(), self.loader
        if own is not loader:
            if known.dataset is loader.dataset:
                same = (known.batch_size, known.num_workers) == (loader.batch_size, loader.num_workers)
            else:
                same = own is None and self._place == _place() and _kind(known) == _kind(loader)
            if not same:
                return False
        self._look_at(loader)
        return True

    def _look_at(self, loader: Any) -> None:
        from loaderprobe.loaders.unwrap import bare_copy

        self._own = weakref.ref(loader)
        self._copy = bare_copy(loader, plain=hasattr(type(loader), "__del__"))
        self._place = _place()


def _kind(loader: Any) -> tuple[Any, ...]:
    """What is the same of a loader that is made again. Classes by name: a function may make one each time."""
    parts = (loader, loader.dataset, loader.sampler, loader.batch_sampler)
    names = tuple((type(each).__module__, type(each).__qualname__) for each in parts)
    return *names, loader.batch_size, loader.num_workers, loader.drop_last, length_of(loader._index_sampler)


def _place() -> tuple[tuple[str, int], ...]:
    """The file and line of each function of the script that runs, the innermost first."""
    found, frame = [], inspect.currentframe()
    while frame is not None:
        if not str(frame.f_globals.get("__name__")).startswith(NOT_THE_SCRIPT):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)

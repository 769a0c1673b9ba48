"""The DataLoaders of a training script: which are the same, which trains, and what the script iterates meanwhile."""

from __future__ import annotations

import inspect
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Generic, Self, TypeVar

from loaderprobe.batches import length_of
from loaderprobe.records.attached import SeenLoader, WhyNot

NOT_THE_SCRIPT = ("loaderprobe.", "sitecustomize", "torch.utils.data", "torchdata.")
"""Modules whose functions stand between a loop and its batches."""
REMEMBERED_PASSES = 9
UPDATES_A_BATCH = 10
"""A loop that updates a model more often without a new batch of a loader does not train on it. Scripts that train on
one batch repeatedly do so up to eight times."""

WITHOUT_UPDATE = 8
"""So many times as long a first update is waited for, which some optimizers do not announce. From: with the usual 8
steps that is 64 batches, and nanoGPT's train.py adds up the gradients of 40."""


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
        self._batches_per_pass: deque[int] = deque(maxlen=REMEMBERED_PASSES)

    def took(self) -> None:
        self.since += 1
        self.updates = 0

    def backward(self) -> None:
        if self.since:
            self._batches_per_pass.append(self.since)
            self.steps += 1
        self.since = 0
        self._passed = True

    def optimizer_stepped(self) -> None:
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
        return sorted(self._batches_per_pass)[len(self._batches_per_pass) // 2] if self._batches_per_pass else 1


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
    for frame in _frames_of_the_script():
        variables = tuple(frame.f_locals.values())  # of a module, other threads may add to them meanwhile
        if any(type(value) is int and value in (length - 1, length) for value in variables):
            return True
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:
            return False
    return False


def _frames_of_the_script() -> Iterator[FrameType]:
    """Of each function of the script that runs, the innermost first."""
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        if not str(frame.f_globals.get("__name__")).startswith(NOT_THE_SCRIPT):
            yield frame


class KnownLoader:
    """A DataLoader of a script, known again when it is iterated again, and when it is made again for each epoch."""

    def __init__(self, loader: Any) -> None:
        self.made_again = False
        """True once the script had let go of it, and iterated one in its place."""
        self._remember(loader)

    @property
    def loader(self) -> Any:
        """The script's own; once that is gone, a copy without its iterators."""
        original = self._original()
        return self._copy if original is None else original

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

    def is_same_as(self, loader: Any) -> bool:
        """True for the loader itself, and for one in its place, which is the known one from now on.

        That is one of the same data set, batch size and workers; or, where the script has let go of the known one,
        one of the same kind, iterated at the same place of the code.
        """
        original, known = self._original(), self.loader
        if original is not loader:
            if known.dataset is loader.dataset:
                same = (known.batch_size, known.num_workers) == (loader.batch_size, loader.num_workers)
            else:
                same = original is None and self._stack == _script_stack() and _kind(known) == _kind(loader)
            if not same:
                return False
        self.made_again = self.made_again or original is None
        self._remember(loader)
        return True

    def _remember(self, loader: Any) -> None:
        from loaderprobe.loaders.unwrap import bare_copy

        self._original = weakref.ref(loader)
        self._copy = bare_copy(loader, plain=hasattr(type(loader), "__del__"))
        self._stack = _script_stack()


def _kind(loader: Any) -> tuple[Any, ...]:
    """What two loaders of one kind have in common. Classes are compared by name: a function may make one each time."""
    parts = (loader, loader.dataset, loader.sampler, loader.batch_sampler)
    names = tuple((type(part).__module__, type(part).__qualname__) for part in parts)
    return *names, loader.batch_size, loader.num_workers, loader.drop_last, length_of(loader._index_sampler)


def _script_stack() -> tuple[tuple[str, int], ...]:
    """The file and line of each function of the script that runs, the innermost first."""
    return tuple((frame.f_code.co_filename, frame.f_lineno) for frame in _frames_of_the_script())


@dataclass(eq=False, slots=True)
class ScriptLoader:
    """One loader of the script, in all its epochs."""

    number: int
    known: KnownLoader
    batches: int = 0
    begun: int = 0
    """Loops that began over it."""
    in_epoch: int = 0
    """Batches since the script last began to iterate it, those of a measurement among them."""
    trained: int = 0
    """Backward passes after its batches, before the model is updated."""
    wait_ns: int = 0
    began_ns: int = 0
    """When the first batch was asked for."""
    asked_ns: int = 0
    """When the last one was."""
    longest_ns: int = 0
    """The longest time between two of these moments."""
    period: int = 1
    """Batches between two updates of the model."""
    since_update: int = 0
    thread: int = 0
    loops: int = 0
    """Loops that took a batch."""
    without_gradients: bool = False
    """True where its last batch was taken while gradients were off, by a loop that began after the last step."""
    starting_ns: int = 0
    """Since its last batch: for the end of its iterator, and for making the next one."""
    starts_ns: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED_PASSES))
    """The same of the last loops that took a batch, each with its wait for the first one."""
    passes: Passes = field(default_factory=Passes)

    @property
    def begun_each_batch(self) -> bool:
        """True where each batch is the first of a loop: `next(iter(loader))`."""
        return self.loops == self.batches > 1

    @property
    def starts_workers(self) -> bool:
        """True where workers start with each loop."""
        return self.loader.num_workers > 0 and (self.known.made_again or not self.loader.persistent_workers)

    @property
    def loader(self) -> Any:
        """The DataLoader of the last epoch."""
        return self.known.loader

    def step_s(self, now_ns: int) -> float:
        """Seconds of a step so far, with its waiting, as the loop asks for a batch. Of several the longest is left out:
        it starts workers, or compiles. That need not be the first, as some loops are a batch ahead of their steps.
        """
        whole_ns = now_ns - self.began_ns
        if self.batches < 2:
            return whole_ns / 1e9
        return (whole_ns - max(self.longest_ns, now_ns - self.asked_ns)) / (self.batches - 1) / 1e9

    def begins(self) -> None:
        self.begun += 1
        self.in_epoch = 0
        self.passes.since = 0

    def record(self) -> SeenLoader:
        loader = self.loader
        return SeenLoader(
            number=self.number,
            dataset=type(loader.dataset).__name__,
            batch_size=loader.batch_size,
            workers=loader.num_workers,
            batches=self.batches,
            backward_passes=self.trained,
        )


L = TypeVar("L", bound=ScriptLoader)


class SeenLoaders(Generic[L]):
    """Hears of batches, backward passes and updates: a pass belongs to the loaders that gave batches before it."""

    def __init__(self, make: Callable[[int, KnownLoader], L]) -> None:
        """`make` makes what is kept of a loader that is new, from its number."""
        self._make = make
        self.all: list[L] = []
        self.current: list[L] = []
        """Those that gave batches since the last backward pass, or before it where none has given any since."""
        self._fresh = True
        self._updated = False
        self.passes = 0
        """Backward passes, of all loaders; ranks of one training have made as many."""
        self.trained_in = 0
        """The thread of the last backward pass; 0 before the first."""

    def seen(self, loader: Any) -> L:
        """This loader, of which a loop begins; one made again for each epoch is the same one."""
        for tracked in self.all:
            if tracked.known.is_same_as(loader):
                tracked.begins()
                return tracked
        self.all.append(self._make(len(self.all), KnownLoader(loader)))
        return self.all[-1]

    def known(self, loader: Any) -> L | None:
        return next((tracked for tracked in self.all if tracked.loader is loader), None)

    @property
    def taken(self) -> list[L]:
        """Those that gave batches since the last backward pass."""
        return self.current if self._fresh else []

    def took(self, tracked: L, begin_ns: int, ready_ns: int) -> None:
        self.gave(tracked)
        if tracked.in_epoch == 1:
            tracked.starts_ns.append(tracked.starting_ns + ready_ns - begin_ns)
        tracked.starting_ns = 0
        tracked.began_ns = tracked.began_ns or begin_ns
        tracked.longest_ns = max(tracked.longest_ns, begin_ns - (tracked.asked_ns or begin_ns))
        tracked.asked_ns = begin_ns
        tracked.since_update += 1
        tracked.wait_ns += ready_ns - begin_ns
        tracked.thread = threading.get_ident()

    def gave(self, tracked: L) -> None:
        """The script has a batch of this loader, or of its measurement."""
        from loaderprobe.loaders.attached import gradients_are_off

        tracked.passes.took()
        tracked.without_gradients = gradients_are_off() and tracked.passes.since >= tracked.in_epoch
        # A validation after each step is none of the next one.
        if not tracked.without_gradients or all(other.without_gradients for other in self.current):
            if not self._fresh:
                self.current, self._fresh = [], True
            if tracked not in self.current:
                self.current.append(tracked)
        tracked.batches += 1
        tracked.loops += tracked.in_epoch == 1

    def backward(self) -> None:
        self._fresh, self.trained_in = False, threading.get_ident()
        self.passes += 1
        self.current = [tracked for tracked in self.current if not tracked.without_gradients] or self.current
        for tracked in self.current:
            tracked.trained += not tracked.passes.updates
        for tracked in self.all:
            tracked.passes.backward()

    def optimizer_stepped(self) -> None:
        # A script may call its optimizer once before it trains, to begin its state.
        self._updated = self._updated or self.passes > 0
        for tracked in self.all:
            tracked.passes.optimizer_stepped()
        for tracked in self.current:
            if tracked.since_update:
                tracked.period, tracked.since_update = tracked.since_update, 0

    def awaited(self, after_steps: int) -> int:
        """The steps that are waited for: more where none has updated the model."""
        return after_steps * (WITHOUT_UPDATE if self.passes and not self._updated else 1)

    def choice(self, number: int | None, after_steps: int) -> L | None:
        """Of the loaders that a training step takes from, the one that it waits for most; or the one of this `number`.

        None until it has given `after_steps` batches, and the model was updated: then it is known for how many batches
        gradients are added up.
        """
        steps = self.awaited(after_steps)
        if number is not None:
            return next((loader for loader in self.all if loader.number == number and loader.batches >= steps), None)
        if self._fresh or not self.current or min(tracked.passes.steps for tracked in self.current) < steps:
            return None
        return max(self.current, key=lambda tracked: tracked.wait_ns)

    def others(self, chosen: L | None) -> list[SeenLoader]:
        """Other loaders that the last step took from."""
        return [loader.record() for loader in self.current if loader is not chosen]

    def lacks(self, number: int | None) -> bool:
        """True where there is no loader of the number that is asked for, so far."""
        return number is not None and number >= len(self.all)

    def why_none(self, number: int | None) -> WhyNot:
        if self.lacks(number):
            return "no_such_loader"
        trained = [tracked for tracked in self.all if tracked.trained]
        if any(tracked.thread != self.trained_in for tracked in trained):
            return "other_thread"
        if self.passes > UPDATES_A_BATCH * sum(tracked.trained for tracked in self.all):
            return "no_loader"
        return "too_few_steps" if trained else "no_backward"

    def records(self) -> tuple[SeenLoader, ...]:
        return tuple(tracked.record() for tracked in self.all)

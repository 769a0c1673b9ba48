"""The DataLoaders of a training script, and which trains: a backward pass belongs to those that gave batches."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from loaderprobe.api.looped import UPDATES_A_BATCH, KnownLoader, Passes, seen_loader
from loaderprobe.records.diagnosis import SeenLoader, WhyNot


@dataclass(eq=False, slots=True)
class Seen:
    """One loader of the script, in all its epochs."""

    number: int
    known: KnownLoader
    batches: int = 0
    begun: int = 0
    """Loops over it."""
    in_epoch: int = 0
    """Batches since the script last began to iterate it, those of a measurement among them."""
    trained: int = 0
    """Backward passes after its batches, before the model is updated."""
    wait_ns: int = 0
    began_ns: int = 0
    """When the first batch was asked for."""
    period: int = 1
    """Batches between two updates of the model."""
    since_update: int = 0
    thread: int = 0
    loops: int = 0
    """That took a batch."""
    passes: Passes = field(default_factory=Passes)

    @property
    def begun_each_batch(self) -> bool:
        """True where each batch is the first of a loop: `next(iter(loader))`."""
        return self.loops == self.batches > 1

    @property
    def loader(self) -> Any:
        """That of the last epoch."""
        return self.known.loader

    def begins(self) -> None:
        """A loop over it begins."""
        self.begun += 1
        self.in_epoch = 0
        self.passes.began()

    def record(self) -> SeenLoader:
        """For the report."""
        return seen_loader(self.number, self.loader, self.batches, self.trained)


class SeenLoaders:
    """Hears of batches, backward passes and updates."""

    def __init__(self) -> None:
        self._all: list[Seen] = []
        self._current: list[Seen] = []
        """Those that gave batches since the last backward pass."""
        self._fresh = True
        self.passes = 0
        """Backward passes, of all loaders; ranks of one training have made as many."""
        self.trained_in = 0
        """The thread of the last backward pass; 0 before the first."""

    def seen(self, loader: Any) -> Seen:
        """This loader, of which a loop begins; one made again for each epoch is the same one."""
        for seen in self._all:
            if seen.known.comes_again(loader):
                seen.begins()
                return seen
        self._all.append(Seen(len(self._all), KnownLoader(loader)))
        return self._all[-1]

    def itself(self, loader: Any) -> Seen | None:
        """This loader, if it was seen before."""
        return next((seen for seen in self._all if seen.known.is_itself(loader)), None)

    def took(self, seen: Seen, begin_ns: int, ready_ns: int) -> None:
        """The script took a batch."""
        self.gave(seen)
        seen.began_ns = seen.began_ns or begin_ns
        seen.since_update += 1
        seen.wait_ns += ready_ns - begin_ns
        seen.thread = threading.get_ident()

    def gave(self, seen: Seen) -> None:
        """The script has a batch of this loader, or of its measurement."""
        if not self._fresh:
            self._current, self._fresh = [], True
        if seen not in self._current:
            self._current.append(seen)
        seen.batches += 1
        seen.loops += seen.in_epoch == 1
        seen.passes.took()

    def backward(self) -> None:
        """A backward pass began."""
        self._fresh, self.trained_in = False, threading.get_ident()
        self.passes += 1
        for seen in self._current:
            seen.trained += not seen.passes.updates
        for seen in self._all:
            seen.passes.backward()

    def updated(self) -> None:
        """An optimizer made a step."""
        for seen in self._all:
            seen.passes.updated()
        for seen in self._current:
            if seen.since_update:
                seen.period, seen.since_update = seen.since_update, 0

    def choice(self, asked: int | None, after_steps: int) -> Seen | None:
        """Of the loaders that a training step takes from, the one that it waits for most; or the number `asked` for.

        None until it has given `after_steps` batches.
        """
        if asked is not None:
            return next((seen for seen in self._all if seen.number == asked and seen.batches >= after_steps), None)
        if self._fresh or not self._current or min(seen.passes.steps for seen in self._current) < after_steps:
            return None
        return max(self._current, key=lambda seen: seen.wait_ns)

    def beside(self, chosen: Seen | None) -> list[SeenLoader]:
        """The others that the last step took from."""
        return [each.record() for each in self._current if each is not chosen]

    def why_none(self, asked: int | None) -> WhyNot:
        """Why none was chosen by the end of the script."""
        if asked is not None and asked >= len(self._all):
            return "no_such_loader"
        trained = [seen for seen in self._all if seen.trained]
        if any(seen.thread != self.trained_in for seen in trained):
            return "other_thread"
        if self.passes > UPDATES_A_BATCH * sum(seen.trained for seen in self._all):
            return "no_loader"
        return "too_few_steps" if trained else "no_backward"

    def records(self) -> tuple[SeenLoader, ...]:
        """For the report."""
        return tuple(seen.record() for seen in self._all)

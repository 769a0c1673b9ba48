"""The measurement in place of a script's loader: what its loops get, and when they have gone elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from loaderprobe.batches import length_of
from loaderprobe.measure.attach.coroutine import SessionCoroutine
from loaderprobe.measure.attach.outside import Pauses
from loaderprobe.measure.attach.script_loaders import LoopIterator, ScriptLoader, counts_to
from loaderprobe.measure.session import LEAST_STEPS_IN_A_ROW

EPOCHS_ELSEWHERE = 2
"""Epochs that the script may train without a batch of the loader that is measured."""

Loop = tuple[Iterator[Any], int]
"""One over the loader that is measured: its iterator, which may be that of all loops, and its number."""


class Evaluation:
    """Finds loops over the measured loader that train on none of its batches, and gives them the loader's own."""

    def __init__(self, seen: ScriptLoader, coroutine: SessionCoroutine) -> None:
        self._seen, self._coroutine = seen, coroutine
        self._last: Loop | None = None
        """The one that got the last batch."""
        self._given = 0
        """Batches of the measurement that it got."""
        self._trains: Loop | None = None
        """The one that got the batch of the last backward pass."""
        self._evaluates: Loop | None = None
        self._batches: Iterator[Any] = iter(())
        self.makes_iterator = False
        """True while an iterator is made that is none of the script's."""

    def has(self, loop: Loop) -> bool:
        """True for a loop that evaluates, from the batch on that it asks for now: `next` gives it.

        A single batch without a backward pass, in a loop that trains, only makes void what was timed.
        """
        if self._evaluates == loop:
            return True
        if self._last != loop or not self._seen.trained or self._seen.passes.trains:
            return False
        self._coroutine.interrupt("a batch was taken without a backward pass after it")
        if self._trains == loop or not self._seen.passes.evaluates:
            return False
        self.makes_iterator = True
        try:
            self._evaluates, self._batches = loop, self._seen.loader._get_iterator()
        finally:
            self.makes_iterator = False
        for _ in range(self._given):  # in place of these it got batches of the measurement
            next(self._batches, None)
        return True

    def next(self) -> Any:
        self._last = self._evaluates
        try:
            return next(self._batches)
        except StopIteration:
            self.stop()
            raise

    def gave(self, loop: Loop) -> None:
        """A loop got a batch of the measurement: if another evaluates, that was broken off."""
        if self._evaluates is not None and self._evaluates != loop:
            self._evaluates = None
            self.stop()
        self._given = self._given + 1 if self._last == loop else 1
        self._last = loop

    def backward(self) -> None:
        """The loop that got the last batch trains."""
        self._trains = self._last
        if self._last == self._evaluates:
            self._evaluates = None
            self.stop()

    def stop(self) -> None:
        """Let go of the loader's iterator: its workers end with it, persistent ones too."""
        self._batches = iter(())


class OtherTraining:
    """Backward passes on other batches: too many, or too long, and the loop that is measured does not come back."""

    def __init__(
        self, seen: ScriptLoader, after_steps: int, passes: int, budget_s: float | None, clock: Callable[[], int]
    ) -> None:
        """The limit is in epochs, by the `passes` that the script made so far, and in `budget_s` for `after_steps`.

        Ranks, which are in step, count passes alone: for them `budget_s` is None.
        """
        epoch = max(after_steps, length_of(seen.loader) or seen.batches)
        self._most = round(EPOCHS_ELSEWHERE * epoch * max(1.0, passes / max(seen.batches, 1)))
        self._most_s = None if budget_s is None else EPOCHS_ELSEWHERE * budget_s
        self._after_steps, self._clock = after_steps, clock
        self._passes = self._since_ns = 0

    def gave(self) -> None:
        self._passes, self._since_ns = 0, self._clock()

    def backward(self) -> None:
        self._passes += 1

    @property
    def happens(self) -> bool:
        """True after as many passes as show which loader a script trains on."""
        return self._passes >= self._after_steps

    @property
    def is_final(self) -> bool:
        seconds = (self._clock() - self._since_ns) / 1e9
        late = self._most_s is not None and seconds > self._most_s
        return self._passes > self._most or (late and self.happens)


@dataclass(eq=False)
class Takeover:
    """Gives the loops over one loader the batches of a measurement, with the loop's work as the step."""

    seen: ScriptLoader
    real: Iterator[Any]
    """The iterator that the script has of the loader."""
    take: Callable[[], Any]
    """Its next batch."""
    coroutine: SessionCoroutine
    pauses: Pauses
    other_training: OtherTraining
    budget_s: float
    handed_over: bool = False
    """True once the script was given a batch of the measurement."""

    def __post_init__(self) -> None:
        self.evaluation = Evaluation(self.seen, self.coroutine)
        length = length_of(self.seen.loader) or 0
        # Fewer make no segment: then a loop that may expect no more gets more all the same.
        counted = length > LEAST_STEPS_IN_A_ROW and not self.seen.known.keeps(self.real) and counts_to(length)
        self._length = length if counted else None
        """Batches of an epoch, where the loop ends with them; None for as many as the measurement takes."""

    @property
    def epoch_is_over(self) -> bool:
        return self._length is not None and self.seen.in_epoch > self._length

    def loop_begins(self, seen: ScriptLoader) -> None:
        """What is timed now is more than a step; an evaluation over the same loader is over."""
        if seen is self.seen:
            self.evaluation.stop()
        if not (seen is self.seen and seen.begun_each_batch):
            other = f"loader {seen.record().number} was iterated"
            self.coroutine.interrupt("the loop began its next epoch" if seen is self.seen else other)

    def resumes(self) -> tuple[float, str] | None:
        """The loop asks for a batch again: what took it much longer than a step, as `Pauses.end` says, is no step."""
        pause = self.pauses.end()
        if pause is not None:
            self.coroutine.interrupt("the script paused between two batches")
        return pause

    def gave(self, loop: Loop) -> None:
        """The script has a batch of the measurement: its own workers are not needed, and would only take memory."""
        self.other_training.gave()
        real, _ = loop
        if not (self.handed_over and real is self.real) and type(real) is not LoopIterator:
            from loaderprobe.loaders.attached import shut_down

            shut_down(real, self.seen.loader)
        self.handed_over = True
        self.evaluation.gave(loop)
        self.pauses.begin()

    def close(self) -> None:
        """Put the loader's own iterators in the place of those that gave batches of the measurement."""
        attributes = vars(self.seen.loader)
        attributes.update({name: None for name, value in attributes.items() if type(value) is LoopIterator})

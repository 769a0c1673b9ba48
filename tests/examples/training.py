"""Training loops as people write them, over a data set whose samples cost CPU time.

The ways are those in which a loop may take its batches, and what else it may do in between.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

BATCH = 8
SAMPLES = 160
SAMPLE_S, STEP_S = 0.0003, 0.0005
MOST_STEPS = 20_000
"""So many end a loop by itself, which a measurement has ended long before."""
SCHEDULED = 25
"""Steps: more than loops train before they are taken over, fewer than a round takes."""


class Costly(Dataset[tuple[torch.Tensor, int]]):
    """Samples of so much CPU time."""

    def __init__(self, sample_s: float = SAMPLE_S, samples: int = SAMPLES) -> None:
        self.sample_s, self.samples = sample_s, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        end = time.thread_time() + self.sample_s
        while time.thread_time() < end:
            pass
        return torch.full((10,), float(index % 7)), index % 10


class Training:
    """A model, a training loader and one for validation."""

    def __init__(self, out: Path, **loader: Any) -> None:
        self.out = out
        self.loader = DataLoader(Costly(), BATCH, shuffle=True, **loader)
        self.validation = DataLoader(TensorDataset(torch.zeros(64, 10), torch.zeros(64).long()), 32)
        self.model = torch.nn.Linear(10, 10)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)
        self.steps = 0
        self.evaluated: list[int] = []
        """Batches of each evaluation over the training data."""

    def step(self, batch: Any, update: bool = True) -> None:
        """One training step; ends the script after many, so that no test runs forever."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise RuntimeError("the loop was never ended")
        inputs, targets = batch
        end = time.thread_time() + STEP_S
        while time.thread_time() < end:
            pass
        torch.nn.functional.cross_entropy(self.model(inputs), targets).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if update:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def validate(self) -> None:
        """As after an epoch."""
        with torch.no_grad():
            for inputs, _ in self.validation:
                self.model(inputs)

    def evaluate(self) -> None:
        """Over the training data."""
        with torch.no_grad():
            count = 0
            for inputs, _ in self.loader:
                self.model(inputs)
                count += 1
        self.evaluated.append(count)

    def epochs(self) -> Iterator[int]:
        """Without end."""
        return itertools.count()


def plain(training: Training) -> None:
    for _ in training.epochs():
        for batch in training.loader:
            training.step(batch)


def by_next(training: Training) -> None:
    """And validates, before the first epoch too."""
    training.validate()
    for _ in training.epochs():
        batches = iter(training.loader)
        for _ in range(len(training.loader)):
            training.step(next(batches))
        training.validate()


def generated(training: Training) -> None:
    def through(batches: Any) -> Iterator[Any]:
        yield from batches

    for _ in training.epochs():
        for batch in through(training.loader):
            training.step(batch)


def accumulates(training: Training) -> None:
    for _ in training.epochs():
        for number, batch in enumerate(training.loader):
            training.step(batch, update=number % 4 == 3)


def zips(training: Training) -> None:
    second = DataLoader(Costly(SAMPLE_S / 8), BATCH, shuffle=True)
    for _ in training.epochs():
        for batch, _ in zip(training.loader, second, strict=False):
            training.step(batch)


def again(training: Training) -> None:
    """A new DataLoader each epoch, left before its end."""
    for _ in training.epochs():
        fresh = DataLoader(training.loader.dataset, BATCH, shuffle=True)
        for number, batch in enumerate(fresh):
            if number == 15:
                break
            training.step(batch)


def schedules(training: Training) -> None:
    """With a scheduler that raises when its steps are used up."""
    scheduler = torch.optim.lr_scheduler.OneCycleLR(training.optimizer, 0.01, total_steps=SCHEDULED)
    for _ in training.epochs():
        for batch in training.loader:
            training.step(batch)
            scheduler.step()


def counts(training: Training) -> None:
    """With a weight for each batch of an epoch."""
    for _ in training.epochs():
        last = len(training.loader)
        weights = [1.0] * last
        for number, batch in enumerate(training.loader):
            training.step(batch, update=bool(weights[number]))


def evaluates_train(training: Training) -> None:
    """After each epoch over the training loader itself, without a backward pass."""
    for _ in training.epochs():
        last = len(training.loader)
        for number, batch in enumerate(training.loader):
            training.step(batch, update=number <= last)
        training.evaluate()


def adversarial(training: Training) -> None:
    """Three backward passes a step, and two updates, as of two networks that train against each other."""
    opponent = torch.nn.Linear(10, 10)
    optimizer = torch.optim.SGD(opponent.parameters(), 0.01)
    for _ in training.epochs():
        for batch in training.loader:
            for part in (batch[0], -batch[0]):
                opponent(part).sum().backward()
            optimizer.step()
            training.step(batch)


def skips(training: Training) -> None:
    """Now and then a batch that is not trained on."""
    for _ in training.epochs():
        for number, batch in enumerate(training.loader):
            if number % 50 != 49:
                training.step(batch)


def raises(training: Training) -> None:
    for batch in training.loader:
        training.step(batch)
        if training.steps == 12:
            raise KeyError("planted")


def never_trains(training: Training) -> None:
    for _ in range(3):
        training.validate()


def validates_alone(training: Training) -> None:
    """Makes its own batches, and validates with a DataLoader now and then."""
    for step in range(400):
        if step % 25 == 0:
            training.validate()
        training.step((torch.zeros(8, 10), torch.zeros(8).long()))


def short(training: Training) -> None:
    """Ends after three steps."""
    for number, batch in enumerate(training.loader):
        if number == 3:
            break
        training.step(batch)


def in_a_thread(training: Training) -> None:
    """Another thread takes the batches."""
    import queue
    import threading

    batches: queue.Queue[Any] = queue.Queue(2)

    def fill() -> None:
        for batch in training.loader:
            batches.put(batch)
        batches.put(None)

    threading.Thread(target=fill, daemon=True).start()
    while (batch := batches.get()) is not None:
        training.step(batch)


WAYS: dict[str, Callable[[Training], None]] = {
    way.__name__: way
    for way in (
        plain, by_next, generated, accumulates, zips, again, schedules, raises, never_trains, short, in_a_thread,
        counts, evaluates_train, adversarial, skips, validates_alone,
    )
}  # fmt: skip

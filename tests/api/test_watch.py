"""A training that is watched is the same, bit for bit; what limits it is estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from loaderprobe.api.load import load_any
from loaderprobe.api.run import Watch, watch_of, watcher_of
from loaderprobe.errors import NoSpace
from loaderprobe.loaders.attached import attach
from loaderprobe.measure.attach import watcher as watcher
from loaderprobe.records.diagnosis import AttachRequest
from tests.examples import training as example
from tests.examples.training import SCHEDULED, WAYS, Training

STEPS = 200
pytestmark = pytest.mark.usefixtures("one_thread")


class Noisy(Dataset[tuple[torch.Tensor, int]]):
    """Samples that draw from the worker's random state."""

    def __len__(self) -> int:
        return 320

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(10) + index, index % 10


class Stream(IterableDataset[tuple[torch.Tensor, int]]):
    """An iterable that ends within a batch."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        yield from (((torch.randn(10) + index), index % 10) for index in range(317))


LOADERS: dict[str, dict[str, Any]] = {
    "serial": {"dataset": Noisy(), "shuffle": True},
    "workers": {"dataset": Noisy(), "shuffle": True, "num_workers": 1},
    "persistent": {"dataset": Noisy(), "shuffle": True, "num_workers": 2, "persistent_workers": True},
    "iterable": {"dataset": Stream(), "num_workers": 1},
}


def losses(options: dict[str, Any]) -> tuple[list[float], torch.Tensor]:
    """Of 200 steps with a fixed seed, and the random state after them."""
    torch.manual_seed(1)
    loader: DataLoader[Any] = DataLoader(batch_size=8, **options)
    model = torch.nn.Linear(10, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    found: list[float] = []
    while len(found) < STEPS:
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
    return found, torch.get_rng_state()


def watched(train: Any, keep: Callable[[Watch], None] = lambda found: None) -> tuple[Any, Watch | None, list[str]]:
    """What it returns, what was seen, and what was said."""
    said: list[str] = []
    watcher = watcher_of(AttachRequest(run="", scratch="", command="train.py", budget_s=None), said.append, keep)
    detach = attach(watcher)
    try:
        returned = train()
        report = watcher.result()
        return returned, None if report is None else watch_of(report), said
    finally:
        detach()
        watcher.close()


@pytest.mark.parametrize("kind", LOADERS)
def test_a_watched_training_is_the_same_bit_for_bit(kind: str) -> None:
    """Losses and random state, over epochs."""
    usual = losses(LOADERS[kind])
    (seen, state), found, _ = watched(lambda: losses(LOADERS[kind]))
    assert seen == usual[0] and torch.equal(state, usual[1])
    assert found is not None and sum(each.steps for each in found.intervals) == len(seen)
    (interval,) = found.intervals
    assert 0 < found.overhead_s < interval.seconds
    usual_s = sum((317 / 40 if kind == "iterable" else 8) for _ in seen) / interval.images_per_s
    assert usual_s == pytest.approx(interval.seconds, rel=0.5)


def test_what_cannot_be_kept_ends_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is said once an interval, and all is seen to the end."""
    monkeypatch.setattr(watcher, "FIRST_S", 0.01)

    def full(found: Watch) -> None:
        raise NoSpace("no space left to write result.json")

    (seen, _), found, said = watched(lambda: losses(LOADERS["serial"]), full)
    assert found is not None and sum(each.steps for each in found.intervals) == len(seen)
    assert said[1] == "the last interval is not kept: no space left to write result.json"


def trained(sample_s: float, step_s: float, steps: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A loop of so many steps, validated now and then, that is watched in short intervals."""
    monkeypatch.setattr(watcher, "FIRST_S", 0.1)
    monkeypatch.setattr(watcher, "LATER_S", 0.6)
    monkeypatch.setattr(example, "STEP_S", step_s)

    def train() -> None:
        training = Training(tmp_path)
        training.loader.dataset.sample_s = sample_s  # type: ignore[attr-defined]  # it is ours
        while training.steps < steps:
            for batch in training.loader:
                training.step(batch)
            training.validate()

    return watched(train)


def test_preprocessing_that_starves_training_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In each interval and as a whole; it is said meanwhile, and kept with a chart."""
    _, found, said = trained(0.0008, 0.0005, 150, monkeypatch, tmp_path)
    # On a busy machine, time lost to others looks like waiting, too.
    assert "preprocessing" in (found.bound.cause, *found.bound.candidates)
    assert len(found.intervals) >= 2 and len(said) == len(found.intervals)
    # On a busy machine, so short an interval has too few steps for a verdict.
    assert [" (estimated)" in each for each in said] == [each.bound is not None for each in found.intervals]
    assert max(each.input_wait_fraction for each in found.intervals) > 0.6
    page = found.save(tmp_path / "found")
    assert "<svg" in page.read_text()
    shown = load_any(tmp_path / "found")
    assert isinstance(shown, Watch) and shown == found
    assert "Without --watch it comes from an experiment" in " ".join(shown.text().split())


def test_a_slow_step_is_compute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The loader waits for it."""
    _, found, _ = trained(0.00001, 0.005, 80, monkeypatch, tmp_path)
    assert found.bound.side == "compute"


def test_an_evaluation_over_the_training_loader_is_no_training(tmp_path: Path) -> None:
    """Its batches are counted as taken, and are no steps; an error of the script is its own."""
    training = Training(tmp_path)

    def train() -> None:
        for _ in range(3):
            training.evaluate()
            for batch in training.loader:
                training.step(batch)

    _, found, _ = watched(train)
    assert found is not None and sum(interval.steps for interval in found.intervals) == training.steps
    with pytest.raises(ValueError, match=f"total steps is {SCHEDULED}"):
        watched(lambda: WAYS["schedules"](training))


def test_what_does_not_train_gives_nothing(tmp_path: Path) -> None:
    """Only validation was iterated, also where a training without a loader runs in between."""
    _, found, _ = watched(lambda: Training(tmp_path).validate())
    assert found is None
    _, found, said = watched(lambda: WAYS["validates_alone"](Training(tmp_path)))
    assert found is None and not any("images/s" in each for each in said)

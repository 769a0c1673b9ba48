"""One rank alone, in this process: its segments, its samples, and what cannot train."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from loaderprobe.compute import devices as session
from loaderprobe.compute.devices import DeviceSession
from loaderprobe.compute.models import lenet5
from loaderprobe.compute.trainer import HELD, Training, training_of
from loaderprobe.errors import BadValue
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks.crew import GroupOfOne
from loaderprobe.records.devices import DataKind, DeviceWork, Placement, PlacementResult, Workload


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A rank sets how many threads this process has."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def workload(
    model: str = "mlp", data: DataKind = "mnist", shape: tuple[int, ...] = (1, 28, 28), samples: int = 5000
) -> Workload:
    return Workload(model=model, data=data, shape=shape, batch_size=4, samples=samples)


def run(
    training: Training, steps: int | None = 2, samples: int = 5000, heard: list[tuple[str, int, int]] | None = None
) -> PlacementResult:
    work = DeviceWork(
        workload=workload(samples=samples), placement=Placement(device="cpu"), threads=1, rounds=3, steps=steps, seed=1,
        timeout_s=60.0,
    )  # fmt: skip
    said = heard if heard is not None else []
    clock = SystemClock()
    return DeviceSession(work, training, GroupOfOne(), None, clock, lambda *stage: said.append(stage)).run()


def test_a_rank_alone_exchanges_nothing() -> None:
    """Training, a resident batch and a larger one, once a round, in an order that differs between rounds."""
    heard: list[tuple[str, int, int]] = []
    found = run(training_of(workload(), lenet5, 0), heard=heard)
    assert (found.backend, found.device) == ("", "")
    rounds = [[each.name for each in found.segments if each.round == number] for number in range(3)]
    assert all(sorted(names) == ["larger_batch", "resident", "training"] for names in rounds)
    assert len({tuple(names) for names in rounds}) > 1
    assert {(each.name, each.batch_size, each.steps) for each in found.segments} == {
        ("training", 4, 2), ("resident", 4, 2), ("larger_batch", 16, 1),
    }  # fmt: skip
    assert dict.fromkeys((done, total) for name, done, total in heard if total) == {(n, 9): None for n in range(9)}


def test_an_epoch_without_a_larger_batch_has_none() -> None:
    """One sample less than four batches, and the experiment is left out; where the data hold less than was said, it is
    an error, not an endless wait."""
    found = run(training_of(workload(samples=15), lenet5, 0), samples=15)
    assert {each.name for each in found.segments} == {"resident", "training"}
    found = run(training_of(workload(samples=16), lenet5, 0), samples=16)
    assert {each.name for each in found.segments} == {"larger_batch", "resident", "training"}
    with pytest.raises(BadValue, match="an epoch of 16 samples has no batch of 16"):
        run(training_of(workload(samples=15), lenet5, 0), samples=16)


def test_segments_take_their_usual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a number of steps, quick ones are many."""
    monkeypatch.setattr(session, "SEGMENT_S", 0.1)
    training = Training(
        model=nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
        samples=training_of(workload(), lenet5, 0).samples,
        loss=nn.functional.cross_entropy,
    )
    (steps,) = {each.steps for each in run(training, steps=None).segments if each.name == "training"}
    assert steps > 4


@pytest.mark.parametrize(
    ("model", "data", "shape"),
    [("mlp", "mnist", (1, 28, 28)), ("lenet5", "images", (3, 32, 32)), ("lstm", "sine", (50, 1))],
)
def test_samples_suit_their_model(model: str, data: DataKind, shape: tuple[int, ...]) -> None:
    """The same in every process; an epoch takes those in memory in turn."""
    training = training_of(workload(model, data, shape), lenet5, 1)
    again = training_of(workload(model, data, shape), lenet5, 1)
    inputs, target = training.samples[3]
    assert tuple(inputs.shape) == shape and torch.equal(inputs, again.samples[3][0])
    assert torch.equal(inputs, training.samples[3 + HELD][0]) and not torch.equal(inputs, training.samples[4][0])
    batch = torch.utils.data.default_collate([(inputs, target)] * 4)
    assert training.loss(training.model(batch[0]), batch[1]).ndim == 0


def test_a_sequence_goes_on_with_its_target() -> None:
    """Between the last two values and the next lies a sine wave: all are within 1, and neighbours are close."""
    inputs, target = training_of(workload("lstm", "sine", (50, 1)), lenet5, 0).samples[0]
    steps = torch.cat([inputs, target.unsqueeze(0)]).diff(dim=0).abs()
    assert float(steps.max()) < 2 * torch.pi / 10 and float(inputs.abs().max()) <= 1
    assert float(steps[-1]) > 0


def test_what_cannot_train_is_refused() -> None:
    """A model without weights, and one that fails in its first step, with its own reason."""
    with pytest.raises(BadValue, match="no parameters to train"):
        training_of(workload("x:y", "images", (3, 8, 8)), lambda *, num_classes: nn.Flatten(), 0)
    samples = training_of(workload(), lenet5, 0).samples
    narrow = Training(model=nn.Linear(5, 5), samples=samples, loss=nn.functional.cross_entropy)
    with pytest.raises(BadValue, match=r"'mlp' fails in its first step: RuntimeError: .*mat1 and mat2"):
        run(narrow)

"""A loader is measured however it is iterated; where it cannot be, the script goes on with its own batches."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import loaderprobe
from loaderprobe.errors import BadValue
from tests.examples.iterated import EPOCH, KINDS, Eager, arrays, begun_each_batch, made_again, never_again, over
from tests.examples.training import BATCH, Costly, Training

pytestmark = pytest.mark.usefixtures("one_thread")
BUDGET_S = 0.5


@pytest.mark.parametrize(("kind", "workers"), [(kind, number % 2) for number, kind in enumerate(KINDS)])
def test_a_loader_of_any_kind_is_measured(kind: str, workers: int, tmp_path: Path) -> None:
    """By a copy that has its workers and batches; the loop is ended."""
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        loader = KINDS[kind](Costly(), BATCH, shuffle=True, num_workers=workers)
        over(loader)(Training(tmp_path))
    assert found.diagnosis is not None, found.reason
    assert (found.diagnosis.workers, found.diagnosis.batch_size) == (workers, BATCH)


def test_an_iterator_that_was_kept_before_is_heard(tmp_path: Path) -> None:
    """The loader was made, and has begun, before the block."""
    loader = Eager(Costly(), BATCH, shuffle=True)
    next(iter(loader))
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        over(loader)(Training(tmp_path))
    assert found.diagnosis is not None, found.reason


@pytest.mark.parametrize(("kind", "workers"), [(kind, 1 - number % 2) for number, kind in enumerate(KINDS)])
def test_a_script_that_is_not_measured_sees_its_own_batches(
    kind: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, in their order: what was learned of a copy took none, and drew from none of its generators."""

    def refused(*given: Any) -> None:
        raise BadValue("planted here")

    monkeypatch.setattr("loaderprobe.measure.own.loader.Learning._evict", refused)
    monkeypatch.setattr("loaderprobe.measure.own.loader.LEARN_AT_LEAST_S", 0.0)
    alone = targets(kind, workers, tmp_path)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        beside = targets(kind, workers, tmp_path)
    assert "planted here" in found.reason
    assert beside == alone


def targets(kind: str, workers: int, out: Path) -> list[list[int]]:
    """Of the batches of three epochs."""
    torch.manual_seed(5)
    loader, training, seen = KINDS[kind](Costly(0.0), BATCH, shuffle=True, num_workers=workers), Training(out), []
    for _ in range(3):
        for _, batch in zip(range(EPOCH), loader, strict=False):
            seen.append(batch[1].tolist())
            training.step(batch)
    del loader
    gc.collect()
    return seen


class Sharing(DataLoader[Any]):
    """Keeps its iterator where no copy looks for it."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.deep = {"here": [super().__iter__()]}

    def __iter__(self) -> Any:
        yield from self.deep["here"][0]


def test_an_iterator_that_a_copy_would_share_is_never_used_up(tmp_path: Path) -> None:
    """The copy is refused, and the script gets each sample once."""
    seen: list[int] = []
    training = Training(tmp_path)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        for batch in Sharing(Costly(0.0), BATCH):
            seen += batch[1].tolist()
            training.step(batch)
    assert "an iterator that the script uses" in found.reason
    assert seen == [index % 10 for index in range(BATCH * EPOCH)]


def test_a_loader_that_is_made_again_is_the_same_one(tmp_path: Path) -> None:
    """With its data set, of a class that is made again, too; samples are counted by their indices."""
    training = Training(tmp_path)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        made_again(training)
    assert found.diagnosis is not None, found.reason
    assert found.diagnosis.batch_size == BATCH
    assert training.steps > EPOCH


def test_a_loader_that_does_not_come_again_ends_the_script(tmp_path: Path) -> None:
    """After two of its epochs, with the reason."""
    training = Training(tmp_path)
    with loaderprobe.attached(budget_s=60.0) as found:
        never_again(training)
    assert "trained on, on loader 2 (ArrayDataset, serial)" in found.reason
    assert training.steps <= 3 * EPOCH + 1


def test_a_loader_that_is_begun_each_batch_for_each_batch(tmp_path: Path) -> None:
    """Is measured with a note; with workers, which would start each time, it is left alone, and says why."""
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        begun_each_batch(Training(tmp_path))
    assert found.diagnosis is not None, found.reason
    assert "begun_each_batch" in [note.code for note in found.diagnosis.notes]
    training = Training(tmp_path, num_workers=1)
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        for _ in range(10):
            training.step(next(iter(training.loader)))
    assert "its workers start each time" in found.reason
    training = Training(tmp_path, num_workers=1, persistent_workers=True)  # which start once
    with loaderprobe.attached(budget_s=BUDGET_S) as found:
        begun_each_batch(training)
    assert found.diagnosis is not None, found.reason


def test_torch_is_as_it_was() -> None:
    """After the block, its classes and those of the loaders that were seen."""
    kinds = [DataLoader, torch.utils.data.dataloader._BaseDataLoaderIter, *KINDS.values()]
    before = [dict(vars(kind)) for kind in kinds]
    with loaderprobe.attached(budget_s=BUDGET_S):
        for kind in KINDS.values():
            for _, _batch in zip(range(2), kind(Costly(0.0), BATCH, shuffle=True), strict=False):
                pass
        next(iter(arrays(0)))
    assert [dict(vars(kind)) for kind in kinds] == before

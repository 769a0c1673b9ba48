"""fastai's own loader is taken for a torch DataLoader that makes the same batches."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from loaderprobe.loaders import attached
from tests.examples import fastai_load
from tests.examples.training import Costly


@pytest.fixture(autouse=True)
def _imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, attached.MODULE, fastai_load)


def loader(workers: int = 0, **options: Any) -> fastai_load.DataLoader:
    """Of 20 samples, 8 a batch."""
    random.seed(1)
    return fastai_load.DataLoader(Costly(0.0, 20), 8, workers, **options)


def numbers(batches: Any) -> list[list[int]]:
    """The targets, batch by batch."""
    return [batch[1].tolist() for batch in batches]


def test_samples_that_are_skipped_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As fastai does where a transform raises SkipItemException."""
    d = loader()
    usual = fastai_load.DataLoader.do_item
    monkeypatch.setattr(d, "do_item", lambda index: usual(d, index) if index else None, raising=False)
    made = attached.torch_loader(d.fake_l)
    assert made is not None
    assert sum(map(len, numbers(made))) == 19


class Streaming(fastai_load.DataLoader):
    """Forms batches in a way of its own."""

    def create_batches(self, samples: Any) -> Iterator[Any]:
        yield torch.zeros(1)


def test_what_forms_batches_by_itself_is_left_alone() -> None:
    """So is a loader without a batch size."""
    assert attached.torch_loader(Streaming(Costly(0.0, 20), 8).fake_l) is None
    assert attached.torch_loader(loader().fake_l) is not None


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_is_heard_of_and_gets_its_own_batches(workers: int) -> None:
    """With the `worker_init_fn` that the one who hears gives the torch loader; fastai's own is back afterwards."""
    heard: list[Any] = []

    def iterated(made: DataLoader[Any], original: Any) -> Iterator[Any]:
        own: Any = made.worker_init_fn
        made.worker_init_fn = lambda worker: own(worker)
        heard.append(made)
        return iter(original(made))

    usual, other = loader(workers), loader(workers)
    expected = numbers(usual)
    kinds = fastai_load._loaders
    fastai_load._loaders = tuple(attached.with_hook(iterated, kind) for kind in kinds)
    try:
        assert numbers(other) == expected
    finally:
        fastai_load._loaders = kinds
    assert heard == [attached.torch_loader(other.fake_l)] and heard[0].num_workers == workers
    assert other.fake_l.worker_init_fn is fastai_load._wif

"""Wrappers around DataLoaders are measured with what they do, and left as they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from loaderprobe.errors import LoaderprobeError
from loaderprobe.loaders import user_loader
from tests.api import wrappers
from tests.api.conftest import Judge
from tests.api.samples import Keeping, Numbers, RawImages, Shared
from tests.said import all_said


def _labels(loader: Any) -> list[list[int]]:
    return [labels.tolist() for _, labels in loader]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [wrappers.Doubling, wrappers.Ahead])
def test_a_wrappers_own_work_is_measured(judge: Judge, paths: list[str], kind: Any, workers: int) -> None:
    """The step is given what the wrapper makes; files are learned below it; batches are not left out below it."""
    seen: list[Any] = []
    wrapper = kind(DataLoader(RawImages(paths), batch_size=4, num_workers=workers))
    found = judge(wrapper, seen.append, modes=("warm", "cached_samples", "no_transport"))
    assert (found.batch_size, found.workers, found.cache) == (4, workers, "cold")
    assert "no_transport" not in found.measurement.modes
    assert {label % 2 for _, labels in seen for label in labels.tolist()} == {0}
    assert wrapper.seen == []
    assert _labels(wrapper)[0] == [0, 2, 4, 6]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_wrapper_that_joins_batches_is_left_out(judge: Judge, workers: int) -> None:
    """Its loader is measured, and a note says so."""
    seen: list[Any] = []
    found = judge(wrappers.Joining(DataLoader(Numbers(), batch_size=4, num_workers=workers)), seen.append)
    assert found.batch_size == 4
    assert any(
        "what Joining does around its DataLoader is left out: it does not give one batch for each that it takes; "
        "loader.inner is measured" in note
        for note in all_said(found.notes)
    )
    assert isinstance(seen[-1][1], torch.Tensor)


def test_a_pipeline_is_left_out_before_it_is_run(judge: Judge) -> None:
    """Its later stages may make other batches."""
    found = judge(wrappers.Piped([DataLoader(Numbers(), batch_size=4), lambda batches: pytest.fail("was run")]))
    assert any("what Piped does around its DataLoader is left out" in note for note in all_said(found.notes))


def test_the_sampler_of_a_wrapped_loader_keeps_its_epoch(judge: Judge, paths: list[str]) -> None:
    """A wrapper that sets the epoch sets that of a copy, also where it passes for a DataLoader."""
    data = RawImages(paths)
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=1, rank=0)
    sampler.set_epoch(5)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    judge(wrappers.Disguised(loader))
    assert sampler.epoch == 5


@pytest.mark.parametrize(("workers", "at_once"), [(0, True), (2, False)])
def test_a_loader_that_keeps_one_iterator_is_measured(judge: Judge, workers: int, at_once: bool) -> None:
    """With an iterator of its own; the user's goes on where it was, in the midst of an epoch and after it."""
    loader = wrappers.ManyEpochs(Numbers(), batch_size=4, num_workers=workers, at_once=at_once)
    batches = iter(loader)
    before = [next(batches)[1].tolist() for _ in range(3)]
    found = judge(loader)
    assert (found.batch_size, found.workers) == (4, workers)
    rest = [labels.tolist() for _, labels in batches]
    assert [number for batch in before + rest for number in batch] == list(range(64))
    assert _labels(loader)[0] == [0, 1, 2, 3]
    if workers:
        loader.iterator._shutdown_workers()


def test_a_loader_that_iterates_in_init_is_measured(judge: Judge) -> None:
    """Its iterator is as before."""
    loader = Keeping(Numbers(), batch_size=4)
    assert judge(loader).batch_size == 4
    assert _labels(loader)[0] == [0, 1, 2, 3]


def test_a_shared_epoch_counter_is_put_back(judge: Judge) -> None:
    """The samples are those that would have come without a diagnosis."""
    workers = 2
    without, with_one = (
        DataLoader(wrappers.Counting(), batch_size=4, num_workers=workers, multiprocessing_context="fork")
        for _ in range(2)
    )
    judge(with_one)
    data: Any = with_one.dataset
    assert data.epoch.value == 0
    first, second = (sorted(number for batch in loader for number in batch.tolist()) for loader in (with_one, without))
    assert first == second
    assert data.epoch.value == workers


def test_an_iterable_without_workers_keeps_its_place(judge: Judge) -> None:
    """It works in this process, so a copy of it is iterated."""
    data = wrappers.Advancing()
    judge(DataLoader(data, batch_size=4))
    assert next(iter(DataLoader(data, batch_size=4))).tolist() == [0, 1, 2, 3]


def test_workers_without_data_are_done_without(judge: Judge, paths: list[str]) -> None:
    """As torch does, silently; a note says so, and the loader keeps its workers."""
    loader = DataLoader(Shared(paths, shares=False), batch_size=4, num_workers=3)
    found = judge(loader)
    assert (found.workers, loader.num_workers) == (1, 3)
    assert "workers without data: 2 of 3; measured with 1 worker" in all_said(found.notes)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_our_own_code_raises_is_ours(judge: Judge, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """In this process and in a worker; the user is asked to report it."""
    monkeypatch.setattr("loaderprobe.loaders.worker_probe.samples_without_collation", None)
    with pytest.raises(LoaderprobeError, match="loaderprobe failed in its own code: TypeError: 'NoneType'") as caught:
        judge(DataLoader(Numbers(), batch_size=None, num_workers=workers))
    assert "report this" in caught.value.hint


def test_what_our_classes_lack_is_ours(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sub-class asks our stand-in for its batch sampler for something, in its own lines."""
    monkeypatch.delattr(user_loader.BatchPool, "__getattr__")
    with pytest.raises(LoaderprobeError, match="in its own code: AttributeError: 'BatchPool' object has no attribute"):
        judge(wrappers.ManyEpochs(Numbers(), batch_size=4))


def test_what_a_wrapper_raises_is_the_loaders(judge: Judge) -> None:
    """Not ours, and not the data set's."""

    class Failing(wrappers.Doubling):
        def __iter__(self) -> Any:
            raise ValueError("no device")

    with pytest.raises(LoaderprobeError, match="the loader raised ValueError: no device"):
        judge(Failing(DataLoader(Numbers(), batch_size=4)))

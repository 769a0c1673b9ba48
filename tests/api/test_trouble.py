"""What goes wrong with loaders and steps: said clearly, and the loader is as usable as before."""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import loaderprobe
from loaderprobe.api.policy import JUDGING
from loaderprobe.compute.step import NoCompute
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.measure.own.loader import Deadline, LoaderRequest, measure_loader
from tests.api import samples, wrappers
from tests.api.conftest import Judge
from tests.api.samples import Numbers, RawImages, Shared
from tests.said import all_said


def raising(*_: Any) -> Any:
    raise ValueError("no\nlabels")


class RaisingSampler(samples.Backwards):
    def __iter__(self) -> Iterator[int]:
        raise ValueError("no order")


class Failing(wrappers.Doubling):
    def __iter__(self) -> Any:
        raise ValueError("no device")


ENDED = r"the loader ended after [0-9]+ batch(es)? and did not begin again"
FAILS: tuple[tuple[Callable[[list[str]], Any], type[LoaderprobeError], str], ...] = (
    (lambda paths: DataLoader(samples.Broken(), 4), LoaderprobeError, "the data set raised FileNotFoundError: samp"),
    (lambda paths: DataLoader(samples.Broken(), 4, num_workers=2), LoaderprobeError, "data set raised FileNotFound"),
    (
        lambda paths: DataLoader(Numbers(), 4, num_workers=1, collate_fn=raising), LoaderprobeError,
        "the loader's collate_fn raised ValueError: no\nlabels",
    ),
    (lambda paths: DataLoader(Numbers(), 4, sampler=RaisingSampler(64)), LoaderprobeError, "sampler raised ValueErr"),
    (
        lambda paths: DataLoader(Numbers(), 4, num_workers=1, worker_init_fn=raising), LoaderprobeError,
        "the loader's worker_init_fn raised ValueError: no\nlabels, in a worker",
    ),
    (lambda paths: Failing(DataLoader(Numbers(), 4)), LoaderprobeError, "the loader raised ValueError: no device"),
    (lambda paths: DataLoader(samples.Deadly(), 4, num_workers=2), LoaderprobeError, "worker .* was killed by SIGKILL"),
    (lambda paths: DataLoader(Shared(paths, once=True), 4), BadValue, ENDED),
    (lambda paths: DataLoader(Shared(paths, once=True), 4, num_workers=1), BadValue, ENDED),
    (lambda paths: DataLoader(Shared([]), 4), BadValue, "yields no batch"),
    (lambda paths: DataLoader(Shared([]), 4, num_workers=2), BadValue, "yields no batch"),
    (lambda paths: DataLoader(Numbers(0), 4), BadValue, "its data set is empty"),
    (
        lambda paths: DataLoader(Numbers(6), 64, drop_last=True), BadValue,
        "64 are a batch, the data set has 6, and drop_last=True drops those",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "says"), FAILS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch raises from a signal handler
def test_what_fails_is_named(
    judge: Judge, paths: list[str], make: Callable[[list[str]], Any], kind: type[LoaderprobeError], says: str
) -> None:
    """The data set, collate_fn, sampler, worker_init_fn, a wrapper, or a worker, with its own error as the cause."""
    loader = make(paths)
    with pytest.raises(kind, match=says) as caught:
        judge(loader)
    if "FileNotFound" in says:
        assert isinstance(caught.value.__cause__, FileNotFoundError)
        assert next(iter(loader))[1].tolist() == [0, 1, 2, 3]
    assert "SIGKILL" not in says or "dmesg" in caught.value.hint
    # What a signal met while it was being closed is collected here, not in a later test.
    del caught
    gc.collect()


def test_a_worker_killed_during_a_step_is_not_the_steps_fault(judge: Judge, paths: list[str]) -> None:
    """torch reports it by a signal, which meets whatever runs just then."""
    import multiprocessing

    def step(batch: Any) -> None:
        victim = multiprocessing.active_children()[0]
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)

    with pytest.raises(LoaderprobeError, match=r"a loader worker .* was killed by SIGKILL"):
        judge(DataLoader(RawImages(paths), batch_size=4, num_workers=1), step)


def test_a_step_that_raises(judge: Judge, paths: list[str]) -> None:
    """Is named with its error, which is the cause, and the loader goes on."""
    loader = DataLoader(RawImages(paths), batch_size=4, num_workers=1)
    with pytest.raises(LoaderprobeError, match="your step raised ZeroDivisionError: division by zero") as caught:
        judge(loader, lambda batch: 1 / 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(list(loader)) == 16


def test_an_interrupt_leaves_no_worker(judge: Judge, paths: list[str]) -> None:
    """Nor a file; the fixture looks."""

    def step(batch: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(DataLoader(RawImages(paths), batch_size=4, num_workers=2), step)


def test_what_is_no_loader() -> None:
    """A list, an iterator of a loader, a step that cannot be called, a budget, a state of the cache."""
    loader = DataLoader(Numbers(), batch_size=4)
    for wrong in ([1], iter(loader)):
        with pytest.raises(BadValue, match=r"not a torch\.utils\.data\.DataLoader"):
            loaderprobe.diagnose(wrong)
    with pytest.raises(BadValue, match="the step is a int"):
        loaderprobe.diagnose(loader, 3)  # type: ignore[arg-type]  # wrong on purpose
    for budget_s in (0, -1.0, float("nan")):
        with pytest.raises(BadValue, match="the budget is"):
            loaderprobe.diagnose(loader, budget_s=budget_s)
    with pytest.raises(BadValue, match="is not a state of the cache"):
        loaderprobe.diagnose(loader, cache="hot")  # type: ignore[arg-type]  # wrong on purpose


def test_loaders_that_would_be_used_up_are_refused(judge: Judge, paths: list[str]) -> None:
    """Nothing is taken from them: a sampler that is an iterator, a batch sampler over one, a generator that is kept."""
    once = iter(range(8))
    with pytest.raises(BadValue, match="only once"):
        judge(DataLoader(Numbers(), batch_size=None, sampler=once))
    with pytest.raises(BadValue, match="cannot be copied"):
        judge(DataLoader(Numbers(), batch_sampler=_Generated()))
    assert next(once) == 0
    keeping: Any = samples.Keeping(RawImages(paths), batch_size=4)
    keeping.kept = (batch for batch in keeping.kept)
    with pytest.raises(BadValue, match="keeps an iterator of its own"):
        judge(keeping)
    assert next(iter(keeping))[1].tolist() == [0, 1, 2, 3]


class _Generated(samples.Pairs):
    """Holds a generator, which cannot be copied."""

    def __init__(self) -> None:
        super().__init__(8, 2)
        self.source = (batch for batch in self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return self.source


def test_a_tiny_budget_still_gives_a_round(paths: list[str]) -> None:
    """One, with a note that says so."""
    found = loaderprobe.diagnose(DataLoader(RawImages(paths), batch_size=4, num_workers=1), budget_s=1e-3)
    assert found.rounds == 1
    assert any("one round only" in note for note in all_said(found.notes))


class _Late(Deadline):
    """Too late after so many looks at the clock."""

    looks = 20

    @property
    def spent_s(self) -> float:
        type(self).looks -= 1
        return 0.0 if self.looks > 0 else 1e9


def test_batches_that_take_too_long_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first round is whole nothing can be said, except what was too little."""
    monkeypatch.setattr("loaderprobe.measure.own.loader.Deadline", _Late)
    asked = LoaderRequest(judging=JUDGING, budget_s=1.0)
    with pytest.raises(BadValue, match=r"not even one round fitted into 12 s, in which the loader gave [0-9]+ batches"):
        measure_loader(DataLoader(Numbers(), batch_size=4), NoCompute, asked, lambda *_: None)


def _numpy_state() -> str:
    return repr(np.random.get_state())


def test_a_loader_is_left_as_it_was(judge: Judge) -> None:
    """Its settings, its sampler, and all random generators, its data set's among them."""
    generator = torch.Generator().manual_seed(5)
    data = samples.Dreaming()
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=generator)
    before = dict(vars(loader))
    drawn = (torch.get_rng_state(), random.getstate(), _numpy_state())
    own = (
        generator.get_state(),
        data.python_state.getstate(),
        data.numpy_state.bit_generator.state,
        data.torch_state.get_state(),
    )
    judge(loader, lambda batch: torch.rand(1))
    assert vars(loader) == before
    assert torch.equal(torch.get_rng_state(), drawn[0])
    assert (random.getstate(), _numpy_state()) == drawn[1:]
    assert torch.equal(generator.get_state(), own[0])
    assert (data.python_state.getstate(), data.numpy_state.bit_generator.state) == own[1:3]
    assert torch.equal(data.torch_state.get_state(), own[3])


def test_persistent_workers_go_on_as_before(judge: Judge, paths: list[str]) -> None:
    """The same processes serve the loader before and after, and in the midst of an epoch."""
    loader = DataLoader(RawImages(paths), batch_size=4, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    first = [next(batches)[1].tolist() for _ in range(3)]
    workers = [worker.pid for worker in loader._iterator._workers]  # type: ignore[union-attr]  # it has begun
    judge(loader)
    rest = [batch[1].tolist() for batch in batches]
    assert [number for batch in first + rest for number in batch] == list(range(64))
    assert len(list(loader)) == 16
    assert [worker.pid for worker in loader._iterator._workers] == workers  # type: ignore[union-attr]  # it has begun
    loader._iterator._shutdown_workers()  # type: ignore[union-attr]  # it has begun


class Consumed(IterableDataset[int]):
    """An iterable that is its own iterator."""

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Consumed:
        return self

    def __next__(self) -> int:
        self.given += 1
        return self.given


def test_a_data_set_that_looking_would_use_up_is_refused(judge: Judge) -> None:
    """Without workers, unless a copy of it can be looked at; not one sample is taken."""
    data = Consumed()
    judge(DataLoader(data, batch_size=4))
    assert data.given == 0
    vars(data)["source"] = (number for number in range(3))
    with pytest.raises(BadValue, match="only once"):
        judge(DataLoader(data, batch_size=4))
    assert data.given == 0

"""Iterables that hold no DataLoader to copy: on a clock that is scripted, through the public face."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import loaderprobe
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.system.clock import SystemClock
from loaderprobe.testing import FakeClock
from tests.api.samples import Numbers, Pairs
from tests.api.wrappers import TwoLoaders
from tests.said import all_said

SIZE = 4


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of the whole measurement."""
    scripted = FakeClock()
    monkeypatch.setattr(SystemClock, "now_ns", lambda _: scripted.now_ns())
    monkeypatch.setattr(SystemClock, "thread_cpu_ns", lambda _: scripted.thread_cpu_ns())
    monkeypatch.setattr(SystemClock, "process_cpu_ns", lambda _: scripted.process_cpu_ns())
    monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: scripted.sleep(seconds))
    return scripted


def batch() -> torch.Tensor:
    return torch.zeros(SIZE, 3, 8, 8)


def generator(spend: Callable[[], None], most: int = 10) -> Callable[[], Iterator[Any]]:
    """A function whose epochs are of `most` batches; each begins with `spend`."""

    def batches() -> Iterator[Any]:
        for _ in range(most):
            spend()
            yield batch()

    return batches


class Ahead:
    """Makes batches of 10 ms in a thread of its own, three ahead, as a fake clock goes."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def __iter__(self) -> Iterator[Any]:
        taken: list[int] = []
        made = self._clock.now_ns()
        while True:
            made = max(made, taken[-3] if len(taken) >= 3 else 0) + 10_000_000
            self._clock.sleep(max(0, made - self._clock.now_ns()) / 1e9)
            taken.append(self._clock.now_ns())
            yield batch()


def test_a_generator_function_that_computes_is_bound_by_its_preprocessing(clock: FakeClock) -> None:
    """It begins again with each epoch. Nothing can be removed from it, which a note says, so its part is estimated."""
    found = loaderprobe.diagnose(generator(lambda: clock.work(0.01)), lambda _: clock.work(0.002), budget_s=5)
    assert (found.bound.side, found.bound.cause) == ("input", "preprocessing")
    speedup = found.verdict.speedups.preprocessing
    assert speedup is not None and speedup.how == "estimated"
    config = found.row.config
    assert (config.loader.workers, config.compute.batch_size, config.cache) == (0, SIZE, "as-found")
    assert {segment.mode for segment in found.measurement.segments} == {"baseline", "resident"}
    assert found.verdict.images_per_s.value == pytest.approx(SIZE / 0.012)
    text = str(found)
    assert "batches is no DataLoader that can be copied" in " ".join(text.split())
    assert "num_workers" not in text


def test_what_waits_unseen_is_the_input_without_a_cause(clock: FakeClock) -> None:
    """What it waits for was not sampled."""
    found = loaderprobe.diagnose(generator(lambda: clock.sleep(0.01)), lambda _: clock.work(0.002), budget_s=5)
    assert (found.bound.side, found.bound.cause) == ("input", "inconclusive")
    assert "workers wait" in str(found.headline()) + str(found)


def test_a_fast_one_is_compute_bound(clock: FakeClock) -> None:
    """Also a partial function, and one without a step has no compute."""
    make = functools.partial(generator, lambda: clock.work(0.0002))
    found = loaderprobe.diagnose(make(), lambda _: clock.work(0.02), budget_s=5)
    assert (found.bound.side, found.bound.cause) == ("compute", "compute")
    alone = loaderprobe.diagnose(functools.partial(make()), budget_s=5)
    assert alone.verdict.rates_images_per_s.compute is None
    assert alone.verdict.images_per_s.value == pytest.approx(SIZE / 0.0002, rel=0.01)


@pytest.mark.parametrize(("step_s", "side", "images_per_s"), [(0.002, "input", 400), (0.04, "compute", 100)])
def test_batches_made_ahead_overlap_with_the_step(
    clock: FakeClock, step_s: float, side: str, images_per_s: float
) -> None:
    """Such a loader counts as one worker, which is as many batches ahead as were ready after a pause."""
    found = loaderprobe.diagnose(Ahead(clock), lambda _: clock.work(step_s), budget_s=5)
    assert (found.row.config.loader.workers, found.row.config.loader.prefetch_factor) == (1, 3)
    assert found.bound.side == side
    assert found.verdict.images_per_s.value == pytest.approx(images_per_s, rel=0.05)
    assert any("3 were ready after a pause" in note for note in all_said(found.detail.notes))


def test_an_iterator_is_used_as_far_as_it_goes(clock: FakeClock) -> None:
    """One that ends before the first round is refused; one that ends later has a verdict, and a note."""
    make = generator(lambda: clock.work(0.01), most=12)
    with pytest.raises(BadValue, match="ended after 12 batches and did not begin again") as caught:
        loaderprobe.diagnose(make(), lambda _: clock.work(0.002), budget_s=5)
    assert "a function that makes it" in caught.value.hint
    longer = generator(lambda: clock.work(0.01), most=24)()
    found = loaderprobe.diagnose(longer, lambda _: clock.work(0.002), budget_s=5)
    assert found.bound.side == "input"
    assert any("did not begin again" in note for note in all_said(found.detail.notes))


def wrong(kind: str) -> Iterator[Any]:
    if kind == "raises":
        raise KeyError("label")
    if kind == "empty":
        return
    yield {"name": "cat", "size": 3}


@pytest.mark.parametrize(
    ("kind", "says", "hint"),
    [
        ("no tensors", "gives a dict without a tensor or an array of samples", "tensors or numpy arrays"),
        ("raises", "the loader raised KeyError: 'label'", "iterate it alone"),
        ("empty", "yields no batch", "iterate it yourself"),
    ],
)
def test_what_gives_no_batches_is_refused(kind: str, says: str, hint: str) -> None:
    """With what to do; the user's own error is the cause."""
    with pytest.raises(LoaderprobeError, match=says) as caught:
        loaderprobe.diagnose(functools.partial(wrong, kind), budget_s=5)
    assert hint in caught.value.hint
    assert (kind == "raises") == isinstance(caught.value.__cause__, KeyError)


def test_batches_are_counted_in_arrays_of_any_nesting(clock: FakeClock) -> None:
    """Those of numpy, too; what has no four dimensions is counted in samples."""

    def batches() -> Iterator[Any]:
        while True:
            clock.work(0.01)
            yield {"name": ["a"] * 6, "inputs": [np.zeros((6, 5)), np.zeros(6)]}

    found = loaderprobe.diagnose(batches, lambda _: clock.work(0.02), budget_s=5)
    assert (found.row.config.compute.batch_size, found.detail.sample) == (6, "sample")


def test_several_data_loaders_in_one_iterable_are_measured_together(clock: FakeClock) -> None:
    """As Lightning's CombinedLoader holds them; it begins again with each epoch."""
    two = TwoLoaders(DataLoader(Numbers(), 4), DataLoader(Numbers(), 2))
    found = loaderprobe.diagnose(two, lambda _: clock.work(0.002), budget_s=5)
    assert found.row.config.compute.batch_size == 4
    assert "TwoLoaders is no DataLoader that can be copied" in " ".join(str(found).split())


class Locked(Pairs):
    """A batch sampler that cannot be copied, and begins again."""

    def __init__(self) -> None:
        super().__init__(64, 4)
        self.lock = threading.Lock()


def test_a_data_loader_whose_sampler_cannot_be_copied_is_iterated_itself(clock: FakeClock) -> None:
    """It begins again as it would in training; where that cannot be, it is refused."""
    found = loaderprobe.diagnose(DataLoader(Numbers(), batch_sampler=Locked()), lambda _: clock.work(0.01), budget_s=5)
    assert found.row.config.compute.batch_size == 4
    assert "DataLoader is no DataLoader that can be copied" in " ".join(str(found).split())


def test_a_generator_is_closed_and_random_state_is_put_back(clock: FakeClock) -> None:
    """Also after Ctrl-C in the step."""
    closed: list[bool] = []

    def batches() -> Iterator[Any]:
        try:
            while True:
                clock.work(0.01)
                yield torch.rand(SIZE, 3, 8, 8)
        finally:
            closed.append(True)

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    before = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        loaderprobe.diagnose(batches, interrupt, budget_s=5)
    assert closed and torch.equal(torch.get_rng_state(), before)

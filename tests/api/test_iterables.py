"""Iterables that hold no DataLoader to copy: on a clock that is scripted, through the public face."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import loaderprobe
from loaderprobe.errors import LoaderprobeError
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import FakeClock
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

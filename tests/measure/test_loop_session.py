"""A session whose step is a loop: segments in which it did something else are measured again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loaderprobe.errors import BadValue
from loaderprobe.measure.attach.turns import LoopTurns
from loaderprobe.measure.further import CUT_SHORT
from loaderprobe.measure.session import AGAIN, ATTEMPTS, MOST_RESIDENT, Recorder, Session
from loaderprobe.records.measurement import Measurement
from loaderprobe.testing import FakeClock, FakePageCache, Service, example_config, example_files
from tests.measure.scripted import scripted_parts

STEP_S = 0.01


class LoopCompute:
    """A compute whose steps are those of a loop, which take `STEP_S` on a fake clock."""

    def __init__(self, clock: FakeClock, step: Callable[[Any], None]) -> None:
        self._clock, self._step = clock, step
        self._ended: list[int] = []

    def info(self) -> Any:
        from loaderprobe.records.measurement import ComputeInfo

        return ComputeInfo(name="step", device="CPU", synchronous=True, specified_images_per_s=None, source="a loop")

    def copy(self, batch: Any) -> Any:
        return batch

    def step(self, batch: Any) -> None:
        self._step(batch)
        self._ended.append(self._clock.now_ns())

    def finish(self) -> tuple[int, ...]:
        ended, self._ended = self._ended, []
        return tuple(ended)


def trained(
    interrupted: Callable[[int], bool], period: int = 1, *, other_s: float = 1.0, budget_s: float | None = None
) -> Measurement:
    """What is measured of a loop that does something else, for `other_s`, after the steps that `interrupted` names."""
    clock, files = FakeClock(), example_files()
    config = example_config()

    def measure(step: Callable[[Any], None]) -> Measurement:
        parts = scripted_parts(Service(cpu_s=0.002), clock, LoopCompute(clock, step), config, files, FakePageCache())
        session = Session(
            recorder=Recorder(config), files=files, parts=parts, on_stage=lambda *_: None, period=period,
            budget_s=budget_s,
        )  # fmt: skip
        session.run()
        return session.measurement((), ())

    turns = LoopTurns(measure)
    while True:
        turns.next()
        if turns.over:
            return turns.result  # type: ignore[no-any-return]
        clock.sleep(STEP_S)
        if interrupted(turns.steps):
            clock.sleep(other_s)
            turns.interrupt("validation")


def test_a_loop_without_interruption_is_measured_as_any_step() -> None:
    """No note, and compute alone in few steps."""
    found = trained(lambda number: False)
    assert AGAIN not in found.notes
    alone = [each for each in found.segments if each.mode == "resident"]
    assert alone and all(0 < each.steps <= MOST_RESIDENT for each in alone)


def test_segments_with_an_interruption_are_void() -> None:
    """No step of any segment holds the second that validation takes, and batches are still counted right."""
    found = trained(lambda number: number % 40 == 0)
    assert AGAIN in found.notes
    for each in found.segments:
        lengths = [end - begin for begin, end in zip(each.begin_ns, each.end_ns, strict=True)]
        assert max(lengths) < 0.5e9
    taken = [each.first_batch for each in found.segments if each.first_batch >= 0]
    assert len(set(taken)) == len(taken)


def test_a_long_pause_of_the_script_ends_a_budget() -> None:
    """With the rounds that there are; what it interrupted is not tried again."""
    long = trained(lambda number: number == 250, other_s=200.0, budget_s=100.0)
    assert CUT_SHORT in long.notes
    rounds = {each.round for each in long.segments}
    whole = trained(lambda number: False, budget_s=100.0)
    assert rounds and len(long.segments) < len(whole.segments)
    assert long.wall_s < 250


def test_a_pause_before_the_first_round_is_over_ends_nothing() -> None:
    """There would be no verdict."""
    found = trained(lambda number: number == 40, other_s=200.0, budget_s=100.0)
    assert {"loader_only", "training"} <= {each.activity for each in found.segments}


def test_a_loop_that_never_trains_in_a_row_is_refused() -> None:
    """After some attempts, with the reason."""
    with pytest.raises(BadValue, match="never trained 6 steps in a row: validation"):
        trained(lambda number: number > 40)
    assert ATTEMPTS > 1


def test_segments_hold_whole_updates() -> None:
    """Of four batches each, where gradients are accumulated."""
    found = trained(lambda number: False, period=4)
    assert all(each.steps % 4 == 0 for each in found.segments if each.activity == "training")

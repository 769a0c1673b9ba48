"""A loop and a session take turns: each goes on where it was, errors surface in the loop, and it may end."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import pytest

from loaderprobe.measure.attach.turns import GivenUp, LoopTurns
from loaderprobe.measure.session import Interrupted

Step = Callable[[Any], None]


def test_the_loop_trains_on_what_the_session_steps_on() -> None:
    """Batch by batch, until the session returns."""
    heard: list[str] = []

    def session(step: Step) -> str:
        for batch in ("a", "b"):
            step(batch)
            heard.append(f"{batch} is over")
        return "verdict"

    turns = LoopTurns(session)
    assert not turns.inside
    while True:
        batch = turns.next()
        if turns.over:
            break
        heard.append(f"trains on {batch}")
    assert heard == ["trains on a", "a is over", "trains on b", "b is over"]
    assert (turns.result, turns.steps) == ("verdict", 2)


def test_what_the_session_raises_surfaces_in_the_loop() -> None:
    """At the batch that it asks for."""

    def session(step: Step) -> None:
        step(1)
        raise KeyError("no way")

    turns = LoopTurns(session)
    assert turns.next() == 1
    with pytest.raises(KeyError, match="no way"):
        turns.next()
    assert turns.over


def test_an_interruption_reaches_the_step_that_it_disturbed() -> None:
    """With the first of its reasons; the steps before it are counted."""
    seen: list[str] = []
    steps: list[int] = []

    def session(step: Step) -> None:
        for batch in range(4):
            try:
                step(batch)
            except Interrupted as why:
                seen.append(f"{batch}: {why}")
                steps.append(why.steps)

    turns = LoopTurns(session)
    for _ in range(3):
        turns.next()
    turns.interrupt("validation")
    turns.interrupt("next epoch")
    turns.next()
    assert seen == ["2: validation"]
    assert (steps, turns.undisturbed) == ([3], 1)


def test_a_session_concludes_when_the_loop_does_not_come_back() -> None:
    """What it returns then is the result; without a step there is nothing to conclude from."""

    def session(step: Step) -> str:
        try:
            step(1)
        except GivenUp:
            return "from what there is"
        return "complete"

    turns = LoopTurns(session)
    turns.give_up()
    assert turns.result is None
    given: list[Any] = [turns.next()]
    turns.give_up()
    given.append(turns.result)
    assert given == [1, "from what there is"] and turns.over


def test_context_variables_are_those_of_the_loop() -> None:
    """A greenlet begins without any."""
    level = contextvars.ContextVar("level", default="none")
    level.set("loop")
    turns = LoopTurns(lambda step: level.get())
    turns.next()
    assert turns.result == "loop"

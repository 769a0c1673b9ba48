"""Rates and their intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.verdict.rates import training_interval
from tests.analyze.runs import Cost, alike, run


def test_few_rounds_have_an_interval_that_says_something() -> None:
    """Of one or two, by steps, a worker's turn each, and by how far they are apart; of three, Student's."""
    segment = run(alike(1, baseline=100), Cost()).segments[0]
    uneven = tuple(round(step * 1e8 + (step % 3) * 4e7) for step in range(segment.steps))
    single = replace(
        segment, begin_ns=uneven, ready_ns=uneven, copied_ns=uneven, end_ns=uneven, finished_ns=(),
        closed_ns=round(segment.steps * 1e8 + 4e7),
    )  # fmt: skip
    by_step, by_turn = (training_interval({0: 160.0}, [single], workers) for workers in (1, 3))
    assert 0 < by_step.high - by_step.value < by_step.value
    assert by_turn.high == by_turn.value
    two = training_interval({0: 100.0, 1: 110.0}, [segment, segment], 2)
    assert (two.low, two.value, two.high) == (95.0, 105.0, 115.0)
    alike_rounds = training_interval({0: 160.0, 1: 160.0}, [single, single], 1)
    assert alike_rounds.high - 160 == pytest.approx(by_step.high - 160), "two rounds that agree by luck"
    three = training_interval({0: 100.0, 1: 110.0, 2: 105.0}, [segment] * 3, 2)
    assert three.high - three.value == pytest.approx(4.303 * 5 / 3**0.5)

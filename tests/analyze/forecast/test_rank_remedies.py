"""What prefetching gains several ranks: by a replay of their batches, where that shows what they lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.verdict import Advice
from tests.analyze.lock_step.test_replay import lognormal
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import BATCH, Cost, alike

RANKS = 8
LOST = 1.16
"""What eight ranks with one worker and prefetch factor 2 lose on these batches."""


def uneven(lost: float = LOST, *, prefetch_factor: int = 2, even: bool = False) -> Measurement:
    """Eight ranks, whose batches of 0.1 s vary, and that lose so much by taking each step together."""
    alone = BATCH / 0.1
    in_step = RANKS * alone / lost
    rates: dict[str, Any] = {"baseline": in_step, "warm": 4 * in_step, "cached_samples": 1.02 * in_step}
    made = rank_run(
        alike(training=in_step, **rates, no_transport=in_step), Cost(blocked_s=0.005), alone=[alone] * RANKS,
        without={0: in_step, 1: in_step}, ranks=RANKS, workers=1, prefetch_factor=prefetch_factor,
    )  # fmt: skip
    times = [[1.0] * 128 if even else lognormal(128, seed=rank) for rank in range(RANKS)]
    seen = [
        replace(each, service_ns=tuple(round(1e8 * time) for time in own))
        for each, own in zip(made.by_rank, times, strict=True)
    ]
    return replace(made, by_rank=tuple(seen))


def prefetching(measurement: Measurement) -> list[Advice]:
    """The advice on it."""
    return [each for each in verdict(measurement).advice if each.action.code == "prefetch"]


def test_a_replay_says_what_prefetching_gains() -> None:
    """More than nothing, and not all that is lost; the range lies between the two."""
    (found,) = prefetching(uneven())
    assert found.command == "prefetch_factor=8" and found.action.facts == {"batches": 8}
    assert 1.05 < found.speedup < LOST - 0.02
    before = found.before.value
    assert before < found.after.low <= found.after.value <= found.after.high <= before * LOST * 1.001
    assert found.after.value == pytest.approx(before * found.speedup)


def test_what_the_replay_does_not_show_keeps_its_range() -> None:
    """Ranks that disturb each other lose more than their batches explain: from nothing to all of it."""
    for measurement in (uneven(1.6), uneven(even=True, lost=1.25)):
        (found,) = prefetching(measurement)
        assert found.after.low == found.before.value
        assert found.speedup == pytest.approx(found.after.high / found.before.value) and found.speedup > 1.2


def test_no_depth_is_advised_that_gains_nothing() -> None:
    """Where factor 4 loses little, 8 gains under 5 %."""
    assert not prefetching(uneven(1.07, prefetch_factor=4))

"""What prefetching gains several ranks: from nothing to all that they lose by waiting for each other."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.records.verdict import Advice
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import BATCH, Cost, alike

RANKS = 8


def prefetching(lost: float, **loader: Any) -> list[Advice]:
    """The advice for eight ranks, whose batches take 0.1 s, that lose so much by taking each step together."""
    alone = BATCH / 0.1
    in_step = RANKS * alone / lost
    rates: dict[str, Any] = {"baseline": in_step, "warm": 4 * in_step, "cached_samples": 1.02 * in_step}
    made = rank_run(
        alike(training=in_step, **rates, no_transport=in_step), Cost(blocked_s=0.005), alone=[alone] * RANKS,
        without={0: in_step, 1: in_step}, ranks=RANKS, **loader,
    )  # fmt: skip
    return [advice for advice in verdict(made).advice if advice.action.code == "prefetch"]


def test_prefetching_wins_at_most_what_ranks_lose() -> None:
    """By eight batches ahead."""
    (found,) = prefetching(1.16, workers=1, prefetch_factor=2)
    assert found.command == "prefetch_factor=8" and found.action.facts == {"batches": 8}
    assert found.after.low == found.before.value
    assert found.speedup == pytest.approx(found.after.high / found.before.value) == pytest.approx(1.16, rel=0.02)


def test_no_depth_is_advised_to_ranks_that_have_it_or_lose_little() -> None:
    """Under 5 % is nothing to win."""
    assert not prefetching(1.16, workers=1, prefetch_factor=8)
    assert not prefetching(1.03, workers=1, prefetch_factor=2)

"""What lock-step costs, in words: the answer with its range, the advice, and what the reader must know of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.records.plan import LockStep, PrefetchCost
from loaderprobe.records.verdict import Interval
from loaderprobe.render.document import Document, Section
from loaderprobe.render.plan_words import lock_step_answer, lock_step_parts
from loaderprobe.render.writers import document_text


def cost(factor: int, value: float, spread: float = 0.05) -> PrefetchCost:
    """Over one rank's 0.1 s."""
    interval = Interval(value=value, low=max(1.0, value - spread), high=value + spread)
    return PrefetchCost(prefetch_factor=factor, alone_s=0.1, step_s=0.1 * value, cost=interval)


def price(**changes: Any) -> LockStep:
    """Of 1,024 ranks, from 2,000 batches of four."""
    found = LockStep(
        asked=1024, ranks=1024, measured_ranks=4, batches=2000, mean_s=0.1, longest_s=0.4, workers=2,
        prefetch_factor=2, compute_s=0.02, costs=(cost(2, 1.5), cost(4, 1.3), cost(8, 1.2)), advised=8,
        correlation=0.04,
    )  # fmt: skip
    return replace(found, **changes)


def page(found: LockStep) -> str:
    """All of it, on one line."""
    made = Document(title="", sections=(Section(title="In step", parts=tuple(lock_step_parts(found))),))
    return " ".join(document_text(made, width=200).split())


def test_the_answer_is_the_cost_with_its_range_and_the_advice() -> None:
    """And what the advice is worth to one rank: nothing."""
    assert lock_step_answer(price()) == (
        "1,024 ranks in step take 1.50 (1.45 to 1.55) times as long for a step as one rank alone, with "
        "prefetch_factor=2. prefetch_factor=8 makes them 1.25 times as fast; one rank alone gains nothing by it."
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (price(ranks=400, batches=400), "take at least 1.50 times as long"),
        (price(ranks=400, batches=400), "prefetch_factor=2 (at least: replayed for 400). prefetch"),
        (price(costs=(cost(2, 1.0, 0.0),), advised=None), "take as long for a step as one rank alone"),
        (price(workers=0, prefetch_factor=0, costs=(cost(0, 4.0),), advised=None), "workers. Load with workers"),
        (price(saturated=True, costs=()), "lose nothing to each other while they share this storage"),
        (price(asked=1, ranks=1, costs=(cost(2, 1.0, 0.0),), advised=None), "1 rank in step take"),
    ],
)  # fmt: skip
def test_the_answer_says_what_it_is(found: LockStep, said: str) -> None:
    """At least, nothing, without workers, or a storage that is never idle."""
    assert said in lock_step_answer(found)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (price(), "correlate by 0.04: independent"),
        (price(correlation=0.6), "stalls hit several at once"),
        (price(correlation=None), "taken as independent"),
        (price(slow_host="b"), "the ranks on b are replayed once, with batches of their own"),
        (price(slow_rank=3), "rank 3 is replayed once, with batches of its own"),
        (price(ranks=400, batches=400), "400 batches show what 400 ranks meet"),
        (price(ranks=400, batches=400), "step of one rank at least, replayed for 400 times"),
        (price(measured_cost=1.2, replayed_cost=1.18), "measured 1.20 times, replayed 1.18"),
        (price(measured_cost=1.23, replayed_cost=1.02), "too far apart"),
        (price(saturated=True, costs=()), "its limit over the bytes of an image is the whole answer"),
    ],
)
def test_the_page_says_what_it_rests_on(found: LockStep, said: str) -> None:
    """Batches, independence, a rank of its own, the limit of the sample, and what ranks measured."""
    assert said in page(found) and "2,000 measured batches of 4 ranks" in page(replace(found, batches=2000))

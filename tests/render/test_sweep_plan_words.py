"""What a sweep is about to measure, in words."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.records.config import PlanInTurn, StudyPlan, SweepPlan
from loaderprobe.render.sweep_plan_words import in_turn_words, sweep_plan_words

BUFFERS = StudyPlan(study="prefilled", configurations=2, each_s=20.0)
EPOCHS = StudyPlan(
    study="epochs", configurations=1, each_s=40.0, epochs=2, images=6000, set_bytes=690_000_000, images_per_s=300.0
)


def plan(configurations: int, *beside: StudyPlan) -> SweepPlan:
    return SweepPlan(
        configurations=configurations, expected_s=60.0, least_s=24.0, budget_s=None, thorough=False, rounds=3,
        beside=beside,
    )  # fmt: skip


def test_studies_have_a_sentence_each() -> None:
    """After the verdicts, with the seconds of one configuration; also where the verdicts are there already."""
    studies = [
        "Then training from a full buffer, in 2 configurations: about 20 s each.",
        "Then 2 epochs of 6000 images (up to 690 MB), in 1 configuration: 40 s each at 300 images/s; --images makes "
        "them shorter.",
    ]
    assert list(sweep_plan_words(plan(3, BUFFERS, EPOCHS)))[2:] == studies
    assert list(sweep_plan_words(plan(0, BUFFERS, EPOCHS))) == ["Plan: all verdicts are already measured.", *studies]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "It takes about 2 min"),
        ({"budget_s": 1000.0}, "within the budget of 16 min 40 s for both sides."),
        (
            {"budget_s": 30.0},
            "about 2 of the 6 pairs, and fewer than 3 are not compared as pairs; the rest is for",
        ),
        ({"pairs": 0}, "everything is already measured"),
    ],
)
def test_a_plan_in_turn_says_how_long_it_takes(changes: dict[str, Any], says: str) -> None:
    """Of both sides; and what a budget leaves for later."""
    usual = {"configurations": 2, "pairs": 12, "rounds": 6, "expected_s": 120.0, "least_s": 78.0, "budget_s": None}
    assert says in " ".join(in_turn_words(PlanInTurn(**{**usual, **changes})))

"""What a sweep says before it begins."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.measure.sweep import plan_sweep, usual_seconds
from loaderprobe.records.config import SweepSpec
from loaderprobe.render.sweep_plan_words import sweep_plan_words
from loaderprobe.testing import example_config


def told(count: int, **changes: Any) -> str:
    """The plan of so many configurations, as one text."""
    configs = tuple(example_config(batch_size=number + 1) for number in range(count))
    return " ".join(sweep_plan_words(plan_sweep(SweepSpec(configs=configs, **changes), configs)))


def test_it_names_what_is_measured_and_when_more_is() -> None:
    """Screening for all, the costly experiments where the cause stays open, or everywhere."""
    assert "21 configurations: the loader alone and in training, 3 rounds" in told(21)
    assert "where the cause is still open" in told(21)
    assert "where the cause is still open" not in told(21, thorough=True)


def test_a_complete_run_has_nothing_to_plan() -> None:
    """Resuming it says so."""
    assert told(0) == "Plan: everything is already measured."


def test_without_a_budget_it_says_how_long_it_takes() -> None:
    """The plan says whether a sweep takes minutes or an hour."""
    assert "about 5 min 57 s; --budget" in told(21)
    assert "about 11 min 54 s; --budget" in told(21, thorough=True)


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [({}, 17), ({"rounds": 6}, 34), ({"rounds": 1}, 17), ({"compute": "cuda"}, 40), ({"compile": True}, 197)],
)
def test_a_configuration_has_its_usual_time(changes: dict[str, Any], seconds: float) -> None:
    """More rounds, a GPU and compiling take more."""
    assert usual_seconds(example_config(**changes)) == seconds


def test_a_budget_that_does_not_suffice_is_said_before_time_is_spent() -> None:
    """So many configurations may be left, and how to complete them."""
    assert "within the budget of 5 min, 14 s each" in told(21, budget_s=300.0)
    assert "less than the 2 min 48 s that one round" in told(21, budget_s=30.0)
    assert "may be left for --resume" in told(21, budget_s=30.0)

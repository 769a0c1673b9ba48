"""Why parts of a storage plan are not made, in words."""

from __future__ import annotations

from typing import get_args

import pytest

from loaderprobe.records.plan import PlanPart, PlanReason, PlanReasonCode
from loaderprobe.render.plan_reason_words import PART, plan_reason_words

FACTS: dict[str, dict[str, float | str]] = {
    "reads_not_cold": {"files": "warm"},
    "ranks_not_storage": {"ranks": 2.0, "bytes_per_s": 27.5e6},
    "too_few_steps": {"steps": 12.0, "least": 30},
    "fewer_steps_than_ranks": {"steps": 40.0, "ranks": 1024},
    "too_few_batches": {"batches": 12.0, "least": 30},
    "accelerator_waited": {"share": 0.154},
    "unavailable": {"because": "files_empty"},
    "reported": {"reason": "it rained"},
}


@pytest.mark.parametrize("code", get_args(PlanReasonCode))
def test_every_code_has_words(code: PlanReasonCode) -> None:
    """A clause without a full stop; a code without words would fail only in a user's plan."""
    words = plan_reason_words(PlanReason(code=code, facts=FACTS.get(code, {})))
    assert words and not words.endswith(".") and "{" not in words


def test_every_part_has_a_name() -> None:
    """It stands before the reason."""
    assert set(PART) == set(get_args(PlanPart))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("reads_not_cold", "its reads were warm, not cold"),
        ("too_few_steps", "12 measured steps are too few: 30 are needed"),
        ("fewer_steps_than_ranks", "40 measured steps cannot show how late the latest of 1024 ranks is"),
        ("accelerator_waited", "the measured accelerator waited 15% of its time"),
        ("reported", "it rained"),
    ],
)
def test_a_reason_quotes_its_facts(code: PlanReasonCode, words: str) -> None:
    """Counts whole, also those that JSON gave back as floats; shares in percent."""
    assert plan_reason_words(PlanReason(code=code, facts=FACTS[code])).startswith(words)

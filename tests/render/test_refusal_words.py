"""Refused forecasts in words."""

from __future__ import annotations

from typing import get_args

import pytest

from loaderprobe.records.forecast import Refusal, RefusalCode
from loaderprobe.render.refusal_words import refusal_words

FACTS: dict[str, dict[str, float | str]] = {
    "outside_noise_band": {"predicted_share": 0.5},
    "storage_missing": {"because": "reported", "reason": "it rained"},
    "more_than_cores": {"cores": 2.0},
    "more_than_storage": {"bytes_per_s": 1e8},
    "laws_disagree": {"least_images_per_s": 200.0, "most_images_per_s": 900.0},
}


@pytest.mark.parametrize("code", get_args(RefusalCode))
def test_every_refusal_has_words(code: RefusalCode) -> None:
    """A code without words would fail only in a user's report."""
    assert refusal_words(Refusal(code=code, facts=FACTS.get(code, {})))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("outside_noise_band", "training ran at 50% of its prediction, outside the noise band"),
        ("storage_missing", "it rained"),
        ("more_than_cores", "only 2 cores were measured"),
        ("more_than_storage", "it needs 100 MB/s, more than the storage was measured to deliver"),
        ("laws_disagree", "the kind of storage is not known, and forecasts range from 200 to 900 images/s"),
    ],
)
def test_a_refusal_quotes_its_facts(code: RefusalCode, words: str) -> None:
    """With units."""
    assert refusal_words(Refusal(code=code, facts=FACTS[code])) == words

"""What stored results look like, in every format, is what was agreed on."""

from __future__ import annotations

import re

import pytest

from scripts.goldens import SHOWN, cases, difference, left_over, shown


@pytest.mark.parametrize("name", sorted(cases()))
def test_a_result_looks_as_agreed(name: str) -> None:
    """Byte for byte; `scripts/golden` shows differences, and `scripts/golden --accept` agrees to them."""
    assert (SHOWN / name).exists(), f"scripts/golden --accept {name}"
    lines = list(difference(name, shown(name)))
    assert not lines, "\n".join(lines[:60])


def test_nothing_is_kept_that_no_case_shows() -> None:
    """A file in fixtures/shown without a case compares nothing."""
    assert left_over() == []


@pytest.mark.parametrize("name", sorted(name for name in cases() if name.endswith((".txt", ".md", ".html"))))
def test_no_figure_is_made_of_none(name: str) -> None:
    """What could not be measured is a dash with its reason, never None, nan or inf."""
    text = (SHOWN / name).read_text().replace("None yet: ", "").replace("None of ", "")
    assert not re.search(r"\b(None|nan|inf)\b", text)

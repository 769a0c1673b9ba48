"""What stored results look like, in every format, is what was agreed on."""

from __future__ import annotations

import re
from html import unescape

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


_UNSEEN = re.compile(r"<(style|script|svg)\b.*?</\1>", re.DOTALL)


@pytest.mark.parametrize("name", sorted(name for name in cases() if name.endswith((".txt", ".md", ".html"))))
def test_a_figure_is_as_precise_as_what_was_measured(name: str) -> None:
    """Three figures, and no share of a part per million. What could not be measured is a dash with its reason, never
    None, nan or inf."""
    text = (SHOWN / name).read_text()
    assert not re.search(r"\b(None|nan|inf)\b", text.replace("None yet: ", "").replace("None of ", ""))
    read = unescape(re.sub(r"<[^>]*>", " ", _UNSEEN.sub(" ", text))) if name.endswith(".html") else text
    assert re.findall(r"(?<![\d.])0\.000\d*|\d\.\d{6,}", read.replace("\\", "")) == []


@pytest.mark.parametrize("name", ["causes", "cpu", "ranks", "storage", "diagnose", "run", "verdicts"])
def test_no_cold_share_is_above_one(name: str) -> None:
    """What is read ahead besides is said as an amplification."""
    shares = re.findall(r'"cold_fraction"(?:: |,\s*"value": )([\d.]+)', (SHOWN / f"{name}.json").read_text())
    assert shares and all(float(share) <= 1 for share in shares)


@pytest.mark.parametrize("name", sorted(name for name in cases() if name.endswith(".json")))
def test_no_fact_called_a_share_is_above_one(name: str) -> None:
    """What may rightly pass 1, such as a rate over its prediction or over a ceiling, has another name."""
    shares = re.findall(r'"(?:\w+_)?share": ([-\d.e]+)', (SHOWN / name).read_text())
    assert all(float(share) <= 1 for share in shares)

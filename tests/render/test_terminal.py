from __future__ import annotations

import pytest

from tests.examples.reports import example_report, example_row
from tests.pages import terminal_report


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_runs_over(width: int) -> None:
    """No line is longer than the width that was asked for."""
    text = terminal_report(example_report(), width=width)
    assert max(len(line) for line in text.splitlines()) <= width


def test_long_names_do_not_run_over() -> None:
    """A name longer than the terminal is folded, not cut and not let through."""
    row = example_row(resolution="r" * 130, reason=None)
    text = terminal_report(example_report([row]))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.count("r") >= 130


def test_escape_sequences_in_names_are_defused() -> None:
    """A path cannot send commands to the terminal."""
    row = example_row(status="failed", reason="cannot read \x1b[2Ja\udcff.jpg")
    text = terminal_report(example_report([row]))
    assert "\x1b" not in text
    assert "\\x1b[2Ja\\udcff.jpg" in text
    text.encode()


def test_surroundings_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS, TERM and NO_COLOR do not change the text."""
    before = terminal_report(example_report(), color=True)
    for name, value in (("COLUMNS", "40"), ("TERM", "dumb"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    assert terminal_report(example_report(), color=True) == before

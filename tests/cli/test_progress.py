"""Progress keeps the time left in a narrow terminal, and leaves no line where nothing was shown."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from loaderprobe.cli import border


def test_a_long_title_is_cut_and_the_time_left_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 80 columns."""
    out = StringIO()
    monkeypatch.setattr(border, "stderr", lambda: Console(file=out, width=80, force_terminal=True, color_system=None))
    with border.counting(quiet=False) as update:
        update("12/48 1024x768, 16 workers, emulated:mlperf-h100-sync, cold, 4 ranks on 2 nodes", 3, 12)
    (*_, line) = [each for each in out.getvalue().splitlines() if "12/48 1024x768" in each]
    assert "3 of 12 0:00:0" in line and "…" in line


def test_what_counts_nothing_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a blank line before an error."""
    out = StringIO()
    monkeypatch.setattr(border, "stderr", lambda: Console(file=out, width=80, force_terminal=True))
    with pytest.raises(ValueError, match="wrong"), border.counting(quiet=False):
        raise ValueError("wrong")
    assert out.getvalue() == ""

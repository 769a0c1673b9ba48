"""Pages of the guide in a terminal."""

from __future__ import annotations

from importlib.resources import files

import pytest

from loaderprobe.render.guide import guide_text

PAGES = sorted(page.name for page in files("loaderprobe").joinpath("guide").iterdir() if page.name.endswith(".md"))
TABLE = "| script | by hand |\n|---|---|\n| `run_image_classification.py` | 270/s |\n| `main.py` | |\n"


@pytest.mark.parametrize("page", PAGES)
def test_no_word_is_cut(page: str) -> None:
    """In a terminal of the usual width, a name can be copied."""
    text = files("loaderprobe").joinpath("guide", page).read_text()
    shown = guide_text(text)
    assert shown.count("\N{HORIZONTAL ELLIPSIS}") == text.count("\N{HORIZONTAL ELLIPSIS}")
    assert max(map(len, shown.splitlines())) <= 80


def test_a_table_that_is_too_wide_is_a_list() -> None:
    """With the heads of the columns, and without empty cells."""
    assert "270/s" in guide_text(TABLE, width=40) and "by hand: " not in guide_text(TABLE, width=40)
    lines = guide_text(TABLE, width=32).splitlines()
    assert [line for line in lines if line] == [" run_image_classification.py", "    by hand: 270/s", " main.py"]

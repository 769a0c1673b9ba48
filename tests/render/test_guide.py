"""Pages of the guide in a terminal."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

import loaderprobe
from loaderprobe.records import thresholds
from loaderprobe.render.guide import guide_text, threshold_tables

PAGES = sorted(page.name for page in files("loaderprobe").joinpath("guide").iterdir() if page.name.endswith(".md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MOST_COLUMNS = 76
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


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [40, 80])
def test_code_can_be_pasted(page: str, width: int) -> None:
    """Each of its lines is shown whole, however narrow the terminal."""
    text = files("loaderprobe").joinpath("guide", page).read_text()
    shown = {line.strip() for line in guide_text(text, width=width).splitlines()}
    code = [line.strip() for block in BLOCK.findall(text) for line in block[1].splitlines()]
    assert [line for line in code if line not in shown] == []


@pytest.mark.parametrize("page", PAGES)
def test_code_fits_a_terminal(page: str) -> None:
    """Longer commands go on after a backslash; what a command printed has the width that it was printed in."""
    text = files("loaderprobe").joinpath("guide", page).read_text()
    code = [line for kind, block in BLOCK.findall(text) if kind != "output" for line in block.splitlines()]
    assert [line for line in code if len(line) > MOST_COLUMNS] == []


def test_every_threshold_is_in_the_guide() -> None:
    """Once, with its value and with what it decides, each as a sentence; nothing else is in the module."""
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| ([^|]+) \| ([^|]*) \|$", threshold_tables(), re.MULTILINE)
    values = {name: value for name, value in vars(thresholds).items() if isinstance(value, (int, float))}
    assert [name for name, *_ in rows] == list(values)
    assert {name: float(value.replace(",", "")) for name, value, *_ in rows} == pytest.approx(values)
    assert [name for name, _, decides, _ in rows if not re.match(r"[A-Z].+\.$", decides)] == []
    assert all(name.isupper() or name.startswith("__") for name in vars(thresholds))


def test_no_other_figure_has_the_name_of_a_threshold_and_another_value() -> None:
    """In the whole package."""
    package = Path(loaderprobe.__file__).parent
    lines = [line for path in package.rglob("*.py") for line in path.read_text().splitlines()]
    figures = [match.groups() for line in lines if (match := re.match(r"([A-Z]\w+) = ([\d._e-]+)$", line))]
    assert [name for name, value in figures if float(value) != getattr(thresholds, name, float(value))] == []

"""What is skipped says why, and how to run it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.skips import remedy, summary

TESTS = Path(__file__).parent
LIBFUSE = "no latency disk can be planted here: fuse: libfuse is not installed (Unable to find libfuse)"


def _text(node: ast.expr) -> str:
    """The constant parts of a reason; empty where it is computed."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))


def _reasons() -> Iterator[tuple[str, str]]:
    """(file and line, reason) of each `pytest.skip` and `skipif` in the tests."""
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                reasons = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
                if node.func.attr == "skip":
                    reasons += node.args
                if node.func.attr in ("skip", "skipif"):
                    yield from ((f"{path.name}:{node.lineno}", text) for text in map(_text, reasons) if text)


def test_every_reason_in_the_tests_has_a_command() -> None:
    """Whoever reads the summary can act on it."""
    found = list(_reasons())
    assert len(found) > 20
    assert [(where, reason) for where, reason in found if remedy(reason) is None] == []


def test_each_reason_is_shown_once_with_its_count_and_its_command() -> None:
    """The most frequent first, cut to what fits; a bare machine gets the name of the library that is missing."""
    lines = summary(["djpeg is not installed", LIBFUSE, LIBFUSE])
    assert lines[0].startswith("   2 no latency disk") and lines[-3] == "     to run: apt-get install fuse3 libfuse3-3"
    assert lines[-2:] == ["   1 djpeg is not installed", "     to run: apt-get install libjpeg-turbo-progs"]
    lines = summary(["strange " * 100])
    assert lines[-1].endswith("no command is known")
    assert all(len(line) < 120 for line in lines)

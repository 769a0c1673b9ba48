"""The catalogue of remarks: every code that the package says has words, and every fact in them is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import get_args

from loaderprobe.render.remarks import PHRASES, WORDS

import loaderprobe
from loaderprobe.records.environment import CapabilityName
from loaderprobe.records.remark import Remark, each_once, reported
from loaderprobe.render.capability_words import TITLES
from loaderprobe.render.words import remark_words

ROOT = Path(loaderprobe.__file__).parent
CATALOGUE = ROOT / "render" / "remarks.py"
# Facts that no text quotes: what a remark follows from, and figures for whoever reads the JSON.
BESIDE = {"because", "mount", "needed", "rank", "host", "hint", "ended_after_s"}


@cache
def _nodes() -> Sequence[tuple[Path, ast.AST]]:
    """Of the whole package, whose parsing takes seconds."""
    return [(file, node) for file in ROOT.rglob("*.py") for node in ast.walk(ast.parse(file.read_text()))]


def _made() -> Iterator[tuple[str, int, str, set[str] | None]]:
    """File, line, code and facts of every remark that is made with a code in place; no facts where some are joined."""
    for file, node in _nodes():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Remark"):
            continue
        given = {each.arg: each.value for each in node.keywords}
        code, facts = given.get("code"), given.get("facts")
        if isinstance(code, ast.Constant):
            names: set[str] | None = set()
            if isinstance(facts, ast.Dict) and all(isinstance(each, ast.Constant) for each in facts.keys):
                names = {str(each.value) for each in facts.keys if isinstance(each, ast.Constant)}
            elif facts is not None:
                names = None
            yield file.relative_to(ROOT).as_posix(), node.lineno, str(code.value), names


def _quoted(code: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(WORDS[code]) if field}


def test_every_code_has_words_and_every_fact_is_quoted() -> None:
    """A code without words, or a fact that is missing, would fail only in a user's report."""
    wrong = []
    for file, line, code, facts in _made():
        if code not in WORDS:
            wrong.append(f"{file}:{line}: {code} has no words")
        elif facts is not None and code not in PHRASES:
            if missing := _quoted(code) - facts:
                wrong.append(f"{file}:{line}: {code} lacks {missing}")
            if unused := facts - _quoted(code) - BESIDE:
                wrong.append(f"{file}:{line}: {code} never says {unused}")
    assert not wrong, "\n".join(wrong)


def test_no_words_are_left_over() -> None:
    """Words of a code that the package never says are a promise that no run keeps."""
    said = {
        str(node.value)
        for file, node in _nodes()
        if file != CATALOGUE and isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not WORDS.keys() - said


def test_words_are_clauses() -> None:
    """They stand in a line with others: no full stop at the end."""
    assert not [code for code, text in WORDS.items() if not text or text.endswith(".")]


def test_several_with_one_code_share_a_clause() -> None:
    """Figures that differ become a range, in their order as numbers."""
    shares = (0.15, 0.09, 0.33)
    words = remark_words(*(Remark(code="wait_unexplained", facts={"share": share}) for share in shares))
    assert words == "workers wait 9.0 % to 33 % of their time, and nothing shows that it is for storage"


def test_each_remark_stands_once() -> None:
    """In the order in which it came first; of those that differ in what is needed, the one with the most."""
    twice = [reported("it rained"), Remark(code="one_round"), reported("it rained")]
    assert each_once(twice) == tuple(twice[:2])
    needed = [Remark(code="no_time", facts={"needed": needed}) for needed in (2.0, 5.0, 3.0)]
    assert each_once(needed) == (needed[1],)


def test_every_capability_has_a_title() -> None:
    """A line that begins with a code would be none for people."""
    assert TITLES.keys() == set(get_args(CapabilityName))

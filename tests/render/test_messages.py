"""The catalogue of texts: each code that can be made has one, and each fact that it asks for is given."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, get_args

import pytest

import loaderprobe
from loaderprobe.records.attached import WhyNot
from loaderprobe.records.bandwidth import LimitCode
from loaderprobe.records.batch_size import StopCode
from loaderprobe.records.compare import NoteCode, ResultKind, WordReason
from loaderprobe.records.diagnosis import UnknownFilesCode
from loaderprobe.records.environment import CapabilityName, StepCode
from loaderprobe.records.measurement import RejectedCode
from loaderprobe.records.phases import KindCode
from loaderprobe.records.rank_processes import NotTogetherCode
from loaderprobe.records.remark import Remark, each_once, reported
from loaderprobe.records.supply import SupplyResource
from loaderprobe.records.verdict import ActionCode, Interval, ReasonCode
from loaderprobe.render.format import Parts, Sentence, parsed
from loaderprobe.render.json import result_json, summary_json
from loaderprobe.render.messages import MESSAGES
from tests.examples.bandwidth import example_bandwidth
from tests.examples.reports import example_report, example_row

ROOT = Path(loaderprobe.__file__).parent
CATALOGUE = ROOT / "render" / "messages.py"
# The kind of text of each record with a code.
KINDS = {"Remark": "", "Action": "action.", "Reason": "reason.", "_reason": "reason.", "_capability": "", "message": ""}
# Facts that no text asks for: what a remark follows from, and figures for whoever reads the JSON.
BESIDE = {"because", "needed", "mount", "rank", "host", "hint", "ended_after_s", "noise_band", "resource", "how"}
# Added to those of every reason: what is judged and how fast it is, and what the words of a verdict derive.
OF_EVERY_REASON = {
    "judged", "images_per_s", "utilization", "device", "compute_how", "sample", "cause", "alike", "first", "second",
    "first_speedup", "second_speedup", "second_how",
}  # fmt: skip


@cache
def _nodes() -> Sequence[tuple[Path, ast.AST]]:
    """Of the whole package, whose parsing takes seconds."""
    return [(file, node) for file in ROOT.rglob("*.py") for node in ast.walk(ast.parse(file.read_text()))]


def _made() -> Iterator[tuple[str, str, set[str] | None]]:
    """Where, code and facts of every record that is made with a code in place; no facts where some are joined."""
    for file, node in _nodes():
        if not isinstance(node, ast.Call):
            continue
        maker = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if maker not in KINDS:
            continue
        given = {each.arg: each.value for each in node.keywords}
        args = node.args[2:] if maker == "_capability" else node.args
        code: ast.expr | None = given.get("code", args[0] if args else None)
        facts = node.args[1] if maker == "message" else given.get("facts", ast.Dict(keys=[], values=[]))
        names: set[str] | None = None
        if maker in ("_reason", "_capability"):
            names = None if None in given else {name for name in given if name and name != "step"}
        elif isinstance(facts, ast.Dict) and all(facts.keys):
            names = {key.value for key in facts.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        if isinstance(code, ast.Constant) and isinstance(code.value, str):
            place = f"{file.relative_to(ROOT).as_posix()}:{node.lineno}"
            yield place, f"{KINDS[maker]}{code.value}", names


def _asked(parts: Parts, *, optional: bool) -> Iterator[str]:
    """The facts that a text asks for, and those of the texts that it quotes; with what is `optional`, or without."""
    for part in parts:
        if not isinstance(part, str):
            for alternative in part if optional else part[1:][-1:]:
                yield from _asked(alternative, optional=optional)
            continue
        for _, name, spec, _ in Formatter().parse(part):
            yield from (name or "").split("-")
            if optional and spec and spec.lower().startswith("code "):
                prefix = spec.partition(" ")[2]
                for code in (code for code in MESSAGES if code == prefix or code.startswith(f"{prefix}.")):
                    yield from _asked(parsed(MESSAGES[code]), optional=True)


def _facts(code: str, *, optional: bool) -> set[str]:
    return {name for name in _asked(parsed(MESSAGES[code]), optional=optional) if name and name != "resources"}


def test_every_code_has_a_text_and_every_fact_is_said() -> None:
    """A code without a text, or a fact that is missing, would fail only in a user's report."""
    wrong = []
    for place, code, facts in _made():
        if code not in MESSAGES:
            wrong.append(f"{place}: {code} has no text")
        elif facts is not None:
            known = facts | (OF_EVERY_REASON if code.startswith("reason.") else {"sample"})
            if missing := _facts(code, optional=False) - known:
                wrong.append(f"{place}: {code} lacks {missing}")
            if unused := facts - _facts(code, optional=True) - BESIDE:
                wrong.append(f"{place}: {code} never says {unused}")
    assert not wrong, "\n".join(wrong)


CODES: dict[str, Any] = {
    "reason": ReasonCode, "action": ActionCode, "ladder": LimitCode, "kind": KindCode, "rejected": RejectedCode,
    "unknown_files": UnknownFilesCode, "search": StopCode, "capability": CapabilityName, "step": StepCode,
    "why_not": WhyNot, "apart": NotTogetherCode, "compared": ResultKind, "word": WordReason, "comparison": NoteCode,
    "supply": SupplyResource,
}  # fmt: skip


@pytest.mark.parametrize("kind", CODES)
def test_every_code_of_a_type_has_a_text(kind: str) -> None:
    """And no text is left without a code."""
    codes = {f"{kind}.{code}" for code in get_args(CODES[kind])}
    assert codes == {code for code in MESSAGES if code.startswith(f"{kind}.")}


def test_no_text_of_a_remark_is_left_over() -> None:
    """One whose code the package never names is a promise that no run keeps."""
    words = {
        node.value
        for file, node in _nodes()
        if file != CATALOGUE and isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {code for code in MESSAGES if "." not in code} - words == set()


def test_remarks_are_clauses() -> None:
    """They stand in a line with others: no full stop at the end."""
    assert not [code for code, text in MESSAGES.items() if "." not in code and (not text or text.endswith("."))]


@pytest.mark.parametrize(
    ("text", "facts", "said"),
    [
        ("{x:rate} images/s", {"x": 1785.7}, "1786 images/s"),
        ("{x:percent}", {"x": 0.615}, "62 %"),
        ("{low-high:range percent}", {"low": 0.15, "high": 0.333}, "15 to 33 %"),
        ("{low-high:range percent}", {"low": 0.151, "high": 0.149}, "15 %"),
        ("{low-high:range bytes}", {"low": 9e5, "high": 1.2e6}, "900 kB to 1.20 MB"),
        ("{low-high:range count worker}", {"low": 1, "high": 2}, "1 to 2 workers"),
        ("{x:bytes/s}", {"x": 20.3e6}, "20.3 MB/s"),
        ("{x:duration}", {"x": 0.00186}, "1.86 ms"),
        ("{x:times}", {"x": 2.8123}, "2.81"),
        ("{n:count worker}, {m:count worker}, {m:count pass}", {"n": 1.0, "m": 2}, "1 worker, 2 workers, 2 passes"),
        (
            "{none:ranks}, {one:ranks}, {two:ranks}",
            {"none": (), "one": [1], "two": [1, 3]},
            "a rank, rank 1, ranks 1 and 3",
        ),
        ("{n:workers}, {m:workers}, {n:loader}", {"n": 0, "m": 2}, "serial, 2 workers, the serial loader"),
        ("{v:interval}", {"v": Interval(value=205, low=199, high=211)}, "205 ±6"),
        ("{v:interval}", {"v": Interval(value=63.36, low=61.4, high=65.3)}, "63.4 ±1.9"),
        ("{v:interval}", {"v": Interval(value=337, low=336.8, high=337.2)}, "337 ±0.2"),
        ("{v:interval}", {"v": Interval(value=337.4, low=337.2, high=337.6)}, "337.4 ±0.2"),
        ("{v:interval}", {"v": Interval(value=1786, low=1784, high=1788)}, "1786 ±2"),
        ("{v:interval}", {"v": Interval(value=12345, low=12339, high=12351)}, "12345 ±6"),
        ("{v:interval}", {"v": Interval(value=12345, low=12245, high=12445)}, "12300 ±100"),
        ("{v:interval}", {"v": None}, "\N{EN DASH}"),
        ("{name:noun}", {"name": "cpu"}, "CPU cores"),
        ("{x:accelerator}, {y:accelerator}", {"x": "a", "y": "500"}, "a, accelerator of 500 images/s"),
        ("{x} of {y}", {"x": 4.0, "y": "many"}, "4 of many"),
        ("a[ and {b}][ for {c}]", {"b": "b", "c": ""}, "a and b"),
        ("[{b} or {c}|{c}|neither]", {"c": "c"}, "c"),
        ("[{b}|neither]", {}, "neither"),
        ("[rank {rank}[ on {host}]]", {"rank": "1"}, "rank 1"),
        ("{how:code how}", {"how": "estimated"}, " (estimated)"),
        ("{what:Code of}, {which:code of}", {"what": "x", "which": "y", "fact": 1}, "Its 1, any"),
        ("{names:list of}", {"names": "x, z"}, "its {fact} and z"),
        ("{rates:each rate}", {"rates": [Interval(value=2, low=1, high=3)] * 2}, "2.00 and 2.00"),
        ("all[ but {rates:each rate}]", {"rates": []}, "all"),
    ],
)
def test_a_field_is_shown_with_its_unit(text: str, facts: dict[str, Any], said: str) -> None:
    """By the word after its colon; brackets hold what is said only where the facts are there."""
    texts = {"how.estimated": " (estimated)", "of": "any", "of.x": "its {fact}", "rate": "{value:rate}"}
    assert Sentence(texts, facts).filled(text) == said


def test_a_fact_that_is_missing_is_an_error() -> None:
    """Outside brackets, and in the last of several alternatives."""
    for text in ("{x}", "[{x}|{y}]", "{low-high:range percent}"):
        with pytest.raises(KeyError):
            Sentence({}, {"low": 1.0}).filled(text)
    for text in ("[a", "a]", "a|b"):
        with pytest.raises(ValueError, match="bracket"):
            Sentence({}, {}).filled(text)


def test_each_remark_stands_once() -> None:
    """In the order in which it came first; of those that differ in what is needed, the one with the most."""
    twice = [reported("it rained"), Remark(code="one_round"), reported("it rained")]
    assert each_once(twice) == tuple(twice[:2])
    needed = [Remark(code="no_time", facts={"needed": needed}) for needed in (2.0, 5.0, 3.0)]
    assert each_once(needed) == (needed[1],)


# Sentences beside codes in JSON, wherever they stand in a result.


def _without_sentence(tree: Any) -> list[Any]:
    """The records of a JSON tree that have a code and facts, but no sentence."""
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    found = [each for child in children for each in _without_sentence(child)]
    return [tree, *found] if isinstance(tree, dict) and "sentence" in tree and not tree["sentence"] else found


def test_every_code_has_its_sentence_in_json() -> None:
    """In a summary and in a result of its own: of verdicts, notes, evidence, reasons, limits and kinds."""
    rows = [example_row(), example_row(seed=1, status="failed", reason="it broke")]
    summary = json.loads(summary_json(example_report(rows)))
    assert summary["configurations"][1]["reason"]["sentence"] == "it broke"
    forecast_of_a_rate = {"images_per_s", "changed"}
    assert [each for each in _without_sentence(summary) if not forecast_of_a_rate <= each.keys()] == []
    assert _without_sentence(json.loads(result_json(example_bandwidth()))) == []

"""Sentences beside codes, wherever they stand in a result."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from loaderprobe.records.remark import Remark, reported
from loaderprobe.render.json import result_json, summary_json, worded
from tests.examples.bandwidth import example_bandwidth
from tests.examples.reports import example_report, example_row


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
    assert summary["environment"]["gpu_reason"]["sentence"].startswith("NVML does not start")
    forecast_of_a_rate = {"images_per_s", "changed"}
    assert [each for each in _without_sentence(summary) if not forecast_of_a_rate <= each.keys()] == []
    bandwidth = json.loads(result_json(example_bandwidth()))
    assert _without_sentence(bandwidth) == [] and bandwidth["limit"]["sentence"].startswith("Latency-limited below 16")


def test_a_sentence_is_no_part_of_the_value() -> None:
    """What is read back equals what was written; a sentence that is there already stays."""
    reason = reported("no driver")
    assert worded(reason) == reason and worded(reason).sentence == "no driver"
    assert worded(replace(reason, sentence="kein Treiber")).sentence == "kein Treiber"


def test_what_has_no_code_is_the_same_object() -> None:
    """Columns of a million numbers are not copied."""
    column = tuple(range(1000))
    assert worded(column) is column
    held: dict[str, Any] = {"column": column, "reason": Remark(code="no_step")}
    assert worded(held)["column"] is column and worded(held)["reason"].sentence == "no step was given"

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import msgspec
import pytest

from loaderprobe.render.json import summary_json, summary_schema, summary_type
from loaderprobe.render.words import sentence
from tests.examples.reports import example_report, example_row


def validator() -> Any:
    schema = json.loads(summary_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_example_is_valid() -> None:
    """The summary of a report validates against the schema that we print."""
    validator().validate(json.loads(summary_json(example_report())))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("schema",), "loaderprobe/bandwidth"),
        (("schema_version",), 99),
        (("configurations", 0, "workers"), "two"),
        (("configurations", 0, "bound", "side"), "disk"),
        (("configurations", 0, "images_per_s"), 12.0),
    ],
)
def test_wrong_summary_is_refused(where: tuple[str | int, ...], value: object) -> None:
    """Another schema, another version, a wrong type or an unknown word does not validate."""
    summary = json.loads(summary_json(example_report()))
    place = summary
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(summary)


def test_round_trip() -> None:
    """The JSON decodes to the type of its schema, and to what it was made of with its words; one newline ends it."""
    report = example_report()
    text = summary_json(report)
    decoded: Any = msgspec.json.decode(text, type=summary_type())
    assert decoded.environment == report.summary.environment
    for got, row in zip(decoded.configurations, report.summary.configurations, strict=True):
        said = replace(row.bound, sentence=sentence(row.bound)) if row.bound else None
        assert (got.key, got.bound, got.images_per_s) == (row.key, said, row.images_per_s)
    assert all(knee.sentence for knee in decoded.knees)
    assert text.endswith("}\n")


@pytest.mark.parametrize("changes", [{}, {"compute": "cpu", "emulated": False}, {"ranks": 2}, {"status": "failed"}])
def test_the_answer_stands_in_the_summary(changes: dict[str, Any]) -> None:
    """A script reads what a person reads, by codes, figures and keys of configurations."""
    report = example_report(
        [*example_report().summary.configurations, example_row(seed=1, reason="it broke", **changes)]
    )
    summary = json.loads(summary_json(report))
    keys = {row["key"] for row in summary["configurations"]}
    assert summary["answer"] and summary["next"] and summary["needs"] and set(summary["best"]) <= keys
    assert all(set(answer["configurations"]) <= keys for answer in summary["answer"])
    assert all(remark["sentence"] for remark in summary["not_known"])


def test_what_was_not_measured_is_null_with_a_reason() -> None:
    """A failed configuration has its options, no figure, and one reason for all."""
    (row,) = json.loads(summary_json(example_report([example_row(status="failed", reason="it broke")])))[
        "configurations"
    ]
    assert (row["workers"], row["compute"], row["status"]) == (2, "emulated:mlperf-h100", "failed")
    assert row["images_per_s"] is row["bound"] is row["step_time"] is None
    (reason,) = row["unavailable"].items()
    assert reason == ("*", {"code": "reported", "facts": {"reason": "it broke"}, "sentence": "it broke"})

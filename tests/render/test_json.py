from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from loaderprobe.records.report import SUMMARY_VERSION, Summary
from loaderprobe.render.json import summary_json, summary_schema
from loaderprobe.render.verdict_words import sentence, worded
from loaderprobe.testing import example_report


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


def test_missing_field_is_refused() -> None:
    """A configuration without one of its fields does not validate."""
    summary = json.loads(summary_json(example_report()))
    del summary["configurations"][0]["status"]
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(summary)


def test_round_trip() -> None:
    """The JSON decodes to the same summary, with the words of its verdicts and knees, and ends with one newline."""
    report = example_report()
    text = summary_json(report)
    found = msgspec.json.decode(text, type=Summary)
    assert found == worded(report.summary)
    for row, before in zip(found.configurations, report.summary.configurations, strict=True):
        if row.bound and before.bound:
            assert row.bound.reason == before.bound.reason
            assert row.bound.sentence == sentence([before.bound])
    assert all(knee.sentence for knee in found.knees)
    assert text.endswith("}\n")


def test_schema_is_titled_and_has_no_address() -> None:
    """The schema names itself and its version, and claims no identifier on the network."""
    schema = json.loads(summary_schema())
    assert schema["title"] == f"loaderprobe/summary {SUMMARY_VERSION}"
    assert "$id" not in schema

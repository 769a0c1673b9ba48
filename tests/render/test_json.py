from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from loaderprobe.render.json import summary_json, summary_schema
from tests.examples.reports import example_report


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

"""The plan as people and programs read it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import jsonschema
import pytest

from loaderprobe.records.plan import CacheAsked, PlanReport
from loaderprobe.render.json import result_json, result_schema
from loaderprobe.render.pages import document_markdown
from loaderprobe.render.plan import catalogue_document, catalogue_json, plan_document
from loaderprobe.render.terminal import document_text
from loaderprobe.storage.catalogue import published
from tests.examples.plan import (
    SOURCE,
    example_asked,
    example_plan,
    example_workload,
)

FULL = example_plan(asked=replace(example_asked(), cache=CacheAsked(kind="page", bytes=75e9), nic_bytes_per_s=12.5e9))
BARE = example_plan(example_workload(cpu_s=None, wait_s=None, storage=None, images=None))
PLANS = {"full": FULL, "bare": BARE, "one": example_plan(asked=example_asked(1))}


def text(plan: PlanReport, width: int = 80) -> str:
    """As a terminal shows it."""
    return document_text(plan_document(plan), width=width)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_asked(name: str, width: int) -> None:
    """Whatever is known."""
    assert max(map(len, text(PLANS[name], width).splitlines())) <= width


def test_markdown_escapes_what_paths_hold() -> None:
    """A path acts on no reader."""
    plan = replace(FULL, source=replace(SOURCE, path="/runs/<b>|`x`"))
    page = document_markdown(plan_document(plan))
    assert "&lt;b&gt;\\|\\`x\\`" in page and "<b>" not in page


def _validator() -> Any:
    schema = json.loads(result_schema(PlanReport))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("schema",), "loaderprobe/bandwidth"),
        (("schema_version",), 99),
        (("needs", 0, "at_utilization", "label"), "guessed"),
        (("supplies", 0, "first_limit"), "luck"),
        (("inputs", "rate", "value"), "many"),
    ],
)
def test_a_wrong_plan_is_refused(where: tuple[str | int, ...], value: object) -> None:
    """Another schema, another version, an unknown label or resource, a wrong type."""
    tree = json.loads(result_json(FULL))
    place = tree
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        _validator().validate(tree)


def test_the_catalogue_shows_every_entry_with_source_and_date() -> None:
    """And says which are stale."""
    page = document_text(catalogue_document(published(), date(2026, 11, 22)), width=100)
    old = document_text(catalogue_document(published(), date(2027, 11, 21)), width=100)
    for entry in published():
        assert entry.name in page and entry.source.split(",")[0] in " ".join(page.split())
    assert "12 months" not in page
    assert " ".join(old.split()).count("12 months ago or longer: check it") == len(published())
    assert len(json.loads(catalogue_json(published()))) == len(published())

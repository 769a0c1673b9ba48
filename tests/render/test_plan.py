"""The plan as people and programs read it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import jsonschema
import msgspec
import pytest

from loaderprobe.analyze.plan.workload import known
from loaderprobe.records.plan import CacheAsked, PlanReport
from loaderprobe.render.catalogue import catalogue_document, catalogue_json
from loaderprobe.render.json import result_json, result_schema
from loaderprobe.render.markdown import document_markdown
from loaderprobe.render.notebook import document_html
from loaderprobe.render.plan import plan_document
from loaderprobe.render.plan_words import plain
from loaderprobe.render.terminal import document_text
from loaderprobe.storage.catalogue import published
from tests.examples.plan import (
    SOURCE,
    example_asked,
    example_batches,
    example_plan,
    example_storage,
    example_workload,
)

FULL = example_plan(asked=replace(example_asked(), cache=CacheAsked(kind="page", bytes=75e9), nic_bytes_per_s=12.5e9))
BARE = example_plan(example_workload(cpu_s=None, wait_s=None, storage=None, stalls=None, images=None))
PLANS = {"full": FULL, "bare": BARE, "one": example_plan(asked=example_asked(1))}


def text(plan: PlanReport, width: int = 80) -> str:
    """As a terminal shows it."""
    return document_text(plan_document(plan), width=width)


def test_the_first_screen_answers() -> None:
    """In 24 lines of 80 columns: the need, what to buy, what limits it first and how many it feeds, what to test."""
    screen = " ".join(" ".join(text(FULL).splitlines()[:24]).split())
    assert "64 x mlperf-h100 at 90 % of their rate need 11.8 GB/s and 103,000 opens/s" in screen
    assert "Buy, with 80 % of a limit in use, 14.8 GB/s and 129,000 opens/s." in screen
    assert "The storage measured here feeds 3.98 of 64, limited by bandwidth." in screen
    assert "6GB/s,24kopens/s,2ms feeds 11.9 of 64, limited by opens/s." in screen
    assert "started on each of 8 nodes, all together at least 14.8 GB/s and 129,000 files/s, cold" in screen
    assert "torchrun --nnodes 8 --nproc-per-node 8" in screen
    assert "-m loaderprobe bandwidth PATH --ranks 8x8 --readers 5" in screen
    assert "read bandwidth 11.8 GB/s 13.1 GB/s 14.8 GB/s 1.48 GB/s given" in screen


def test_one_node_is_tested_without_a_launcher() -> None:
    """As many readers as its accelerators have workers; a single one is no plural."""
    page = " ".join(text(PLANS["one"]).split())
    assert "on the node, at least" in page and "loaderprobe bandwidth PATH --readers 5 " in page
    single = example_workload(cpu_s=known(0.0001, "s", "measured", "run"), wait_s=known(0.0, "s", "measured", "run"))
    page = " ".join(text(example_plan(single, example_asked(1))).split())
    assert "1 reader: 1 worker for each of 1 accelerator." in page


@pytest.mark.parametrize("bound", [False, True])
def test_nothing_ends_at_a_limit_that_was_not_reached(bound: bool) -> None:
    """At least so much is no limit, and no cache is sized by it."""
    storage = example_storage(at_least=bound)
    page = " ".join(text(example_plan(example_workload(storage=storage))).split())
    assert ("feeds at least 3.98 of 64; its limit was not reached." in page) == bound
    assert ("feeds 3.98 of 64, limited by bandwidth." in page) == (not bound)
    assert ("A cache on each node for measured here" in page) == (not bound)
    assert ("feeds: measured here at least 7.96," in page) == bound


def test_a_refused_replay_that_was_asked_for_stands_in_the_answer() -> None:
    """With what gives enough batches; and the title says which number is which."""
    few = replace(example_batches(), series=((0.2,) * 12,))
    asked = replace(example_asked(8), simulate_ranks=64)
    lines = text(example_plan(example_workload(batches=few), asked), 200).splitlines()
    assert lines[0].endswith("Storage plan for 8 x mlperf-h100, and lock-step of 64 ranks")
    first = " ".join(lines[:8])
    assert "64 ranks in step: no cost is said, since 12 measured batches are too few: 30 are needed" in first
    assert "--thorough --rounds" in first and "cost of lock-step:" not in " ".join(lines)


def test_a_range_of_one_figure_is_one_figure() -> None:
    """Where both ends round to it."""
    quantity = known(1.3, "workers", "measured", "run", half=0.02)
    assert plain(quantity) == "1.3" and plain(replace(quantity, high=2.1)) == "1.3 to 2.1"


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_asked(name: str, width: int) -> None:
    """Whatever is known."""
    assert max(map(len, text(PLANS[name], width).splitlines())) <= width


def test_every_part_of_the_plan_is_on_the_page() -> None:
    """Epochs, stragglers, levers, the ledger with labels, the test, and what is not covered; in Markdown as well."""
    for page in (text(FULL, 200), document_markdown(plan_document(FULL))):
        for part in ("Epochs and caches", "Stragglers", "What lowers the need", "Inputs and assumptions",
                     "The test on delivery", "Not covered", "Shards of 1,251 images", "Files of half the size",
                     "Utilization of 80 %", "assumed", "published" if "published" in page else "given"):  # fmt: skip
            assert part in page


def test_a_cache_is_sized_as_it_fills() -> None:
    """On one node it has filled after an epoch; on several, epochs go by before a page cache gives these hits."""
    one, many = (" ".join(text(example_plan(asked=example_asked(count))).split()) for count in (8, 64))
    assert "of page cache once that has filled, which takes several epochs on 8 nodes" in many
    assert "of page cache once that has filled" in one and "several epochs" not in one


def test_what_is_refused_has_its_reason_and_no_figure() -> None:
    """A dash would be a riddle; an empty section is left out."""
    page = text(BARE)
    assert "workers: this was not measured" in page and "Stragglers\n" not in page
    assert "stragglers: no single steps were measured" in page
    assert "workers, each" not in page


def test_a_number_of_images_that_only_the_run_has_is_said() -> None:
    """With the option that replaces it."""
    assert "One epoch of 1,281,167 images: 12 s; --images" in " ".join(text(FULL).split())
    assert "1,281,167 images measured" in " ".join(text(FULL).split()) and "1,280,000" not in text(FULL)


def test_markdown_escapes_what_paths_hold() -> None:
    """A path acts on no reader."""
    plan = replace(FULL, source=replace(SOURCE, path="/runs/<b>|`x`"))
    page = document_markdown(plan_document(plan))
    assert "&lt;b&gt;\\|\\`x\\`" in page and "<b>" not in page
    assert "<b>|" not in document_html(plan_document(plan))


def _validator() -> Any:
    schema = json.loads(result_schema(PlanReport))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", PLANS)
def test_json_is_valid_and_comes_back(name: str) -> None:
    """By the schema that is printed; equal to what it was made of."""
    shown = result_json(PLANS[name])
    _validator().validate(json.loads(shown))
    assert msgspec.json.decode(shown, type=PlanReport) == PLANS[name]
    assert shown.endswith("}\n") and "Infinity" not in shown and "NaN" not in shown


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("schema",), "loaderprobe/bandwidth"),
        (("schema_version",), 99),
        (("needs", 0, "at_utilization", "label"), "guessed"),
        (("supplies", 0, "first_limit"), "luck"),
        (("ledger", 0, "quantity", "value"), "many"),
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


def test_a_stale_figure_is_said_where_it_is_used() -> None:
    """Beside the storage that it is of."""
    stale = replace(FULL.supplies[1], label="published", stale=True, read_on="2025-01-01", source="a page")
    assert "12 months ago or longer: check it" in " ".join(text(replace(FULL, supplies=(stale,))).split())

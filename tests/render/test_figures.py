"""Options and figures in flat rows, in the summary and in labels."""

from __future__ import annotations

import csv
import json
from dataclasses import MISSING, fields, is_dataclass, replace
from io import StringIO
from typing import Any, get_args, get_type_hints

import pytest

from loaderprobe.records.config import OPTIONS
from loaderprobe.records.verdict import DeviceUse, Verdict
from loaderprobe.render.figures import FIGURES, flat
from loaderprobe.render.groups import full_label
from loaderprobe.render.json import summary_json
from tests.examples.reports import example_report, example_row
from tests.other_options import PATHS, Path, flat_name, value_at, with_another
from tests.pages import csv_report


@pytest.mark.parametrize(("path", "kind"), PATHS, ids=lambda given: ".".join(given) if type(given) is tuple else "")
def test_every_option_is_in_summary_csv_and_flat_row(path: Path, kind: Any) -> None:
    """With the value that the configuration has, under a name of its own."""
    row = example_row()
    row = replace(row, config=with_another(row.config, path, kind))
    name, value = flat_name(path), value_at(row.config, path)
    report = example_report([row])
    (summary,) = json.loads(summary_json(report))["configurations"]
    (line,) = csv.DictReader(StringIO(csv_report(report)))
    assert summary[name] == flat(row)[name] == value
    assert line[name] == str(value)


@pytest.mark.parametrize(
    ("path", "kind"),
    [(path, kind) for path, kind in PATHS if path != ("layout",)],
    ids=lambda given: ".".join(given) if type(given) is tuple else "",
)
def test_every_option_that_is_not_as_usual_is_in_the_label(path: Path, kind: Any) -> None:
    """Of a row alone where it has a default, else beside another value. The data set's name says its layout."""
    usual = example_row()
    row = replace(usual, config=with_another(usual.config, path, kind))
    beside = [usual, row] if OPTIONS[flat_name(path)].default is MISSING else [row]
    words, others = full_label(row, example_report(beside)), full_label(usual, example_report([usual, *beside][:2]))
    value = value_at(row.config, path)
    assert words != others
    assert kind is bool or str(value).removeprefix("emulated:") in words


def test_names_of_options_differ() -> None:
    """No two fields share a flat name, and the table of options has exactly those that walking finds."""
    assert sorted(OPTIONS) == sorted(flat_name(path) for path, _ in PATHS)
    assert {each.path for each in OPTIONS.values()} == {path for path, _ in PATHS}


def test_every_figure_of_a_verdict_has_a_column() -> None:
    """Walking the record finds no number that the table forgets."""
    numbers = {f"gpu_window.use.{each.name}" for each in fields(DeviceUse)}
    for name, kind in get_type_hints(Verdict).items():
        inner = next((each for each in (kind, *get_args(kind)) if is_dataclass(each)), None)
        if kind in (float, float | None) or name == "images_per_s":
            numbers.add(name)
        elif inner and name not in ("bound", "advice", "unavailable"):
            numbers |= {f"{name}.{each.name}" for each in fields(inner) if each.name != "waits"}
    assert numbers - {each.at for each in FIGURES} == set()

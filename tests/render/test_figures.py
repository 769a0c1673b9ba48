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
from loaderprobe.render.figures import BY_COLUMN, FIGURES, flat, shown, words_of
from loaderprobe.render.format import MISSING as DASH
from loaderprobe.render.groups import full_label, groups, label
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
    [each for each in PATHS if each[0] != ("layout",)],
    ids=lambda given: ".".join(given) if type(given) is tuple else "",
)
def test_every_option_that_is_not_as_usual_is_in_the_label(path: Path, kind: Any) -> None:
    """Of a row alone where it has a default, else beside a row with another value.

    A layout is in the name of its data.
    """
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


def test_columns_differ_and_are_the_same_for_every_row() -> None:
    """A frame of several runs has one set of columns; a GPU's own counters come on top."""
    columns = [column for each in FIGURES for column in each.cells(example_row())]
    assert len(columns) == len(set(columns))
    assert not set(columns) & set(OPTIONS)
    failed = example_row(status="failed", reason="it broke")
    assert list(flat(failed)) == list(flat(example_row()))
    assert set(flat(example_row(gpu={"power_w": 100.0}))) - set(flat(failed)) == {"gpu_power_w"}
    assert all(flat(failed)[column] is None for column in columns)


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


def test_figures_are_those_of_the_row() -> None:
    """Plain ones, intervals, speed-ups with how they are known, and nested ones."""
    row = example_row()
    verdict, cells = row.verdict, flat(row)
    assert verdict and verdict.speedups.storage and verdict.worker_time
    assert cells["images_per_s_low"] == verdict.images_per_s.low
    assert cells["compute_images_per_s"] == verdict.rates_images_per_s.compute
    assert (cells["speedup_without_storage"], cells["speedup_without_storage_how"]) == (
        verdict.speedups.storage.value, verdict.speedups.storage.how,
    )  # fmt: skip
    assert cells["speedup_without_transport"] is cells["speedup_without_transport_how"] is None
    assert cells["worker_cpu_s_per_image"] == verdict.worker_time.cpu_s
    assert cells["other_read_bytes_per_s"] == 0.0


def test_figures_are_shown_by_their_unit() -> None:
    """Shares in percent, bandwidths in MB/s, and a dash for what does not exist."""
    row = example_row(disk_ceiling_fraction=0.97, disk_read_bytes_per_s=12.3e6, prediction_error=None)
    assert shown(row, "disk_ceiling_fraction") == "97 %"
    assert shown(row, "disk_read_bytes_per_s") == "12.3"
    assert shown(row, "prediction_error") == shown(example_row(status="skipped"), "images_per_s") == DASH
    assert words_of("speedups.storage") == BY_COLUMN["speedup_without_storage"].words == "speed-up if storage were free"
    assert words_of("rates_images_per_s") == "rates"


def test_what_all_rows_share_is_in_the_title_once() -> None:
    """The table under it names only what differs; a label out of its table names both."""
    rows = [example_row(precision="fp16", batch_size=batch) for batch in (32, 64)]
    (group,) = groups(example_report(rows))
    assert group.title.endswith("cold files, fp16 precision")
    assert label(rows[0], rows) == "1024x768, 2 workers, batch 32, fp16 precision"

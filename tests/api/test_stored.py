"""A stored run whose files were damaged: a report with what is left, or one of our errors, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaderprobe.api.load import foreign_modules, judge_run
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.records.report import Report
from loaderprobe.render.json import summary_json
from loaderprobe.store.run_directory import RunDirectory
from tests.pages import csv_report, markdown_report, terminal_report
from tests.stored import full_run

NUMBER = re.compile(rb"(?<=[:,\[])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?=[,\]}])")
NUMBERS = (
    b"1e400", b"-1e400", b"1e308", b"-1", b"0", b"NaN", b"Infinity", b"1" + b"0" * 30, b"1" + b"0" * 5000,
    b"9223372036854775807", b"-9223372036854775808", b"5e-324", b"1.5", b"null", b'"12"', b"true", b"[]",
)  # fmt: skip
VALUES: tuple[object, ...] = (
    None,
    {},
    [],
    "",
    "../../x",
    "\x1b[31m",
    True,
    -1,
    0,
    1e18,
    10**25,
    0.5,
    [None],
    [[1]],
    {"a": 1},
)
STATUSES = ["measured", "measured", "measured", "failed"]
PLACES = st.floats(0, 1, exclude_max=True)


def parts(run: RunDirectory) -> list[Path]:
    """Every stored file."""
    return sorted(run.path.rglob("*.json"))


def rendered(report: Report) -> list[str]:
    """The report in every form that needs no drawing."""
    return [
        terminal_report(report, width=80, color=False), summary_json(report), csv_report(report),
        markdown_report(report),
    ]  # fmt: skip


def places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a JSON value."""
    items = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    return [(tree, key) for key, _ in items] + [place for _, value in items for place in places(value)]


def with_value(data: bytes, where: float, value: object) -> bytes:
    """One value replaced by another of any type; `...` removes it."""
    tree = json.loads(data)
    found = places(tree)
    container, key = found[int(where * len(found))]
    if value is ...:
        del container[key]
    else:
        container[key] = value
    return json.dumps(tree).encode()


def with_number(data: bytes, where: float, number: bytes) -> bytes:
    """One number replaced."""
    found = list(NUMBER.finditer(data))
    chosen = found[int(where * len(found))]
    return data[: chosen.start()] + number + data[chosen.end() :]


def flipped(data: bytes, where: float, bits: int) -> bytes:
    """One byte changed."""
    at = int(where * len(data))
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


damages = st.one_of(
    st.builds(lambda where: lambda data: data[: int(where * len(data))], PLACES),
    st.builds(lambda where, bits: lambda data: flipped(data, where, bits), PLACES, st.integers(1, 255)),
    st.builds(lambda where, new: lambda data: with_number(data, where, new), PLACES, st.sampled_from(NUMBERS)),
    st.builds(lambda where, new: lambda data: with_value(data, where, new), PLACES, st.sampled_from((*VALUES, ...))),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Damaged and restored repeatedly."""
    return full_run(tmp_path_factory.mktemp("stored") / "run")


def test_the_run_that_is_damaged_below_is_whole(run: RunDirectory) -> None:
    """Undamaged, it has three verdicts and one failure, and nothing is said to be damaged."""
    report = judge_run(run)
    assert [row.status for row in report.summary.configurations] == STATUSES
    assert report.summary.run.damaged == ()
    assert report.summary.configurations[2].gpu_window and all(rendered(report))


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_damage_gives_a_report_or_one_of_our_errors(run: RunDirectory, data: st.DataObject) -> None:
    """Cut, flipped, infinite, absurd or of another type: only run.json ends the command, the rest costs one row."""
    path = data.draw(st.sampled_from(parts(run)), label="file")
    damage = data.draw(damages, label="damage")
    before = path.read_bytes()
    try:
        path.write_bytes(damage(before))
        try:
            report = judge_run(RunDirectory.open(run.path))
        except LoaderprobeError as error:
            assert path.name == "run.json" and error.exit_code == 2, error
            return
        assert all(rendered(report))
        if path.name != "run.json":
            rows = zip(report.summary.configurations, STATUSES, strict=True)
            assert sum(row.status != status for row, status in rows) <= (path.parent.name == "measurements")
    finally:
        path.write_bytes(before)


def test_the_modules_that_a_run_would_import_are_named_and_not_imported(tmp_path: Path) -> None:
    """Of what is still to be measured; built-in parts are none."""
    run = full_run(tmp_path / "run", loader="nowhere.at_all:Loader")
    assert foreign_modules(run) == ("nowhere.at_all",)
    assert foreign_modules(full_run(tmp_path / "own")) == ()


@pytest.mark.parametrize("name", ["nowhere", "../x:Y", "a b:C", ":", "os.path", "x\0y:Z", "nowhere..at:Z"])
def test_a_name_that_is_none_is_refused_before_anything_is_measured(tmp_path: Path, name: str) -> None:
    """An error of ours with the name in it."""
    with pytest.raises(BadValue):
        foreign_modules(full_run(tmp_path / "run", loader=name))

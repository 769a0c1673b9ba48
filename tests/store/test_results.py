"""Results in single JSON files: read back as they were written, and refused when they are not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import BANDWIDTH_SCHEMA, BandwidthReport
from loaderprobe.render.json import result_json
from loaderprobe.store.results import read_result
from tests.examples.bandwidth import example_bandwidth, example_operations


def read_bandwidth(file: Path) -> BandwidthReport:
    found: BandwidthReport = read_result(file, {BANDWIDTH_SCHEMA: BandwidthReport}.get)
    return found


def test_a_bandwidth_result_comes_back(tmp_path: Path) -> None:
    """Equal to what was printed."""
    file = tmp_path / "found.json"
    report = replace(example_bandwidth(), metadata=example_operations({4: 1000.0}))
    file.write_text(result_json(report))
    assert read_bandwidth(file) == report


def _with(*path: str | int, value: Any) -> str:
    tree = json.loads(result_json(example_bandwidth()))
    place = tree
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(tree)


_OPENS = json.loads(msgspec.json.encode(example_operations({4: 1000.0})[0]))
BAD = {
    "empty": "",
    "no JSON": "MB/s",
    "a list": "[]",
    "another schema": '{"schema": "loaderprobe/summary", "schema_version": 1}',
    "another version": _with("schema_version", value=2),
    "a missing field": '{"schema": "loaderprobe/bandwidth", "schema_version": 1}',
    "a wrong type": _with("mean_size_bytes", value="big"),
    "a negative size": _with("mean_size_bytes", value=-1.0),
    "a number beyond all": _with("phases", 0, "bw_bytes", value=1e300),
    "infinity": _with("phases", 0, "bw_bytes", value=float("inf")),
    "a negative rate": _with("phases", 0, "bw_bytes", value=-5.0),
    "no readers": _with("phases", 0, "readers", value=0),
    "a negative time": _with("phases", 0, "file_ns", "mean", value=-1.0),
    "opens without a rate": _with("metadata", value=[_OPENS | {"ops_per_s": 0.0}]),
    "opens of no readers": _with("metadata", value=[_OPENS | {"readers": 0}]),
    "opens that are neither cold nor warm": _with("metadata", value=[_OPENS | {"metadata": "cool"}]),
    "no amplification": _with("phases", 0, "amplification", value=0.0),
    "figures of too few ranks": _with("phases", 0, "ranks", value=2),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("case", BAD)
def test_anything_else_is_a_bad_value_that_names_the_file(case: str, tmp_path: Path) -> None:
    """With what to do."""
    file = tmp_path / "found.json"
    file.write_text(BAD[case])
    with pytest.raises(BadValue, match=r"found\.json") as caught:
        read_bandwidth(file)
    assert "measure it again" in caught.value.hint


def test_a_file_that_is_not_there_is_a_bad_value(tmp_path: Path) -> None:
    """And so is no text."""
    with pytest.raises(BadValue, match="does not exist"):
        read_bandwidth(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadValue, match="no JSON"):
        read_bandwidth(tmp_path / "bytes.json")

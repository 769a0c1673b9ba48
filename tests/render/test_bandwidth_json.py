"""The bandwidth report as JSON."""

from __future__ import annotations

import json

import msgspec
import pytest

from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.render.json import result_json
from tests.examples.bandwidth import example_bandwidth


def test_json_round_trip() -> None:
    """The JSON decodes to the same report, with null where nothing was counted, indented by 2."""
    text = result_json(example_bandwidth())
    assert msgspec.json.decode(text, type=BandwidthReport) == example_bandwidth()
    assert json.loads(text)["phases"][4]["storage_bytes"] is None
    assert text.startswith('{\n  "schema": "loaderprobe/bandwidth",\n')
    assert json.loads(text)["schema_version"] == SCHEMA_VERSION
    assert text.endswith("}\n")


def test_json_has_the_names_of_fio() -> None:
    """Who reads fio's output finds the same names and units in each phase."""
    phase = json.loads(result_json(example_bandwidth()))["phases"][0]
    assert (phase["bw_bytes"], phase["iops"]) == pytest.approx((61.3e6, 61.3e6 / 114_000))
    assert phase["clat_ns"]["percentile"]["99.000000"] > phase["clat_ns"]["percentile"]["50.000000"] > 0
    assert {"io_bytes", "runtime", "total_ios"} <= phase.keys()
    assert {"min", "max", "mean", "stddev", "N"} <= phase["clat_ns"].keys()

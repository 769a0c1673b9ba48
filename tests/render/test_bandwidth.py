from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.render.bandwidth import bandwidth_json, render_bandwidth
from loaderprobe.testing import example_bandwidth


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_runs_over(width: int) -> None:
    """No line is longer than the width that was asked for."""
    assert max(len(line) for line in render_bandwidth(example_bandwidth(), width).splitlines()) <= width


def test_best_leg_feeds_images() -> None:
    """For images, the fastest leg is worded as images/s, and a leg that the probe bounds as `at least`."""
    assert "Feeds at least 2640 images/s" in render_bandwidth(example_bandwidth())


def test_other_files_feed_no_images() -> None:
    """Files that are not images are never counted as images."""
    assert "images/s" not in render_bandwidth(replace(example_bandwidth(), images=False))


def test_unproved_leg_claims_no_share() -> None:
    """Where reads are not counted the cache column shows `unproved` without a figure, and says why."""
    text = render_bandwidth(example_bandwidth())
    (line,) = [line for line in text.splitlines() if line.strip().startswith("16 ")]
    assert "unproved" in line
    assert "%" not in line
    assert "nothing counts what storage delivers" in text


def test_warm_ladder_is_not_called_the_device() -> None:
    """Figures from the page cache are named as memory."""
    report = example_bandwidth()
    legs = tuple(replace(leg, cache="warm", storage_bytes=0) for leg in report.legs)
    assert "not from the device" in " ".join(render_bandwidth(replace(report, legs=legs)).split())


def test_empty_ladder_renders() -> None:
    """A probe stopped before its first leg is shown as that."""
    assert "No step of the ladder was measured." in render_bandwidth(replace(example_bandwidth(), legs=()))


def test_json_round_trip() -> None:
    """The JSON decodes to the same report, with null where nothing was counted."""
    text = bandwidth_json(example_bandwidth())
    assert msgspec.json.decode(text, type=BandwidthReport) == example_bandwidth()
    assert json.loads(text)["legs"][4]["storage_bytes"] is None
    assert text.endswith("}\n")

"""Opens/s and stats/s on the page of a bandwidth report: never a figure without its label."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.records.bandwidth import BandwidthReport, MetadataPhase
from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import Remark
from loaderprobe.render.bandwidth import TITLE, opens_sentence
from loaderprobe.render.wording import MISSING
from loaderprobe.testing import example_location
from tests.examples.bandwidth import example_bandwidth, example_operations
from tests.pages import bandwidth_html, bandwidth_text

OPENS = example_operations({1: 310.0, 4: 1180.0, 16: 3120.0})
STATS = example_operations({1: 330.0, 4: 1250.0, 16: 3300.0}, "stat")


def report(*phases: MetadataPhase, **changes: Any) -> BandwidthReport:
    return replace(example_bandwidth(), **({"metadata": phases or (*OPENS, *STATS)} | changes))


def flat(text: str) -> str:
    return " ".join(text.split())


def rows(text: str) -> list[list[str]]:
    """The cells of the table under its title, head first."""
    lines = text.split(TITLE)[1].split("\nmetadata ")[0].splitlines()[1:]
    return [line.split() for line in lines]


def test_a_row_has_opens_and_stats() -> None:
    """For each number of readers both rates, half their intervals, the times of one in ms, and one label."""
    head, *lines = rows(bandwidth_text(report(), 100))
    assert (head[0], head[1], head[-1]) == ("readers", "opens/s", "metadata")
    assert [line[0] for line in lines] == ["1", "4", "16"]
    assert lines[2] == ["16", "3,120", "±94", "4.6", "16", "3,300", "±99", "4.4", "15", "cold"]


def test_a_wide_interval_has_two_figures() -> None:
    """371,000 is no figure to the last opening; neither is its interval."""
    lines = rows(bandwidth_text(report(*example_operations({1: 371_234.0}))))
    assert lines[1][1:3] == ["371,000", "±11,000"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits(width: int) -> None:
    """What does not fit beside each other stands below, and no figure is cut."""
    text = bandwidth_text(report(*example_operations({1: 1e6, 64: 1.23e6}, at_least=True), *STATS), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    assert {"opens/s", "stats/s", "metadata", ">=1,000,000", "4.4"} <= set(text.split())


def test_different_labels_in_a_row_are_both_shown() -> None:
    """Cold opens beside warm stats are not both called cold; what one of them has not, is a dash."""
    lines = rows(bandwidth_text(report(*OPENS, *example_operations({4: 9e4}, "stat", metadata="warm"))))
    assert lines[2][-3:] == ["cold", "/", "warm"]
    assert MISSING in lines[1] and lines[1][-1] == "cold"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Opens: 3,120 ±94 opens/s with 16 readers, cold metadata."),
        (
            {"metadata": "warm", "drops": 0},
            "3,120 ±94 opens/s with 16 readers, warm metadata (dentries were not dropped), which says nothing of "
            "storage; --drop-caches (root) measures cold opens/s.",
        ),
        ({"metadata": "warm"}, "(memory answered although they were dropped), which says nothing of storage."),
        ({"metadata": "unproved", "storage_bytes": None}, "nothing here counts whether storage answered (unproved)."),
        ({"at_least": True}, "Opens: at least 3,120 ±94 opens/s"),
        (
            {"at_least": True, "short": True},
            "Opens: 3,120 ±94 opens/s with 16 readers, cold metadata, measured for under a second at a time: the rate "
            "that lasts may be lower.",
        ),
    ],
)
def test_the_sentence_has_the_label(changes: dict[str, Any], words: str) -> None:
    """What it is worth stands in the sentence with the figure, in the terminal and in a notebook."""
    found = report(*example_operations({1: 310.0, 16: 3120.0}, **changes))
    assert words in flat(bandwidth_text(found))
    assert words.removeprefix("Opens: ") in bandwidth_html(found)


def test_cold_opens_come_before_faster_warm_ones() -> None:
    """A phase in which memory answered is no record."""
    warm = example_operations({64: 1e5}, metadata="warm")
    assert "3,120" in opens_sentence(report(*OPENS, *warm))


def test_a_file_system_in_memory_is_not_told_to_drop_caches() -> None:
    """It has no cold names."""
    place = replace(example_location("/dev/shm"), kind="memory", devices=())
    said = opens_sentence(report(*example_operations({1: 3e5}, metadata="warm", drops=0), location=place))
    assert said.endswith("the file system is in memory.")


def test_a_server_may_have_been_asked_for_warm_names_too() -> None:
    """Opens on FUSE and NFS reach the server every time; it is not said that they say nothing of it."""
    place = replace(example_location("/data"), kind="fuse", devices=())
    said = opens_sentence(report(*example_operations({1: 92.0}, metadata="warm", drops=0), location=place))
    assert "of which the kernel may have answered a part; --drop-caches" in said and "nothing of storage" not in said


def test_what_was_not_measured_has_its_reason() -> None:
    """A reason, or nothing at all where they were never asked for; no empty table."""
    missing = (Missing(name="metadata", reason=Remark(code="opens_of_blocks")),)
    text = bandwidth_text(replace(example_bandwidth(), missing=missing))
    assert "Opens: not measured, a loader seldom opens" in flat(text) and TITLE not in text
    assert "Opens" not in bandwidth_text(example_bandwidth())


def test_the_legend_explains_the_labels_in_use() -> None:
    """And no others."""
    text = flat(bandwidth_text(report()))
    assert "cold: names and inodes were dropped before and came from storage or its server, by count" in text
    assert "warm: names" not in text and "unproved: names" not in text


@pytest.mark.parametrize("kind", ["fuse", "network"])
def test_caches_of_attributes_are_admitted(kind: str) -> None:
    """Where a mount decides how long attributes are kept, that is said, unless calls were counted; not of a disk."""
    said = "the kernel may keep names and attributes for a time that the mount sets"
    place = replace(example_location("/data"), kind=kind, devices=())  # type: ignore[arg-type]  # one of the kinds
    unproved = [replace(phase, metadata="unproved", storage_bytes=None) for phase in OPENS]
    assert said in flat(bandwidth_text(report(*unproved, location=place)))
    assert said not in flat(bandwidth_text(report(location=place)))
    assert said not in flat(bandwidth_text(report(*unproved)))


def test_the_evidence_of_cold_is_shown() -> None:
    """Bytes an operation of a disk, calls an operation of NFS; warm ones have none."""
    assert "an operation read 4100 B of names and inodes" in flat(bandwidth_text(report()))
    calls = [replace(phase, storage_bytes=None, server_calls=2 * phase.total_ops) for phase in OPENS]
    assert "an operation took 2.00 calls to the server" in flat(bandwidth_text(report(*calls)))
    assert "an operation" not in flat(bandwidth_text(report(*example_operations({1: 3e5}, metadata="warm"))))

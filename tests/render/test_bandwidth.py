from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest

import loaderprobe
from loaderprobe.analyze.bandwidth import judge_bandwidth
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport, DeviceKind
from loaderprobe.records.remark import Remark
from loaderprobe.render.plan_words import answer as plan_answer
from loaderprobe.testing import example_location
from tests.examples.bandwidth import example_bandwidth, example_feed, example_phase
from tests.pages import bandwidth_text
from tests.said import quoted, said

SNOW = quoted("it snowed")
ON_NFS = replace(example_location("/data"), notes=(Remark(code="nfs"),))
TOO_FEW = Remark(code="too_few_files", facts={"files": 40, "readers": 64})


def flat(text: str) -> str:
    return " ".join(text.split())


def view(report: BandwidthReport) -> str:
    return flat(bandwidth_text(report))


def one_phase(report: BandwidthReport | None = None, **changes: Any) -> BandwidthReport:
    return replace(report or example_bandwidth(), phases=(example_phase(4, 204e6, **changes),), missing=())


def row(text: str, readers: int) -> str:
    """The line of the table that begins with this number of readers."""
    return next(line for line in text.splitlines() if re.match(rf" +{readers} +(>=)?\d", line))


def answer(report: BandwidthReport) -> str:
    """The paragraphs after the title."""
    return flat(bandwidth_text(report).split("\n\n")[1])


def on(report: BandwidthReport, **changes: Any) -> BandwidthReport:
    return replace(report, location=replace(report.location, **changes))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_page_fits_and_columns_stand_below_each_other(width: int) -> None:
    """No line is longer than the width that was asked for, no figure is cut, and the intervals are in one column."""
    text = bandwidth_text(example_bandwidth(), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    assert len({row(text, readers).index("±") for readers in (1, 2, 4, 8, 16, 32)}) == 1


def test_the_widest_figures_fit_60_columns() -> None:
    """Rates from kB/s to GB/s in one table, all marked, still fit: first the gaps and then the shares give way."""
    phases = tuple(
        example_phase(
            1 << step, rate, at_least=True, settled=False, bw_high=1.4 * rate, cache="mixed", cold_fraction=0.5
        )
        for step, rate in enumerate((0.0512e6, 61.3e6, 12_345e6))
    )
    text = bandwidth_text(replace(example_bandwidth(), phases=phases), 60)
    assert max(len(line) for line in text.splitlines()) <= 60
    assert ">=12300" in text
    assert "…" not in text


def test_plain_unless_color() -> None:
    """Escape sequences appear with `color` and only then, none from a path's name; the words are the same."""
    report = replace(example_bandwidth(), path="/data/\x1b[2J")
    plain, colored = (bandwidth_text(report, 80, color) for color in (False, True))
    assert "\x1b" not in plain
    assert "\x1b[" in colored
    assert flat(re.sub(r"\x1b\[[0-9;]*m", "", colored)) == flat(plain)


def test_head_and_foot() -> None:
    """The page names the path, what it lives on and the files, and at its end the tool, the date and the machine."""
    text = view(example_bandwidth())
    assert text.startswith("Storage under /data/imagenet-like/500x375 ")
    assert "ext4 (block) mounted on /data from /dev/vdb1, device vdb" in text
    assert "4094 images, 114 kB on average, read whole in random order" in text
    assert text.endswith("loaderprobe 0.1.0, 2026-11-21 07:00 UTC, Linux 6.8.0, 16 cores")
    assert "200 of 4094 images" in view(replace(example_bandwidth(), files_used=200))
    scratch = replace(one_phase(block_bytes=131072), scratch=True, images=False)
    assert "A scratch file written for this test, read in blocks of 128 KiB in random order" in view(scratch)


def test_answer_leads() -> None:
    """What it delivers, its interval, and then what limits it and its kind, stand above the table."""
    kind = DeviceKind(kind="token_bucket", code="token_bucket", evidence=())
    report = replace(example_bandwidth(), kind=kind)
    before = flat(bandwidth_text(report).split("\n  readers ")[0])
    delivers = "Delivers at least 301 ±9 MB/s and 2640 images/s of this size with 32 readers."
    assert before.index(delivers) < before.index("Limit:")
    assert said(report.limit) in before
    assert said(report.kind) in before


def test_a_kind_that_is_none_is_a_note() -> None:
    """That a device fits no model is evidence for whoever asks, and no headline."""
    report = example_bandwidth()
    before, after = flat(bandwidth_text(report)).split(" Notes ")
    assert said(report.kind) in after and said(report.kind) not in before and "Device:" not in before


def test_an_unsettled_headline_says_so() -> None:
    """With its interval and the cure; a settled one has the interval only."""
    said = answer(one_phase(settled=False, bw_low=154e6, bw_high=254e6))
    assert "204 ±50 MB/s" in said and "had not settled: longer phases (--seconds)" in said
    assert "settled" not in answer(one_phase())
    assert "±" not in answer(one_phase(bw_low=204e6, bw_high=204e6, settled=False))


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"cache": "warm", "cold_fraction": 0.0}, "From memory, not from the device: 204 ±6 MB/s and 1790 images/s of"),
        (
            {"cache": "mixed", "cold_fraction": 0.62},
            "Partly from memory (62 % from storage): 204 ±6 MB/s and 1790",
        ),
    ],
)
def test_memory_is_not_passed_off_as_the_device(changes: dict[str, Any], start: str) -> None:
    """Where the page cache had a part the answer says so first of all, and no accelerator is said to be fed."""
    assert answer(one_phase(**changes)).startswith(start)
    assert "MLPerf" not in answer(one_phase(**changes))


def test_unproved_is_admitted() -> None:
    """Where reads are not counted no share is shown, and the answer says that cached files cannot be ruled out."""
    report = one_phase(cache="unproved", cold_fraction=None)
    assert "%" not in row(bandwidth_text(report), 4)
    assert "cached files cannot be ruled out" in answer(report)
    assert "cached files cannot be ruled out" not in answer(one_phase())


def test_accelerators_are_counted() -> None:
    """The answer counts those of MLPerf at a utilization and a share in use; the others are in the notes."""
    more = example_feed("v100-amp", 1200.0, 2.2)
    report = replace(example_bandwidth(), feeds=(*example_bandwidth().feeds, more))
    assert (
        "With 80 % of a limit in use it feeds 2.61 MLPerf A100s or 1.34 MLPerf H100s at 90 % of their rate "
        "(920 and 1786 images/s, ResNet-50), limited by bandwidth."
    ) in answer(report)
    assert "2.20 x V100 AMP (1200 images/s)" in view(report)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": 0.374}, "feeds 0.374 MLPerf A100s"),
        ({"count": 2873.0}, "feeds 2,870 MLPerf A100s"),
        ({"at_least": True}, "feeds at least 2.87 MLPerf A100s"),
        ({"first_limit": "opens"}, "limited by opens/s."),
        ({"use": 0.7, "utilization": 0.95}, "With 70 % of a limit in use it feeds 2.87 MLPerf A100s at 95 % of their"),
    ],
)
def test_feeds_are_in_the_words_of_a_plan(changes: dict[str, Any], words: str) -> None:
    """The count, its bound and its end are written as a plan writes them."""
    feed = replace(example_feed("mlperf-a100", 919.5, 2.87), **changes)
    assert words in answer(replace(example_bandwidth(), feeds=(feed,)))


def test_plan_and_bandwidth_use_the_same_words() -> None:
    """Of one result: the share in use, the utilization, the count and what gives out."""
    report = replace(example_bandwidth(), phases=(example_phase(1, 60e6), example_phase(8, 59e6)), missing=())
    measured = BandwidthMeasurement(**{each.name: getattr(report, each.name) for each in fields(BandwidthMeasurement)})
    said = answer(judge_bandwidth(measured, {"mlperf-h100": 400 / 0.224}))
    planned = " ".join(plan_answer(loaderprobe.plan(report, kind="mlperf-h100")))
    for words in ("ith 80 % of a limit in use", "at 90 % of their rate", "limited by bandwidth.", "feeds 0.262"):
        assert words in said and words in planned


def test_files_that_are_no_images_are_never_images() -> None:
    """Without images the answer is a rate of bytes, and of files or blocks; the word does not appear."""
    report = replace(example_bandwidth(), images=False, feeds=(), path="/data/shards")
    assert answer(report).startswith("Delivers at least 301 ±9 MB/s and 2640 files/s of this size with 32 readers.")
    assert "image" not in bandwidth_text(report)
    blocks = one_phase(report, block_bytes=1 << 20)
    assert "Delivers 204 ±6 MB/s and 1790 blocks/s of 1 MiB with 4 readers." in answer(blocks)
    assert "files/s" not in view(blocks)


def test_file_system_in_memory_has_no_device() -> None:
    """On tmpfs, where reads are not counted, nothing is said of a device either."""
    report = on(one_phase(cache="unproved", cold_fraction=None), kind="memory", filesystem="tmpfs", devices=())
    text = view(report)
    assert "From memory, not from the device" in text
    assert not any(words in text for words in (said(report.limit), said(report.kind), "Burst"))


def test_empty_ladder_renders() -> None:
    """A probe stopped before its first phase is shown as that, once."""
    text = bandwidth_text(replace(example_bandwidth(), phases=(), missing=(), feeds=()))
    assert text.count("No step of the ladder was measured.") == 1
    assert "MB/s" not in text


@pytest.mark.parametrize(
    ("phases", "words"),
    [(3, "the ladder is not complete"), (7, "not all phases were measured")],
    ids=["ladder", "device"],
)
def test_interrupted_is_said_above_the_answer(phases: int, words: str) -> None:
    """An interrupted probe says how far it came before any figure; a whole one does not use the word."""
    report = example_bandwidth()
    text = bandwidth_text(replace(report, interrupted=True, phases=report.phases[:phases], missing=()))
    assert f"Interrupted: {words}." in text.split("\n\n")[1]
    assert "nterrupted" not in bandwidth_text(report)

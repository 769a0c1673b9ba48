from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.records.measurement import Missing
from loaderprobe.render.wording import MISSING
from tests.examples.bandwidth import example_bandwidth, example_latency, example_phase
from tests.pages import bandwidth_text
from tests.render.test_bandwidth import ON_NFS, SNOW, TOO_FEW, flat, on, one_phase, row, view
from tests.said import quoted


def test_row_holds_the_figures_of_its_phase() -> None:
    """Rate with half its interval, pieces/s, percentiles in ms, and the cache with the share from storage."""
    cells = row(bandwidth_text(one_phase(file_ns=example_latency(2e-3), cold_fraction=0.97)), 4).split()
    assert cells == ["4", "204", "±6", "1790", "1.80", "6.20", "cold", "97", "%"]


@pytest.mark.parametrize(
    ("readers", "cells", "mark", "meaning"),
    [
        (32, [">=301", ">=2640"], ">=", ">=: at least, as the probe's own CPU use may be the limit"),
        (8, ["±46*"], "*", "*: still wider than asked"),
        (16, ["unproved"], "unproved", "unproved: not counted, so cached files cannot be ruled out"),
    ],
)
def test_marks_are_explained_where_they_stand(readers: int, cells: list[str], mark: str, meaning: str) -> None:
    """A figure that is not what it seems carries a mark; the mark is explained, and only where it is used."""
    text = bandwidth_text(example_bandwidth())
    assert set(cells) <= set(row(text, readers).split())
    assert mark not in row(text, 4)
    assert meaning in flat(text)
    assert mark not in bandwidth_text(one_phase())


def test_single_reading_has_no_interval() -> None:
    """A phase of one slice knows no spread: there is a dash, never ±0."""
    text = bandwidth_text(one_phase(bw_low=204e6, bw_high=204e6, settled=False))
    assert "±0" not in text
    assert f"{MISSING}: too short for an interval" in flat(text)


def test_other_phases_stand_apart() -> None:
    """Below the ladder each other phase is named in words; one that was not made has its reason there."""
    text = bandwidth_text(example_bandwidth())
    assert text.index(row(text, 32)) < text.index("Past the page cache (O_DIRECT)") < text.index("322")
    assert "Sequential: not measured, there is no file of 64 MB or more to read sequentially" in flat(text)


def test_sequential_blocks_are_not_images() -> None:
    """The large reads of a folder of images are counted as blocks, under a head of their own."""
    report = example_bandwidth()
    report = replace(report, phases=(*report.phases, example_phase(16, 340e6, name="sequential", block_bytes=1 << 20)))
    head = bandwidth_text(report).split("Sequential, 1 MiB blocks\n")[1].splitlines()[0]
    assert "blocks/s" in head
    assert "images/s" not in head


def test_paced_phase_is_no_rate() -> None:
    """The phase with pauses is not a row; what it was compared with is a note."""
    text = bandwidth_text(example_bandwidth())
    assert "20.1" not in text
    assert "rate of the most readers over that of one 4.91 (threshold 1.25)" in flat(text)


def test_read_calls_stand_in_for_files() -> None:
    """Where the engine reports nothing on whole files, the percentiles are of read calls and called so."""
    text = bandwidth_text(one_phase(file_ns=None, clat_ns=example_latency(7.7e-3)))
    assert " 6.93 " in row(text, 4)
    assert "p50, p99: time of one read call" in flat(text)


def test_each_note_stands_once_with_its_phases() -> None:
    """A note that several phases share is given once, names them, and gives the range of their figures."""
    phases = tuple(
        example_phase(readers, 1e8, notes=(SNOW,) * (readers < 4), other_bytes_per_s=readers * 10e6)
        for readers in (1, 2, 4)
    )
    text = view(replace(example_bandwidth(), phases=phases))
    assert text.count("it snowed") == 1
    assert "1 and 2 readers: it snowed" in text
    assert "1 to 4 readers: other processes read 10.0 to 40.0 MB/s" in text


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"unread": {"vanished": 3}}, "3 images could not be read to the end: vanished"),
        ({"other_bytes_per_s": 12.5e6}, "other processes read 12.5 MB/s from the same device meanwhile"),
        ({"last_third_bw_bytes": 120e6}, "fell from 204 to 120 MB/s within the phase: burst credit, or a throttle"),
        ({"amplification": 1.32}, "1.32 times as many bytes were read from storage as delivered"),
        ({"cache": "unproved", "cold_fraction": None, "resident_before": 0.4}, "the page cache held 40 % of the files"),
        ({"engine": "processes"}, "read by several processes, which got more than the threads of one"),
    ],
)
def test_what_happened_to_a_phase_is_shown(changes: dict[str, Any], note: str) -> None:
    """What makes a figure doubtful is a note that names its phase; trifles are none."""
    trifles: dict[str, Any] = {"last_third_bw_bytes": 170e6, "other_bytes_per_s": 5e6, "amplification": 1.05}
    assert f"4 readers: {note}" in view(one_phase(**changes))
    assert "4 readers:" not in view(one_phase(**trifles))


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"notes": (quoted("one file, in blocks"),)}, "Files: one file, in blocks"),
        (
            {"location": ON_NFS},
            "Storage: NFS counts reads for the whole mount",
        ),
        ({"fio": "fio-3.33"}, "Reader: fio-3.33 did the reading"),
        ({"drop_caches": True}, "Caches: those of the whole machine were dropped"),
        ({"missing": (Missing(name="files", reason=TOO_FEW),)}, "More readers: not measured, 40 files"),
    ],
)
def test_how_it_was_measured_is_shown(changes: dict[str, Any], note: str) -> None:
    """Whatever was out of the ordinary for all phases is a note, and is not there otherwise."""
    assert note in view(replace(example_bandwidth(), **changes))
    assert note not in view(example_bandwidth())


def test_burst_credit_is_out_of_sight() -> None:
    """Of devices and servers it is said that seconds cannot see credit of minutes; not of others, nor of long ones."""
    said = "phases of seconds cannot tell"
    assert said in view(one_phase())
    assert said in view(on(one_phase(), kind="network", devices=()))
    assert said not in view(on(one_phase(), kind="fuse", devices=()))
    assert said not in view(one_phase(runtime=3.6e6))

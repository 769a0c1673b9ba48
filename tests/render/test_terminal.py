from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Reason
from loaderprobe.render.first_page import joint_label, sentences
from loaderprobe.render.groups import groups
from loaderprobe.render.json import summary_json
from loaderprobe.render.wording import MISSING, interval
from tests.examples.reports import example_report, example_row, with_changes
from tests.pages import html_report, markdown_report, terminal_report
from tests.said import quoted


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_runs_over(width: int) -> None:
    """No line is longer than the width that was asked for."""
    text = terminal_report(example_report(), width=width)
    assert max(len(line) for line in text.splitlines()) <= width


def test_long_names_do_not_run_over() -> None:
    """A name longer than the terminal is folded, not cut and not let through."""
    row = example_row(resolution="r" * 130, reason=None)
    text = terminal_report(example_report([row]))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.count("r") >= 260


def test_no_colour_unless_asked() -> None:
    """Escape sequences appear with `color` and only then."""
    assert "\x1b[" not in terminal_report(example_report())
    assert "\x1b[" in terminal_report(example_report(), color=True)


def test_escape_sequences_in_names_are_defused() -> None:
    """A path cannot send commands to the terminal."""
    row = example_row(status="failed", reason="cannot read \x1b[2Ja\udcff.jpg")
    text = terminal_report(example_report([row]))
    assert "\x1b" not in text
    assert "\\x1b[2Ja\\udcff.jpg" in text
    text.encode()


def test_surroundings_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS, TERM and NO_COLOR do not change the text."""
    before = terminal_report(example_report(), color=True)
    for name, value in (("COLUMNS", "40"), ("TERM", "dumb"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    assert terminal_report(example_report(), color=True) == before


def test_interrupted_run_says_so() -> None:
    """A report on an unfinished sweep names how many configurations are to come."""
    report = example_report()
    run = replace(report.summary.run, complete=False, pending=3)
    text = terminal_report(replace(report, summary=replace(report.summary, run=run)))
    assert "Not complete: 3 configurations not measured yet; loaderprobe sweep --resume example continues." in " ".join(
        text.split()
    )


def test_notes_of_measurements_are_shown_once() -> None:
    """A note that every measurement left is printed once, for all."""
    report = example_report()
    details = tuple(replace(detail, notes=(quoted("the CPU drifted by 8 %"),)) for detail in report.details)
    text = flat(terminal_report(replace(report, details=details)))
    assert text.count("the CPU drifted") == 1
    assert "all: the CPU drifted by 8 %" in text


def test_rows_that_share_a_sentence_share_a_line() -> None:
    """The same verdict and reason are printed once, with all their configurations and the range of the figures."""
    rows = [example_row(workers=workers) for workers in (1, 2, 4)]
    assert rows[0].bound
    facts = {**rows[0].bound.reason.facts, "utilization": 0.4, "speedup": 2.0}
    reason = Reason(code="largest_speedup", facts=facts)
    rows[1] = with_changes(rows[1], bound=replace(rows[0].bound, reason=reason))
    ((labels, words),) = sentences(rows, rows)
    assert labels == "1024x768, 1, 2 and 4 workers"
    assert "training reaches 3.5 to 40 %" in words and "2.0 to 2.8 times as fast" in words


@pytest.mark.parametrize(
    ("resolutions", "label"),
    [
        (("256x256", "500x375", "1024x768"), "256x256 to 1024x768, 2 workers"),
        (("256x256", "500x375"), "256x256 and 500x375, 2 workers"),
        (("256x256", "1024x768"), "256x256 and 1024x768, 2 workers"),
    ],
)
def test_data_sets_that_follow_each_other_are_named_as_a_range(resolutions: tuple[str, ...], label: str) -> None:
    """Three or more in a row are a range; two, or two with another between them, are listed."""
    every = [example_row(resolution=name) for name in ("256x256", "500x375", "1024x768")]
    assert joint_label([row for row in every if row.config.resolution in resolutions], every) == label


def test_a_sweep_of_twelve_configurations_fits_about_one_screen() -> None:
    """Answer, map, advice, needs and legend of 3 data sets and 4 worker counts take at most 44 lines."""
    found = example_report().summary.configurations
    kinds = {row.config.resolution: row for row in found if row.emulated and row.bound}
    rows = [with_changes(row, workers=count) for row in kinds.values() for count in (0, 1, 2, 4)]
    assert len(terminal_report(example_report(rows)).splitlines()) <= 44


def test_interval_keeps_to_its_decimals() -> None:
    """The half interval has the decimal places of the value, unless that would make it 0."""
    row = example_row()
    assert row.images_per_s is not None
    assert interval(replace(row.images_per_s, value=63.36, low=61.4, high=65.3)) == "63.4 ±1.9"
    assert interval(replace(row.images_per_s, value=337.0, low=336.8, high=337.2)) == "337 ±0.2"
    assert interval(None) == MISSING


def test_groups_keep_order_and_lose_nothing() -> None:
    """Every row is in exactly one group, in its own order; what a CPU trained stands last."""
    rows = example_report().summary.configurations
    found = groups(example_report())
    assert [row for group in found for row in group.rows] == sorted(rows, key=lambda row: not row.emulated)
    assert [group.cpu for group in found] == [False, True]


def test_what_other_processes_took_is_one_line_of_every_form() -> None:
    """Not one for each configuration; the storage is named with its read-ahead."""
    report = example_report()
    facts: dict[str, float | str] = {"share": 0.38, "cores": 2.0, "segments": 4, "of": 12}
    run = replace(report.summary.run, notes=(Remark(code="others_took", facts=facts),))
    machine = report.summary.environment
    machine = replace(machine, storage=(replace(machine.storage[0], read_ahead_bytes=2560 * 1024),))
    report = replace(report, summary=replace(report.summary, run=run, environment=machine))
    said = "ther processes took 38% of 2 cores during 4 of 12 segments"
    text = terminal_report(report, width=80)
    assert max(map(len, text.splitlines())) <= 80
    for shown in (" ".join(text.split()), markdown_report(report), html_report(report), summary_json(report)):
        assert shown.count(said) == 1
    assert "device vdb, read-ahead 2560 KiB" in markdown_report(report)
    assert '"read_ahead_bytes": 2621440' in summary_json(report)

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from loaderprobe.records.verdict import Bound
from loaderprobe.render.overview import counts, groups, most_important, sentences
from loaderprobe.render.terminal import TerminalReport
from loaderprobe.render.wording import MISSING, bound_words, interval
from tests.examples.reports import example_report, example_row


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_runs_over(width: int) -> None:
    """No line is longer than the width that was asked for."""
    text = TerminalReport().render(example_report(), width=width)
    assert max(len(line) for line in text.splitlines()) <= width


def test_long_names_do_not_run_over() -> None:
    """A name longer than the terminal is folded, not cut and not let through."""
    row = example_row(resolution="r" * 130, reason=None)
    text = TerminalReport().render(example_report([row]))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.count("r") >= 260


def test_every_verdict_is_named_and_explained() -> None:
    """Each configuration's words and its sentence are both there."""
    report = example_report()
    text = TerminalReport().render(report)
    for row in report.summary.configurations:
        assert bound_words(row) in flat(text)
        assert (row.bound.sentence if row.bound else row.reason or "") in flat(text)


def test_verdicts_fit_on_a_line_at_80_columns() -> None:
    """The common verdicts are not broken over two lines."""
    lines = TerminalReport().render(example_report()).splitlines()
    assert any("input: preprocessing" in line for line in lines)
    assert any("storage or compute" in line for line in lines)


def test_missing_figure_is_a_dash_with_its_reason() -> None:
    """A row without disk figures shows a dash there, never 0, and the reason stands once below."""
    text = TerminalReport().render(example_report())
    (row,) = [line for line in text.splitlines() if line.strip().startswith("500x375") and "40.2" in line]
    assert MISSING in row
    assert " 0 " not in row
    assert flat(text).count("the device also served another process") == 1


def test_emulated_is_marked_and_its_rate_given() -> None:
    """The heading of an emulated group says so, and says that the rate was given."""
    text = flat(TerminalReport().render(example_report()))
    assert "Emulated accelerator: mlperf-h100, cold files; 1786 images/s given, not measured" in text
    assert "An emulated accelerator was not there" in text


def test_measured_device_is_never_called_emulated() -> None:
    """A report without emulated rows does not use the word."""
    rows = [row for row in example_report().summary.configurations if not row.emulated]
    assert "emulated" not in TerminalReport().render(example_report(rows)).lower()


def test_estimated_gain_is_marked() -> None:
    """A gain that was not performed carries `est.`, and `est.` is explained."""
    text = flat(TerminalReport().render(example_report()))
    assert "storage x2.29 est." in text or re.search(r"storage x2\.29 .*est\.", text)
    assert "est.: estimated" in text


def test_no_colour_unless_asked() -> None:
    """Escape sequences appear with `color` and only then."""
    assert "\x1b[" not in TerminalReport().render(example_report())
    assert "\x1b[" in TerminalReport().render(example_report(), color=True)


def test_escape_sequences_in_names_are_defused() -> None:
    """A path cannot send commands to the terminal."""
    row = example_row(status="failed", reason="cannot read \x1b[2Ja\udcff.jpg")
    text = TerminalReport().render(example_report([row]))
    assert "\x1b" not in text
    assert "\\x1b[2Ja\\udcff.jpg" in text
    text.encode()


def test_surroundings_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS, TERM and NO_COLOR do not change the text."""
    before = TerminalReport().render(example_report(), color=True)
    for name, value in (("COLUMNS", "40"), ("TERM", "dumb"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    assert TerminalReport().render(example_report(), color=True) == before


def test_interrupted_run_says_so() -> None:
    """A report on an unfinished sweep names how many configurations are to come."""
    report = example_report()
    run = replace(report.summary.run, complete=False, pending=3)
    text = TerminalReport().render(replace(report, summary=replace(report.summary, run=run)))
    assert "Not complete: 3 configurations still to be measured, with --resume." in text


def test_skipped_rows_share_their_reason() -> None:
    """Configurations that were skipped for one reason take one line, not one each."""
    rows = [example_row(workers=workers, status="skipped", reason="no time left") for workers in (1, 2, 4)]
    text = flat(TerminalReport().render(example_report(rows)))
    assert text.count("no time left") == 1
    assert "1024x768, 1, 2 and 4 workers, emulated accelerator: mlperf-h100, cold: no time left" in text


def test_notes_of_measurements_are_shown_once() -> None:
    """A note that every measurement left is printed once, for all."""
    report = example_report()
    details = tuple(replace(detail, notes=("the CPU drifted by 8 %",)) for detail in report.details)
    text = flat(TerminalReport().render(replace(report, details=details)))
    assert text.count("the CPU drifted") == 1
    assert "all: the CPU drifted by 8 %" in text


def test_empty_report_renders() -> None:
    """A run in which nothing was measured is shown as that."""
    assert "Nothing was measured." in TerminalReport().render(example_report([]))


def test_rows_that_share_a_sentence_share_a_line() -> None:
    """The same sentence is printed once, with all the configurations that it holds for."""
    rows = [example_row(workers=workers) for workers in (1, 2, 4)]
    ((labels, _),) = sentences(rows)
    assert labels == "1024x768, 1, 2 and 4 workers"


def test_what_varies_is_in_the_label() -> None:
    """Rows that differ in batch size only can be told apart."""
    rows = [example_row(batch_size=batch) for batch in (32, 64)]
    text = TerminalReport().render(example_report(rows))
    assert "batch 32" in text
    assert "batch 64" in text


def test_counts_add_up() -> None:
    """The headline counts every configuration once."""
    report = example_report()
    numbers = [int(number) for number in re.findall(r"\d+", counts(report))]
    measured, emulated, *rest = numbers
    assert measured == 12
    assert emulated == 6
    assert sum(rest) == len(report.summary.configurations)


def test_most_important_is_firm_input_with_most_to_gain() -> None:
    """An undecided row with a large gain does not lead; the firm input verdict with the largest gain does."""
    row = most_important(example_report())
    assert row is not None
    assert (row.config.resolution, row.config.loader.workers, row.emulated) == ("1024x768", 2, True)


def test_either_within_input_keeps_its_side() -> None:
    """Two input candidates leave the side firm, and both are named."""
    bound = Bound(side="input", cause="either", candidates=("storage", "preprocessing"), sentence="s", evidence=())
    assert bound_words(example_row(bound=bound)) == "input: storage or preprocessing"


def test_interval_keeps_to_its_decimals() -> None:
    """The half interval has the decimal places of the value, unless that would make it 0."""
    row = example_row()
    assert row.images_per_s is not None
    assert interval(replace(row.images_per_s, value=63.36, low=61.4, high=65.3)) == "63.4 ±1.9"
    assert interval(replace(row.images_per_s, value=337.0, low=336.8, high=337.2)) == "337 ±0.2"
    assert interval(None) == MISSING


def test_groups_keep_order_and_lose_nothing() -> None:
    """Every row is in exactly one group, in its own order."""
    report = example_report()
    assert tuple(row for group in groups(report) for row in group.rows) == report.summary.configurations


def test_a_given_number_needs_no_name() -> None:
    """An accelerator given as images/s is called emulated, and its rate is shown once."""
    (group,) = groups(example_report([example_row(compute="emulated:1500")]))
    assert group.device == "emulated accelerator"
    assert "given, not measured" in group.ceiling


def test_the_disk_is_held_against_its_ceiling() -> None:
    """Beside the disk's MB/s stands their share of what as many readers get, and what that means stands below."""
    text = TerminalReport().render(example_report([example_row(disk_ceiling_fraction=0.97)]))
    assert "97 %" in text and "of max: disk reads as a share of what as many readers get" in " ".join(text.split())


def test_gains_are_those_of_the_verdict() -> None:
    """A gain without what the verdict names is a bare factor; a gain without something else names it."""
    row = example_row()
    assert row.bound
    (line,) = [line for line in TerminalReport().render(example_report([row])).splitlines() if "input: storage" in line]
    assert line.count("storage") == 1 and " x" in line
    balanced = example_row(bound=replace(row.bound, side="balanced", cause="balanced"))
    assert "storage x" in " ".join(TerminalReport().render(example_report([balanced])).split())


def test_the_knee_and_advice_stand_under_the_table() -> None:
    """A line for the knee; before, after, range and what binds then for the advice; and what to type, on its own."""
    lines = TerminalReport().render(example_report()).splitlines()
    text = flat("\n".join(lines))
    assert "Knee of 1024x768: 2 workers (63.4 images/s); beyond it the cores bind." in text
    assert "keep the files in memory: 63.4 → 178 images/s (160 to 196), x2.81, measured; then preproc" in text
    assert "      find /data/imagenet-like -type f -exec cat {} + >/dev/null" in lines


def test_what_would_be_wasted_is_said_once() -> None:
    """Three data sets that share a sentence share a line."""
    text = flat(TerminalReport().render(example_report()))
    assert text.count("A faster accelerator is wasted until") == 1


def test_advice_is_for_the_fastest_row_of_each_data_set() -> None:
    """The serial row's advice is in the page, not here."""
    assert "Advice for 500x375, serial" not in TerminalReport().render(example_report())

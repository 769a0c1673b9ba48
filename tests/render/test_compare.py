"""The words and charts of a comparison."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.records.compare import (
    Compared,
    ComparedSide,
    CompareNote,
    ComparisonReport,
    Gate,
    Ratio,
    ShortVerdict,
    Subject,
)
from loaderprobe.records.environment import Origin
from loaderprobe.records.verdict import Interval
from loaderprobe.render.compare import (
    MOST_ROWS,
    change_words,
    compare_columns,
    compare_document,
    compare_exhibits,
    note_words,
    title,
)
from loaderprobe.render.html import document_page
from loaderprobe.render.terminal import document_text
from loaderprobe.testing import example_config, example_environment
from tests.render.test_html import EVIL, Page

STORAGE, COMPUTE = (ShortVerdict(side="input", cause="storage"), ShortVerdict(side="compute", cause="compute"))


def compared(ratio: float = 1.0, *, workers: int = 1, **changes: Any) -> Compared:
    """A configuration whose ratio is known to 2 %."""
    config = example_config(workers=workers, compute="emulated:1000")
    row = Compared(
        subject=Subject(kind="configuration", name=config.key, config=config),
        unit="images/s",
        before=Interval(value=200.0, low=196.0, high=204.0),
        after=Interval(value=200.0 * ratio, low=196.0 * ratio, high=204.0 * ratio),
        rounds=(3, 3),
        ratio=Ratio(value=ratio, low=0.98 * ratio, high=1.02 * ratio),
        p=0.01,
        visible=0.021,
        rounds_needed=None,
        word="slower" if ratio < 0.95 else "faster" if ratio > 1.05 else "same",
        reason="beyond_noise" if abs(ratio - 1) > 0.05 else "within_size",
        verdict_before=STORAGE,
        verdict_after=STORAGE,
    )
    return replace(row, **changes)


def report(*rows: Compared, **changes: Any) -> ComparisonReport:
    """Of these rows."""
    side = ComparedSide(
        paths=("runs/a",), created_utc=("2026-11-21T07:00:00",), command="loaderprobe sweep", environment=None,
        roots=("/data",),
    )  # fmt: skip
    made = ComparisonReport(
        origin=Origin(created_utc="2026-11-22T07:00:00", command="", environment=example_environment()),
        kind="sweep", matters=0.05, before=side, after=side, rows=rows, whole=None, only_before=(), only_after=(),
        differences=(), gates=(), notes=(),
    )  # fmt: skip
    return replace(made, **changes)


def text_of(found: ComparisonReport) -> str:
    return " ".join(document_text(compare_document(found)).split())


def test_changes_stand_before_what_did_not_change() -> None:
    """Verdicts, slower, faster, unclear; the same are a count."""
    noisy = compared(1.0, workers=8, word="unclear", reason="too_noisy", visible=0.3, rounds_needed=8)
    changed = compared(1.0, workers=4, verdict_after=COMPUTE)
    found = report(compared(), compared(0.8, workers=2), compared(1.3, workers=3), changed, noisy)
    text = text_of(found)
    order = [
        "1 verdict changed: ",
        "Slower in B: 1 of 5",
        "Faster in B: 1 of 5",
        "Unclear: 1 of 5",
        "The same within 5 %",
    ]
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "-20 % (-22 to -18)" in text and "+30 %" in text and "1 more are the same." in text
    assert "With --rounds 8, 1 of them would show a change of 5 %." in text
    assert title(found) == "B against A, 5 configurations: 1 slower, 1 faster, 2 same, 1 unclear"


def test_sides_that_were_measured_in_turn_are_said_to_be() -> None:
    """With the number of pairs; what is unclear then needs more rounds, not more runs."""
    noisy = compared(1.0, workers=2, word="unclear", reason="too_noisy", visible=0.3, rounds_needed=10, pairs=4)
    longer = example_config(workers=4, rounds=8, compute="emulated:1000")
    slower = compared(0.8, subject=Subject(kind="configuration", config=longer), pairs=6)
    text = text_of(report(slower, noisy))
    assert "500x375, 4 workers -20 %" in text, "rounds are no part of a name"
    assert "A and B were measured in turn: a change is that of 4 to 6 pairs of rounds, without drift." in text
    assert "With --rounds 10, 1 of them would show a change of 5 %." in text and "Three runs" not in text
    apart = text_of(report(compared(), replace(noisy, pairs=0)))
    assert "or both measured in turn (sweep --against A)." in apart and "pairs" not in apart
    few = text_of(report(compared(1.0, word="unclear", reason="too_noisy", rounds_needed=8), in_turn=True))
    assert "Fewer than 3 pairs of rounds are compared as two runs apart" in few and "--against A" not in few


def test_nothing_changed_is_an_answer() -> None:
    """With what would have been seen."""
    text = text_of(report(compared(), compared(workers=2)))
    said = "The same within 5 %: 2 of 2, where changes of 2.1 % and more would have been seen. No verdict changed."
    assert said in text


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (Ratio(value=0.88, low=0.82, high=0.95), "-12 % (-18 to -5)"),
        (Ratio(value=1.001, low=0.996, high=1.006), "+0.1 % (-0.4 to +0.6)"),
        (Ratio(value=31.0, low=28.0, high=34.0), "31x (28 to 34)"),
        (None, "\N{EN DASH}"),
    ],
)
def test_changes_have_signs_and_large_ones_are_factors(ratio: Ratio | None, words: str) -> None:
    assert change_words(ratio) == words


def test_a_gate_says_what_fails_it_and_what_it_could_not_see() -> None:
    """By the names of rows; a gate that holds beside noisy rows says so."""
    held = Gate(name="slower", passed=True, rows=(), blind=1)
    failed = Gate(name="unclear", passed=False, rows=(1,), missing=2)
    text = text_of(report(compared(), compared(0.8, workers=2), gates=(held, failed)))
    assert "--fail-if-slower 5%: held, but 1 of 2 rows were too noisy to show a loss of 5 %" in text
    assert "--fail-if-unclear: failed by 2 of A that B lacks or failed to measure; 500x375, 2 workers" in text


def test_every_note_has_words() -> None:
    """Of each side."""
    codes = ("other_reads", "few_rounds", "probe_limited")
    said = {note_words(report(compared()), CompareNote(code=code, side="B", rows=2)) for code in codes}  # type: ignore[arg-type]  # of a list
    assert len(said) == 3 and all(each.startswith("B: ") and "2 " in each for each in said)


def test_charts_draw_every_row_and_frame_what_changed() -> None:
    """The ratios with the whole, up to a limit; a map of each side."""
    rows = [compared(1.0 - 0.002 * number, workers=number) for number in range(MOST_ROWS + 9)]
    ratios, both = compare_exhibits(report(*rows[:8], compared(workers=9, verdict_after=COMPUTE)))["rows"]
    drawn = ratios.figures[0][1]
    assert drawn.count("<circle") == 9 and "as fast" in drawn
    assert [label for label, _ in both.figures] == [f"What limits in {side}, by data set and workers" for side in "AB"]
    cells = "".join(drawn for _, drawn in both.figures)
    assert cells.count('stroke-width="2"') == 2 and cells.count(": storage</title>") == 17
    assert re.search(r" C</text>", cells) and "framed" in both.text.lower()
    assert compare_exhibits(report(*rows))["rows"][0].figures[0][1].count("<circle") == MOST_ROWS


def test_names_from_outside_do_nothing_in_a_page() -> None:
    """A layer's path and class, a path of a run, a value that differs."""
    subject = Subject(kind="layer", name=EVIL, classes=(EVIL, "Other"))
    row = compared(2.5, subject=subject, unit="ms", verdict_before=None, verdict_after=None)
    found = report(row, kind="layers")
    html = document_page(compare_document(found), compare_exhibits(found), made_by="x")
    page = Page(html)
    assert not {"script", "img"} & set(page.tags) and EVIL in page.text


def test_the_table_has_every_row_and_the_whole() -> None:
    """Units beside the figures; a figure that does not exist is None."""
    whole = compared(0.9, subject=Subject(kind="all"), before=None, after=None, verdict_before=None)
    found = compare_columns(report(compared(), replace(compared(0.8, workers=2), ratio=None), whole=whole))
    assert found["kind"] == ["configuration", "configuration", "all"] and found["before"][2] is None
    assert found["ratio"] == [1.0, None, 0.9] and found["cause_before"] == ["storage", "storage", None]

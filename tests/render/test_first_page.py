"""The first page: how sure, what stands where, and which data set a plan takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.records.report import Report
from loaderprobe.render.document import Paragraph, cell_text
from loaderprobe.render.first_page import PLANNED, again_with, answers, first_screen, need_sections
from tests.examples.reports import example_report, example_row, with_changes


def _sure(report: Report) -> str:
    return next(text for text in answers(report) if text.startswith("How sure"))


def test_the_least_sure_is_named_by_what_sets_it_apart_on_its_device() -> None:
    """Not by the batch, which only a CPU beside it has otherwise."""
    rows = [example_row(workers=workers) for workers in (1, 2)]
    beside = example_row(compute="cpu", emulated=False, batch_size=4)
    said = _sure(example_report([*rows, beside]))
    assert "the least sure is 1024x768, " in said and "batch" not in said


@pytest.mark.parametrize(
    ("changes", "level"),
    [({}, "high"), ({"complete_rounds": 1}, "medium"), ({"how": "estimated"}, "medium"), ({"low": 1.02}, "low")],
)
def test_how_sure_is_one_word_by_a_rule(changes: dict[str, Any], level: str) -> None:
    """Every configuration, measured more than once, far beyond noise; less than that is less sure."""
    row = example_row(complete_rounds=changes.get("complete_rounds", 3))
    assert row.verdict and row.verdict.speedups.storage
    speedup = {name: value for name, value in changes.items() if name != "complete_rounds"}
    storage = replace(row.verdict.speedups.storage, **{"how": "measured", **speedup})
    report = example_report([with_changes(row, speedups=replace(row.verdict.speedups, storage=storage))])
    assert _sure(report).startswith(f"How sure: {level}. ")


@pytest.mark.parametrize(
    ("rounds", "said"),
    [(3, "measured in 3 rounds"), (1, "in 1 round: "), (1, "(one round, so its noise is not known)")],
)
def test_the_rounds_behind_it_are_said(rounds: int, said: str) -> None:
    """Noise of a single round is not known."""
    assert said in _sure(example_report([example_row(complete_rounds=rounds)]))


def _by_preprocessing(**changes: Any) -> Report:
    rows = [row for row in example_report().summary.configurations if row.bound and row.bound.cause == "preprocessing"]
    assert rows
    return example_report([example_row(bound=rows[0].bound, **changes)])


def test_decoding_stands_apart_where_it_was_timed() -> None:
    """Preprocessing is removed as a whole; a share of CPU time says which part of it to change."""
    assert _sure(_by_preprocessing(decoding_cpu_fraction=0.7)).endswith(
        "Preprocessing is 70 % decoding, by CPU time timed apart."
    )
    assert _sure(_by_preprocessing(decoding_cpu_fraction=None)).endswith("decoding and augmentation together.")


def _titles_and_texts(report: Report) -> list[str]:
    return [
        text
        for section in first_screen(report)
        for text in (section.title, *(part.text for part in section.parts if isinstance(part, Paragraph)))
    ]


def test_what_only_a_cpu_shows_comes_after_the_needs_of_accelerators() -> None:
    """And where nothing else trained, first."""
    shown = _titles_and_texts(example_report())
    (of_cpu,) = (place for place, text in enumerate(shown) if text.startswith("On this CPU"))
    assert of_cpu > next(place for place, text in enumerate(shown) if text.startswith("What 1, 8 and 64"))
    alone = _titles_and_texts(example_report([example_row(compute="cpu", emulated=False)]))
    assert next(text for text in alone if text).startswith("On this CPU")


def test_the_data_set_that_a_plan_takes_is_marked() -> None:
    """It stands first, as a phone shows little more; what the mark means is below."""
    (section,) = need_sections(example_report())
    table, note = section.parts
    assert [cell_text(line[0]).endswith(PLANNED) for line in table.lines] == [True, False, False]  # type: ignore[union-attr]  # a table
    assert "*: default of loaderprobe plan, nearest to ImageNet." in note.text  # type: ignore[union-attr]  # a paragraph


@pytest.mark.parametrize(
    ("command", "option", "typed"),
    [
        ("loaderprobe sweep --out runs/1 --seed 2", "--tensor uint8", "loaderprobe sweep --seed 2 --tensor uint8"),
        ("loaderprobe sweep 'my images'", "--tensor uint8", "loaderprobe sweep 'my images' --tensor uint8"),
        (
            "loaderprobe sweep --compute cpu --model=mlp --seed 2", "--compute emulated:100",
            "loaderprobe sweep --seed 2 --compute emulated:100",
        ),
        ("loaderprobe sweep --model mlp --seed 2", "--seed 3", "loaderprobe sweep --model mlp --seed 3"),
        ("python train's.py", "--tensor uint8", "--tensor uint8"),
        ("loaderprobe sweep", "find /data -type f", "find /data -type f"),
    ],
)  # fmt: skip
def test_a_change_to_try_is_typed_whole(command: str, option: str, typed: str) -> None:
    """For a run of its own, without what it replaces; a command that is no sweep is left alone."""
    assert again_with(command, option) == typed

"""Epochs: the sentence, the chart, the columns."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.records.remark import reported
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.studies import EpochFigures
from loaderprobe.render.panels import epoch_panels, epoch_sentences
from loaderprobe.render.sweep import report_columns
from tests.examples.reports import example_report, example_row
from tests.examples.studies import example_epochs
from tests.pages import csv_report, html_report, markdown_report, terminal_report


def row(**changes: Any) -> ConfigurationRow:
    return example_row(epochs=example_epochs(**changes))


def said(**changes: Any) -> str:
    ((name, sentence),) = epoch_sentences(example_report([row(**changes)]))
    assert name == "1024x768, 2 workers"
    return sentence


def test_the_sentence_says_what_later_epochs_run_at() -> None:
    """First and last epoch, the size of the set and the memory for it."""
    assert said() == (
        "epoch 1: 312 images/s, 98 % from storage; epoch 3: 690 images/s, 0 % from storage. The set of 580 MB fits: "
        "files may take 4.20 GB of memory. Later epochs run at 690 images/s."
    )
    assert "fits in part (50 %): files may take 290 MB" in said(fit="fits in part", memory_bytes=290_000_000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reason": reported("the worker was killed"), "epochs": ()}, "not measured: the worker was killed."),
        ({"memory_bytes": None, "fit": None}, "How much memory files may take is not known here."),
        ({"epochs": (EpochFigures(images_per_s=1.0, cold_fraction=0.5),)}, "from storage, so it was not cold. The"),
        ({"epochs": (EpochFigures(images_per_s=1.0, cold_fraction=None),)}, "epoch 1: 1.00 images/s. The"),
        ({"whole_set_bytes": 2e9}, "All images found, 2.00 GB, fit as well."),
        ({"whole_set_bytes": 42e9}, "Of all images found, 42.0 GB, at least 90 % comes from storage in every epoch"),
    ],
)
def test_what_is_missing_or_a_sample_is_said(changes: dict[str, Any], words: str) -> None:
    """Each has its own words."""
    assert words in said(**changes)


def test_every_format_shows_them() -> None:
    """And none of them a section for nothing."""
    found, without = example_report([row()]), example_report([example_row()])
    for renderer in (terminal_report, markdown_report):
        assert "Epochs" in renderer(found) and "Epochs" not in renderer(without)
    page = html_report(found)
    assert '<section id="epochs">' in page and '<section id="epochs">' not in html_report(without)
    ((figure,),) = [panel.charts for panel in epoch_panels(found)]
    assert figure.title == "1024x768, 2 workers: fits" and "312, 98 %" in figure.svg
    assert figure.lines == (("1", "312", "98 %"), ("2", "480", "40 %"), ("3", "690", "0 %"))
    columns = report_columns(found)
    assert columns["epoch_2_images_per_s"] == [480.0] and columns["epoch_3_cold_fraction"] == [0.0]
    assert columns["set_in_memory"] == ["fits"] and "epoch_1" not in csv_report(without)

from __future__ import annotations

from html import escape

from loaderprobe.render.notebook import run_html
from loaderprobe.render.overview import most_important
from loaderprobe.render.verdict_words import sentence
from tests.examples.reports import example_report


def test_the_headline_has_the_sentence_of_the_verdict() -> None:
    """A run in a notebook says why its most important configuration is as it is, in the words of every report."""
    report = example_report()
    row = most_important(report)
    assert row is not None and row.bound is not None
    assert escape(sentence([row.bound])) in run_html(report)

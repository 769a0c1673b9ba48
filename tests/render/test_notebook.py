from __future__ import annotations

from html import escape

from loaderprobe.render.first_page import answers
from tests.examples.reports import example_report
from tests.pages import notebook_report


def test_the_headline_is_the_answer_of_every_report() -> None:
    """A run in a notebook begins with what limits where, and with storage, in the words of the first page."""
    report = example_report()
    assert len(answers(report)) == 3
    for answer in answers(report):
        assert escape(answer) in notebook_report(report)

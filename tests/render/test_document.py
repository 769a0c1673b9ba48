"""One document through the four writers: what each shows, and what it leaves out."""

from __future__ import annotations

import re

import pytest

from loaderprobe.render.document import (
    Bar,
    Cell,
    Chart,
    ChartRow,
    Command,
    Document,
    Fold,
    Item,
    Paragraph,
    Section,
    Table,
    further,
)
from loaderprobe.render.pages import document_markdown, document_page
from loaderprobe.render.terminal import document_text
from tests.render.test_html import EVIL, Page

MAP = Table(
    head=("workers", *(str(count) for count in range(12))),
    lines=(("photos", *(Cell(text=f"{100 + count}±9 S", tone="storage", words="storage") for count in range(12))),),
    map=True,
    caption="by workers",
)
RATES = Table(
    head=("what", "images/s", "how"),
    lines=(("loader", "100", "measured"), ("loader if storage were free", "400", "-")),
)
PROOF = Fold(
    subject="2 workers", verdict=Cell(text="input: storage", tone="storage"), text="It waits.",
    parts=(Paragraph(text="the proof"),),
)  # fmt: skip
DRAWN = Chart(rows=(ChartRow(label="a row", value="7", bars=(Bar(end=7.0),)),), high=10.0, caption="A finding")
PAGE = Document(
    title="A page",
    tone="storage",
    sections=(
        Section(parts=(Paragraph(text="The answer.", strong=True), Item(text="do it; try it:"))),
        Section(title="A device", parts=(MAP,), under=True),
        Section(title="Rates", name="rates", parts=(RATES, Command(text="--workers 4 > x"))),
        Section(title="Data", parts=further([Paragraph(text="where it lies")])),
        Section(title="Drawn", name="drawn", parts=further([DRAWN])),
        Section(title="Evidence"),
        Section(title="Of the device", parts=(PROOF,), under=True),
    ),
)


def test_a_terminal_leaves_out_what_is_further_and_what_is_folded() -> None:
    """With their headings; all else is there, in order."""
    text = document_text(PAGE)
    marks = ("A page", "The answer.", "- do it; try it:", "A device", "Rates", "loader if storage were free", "> x")
    assert [text.index(mark) for mark in marks] == sorted(text.index(mark) for mark in marks)
    assert not any(words in text for words in ("Data", "where it lies", "Evidence", "the proof", "Drawn"))


def test_markdown_has_what_is_further() -> None:
    """A chart as a table; neither what is folded, nor headings without anything under them."""
    text = document_markdown(PAGE)
    assert "by workers\n\n| workers |" in text and "| a row | 7 |" in text
    assert "## Data\n\nwhere it lies" in text and "- do it" in text and "```\n--workers 4 > x\n```" in text
    assert not any(words in text for words in ("Evidence", "Of the device", "the proof", "<svg"))


def test_a_page_has_all_of_it() -> None:
    """Charts in their section, the proof behind a click."""
    html = document_page(PAGE, made_by="me")
    text = Page(html).text
    assert all(words in text for words in ("the proof", "where it lies", "A finding", "me"))
    head, rest = html.split("<h2>Rates")
    assert 'class="map"' in head and "<strong>The answer.</strong>" in head and "<svg" in rest
    assert '<section id="drawn">' in rest and re.search(r"<h2>Evidence</h2>.*<h3>Of the device</h3>", rest, re.DOTALL)


def test_a_notebook_has_the_page_in_one_element() -> None:
    """Its styles hold in that element only, so that they change nothing else of the notebook; nothing runs."""
    html, whole = (document_page(PAGE, made_by="me", inline=inline) for inline in (True, False))
    part, page = Page(html), Page(whole)
    outside = {"html", "head", "body", "meta", "title"}
    assert html.startswith('<div class="loaderprobe"') and not {*outside, "script", "iframe"} & {*part.tags}
    assert part.tags[2:] == [tag for tag in page.tags if tag not in (*outside, "style")]
    style, _, text = html.partition("</style>")
    assert text.partition("</footer>")[0].strip() == whole.partition("<body>")[2].partition("</footer>")[0].strip()
    rules = style.partition(".loaderprobe.loaderprobe.loaderprobe {")[2]
    assert rules.count("{") == rules.count("}") - 1 and rules.rstrip().endswith("}")
    assert not re.search(r"(^|[\s,}])(:root|body) *\{", rules)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_map_that_does_not_fit_goes_on_below(width: int) -> None:
    """No cell is cut or folded, and each part has the names of its lines."""
    text = document_text(PAGE, width=width)
    assert all(len(line) <= width for line in text.splitlines())
    assert re.findall(r"\d+±9 S", text) == [f"{100 + count}±9 S" for count in range(12)]
    assert text.count("photos") == text.count("workers ") - text.count("--workers ") >= (1 if width == 200 else 2)


def test_text_from_outside_acts_in_no_writer() -> None:
    """In titles, subjects, cells, commands and folds."""
    parts = (
        Paragraph(text=EVIL), Item(subject=EVIL, text=EVIL), Command(text=EVIL),
        Table(head=(EVIL,), lines=((EVIL,), (Cell(text=EVIL, tone="storage", words=EVIL),))),
        Fold(subject=EVIL, verdict=Cell(text=EVIL, tone="storage"), text=EVIL, parts=()),
    )  # fmt: skip
    evil = Document(title=EVIL, sections=(Section(title=EVIL, parts=(*parts, *further(parts[:4]))),))
    for html in (document_page(evil, made_by=EVIL, inline=inline) for inline in (True, False)):
        page = Page(html)
        assert "script" not in page.tags and EVIL in page.text
    assert "<script>" not in document_markdown(evil).replace(f"```\n{EVIL}\n```", "")

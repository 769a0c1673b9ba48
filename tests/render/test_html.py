"""Documents through the four writers, and pages: whole, inert, and with a table for each chart."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.analyze.answer import answered
from loaderprobe.analyze.gpu import read_window
from loaderprobe.records.config import RunConfig
from loaderprobe.records.measurement import Rejected, Timeline
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.charts import Bar, Chart, ChartRow
from loaderprobe.render.document import Cell, Command, Document, Fold, Item, Paragraph, Section, Table, further
from loaderprobe.render.format import visible
from loaderprobe.render.gpu import timelines_chart
from loaderprobe.render.pages import chart_svg, document_markdown, document_page
from loaderprobe.render.sweep import sweep_document
from loaderprobe.render.terminal import document_text
from scripts.goldens import SHOWN
from tests.analyze.runs import Cost, alike, run
from tests.examples import timelines
from tests.examples.reports import example_report, example_row, with_changes
from tests.pages import html_report

EVIL = '<script>alert("1")</script>\x1b[2J\u202e'
VOID = {"meta", "link", "br", "col", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags, attributes and text of a page, and whether every tag is closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("file", sorted(SHOWN.glob("*.html")), ids=lambda file: file.stem)
def test_every_page_is_whole_and_loads_nothing(file: Path) -> None:
    """Of every kind of result: tags are closed, no script, nothing to fetch; SVGs scale, and share no id."""
    html = file.read_text()
    page = Page(html)
    head = html.partition("</head>")[0]
    assert page.tags.count("h1") == head.count("<title>") == page.tags.count("main") == 1
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    for name, _ in page.attributes:
        assert name not in ("src", "srcset", "href", "xlink:href", "action", "poster")
    assert "default-src 'none'" in html
    assert not re.search(r"https?:|@import|url\((?!#hatch-)", html)
    for figure in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        assert not re.search(r'\sid="(?!hatch-)', figure)


def test_every_chart_is_a_table() -> None:
    """Whoever does not see a chart finds the name and the figure of each row beside it; the marks are not read out."""
    figures = re.findall(r'<figure class="bars">.*?</figure>', (SHOWN / "example.html").read_text(), re.DOTALL)
    assert len(figures) > 6
    for figure in figures:
        drawn = re.findall(r'<div class="row">.*?</div>', figure)
        assert drawn and all('class="label"' in row and 'class="value"' in row for row in drawn)
        assert all('aria-hidden="true"' in svg for svg in re.findall("<svg[^>]*>", figure))


def test_no_table_leaves_its_place() -> None:
    """One that is too wide scrolls in a box of its own; where a line is a block on a phone, so is the caption."""
    html = html_report(example_report())
    assert html.count("<table") == html.count('<div class="scroll" tabindex="0"><table') > html.count('class="map"') > 0
    (blocks,) = re.findall(r"(\.stack,[^{}]*) \{ display: block; }", html)
    assert ".stack caption" in blocks.split(", ")


def many_rows() -> list[ConfigurationRow]:
    """200 configurations in 20 lines."""
    return [
        example_row(workers=workers, batch_size=batch, resolution=f"{size}x{size}")
        for workers in range(10)
        for batch in (16, 32, 64, 128)
        for size in (256, 384, 512, 768, 1024)
    ]


def test_two_hundred_configurations_make_a_page_of_under_5_mb(monkeypatch: pytest.MonkeyPatch) -> None:
    """With charts of all of them, and work that does not grow with their square: the hash of a configuration, the
    dearest thing that is looked up, is made some 50 times for each."""
    report, made = example_report(many_rows()), [0]
    key = RunConfig.key.fget  # type: ignore[attr-defined]  # a property

    def counted(config: RunConfig) -> str:
        made[0] += 1
        return str(key(config))

    monkeypatch.setattr(RunConfig, "key", property(counted))
    html = html_report(report)
    assert 200 < made[0] < 200 * 100
    assert html.count('<figure class="bars">') == 5
    assert len(html.encode()) < 5e6


def test_a_notebook_has_the_page_in_one_element() -> None:
    """Its styles hold in that element only, so that they change nothing else of the notebook; nothing runs."""
    document = sweep_document(example_report())
    html, whole = (document_page(document, made_by="me", inline=inline) for inline in (True, False))
    part, page = Page(html), Page(whole)
    outside = {"html", "head", "body", "meta", "title"}
    assert html.startswith('<div class="loaderprobe"') and not {*outside, "script", "iframe"} & {*part.tags}
    assert part.tags[2:] == [tag for tag in page.tags if tag not in (*outside, "style")]
    style, _, text = html.partition("</style>")
    assert text.partition("</footer>")[0].strip() == whole.partition("<body>")[2].partition("</footer>")[0].strip()
    rules = style.partition(".loaderprobe.loaderprobe.loaderprobe {")[2]
    assert rules.count("{") == rules.count("}") - 1 and rules.rstrip().endswith("}")
    assert not re.search(r"(^|[\s,}])(:root|body) *\{", rules)


@pytest.mark.parametrize(("name", "narrow"), [("2 workers", False), ("n" * 40, True), ("\u7167" * 20, True)])
def test_a_long_name_ends_before_the_bars_of_a_picture(name: str, narrow: bool) -> None:
    """Over no bars it may be as long as it is."""
    chart = Chart(rows=(ChartRow(label=name, head=True), ChartRow(label=name, bars=(Bar(end=7.0),))), high=10.0)
    head, label = re.findall(f"<text[^>]*>{name}</text>", svg := chart_svg(chart, title=""))
    found = re.search('x="([0-9]+)".*textLength="([0-9]+)"', label)
    assert "textLength" not in head and bool(found) == narrow
    bars = re.search('<svg x="([0-9]+)"', svg)
    assert not found or (bars and int(found[1]) + int(found[2]) < int(bars[1]))


def test_text_from_outside_acts_in_no_writer() -> None:
    """In titles, subjects, cells, commands, charts and folds: no tag, no control character, and no other column."""
    chart = Chart(rows=(ChartRow(label=EVIL, value=EVIL, bars=(Bar(end=7.0),)),), high=10.0, caption=EVIL)
    parts = (
        Paragraph(text=EVIL), Item(subject=EVIL, text=EVIL), Command(text=EVIL),
        Table(head=(EVIL,), lines=((EVIL,), (Cell(text=EVIL, tone="storage", words=EVIL),))),
        Fold(subject=EVIL, verdict=Cell(text=EVIL, tone="storage"), text=EVIL, parts=()), chart,
    )  # fmt: skip
    evil = Document(title=EVIL, sections=(Section(title=EVIL, parts=(*parts, *further(parts[:4]))),))
    htmls = [document_page(evil, made_by=EVIL, inline=inline) for inline in (True, False)]
    svg, markdown = chart_svg(chart, title=EVIL), document_markdown(evil)
    for page in map(Page, htmls):
        assert "script" not in page.tags and visible(EVIL) in page.text
    assert "<script>" not in svg + markdown.replace(f"```\n{visible(EVIL)}\n```", "")
    assert not any(letter in shown for shown in (*htmls, svg, markdown, document_text(evil)) for letter in "\x1b\u202e")
    table = Table(head=("a", "b"), lines=(("x|y\n`*", "\x1b[2Ja\udcff"),))
    odd = Document(title="", sections=(Section(parts=(table,)),))
    text, markdown = document_text(odd), document_markdown(odd)
    assert "\\udcff" in document_page(odd, made_by="")
    assert "\x1b" not in text + markdown and "\\x1b[2Ja\\udcff" in text and text.encode()
    (line,) = (line for line in markdown.splitlines() if "x" in line)
    assert line.replace("\\|", "").count("|") == 3 and "\\`" in line


MS = 1_000_000


def seen(timeline: Timeline) -> Any:
    return read_window(run(alike(baseline=800, warm=800), Cost(), facts={"timeline": timeline}))


def with_window(timeline: Timeline) -> Report:
    """A row of the example, which was profiled."""
    report, found = example_report(), seen(timeline)
    row = with_changes(example_row(resolution="500x375"), gpu_window=found.window)
    details = {row.key: replace(next(iter(report.details.values())), view=found.view)}
    return answered(replace(report, summary=replace(report.summary, configurations=(row,)), details=details))


def test_a_view_is_small_and_escaped() -> None:
    """Few marks even for thousands of kernels, and nothing of a name acts."""
    view = seen(timelines.launch_bound(100)).view
    for shown in (view, replace(view, step_begin_ns=view.step_begin_ns[:1])):  # a step of it, and all
        parts = (timelines_chart([(EVIL, shown)], EVIL),)
        html = document_page(Document(title="", sections=(Section(parts=parts),)), made_by="", inline=True)
        assert html.count("<rect") < 300 and len(html) < 60_000
        assert not re.search(r"http|<script|href", html)


def test_on_paper_a_panel_has_the_whole_width_and_a_wide_map_several_lines() -> None:
    """Nothing scrolls there."""
    html = document_page(Document(title="", sections=()), made_by="")
    paper = "".join(html.split("@media print {")[1:])
    assert ".first { grid-template-columns: minmax(0, 1fr); }" in paper
    assert re.search(r"\.map:has\(td:nth-child\(16\)\) tr { display: grid;", paper)


def test_a_refused_window_shows_its_reason_and_nothing_else() -> None:
    """No timeline, no table; the same where records were left out, which is said beside the figures."""
    page = Page(html_report(with_window(timelines.starved(plain_ns=MS))))
    assert "refused above 5.0 %" in page.text
    assert "training thread in next()" not in page.text
    rejected = (Rejected(reason="no_stamp", count=3),)
    kept = html_report(with_window(timelines.starved(rejected=rejected)))
    assert "3 records of the profiler left out: without a valid time" in kept

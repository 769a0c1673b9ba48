"""Pages through the writers: whole, they fit, no text acts on a reader, and what programs read follows its schema."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from io import StringIO
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import loaderprobe
from loaderprobe.analyze.gpu import read_window
from loaderprobe.records.config import RunConfig
from loaderprobe.records.measurement import Rejected, Timeline
from loaderprobe.records.plan import PlanReport
from loaderprobe.records.report import Report
from loaderprobe.render.bandwidth import bandwidth_document
from loaderprobe.render.charts import BASE, Bar, Chart, ChartRow
from loaderprobe.render.document import IN_CODE, Cell, Command, Document, Fold, Item, Paragraph, Section, Table, further
from loaderprobe.render.format import visible
from loaderprobe.render.gpu import timelines_chart
from loaderprobe.render.json import indented, result_json, result_schema, summary_json, summary_schema
from loaderprobe.render.pages import chart_svg, document_markdown, document_page
from loaderprobe.render.plan import catalogue_document
from loaderprobe.render.rows import csv_text
from loaderprobe.render.sweep import sweep_document
from loaderprobe.render.terminal import document_text
from loaderprobe.storage.catalogue import published
from scripts.goldens import SHOWN
from tests.analyze.runs import Cost, alike, run
from tests.examples import timelines
from tests.examples.bandwidth import (
    example_bandwidth,
    example_operations,
    example_phase,
    example_rank_bandwidth,
    example_ranks,
)
from tests.examples.reports import (
    example_report,
    example_row,
    html_report,
    markdown_report,
    terminal_report,
    with_changes,
    with_details,
)

WIDEST = replace(
    example_bandwidth(),
    phases=tuple(
        example_phase(
            1 << step, rate, at_least=True, settled=False, bw_high=1.4 * rate, cache="mixed", cold_fraction=0.5
        )
        for step, rate in enumerate((0.0512e6, 61.3e6, 12_345e6))
    ),
    metadata=(
        *example_operations({1: 1e6, 64: 1.23e6}, at_least=True),
        *example_operations({1: 330.0, 4: 1250.0, 16: 3300.0}, "stat"),
    ),
)
"""Rates from kB/s to GB/s in one table, all marked, and a million opens/s: gaps and shares give way, then tables stand
below each other."""
SURE = replace(
    example_bandwidth(),
    phases=(example_phase(1, 12_345e6, bw_low=12_339e6, bw_high=12_351e6),),
    metadata=example_operations({1: 131_400.0}, ops_low=131_280.0, ops_high=131_520.0),
)
"""Rates that are known to more than three figures."""
RANKS = example_rank_bandwidth(example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6))
STORED = Path("fixtures/runs/storage")
PLAN = loaderprobe.plan(STORED, accelerators=64, cache="page:75GB", nic="12.5GB/s", storage="6GB/s,24kopens/s,2ms")
BARE = loaderprobe.plan(STORED.with_name("trace"))
PAGES: dict[str, tuple[Document, set[str]]] = {
    "sweep": (sweep_document(example_report()), set()),
    "bandwidth": (bandwidth_document(example_bandwidth()), {"61.3", "118", "≥301", "≥", "*", "?"}),
    "widest bandwidth": (
        bandwidth_document(WIDEST), {"≥12300", "opens/s", "stats/s", "≥1,000,000", "4.36,"},
    ),
    "sure bandwidth": (bandwidth_document(SURE), {"12345", "±6", "131,400", "±120"}),
    "bandwidth of ranks": (bandwidth_document(RANKS), {"20.0", "24.5", "fair"}),
    "bandwidth of nothing": (bandwidth_document(example_rank_bandwidth()), set()),
    "plan": (PLAN.document(), set()),
    "bare plan": (BARE.document(), set()),
    "plan of one": (loaderprobe.plan(STORED, accelerators=1).document(), set()),
}  # fmt: skip
"""A page, and words of it that are whole at any width."""
FITS = [(name, width) for name in PAGES for width in ((40, 80, 200) if "plan" in name else (60, 80, 120))]


@pytest.mark.parametrize(("name", "width"), FITS)
def test_a_page_fits(name: str, width: int) -> None:
    """No line is longer than the width that was asked for, and no figure is cut."""
    document, whole = PAGES[name]
    text = document_text(document, width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert whole <= set(text.split()) and not ("bandwidth" in name and "…" in text)


@pytest.mark.parametrize(
    ("count", "says"),
    [(3, "1; 2; 3."), (4, "1; 2; 3; 1 more, in summary.json."), (58, "55 more, the next 17 of them in summary.json.")],
)
def test_skipped_files_are_named_or_where_they_are(count: int, says: str) -> None:
    """Three beside the answer; the summary has 20."""
    report = example_report()
    data = replace(report.run.data[0], skipped_count=count, skipped=tuple(map(str, range(1, min(count, 20) + 1))))
    report = replace(report, run=replace(report.run, data=(data,)))
    assert says in " ".join(terminal_report(report).split())


@pytest.mark.parametrize(("share", "noise"), [(2.01, True), (1.04, True), (1.004, False), (0.97, False)])
@pytest.mark.parametrize("write", [terminal_report, markdown_report, html_report])
def test_more_than_all_of_compute_alone_is_noise(write: Callable[[Report], str], share: float, noise: bool) -> None:
    """So it is said, once, where such a share stands."""
    text = " ".join(write(example_report([example_row(accelerator_utilization=share)])).split())
    assert text.count("more than 100 % is noise") == noise
    assert text.count("noise, more than 133 % a machine that changed in between") == (share > 2)


def _drawn(chart: Chart, width: int) -> list[str]:
    document = Document(title="", sections=(Section(parts=(chart,)),))
    return [line for line in document_text(document, width=width).splitlines() if line]


def test_a_control_character_is_measured_as_it_is_written_out() -> None:
    """A row of a picture stays within the width."""
    row = ChartRow(label="a", value="\x1b" * 6, bars=(Bar(end=1.0),))
    assert [cell_len(line) for line in _drawn(Chart(rows=(row,)), 60)] == [60]


@pytest.mark.parametrize("name", ["loader if preprocessing were free", "256x256, 2 workers, cpu, batch 64", "n" * 90])
@pytest.mark.parametrize("width", [40, 80])
def test_the_name_of_a_row_is_whole(name: str, width: int) -> None:
    """Beside fewer cells of marks, or in several lines, with the marks on the first."""
    row = ChartRow(label=name, value="1000", bars=(Bar(end=1.0),))
    lines = _drawn(Chart(rows=(row,)), width)
    assert "".join("".join(line.partition("█")[0].split()) for line in lines) == "".join(name.split())
    assert max(map(cell_len, lines)) <= width and "█" in lines[0]


def test_the_unit_of_a_chart_is_whole() -> None:
    """Also over shorter names; and the letter of a bar, however short, that has no other behind it."""
    bars = (Bar(end=9.9, tone=BASE), Bar(begin=9.9, end=10.0, letter="T"))
    axis, row = _drawn(Chart(rows=(ChartRow(label="epoch 1", bars=bars),), unit="images/s"), 80)
    assert axis.startswith("images/s ") and "─T" in row


def test_a_mark_stays_with_its_figure_and_a_long_head_parts_no_table() -> None:
    """On a phone no mark stands alone in a line; in a terminal a head of names is folded, as others are."""
    line = ("500x375, 110 kB", "61.8 MB/s ●", "495 MB/s ●", "3.96 GB/s ○", "≥575 MB/s", "4.0, 32, 260 ▼")
    head = ("accelerator of 500 images/s", "for 1", "for 8", "for 64", "here", "cores needed")
    document = Document(title="", sections=(Section(parts=(Table(head=head, lines=(line,)),)),))
    assert " ".join(line[1:]) in document_text(document, width=80)
    assert "3.96 GB/s\N{NO-BREAK SPACE}○" in document_page(document, made_by="")


@pytest.mark.parametrize("width", [24, 40, 200])
def test_a_command_can_be_pasted(width: int) -> None:
    """A shell takes its lines as one, and nothing in quotes is changed."""
    command = r"find '/data of mine' -name \*.jpg -exec cat {} + >/dev/null && loaderprobe sweep \"a  b\" --workers 1,2"
    section = Section(parts=(Command(text=command, label="Run it"),))
    _, text = document_text(Document(title="", sections=(section,)), width=width).split("Run it: ")
    assert shlex.split(text.replace("\\\n", "")) == shlex.split(command)
    assert len(text.splitlines()) == 1 or " \\\n" in text


@pytest.mark.parametrize("label", [IN_CODE, "Run it"])
def test_code_and_an_open_quote_get_no_backslash(label: str) -> None:
    """They are no lines of a shell, or it would take them for others."""
    text = "loader = 'a " + "word " * 30
    section = Section(parts=(Command(text=text, label=label),))
    shown = document_text(Document(title="", sections=(section,)), width=60)
    assert "\\" not in shown and shown.split()[1:] == f"{label}: {text}".split()[1:]


@pytest.mark.parametrize("value", [inf, -inf, nan])
def test_a_figure_that_is_infinite_or_none_is_drawn_at_the_end_or_left_out(value: float) -> None:
    """Of every mark, in a terminal and on a page, with an axis that was chosen and without."""
    odd: list[dict[str, Any]] = [
        {"bars": (Bar(end=value), Bar(begin=value, end=3.0))}, {"point": Bar(end=value)}, {"level": value},
        {"interval": (0.5, value)}, {"interval": (value, 0.5)},
    ]  # fmt: skip
    rows = [ChartRow(label="odd", **marks) for marks in odd]
    usual = ChartRow(label="usual", bars=(Bar(end=2.0),))
    for row in rows:
        for chart in (
            Chart(rows=(row,), unit="s"),
            *(Chart(rows=(row, usual), unit="s", high=x) for x in (0.0, value)),
        ):
            drawn = "".join(_drawn(chart, 60))
            assert ("▸" in drawn) == (value == inf and (bool(row.bars) or row.interval == (0.5, inf)))
            document = Document(title="", sections=(Section(parts=(chart,)),))
            assert not re.search("inf%|nan", document_page(document, made_by="", inline=True))
    at = _drawn(Chart(rows=(rows[1], usual)), 60)[0].find("◆")
    assert (at == -1) == isnan(value) and (at > 30) == (value == inf)


@pytest.mark.parametrize("letter", ["r", "\u7167"], ids=["narrow", "wide"])
def test_long_names_do_not_run_over(letter: str) -> None:
    """A name longer than the terminal is folded, not cut and not let through; some letters take two columns. One that
    has space on the ladder leaves space for the workers."""
    text = terminal_report(example_report([example_row(resolution=letter * 130, reason=None)]))
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert text.count(letter) >= 130
    rows = [example_row(resolution=f"{letter * 6}{number}", reason=None) for number in range(4)]
    text = terminal_report(example_report(rows))
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert sum(line.endswith("S 2.76x (2.0 to 3.8)") for line in text.splitlines()) == 4
    assert all(text.count(f"{letter * 6}{number}, 2 workers ") == 2 for number in range(4))


@given(width=st.integers(50, 130), long=st.integers(5, 120))
def test_a_table_that_does_not_fit_loses_no_word(width: int, long: int) -> None:
    """Texts are folded, and nothing is cut off at the edge of the page."""
    table = Table(
        head=("figure", "value", "label", "source"),
        lines=(
            ("wait of a worker for a file", "522 us (433 us to 611 us)", "measured", "one file at low load"),
            ("size of a request", "131 kB", "assumed", "128 KiB, the read-ahead of most Linux systems"[:long]),
            ("G, rate of one accelerator", "1786 images/s", "given", "ResNet-50 on H100: 0.224 s per batch of 400"),
        ),
    )
    shown = document_text(Document(title="", sections=(Section(parts=(table,)),)), width=width)
    assert max(map(len, shown.splitlines())) <= width
    assert {word for line in (table.head, *table.lines) for cell in line for word in str(cell).split()} <= set(
        shown.split()
    )


def test_csv_has_no_formula() -> None:
    """A name that a spreadsheet would run is text there; a negative number stays a number."""
    text = csv_text({"name": ["=cmd()", "+1", "-x", "@SUM(A1)", "\t=1", "a=b\x1b[2J\udcff"], "s": [-1.5] * 6})
    rows = list(csv.DictReader(StringIO(text)))
    assert [row["name"] for row in rows] == ["'=cmd()", "'+1", "'-x", "'@SUM(A1)", "'\\t=1", "a=b\\x1b[2J\\udcff"]
    assert {row["s"] for row in rows} == {"-1.5"}


def test_surroundings_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS, TERM and NO_COLOR do not change the text."""
    before = terminal_report(example_report(), color=True)
    for name, value in (("COLUMNS", "40"), ("TERM", "dumb"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    assert terminal_report(example_report(), color=True) == before


MADE: dict[str, tuple[Callable[[], str], Callable[[], str]]] = {
    "summary": (lambda: summary_json(example_report()), summary_schema),
    "plan": (lambda: result_json(PLAN), lambda: result_schema(PlanReport)),
}
"""A result as JSON, and its schema."""


@pytest.mark.parametrize(
    ("kind", "where", "value"),
    [
        ("summary", (), None),
        ("summary", ("schema",), "loaderprobe/bandwidth"),
        ("summary", ("schema_version",), 99),
        ("summary", ("configurations", 0, "workers"), "two"),
        ("summary", ("configurations", 0, "bound", "side"), "disk"),
        ("summary", ("configurations", 0, "images_per_s"), 12.0),
        ("plan", (), None),
        ("plan", ("schema",), "loaderprobe/bandwidth"),
        ("plan", ("schema_version",), 99),
        ("plan", ("needs", 0, "at_utilization", "label"), "guessed"),
        ("plan", ("supplies", 0, "first_limit"), "luck"),
        ("plan", ("inputs", "rate", "value"), "many"),
    ],
)
def test_a_result_follows_its_schema(kind: str, where: tuple[Any, ...], value: object) -> None:
    """Another schema, another version, a wrong type or an unknown word does not validate."""
    tree, schema = (json.loads(made()) for made in MADE[kind])
    jsonschema.Draft202012Validator.check_schema(schema)
    validator, place = jsonschema.Draft202012Validator(schema), tree
    if not where:
        validator.validate(tree)
        return
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(tree)


def test_the_catalogue_shows_every_entry_with_source_and_date() -> None:
    """And says which are stale."""
    found = catalogue_document(published(), date(2026, 11, 22))
    page = document_text(found, width=100)
    old = document_text(catalogue_document(published(), date(2027, 11, 21)), width=100)
    for entry in published():
        assert entry.name in page and entry.source.split(",")[0] in " ".join(page.split())
    assert "12 months" not in page
    assert " ".join(old.split()).count("12 months ago or longer: check it") == len(published())
    assert len(json.loads(indented(published()))) == len(published())
    (limits,) = (part for part in found.sections[0].parts if isinstance(part, Table))
    rates = {line[0]: line[1] for line in limits.lines}
    assert rates["efs-bursting"] == "52.4 MB/s a TiB, at most 3.22 GB/s"


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
    """Of every kind of result: tags are closed, no script, nothing to fetch; SVGs scale, and share no id.

    A table that is too wide scrolls in a box of its own.
    """
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
    assert html.count("<table") == html.count('<div class="scroll" tabindex="0"><table')


def test_every_chart_is_a_table() -> None:
    """Whoever does not see a chart finds the name and the figure of each row beside it; the marks are not read out."""
    figures = re.findall(r'<figure class="bars">.*?</figure>', (SHOWN / "example.html").read_text(), re.DOTALL)
    assert len(figures) > 6
    for figure in figures:
        drawn = re.findall(r'<div class="row">.*?</div>', figure)
        assert drawn and all('class="label"' in row and 'class="value"' in row for row in drawn)
        assert all('aria-hidden="true"' in svg for svg in re.findall("<svg[^>]*>", figure))


def test_two_hundred_configurations_make_a_page_of_under_5_mb(monkeypatch: pytest.MonkeyPatch) -> None:
    """With charts of all of them, and work that does not grow with their square: the hash of a configuration, the
    dearest thing that is looked up, is made some 50 times for each."""
    rows = [
        example_row(workers=workers, batch_size=batch, resolution=f"{size}x{size}")
        for workers in range(10)
        for batch in (16, 32, 64, 128)
        for size in (256, 384, 512, 768, 1024)
    ]
    report, made = example_report(rows), [0]
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
    report, (window, view) = example_report(), seen(timeline)
    row = with_changes(example_row(resolution="500x375"), gpu_window=window)
    return with_details(replace(report, configurations=(row,)), view=view)


def test_a_view_is_small_and_escaped() -> None:
    """Few marks even for thousands of kernels, and nothing of a name acts."""
    _, view = seen(timelines.launch_bound(100))
    for shown in (view, replace(view, step_begin_ns=view.step_begin_ns[:1])):  # a step of it, and all
        parts = (timelines_chart([(EVIL, shown)], EVIL),)
        html = document_page(Document(title="", sections=(Section(parts=parts),)), made_by="", inline=True)
        assert html.count("<rect") < 300 and len(html) < 60_000
        assert not re.search(r"http|<script|href", html)


def test_a_refused_window_shows_its_reason_and_nothing_else() -> None:
    """No timeline, no table; the same where records were left out, which is said beside the figures."""
    page = Page(html_report(with_window(timelines.starved(plain_ns=MS))))
    assert "refused above 5.0 %" in page.text
    assert "training thread in next()" not in page.text
    rejected = (Rejected(reason="no_stamp", count=3),)
    kept = html_report(with_window(timelines.starved(rejected=rejected)))
    assert "3 records of the profiler left out: without a valid time" in kept

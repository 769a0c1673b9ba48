from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loaderprobe.records.config import RunConfig
from loaderprobe.records.remark import reported
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Bound, Reason
from scripts.goldens import SHOWN
from tests.examples.reports import example_report, example_row, with_changes
from tests.pages import html_report
from tests.said import quoted

EVIL = '<script>alert("1")</script>'
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


@pytest.fixture(scope="module")
def html() -> str:
    return html_report(example_report())


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.mark.parametrize("file", sorted(SHOWN.glob("*.html")), ids=lambda file: file.stem)
def test_every_page_is_whole_and_loads_nothing(file: Path) -> None:
    """Of every kind of result: all tags closed, one heading, no script, nothing to fetch, no figure made of None.

    Each SVG has a view box, so that it scales, and no id that could clash with another's.
    """
    html = file.read_text()
    page = Page(html)
    head = html.partition("</head>")[0]
    assert page.tags.count("h1") == head.count("<title>") == page.tags.count("main") == 1
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    for name, value in page.attributes:
        assert name not in ("src", "srcset", "xlink:href", "action", "poster")
        assert name != "href" or value.startswith("#")
    assert "default-src 'none'" in html
    assert not re.search(r"https?:|@import|url\((?!#hatch-)", html)
    assert not re.search(r"\b(None|nan|inf)\b", page.text)
    for figure in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        assert not re.search(r'\sid="(?!hatch-)', figure)


def test_every_chart_is_a_table(html: str) -> None:
    """Whoever does not see a chart finds the name and the figure of each row beside it; the marks are not read out."""
    figures = re.findall(r'<figure class="bars">.*?</figure>', html, re.DOTALL)
    assert len(figures) > 6
    for figure in figures:
        drawn = re.findall(r'<div class="row">.*?</div>', figure)
        assert drawn and all('class="label"' in row and 'class="value"' in row for row in drawn)
        assert all('aria-hidden="true"' in svg for svg in re.findall("<svg[^>]*>", figure))


def evil_report() -> Report:
    facts: dict[str, float | str] = {
        "resource": "network", "speedup": 2.0, "how": "measured", "subject": EVIL, "waiting_share": 0.5,
        "images_per_s": 1.0, "judged": "training",
    }  # fmt: skip
    reason = Reason(code="largest_speedup", facts=facts)
    row = example_row(
        resolution=EVIL,
        loader=EVIL,
        bound=Bound(side="input", cause="network", candidates=(), reason=reason, evidence=()),
        unavailable={"speedups.transport": reported(EVIL)},
    )
    failed = with_changes(row, status="failed", reason=EVIL, loader="torch")
    report = example_report([row, failed])
    data = replace(report.summary.run.data[0], root=f"/data/{EVIL}\udcff", skipped=(EVIL,), skipped_count=1)
    run = replace(report.summary.run, name=EVIL, command=EVIL, data=(data,))
    details = tuple(replace(detail, notes=(quoted(EVIL),), compute_device=EVIL) for detail in report.details)
    return replace(report, summary=replace(report.summary, run=run), details=details)


def test_text_from_outside_is_escaped() -> None:
    """A tag in a name, path, sentence, reason or chart title is shown, not obeyed, and the page can be encoded."""
    html = html_report(evil_report())
    page = Page(html)
    assert "script" not in page.tags
    assert EVIL in page.text
    assert "\\udcff" in html
    html.encode()


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


def test_emulated_is_marked_everywhere(html: str, page: Page) -> None:
    """The headline, the heading of each chart of emulated figures, and each rate that was specified say so."""
    assert "on an emulated mlperf-h100" in page.text and "1786 images/s (specified)" in page.text
    captions = re.findall("<figcaption>(.*?)</figcaption>", html)
    assert sum("emulated:mlperf-h100" in caption for caption in captions) >= 3

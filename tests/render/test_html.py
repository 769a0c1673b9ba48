from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from loaderprobe.records.config import RunConfig
from loaderprobe.records.remark import reported
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Bound, Reason
from loaderprobe.render.figures import reason_words
from loaderprobe.render.overview import EMULATED_NOTE, HOW_TO_READ
from loaderprobe.render.remarks import WORDS
from loaderprobe.render.verdict_words import sentence
from tests.examples.reports import example_report, example_row, with_changes
from tests.examples.studies import example_effect, example_epochs
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


def test_page_is_well_formed(page: Page) -> None:
    """Every tag is closed, and there is one title and one main heading."""
    assert page.tags.count("h1") == page.tags.count("title") == 1


def test_page_loads_nothing(html: str, page: Page) -> None:
    """No script, and nothing that would be fetched: the file works offline."""
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    for name, value in page.attributes:
        assert name not in ("src", "srcset", "xlink:href", "action", "poster")
        assert name != "href" or value.startswith("#")
    assert "http" not in html
    assert "@import" not in html
    assert "url(" not in html


def test_every_resolution_has_its_charts(page: Page) -> None:
    """Three kinds of chart for each of three resolutions on each of two devices, and two timelines for each."""
    assert page.tags.count("svg") == 3 * 3 * 2 + 2 * 3 * 2
    labels = [value for name, value in page.attributes if name == "aria-label"]
    for resolution in ("256x256", "500x375", "1024x768"):
        assert sum(label.startswith(f"Timeline of the steps of {resolution}, ") for label in labels) == 4


def test_every_chart_has_a_table(html: str) -> None:
    """Whoever does not see a chart finds its figures beside it, and the drawing itself is not read out."""
    figures = re.findall(r'<figure class="chart" role="group" aria-label="(?!Timeline).*?</figure>', html, re.DOTALL)
    assert len(figures) == 18
    for figure in figures:
        assert (
            "<details" in figure and "<table" in figure and re.search('<svg [^>]*role="img" aria-label="[^"]+"', figure)
        )


def test_charts_scale_and_share_no_names(html: str) -> None:
    """Every SVG has a view box, and none an id that could clash with another's."""
    figures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert all("viewBox=" in figure and 'font-family="sans-serif"' in figure for figure in figures)
    assert not any(re.search(r"\sid=", figure) for figure in figures)


def test_emulated_is_marked_everywhere(html: str, page: Page) -> None:
    """Each heading over emulated figures, each of their charts and the headline say so."""
    assert EMULATED_NOTE in page.text
    marked = [value for name, value in page.attributes if name == "aria-label" and "(emulated accelerator)" in value]
    assert len(marked) == 9 + 6
    assert html.count("compute alone: 1786 (specified)") == 3


def test_measured_page_has_no_mark() -> None:
    """A report without emulated rows says emulated of what may be tried next, and of nothing else."""
    rows = [row for row in example_report().summary.configurations if not row.emulated]
    report = example_report(rows)
    run = replace(report.summary.run, command="loaderprobe sweep --compute cpu")
    report = replace(report, summary=replace(report.summary, run=run))
    html = html_report(report).replace("--compute emulated:mlperf-h100", "").replace(WORDS["train_on_emulated"], "")
    assert "emulated" not in html.lower()


def test_verdicts_evidence_and_reasons_are_there(page: Page) -> None:
    """Sentences, evidence, reasons, skipped files, the machine and the way to read it are all on the page."""
    report = example_report()
    text = " ".join(page.text.split())
    for row in report.summary.configurations:
        assert (sentence([row.bound]) if row.bound else reason_words(row)) in text
    assert "speed-up if compute were free" in text
    assert "n01440764/0007.jpg: is 0 bytes long" in text
    assert "AMD EPYC 7B13, 2 of 16 cores available" in text
    assert "another process" in text
    assert HOW_TO_READ in text


def test_no_figure_is_made_of_none(page: Page) -> None:
    """What was not measured is never printed as None, nan or a zero."""
    assert not re.search(r"\b(None|nan|inf)\b", page.text)


def evil_report() -> Report:
    facts: dict[str, float | str] = {
        "resource": "network", "speedup": 2.0, "how": "measured", "subject": EVIL, "waiting_share": 0.5,
        "images_per_s": 1.0,
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


def test_report_without_measurements_renders() -> None:
    """A run in which all failed, or nothing ran, is still a page, without charts."""
    failed = [row for row in example_report().summary.configurations if row.status == "failed"]
    page = Page(html_report(example_report(failed)))
    assert "svg" not in page.tags
    assert "Nothing was measured." in page.text
    assert "svg" not in Page(html_report(example_report([]))).tags


def test_row_without_worker_times_has_no_bars_of_them() -> None:
    """It keeps the charts of its rate and its reads, and nothing is drawn of its workers."""
    report = replace(example_report([example_row(worker_time=None)]), details=())
    assert Page(html_report(report)).tags.count("svg") == 2


def test_gpu_counters_are_shown_with_their_source() -> None:
    """What was read from the GPU stands with the verdict, and a missing counter is no figure."""
    row = example_row(gpu={"utilization": 0.412, "source": "NVML"})
    assert "GPU: utilization 0.412, source NVML." in Page(html_report(example_report([row]))).text
    assert "GPU: utilization" not in html_report(example_report([example_row()]))


def test_both_colour_schemes_and_paper() -> None:
    """The page follows the reader's colour scheme and has a form for paper."""
    html = html_report(example_report([example_row()]))
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_knees_advice_and_forecasts_are_on_the_page(page: Page) -> None:
    """What to do stands under the table with what to type; what was looked at, and refused, with each verdict."""
    text = " ".join(page.text.split())
    assert "Knee of 256x256 to 1024x768: 2 workers, 63.4 to 634 images/s; beyond it, CPU cores are the limit." in text
    assert "keep all files in the page cache: 63.4 → 178 images/s (160 to 196), 2.81x, measured" in text
    assert "find /data/imagenet-like -type f -exec cat {} + >/dev/null" in text
    assert "no forecast: too few batches were recorded to know how their times vary" in text


def test_the_page_has_its_order() -> None:
    """The answer, charts, every configuration, other findings, evidence, and last the machine."""
    row = example_row(epochs=example_epochs(), buffer=example_effect(2, 2))
    html = html_report(example_report([row]))
    names = ("rates", "workers", "reads", "epochs", "short_runs", "steps", "evidence")
    marks = ['class="headline"', *(f'id="{name}"' for name in names), "How to read this"]
    places = [html.index(mark) for mark in marks]
    assert places == sorted(places) and html.index(marks[3]) < html.index("Every configuration") < html.index(marks[4])


def test_a_skipped_row_draws_no_box() -> None:
    """Neither a cell in the map nor a bar in a chart; its reason is on the page."""
    rows = [example_row(), example_row(workers=8, status="skipped", reason="no time left")]
    html = html_report(example_report(rows))
    assert html.count('<td class="cell') == 1
    (chart, *_) = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    (bars,) = re.findall(r'<path d="([^"]*)" fill="#', chart)
    assert bars.count("z") == 1
    assert "8 workers: skipped" in html and "no time left" in html


def many_rows() -> list[ConfigurationRow]:
    """200 configurations in 20 lines."""
    return [
        example_row(workers=workers, batch_size=batch, resolution=f"{size}x{size}")
        for workers in range(10)
        for batch in (16, 32, 64, 128)
        for size in (256, 384, 512, 768, 1024)
    ]


def test_two_hundred_configurations_make_a_page_of_under_5_mb() -> None:
    """With charts of all of them."""
    html = html_report(example_report(many_rows()))
    assert html.count('<details class="data">') == 60
    assert len(html.encode()) < 5e6


def test_the_work_grows_with_the_configurations_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash of a configuration, the dearest thing that is looked up, is made some 50 times for each."""
    report, made = example_report(many_rows()), [0]
    key = RunConfig.key.fget  # type: ignore[attr-defined]  # a property

    def counted(config: RunConfig) -> str:
        made[0] += 1
        return str(key(config))

    monkeypatch.setattr(RunConfig, "key", property(counted))
    html_report(report)
    assert 200 < made[0] < 200 * 100


def test_text_in_a_chart_is_escaped() -> None:
    """A data set may be named like a tag; the page shows it."""
    html = html_report(example_report([example_row(resolution=EVIL)]))
    assert "script" not in Page(html).tags
    assert "&lt;script&gt;" in html

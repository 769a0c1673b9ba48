"""A figure that appears twice agrees with itself: rate, ms a batch, ms an image, MB/s, kB an image, factor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Interval
from loaderprobe.render.document import cell_text
from loaderprobe.render.first_page import BEST_HEAD
from loaderprobe.render.format import megabytes_per_s
from loaderprobe.render.groups import read_words
from loaderprobe.render.panels import per_image, rate_exhibits, read_exhibits
from loaderprobe.units import format_rate, significant
from tests.examples.reports import best_lines, example_report, example_row
from tests.stored import full_run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return loaderprobe.load(full_run(tmp_path_factory.mktemp("agreement") / "run").path).report()


@pytest.fixture(scope="module")
def rows(report: Report) -> list[ConfigurationRow]:
    found = [row for row in report.summary.configurations if row.verdict]
    assert len(found) == 3
    return found


def test_ms_a_batch_is_the_batch_over_the_rate(rows: list[ConfigurationRow]) -> None:
    """The parts of a step sum to what images/s says of it."""
    for row in rows:
        assert row.verdict and row.images_per_s
        spent = row.verdict.step_time
        whole = spent.wait_s + spent.copy_s + spent.step_s + spent.other_s
        assert whole == pytest.approx(row.config.compute.batch_size / row.images_per_s.value)


def test_ms_an_image_is_workers_over_the_rate_of_the_loader(rows: list[ConfigurationRow]) -> None:
    """The parts of a worker's time sum to it."""
    for row in rows:
        assert row.verdict and row.verdict.rates_images_per_s.loader
        parts = per_image(row)
        assert parts and sum(parts) == pytest.approx(
            max(row.config.loader.workers, 1) / row.verdict.rates_images_per_s.loader
        )


def test_mb_per_s_is_the_rate_times_kb_an_image(rows: list[ConfigurationRow]) -> None:
    """With the read-ahead, of files that were cold."""
    for row in rows:
        verdict = row.verdict
        assert verdict and verdict.bytes_per_image and verdict.read_amplification
        read = verdict.images_per_s.value * verdict.bytes_per_image * verdict.read_amplification
        assert verdict.disk_read_bytes_per_s == pytest.approx(read)


def test_a_factor_is_the_rate_after_over_the_rate_before(rows: list[ConfigurationRow]) -> None:
    """Of every piece of advice."""
    advice = [each for row in rows for each in row.advice]
    assert advice
    for each in advice:
        assert each.speedup == pytest.approx(each.after.value / each.before.value)


def test_a_chart_and_the_table_of_the_best_have_one_compute_alone() -> None:
    """On a CPU each configuration measures its own: the title has that of the row that it names."""
    verdict = example_row().verdict
    assert verdict
    report = example_report(
        [
            example_row(
                compute="cpu", emulated=False, workers=workers, accelerator_utilization=speed / alone,
                images_per_s=Interval(value=speed, low=speed - 0.1, high=speed + 0.1),
                rates_images_per_s=replace(verdict.rates_images_per_s, compute=alone),
            )
            for workers, alone, speed in ((0, 6.24, 5.1), (2, 6.03, 5.9))
        ]
    )  # fmt: skip
    (exhibit,) = rate_exhibits(report)
    ((title, svg),) = exhibit.figures
    assert title.endswith("5.90 of 6.03 images/s, 2 workers")
    (line,) = best_lines(report)
    assert line[BEST_HEAD.index("of alone")].endswith("of 6.03")
    assert exhibit.tables[0].lines[-1][2] == line[BEST_HEAD.index("of alone")]
    assert "6.03 (measured)" in svg


def test_the_table_and_the_chart_read_the_same(report: Report, rows: list[ConfigurationRow]) -> None:
    """MB/s of the first page and of the chart, and what the storage gives in both."""
    (exhibit,) = read_exhibits(report)
    for row, line in zip(rows, exhibit.tables[0].lines, strict=True):
        _, read, most = map(cell_text, line)
        assert row.verdict
        assert read == megabytes_per_s(row.verdict.disk_read_bytes_per_s)
        assert read_words(report, row) == f"{read} of {most.removeprefix('>= ')}"


def test_training_above_compute_alone_is_no_share_of_it() -> None:
    """Noise: `0.398 of 0.315` would be no sense."""
    verdict = example_row().verdict
    assert verdict
    rates = replace(verdict.rates_images_per_s, compute=0.315)
    speed = Interval(value=0.398, low=0.3, high=0.5)
    (exhibit,) = rate_exhibits(example_report([example_row(images_per_s=speed, rates_images_per_s=rates)]))
    assert "0.398 images/s" in exhibit.figures[0][0]


# One quantity has one name and one figure, whatever shows it: what is stored, in every format (`scripts/golden`).

SHOWN = Path(__file__).parents[2] / "fixtures" / "shown"
SWEEPS = ("causes", "cpu", "ranks", "storage")
SCREENS = ("txt", "md", "html")
_UNSEEN = re.compile(r"<(style|script|svg)\b.*?</\1>", re.DOTALL)


def _read(name: str) -> str:
    """What a person reads in a page, without breaks of lines."""
    text = (SHOWN / name).read_text(encoding="utf-8")
    if name.endswith(".html"):
        text = unescape(re.sub(r"<[^>]*>", " ", _UNSEEN.sub(" ", text)))
    return " ".join(text.replace("\\", "").split())


def _summary(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SHOWN / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("ending", SCREENS)
@pytest.mark.parametrize("name", SWEEPS)
def test_every_format_says_the_same_sentences(name: str, ending: str) -> None:
    """The answer, what to do next and what is not known, in the words of `summary.json`."""
    summary, shown = _summary(name), _read(f"{name}.{ending}")
    said = [each["sentence"] for part in ("answer", "not_known") for each in summary[part]]
    assert said
    for sentence in said:
        assert " ".join(sentence.split()) in shown


@pytest.mark.parametrize("page", ["storage.txt", "storage.md", "storage.html", "plan.txt", "plan.md"])
def test_a_need_and_a_supply_have_one_figure(page: str) -> None:
    """What 64 accelerators need and what the storage gave, on the first page and in the plan."""
    (need,) = _summary("storage")["needs"]
    of_64 = next(each for each in need["needs"] if each["accelerators"] == 64)
    plan = {each["name"]: each["at_utilization"]["value"] for each in _summary("plan")["needs"]}
    assert plan["read_bytes"] == of_64["read_bytes_per_s"]
    assert plan["opens"] == of_64["files_per_s"]
    shown = _read(page)
    for rate in (of_64["read_bytes_per_s"], need["supply"]["read_bytes_per_s"]):
        assert format_rate(rate) in shown
    assert f"{float(significant(of_64['files_per_s'])):,.0f}" in shown


@pytest.mark.parametrize(
    "page", sorted(each.name for each in SHOWN.iterdir() if each.suffix in (".txt", ".md", ".html"))
)
def test_no_figure_is_more_precise_than_what_was_measured(page: str) -> None:
    """Three figures, and no share of a part per million."""
    assert re.findall(r"(?<![\d.])0\.000\d*|\d\.\d{6,}", _read(page)) == []


@pytest.mark.parametrize("page", [f"{each}.json" for each in (*SWEEPS, "diagnose", "run", "verdicts")])
def test_no_cold_share_is_above_one(page: str) -> None:
    """What is read ahead besides is said as an amplification."""

    def cold(value: object) -> Iterator[float]:
        if isinstance(value, dict):
            if value.get("name") == "cold_fraction":
                yield value["value"]
            for name, each in value.items():
                if name == "cold_fraction" and each is not None:
                    yield each
                yield from cold(each)
        elif isinstance(value, list):
            for each in value:
                yield from cold(each)

    assert all(share <= 1 for share in cold(json.loads((SHOWN / page).read_text(encoding="utf-8"))))


@pytest.mark.parametrize("name", SWEEPS)
def test_the_share_of_compute_alone_has_one_name(name: str) -> None:
    """In the head of every table."""
    heads = re.findall(r"<th[^>]*>(.*?)</th>", (SHOWN / f"{name}.html").read_text(encoding="utf-8"))
    assert "of alone" in heads
    assert not {"used", "compute used", "of compute alone", "utilization"} & set(heads)

"""A figure that appears twice agrees with itself: rate, ms a batch, ms an image, MB/s, kB an image, factor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

import loaderprobe
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.sweep import per_image
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


# One quantity has one name and one figure, whatever shows it: what is stored, in every format (`scripts/golden`).

SHOWN = Path(__file__).parents[2] / "fixtures" / "shown"
SWEEPS = ("causes", "cpu", "ranks", "storage")
_UNSEEN = re.compile(r"<(style|script|svg)\b.*?</\1>", re.DOTALL)


def _read(name: str) -> str:
    """What a person reads in a page, without breaks of lines."""
    text = (SHOWN / name).read_text(encoding="utf-8")
    if name.endswith(".html"):
        text = unescape(re.sub(r"<[^>]*>", " ", _UNSEEN.sub(" ", text)))
    return " ".join(text.replace("\\", "").split())


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

"""A search in words: why it ended, what limits, and a page with charts; on scripted devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from loaderprobe.analyze.tune.batch_size import Throughput, by_size, limit_at, together
from loaderprobe.measure.batch_size import search
from loaderprobe.records.batch_size import BatchSizeReport, BatchSizeStop, StopCode
from loaderprobe.records.environment import Origin
from loaderprobe.records.remark import reported
from loaderprobe.records.verdict import Interval
from loaderprobe.render.batch_size import batch_size_columns, batch_size_document, batch_size_exhibits
from loaderprobe.render.terminal import document_text
from loaderprobe.testing import ScriptedProber, example_environment


def example(rate: Callable[[int], float], *, most: int = 256, noise: float = 0.01, fits_up_to: int | None = None,
            data: str = "") -> BatchSizeReport:  # fmt: skip
    """A search on a scripted device."""
    prober = ScriptedProber(rate=rate, noise=noise, fits_up_to=fits_up_to, utilization=lambda size: size / 256)
    probes, stop = search(Throughput(most=most), prober, lambda done: None)
    return BatchSizeReport(
        origin=Origin(created_utc="2026-11-22T00:00:00", command="loaderprobe", environment=example_environment()),
        model="net", device="a device", image_size=None if data else 32, precision="fp32", strategy="throughput",
        data=data, workers=2 if data else None, dataset_images=1000, most=most, memory_limit_bytes=300_000_000,
        utilization_of="gpu", probes=probes, stop=stop,
        at_chosen=together([each for each in probes if each.batch_size == stop.chosen]),
        limit=limit_at(stop.chosen, probes, most=most, loaded=bool(data)),
    )  # fmt: skip


def text_of(found: BatchSizeReport) -> str:
    shown = document_text(batch_size_document(found, by_size(found.probes)))
    assert all(len(line) <= 80 for line in shown.splitlines())
    return " ".join(shown.split())


def test_what_limits_is_said() -> None:
    """Compute, memory, the largest size allowed, or the loader with the reason why it is not judged."""
    flat = text_of(example(lambda size: 100 * min(1.0, size / 16)))
    assert "net: batch 16 trains fastest" in flat and "times the rate of batch 2" in flat
    assert "Compute limits at batch 16, by construction" in flat and "Throughput is not accuracy" in flat
    assert "Memory limits: the rate still rises at batch 40, but 48 does not fit into 300 MB" in text_of(
        example(lambda size: float(size), fits_up_to=40)
    )
    assert "--max limits: the rate still rises at batch 64" in text_of(example(lambda size: float(size), most=64))
    loaded = replace(example(lambda size: 100.0, data="/data"), no_findings=reported("no time"))
    assert "is not known: no time." in text_of(loaded) and "loaded by 2 workers" in text_of(loaded)


def test_noise_is_warned_of() -> None:
    """And only where there is much."""
    found = example(lambda size: 100.0)
    assert "something else" not in text_of(found)
    wide = replace(found.at_chosen, images_per_s=Interval(value=100.0, low=80.0, high=120.0))
    assert "something else may have used the machine" in text_of(replace(found, at_chosen=wide))


@pytest.mark.parametrize("code", get_args(StopCode))
@pytest.mark.parametrize("strategy", ["throughput", "epoch-time"])
def test_every_end_has_words(code: StopCode, strategy: str) -> None:
    """Without a place that is not filled."""
    found = example(lambda size: float(size), fits_up_to=40)
    stop = BatchSizeStop(code=code, chosen=found.stop.chosen, left=0.25)
    said = text_of(replace(found, stop=stop, strategy=strategy))  # type: ignore[arg-type]  # one of them
    assert "{" not in said and ("up to 25 %" in said) == (code == "probes_spent")


def test_the_table_and_the_charts_have_every_size() -> None:
    """Three charts, the size that does not fit named; a row a probe in the file."""
    found = example(lambda size: float(size), fits_up_to=40)
    (exhibit,) = batch_size_exhibits(found, by_size(found.probes))["sizes"]
    assert len(exhibit.figures) == 3 and all("<svg" in svg for _, svg in exhibit.figures)
    assert "batch 48, which does not fit" in exhibit.text
    assert batch_size_columns(found)["batch_size"] == [each.batch_size for each in found.probes]
    assert "does not fit" in text_of(found)

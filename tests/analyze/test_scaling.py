"""What models gain on other devices and with more ranks: made-up rates, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Interval
from tests.examples.reports import example_report, example_row, with_changes

Gains = tuple[float | None, float | None, float | None]
"""Speed-up over fewer ranks, efficiency, speed-up over the CPU."""


def _row(rate: float, compute: str = "cuda", half: float = 1.0, **options: Any) -> ConfigurationRow:
    figure = Interval(value=rate, low=rate - half, high=rate + half)
    emulated = compute.startswith("emulated")
    return example_row(images_per_s=figure, compute=compute, emulated=emulated, cache="warm", **options)


def _gains(*rows: ConfigurationRow) -> list[Gains]:
    found = example_report(rows).summary.scaling
    return [(_value(each.speedup), each.efficiency, _value(each.over_cpu)) for each in found]


def _value(speedup: Interval | None) -> float | None:
    return None if speedup is None else speedup.value


@pytest.mark.parametrize(
    ("rows", "gains"),
    [
        ([_row(100), _row(180, ranks=2)], [(None, None, None), (1.8, 0.9, None)]),
        ([_row(180, ranks=2), _row(270, ranks=4)], [(None, None, None), (1.5, 0.75, None)]),
        ([_row(100, "cpu"), _row(90, "cpu", ranks=2)], [(None, None, None), (0.9, 0.9, None)]),
        ([_row(100, "cpu"), _row(150, "cpu", ranks=2, nodes=2)], [(None, None, None), (1.5, 0.75, None)]),
        (
            [_row(20, "cpu"), _row(100), _row(180, ranks=2)],
            [(None, None, None), (None, None, 5.0), (1.8, 0.9, 9.0)],
        ),
        ([_row(100, half=60), _row(180, ranks=2)], [(None, None, None), (None, None, None)]),
        ([_row(20, "cpu"), _row(100, "emulated:100")], []),
        ([_row(20, "cpu"), _row(100, "emulated:100"), _row(150, "emulated:100", ranks=2)],
         [(None, None, None), (1.5, 0.75, None)]),
        ([_row(100, workers=1), _row(180, workers=4)], []),
        ([_row(100), _row(180, resolution="256x256")], []),
    ],
    ids=[
        "two GPUs", "the fewest count", "ranks share cores", "nodes do not", "a CPU beside", "too noisy", "emulated",
        "emulated ranks", "one configuration a device", "one of a data set",
    ],
)  # fmt: skip
def test_gains_are_over_fewer_ranks_and_over_the_cpu(rows: list[ConfigurationRow], gains: list[Gains]) -> None:
    """Efficiency is over what there is more of: GPUs, or nodes of CPUs. A specified rate is compared with no other."""
    assert _gains(*rows) == [pytest.approx(each) for each in gains]


def _in(layout: str, rate: float, half: float = 1.0) -> ConfigurationRow:
    return _row(rate, half=half, layout=layout, resolution="500x375" if layout == "files" else f"500x375 {layout}")


@pytest.mark.parametrize(
    ("rows", "change"),
    [
        ([_in("files", 100), _in("tar", 210), _in("parquet", 150)], ("tar", "files")),
        ([_in("lmdb", 50), _in("tar", 210), _in("parquet", 150)], ("tar", "lmdb")),
        ([_in("files", 100), _in("tar", 103)], None),
        ([_in("files", 100, half=30), _in("tar", 150, half=40)], None),
        ([_in("files", 100), _in("tar", 90)], None),
        ([_in("tar", 100), _row(300, resolution="250x188")], None),
        ([_in("files", 100), _row(300, layout="tar", resolution="500x375 tar", loader="webdataset")], None),
    ],
    ids=[
        "of three",
        "without files",
        "within noise",
        "bands overlap",
        "files are best",
        "other images",
        "another loader",
    ],
)
def test_the_layout_that_surely_gains_most_is_the_first_change(
    rows: list[ConfigurationRow], change: tuple[str, str] | None
) -> None:
    """Over files, or over the slowest where files were not measured; of the same images only."""
    steps = example_report(rows).summary.next
    found = [step.remark for step in steps if step.remark and step.remark.code == "other_layout"]
    assert [(each.facts["best"], each.facts["now"]) for each in found] == ([change] if change else [])


@pytest.mark.parametrize(
    ("rates", "change"),
    [
        ({"torch": 100, "spdl": 210, "dali": 150}, ("spdl", "torch")),
        ({"grain": 50, "spdl": 210}, ("spdl", "grain")),
        ({"torch": 100, "spdl": 103}, None),
        ({"torch": 210, "spdl": 100}, None),
    ],
    ids=["of three", "without torch", "within noise", "torch is best"],
)
def test_the_loader_that_surely_gains_most_is_the_first_change(
    rates: dict[str, float], change: tuple[str, str] | None
) -> None:
    """Over torch's, or over the slowest where that was not measured; each loader is on the first screen."""
    rows = [_row(rate, loader=name) for name, rate in rates.items()]
    report = example_report(rows)
    found = [step.remark for step in report.summary.next if step.remark and step.remark.code == "other_loader"]
    assert [(each.facts["best"], each.facts["now"]) for each in found] == ([change] if change else [])
    assert {row.key for row in rows} == set(report.summary.best)


@pytest.mark.parametrize(("gain", "first"), [(1.9, False), (1.03, True)])
def test_missing_cores_stand_above_a_gain_that_is_not_worth_a_word(gain: float, first: bool) -> None:
    """Beside full cores a sure gain of 3 % is not what to change first."""
    rows = [
        with_changes(row, advice=tuple(replace(each, speedup=min(each.speedup, gain)) for each in row.advice))
        for row in example_report().summary.configurations
        if row.bound and row.bound.cause in ("cpu", "storage")
    ]
    codes = [step.remark.code if step.remark else "" for step in example_report(rows).summary.next]
    assert codes == (["more_cores", ""] if first else ["", "more_cores"])


@pytest.mark.parametrize(
    ("causes", "codes"),
    [(["preprocessing"], ["cheaper_preprocessing"]), (["preprocessing", "storage"], [""]), (["inconclusive"], [])],
)
def test_where_no_change_has_a_forecast_what_takes_less_is_named(causes: list[str], codes: list[str]) -> None:
    """With the most that it gains; not of a row that names no cause, nor beside a forecast."""
    rows = [row for row in example_report().summary.configurations if row.bound and row.bound.cause in causes]
    found = example_report(rows).summary.next
    assert [step.remark.code if step.remark else "" for step in found] == codes
    for step in found:
        most = [row.verdict and row.verdict.speedups.preprocessing for row in rows if row.key in step.configurations]
        assert step.remark is None or [step.remark.facts["most"]] == [speedup and speedup.value for speedup in most]

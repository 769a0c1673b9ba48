"""Ranks in the report: a few by name, all as strips where they are uneven, and none where there is one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from loaderprobe.analyze.report import build_report
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.report import Report
from loaderprobe.render.document import Paragraph, Table
from loaderprobe.render.panels import rank_exhibits, rank_parts, rank_sentences
from loaderprobe.render.sweep import report_columns
from loaderprobe.testing import example_environment
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import FILES, Cost, alike
from tests.pages import html_report, terminal_report

DISK: dict[str, Any] = {
    "training": 180.0, "baseline": 176.0, "warm": 338.0, "cached_samples": 185.0, "no_transport": 181.0,
}  # fmt: skip
SLEEPING: dict[str, Any] = {
    "training": 88.0, "baseline": 86.0, "warm": 90.0, "cached_samples": 868.0, "no_transport": 88.0,
}  # fmt: skip
WAITING = Cost(blocked_s=0.05)
EVEN: dict[str, Any] = {"without": {0: 340.0, 1: 343.0}}
MANY = 12


def report_on(*measured: Measurement | RunFailure) -> Report:
    return build_report(
        name="ranks", created_utc="2026-11-21T07:00:00+00:00", command="loaderprobe sweep --ranks 1,2",
        environment=example_environment(), files=[FILES], results=[(each.config, each) for each in measured],
        ceilings={},
    )  # fmt: skip


def even(alone: tuple[float, ...] = (88.0, 88.5), **changes: Any) -> Measurement:
    return rank_run(alike(**DISK), WAITING, alone=alone, workers=2, compute=600.0, **EVEN, **changes)


def uneven(ranks: int = MANY) -> Measurement:
    alone = [37.0 if rank == 7 else 114.0 + rank for rank in range(ranks)]
    return rank_run(
        alike(**SLEEPING), Cost(), ranks=ranks, nodes=4, alone=alone, workers=2, without={7: 229.0, 0: 72.0}
    )


def test_slowest_median_and_fastest_are_named() -> None:
    """Of many ranks eight stand in the table, the slowest first; the note says how many do not."""
    table, _, left_out = rank_parts(report_on(uneven()))
    assert isinstance(table, Table) and len(table.lines) == 8
    assert isinstance(left_out, Paragraph) and left_out.text == "4 other ranks are not in the table."
    assert table.lines[0][:3] == ("7 (slowest)", "node2", "37.0")
    named = [str(line[0]) for line in table.lines if "(" in str(line[0])]
    assert named == ["7 (slowest)", "5 (median)", "11 (fastest)"]


def test_all_ranks_are_drawn_where_they_are_uneven() -> None:
    """A bar for each, in both charts; no drawing of even ones."""
    (exhibit,) = rank_exhibits(report_on(uneven()))
    paths = re.findall(r'<path d="([^"]*)" fill', exhibit.figures[0][1])
    assert [path.count("M") for path in paths] == [MANY, MANY]
    assert not list(rank_exhibits(report_on(even())))
    table, _ = rank_parts(report_on(even()))
    assert isinstance(table, Table) and len(table.lines) == 2


def test_one_rank_has_no_part_of_it() -> None:
    """No section, no sentence, and no reason for what only ranks have."""
    report = report_on(rank_run(alike(**DISK), WAITING, ranks=1, workers=2))
    assert not list(rank_parts(report)) and rank_sentences(report) == []
    text, html = terminal_report(report), html_report(report)
    assert "rank" not in text and "Ranks" not in html


def test_each_number_of_ranks_is_a_part_of_its_own() -> None:
    """The limit changes with it: with one rank it is another than with two."""
    one = rank_run(alike(**{**DISK, "training": 150.0}), WAITING, ranks=1, workers=2, compute=150.0)
    text = " ".join(terminal_report(report_on(one, even())).split())
    assert "On an emulated accelerator of 150 images/s, 500x375 is limited by" in text
    assert "On 2 ranks, each with an emulated accelerator of 300 images/s, 500x375 is limited by storage" in text
    assert "cold, 2 ranks, batch 16 a rank" in text


def test_the_answer_says_what_more_ranks_gain() -> None:
    """From one rank to the most, on the same device; nothing where there is one number of ranks."""
    one = rank_run(alike(**{**DISK, "training": 150.0}), WAITING, ranks=1, workers=2, compute=300.0)
    text = " ".join(terminal_report(report_on(one, even())).split())
    rates = r"150 ±\d+ and 180 ±\d+ images/s"
    assert re.search(f"With 1 and 2 ranks, 500x375 trains at {rates}: with 2, 1.20 times as fast as with 1\\.", text)
    assert "(for 500x375, 2 workers, 2 ranks)" in text
    assert "times as fast as with" not in terminal_report(report_on(even()))


def test_the_same_ranks_on_more_nodes_are_told_apart() -> None:
    """In the sentence of each, and in what more ranks gain."""
    text = " ".join(terminal_report(report_on(even(), even(nodes=2))).split())
    rates = r"180 ±\d+ and 180 ±\d+ images/s"
    assert re.search(f"With 2 ranks and 2 ranks on 2 nodes, 500x375 trains at {rates}: between 2 ranks and ", text)
    assert "On 2 ranks on 2 nodes, each with an emulated accelerator of 300 images/s, 500x375 is limited by" in text


def test_several_nodes_on_one_storage_are_known_then() -> None:
    """What does not follow from a run is said, and no more."""
    assert "several machines" in terminal_report(report_on(even()))
    assert "several machines" not in terminal_report(report_on(uneven()))


def test_the_terminal_says_what_is_global_first() -> None:
    """The rate of all ranks and the slow one stand on the first screen; the ranks by name stand below."""
    text = terminal_report(report_on(uneven()))
    rate = re.search(r"88\.0 ?±[\d.]+ R", text)
    assert rate and 0 < text.index("limited by slow ranks") < rate.start() < text.index("check the loader")
    assert text.index("check the loader") < text.index("slowest rank 7 (node2) 37.0")
    assert max(map(len, text.splitlines())) <= 80


def test_a_failure_names_rank_and_host() -> None:
    """Where it is known in which it began."""
    failed = RunFailure(
        config=even().config, stage="round 1: baseline loader_only", reason="a worker was killed", hint="",
        exit_code=None, signal="SIGKILL", log=(), started_utc="", wall_s=1.0, rank=1, host="node7",
    )  # fmt: skip
    text = " ".join(terminal_report(report_on(failed)).split())
    assert "a worker was killed (at: round 1: baseline loader_only, rank 1 on node7)" in text


@pytest.mark.parametrize(
    ("name", "value"), [("speedup_imbalance", 229 / 72), ("speedup_without_gradients", None), ("ranks", MANY)]
)
def test_csv_has_the_figures_of_ranks(name: str, value: float | None) -> None:
    """With their intervals, beside the options."""
    columns = report_columns(report_on(uneven()))
    assert columns[name] == [None if value is None else pytest.approx(value)]
    assert columns["bound_cause"] == ["imbalance"]

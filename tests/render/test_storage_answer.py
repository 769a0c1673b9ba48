"""The sentences on storage, on what more ranks gain, and which rates are no measurement to rank by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.answer import best_of
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Bound, Cause, Interval, Reason, Side, Speedup
from loaderprobe.render.first_page import answer_words, first_page, needs
from loaderprobe.render.wording import MISSING
from tests.examples.reports import example_report, example_row


def answers(report: Report) -> tuple[str, ...]:
    """All sentences but how sure they are, which goldens hold."""
    return tuple(answer_words(report, each) for each in report.summary.answer if each.code != "how_sure")


def row(cause: Cause = "preprocessing", side: Side = "input", **changes: Any) -> ConfigurationRow:
    """A row with this cause, of which storage is worth 4 %."""
    bound = Bound(
        side=side, cause=cause, candidates=(), reason=Reason(code="largest_speedup", facts={}), evidence=()
    )  # fmt: skip
    speedups = replace(
        example_row().verdict.speedups,  # type: ignore[union-attr]  # it was measured
        storage=Speedup(value=1.04, low=1.0, high=1.1, how="measured"),
    )
    return example_row(**{"bound": bound, "speedups": speedups, **changes})


def rate(value: float, half: float) -> Interval:
    return Interval(value=value, low=max(0.0, value - half), high=value + half)


def test_storage_is_answered_for_the_ranks_that_are_known() -> None:
    """Where the ranks that were asked for are inconclusive, nothing is known of storage with them."""
    report = example_report([row(), row("inconclusive", "inconclusive", ranks=2)])
    (storage,) = [each for each in answers(report) if each.startswith("Storage")]
    assert storage.startswith("Storage is not the limit with 1 rank: if it cost nothing, training would be at best 1.0")
    assert storage.endswith("Nothing is known of storage with 2 ranks: no configuration there is conclusive.")


def test_storage_that_is_known_with_all_ranks_is_answered_once() -> None:
    """And with one rank only, ranks are not in the sentence."""
    assert "Storage is not the limit with 1 and 2 ranks" in answers(example_report([row(), row(ranks=2)]))[-1]
    assert "rank" not in answers(example_report([row()]))[-1]
    limited = answers(example_report([row("storage"), row("storage", ranks=2)]))[-1]
    assert limited.startswith("Storage limits 2 of 2 conclusive configurations with 1 and 2 ranks")


def test_storage_that_only_a_cpu_answers_for_says_so() -> None:
    """Beside an accelerator of which nothing is conclusive."""
    rows = [row(compute="cpu", emulated=False), row("inconclusive", "inconclusive")]
    assert "Storage is not the limit on this CPU: if" in " ".join(answers(example_report(rows)))
    assert "limit on this CPU" not in " ".join(answers(example_report(rows[:1])))
    assert "limit on this CPU" not in " ".join(answers(example_report([*rows[:1], row()])))


def test_storage_that_limits_far_below_its_ceiling_limits_by_time() -> None:
    """Faster storage of the same latency would change nothing."""
    far = answers(example_report([row("storage", disk_read_bytes_per_s=3.12e6)]))[-1]
    assert far.endswith("10 times the 3.12 MB/s that training read: the time that a read takes, not bandwidth.")
    assert "bandwidth" not in answers(example_report([row("storage", disk_read_bytes_per_s=28e6)]))[-1]


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        (
            rate(142, 50),
            rate(185, 103),
            "at 142 ±50 and 185 ±103 images/s: between 1 and 2, no difference beyond noise.",
        ),
        (rate(142, 10), rate(185, 9), "at 142 ±10 and 185 ±9 images/s: with 2, 1.30 times as fast as with 1."),
    ],
)
def test_a_gain_of_ranks_within_noise_is_none(one: Interval, two: Interval, said: str) -> None:
    """The bands of both rates together are wider than their difference, or not."""
    found = answers(example_report([row(images_per_s=one), row(images_per_s=two, ranks=2)]))[-2]
    assert found.endswith(said)


def test_ranks_with_other_loaders_are_named_by_them() -> None:
    """What is compared is what is said."""
    rows = [row(images_per_s=rate(381, 2), workers=2), row(images_per_s=rate(402, 2), workers=1, ranks=2)]
    found = answers(example_report(rows))[-2]
    assert "trains at 381 ±2 (2 workers) and 402 ±2 (1 worker a rank) images/s: with 2, 1.06 times" in found


def test_a_rate_that_is_noise_is_not_the_best() -> None:
    """Unless there is no other; and then it says so."""
    noisy = row(images_per_s=rate(463, 639), workers=0)
    sound = row(images_per_s=rate(400, 20), workers=1)
    report = example_report([noisy, sound])
    assert best_of(report, report.summary.configurations) == [sound]
    (part,) = first_page(example_report([noisy])).devices
    assert [line[2] for line in part.best] == ["463 ±551, too noisy"]


def test_what_was_not_measured_is_in_the_legend_and_not_in_every_number() -> None:
    """After Ctrl-C, one number of workers is not every number."""
    waiting = row(status="skipped", reason="no time left", workers=4)
    page = first_page(example_report([row(), waiting]))
    assert f"{MISSING} not measured" in page.key and MISSING not in first_page(example_report([row()])).key
    assert "by preprocessing with 2 workers:" in page.answer[0]
    more = first_page(example_report([row(), row(workers=1), waiting])).answer[0]
    assert "with every number of workers measured:" in more


def test_a_specified_rate_is_known_before_it_is_measured() -> None:
    """Of an emulated accelerator with a number for a name."""
    (part,) = first_page(example_report([row(status="failed", reason="it broke", compute="emulated:300")])).devices
    assert "alone 300 images/s (specified)" in part.title


def test_the_data_set_without_a_rate_of_storage_is_named() -> None:
    """Beside one that has a rate; where none has, there is nothing to tell apart."""
    report = example_report([row(), row(resolution="500x375")])
    first, second = report.summary.needs
    missing = replace(second, supply=None, missing=Remark(code="no_ceiling", facts={}))
    (table,) = needs(replace(report, summary=replace(report.summary, needs=(first, missing))))
    assert "No rate of this storage for 500x375: " in table.note
    (table,) = needs(replace(report, summary=replace(report.summary, needs=(missing,))))
    assert "No rate of this storage: " in table.note

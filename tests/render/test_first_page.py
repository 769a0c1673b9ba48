"""The first page: what was examined, the answer, the map, what to do next, what accelerators would ask."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.answer import answered
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Bottleneck, Bound, Cause, Interval, Reason, Side, Speedup
from loaderprobe.render.first_page import answer_words, first_page
from loaderprobe.render.forecast_words import forecast_words
from loaderprobe.render.groups import groups
from loaderprobe.render.limits import gain_words, limit_map, used_words
from loaderprobe.render.remarks import WORDS
from loaderprobe.render.wording import MISSING, named
from tests.examples.reports import example_report, example_row


def answers(report: Report) -> tuple[str, ...]:
    """All sentences but how sure they are, which goldens hold."""
    return tuple(answer_words(report, each) for each in report.summary.answer if each.code != "how_sure")


def bound(side: Side, cause: Cause, candidates: tuple[str, ...] = ()) -> Bound:
    return Bound(
        side=side, cause=cause, candidates=candidates, reason=Reason(code="largest_speedup", facts={}), evidence=()
    )


def limited(cause: Cause, **changes: object) -> ConfigurationRow:
    return example_row(bound=bound("input", cause), **changes)


def test_a_next_limit_of_storage_is_explained() -> None:
    """Beside `then limited by storage` stands that it is not the first limit, but the next of that data set."""
    speedups = replace(
        example_row().verdict.speedups,  # type: ignore[union-attr]  # it was measured
        storage=Speedup(value=1.04, low=1.0, high=1.1, how="measured"),
    )
    rows = [limited("cpu", speedups=speedups, resolution=name) for name in ("500x375", "1024x768")]
    report = example_report(rows)
    then: tuple[Bottleneck, ...] = ("compute", "storage")
    details = tuple(replace(d, then={"preprocessing": t}) for d, t in zip(report.details, then, strict=True))
    storage = answers(answered(replace(report, details=details)))[-1]
    assert storage.startswith("Storage is not the first limit: ")
    assert storage.endswith(". If preprocessing cost nothing, storage would limit 1024x768 next.")


def test_an_inconclusive_run_is_measured_longer_first() -> None:
    """Where time was short; advice that rests on its estimates does not lead."""
    open_still = replace(
        bound("inconclusive", "inconclusive"), reason=Reason(code="estimate_not_measured", facts={})
    )  # fmt: skip
    changes = first_page(example_report([example_row(bound=open_still)])).changes
    assert [each.words for each in changes] == [
        "measure longer: no configuration is conclusive yet; try it: --budget 360"
    ]
    misfit = replace(open_still, reason=Reason(code="outside_noise_band", facts={}))
    assert first_page(example_report([example_row(bound=misfit)])).changes == ()
    on_cpu = example_row(bound=open_still, compute="cpu", emulated=False)
    assert [each.text[:8] for each in first_page(example_report([on_cpu])).changes] == [
        "measure ",
        WORDS["train_on_emulated"][:8],
    ]
    sure = [limited("storage"), example_row(bound=open_still, workers=8)]
    assert not any("longer" in each.text for each in first_page(example_report(sure)).changes)


def test_the_title_is_what_was_examined() -> None:
    """Data, storage, machine and day."""
    assert first_page(example_report()).title == (
        "256x256 to 1024x768 (generated) on ext4 (vdb), 2 cores, no GPU, 2026-11-21"
    )


def test_one_cause_everywhere_is_one_clause() -> None:
    """Over all data sets and numbers of workers, with what training reaches."""
    rows = [limited("cpu", workers=workers, resolution=name) for workers in (2, 4) for name in ("256x256", "500x375")]
    (device, storage) = answers(example_report(rows))
    assert device == (
        "On an emulated mlperf-h100, 256x256 and 500x375 are limited by preprocessing with every number of workers "
        "tried: at best, training reaches 3.5 % of its rate, with both cores busy from 2 workers on."
    )
    assert storage.startswith("Storage is not the first limit: if it cost nothing, training would be at best 2.81 ")


def test_cores_are_busy_from_the_numbers_of_each_data_set_on() -> None:
    """And what training reaches is of the settings in the table of the best."""
    rows = [
        limited("preprocessing", workers=2, resolution="256x256"),
        limited("cpu", workers=4, resolution="256x256"),
        limited("cpu", workers=2, resolution="500x375"),
    ]
    assert "with both cores busy from 2 to 4 workers on" in answers(example_report(rows))[0]


def test_storage_that_hardly_matters_is_cleared_in_as_many_words() -> None:
    """By the ablation, and by how much more it gave than training read."""
    speedups = example_row().verdict.speedups  # type: ignore[union-attr]  # it was measured
    little = replace(speedups, storage=Speedup(value=1.04, low=1.0, high=1.1, how="measured"))
    row = limited("cpu", speedups=little, disk_read_bytes_per_s=3.12e6)
    assert answers(example_report([row]))[-1] == (
        "Storage is not the limit: if it cost nothing, training would be at best 1.04 times as fast "
        "(1024x768, 2 workers; up to 1.1 within noise); alone it gave 31.2 MB/s, 10 times the 3.12 MB/s that training "
        "read."
    )


@pytest.mark.parametrize(("gain", "words"), [(1.002, "no faster (1"), (1.006, "at best 1.01 times as fast (1")])
def test_a_gain_that_rounds_to_one_is_none(gain: float, words: str) -> None:
    """1.00 times as fast says nothing."""
    speedups = example_row().verdict.speedups  # type: ignore[union-attr]  # it was measured
    little = replace(speedups, storage=Speedup(value=gain, low=1.0, high=1.1, how="measured"))
    row = limited("cpu", speedups=little, disk_read_bytes_per_s=3.12e6)
    assert f"if it cost nothing, training would be {words}" in answers(example_report([row]))[-1]


def test_several_causes_are_listed_with_their_workers() -> None:
    """Serial by storage, more by decoding."""
    rows = [limited("storage", workers=0), limited("preprocessing", workers=2), limited("cpu", workers=4)]
    (device, storage) = answers(example_report(rows))
    clause = "1024x768 is limited by storage with the serial loader and by preprocessing with 2 and 4 workers: at best"
    assert clause in device
    assert storage.startswith("Storage limits 1 of 3 conclusive configurations")


def test_storage_that_cannot_be_separated_may_be_the_limit() -> None:
    """Beside the configurations that it limits for certain, or alone."""
    unsure = example_row(workers=4, bound=bound("input", "either", ("storage", "preprocessing")))
    assert "Storage may limit 1 of 1 conclusive" in answers(example_report([unsure]))[-1]
    both = answers(example_report([limited("storage"), unsure]))[-1]
    assert "Storage limits 1 of 2 conclusive configurations, and may limit 1 more" in both


def test_a_cpu_says_that_nothing_follows_for_a_gpu() -> None:
    """And what to run instead."""
    row = example_row(compute="cpu", emulated=False, bound=bound("compute", "compute"))
    page = first_page(example_report([row]))
    assert page.answer[0] == "On this CPU, training itself is the limit, at 63.4 images/s: nothing follows for a GPU."
    assert [each.text for each in page.changes] == [WORDS["train_on_emulated"]]


def test_warm_files_say_nothing_of_storage() -> None:
    """Nothing was read from it."""
    assert "nothing follows for storage" in answers(example_report([limited("cpu", cache="warm")]))[-1]


def test_an_inconclusive_row_is_not_counted_as_an_answer() -> None:
    """Where nothing is conclusive, the page says that."""
    row = example_row(bound=bound("inconclusive", "inconclusive"))
    assert answers(example_report([row])) == ("On an emulated mlperf-h100, no configuration is conclusive.",)


def test_the_map_has_a_cell_for_each_configuration() -> None:
    """Letters of both candidates; nothing where nothing was asked, no letter for what was skipped."""
    rows = [
        example_row(workers=0, bound=bound("inconclusive", "either", ("storage", "compute"))),
        example_row(workers=2, resolution="500x375"),
        example_row(workers=4, status="skipped", reason="no time left"),
    ]
    found = limit_map(groups(example_report(rows))[0])
    assert found.workers == ("serial", "2", "4")
    cells = dict(found.lines)
    assert [cell and cell.letters for cell in cells["1024x768"]] == ["S/C", None, ""]
    assert [cell and cell.letters for cell in cells["500x375"]] == [None, "S", None]
    assert found.key == "C compute; S storage"


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.39, "39 %"), (1.0, "100 %"), (1.02, "~100 %"), (1.09, "~100 %"), (1.37, "137 %"), (None, MISSING)],
)
def test_more_than_all_of_compute_is_noise(share: float | None, words: str) -> None:
    """Up to a tenth; more is shown as it is."""
    assert used_words(example_row(accelerator_utilization=share), beside_rate=False) == words


def test_the_next_limit_stands_beside_a_speedup() -> None:
    """And is left out where it is not known; an inconclusive row has neither."""
    row = example_row()
    assert gain_words(row, {"storage": "cores"}) == "storage 2.81x → CPU cores"
    assert gain_words(row, {}) == "storage 2.81x"
    assert gain_words(example_row(bound=bound("inconclusive", "inconclusive")), {"storage": "cores"}) == "inconclusive"


def test_advice_that_may_make_it_worse_says_so_once() -> None:
    """The range of a forecast reaches below the rate as it is."""
    (advice, *_) = example_row().advice
    sure = forecast_words([advice])
    doubtful = replace(advice, after=Interval(value=advice.after.value, low=1.0, high=advice.after.high))
    assert "certain" not in sure
    assert forecast_words([doubtful]).startswith("not certain, probably ")
    assert forecast_words([doubtful, doubtful]).count("not certain") == 1


def test_a_forecast_that_says_little_is_worded_as_one() -> None:
    """A range of more than a quarter up and down: about so much, and from what to what factor."""
    (advice, *_) = example_row().advice
    before = Interval(value=200.0, low=195.0, high=205.0)
    for low, words in (
        (320.0, "200 → 400 images/s (320 to 480), 2.00x"),
        (260.0, "200 → about 400 images/s (260 to 480)"),
    ):
        after = Interval(value=400.0, low=low, high=480.0)
        found = forecast_words([replace(advice, before=before, after=after, speedup=2.0)])
        assert found.startswith(words)


def test_full_cores_are_answered_with_the_cores_that_are_needed() -> None:
    """Before any other change, beside what this machine has."""
    (first, *_) = first_page(example_report([limited("cpu")])).changes
    assert first.text == (
        "more cores: one mlperf-h100 needs 6.5 (estimated), 8 need 52 and 64 need 420; this machine has 2; then "
        "compute would be the limit"
    )


def test_needs_stand_beside_what_this_storage_gives() -> None:
    """1, 8 and 64 accelerators, with the utilization they are for and where their rate comes from."""
    (needs,) = first_page(example_report([example_row()])).needs
    assert needs.head[1:4] == ("1 x", "8 x", "64 x")
    assert needs.lines == (("1024x768", "772 MB/s", "6.17 GB/s", "49.4 GB/s", "31.2 MB/s", "0.032", "6.5"),)
    assert "at 90 % of 1786 images/s" in needs.title and "0.224 s per batch of 400" in needs.title
    assert "2 here" in needs.note and "they open 1,610, 12,900 and 103,000 files a second" in needs.note


def test_a_rate_as_a_name_reads_as_accelerators_of_that_rate() -> None:
    """`one 500` is no accelerator."""
    assert named("500") == "one accelerator of 500 images/s" and named("mlperf-h100") == "one mlperf-h100"
    assert named("500", "1, 8 and 64") == "1, 8 and 64 accelerators of 500 images/s"

"""What `tune workers` says: the setting, what noise leaves, what limits, and what was not measured."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.records.environment import Origin
from loaderprobe.records.tune_workers import WorkersReport, WorkersRow, WorkersSetting, WorkersVisit
from loaderprobe.records.verdict import Interval
from loaderprobe.render.terminal import document_text
from loaderprobe.render.tune_workers import tuning_columns, tuning_document, tuning_exhibits, tuning_line
from loaderprobe.testing import example_environment
from tests.said import quoted


def _around(value: float, share: float) -> Interval:
    return Interval(value=value, low=value * (1 - share), high=value * (1 + share))


SERIAL = WorkersSetting(workers=0, prefetch_factor=0)
ONE, FOUR, SIX = (WorkersSetting(workers=count, prefetch_factor=2) for count in (1, 4, 6))
REPORT = WorkersReport(
    origin=Origin(created_utc="2026-11-22T10:00:00+00:00", command="test", environment=example_environment()),
    data="Photos", device="GPU", sample="image", batch_size=32, cores_available=8.0, files_were="cold", iterable=False,
    own=ONE, chosen=FOUR, images_per_s=_around(812.0, 0.01), speedup=_around(1.9, 0.01), limit="unknown",
    stop="decided",
    rows=(
        WorkersRow(setting=SERIAL, state="closed", closed="forecast", at_most=0.3),
        WorkersRow(setting=ONE, state="measured", visits=3, images_per_s=_around(430.0, 0.01),
                   over_chosen=_around(0.53, 0.01), paired=True),
        WorkersRow(setting=FOUR, state="chosen", visits=4, images_per_s=_around(812.0, 0.01),
                   over_chosen=Interval(value=1.0, low=1.0, high=1.0), paired=True),
        WorkersRow(setting=SIX, state="closed", closed="cores", at_most=1.01),
    ),
    visits=(WorkersVisit(setting=FOUR, turn=0, images_per_s=812.0, compute_images_per_s=850.0, cores_in_use=7.9,
                         thread_share=0.9, blocked_share=0.7),),
    grid_visits=57, loader_class="DataLoader", options={"batch_size": "32", "shuffle": "True"}, wall_s=60.0,
)  # fmt: skip


def _text(**changes: Any) -> str:
    return " ".join(document_text(tuning_document(replace(REPORT, **changes))).split())


def test_the_answer_comes_first() -> None:
    """The setting, its rate, the speed-up, what more workers bring, and the line to paste."""
    assert _text().startswith(
        "4 workers, prefetch factor 2: 812 images/s Use 4 workers, prefetch factor 2: 812 images/s, 1.9 times as fast "
        "as your 1 worker. More workers would not be faster by more than 2 %."
    )
    line = "DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4, prefetch_factor=2, persistent_workers=True)"
    assert tuning_line(REPORT) == line and line in _text()


def test_the_own_setting_may_be_the_best_or_there_may_be_none() -> None:
    """Then nothing is gained, or not known."""
    assert "Keep your setting, 4 workers, prefetch factor 2: 812 images/s." in _text(own=FOUR, speedup=None)
    assert "Use 4 workers, prefetch factor 2: 812 images/s. More" in _text(own=None, speedup=None)
    assert "812 images/s, as fast as your 1 worker." in _text(speedup=_around(1.01, 0.01))
    assert "1.9 times as fast as your serial loader" in _text(own=SERIAL)
    four = WorkersSetting(workers=4, prefetch_factor=8)
    assert "1.9 times as fast as with your prefetch factor 8" in _text(own=four)
    assert "Use the serial loader (num_workers=0): 812" in _text(
        own=None, speedup=None, chosen=SERIAL, visits=(replace(REPORT.visits[0], setting=SERIAL),)
    )


def test_noise_and_time_are_said() -> None:
    """What could not be separated, and what was not measured."""
    six = WorkersRow(
        setting=SIX, state="measured", visits=4, images_per_s=_around(815.0, 0.05), over_chosen=_around(1.0, 0.05),
        paired=True,
    )  # fmt: skip
    alike = _text(rows=(*REPORT.rows[:-1], six), stop="alike")
    assert "Between 4 and 6 workers no difference larger than 5 % was seen, so the smallest is chosen." in alike
    assert "100 % (95 to 105)" in alike and "A larger budget narrows that." not in alike
    assert "A larger budget narrows that." in _text(rows=(*REPORT.rows[:-1], six), stop="budget")
    late = _text(rows=(*REPORT.rows[:-1], replace(REPORT.rows[-1], closed="budget", at_most=None)), stop="budget")
    assert "The time was up before 6 workers could be measured" in late and "More workers would" not in late


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("compute", "Compute is the limit there: without loading, it trains 850 images/s."),
        ("cores", "The CPU cores are the limit there: workers and training keep 7.9 of 8.0 busy."),
        ("transport", "receiving batches takes 90 % of its time."),
        ("workers", "4 workers are the most that were considered, and the rate may still rise"),
        ("storage", "There the workers wait 70 % of their time for storage."),
        ("lock", "70 % of their time for a lock that one worker holds at a time."),
    ],
)
def test_the_limit_is_said_with_its_figure(limit: Any, says: str) -> None:
    """By what was measured at the chosen setting."""
    assert says in _text(limit=limit)


def test_what_the_machine_and_the_loader_change_is_said() -> None:
    """Other processes, warm files, iterables, notes."""
    busy = replace(REPORT.visits[0], cores_in_use=3.0, core_wait_share=0.4)
    assert "Other processes used the cores meanwhile: workers waited up to 40 %" in _text(visits=(busy,))
    assert "Files came from memory" in _text(files_were="warm")
    assert "get_worker_info" in _text(iterable=True)
    assert "Batches differ in length." in _text(notes=(quoted("batches differ in length"),))
    failed = WorkersRow(setting=SIX, state="failed", failure="a loader worker was killed", hint="use fewer")
    text = _text(rows=(*REPORT.rows[:-1], failed))
    assert "6 workers failed: the reason stands below." in text
    assert "failed: a loader worker was killed" in text and "What helps: use fewer" in text


def test_table_and_chart_have_every_setting() -> None:
    """Those without a rate are rows, not bars."""
    columns = tuning_columns(REPORT)
    assert columns["workers"] == [0, 1, 4, 6] and columns["images_per_s"][0] is None
    ((exhibit,),) = tuning_exhibits(REPORT).values()
    ((_, svg),) = exhibit.figures
    bars = re.findall(r'<path d="([^"]*)" fill="#', svg)
    assert [each.count("z") for each in bars] == [1, 1] and "compute alone 850" in svg

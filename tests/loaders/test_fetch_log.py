"""The log that workers write and the parent reads, and the switch in its head."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaderprobe.loaders.worker_probe import ROWS, FetchLog


def test_the_switch_and_the_pool_are_seen_by_whoever_has_the_log_open(tmp_path: Path) -> None:
    """It begins in the baseline with no pool; what the parent sets, a worker reads."""
    log = FetchLog.create(tmp_path / "log", 2)
    parent, worker = log.open("r+"), log.open("r+")
    assert (worker.mode, worker.pool) == ("baseline", 0)
    parent.mode, parent.pool = "cached_samples", 12
    assert (worker.mode, worker.pool) == ("cached_samples", 12)


@pytest.mark.parametrize(
    ("started_ns", "complete", "before"),
    [(100, True, True), (100, False, True), (300, True, False), (300, False, False)],
)
def test_what_was_begun_before_a_switch_is_known(tmp_path: Path, started_ns: int, complete: bool, before: bool) -> None:
    """A batch counts from when its worker began it, whether it is ready or still being made."""
    log = FetchLog.create(tmp_path / "log", 2).open("r+")
    row = log.rows[1, 2]
    row[1] = started_ns
    row[0] = 6 if complete else -6
    assert log.begun_before(4, 4, 200) is before
    assert not log.begun_before(6, 4, 200)


def test_a_row_of_an_older_batch_in_the_same_place_does_not_count(tmp_path: Path) -> None:
    """Rows are used again after 8192 batches of a lane; only the number shows whose a row is."""
    log = FetchLog.create(tmp_path / "log", 1).open("r+")
    log.rows[0, 3, :2] = (4, 100)
    assert log.begun_before(3, 1, 200)
    assert not log.begun_before(3 + ROWS, 1, 200)


def test_unfinished_rows_are_not_read(tmp_path: Path) -> None:
    """A batch in the making has no record yet."""
    log = FetchLog.create(tmp_path / "log", 1).open("r+")
    log.rows[0, 0] = (1, 10, 20, 15, 2, 4096, 8, 5, 1, 16)
    log.rows[0, 1, :2] = (-2, 30)
    found = log.read()
    assert found.batch == (0,)
    assert (found.wall_ns, found.collate_ns, found.instrument_ns) == ((20,), (5,), (1,))

"""In which rank it began, from how each ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loaderprobe.measure.ranks.launch import failure_of, is_consequence, origin_of
from loaderprobe.measure.runner import Order
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.ranks import SeatEnd
from loaderprobe.testing import example_config, example_files

GONE = "another rank has gone, or does not answer (Connection closed by peer [10.0.0.1]:1)"
BARRIER = "[Rank 0]: Ranks 2 failed to pass monitoredBarrier in 60000 ms"


def end(rank: int, kind: Any = "ended", **given: Any) -> SeatEnd:
    """Of one rank, at the stage at which the others are unless given."""
    return SeatEnd(**{"rank": rank, "host": f"host{rank}", "kind": kind, "stage": "round 1", "events": 5, **given})


def lost(rank: int, **given: Any) -> SeatEnd:
    """Of a rank that failed because another had gone."""
    return end(rank, "failed", consequence=True, reason=GONE, exit_code=1, **given)


def failure(*ends: SeatEnd) -> RunFailure:
    """The record of them."""
    files = example_files(16)
    order = Order(config=example_config(data=files.fingerprint), files=files, budget_s=None, begin_ns=0)
    return failure_of(order, ends, started_utc="2026-11-22T00:00:00+00:00", wall_s=1.0)


def test_a_rank_that_was_killed_is_named_with_its_signal() -> None:
    """Though another failed first, which had only lost it."""
    killed = end(1, "failed", reason="killed by SIGKILL", signal="SIGKILL", stage="round 2", log=("last words",))
    found = failure(lost(0, first=True), killed, end(2))
    assert (found.rank, found.host, found.signal, found.stage) == (1, "host1", "SIGKILL", "round 2")
    assert found.log == ("last words",)


def test_a_rank_that_raised_is_named_with_its_reason() -> None:
    """Of several that raised, the first."""
    found = failure(lost(0), end(1, "failed", reason="ValueError: no"), end(2, "failed", reason="B", first=True))
    assert (found.rank, found.reason) == (2, "B")
    found = failure(lost(0, first=True), end(1, "failed", reason="ValueError: no", hint="repair it", exit_code=1))
    assert (found.rank, found.reason, found.hint, found.exit_code) == (1, "ValueError: no", "repair it", 1)


def test_a_rank_that_hung_did_not_answer() -> None:
    """The signal that its own process sent it is no reason; its last stage is kept."""
    hung = end(1, stage="joining the ranks", reason="killed by SIGKILL", signal="SIGKILL")
    found = failure(lost(0, first=True), hung)
    assert (found.rank, found.host, found.signal, found.exit_code) == (1, "host1", None, None)
    assert found.reason == "did not answer, ended because rank 0 could not go on, which was at: round 1"
    assert found.stage == "joining the ranks"
    assert "SIGKILL" not in found.hint
    there = failure(lost(0, first=True), replace(hung, stage="round 1"))
    assert there.reason == "did not answer, ended because rank 0 could not go on", "the record has the stage"


def test_of_several_that_were_ended_the_one_behind_the_others_hung() -> None:
    """Who reported less than all others; without such a one, none is named, and all that were silent are."""
    assert failure(lost(0, first=True), end(1), end(2, events=3), end(3)).rank == 2
    found = failure(lost(0, first=True), end(1), end(2))
    assert (found.rank, found.host) == (None, "")
    assert found.reason == f"{GONE}; ranks 1 and 2 did not answer"


def test_the_ranks_that_wait_name_the_one_that_is_missing() -> None:
    """It comes before what any other says."""
    waits = end(0, "failed", consequence=True, reason="it failed", log=("x", BARRIER), first=True)
    assert failure(waits, end(1), end(2)).rank == 2
    says = "another rank has gone, or does not answer: {} (Connection closed by peer)"
    assert failure(replace(waits, log=(), reason=says.format("rank 2")), end(1), end(2)).rank == 2
    assert failure(replace(waits, log=(), reason=says.format("ranks 1 and 2")), end(1, events=1), end(2)).rank == 1
    late = failure(waits, end(1), lost(2))
    assert (late.rank, late.reason) == (2, "did not come in time: it failed")


def test_a_process_that_gives_no_word_is_lost() -> None:
    """With its host: nothing else is known of it."""
    found = failure(lost(0, first=True), end(1), end(2, "lost", stage="", events=0))
    assert (found.rank, found.host, found.stage) == (2, "host2", "round 1")
    assert "does not answer" in found.reason


def test_a_timeout_is_a_rank_s_only_where_one_is_behind() -> None:
    """The others run into it as well."""
    late = end(0, "timeout", reason="timeout: not finished after 9 s", first=True)
    assert failure(late, end(1), end(2)).rank is None
    assert failure(late, end(1), end(2)).reason == "timeout: not finished after 9 s"
    behind = failure(late, end(1, events=2), end(2))
    assert (behind.rank, behind.reason) == (1, "timeout: not finished after 9 s; it was behind the other ranks")


def test_what_is_a_consequence() -> None:
    """The words of gloo and of ourselves; not those of a data set."""
    assert is_consequence(GONE) and is_consequence("RuntimeError: [../pair.cc:5] Connection reset by peer")
    assert not is_consequence("FileNotFoundError: connection.jpg")
    assert not is_consequence("the data set raised in a worker: OSError: [Errno 104] Connection reset by peer")
    assert not is_consequence("ConnectionResetError: [Errno 104] Connection reset by peer")
    ended = ("terminate called", "what(): [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)")
    assert is_consequence("the measuring process was killed by SIGABRT", ended)
    assert not is_consequence("the measuring process was killed by SIGABRT", ("double free or corruption",))
    assert origin_of([lost(0, first=True), lost(1)]) is None

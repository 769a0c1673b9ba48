"""Ranks take over all at one step, or none does and all hear why. No rank waits for one that may not come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.measure.attach.script_ranks import AHEAD, PATIENCE_S, TURN_S, TakeOver
from loaderprobe.records.ranks import Apart, RankOffer
from loaderprobe.testing import FakeClock, FakeStore

OFFER = RankOffer(loader=0, batch_size=8, workers=2, prefetch_factor=2, period=1)


class Meeting:
    """Some ranks, whose turns a test gives."""

    def __init__(self, size: int = 2) -> None:
        self.store, self.clock = FakeStore(), FakeClock()
        self.ranks = [TakeOver(self.store, rank, size, self.clock) for rank in range(size)]

    def steps(self, first: int, last: int, ranks: tuple[int, ...] = (0, 1)) -> dict[int, int]:
        """Every rank asks before each of these passes; the pass at which each took over."""
        taken: dict[int, int] = {}
        for passes in range(first, last):
            for rank in ranks:
                if rank not in taken and self.ranks[rank].ask(passes, OFFER):
                    taken[rank] = passes
        return taken


@pytest.mark.parametrize("ranks", [(0, 1), (0, 1, 2)])
def test_all_take_over_at_the_same_step(ranks: tuple[int, ...]) -> None:
    """Some steps after the last has offered its loader."""
    meeting = Meeting(len(ranks))
    taken = meeting.steps(8, 40, ranks)
    assert set(taken) == set(ranks)
    assert len(set(taken.values())) == 1 and 8 + AHEAD <= taken[0] <= 9 + AHEAD


def test_a_rank_that_is_ahead_waits_for_the_word_of_rank_0() -> None:
    """It polls at the step, and rank 0 comes meanwhile."""
    meeting = Meeting()
    assert not meeting.steps(8, 12)
    named = meeting.ranks[0].named
    assert named is not None
    meeting.steps(12, named.passes)

    def sleep(seconds: float) -> None:
        meeting.clock._now_ns += round(seconds * 1e9)
        assert meeting.ranks[0].ask(named.passes, OFFER)

    meeting.ranks[1].clock = type("Polled", (), {"now_ns": meeting.clock.now_ns, "sleep": staticmethod(sleep)})()
    assert meeting.ranks[1].ask(named.passes, OFFER)


def test_a_rank_without_a_loader_holds_up_no_step() -> None:
    """Rank 0 trains on, and after some time all have the reason."""
    meeting = Meeting(3)
    meeting.ranks[2].ask(8, OFFER)
    assert not meeting.steps(8, 60, (0,)) and meeting.ranks[0].apart is None
    meeting.clock.sleep(PATIENCE_S + 1)
    assert not meeting.ranks[0].ask(60, OFFER)
    assert meeting.ranks[0].apart == Apart(code="silent", ranks=(1,))
    assert not meeting.ranks[2].ask(60, OFFER)
    assert meeting.ranks[2].apart == meeting.ranks[0].apart


def test_the_script_may_end_before() -> None:
    """Then the silent rank is named, or the one that ended."""
    meeting = Meeting()
    meeting.steps(8, 10, (0,))
    meeting.ranks[0].end()
    assert meeting.ranks[0].apart == Apart(code="silent", ranks=(1,))
    meeting = Meeting()
    meeting.steps(8, 10)
    meeting.ranks[1].end()
    assert not meeting.ranks[0].ask(10, OFFER)
    assert meeting.ranks[0].apart == Apart(code="ended", ranks=(1,))


def test_a_rank_that_refuses_is_heard_by_all() -> None:
    """Before a step is named, and after."""
    for before in (8, 12):
        meeting = Meeting()
        meeting.steps(8, before)
        meeting.ranks[1].refuse(Apart(code="other_thread", ranks=(1,)))
        assert not meeting.steps(before, 40)
        assert {each.apart for each in meeting.ranks} == {Apart(code="other_thread", ranks=(1,))}


def test_who_refuses_too_late_takes_over_with_the_others() -> None:
    """The word is final."""
    meeting = Meeting()
    assert len(meeting.steps(8, 40)) == 2
    meeting.ranks[1].refuse(Apart(code="other_thread", ranks=(1,)))
    assert meeting.ranks[1].agreed and meeting.ranks[1].apart is None


def test_loaders_must_be_alike() -> None:
    """The settings that differ are named."""
    meeting = Meeting()
    meeting.ranks[1].ask(8, replace(OFFER, batch_size=4, loader=1))
    meeting.ranks[0].ask(8, OFFER)
    assert meeting.ranks[0].apart == Apart(code="loaders_differ", ranks=(1,), detail="batch_size")


def test_ranks_out_of_step_go_on() -> None:
    """One that hears of the step when it has passed it, one that never hears, and one whom rank 0 leaves waiting."""
    meeting = Meeting()
    meeting.ranks[1].ask(8, OFFER)
    meeting.steps(8, 9, (0,))
    meeting.ranks[1].ask(50, OFFER)
    assert meeting.ranks[1].apart == Apart(code="out_of_step", ranks=(1,))
    meeting = Meeting()
    meeting.ranks[1].ask(8, OFFER)
    meeting.steps(8, 40, (0,))
    assert meeting.ranks[0].apart == Apart(code="out_of_step", ranks=(1,))
    meeting = Meeting()
    meeting.steps(8, 10)
    begin_ns = meeting.clock.now_ns()
    meeting.steps(10, 40, (1,))
    assert meeting.ranks[1].apart == Apart(code="out_of_step", ranks=(0,))
    assert TURN_S <= (meeting.clock.now_ns() - begin_ns) / 1e9 < TURN_S + 1

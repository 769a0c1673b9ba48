"""A loop and a session take turns; ranks take over all at one step, or none does and all hear why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.measure.attach.script_ranks import AHEAD, PATIENCE_S, TURN_S, TakeOver
from loaderprobe.measure.attach.turns import GivenUp, LoopTurns
from loaderprobe.measure.session import Interrupted
from loaderprobe.records.ranks import Apart, RankOffer
from loaderprobe.testing import FakeClock, FakeStore

OFFER = RankOffer(loader=0, batch_size=8, workers=2, prefetch_factor=2, period=1)
OTHER_THREAD = Apart(code="other_thread", ranks=(1,))
Step = Callable[[Any], None]


def test_an_interruption_reaches_the_step_that_it_disturbed() -> None:
    """With the first of its reasons; the steps before it are counted."""
    seen: list[tuple[int, str, int]] = []

    def session(step: Step) -> None:
        for batch in range(4):
            try:
                step(batch)
            except Interrupted as why:
                seen.append((batch, str(why), why.steps))

    turns = LoopTurns(session)
    for _ in range(3):
        turns.next()
    turns.interrupt("validation")
    turns.interrupt("next epoch")
    turns.next()
    assert (seen, turns.undisturbed) == ([(2, "validation", 3)], 1)


def test_a_session_concludes_when_the_loop_does_not_come_back() -> None:
    """What it returns then is the result; without a step there is nothing to conclude from."""

    def session(step: Step) -> str:
        try:
            step(1)
        except GivenUp:
            return "from what there is"
        return "complete"

    turns = LoopTurns(session)
    turns.give_up()
    assert turns.result is None
    assert turns.next() == 1
    turns.give_up()
    found: Any = turns.result
    assert found == "from what there is" and turns.over


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

    @property
    def apart(self) -> list[Apart | None]:
        return [rank.apart for rank in self.ranks]


@pytest.mark.parametrize("ranks", [(0, 1), (0, 1, 2)])
def test_all_take_over_at_the_same_step(ranks: tuple[int, ...]) -> None:
    """Some steps after the last has offered its loader. Who refuses too late takes over with the others."""
    meeting = Meeting(len(ranks))
    taken = meeting.steps(8, 40, ranks)
    assert set(taken) == set(ranks)
    assert len(set(taken.values())) == 1 and 8 + AHEAD <= taken[0] <= 9 + AHEAD
    meeting.ranks[1].refuse(OTHER_THREAD)
    assert meeting.ranks[1].agreed and meeting.ranks[1].apart is None


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
    """Rank 0 trains on, and after some time, or when its script ends, all have the reason."""
    meeting = Meeting(3)
    meeting.ranks[2].ask(8, OFFER)
    assert not meeting.steps(8, 60, (0,)) and meeting.ranks[0].apart is None
    meeting.clock.sleep(PATIENCE_S + 1)
    assert not meeting.ranks[0].ask(60, OFFER) and not meeting.ranks[2].ask(60, OFFER)
    assert meeting.apart[::2] == [Apart(code="silent", ranks=(1,))] * 2
    meeting = Meeting()
    meeting.steps(8, 10, (0,))
    meeting.ranks[0].end()
    assert meeting.ranks[0].apart == Apart(code="silent", ranks=(1,))


def ends(meeting: Meeting) -> None:
    meeting.steps(8, 10)
    meeting.ranks[1].end()
    meeting.steps(10, 12, (0,))


def refuses(meeting: Meeting, at: int = 12) -> None:
    meeting.steps(8, at)
    meeting.ranks[1].refuse(OTHER_THREAD)
    assert not meeting.steps(at, 40)


def differs(meeting: Meeting) -> None:
    meeting.ranks[1].ask(8, replace(OFFER, batch_size=4, loader=1))
    meeting.ranks[0].ask(8, OFFER)


def passes_it(meeting: Meeting) -> None:
    """It hears of the step when it has passed it."""
    meeting.ranks[1].ask(8, OFFER)
    meeting.steps(8, 9, (0,))
    meeting.ranks[1].ask(50, OFFER)


def never_hears(meeting: Meeting) -> None:
    meeting.ranks[1].ask(8, OFFER)
    meeting.steps(8, 40, (0,))


def is_left_waiting(meeting: Meeting) -> None:
    """By rank 0, for a turn."""
    meeting.steps(8, 10)
    begin_ns = meeting.clock.now_ns()
    meeting.steps(10, 40, (1,))
    assert TURN_S <= (meeting.clock.now_ns() - begin_ns) / 1e9 < TURN_S + 1


@pytest.mark.parametrize(
    ("trouble", "apart"),
    [
        (ends, [Apart(code="ended", ranks=(1,)), None]),
        (refuses, [OTHER_THREAD, OTHER_THREAD]),
        (lambda meeting: refuses(meeting, at=8), [OTHER_THREAD, OTHER_THREAD]),
        (differs, [Apart(code="loaders_differ", ranks=(1,), detail="batch_size"), None]),
        (passes_it, [None, Apart(code="out_of_step", ranks=(1,))]),
        (never_hears, [Apart(code="out_of_step", ranks=(1,)), None]),
        (is_left_waiting, [None, Apart(code="out_of_step", ranks=(0,))]),
    ],
)
def test_ranks_that_cannot_be_measured_together_go_on(
    trouble: Callable[[Meeting], None], apart: list[Apart | None]
) -> None:
    """Who hears of it has the reason; no rank waits for one that may not come."""
    meeting = Meeting()
    trouble(meeting)
    assert [found if expected else None for found, expected in zip(meeting.apart, apart, strict=True)] == apart

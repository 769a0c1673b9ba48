"""Sessions whose step is a loop, of one process and of ranks in threads: what disturbs a segment voids it for all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.compute.step import StepCompute
from loaderprobe.errors import BadValue, LostRank
from loaderprobe.measure.attach.coroutine import SessionCoroutine, Withdrawn
from loaderprobe.measure.attach.script_ranks import ScriptCollectives
from loaderprobe.measure.further import CUT_SHORT
from loaderprobe.measure.ranks.child import RankGather
from loaderprobe.measure.session import AGAIN, ATTEMPTS, GivenUp
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.rank_processes import NotTogether
from loaderprobe.testing import FakeClock, Service, example_arguments, example_config, example_files
from tests.fakes import FakeGroup
from tests.measure.scripted import in_threads, scripted_session

STEP_S = 0.01
"""That a step of a loop takes on a fake clock."""


def loop_session(
    clock: FakeClock, step: Callable[[Any], None], service: Service, parts: dict[str, Any], **options: Any
) -> Measurement:
    """What is measured until the loop gives up; `parts` are those that are not usual, `options` of the session."""
    session = scripted_session(
        service, example_config(), example_files(), clock=clock,
        make=lambda *_: StepCompute(step, example_arguments(clock)), **{"period": 1, **options},
    )  # fmt: skip
    session.parts = replace(session.parts, **parts)
    with suppress(GivenUp):
        session.run()
    return session.measurement((), ())


def trained(interrupted: Callable[[int], bool], *, other_s: float = 1.0, **options: Any) -> Measurement:
    """What is measured of a loop that does something else, for `other_s`, after the steps that `interrupted` names."""
    clock = FakeClock()
    coroutine = SessionCoroutine(lambda step: loop_session(clock, step, Service(cpu_s=0.002), {}, **options))
    while True:
        coroutine.next()
        if coroutine.over:
            return coroutine.result  # type: ignore[no-any-return]
        clock.sleep(STEP_S)
        if interrupted(coroutine.steps):
            clock.sleep(other_s)
            coroutine.interrupt("validation")


def holds_no_interruption(found: Measurement) -> bool:
    """No step of any segment lasts as long as a validation, and segments were measured again."""
    spans = [span for segment in found.segments for span in zip(segment.begin_ns, segment.end_ns, strict=True)]
    return AGAIN in found.notes and all(end - begin < 0.5e9 for begin, end in spans)


def test_segments_with_an_interruption_are_void() -> None:
    """And batches are still counted right."""
    found = trained(lambda number: number % 40 == 0)
    assert holds_no_interruption(found)
    taken = [segment.first_batch for segment in found.segments if segment.first_batch >= 0]
    assert len(set(taken)) == len(taken)


def paused(at: int, beyond_s: float = 0.0) -> Measurement:
    return trained(lambda number: number == at, other_s=200.0, budget_s=100.0, beyond_s=lambda _: beyond_s)


def test_a_long_pause_of_the_script_ends_a_budget() -> None:
    """With the rounds that there are. Before the first is over it ends nothing: there would be no verdict. Nor does it
    where an open verdict has more time."""
    whole = trained(lambda _: False, budget_s=100.0)
    late, early = (paused(at) for at in (250, 40))
    assert CUT_SHORT in late.notes and late.wall_s < 250
    assert 0 < len(late.segments) < len(whole.segments)
    assert {"loader_only", "training"} <= {segment.activity for segment in early.segments}
    longer = paused(250, beyond_s=300.0)
    assert CUT_SHORT not in longer.notes and len(longer.segments) == len(whole.segments)


def test_a_loop_that_never_trains_in_a_row_is_refused() -> None:
    """After some attempts, with the reason."""
    with pytest.raises(BadValue, match="never trained 6 steps in a row: validation"):
        trained(lambda number: number > 40)
    assert ATTEMPTS > 1


class Rank:
    """One rank in a thread of its own, with a fake clock of its own; `after` is what its loop does after each step."""

    def __init__(self, group: FakeGroup, cpu_s: float, after: Callable[[Rank], None]) -> None:
        self.group, self.clock, self.collectives = group, FakeClock(), ScriptCollectives(group)
        self._service, self._after = Service(cpu_s=cpu_s), after
        self.found: Measurement | None = None
        self.error: BaseException | None = None
        self.coroutine = self.collectives.coroutine = SessionCoroutine(self._measured, self.collectives)

    def run(self) -> None:
        """Until the session is over."""
        try:
            self.coroutine.next()
            while not self.coroutine.over:
                self.clock.sleep(STEP_S)
                self._after(self)
                if not self.coroutine.over:
                    self.coroutine.next()
            self.found = self.coroutine.result
        except (Withdrawn, LostRank) as error:
            self.error = error

    def _measured(self, step: Callable[[Any], None]) -> Measurement:
        parts = {"next_round": RankGather(self.group).next_round, "collectives": self.collectives}
        return loop_session(self.clock, step, self._service, parts)

    @property
    def steps(self) -> list[tuple[str, str, int]]:
        assert self.found is not None
        return [(each.mode, each.activity, each.steps) for each in self.found.segments]


def nothing(_: Rank) -> None:
    """A loop that goes on for ever."""


def ran(*loops: tuple[float, Callable[[Rank], None]]) -> list[Rank]:
    """All ranks, by the CPU time of their samples and what their loops do, to their ends."""
    ranks = [Rank(group, *loop) for group, loop in zip(FakeGroup.of(len(loops)), loops, strict=True)]
    in_threads(rank.run for rank in ranks)
    return ranks


def test_ranks_of_unlike_speed_take_the_same_steps() -> None:
    """In the same segments, although each has a clock of its own; and as many in all."""
    fast, slow = ran((0.001, nothing), (0.004, nothing))
    assert fast.steps == slow.steps
    assert fast.coroutine.steps == slow.coroutine.steps and fast.group.calls == slow.group.calls


def test_what_disturbs_one_rank_voids_the_segment_of_all() -> None:
    """Both begin it again."""

    def validates(rank: Rank) -> None:
        if rank.coroutine.steps % 40 == 0:
            rank.clock.sleep(1.0)
            rank.coroutine.interrupt("validation")

    ranks = ran((0.002, validates), (0.002, nothing))
    assert ranks[0].steps == ranks[1].steps
    assert all(rank.found is not None and holds_no_interruption(rank.found) for rank in ranks)


def test_a_rank_that_refuses_lets_no_loop_be_handed_over() -> None:
    """The others hear of it before their first step, rank 0 with the reason."""
    first, second = (Rank(group, 0.001, nothing) for group in FakeGroup.of(2))
    not_together = NotTogether(code="refused", ranks=(1,), detail="no batches")
    refusals: list[NotTogether | None] = []
    in_threads([lambda: refusals.append(second.collectives.refusal(not_together)), first.run])
    assert isinstance(first.error, Withdrawn) and first.coroutine.steps == 0
    assert [first.error.why, *refusals] == [not_together, not_together]


def test_a_script_that_ends_on_one_rank_ends_the_measurement_of_all() -> None:
    """With the whole rounds so far; the other's loop waits at its next batch meanwhile."""

    def ends(rank: Rank) -> None:
        if rank.coroutine.steps == 300:
            rank.coroutine.give_up()

    first, second = ran((0.001, ends), (0.001, nothing))
    assert first.steps == second.steps != []
    assert first.coroutine.steps == second.coroutine.steps == 300


def test_a_rank_that_dies_leaves_no_other_waiting() -> None:
    """They lose it where they meet next."""

    def dies(rank: Rank) -> None:
        if rank.coroutine.steps == 30:
            rank.group.leave()
            raise LostRank("it died")

    first, _ = ran((0.001, nothing), (0.001, dies))
    assert isinstance(first.error, LostRank) and 29 <= first.coroutine.steps <= 30

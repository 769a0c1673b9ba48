"""Sessions of several ranks, on threads with clocks of their own: all take the same steps in every segment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from loaderprobe.analyze.ranks import as_one
from loaderprobe.analyze.verdict.rounds import Round, next_round
from loaderprobe.errors import LostRank
from loaderprobe.measure.attach.script_ranks import ScriptCrew
from loaderprobe.measure.attach.turns import GivenUp, LoopTurns, Withdrawn
from loaderprobe.measure.session import AGAIN, Recorder, Session
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.ranks import Apart, RankMeasurement
from loaderprobe.testing import FakeClock, FakeGroup, FakePageCache, Service, example_config, example_files
from tests.measure.scripted import scripted_parts
from tests.measure.test_loop_session import LoopCompute

STEP_S = 0.01


class Loop:
    """A training loop, which goes on for ever."""

    def after(self, step: int, turns: LoopTurns, clock: FakeClock) -> None:
        """What it does after each of its steps."""


class Rank:
    """One rank, in a thread of its own, with a fake clock of its own."""

    def __init__(self, group: FakeGroup, service: Service, loop: Loop) -> None:
        self.group, self.service, self.loop = group, service, loop
        self.crew = ScriptCrew(group)
        self.found: Measurement | None = None
        self.error: BaseException | None = None
        self.steps = 0

    def run(self) -> None:
        """Until the session is over."""
        clock = FakeClock()
        turns = self.crew.turns = LoopTurns(lambda step: self._measured(clock, step), self.crew)
        try:
            turns.next()
            while not turns.over:
                clock.sleep(STEP_S)
                self.loop.after(turns.steps, turns, clock)
                if not turns.over:
                    turns.next()
            self.found = turns.result
        except (Withdrawn, LostRank) as error:
            self.error = error
        self.steps = turns.steps

    def _measured(self, clock: FakeClock, step: Callable[[Any], None]) -> Measurement:
        files, config = example_files(), example_config()
        parts = scripted_parts(self.service, clock, LoopCompute(clock, step), config, files, FakePageCache())
        session = Session(
            recorder=Recorder(config), files=files,
            parts=replace(parts, next_round=self._decided, crew=self.crew), on_stage=lambda *_: None, period=1,
        )  # fmt: skip
        with suppress(GivenUp):
            session.run()
        return session.measurement((), ())

    def _decided(self, measurement: Measurement, *, thorough: bool) -> Round:
        """By rank 0, from what all measured."""
        own = RankMeasurement(rank=self.group.rank, host="one", cores=2.0, affinity=(0, 1), measurement=measurement)
        given = self.group.gathered(msgspec.json.encode(own))
        all_ = [msgspec.json.decode(each, type=RankMeasurement) for each in given]
        plan = next_round(as_one(all_), thorough=thorough) if all_ else ()
        return msgspec.json.decode(self.group.broadcast(msgspec.json.encode(plan)), type=Round)


def ran(*ranks: tuple[Service, Loop]) -> list[Rank]:
    """All ranks, to their ends."""
    made = [Rank(group, *each) for group, each in zip(FakeGroup.of(len(ranks)), ranks, strict=True)]
    threads = [threading.Thread(target=each.run) for each in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def steps_of(found: Measurement | None) -> list[tuple[str, str, int]]:
    assert found is not None
    return [(each.mode, each.activity, each.steps) for each in found.segments]


def test_ranks_of_unlike_speed_take_the_same_steps() -> None:
    """In the same segments, although each has a clock of its own; and as many in all."""
    fast, slow = ran((Service(cpu_s=0.001), Loop()), (Service(cpu_s=0.004), Loop()))
    assert steps_of(fast.found) == steps_of(slow.found)
    assert fast.steps == slow.steps and fast.group.meetings == slow.group.meetings


def test_what_disturbs_one_rank_voids_the_segment_of_all() -> None:
    """No step of any segment holds its second, and both begin it again."""

    class Validates(Loop):
        def after(self, step: int, turns: LoopTurns, clock: FakeClock) -> None:
            if step % 40 == 0:
                clock.sleep(1.0)
                turns.interrupt("validation")

    first, second = ran((Service(cpu_s=0.002), Validates()), (Service(cpu_s=0.002), Loop()))
    assert steps_of(first.found) == steps_of(second.found)
    assert all(each.found is not None and AGAIN in each.found.notes for each in (first, second))
    for segment in first.found.segments if first.found else ():
        lengths = [end - begin for begin, end in zip(segment.begin_ns, segment.end_ns, strict=True)]
        assert max(lengths) < 0.5e9


def test_a_rank_that_refuses_lets_no_loop_be_handed_over() -> None:
    """The others hear of it before their first step, rank 0 with the reason."""
    first, second = (Rank(group, Service(cpu_s=0.001), Loop()) for group in FakeGroup.of(2))
    apart = Apart(code="refused", ranks=(1,), detail="no batches")
    refusing = threading.Thread(target=lambda: second.crew.refuse(apart))
    refusing.start()
    first.run()
    refusing.join()
    assert isinstance(first.error, Withdrawn) and first.steps == 0
    assert first.crew.apart == second.crew.apart == apart


def test_a_script_that_ends_on_one_rank_ends_the_measurement_of_all() -> None:
    """With the whole rounds so far; the other's loop waits at its next batch meanwhile."""

    class Ends(Loop):
        def after(self, step: int, turns: LoopTurns, clock: FakeClock) -> None:
            if step == 300:
                turns.give_up()

    first, second = ran((Service(cpu_s=0.001), Ends()), (Service(cpu_s=0.001), Loop()))
    assert steps_of(first.found) == steps_of(second.found) != []
    assert first.steps == second.steps == 300


def test_a_rank_that_dies_leaves_no_other_waiting() -> None:
    """They lose it where they meet next."""

    class Dies(Loop):
        def __init__(self) -> None:
            self.group: FakeGroup | None = None

        def after(self, step: int, turns: LoopTurns, clock: FakeClock) -> None:
            if step == 30 and self.group:
                self.group.leave()
                raise LostRank("it died")

    groups, dies = FakeGroup.of(2), Dies()
    dies.group = groups[1]
    ranks = [Rank(groups[0], Service(cpu_s=0.001), Loop()), Rank(groups[1], Service(cpu_s=0.001), dies)]
    threads = [threading.Thread(target=each.run) for each in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(ranks[0].error, LostRank) and 29 <= ranks[0].steps <= 30

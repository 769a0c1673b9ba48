"""Ranks of one configuration, on threads with clocks of their own: equal steps, no deadlock, what only they have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.measure import session
from loaderprobe.measure.ranks.crew import PaceAhead
from loaderprobe.measure.segments import Pace
from loaderprobe.testing import Service, example_files
from tests.measure.scripted import ran, together


def test_ranks_take_equal_steps_in_every_segment_but_those_alone() -> None:
    """Although their clocks and their speeds differ; and one measurement comes of it, of the configuration as asked."""
    ranks = ran(Service(cpu_s=0.002), Service(cpu_s=0.006), compute="emulated:100000", rounds=1)
    steps = [
        [(s.mode, s.activity, s.without, s.steps) for s in each.own.segments if s.activity != "alone"]
        for each in ranks
        if each.own
    ]
    assert steps[0] == steps[1]
    found = together(ranks)
    assert found.ranks == 2 and found.config.ranks == 2 and found.config.compute.batch_size == 16
    assert {each.batch_size for each in found.segments} == {32}
    kinds = {(s.mode, s.activity, s.without) for s in found.segments if s.round == 0}
    assert {("baseline", "alone", None), ("baseline", "loader_only", 0), ("baseline", "loader_only", 1)} <= kinds


@settings(max_examples=4)
@given(data=st.data())
def test_no_deadlock(data: st.DataObject) -> None:
    """Whatever the shards, budgets, speeds and workers: all come to the end, after the same steps."""
    size = data.draw(st.integers(2, 4))
    services = [
        Service(cpu_s=data.draw(st.floats(0.004, 0.04)), blocked_s=data.draw(st.sampled_from((0.0, 0.02))))
        for _ in range(size)
    ]
    ranks = ran(
        *services,
        files=example_files(data.draw(st.integers(12 * size, 3000))),
        budgets_s=tuple(data.draw(st.sampled_from((None, 3.0, 9.0, 40.0))) for _ in range(size)),
        workers=data.draw(st.sampled_from((0, 1, 3))),
        batch_size=4,
        compute=data.draw(st.sampled_from(("emulated:100", "emulated:2000", "emulated-sync:200"))),
        cache=data.draw(st.sampled_from(("cold", "warm"))),
        rounds=1,
    )
    steps = [
        [(s.mode, s.activity, s.without, s.steps) for s in each.own.segments if s.activity != "alone"]
        for each in ranks
        if each.own
    ]
    assert all(each == steps[0] for each in steps)
    assert together(ranks).ranks == size


def stepped(finished: tuple[int, ...]) -> float:
    """Steps/s of a device, from the end of its first to that of its last."""
    return (len(finished) - 1) * 1e9 / (finished[-1] - finished[0])


@pytest.mark.parametrize("size", [2, 4])
def test_an_emulated_group_reaches_its_rate_with_free_input(size: int) -> None:
    """99.5 % of what is specified: neither the meeting nor anything else of ranks is in the rate."""
    services, budgets_s = [Service(cpu_s=1e-3)] * size, (10.0,) * size
    ranks = ran(*services, compute="emulated:400", workers=1, cache="warm", rounds=1, budgets_s=budgets_s)
    trained = [each for each in together(ranks).segments if each.activity == "training"]
    for segment in trained:
        assert 0.995 <= stepped(segment.finished_ns) * segment.batch_size / (400 * size) <= 1.0001
    assert trained


def test_each_step_of_an_emulated_group_lasts_as_long_as_the_slowest_ranks() -> None:
    """Ranks of which one gets a batch every 40 ms and one every 10 ms end a step of 1 ms every 40 ms, both."""
    ranks = ran(Service(cpu_s=0.01), Service(cpu_s=0.0025), compute="emulated:4000", workers=1, batch_size=4, rounds=1)
    for rank in ranks:
        (segment, *_) = [each for each in rank.own.segments if each.activity == "training"] if rank.own else []
        assert stepped(segment.finished_ns) == pytest.approx(25, rel=0.01)


def test_only_the_slow_rank_of_two_is_waited_for() -> None:
    """Without its input the other is as fast as alone; each knows how long it waited, with a batch in hand."""
    services = Service(cpu_s=0.02), Service(cpu_s=0.005)
    found = together(ran(*services, compute="emulated:1e6", workers=1, batch_size=4, rounds=1))
    rates: dict[int | None, float] = {}
    for place, each in enumerate(found.segments):
        if (each.mode, each.activity, each.round) == ("baseline", "loader_only", 0):
            rates[each.without] = each.batch_size * each.steps * 1e9 / found.by_rank[0].span_ns[place]
            waited = [seen.meet_ns[place] for seen in found.by_rank]
            if each.without is None:
                assert waited[0] < 1e6 and waited[1] > 20e6
    assert rates[0] / rates[1] == pytest.approx(4, rel=0.05)
    assert rates[1] == pytest.approx(rates[None], rel=0.05)


def test_a_rank_alone_begins_with_buffers_as_empty_as_it_ends() -> None:
    """A fast rank does not wait for a slow one after its lead-in: what it loads meanwhile is not of the time alone."""
    found = together(
        ran(Service(cpu_s=0.15), Service(cpu_s=0.05), compute="emulated:1e6", workers=3, batch_size=4, rounds=1)
    )
    (place,) = [place for place, each in enumerate(found.segments) if (each.activity, each.round) == ("alone", 0)]
    fast = found.by_rank[1]
    assert fast.steps[place] * 1e9 / fast.span_ns[place] == pytest.approx(3 / (4 * 0.05), rel=0.02)


def test_no_budget_is_kept_for_a_profiler_window_that_ranks_never_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds fit, however long a window would be."""
    monkeypatch.setattr(session, "seconds_wanted", lambda *_: 1e6)
    found = together(
        ran(Service(cpu_s=0.002), Service(cpu_s=0.002), compute="emulated:1000", budgets_s=(300.0, 300.0), rounds=2)
    )
    assert len({each.round for each in found.segments}) == 2


def test_further_rounds_are_added_to_those_of_all_ranks_before() -> None:
    """Rank 0 knows who was slowest; rounds are numbered on, and what each rank saw has an entry a segment."""
    services = Service(cpu_s=0.008), Service(cpu_s=0.016, blocked_s=0.008)
    earlier = together(ran(*services, compute="emulated:1000", budgets_s=(1.0, 90.0)))
    found = together(ran(*services, compute="emulated:1000", earlier=earlier))
    before = len(earlier.segments)
    assert found.segments[:before] == earlier.segments and len(found.segments) > before
    assert min(each.round for each in found.segments[before:]) == 1 + max(each.round for each in earlier.segments)
    assert {len(each.steps) for each in found.by_rank} == {len(found.segments)}
    removed = [{s.without for s in segments} for segments in (earlier.segments, found.segments[before:])]
    assert removed[0] == removed[1] == {None, 0, 1}


def test_a_pace_ahead_agrees_seldom_and_ends_where_any_pace_would() -> None:
    """Some ten meetings for a hundred steps, a whole multiple of the workers, and never more than the files allow."""
    for most in (None, 90):
        agreed: list[int] = []

        def told(value: int, agreed: list[int] = agreed) -> int:
            agreed.append(value)
            return value

        pace = Pace(min_s=0.7, multiple=3, max_batches=most)
        ahead, steps = PaceAhead.of(pace, told), 0
        while not ahead.enough(steps, steps * 0.005):
            steps += 1
        assert pace.enough(steps, steps * 0.005)
        assert steps == (141 if most is None else most)
        assert len(agreed) <= 10

"""Time that is left goes to configurations that need more rounds; their rounds join the earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.policy import is_open
from loaderprobe.analyze.verdict.rounds import next_round
from loaderprobe.measure.assembly import make_compute
from loaderprobe.measure.further import CUT_SHORT, NO_TIME, Durations, Part, enough_said, joined
from loaderprobe.measure.runner import Order
from loaderprobe.measure.sweep import Progress, sweep
from loaderprobe.records.config import SweepSpec
from loaderprobe.records.measurement import Measurement, Missing, RunFailure, Series
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.waits import WaitSamples
from loaderprobe.store.codec import decode, encode
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import (
    FakeClock,
    FakePageCache,
    Service,
    example_config,
    example_environment,
    example_files,
)
from tests.measure.conftest import Measure
from tests.measure.scripted import scripted_session

FILES = example_files(4096)
# Cold segments of the first take seconds; of the second one round is enough.
SLOW = Service(cpu_s=0.001, blocked_s=0.2)
FAST = Service(cpu_s=0.0005)
CLEAR = Service(cpu_s=0.001, blocked_s=0.05)
SERVICES = {0: SLOW, 1: FAST, 2: FAST}


class Children:
    """Stands in for the child processes: a session on a fake clock for each order."""

    def __init__(self, clock: FakeClock, services: Mapping[int, Service], breaks: bool = False) -> None:
        self.clock, self.services, self.breaks = clock, services, breaks
        self.orders: list[Order] = []

    def __call__(self, order: Order, **_: Any) -> Measurement | RunFailure:
        order = decode("order", encode("order", order), Order, "an order")
        self.orders.append(order)
        config = order.config
        if self.breaks and order.earlier:
            self.clock.sleep(1.0)
            return RunFailure(
                config=config, stage="start", reason="it broke", hint="", exit_code=1, signal=None, log=(),
                started_utc="", wall_s=1.0,
            )  # fmt: skip
        session = scripted_session(
            self.services[config.loader.workers], self.clock, make_compute(config, self.clock), config, FILES,
            FakePageCache(), budget_s=order.budget_s, earlier=order.earlier,
        )  # fmt: skip
        session.run()
        return session.measurement((), ())


NO_GPU = Missing(name="sm", reason=reported("no GPU"))


def swept(
    path: Path, budget_s: float | None, services: Mapping[int, Service] = SERVICES, breaks: bool = False
) -> tuple[RunDirectory, Children, list[Progress]]:
    """A sweep over a slow configuration and two that need only one round, by number of workers."""
    configs = tuple(
        example_config(data=FILES.fingerprint, workers=workers, compute="emulated:100", batch_size=8)
        for workers in (0, 1, 2)
    )
    record = RunRecord(
        created_utc="2026-01-01T00:00:00+00:00",
        spec=SweepSpec(configs=configs, budget_s=budget_s),
        environment=example_environment(),
    )
    run = RunDirectory.create(path / "run", record, [FILES])
    clock, heard = FakeClock(), list[Progress]()
    children = Children(clock, services, breaks)
    sweep(run, clock=clock, on_progress=heard.append, run_one=children, next_round=next_round, is_open=is_open)
    return run, children, heard


def first(run: RunDirectory) -> Measurement:
    """The measurement of the slow configuration."""
    found = run.result(run.record.spec.configs[0].key)
    assert isinstance(found, Measurement)
    return found


@pytest.mark.parametrize("budget_s", [60.0, None])
def test_time_that_is_left_goes_to_what_the_budget_cut_short(tmp_path: Path, budget_s: float | None) -> None:
    """A third of the budget is not enough for the slow one; the others leave theirs, and its verdict becomes firm."""
    run, children, _ = swept(tmp_path, budget_s)
    assert [order.config.loader.workers for order in children.orders] == [0, 1, 2, 0]
    once, found = children.orders[3].earlier, first(run)
    assert once is not None and NO_TIME in once.notes
    assert verdict(once).bound.cause == "inconclusive"
    assert verdict(found).bound.cause == "storage"
    assert NO_TIME not in found.notes
    assert found.segments[: len(once.segments)] == once.segments


@pytest.mark.parametrize("budget_s", [27.0, 30.0])
def test_the_budget_is_kept_by_further_rounds(tmp_path: Path, budget_s: float) -> None:
    """They end within it, and less than one round of it is left; progress never says more than all."""
    run, children, heard = swept(tmp_path, budget_s)
    spent_s = (children.clock.now_ns() - FakeClock().now_ns()) / 1e9
    assert spent_s <= budget_s
    assert len(first(run).segments) > 2
    assert NO_TIME in first(run).notes, "the rest was not enough for one more"
    assert all(0 <= each.share <= 1 for each in heard)


def test_open_verdicts_come_first(tmp_path: Path) -> None:
    """What is clear already gets more rounds only when nothing is open any more."""
    _, children, _ = swept(tmp_path, 60.0, {0: SLOW, 1: CLEAR, 2: FAST})
    continued = [order for order in children.orders if order.earlier]
    causes = [verdict(order.earlier).bound.cause for order in continued if order.earlier]
    assert [order.config.loader.workers for order in continued][:1] == [0]
    assert causes[0] == "inconclusive" and "inconclusive" not in causes[1:]


def test_a_failure_of_a_further_round_leaves_the_measurement(tmp_path: Path) -> None:
    """It is tried once, and what was measured before stays as it is."""
    run, children, _ = swept(tmp_path, 60.0, breaks=True)
    assert [order.earlier is not None for order in children.orders] == [False, False, False, True]
    assert first(run) == children.orders[3].earlier
    assert not list((run.path / "failures").iterdir())


def test_rounds_and_batches_are_numbered_on(measure_fake: Measure) -> None:
    """No two batches of both have one number, and each segment still has the batches that it took."""
    one = measure_fake(SLOW, compute="emulated:100000", batch_size=8)
    both = joined(one, one)
    rounds = {each.round for each in one.segments}
    assert {each.round for each in both.segments} == rounds | {each + len(rounds) for each in rounds}
    assert len(set(both.worker_batches.batch)) == 2 * len(one.worker_batches.batch)
    assert verdict(both).images_per_s.value == verdict(one).images_per_s.value
    assert verdict(both).cold_fraction == pytest.approx(1)
    assert both.wall_s == 2 * one.wall_s


def test_what_is_beside_the_rounds_is_joined_too(measure_fake: Measure) -> None:
    """Readings, samples of waits with their subjects; what is missing only where neither has it."""

    def seen(subject: str, measured: Measurement) -> Measurement:
        waits = WaitSamples(
            time_ns=(1,), worker=(0,), kind=(1,), subject=(0,), subjects=(subject,), letters_only=None, cpu_ns=1,
            wall_ns=1,
        )  # fmt: skip
        series = Series(name="cores", unit="", source="", time_ns=(1,), values=(1.0,))
        return replace(
            measured, waits=waits, series=(series,), missing=(Missing(name="sm", reason=reported("no GPU")),)
        )

    one = measure_fake(FAST)
    both = joined(seen("a.jpg", one), seen("b.jpg", one))
    assert both.waits is not None
    assert [both.waits.subjects[each] for each in both.waits.subject] == ["a.jpg", "b.jpg"]
    assert [len(each.values) for each in both.series] == [2]
    assert [each.name for each in both.missing] == ["sm"]
    without = replace(one, missing=(Missing(name="waits", reason=reported("not permitted")),))
    assert joined(without, seen("b.jpg", one)).missing == (NO_GPU,)


def test_a_round_that_does_not_fit_is_measured_in_part() -> None:
    """One thread and ranks go first, then compute alone, then training where ablations are compared with the loader."""
    durations = Durations(usual_s=2.0)
    screening = [Part("baseline", "loader_only"), Part("baseline", "training"), Part("resident", "training")]
    assert durations.fitting(screening, 5.0) == []
    for each in screening:
        durations.add(each, 2.0)
    ablations = [Part("warm", "loader_only"), Part("cached_samples", "loader_only")]
    plan = [*screening, *ablations]
    of_ranks = [Part("baseline", "alone"), Part("baseline", "loader_only", 1), Part("exchange", "training")]
    assert durations.fitting([*plan, *of_ranks], 15.0) == plan
    assert durations.fitting([*plan, Part("one_thread", "loader_only")], 11.0) == plan
    assert durations.fitting(plan, 10.0) == plan
    assert durations.fitting(plan, 9.0) == [*screening[:2], *ablations]
    assert durations.fitting(plan, 7.0) == [screening[0], *ablations]
    assert durations.fitting(plan, 5.0) == []
    in_training = [*screening[:2], Part("warm", "training")]
    assert durations.fitting(in_training, 5.0) == []


def test_fewer_modes_are_measured_twice_rather_than_all_once() -> None:
    """What decides, if it fits twice where all of it does not; training stays, whose prediction one round may miss."""
    durations = Durations(usual_s=2.0)
    screening = [Part("baseline", "loader_only"), Part("baseline", "training")]
    for each in screening:
        durations.add(each, 2.0)
    plan = [*screening, Part("warm", "loader_only"), Part("cached_samples", "loader_only")]
    decides = plan[:3]
    assert durations.fitting(plan, 16.0, shorter=decides, times=2) == plan
    assert durations.fitting(plan, 15.0, shorter=decides, times=2) == decides
    assert durations.fitting(plan, 11.0, shorter=decides, times=2) == plan, "one round in any case: all of it"
    assert durations.fitting(plan, 15.0, shorter=decides) == plan, "the last round needs to fit once"
    assert durations.fitting(plan, 4.0, shorter=decides) == [plan[0], plan[2]]
    assert durations.fitting(plan, 3.0, shorter=decides, times=2) == []


def test_the_budget_that_would_do_is_said_in_seconds() -> None:
    """In full steps of five; further rounds take the note away, and others stay."""
    other = Remark(code="all_batches_made")
    said = enough_said((CUT_SHORT, other), 31.0, 3)
    assert said == (replace(CUT_SHORT, facts={"budget_s": 35.0, "rounds": 3.0}), other)


def test_a_part_of_a_round_is_noted(measure_fake: Measure) -> None:
    """The note says that the last round is not whole; further rounds take it away."""
    clock, cache = FakeClock(), FakePageCache()
    config = example_config(data=FILES.fingerprint, workers=0, compute="emulated:100", batch_size=8)
    session = scripted_session(CLEAR, clock, make_compute(config, clock), config, FILES, cache, budget_s=7.6)
    session.run()
    found = session.measurement((), ())
    assert CUT_SHORT in found.notes
    assert session.more_s is not None and session.more_s > 0, "for two more rounds"
    assert {each.activity for each in found.segments if each.round == 1} == {"loader_only"}
    said = replace(found, notes=enough_said(found.notes, 60.0, 3))
    for earlier in (found, said):
        assert not joined(earlier, replace(found, notes=())).notes

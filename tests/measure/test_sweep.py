"""The sweep over many configurations: kept at once, resumed by content, within its budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.measure.runner import RAISE_BUDGET, RAISE_TIME_LIMIT, Event, Order
from loaderprobe.measure.sweep import Progress, pending
from loaderprobe.measure.sweep import sweep as sweep_by
from loaderprobe.records.config import SweepSpec
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import FakeClock, Service, example_config, example_environment, example_files
from tests.measure.conftest import Measure

FILES = example_files(2048)


def sweep(run: RunDirectory, **options: Any) -> None:
    """A sweep in which one order is enough for each configuration."""
    sweep_by(run, next_round=lambda measured, *, thorough: (), is_open=lambda measured: True, **options)


@pytest.fixture
def run_directory(tmp_path: Path) -> RunDirectory:
    """A run of three configurations that has 100 s."""
    return made_run(tmp_path, budget_s=100.0)


def made_run(tmp_path: Path, **options: Any) -> RunDirectory:
    """A run of three configurations; `options` are those of the sweep."""
    configs = tuple(example_config(data=FILES.fingerprint, workers=workers) for workers in (0, 1, 2))
    record = RunRecord(
        created_utc="2026-01-01T00:00:00+00:00",
        spec=SweepSpec(configs=configs, **options),
        environment=example_environment(),
    )
    return RunDirectory.create(tmp_path / "run", record, [FILES])


class Runner:
    """Stands in for the child process; takes `takes_s` a configuration on the clock."""

    def __init__(
        self, clock: FakeClock, measure_fake: Measure, fails: tuple[int, ...] = (), takes_s: float = 10
    ) -> None:
        self.clock, self.measure_fake, self.fails, self.takes_s = clock, measure_fake, fails, takes_s
        self.orders: list[Order] = []

    def __call__(self, order: Order, *, on_event: Any, **_: Any) -> Measurement | RunFailure:
        self.orders.append(order)
        self.clock.sleep(self.takes_s)
        on_event(Event(stage="half", done=1, total=2))
        config = order.config
        if config.loader.workers in self.fails:
            return RunFailure(
                config=config, stage="half", reason="it broke", hint="", exit_code=1, signal=None, log=(),
                started_utc="", wall_s=10.0,
            )  # fmt: skip
        return self.measure_fake(Service(cpu_s=0.001), files=FILES, workers=config.loader.workers)


def test_results_are_kept_and_failures_do_not_stop_the_sweep(
    run_directory: RunDirectory, measure_fake: Measure
) -> None:
    """The middle configuration fails; its failure is stored and the others are measured."""
    clock = FakeClock()
    sweep(run_directory, clock=clock, on_progress=lambda _: None, run_one=Runner(clock, measure_fake, fails=(1,)))
    kinds = [type(run_directory.result(config.key)) for config in run_directory.record.spec.configs]
    assert kinds == [Measurement, RunFailure, Measurement]


def test_a_measurement_is_kept_once_and_before_what_follows_it(
    run_directory: RunDirectory, measure_fake: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hears of it may be interrupted: measuring the storage under it, say. A failure is not heard of."""
    clock, saved = FakeClock(), list[str]()
    save = run_directory.save

    def counted(run: RunDirectory, found: Measurement | RunFailure) -> None:
        saved.append(found.config.key)
        save(found)

    monkeypatch.setattr(RunDirectory, "save", counted)

    def heard(order: Order, measured: Measurement) -> None:
        assert run_directory.has_measurement(measured.config.key)
        if order.config.loader.workers == 2:
            raise KeyboardInterrupt

    runner = Runner(clock, measure_fake, fails=(1,))
    with pytest.raises(KeyboardInterrupt):
        sweep(run_directory, clock=clock, on_progress=lambda _: None, run_one=runner, on_kept=heard)
    assert saved == [config.key for config in run_directory.record.spec.configs]
    assert [config.loader.workers for config in pending(run_directory)] == [1]


def test_resuming_measures_only_what_is_missing(run_directory: RunDirectory, measure_fake: Measure) -> None:
    """After a failure and an interruption, only those two configurations run again."""
    clock = FakeClock()
    runner = Runner(clock, measure_fake, fails=(1,))

    def interrupted(order: Order, **options: Any) -> Measurement | RunFailure:
        if order.config.loader.workers == 2:
            raise KeyboardInterrupt
        return runner(order, **options)

    with pytest.raises(KeyboardInterrupt):
        sweep(run_directory, clock=clock, on_progress=lambda _: None, run_one=interrupted)
    again = Runner(clock, measure_fake)
    reopened = RunDirectory.open(run_directory.path)
    sweep(reopened, clock=clock, on_progress=lambda _: None, run_one=again)
    assert [order.config.loader.workers for order in again.orders] == [1, 2]
    assert pending(reopened) == []
    assert not list((run_directory.path / "failures").iterdir())


def test_the_budget_is_dealt_out_over_what_is_left(run_directory: RunDirectory, measure_fake: Measure) -> None:
    """Each configuration gets an equal share of the seconds that remain, but for the 5 % that are kept back."""
    clock = FakeClock()
    runner = Runner(clock, measure_fake)
    sweep(run_directory, clock=clock, on_progress=lambda _: None, run_one=runner)
    assert [order.budget_s for order in runner.orders] == pytest.approx([95 / 3, 85 / 2, 75])


@pytest.mark.parametrize(
    ("thorough", "takes_s", "budgets"),
    [(False, 10, [17, 20.5, 31]), (False, 40, [17, 8.5, 8.5]), (True, 10, [None, None, None])],
)
def test_without_a_budget_the_usual_times_are_dealt_out(
    tmp_path: Path, measure_fake: Measure, thorough: bool, takes_s: float, budgets: list[float | None]
) -> None:
    """None is left out, whatever the others took; where everything is to be measured, each has what it needs."""
    clock = FakeClock()
    runner = Runner(clock, measure_fake, takes_s=takes_s)
    sweep(made_run(tmp_path, budget_s=None, thorough=thorough), clock=clock, on_progress=lambda _: None, run_one=runner)
    assert [order.budget_s for order in runner.orders] == budgets


@pytest.mark.parametrize(("budget_s", "hint"), [(100.0, RAISE_BUDGET), (None, RAISE_TIME_LIMIT)])
def test_a_timeout_names_the_limit_that_it_ran_into(
    tmp_path: Path, measure_fake: Measure, budget_s: float | None, hint: str
) -> None:
    """The budget where that leaves less than the time limit of 600 s."""
    run, clock = made_run(tmp_path, budget_s=budget_s), FakeClock()
    fails = Runner(clock, measure_fake, fails=(0, 1, 2))

    def late(order: Order, **options: Any) -> Measurement | RunFailure:
        failure = fails(order, **options)
        assert isinstance(failure, RunFailure)
        return replace(failure, hint=RAISE_TIME_LIMIT)

    sweep(run, clock=clock, on_progress=lambda _: None, run_one=late)
    found = [run.result(config.key) for config in run.record.spec.configs]
    assert {each.hint for each in found if isinstance(each, RunFailure)} == {hint}


def test_progress_grows_and_gives_the_time_left(run_directory: RunDirectory, measure_fake: Measure) -> None:
    """Shares rise from 0 towards 1, and the estimate falls once a configuration has been timed."""
    clock = FakeClock()
    heard: list[Progress] = []
    sweep(run_directory, clock=clock, on_progress=heard.append, run_one=Runner(clock, measure_fake))
    assert [p.share for p in heard] == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6])
    assert heard[-1].left_s == pytest.approx(5.0)


def test_configurations_without_their_files_fail_and_the_others_go_on(
    run_directory: RunDirectory, measure_fake: Measure
) -> None:
    """A damaged list of files costs the configurations that need it; none of them is tried."""
    (path,) = (run_directory.path / "files").iterdir()
    path.write_bytes(b"{")
    clock = FakeClock()
    runner = Runner(clock, measure_fake)
    sweep(run_directory, clock=clock, on_progress=lambda _: None, run_one=runner)
    assert runner.orders == []
    found = [run_directory.result(config.key) for config in run_directory.record.spec.configs]
    assert all(isinstance(each, RunFailure) and str(path) in each.reason for each in found)

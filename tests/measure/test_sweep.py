"""The sweep over many configurations: kept at once, resumed by content, within its budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.measure.runner import RAISE_BUDGET, RAISE_TIME_LIMIT, Event, Order
from loaderprobe.measure.sweep import DEALT, Progress, SweepPolicy, SweepResult, Task, pending
from loaderprobe.measure.sweep import sweep as sweep_by
from loaderprobe.policy import Result, Results, Stop
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


CONFIGS = tuple(example_config(data=FILES.fingerprint, workers=workers) for workers in (0, 1, 2))


def asked(*done: tuple[int, SweepResult], spent_s: float = 0.0, **options: Any) -> Any:
    """(workers, budget) of what is measured next of three configurations, or why nothing is, after these results."""
    policy = SweepPolicy(spec=SweepSpec(configs=CONFIGS, **options), todo=CONFIGS)
    results = [Result(what=Task(config=CONFIGS[n], number=n + 1, total=3), found=found) for n, found in done]
    found = policy.next(Results(done=results, spent_s=spent_s))
    if isinstance(found, Stop):
        return found.reason
    assert found.what.further == (len(done) >= 3)
    return found.what.config.loader.workers, found.what.budget_s


CLEAR, OPEN = (SweepResult(needed_s=5.0, is_open=is_open) for is_open in (False, True))
ONCE = [(0, SweepResult()), (1, SweepResult()), (2, SweepResult())]


@pytest.mark.parametrize(
    ("options", "took_s", "budgets"),
    [
        ({"budget_s": 100.0}, 10, [95 / 3, 85 / 2, 75]),
        ({"budget_s": 100.0}, 95, [95 / 3, "no_time"]),
        ({}, 10, [17, 20.5, 31]),
        ({}, 40, [17, 8.5, 8.5]),
        ({"thorough": True}, 10, [None, None, None]),
    ],
)
def test_time_is_dealt_out_over_what_is_left(
    options: dict[str, Any], took_s: float, budgets: list[float | str | None]
) -> None:
    """Evenly, but for 5 % of a budget. Without one, none is left out; where all is measured, each has what it needs."""
    for number, expected in enumerate(budgets):
        found = asked(*ONCE[:number], spent_s=number * took_s, **options)
        assert found == (expected if isinstance(expected, str) else (number, pytest.approx(expected))), number


def test_time_that_is_left_goes_to_further_rounds_while_one_fits() -> None:
    """Of open verdicts first, each once before any twice, the cheapest first; what brought nothing is left alone."""
    cheap = SweepResult(needed_s=4.0, is_open=True)
    first = [(0, OPEN), (1, CLEAR), (2, cheap)]
    budget_s, options = 40 / DEALT, {"spent_s": 20.0}
    assert asked(*first, budget_s=budget_s, **options) == (2, pytest.approx(10.0)), "half of what is left"
    assert asked(*first, (2, cheap), budget_s=budget_s, **options) == (0, pytest.approx(20.0))
    assert asked(*first, (2, cheap), (0, OPEN), budget_s=budget_s, **options) == (2, pytest.approx(10.0))
    assert asked(*first, (2, SweepResult()), (0, SweepResult()), budget_s=budget_s, **options) == (
        1,
        pytest.approx(20.0),
    )
    assert asked(*first, budget_s=budget_s, spent_s=35.5) == (2, pytest.approx(4.5)), "the only one that fits"
    assert asked(*first, budget_s=budget_s, spent_s=36.5) == "complete"
    assert asked(*first, thorough=True, **options) == "complete", "where all is measured at once"


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
        return replace(failure, hint=RAISE_TIME_LIMIT if order.config.loader.workers else "look at the log")

    sweep(run, clock=clock, on_progress=lambda _: None, run_one=late)
    found = [run.result(config.key) for config in run.record.spec.configs]
    hints = [each.hint for each in found if isinstance(each, RunFailure)]
    assert hints == ["look at the log", hint, hint], "another failure keeps its hint"


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

"""A sweep that chooses numbers of workers and prefetch factors while it measures: `auto`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.api.load import judge_run
from loaderprobe.api.sweep import more_of, plan
from loaderprobe.api.sweep_request import request_of
from loaderprobe.measure.runner import Order
from loaderprobe.measure.sweep import pending
from loaderprobe.measure.sweep import sweep as sweep_by
from loaderprobe.records.config import Auto, RunConfig, SweepSpec
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import FakeClock, example_environment
from tests.analyze.measured import FILES, measured
from tests.analyze.scripted import Truth

LATENCY = Truth(model="latency", latency_s=0.02, cpu_s=0.0005, compute=1100.0)
"""Twice as many workers are twice as fast, until compute limits: 24 are enough."""


def made_run(
    path: Path, truth: Truth, *, counts: tuple[int, ...] = (0, 1), workers: bool = True, prefetch_factor: bool = False,
    **options: Any,
) -> RunDirectory:  # fmt: skip
    """A run that begins with these numbers of workers."""
    auto = Auto(workers=workers, prefetch_factor=prefetch_factor, most_workers=32)
    spec = SweepSpec(configs=tuple(measured(truth, count).config for count in counts), auto=auto, **options)
    record = RunRecord(created_utc="2026-01-01T00:00:00+00:00", spec=spec, environment=example_environment())
    return RunDirectory.create(path, record, [FILES])


class Runner:
    """Measures what the truth says, 10 s each; `fails_from` so many workers on, and Ctrl-C in the order of a number."""

    def __init__(self, truth: Truth, clock: FakeClock, *, fails_from: int = 1000, stops_at: int = 1000) -> None:
        self.truth, self.clock, self.fails_from, self.stops_at = truth, clock, fails_from, stops_at
        self.orders: list[Order] = []

    def __call__(self, order: Order, **_: Any) -> Measurement | RunFailure:
        self.orders.append(order)
        if len(self.orders) == self.stops_at:
            raise KeyboardInterrupt
        self.clock.sleep(10.0)
        loader = order.config.loader
        if loader.workers >= self.fails_from:
            return RunFailure(
                config=order.config, stage="round 1", reason="a worker was killed", hint="", exit_code=None,
                signal="SIGKILL", log=(), started_utc="", wall_s=10.0,
            )  # fmt: skip
        faster = {2: 1.0, 4: 1.2, 8: 1.21}.get(loader.prefetch_factor, 1.0)
        truth = replace(self.truth, latency_s=self.truth.latency_s / faster, cpu_s=self.truth.cpu_s / faster)
        return replace(measured(truth, loader.workers), config=order.config)


def swept(run: RunDirectory, runner: Runner) -> list[tuple[int, int]]:
    """(workers, prefetch factor) of all that is measured, in its order."""
    sweep_by(
        run, clock=runner.clock, on_progress=lambda _: None, run_one=runner, more=partial(more_of, run),
        next_round=lambda found, *, thorough: (), is_open=lambda found: False,
    )  # fmt: skip
    return [settings(order.config) for order in runner.orders]


def settings(config: RunConfig) -> tuple[int, int]:
    return config.loader.workers, config.loader.prefetch_factor


def best_of(run: RunDirectory) -> Iterator[tuple[int, int]]:
    """Of each data set, what the page names as enough."""
    summary = judge_run(run).summary
    rows = {row.key: row for row in summary.configurations}
    yield from (settings(rows[key].config) for key in summary.best)


def test_workers_are_added_until_the_fewest_that_are_enough_are_measured(tmp_path: Path) -> None:
    """The page names them with a measured rate and its range, and so does the knee."""
    run = made_run(tmp_path / "run", LATENCY)
    runner = Runner(LATENCY, FakeClock())
    asked = swept(run, runner)
    assert asked[:2] == [(0, 0), (1, 2)] and len(asked) == len(set(asked)) <= 8
    assert runner.orders[0].budget_s == 17.0, "its usual time, whatever follows"
    assert [settings(config) for config in RunDirectory.open(run.path).record.spec.configs] == asked
    summary = judge_run(run).summary
    (knee,) = summary.knees
    assert list(best_of(run)) == [(knee.workers, 2)] and knee.how == "measured"
    assert knee.images_per_s and knee.images_per_s.value >= 0.98 * LATENCY.training(32)
    assert (knee.workers, more_of(run)) == (24, [])
    assert plan(run).configurations == 0


def test_a_sweep_that_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    """What it had asked for is pending, and the search goes on from all results."""
    whole = swept(made_run(tmp_path / "whole", LATENCY), Runner(LATENCY, FakeClock()))
    run = made_run(tmp_path / "run", LATENCY)
    with pytest.raises(KeyboardInterrupt):
        swept(run, Runner(LATENCY, FakeClock(), stops_at=4))
    again = RunDirectory.open(run.path)
    assert [settings(config) for config in pending(again)] == [whole[3]]
    assert swept(again, Runner(LATENCY, FakeClock())) == whole[3:]
    complete = RunDirectory.open(run.path)
    assert swept(complete, Runner(LATENCY, FakeClock())) == []


def test_workers_that_die_end_the_search_above_them(tmp_path: Path) -> None:
    """Fewer are tried, and the failure is a row."""
    run = made_run(tmp_path / "run", LATENCY)
    asked = swept(run, Runner(LATENCY, FakeClock(), fails_from=6))
    assert len(asked) == len(set(asked)) and max(asked)[0] >= 6
    assert list(best_of(run)) == [(5, 2)]


def test_prefetch_factors_are_added_for_the_workers_that_are_enough(tmp_path: Path) -> None:
    """While they gain more than 2 %; the smallest of those is named, and no full buffer is measured."""
    truth = replace(LATENCY, compute=1e5)
    run = made_run(tmp_path / "run", truth, prefetch_factor=True)
    asked = swept(run, Runner(truth, FakeClock()))
    assert asked[-2:] == [(32, 4), (32, 8)] and list(best_of(run)) == [(32, 4)]
    given = made_run(tmp_path / "given", truth, counts=(1, 2), workers=False, prefetch_factor=True)
    assert swept(given, Runner(truth, FakeClock())) == [(1, 2), (2, 2), (2, 4), (2, 8)]
    assert plan(given).beside == ()


def test_a_budget_leaves_what_was_asked_for_last(tmp_path: Path) -> None:
    """It is divided over what is likely to follow, and --resume measures the rest."""
    run = made_run(tmp_path / "run", LATENCY, budget_s=30.0)
    runner = Runner(LATENCY, FakeClock())
    assert len(swept(run, runner)) == 3 and len(pending(run)) == 1
    assert runner.orders[0].budget_s == pytest.approx(0.95 * 30.0 / 8)


def test_what_auto_asks_for(tmp_path: Path) -> None:
    """The serial loader and one worker first, beside what is named; a set has images for the most that may follow."""

    def request(**options: Any) -> Any:
        return request_of(**{"data_dir": tmp_path, "compute": "emulated:100", "batch_size": 4, **options})

    made = request(workers="auto", prefetch_factor="auto")
    assert [(each.workers, each.prefetch_factor) for each in made.loaders] == [(0, 0), (1, 2)]
    assert made.spec.auto.workers and made.spec.auto.prefetch_factor and made.spec.auto.most_workers >= 8
    assert made.possible[-1].workers == made.spec.auto.most_workers and made.possible[-1].prefetch_factor == 8
    assert made.images_needed > request(workers="1").images_needed
    named = request(workers=["auto", 3], serial=False)
    assert [each.workers for each in named.loaders] == [3] and not named.spec.auto.prefetch_factor
    assert request(workers="1,2").spec.auto is None

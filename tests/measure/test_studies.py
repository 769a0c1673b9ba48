"""What a sweep measures beside its verdicts: of which configurations, within its limits, and kept at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loaderprobe.measure.runner import Event, Order
from loaderprobe.measure.studies import StudiesPolicy, StudyTask, study_all
from loaderprobe.policy import Result, Results, Stop
from loaderprobe.records.config import RunConfig, SweepSpec, asks_for
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Epoch, EpochsMeasured
from loaderprobe.render.words import remark_words
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import FakeClock, Service, example_config, example_environment, example_files
from tests.measure.conftest import Measure

FILES = example_files(2048)


def config(workers: int, **changes: Any) -> RunConfig:
    return example_config(data=FILES.fingerprint, workers=workers, **changes)


def spec(*configs: RunConfig, **options: Any) -> SweepSpec:
    return SweepSpec(configs=configs, **options)


def test_a_full_buffer_is_studied_where_prefetch_factors_differ() -> None:
    """With the most workers, each factor; with one factor only where all is measured; never the serial loader."""
    configs = [config(0), *(config(workers, prefetch_factor=factor) for factor in (1, 4) for workers in (2, 8))]
    assert asks_for(spec(*configs)) == {"prefilled": [configs[2], configs[4]]}
    assert asks_for(spec(*configs[:3])) == {}
    assert asks_for(spec(*configs[:3], thorough=True)) == {"prefilled": [configs[2]]}
    assert asks_for(spec(configs[0], thorough=True)) == {}


def test_epochs_begin_cold() -> None:
    """Warm configurations have none; the serial loader has where there is no other."""
    cold, warm = config(2), config(2, cache="warm")
    assert asks_for(spec(cold, warm, epochs=3)) == {"epochs": [cold]}
    assert asks_for(spec(config(0), epochs=3)) == {"epochs": [config(0)]}


class Runner:
    """Stands in for the child: each study takes `takes_s`, and fails where `fails` says so."""

    def __init__(self, clock: FakeClock, takes_s: float = 10.0, fails: str = "") -> None:
        self.clock, self.takes_s, self.fails = clock, takes_s, fails
        self.orders: list[tuple[Order, float]] = []

    def __call__(self, order: Order, type_: type[Any], *, time_limit_s: float, on_event: Any, **_: Any) -> Any:
        self.orders.append((order, time_limit_s))
        on_event(Event(stage="epoch 1", done=1, total=2))
        self.clock.sleep(self.takes_s)
        if self.fails:
            return RunFailure(
                config=order.config, stage="epoch 1", reason=self.fails, hint="", exit_code=1, signal=None, log=(),
                started_utc="", wall_s=self.takes_s,
            )  # fmt: skip
        epoch = Epoch(images=2000, wall_s=10.0, delivered_bytes=1, storage_bytes=1)
        return EpochsMeasured(
            config=order.config, started_utc="", set_bytes=1, memory_bytes=1, resident_before=0.0, epochs=(epoch,)
        )


@pytest.fixture
def run(tmp_path: Path, measure_fake: Measure) -> RunDirectory:
    """Three configurations, of which one is not measured; two epochs are asked for."""
    configs = [config(2, compute=f"emulated:{rate}") for rate in (1000, 2000, 3000)]
    record = RunRecord(
        created_utc="2026-01-01T00:00:00+00:00", spec=spec(*configs, epochs=2), environment=example_environment()
    )
    made = RunDirectory.create(tmp_path / "run", record, [FILES])
    for rate in (1000, 2000):
        made.save(measure_fake(Service(cpu_s=0.001), files=FILES, workers=2, compute=f"emulated:{rate}"))
    return made


def studied(run: RunDirectory, runner: Runner, left_s: float | None = None, rate: float = 500.0) -> list[float]:
    shares: list[float] = []
    study_all(
        run, clock=runner.clock, run_one=runner, rate=lambda _: rate,
        on_progress=lambda now: shares.append(now.share), left_s=left_s,
    )  # fmt: skip
    return shares


def test_what_was_measured_is_studied_once(run: RunDirectory) -> None:
    """Each with its files and number of epochs; a second call has nothing left to do."""
    runner = Runner(FakeClock())
    shares = studied(run, runner)
    assert [(order.config.compute.name, order.study, order.epochs) for order, _ in runner.orders] == [
        ("emulated:1000", "epochs", 2), ("emulated:2000", "epochs", 2),
    ]  # fmt: skip
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] < 1
    studied(run, runner)
    assert len(runner.orders) == 2
    assert isinstance(run.study("epochs", runner.orders[0][0].config.key), EpochsMeasured)


def test_a_failure_is_kept_as_the_reason_and_tried_again(run: RunDirectory) -> None:
    """The report can say why there is nothing; a resumed sweep may do better."""
    runner = Runner(FakeClock(), fails="a worker was killed")
    studied(run, runner)
    found = run.study("epochs", runner.orders[0][0].config.key)
    assert found is not None
    assert found.reason == Remark(code="failed", facts={"error": "a worker was killed", "stage": "epoch 1", "hint": ""})
    runner.fails = ""
    studied(run, runner)
    assert len(runner.orders) == 4


def test_what_a_budget_has_no_time_for_waits() -> None:
    """A study that takes longer than is left is passed over, and the policy says that not all is measured."""
    tasks = [
        StudyTask(study="epochs", config=config(n), files=FILES, expected_s=seconds, number=n, total=3)
        for n, seconds in ((1, 10.0), (2, 30.0), (3, 5.0))
    ]

    def asked(*done: int, left_s: float | None, spent_s: float = 0.0) -> int | str:
        results = [Result(what=tasks[n - 1], found=None) for n in done]
        found = StudiesPolicy(tasks=tasks, left_s=left_s).next(Results(done=results, spent_s=spent_s))
        return found.reason if isinstance(found, Stop) else found.what.number

    assert [asked(*(1, 2, 3)[:done], left_s=None) for done in range(4)] == [1, 2, 3, "complete"]
    assert asked(left_s=20.0) == 1
    assert asked(1, left_s=20.0, spent_s=12.0) == 3
    assert asked(1, 3, left_s=20.0, spent_s=16.0) == "no_time"
    assert asked(left_s=4.0) == "no_time"


def test_epochs_that_take_longer_than_the_timeout_are_not_begun(run: RunDirectory) -> None:
    """At the rate of the verdict, with the option that allows it."""
    runner = Runner(FakeClock())
    studied(run, runner, rate=5.0)
    found = run.study("epochs", run.record.spec.configs[0].key)
    assert not runner.orders and found is not None
    assert isinstance(found.reason, Remark)
    assert remark_words(found.reason).startswith("2 epochs of 2048 images take about 13 min")
    assert remark_words(found.reason).endswith("more than --time-limit: 10 min")

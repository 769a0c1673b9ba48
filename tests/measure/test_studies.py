"""What a sweep measures beside its verdicts: whole epochs, and training from a full buffer, on a fake clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.analyze.caches import lru_hits
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.report import buffer_effect, epochs_of
from loaderprobe.measure.assembly import make_compute
from loaderprobe.measure.runner import Event, Order
from loaderprobe.measure.studies import (
    EpochsStudy,
    PrefilledStudy,
    StudiesPolicy,
    StudyTask,
    batches_read,
    images_for,
    in_epochs,
    pages_bytes,
    study_all,
    too_small,
)
from loaderprobe.policy import Result, Results, Stop
from loaderprobe.records.config import RunConfig, SweepSpec, asks_for
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Epoch, EpochsMeasured, Prefilled
from loaderprobe.render.remarks import remark_words
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import (
    FakeClock,
    FakePageCache,
    ScriptedLoader,
    Service,
    example_config,
    example_environment,
    example_files,
)
from tests.measure.conftest import Measure
from tests.measure.scripted import scripted_parts

SERVICE = Service(cpu_s=0.002, blocked_s=0.006)
"""With 4 workers: 500 images/s cold."""
FILES = example_files(1000)
CONFIG = example_config(data=FILES.fingerprint, compute="emulated:100000")


def test_an_epoch_has_each_file_once_in_its_own_order() -> None:
    """What fills no batch is left out, of each epoch other files. Too few images are refused with the number needed."""
    paths = in_epochs(FILES, CONFIG, 3).paths
    parts = [paths[number * 992 : (number + 1) * 992] for number in range(3)]
    assert len(paths) == 3 * 992 and all(len(set(part)) == 992 for part in parts)
    assert parts[0] != parts[1] != parts[2] and set(parts[0]) != set(parts[1])
    assert too_small(example_files(287), CONFIG) == Remark(
        code="too_few_for_epoch", facts={"images": 287, "least": 288}
    )
    assert too_small(example_files(288), CONFIG) is None


class Small(FakePageCache):
    """Drops the files that were used least recently."""

    def __init__(self, files: int) -> None:
        super().__init__()
        self._files = files
        self._used: dict[Path, None] = {}

    def warm(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._used.pop(path, None)
            self._used[path] = None
        while len(self._used) > self._files:
            del self._used[next(iter(self._used))]
        self.held = set(self._used)


@pytest.mark.parametrize(
    ("cache", "share", "fit", "cold"),
    [
        # The eight images that the first epoch left out are cold in the second.
        (FakePageCache(), 1.5, "fits", [1, 8 / 992, 0]),
        # A cache that drops the least recently used answers 15 % of random reads, not half of them.
        (Small(500), 0.5, "fits in part", [1, 1 - lru_hits(0.5), 1 - lru_hits(0.5)]),
        (Small(100), 0.1, "does not fit", [1, 1, 1]),
    ],
)
def test_epochs_after_the_first_are_as_cold_as_the_memory_makes_them(
    cache: FakePageCache, share: float, fit: str, cold: list[float]
) -> None:
    """Of a set that fits, a quarter as much time: two workers with 8 ms an image, then with 2 ms."""
    clock, order = FakeClock(), in_epochs(FILES, CONFIG, 3)
    parts = scripted_parts(SERVICE, clock, make_compute(CONFIG, clock), CONFIG, order, cache)
    study = EpochsStudy(
        config=CONFIG, files=FILES, order=order, parts=parts, epochs=3, resident_before=0.0,
        memory=lambda: round(share * pages_bytes(FILES)), on_stage=lambda *_: None,
    )  # fmt: skip
    found = epochs_of(study.run(), FILES)
    assert found.fit == fit
    assert [each.cold_fraction for each in found.epochs] == pytest.approx(cold, abs=0.002 if fit == "fits" else 0.05)
    if fit == "fits":
        assert [each.images_per_s for each in found.epochs] == pytest.approx([250, 1000, 1000], rel=0.04)


class Filling(ScriptedLoader):
    """Workers that say when all that is requested has been made."""

    def still(self, taken: int) -> bool:
        now_ns = self.clock.now_ns()
        for number in list(self._asked_ns):
            if self._start_ns(number) <= now_ns:
                self._make(number)
        return not self._asked_ns and all(ready_ns <= now_ns for ready_ns, _ in self._ready_ns.values())


class Never(ScriptedLoader):
    """Workers that never stand still."""

    def still(self, taken: int) -> bool:
        return False


def prefilled(*, images: int = 8192, loader: type[ScriptedLoader] = Filling, **changes: Any) -> Prefilled:
    clock, files, cache = FakeClock(), example_files(images), FakePageCache()
    config = example_config(data=files.fingerprint, workers=4, **changes)
    parts = scripted_parts(SERVICE, clock, make_compute(config, clock), config, files, cache)
    parts = replace(parts, loader=loader(config, files, clock, cache, SERVICE))
    return PrefilledStudy(config, files, parts, lambda *_: None).run()


@pytest.mark.parametrize("factor", [1, 4])
def test_the_rate_falls_as_the_batches_of_the_buffer_are_used_up(measure_fake: Measure, factor: int) -> None:
    """They are seen at every number of iterations, and no others."""
    study = prefilled(prefetch_factor=factor, compute="emulated:5000")
    measured = measure_fake(SERVICE, workers=4, prefetch_factor=factor, compute="emulated:5000")
    found = buffer_effect(measured, verdict(measured), study)
    assert found is not None and (found.how, found.batches) == ("measured", 4 * factor)
    assert study.prefilled is not None and study.prefilled.steps == 100
    assert study.prefilled.resident_before == 0 and found.most == pytest.approx(10, rel=0.03)
    for iterations in (50, 100):
        # Batches of 4 workers come in groups of 4.
        assert found.measured(iterations) == pytest.approx(found.predicted(iterations), rel=0.05)


def test_a_buffer_that_cannot_be_filled_is_refused() -> None:
    """A set that is too small, with the size that is enough; and after a minute of the clock."""
    config = example_config(workers=4, prefetch_factor=4)
    least = images_for(config, 2 * config.loader.batches_ahead)
    why = Remark(code="too_few_for_buffer", facts={"images": least - 1, "least": least})
    assert prefilled(images=least - 1, prefetch_factor=4).reason == why
    assert prefilled(images=least, prefetch_factor=4).prefilled is not None
    assert prefilled(loader=Never).reason == Remark(code="buffer_not_filled", facts={"within_s": 60.0})
    assert batches_read(example_config(workers=8, prefetch_factor=8).loader) == 72 + 64 + 3 * 64


def config(workers: int, **changes: Any) -> RunConfig:
    return example_config(data=FILES.fingerprint, workers=workers, **changes)


FACTORS = [config(workers, prefetch_factor=factor) for factor in (1, 4) for workers in (2, 8)]


@pytest.mark.parametrize(
    ("configs", "options", "asked"),
    [
        # A full buffer with the most workers, where prefetch factors differ; never of the serial loader.
        ([config(0), *FACTORS], {}, {"prefilled": [FACTORS[1], FACTORS[3]]}),
        ([config(0), *FACTORS[:2]], {}, {}),
        ([config(0), *FACTORS[:2]], {"thorough": True}, {"prefilled": [FACTORS[1]]}),
        ([config(0)], {"thorough": True}, {}),
        # Epochs begin cold; of the serial loader where there is no other.
        ([config(2), config(2, cache="warm")], {"epochs": 3}, {"epochs": [config(2)]}),
        ([config(0)], {"epochs": 3}, {"epochs": [config(0)]}),
    ],
)
def test_what_is_studied_of_a_sweep(configs: list[RunConfig], options: dict[str, Any], asked: dict[str, Any]) -> None:
    assert asks_for(SweepSpec(configs=tuple(configs), **options)) == asked


class Runner:
    """Stands in for the child: each study takes 10 s, and fails where `fails` says so."""

    def __init__(self, fails: str = "") -> None:
        self.clock, self.fails = FakeClock(), fails
        self.orders: list[Order] = []

    def __call__(self, order: Order, type_: type[Any], *, on_event: Any, **_: Any) -> Any:
        self.orders.append(order)
        on_event(Event(stage="epoch 1", done=1, total=2))
        self.clock.sleep(10.0)
        if self.fails:
            return RunFailure(
                config=order.config, stage="epoch 1", reason=self.fails, hint="", exit_code=1, signal=None, log=(),
                started_utc="", wall_s=10.0,
            )  # fmt: skip
        epoch = Epoch(images=2000, wall_s=10.0, delivered_bytes=1, storage_bytes=1)
        return EpochsMeasured(
            config=order.config, started_utc="", set_bytes=1, memory_bytes=1, resident_before=0.0, epochs=(epoch,)
        )


@pytest.fixture
def run(tmp_path: Path, measure_fake: Measure) -> RunDirectory:
    """Three configurations, of which one is not measured; two epochs are asked for."""
    configs = tuple(config(2, compute=f"emulated:{rate}") for rate in (1000, 2000, 3000))
    spec = SweepSpec(configs=configs, epochs=2)
    record = RunRecord(created_utc="2026-01-01T00:00:00+00:00", spec=spec, environment=example_environment())
    made = RunDirectory.create(tmp_path / "run", record, [FILES])
    for rate in (1000, 2000):
        made.save(measure_fake(Service(cpu_s=0.001), files=FILES, workers=2, compute=f"emulated:{rate}"))
    return made


def studied(run: RunDirectory, runner: Runner, rate: float = 500.0) -> list[float]:
    shares: list[float] = []
    study_all(
        run, clock=runner.clock, run_one=runner, rate=lambda _: rate,
        on_progress=lambda now: shares.append(now.share), left_s=None,
    )  # fmt: skip
    return shares


def test_what_was_measured_is_studied_once(run: RunDirectory) -> None:
    """Each with its files and number of epochs. A failure is kept as the reason, and tried again; what is there is
    not measured again."""
    runner = Runner("a worker was killed")
    shares = studied(run, runner)
    asked = [(order.config.compute.name, order.study, order.epochs) for order in runner.orders]
    assert asked == [("emulated:1000", "epochs", 2), ("emulated:2000", "epochs", 2)]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] < 1
    key = runner.orders[0].config.key
    why = Remark(code="failed", facts={"error": "a worker was killed", "stage": "epoch 1", "hint": ""})
    found = run.study("epochs", key)
    assert found is not None and found.reason == why
    runner.fails = ""
    studied(run, runner)
    studied(run, runner)
    assert len(runner.orders) == 4
    assert isinstance(run.study("epochs", key), EpochsMeasured)


def test_epochs_that_take_longer_than_the_timeout_are_not_begun(run: RunDirectory) -> None:
    """At the rate of the verdict, with the option that allows it."""
    runner = Runner()
    studied(run, runner, rate=2.5)
    found = run.study("epochs", run.record.spec.configs[0].key)
    assert not runner.orders and found is not None
    assert isinstance(found.reason, Remark)
    assert remark_words(found.reason).startswith("2 epochs of 1000 images take about 13 min")
    assert remark_words(found.reason).endswith("more than --time-limit: 10 min")


TASKS = [
    StudyTask(study="epochs", config=config(n), files=FILES, expected_s=seconds, number=n, total=3)
    for n, seconds in ((1, 10.0), (2, 30.0), (3, 5.0))
]


@pytest.mark.parametrize(
    ("done", "left_s", "spent_s", "expected"),
    [
        ((), None, 0.0, 1),
        ((1,), None, 0.0, 2),
        ((1, 2), None, 0.0, 3),
        ((1, 2, 3), None, 0.0, "complete"),
        ((), 20.0, 0.0, 1),
        ((1,), 20.0, 12.0, 3),
        ((1, 3), 20.0, 16.0, "no_time"),
        ((), 4.0, 0.0, "no_time"),
    ],
)
def test_what_a_budget_has_no_time_for_waits(
    done: tuple[int, ...], left_s: float | None, spent_s: float, expected: int | str
) -> None:
    """A study that takes longer than is left is passed over, and the policy says that not all is measured."""
    results = [Result(what=TASKS[n - 1], found=None) for n in done]
    found = StudiesPolicy(tasks=TASKS, left_s=left_s).next(Results(done=results, spent_s=spent_s))
    assert (found.reason if isinstance(found, Stop) else found.what.number) == expected

"""The sweep over many configurations, its studies and its storage: kept at once, resumed by content, in its budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.analyze.report import epochs_of
from loaderprobe.analyze.verdict.rounds import next_round
from loaderprobe.measure import ceilings
from loaderprobe.measure.assembly import make_compute
from loaderprobe.measure.further import CUT_SHORT, NO_TIME, enough_said, joined
from loaderprobe.measure.pace import Durations, Part
from loaderprobe.measure.runner import RAISE_BUDGET, RAISE_TIME_LIMIT, Order
from loaderprobe.measure.studies import batches_read, pages_bytes, study_all, too_small, untimed
from loaderprobe.measure.study import in_epochs, study_epochs, study_prefilled
from loaderprobe.measure.sweep import (
    DEALT,
    Orders,
    SweepPolicy,
    SweepResult,
    may_go_on,
    pending,
    plan_sweep,
    sweep,
    usual_seconds,
)
from loaderprobe.policy import Ask, Fixed
from loaderprobe.records.config import Auto, RunConfig, SweepSpec, asks_for
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, Missing, RunFailure, Series
from loaderprobe.records.phases import CacheLabel, StorageCeiling
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.studies import Epoch, EpochsMeasured, Prefilled
from loaderprobe.records.waits import WaitSamples
from loaderprobe.render.words import remark_words, sweep_plan_words
from loaderprobe.store.codec import decode, encode
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.testing import FakeClock, FakePageCache, ScriptedLoader, Service, example_config, example_files
from tests.examples.bandwidth import example_phase
from tests.measure.scripted import measured, measured_alone, scripted_parts, scripted_session
from tests.stored import empty_run, failure

FILES = example_files(4096)
# Cold segments of the first take seconds; of the second one round is enough.
SLOW = Service(cpu_s=0.001, blocked_s=0.2)
FAST = Service(cpu_s=0.0005)
CLEAR = Service(cpu_s=0.001, blocked_s=0.05)
CONFIGS = tuple(
    example_config(data=FILES.fingerprint, workers=workers, compute="emulated:100", batch_size=8)
    for workers in (0, 1, 2)
)
Heard = list[tuple[int, int]]
"""Seconds that are over, of how many."""


@pytest.fixture(autouse=True)
def no_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are not there; further rounds are whatever a first one would be."""
    monkeypatch.setattr("loaderprobe.measure.sweep.measure_ceiling", lambda *_: None)
    monkeypatch.setattr("loaderprobe.measure.sweep.further_round", next_round)


@pytest.fixture
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """One order is enough for each configuration."""
    monkeypatch.setattr("loaderprobe.measure.sweep.further_round", lambda measured, *, thorough: ())


class Children:
    """Stands in for the child processes: a session on a fake clock for each order, by the number of workers. Those that
    `fail` have no result; one `is_interrupted`. Each takes `takes_s`, or as long as it takes. A study comes to one
    epoch."""

    def __init__(
        self, *, fail: tuple[int, ...] = (), is_interrupted: int | None = None, takes_s: float | None = None,
        hints: Mapping[int, str] | None = None,
    ) -> None:  # fmt: skip
        self.clock, self.orders = FakeClock(), list[Order]()
        self._fail, self._is_interrupted, self._takes_s, self._hints = fail, is_interrupted, takes_s, hints or {}

    def run(self, order: Order, *, on_stage: Any, **_: Any) -> Any:
        order = decode("order", encode("order", order), Order, "an order")
        self.orders.append(order)
        config, workers = order.config, order.config.loader.workers
        if workers == self._is_interrupted:
            raise KeyboardInterrupt
        self.clock.sleep(self._takes_s or 0.0)
        on_stage("half", 1, 2)
        if workers in self._fail:
            return failure(config, hint=self._hints.get(workers, ""))
        if order.study:
            epoch = Epoch(images=2000, wall_s=10.0, delivered_bytes=1, storage_bytes=1)
            return EpochsMeasured(config=config, set_bytes=1, memory_bytes=1, epochs=(epoch,))
        session = scripted_session(
            FAST if workers else SLOW, config, FILES, clock=None if self._takes_s else self.clock,
            budget_s=order.budget_s, earlier=order.earlier,
        )  # fmt: skip
        return measured(session)

    @property
    def workers(self) -> list[int]:
        return [order.config.loader.workers for order in self.orders]


def run_of(
    path: Path, budget_s: float | None = None, *, configs: tuple[RunConfig, ...] = CONFIGS, files: FileSet = FILES,
    epochs: int = 0,
) -> RunDirectory:  # fmt: skip
    return empty_run(path / "run", *configs, files=files, budget_s=budget_s, epochs=epochs)


def swept(run: RunDirectory, children: Children, further: Mapping[RunConfig, SweepResult] = {}) -> Heard:
    """The progress that is heard of."""
    heard: Heard = []
    orders = Orders(run=run, processes=children, clock=children.clock, on_stage=lambda _, *of: heard.append(of))
    sweep(orders, tuple, further)
    return heard


def results(run: RunDirectory) -> list[object]:
    return [run.result(config.key) for config in run.record.spec.configs]


def slow_one(run: RunDirectory) -> Measurement:
    found = results(run)[0]
    assert isinstance(found, Measurement)
    return found


@pytest.mark.usefixtures("one_round")
def test_results_are_kept_once_and_resumed_by_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure ends nothing. What hears of a measurement may be interrupted; a failure is not heard of."""
    run, saved, heard = run_of(tmp_path, budget_s=100.0), list[str](), list[int]()
    save = RunDirectory.save

    def counted(run: RunDirectory, found: Measurement | RunFailure) -> None:
        saved.append(found.config.key)
        save(run, found)

    def kept(order: Order, found: Measurement) -> None:
        assert run.has_measurement(found.config.key)
        heard.append(order.config.loader.workers)
        if order.config.loader.workers == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "save", counted)
    monkeypatch.setattr("loaderprobe.measure.sweep.measure_ceiling", lambda _, order, found: kept(order, found))
    with pytest.raises(KeyboardInterrupt):
        swept(run, Children(fail=(1,), is_interrupted=2))
    assert [type(found) for found in results(run)] == [Measurement, RunFailure, type(None)]
    again = Children()
    with pytest.raises(KeyboardInterrupt):
        swept(RunDirectory.open(run.path), again)
    assert again.workers == [1, 2] and heard == [0, 1, 2]
    assert saved == [CONFIGS[number].key for number in (0, 1, 1, 2)]
    assert pending(run) == [] and not list((run.path / "failures").iterdir())


def test_configurations_without_their_files_fail_and_the_others_go_on(tmp_path: Path) -> None:
    """A damaged list of files costs the configurations that need it; none of them is tried."""
    run, children = run_of(tmp_path), Children()
    (path,) = (run.path / "files").iterdir()
    path.write_bytes(b"{")
    swept(run, children)
    assert children.orders == []
    assert all(isinstance(found, RunFailure) and str(path) in found.reason for found in results(run))


@pytest.mark.usefixtures("one_round")
@pytest.mark.parametrize(("budget_s", "hint"), [(100.0, RAISE_BUDGET), (None, RAISE_TIME_LIMIT)])
def test_a_timeout_names_the_limit_that_it_ran_into(tmp_path: Path, budget_s: float | None, hint: str) -> None:
    """The budget where that leaves less than the time limit of 600 s; another failure keeps its hint. The log that it
    names is found: in the run, by its path."""
    run = run_of(tmp_path, budget_s)
    given = {0: "look at disks", 1: RAISE_TIME_LIMIT, 2: RAISE_TIME_LIMIT}
    swept(run, Children(fail=(0, 1, 2), hints=given))
    found = [each for each in results(run) if isinstance(each, RunFailure)]
    places = [f"failures/{each.config.key}.json" for each in found]
    said = [hint.replace("the log", f"the log in {place} of the run") for place in places]
    assert [each.hint for each in found] == ["look at disks", *said[1:]]
    assert all((run.path / place).is_file() for place in places)


@pytest.mark.parametrize("budget_s", [27.0, 30.0])
def test_the_budget_is_kept_by_further_rounds(tmp_path: Path, budget_s: float) -> None:
    """They end within it, and less than one round of it is left; progress never says more than all. A resumed run adds
    rounds to what is open."""
    run, children = run_of(tmp_path, budget_s), Children()
    heard = swept(run, children)
    assert (children.clock.now_ns() - FakeClock().now_ns()) / 1e9 <= budget_s
    assert len(slow_one(run).segments) > 2
    assert NO_TIME in slow_one(run).notes, "the rest was not enough for one more"
    assert all(0 <= done <= total for done, total in heard)
    resumed, again, before = RunDirectory.open(run.path), Children(), slow_one(run)
    further = may_go_on(resumed, run.record.spec.configs)
    assert pending(resumed) == [] and CONFIGS[0] in further
    swept(resumed, again, further)
    assert again.orders and slow_one(run).segments[: len(before.segments)] == before.segments
    assert len(slow_one(run).segments) > len(before.segments)


def asked(*done: tuple[int, SweepResult], spent_s: float = 0.0, **options: Any) -> Any:
    """(workers, budget) of what is measured next of three configurations, or why nothing is, after these results."""
    earlier = {CONFIGS[n]: found for n, found in options.pop("earlier", ())}
    todo = [config for config in CONFIGS if config not in earlier]
    policy = SweepPolicy(spec=SweepSpec(configs=CONFIGS, **options), todo=todo, earlier=earlier)
    so_far = [(CONFIGS[n], found) for n, found in done]
    found = policy.next(so_far, spent_s)
    assert not isinstance(found, Ask) or found.done + found.takes <= found.total * (1 + 1e-9), "progress is of all"
    return (found.what.loader.workers, found.budget_s) if isinstance(found, Ask) else found


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
def test_time_is_dealt_out_evenly(options: dict[str, Any], took_s: float, budgets: list[float | str | None]) -> None:
    """Evenly, but for 5 % of a budget. Without one, none is left out; where all is measured, each has what it needs."""
    for number, expected in enumerate(budgets):
        found = asked(*((n, SweepResult()) for n in range(number)), spent_s=number * took_s, **options)
        assert found == (expected if isinstance(expected, str) else (number, pytest.approx(expected))), number


DONE, OPEN = (SweepResult(needed_s=5.0, is_open=is_open) for is_open in (False, True))
CHEAP = SweepResult(needed_s=4.0, is_open=True)
UNEVEN = SweepResult(needed_s=9.0, is_uneven=True)
FIRST = [(0, OPEN), (1, DONE), (2, CHEAP)]
SECOND = [(0, OPEN), (1, UNEVEN), (2, CHEAP)]
LONG = {"budget_s": 110 / DEALT, "spent_s": 90.0}


@pytest.mark.parametrize(
    ("done", "options", "expected"),
    [
        (FIRST, {}, (2, 10.0)),  # half of what is left
        ([*FIRST, (2, CHEAP)], {}, (0, 20.0)),
        ([*FIRST, (2, CHEAP), (0, OPEN)], {}, (2, 10.0)),
        # Of clear ones, too, but for the time that the kind of storage takes.
        ([*FIRST, (2, SweepResult()), (0, SweepResult())], {"spent_s": 10.0}, (1, 5.0)),
        ([*FIRST, (2, SweepResult()), (0, SweepResult())], {"spent_s": 11.0}, "complete"),
        (FIRST, {"spent_s": 35.5}, (2, 4.5)),  # the only one that fits
        (FIRST, {"spent_s": 36.5}, "complete"),
        (FIRST, {"thorough": True, "budget_s": None}, "complete"),  # all is measured at once
        # Without a budget, 30 s beyond the usual times: of open verdicts only.
        (FIRST, {"budget_s": None, "spent_s": 51.0}, (2, 15.0)),
        ([(0, DONE), (1, DONE), (2, UNEVEN)], {"budget_s": None, "spent_s": 51.0}, "complete"),
        # Once where rounds differ by a factor; the time for it is left where the sweep is long.
        (SECOND, LONG, (1, 20.0)),
        ([*SECOND, (1, UNEVEN)], LONG, (2, 10.0)),
        ([], {**LONG, "spent_s": 0.0}, (0, (110 - 10) / 3)),
        # What is missing of a resumed sweep is measured first, then the earlier ones like all others.
        ([], {"earlier": FIRST[:2], "spent_s": 0.0}, (2, 40.0)),
        ([(2, DONE)], {"earlier": FIRST[:2]}, (0, 20.0)),
        ([], {"earlier": FIRST, "spent_s": 0.0}, (2, 20.0)),
        ([(2, CHEAP)], {"earlier": FIRST}, (0, 20.0)),
        ([], {"earlier": SECOND, **LONG}, (1, 20.0)),
    ],
)
def test_time_that_is_left_goes_to_further_rounds_while_one_fits(
    done: list[tuple[int, SweepResult]], options: dict[str, Any], expected: tuple[int, float] | str
) -> None:
    """Of open verdicts first, each once before any twice, the cheapest first; what brought nothing is left alone."""
    found = asked(*done, **{"budget_s": 40 / DEALT, "spent_s": 20.0, **options})
    assert found == (expected if isinstance(expected, str) else (expected[0], pytest.approx(expected[1])))


AUTO = Auto(workers=True, prefetch_factor=False, most_workers=8)


@pytest.mark.parametrize(
    ("count", "changes", "said"),
    [
        (0, {}, "Plan: everything is already measured."),
        (21, {"further": dict(FIRST)}, "Further rounds of 3 configurations measured before. each at least 4.0 s"),
        (21, {}, "where the cause is still open. It takes about 5 min 57 s, 30 s more. open; --budget"),
        (21, {"auto": AUTO}, "These take about 5 min 57 s, 30 s more. sets a limit for all"),
        (21, {"auto": AUTO, "thorough": True}, "These take about 11 min 54 s"),
        (21, {"thorough": True}, "about 11 min 54 s; --budget"),
        (21, {"budget_s": 300.0}, "3 rounds, as far as 5 min allow. 5 min, 14 s each. up to 30 s later"),
        (21, {"budget_s": 30.0}, "less than the 2 min 48 s that one round. may be left for --resume"),
    ],
)
def test_a_plan_says_what_is_measured_and_for_how_long(count: int, changes: dict[str, Any], said: str) -> None:
    """Ablations where the cause stays open, or everywhere; and where a budget does not suffice, before it is spent."""
    configs = tuple(example_config(batch_size=number + 1) for number in range(count))
    further = changes.pop("further", {})
    told = " ".join(sweep_plan_words(plan_sweep(SweepSpec(configs=configs, **changes), configs, further=further)))
    assert count == 0 or "21 configurations: the loader alone and in training, 3 rounds" in told or changes
    assert all(words.strip() in told for words in said.split(". "))
    assert "thorough" not in changes or "where the cause is still open" not in told


@pytest.mark.parametrize(
    ("changes", "seconds", "thorough_s", "least_s"),
    [
        ({}, 17, 34, 8),
        ({"rounds": 6}, 34, 64, 8),
        ({"rounds": 1}, 17, 17, 8),
        ({"compute": "cuda"}, 60, 60, 8),
        ({"compile": True}, 197, 214, 188),
        ({"ranks": 2}, 77, 94, 8),
    ],
)  # fmt: skip
def test_a_usual_time_is_expected(changes: dict[str, Any], seconds: float, thorough_s: float, least_s: float) -> None:
    """More rounds, a GPU, compiling and ranks take more; every ablation takes no less; one round also compiles."""
    config = example_config(**changes)
    plans = (plan_sweep(SweepSpec(configs=(config,), thorough=each), [config]) for each in (False, True))
    usual, thorough = (plan[0].facts for plan in plans)
    assert usual_seconds(config) == usual["expected_s"] == seconds
    assert (thorough["expected_s"], thorough["least_s"]) == (thorough_s, least_s)


def test_what_is_beside_the_rounds_is_joined_too() -> None:
    """Readings, samples of waits with their subjects; what is missing only where neither has it."""
    no_gpu, no_waits = (Missing(name=name, reason=reported("not there")) for name in ("sm", "waits"))

    def seen(subject: str, found: Measurement) -> Measurement:
        waits = WaitSamples(
            time_ns=(1,), worker=(0,), kind=(1,), subject=(0,), subjects=(subject,), letters_only=None, cpu_ns=1,
            wall_ns=1,
        )  # fmt: skip
        series = Series(name="cores", unit="", source="", time_ns=(1,), values=(1.0,))
        return replace(found, waits=waits, series=(series,), missing=(no_gpu,))

    one = measured_alone(FAST)
    both = joined(seen("a.jpg", one), seen("b.jpg", one))
    assert both.waits is not None
    assert [both.waits.subjects[each] for each in both.waits.subject] == ["a.jpg", "b.jpg"]
    assert [len(each.values) for each in both.series] == [2]
    # On a clock that began at 0 again, the later follows the earlier all the same.
    (first, second), records = both.waits.time_ns, both.worker_batches
    half = len(one.segments), len(one.worker_batches.batch)
    last, begin = both.segments[half[0] - 1].closed_ns, both.segments[half[0]].begin_ns[0]
    assert first < last < second < begin and begin - second == one.segments[0].begin_ns[0] - first
    assert records.start_ns[half[1]] - second == records.start_ns[0] - first
    assert [each.time_ns for each in both.series] == [(first, second)]
    assert both.missing == (no_gpu,)
    assert joined(replace(one, missing=(no_waits,)), seen("b.jpg", one)).missing == (no_gpu,)


LOADER, TRAINING, RESIDENT = Part("baseline", "loader_only"), Part("baseline", "training"), Part("resident", "training")
WARM, CACHED = Part("warm", "loader_only"), Part("cached_samples", "loader_only")
ALL, SHORT = [LOADER, TRAINING, RESIDENT, WARM, CACHED], [LOADER, TRAINING, WARM, CACHED]
OF_RANKS = [Part("baseline", "alone"), Part("baseline", "loader_only", 1), Part("exchange", "training")]
TWICE = {"shorter": SHORT[:3], "times": 2}


@pytest.mark.parametrize(
    ("plan", "left_s", "options", "expected"),
    [
        (ALL, 10.0, {}, ALL),
        ([*ALL, *OF_RANKS], 15.0, {}, ALL),
        ([*ALL, Part("one_thread", "loader_only")], 11.0, {}, ALL),
        (ALL, 9.0, {}, [LOADER, TRAINING, WARM, CACHED]),
        (ALL, 7.0, {}, [LOADER, WARM, CACHED]),
        (ALL, 5.0, {}, []),
        ([LOADER, TRAINING, Part("warm", "training")], 5.0, {}, []),
        (SHORT, 16.0, TWICE, SHORT),
        (SHORT, 15.0, TWICE, SHORT[:3]),
        (SHORT, 11.0, TWICE, SHORT),  # one round in any case: all of it
        (SHORT, 15.0, {"shorter": SHORT[:3]}, SHORT),  # the last round needs to fit once
        (SHORT, 4.0, {"shorter": SHORT[:3]}, [LOADER, WARM]),
        (SHORT, 3.0, TWICE, []),
    ],
)
def test_a_round_may_be_in_part(plan: list[Part], left_s: float, options: dict[str, Any], expected: list[Part]) -> None:
    """Segments of 2 s. One thread and ranks go first, then compute alone, then training where ablations are compared
    with the loader; what decides is measured if it fits twice where all of it does not."""
    durations = Durations(usual_s=2.0)
    assert durations.fitting(ALL[:3], 5.0) == [], "of those never measured"
    for part in ALL[:3]:
        durations.add(part, 2.0, 0.0)
    assert durations.fitting(plan, left_s, **options) == expected


def test_a_segment_that_was_not_measured_is_expected_to_flush_as_others_do() -> None:
    """With 8 workers of 5.7 s a batch, three ablations took 170 s and not 74. Compute alone flushes nothing."""
    durations = Durations(usual_s=1.6)
    assert durations.of_round(ALL) == 5 * 1.6
    durations.add(LOADER, 10.0, 0.2)
    assert durations.of_round(ALL) == pytest.approx(10.2 + 4 * 1.6)
    durations.add(TRAINING, 10.0, 59.8)
    assert durations.of_round(ALL) == pytest.approx(10.2 + 69.8 + 1.6 + 2 * 31.0)
    durations.add(RESIDENT, 1.0, 99.0)
    assert durations.of_round(ALL) == pytest.approx(10.2 + 69.8 + 100.0 + 2 * 31.0)


def test_a_part_of_a_round_is_noted() -> None:
    """With the budget that would do, in full steps of five seconds; further rounds take the note away; others stay."""
    other = Remark(code="all_batches_made")
    session = scripted_session(CLEAR, CONFIGS[0], FILES, budget_s=7.6)
    found = measured(session)
    assert CUT_SHORT in found.notes
    assert session.more_s is not None and session.more_s > 0, "for two more rounds"
    assert {segment.activity for segment in found.segments if segment.round == 1} == {"loader_only"}
    said = enough_said((CUT_SHORT, other), 31.0, 3)
    assert said == (replace(CUT_SHORT, facts={"budget_s": 35.0, "rounds": 3.0}), other)
    for notes in (found.notes, said[:1]):
        assert not joined(replace(found, notes=notes), replace(found, notes=())).notes


@pytest.mark.parametrize("is_open", [True, False])
def test_more_time_is_given_where_the_verdict_is_open(is_open: bool) -> None:
    """And asked for only where the budget ends: batches of 256 at 190 images/s a core left a minute no experiment."""
    asked: list[float] = []

    def beyond_s(_: Measurement) -> float:
        asked.append(session._spent_s())
        return 60.0 * is_open

    session = scripted_session(CLEAR, CONFIGS[0], FILES, budget_s=7.6, beyond_s=beyond_s)
    found = measured(session)
    assert asked and min(asked) > 2.5, "the first round fits"
    assert (session.more_s is None) is is_open
    assert (CUT_SHORT in found.notes) is not is_open


SERVICE = Service(cpu_s=0.002, blocked_s=0.006)
"""With 4 workers: 500 images/s cold."""
FEW = example_files(1000)
CONFIG = example_config(data=FEW.fingerprint, compute="emulated:100000")


def test_an_epoch_has_each_file_once_in_its_own_order() -> None:
    """What fills no batch is left out, of each epoch other files. Too few images are refused with the number needed."""
    paths = in_epochs(FEW, CONFIG, 3).paths
    parts = [paths[number * 992 : (number + 1) * 992] for number in range(3)]
    assert len(paths) == 3 * 992 and all(len(set(part)) == 992 for part in parts)
    assert parts[0] != parts[1] != parts[2] and set(parts[0]) != set(parts[1])
    why = Remark(code="too_few_for_epoch", facts={"images": 287, "least": 288})
    assert [too_small(example_files(count), CONFIG) for count in (287, 288)] == [why, None]


@pytest.mark.parametrize(("share", "fit"), [(1.5, "fits"), (0.5, "fits in part"), (0.1, "does not fit")])
def test_epochs_after_the_first_are_as_cold_as_the_cache_makes_them(share: float, fit: str) -> None:
    """Of a set of which all stays, a quarter as much time: two workers with 8 ms an image, then with 2 ms. The eight
    images that the first epoch left out are cold in the second. Whether it fits is said of the memory that there is."""
    clock, order = FakeClock(), in_epochs(FEW, CONFIG, 3)
    parts = scripted_parts(SERVICE, clock, make_compute(CONFIG, clock), CONFIG, order, FakePageCache())
    study = study_epochs(
        CONFIG, FEW, order, parts, epochs=3,
        memory=lambda: round(share * pages_bytes(FEW)), on_stage=lambda *_: None,
    )  # fmt: skip
    found = epochs_of(study, FEW)
    assert found.fit == fit
    assert [each.cold_fraction for each in found.epochs] == pytest.approx([1, 8 / 992, 0], abs=0.002)
    assert [each.images_per_s for each in found.epochs] == pytest.approx([250, 1000, 1000], rel=0.04)


class Filling(ScriptedLoader):
    """Workers that say when all that is requested has been made."""

    def still(self, taken: int) -> bool:
        now_ns = self.clock.now_ns()
        for number in list(self._asked_ns):
            if self._start_ns(number) <= now_ns:
                self._make(number)
        return not self._asked_ns and all(ready_ns <= now_ns for ready_ns, _ in self._ready_ns.values())


def prefilled(*, images: int = 8192, loader: type[ScriptedLoader] = Filling, **changes: Any) -> Prefilled:
    clock, files, cache = FakeClock(), example_files(images), FakePageCache()
    config = example_config(data=files.fingerprint, workers=4, **changes)
    parts = scripted_parts(SERVICE, clock, make_compute(config, clock), config, files, cache)
    parts = replace(parts, loader=loader(config, files, clock, cache, SERVICE))
    return study_prefilled(config, files, parts, lambda *_: None)


def test_a_buffer_that_cannot_be_filled_is_refused() -> None:
    """A set that is too small, with the size that is enough; and after a minute of the clock."""
    config = example_config(workers=4, prefetch_factor=4)
    least = (untimed(config.loader) + 2 * config.loader.batches_ahead) * config.compute.batch_size
    why = Remark(code="too_few_for_buffer", facts={"images": least - 1, "least": least})
    assert prefilled(images=least - 1, prefetch_factor=4).reason == why
    assert prefilled(images=least, prefetch_factor=4).prefilled is not None
    never = type("Never", (ScriptedLoader,), {"still": lambda *_: False})  # workers that never stand still
    assert prefilled(loader=never).reason == Remark(code="buffer_not_filled", facts={"within_s": 60.0})
    assert batches_read(example_config(workers=8, prefetch_factor=8).loader) == 72 + 64 + 3 * 64


def few(workers: int, **changes: Any) -> RunConfig:
    return example_config(data=FEW.fingerprint, workers=workers, **changes)


FACTORS = [few(workers, prefetch_factor=factor) for factor in (1, 4) for workers in (2, 8)]


@pytest.mark.parametrize(
    ("configs", "options", "asked"),
    [
        # A full buffer with the most workers, where prefetch factors differ; never of the serial loader.
        ([few(0), *FACTORS], {}, {"prefilled": [FACTORS[1], FACTORS[3]]}),
        ([few(0), *FACTORS[:2]], {}, {}),
        ([few(0), *FACTORS[:2]], {"thorough": True}, {"prefilled": [FACTORS[1]]}),
        ([few(0)], {"thorough": True}, {}),
        # Epochs begin cold; of the serial loader where there is no other.
        ([few(2), few(2, cache="warm")], {"epochs": 3}, {"epochs": [few(2)]}),
        ([few(0)], {"epochs": 3}, {"epochs": [few(0)]}),
    ],
)
def test_what_is_studied_of_a_sweep(configs: list[RunConfig], options: dict[str, Any], asked: dict[str, Any]) -> None:
    assert asks_for(SweepSpec(configs=tuple(configs), **options)) == asked


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Three configurations, of which one is not measured; two epochs are asked for."""
    configs = tuple(few(2, compute=f"emulated:{rate}") for rate in (1000, 2000, 3000))
    made = run_of(tmp_path, configs=configs, files=FEW, epochs=2)
    for rate in (1000, 2000):
        made.save(measured_alone(Service(cpu_s=0.001), files=FEW, workers=2, compute=f"emulated:{rate}"))
    return made


def studied(run: RunDirectory, fail: tuple[int, ...] = ()) -> tuple[list[Order], list[float]]:
    """What the children were asked for, and the shares of all that were heard of; each study takes 10 s."""
    children, shares = Children(fail=fail, takes_s=10.0), list[float]()

    def heard(_: str, done: int, total: int) -> None:
        shares.append(done / total)

    study_all(Orders(run=run, processes=children, clock=children.clock, on_stage=heard))
    return children.orders, shares


def test_what_was_measured_is_studied_once(run: RunDirectory) -> None:
    """With its files and number of epochs. A failure is kept as the reason, and tried again; what is there is not."""
    orders, shares = studied(run, fail=(2,))
    asked = [(order.config.compute.name, order.study, order.epochs) for order in orders]
    assert asked == [("emulated:1000", "epochs", 2), ("emulated:2000", "epochs", 2)]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] < 1
    key = orders[0].config.key
    why = Remark(code="failed", facts={"error": "it broke", "stage": "half", "hint": ""})
    found = run.study("epochs", key)
    assert found is not None and found.reason == why
    assert [len(studied(run)[0]) for _ in range(2)] == [2, 0]
    found = run.study("epochs", key)
    assert found is not None and found.reason is None


def test_epochs_that_take_longer_than_the_timeout_are_not_begun(run: RunDirectory) -> None:
    """At the rate of the verdict, with the option that allows it."""
    for rate in (1000, 2000):
        run.save(measured_alone(Service(cpu_s=0.8), files=FEW, workers=2, compute=f"emulated:{rate}"))
    orders, _ = studied(run)
    found = run.study("epochs", run.record.spec.configs[0].key)
    assert not orders and found is not None
    assert isinstance(found.reason, Remark)
    assert remark_words(found.reason).startswith("2 epochs of 1000 images take about 13 min")
    assert remark_words(found.reason).endswith("more than --time-limit: 10 min")


TAKES = {1: 10.0, 2: 30.0, 3: 5.0}


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
def test_a_long_study_waits(done: tuple[int, ...], left_s: float | None, spent_s: float, expected: int | str) -> None:
    """A study that takes longer than is left is passed over, and the policy says that not all is measured. An ask says
    how far everything is, before it and within it."""
    policy = Fixed(asks=tuple(TAKES), takes=TAKES.__getitem__, left_s=left_s)
    found = policy.next([(n, None) for n in done], spent_s)
    took = sum(TAKES[n] for n in done)
    wanted = expected if isinstance(expected, str) else Ask(what=expected, done=took, takes=TAKES[expected], total=45)
    assert found == wanted


SIZES = (10_000, 20_000, 30_000, 40_000) * 4


@pytest.mark.parametrize(
    ("sizes", "cache", "by_requests", "expected"),
    [
        (SIZES, "cold", True, [1.0]),
        (SIZES, "cold", False, [0.0]),
        (SIZES, "warm", False, []),
        ((20_000,) * 16, "cold", True, []),
        (SIZES[:3], "cold", True, [1.0]),
    ],
    ids=["requests", "bytes", "from memory", "one size", "three files"],
)
def test_the_rates_of_small_and_large_files_tell_requests_from_bytes(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], cache: CacheLabel, by_requests: bool, expected: list[float]
) -> None:
    """1 where storage gives so many files/s of any size, 0 where so many bytes/s; nothing where it cannot be seen."""

    def probed(_: None, files: FileSet, readers: int, **_times: Any) -> StorageCeiling:
        rate = 100 * files.mean_size_bytes if by_requests else 2e6
        return StorageCeiling(data="", phases=(replace(example_phase(readers, rate), cache=cache),))

    monkeypatch.setattr(ceilings, "raise_ceiling", probed)
    names = tuple(f"{number}.jpg" for number in range(len(sizes)))
    files = replace(example_files(), paths=names, classes=(0,) * len(sizes), size_bytes=sizes)
    found = [each.value for each in ceilings._by_file_size(files)]
    assert found == pytest.approx(expected)

"""The sweep over many configurations: kept at once, resumed by content, within its budget; time left is not wasted."""

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
from loaderprobe.measure.runner import RAISE_BUDGET, RAISE_TIME_LIMIT, Event, Order
from loaderprobe.measure.sweep import (
    DEALT,
    Progress,
    SweepPolicy,
    SweepResult,
    Task,
    pending,
    plan_sweep,
    sweep,
    usual_seconds,
)
from loaderprobe.policy import Result, Results, Stop
from loaderprobe.records.config import RunConfig, SweepSpec
from loaderprobe.records.measurement import Measurement, Missing, RunFailure, Series
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.waits import WaitSamples
from loaderprobe.render.sweep_plan_words import sweep_plan_words
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
CONFIGS = tuple(
    example_config(data=FILES.fingerprint, workers=workers, compute="emulated:100", batch_size=8)
    for workers in (0, 1, 2)
)
ONE_ROUND: dict[str, Any] = {"next_round": lambda measured, *, thorough: (), "is_open": lambda measured: True}
"""One order is enough for each configuration."""


def failure(config: RunConfig, hint: str = "") -> RunFailure:
    return RunFailure(
        config=config, stage="half", reason="it broke", hint=hint, exit_code=1, signal=None, log=(), started_utc="",
        wall_s=1.0,
    )  # fmt: skip


class Children:
    """Stands in for the child processes: a session on a fake clock for each order, by the number of workers.

    Those that `fail` have no result, nor has a further round where `breaks`; one `is_interrupted`. Each takes
    `takes_s`, or as long as it takes.
    """

    def __init__(
        self, services: Mapping[int, Service] | None = None, *, fail: tuple[int, ...] = (), breaks: bool = False,
        is_interrupted: int | None = None, takes_s: float | None = None, hints: Mapping[int, str] | None = None,
    ) -> None:  # fmt: skip
        self.clock, self.orders = FakeClock(), list[Order]()
        self._services, self._fail, self._breaks = services or {0: SLOW, 1: FAST, 2: FAST}, fail, breaks
        self._is_interrupted, self._takes_s, self._hints = is_interrupted, takes_s, hints or {}

    def __call__(self, order: Order, *, on_event: Any, **_: Any) -> Measurement | RunFailure:
        order = decode("order", encode("order", order), Order, "an order")
        self.orders.append(order)
        config, workers = order.config, order.config.loader.workers
        if workers == self._is_interrupted:
            raise KeyboardInterrupt
        self.clock.sleep(self._takes_s or 0.0)
        on_event(Event(stage="half", done=1, total=2))
        if workers in self._fail or (self._breaks and order.earlier):
            return failure(config, self._hints.get(workers, ""))
        clock = FakeClock() if self._takes_s else self.clock
        session = scripted_session(
            self._services[workers], clock, make_compute(config, clock), config, FILES, FakePageCache(),
            budget_s=order.budget_s, earlier=order.earlier,
        )  # fmt: skip
        session.run()
        return session.measurement((), ())

    @property
    def workers(self) -> list[int]:
        return [order.config.loader.workers for order in self.orders]


def run_of(path: Path, budget_s: float | None = None) -> RunDirectory:
    """Of three configurations."""
    spec = SweepSpec(configs=CONFIGS, budget_s=budget_s)
    record = RunRecord(created_utc="2026-01-01T00:00:00+00:00", spec=spec, environment=example_environment())
    return RunDirectory.create(path / "run", record, [FILES])


def swept(run: RunDirectory, children: Children, **options: Any) -> list[Progress]:
    """The progress that is heard of."""
    heard: list[Progress] = []
    usual: dict[str, Any] = {"next_round": next_round, "is_open": is_open, "on_progress": heard.append}
    sweep(run, clock=children.clock, run_one=children, **{**usual, **options})
    return heard


def results(run: RunDirectory) -> list[object]:
    return [run.result(config.key) for config in run.record.spec.configs]


def measured(run: RunDirectory) -> Measurement:
    """Of the slow configuration."""
    found = results(run)[0]
    assert isinstance(found, Measurement)
    return found


def test_results_are_kept_once_and_resuming_measures_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with pytest.raises(KeyboardInterrupt):
        swept(run, Children(fail=(1,), is_interrupted=2), on_kept=kept, **ONE_ROUND)
    assert [type(found) for found in results(run)] == [Measurement, RunFailure, type(None)]
    again = Children()
    with pytest.raises(KeyboardInterrupt):
        swept(RunDirectory.open(run.path), again, on_kept=kept, **ONE_ROUND)
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


@pytest.mark.parametrize(("budget_s", "hint"), [(100.0, RAISE_BUDGET), (None, RAISE_TIME_LIMIT)])
def test_a_timeout_names_the_limit_that_it_ran_into(tmp_path: Path, budget_s: float | None, hint: str) -> None:
    """The budget where that leaves less than the time limit of 600 s; another failure keeps its hint."""
    run = run_of(tmp_path, budget_s)
    given = {0: "look at the log", 1: RAISE_TIME_LIMIT, 2: RAISE_TIME_LIMIT}
    swept(run, Children(fail=(0, 1, 2), hints=given), **ONE_ROUND)
    hints = [found.hint for found in results(run) if isinstance(found, RunFailure)]
    assert hints == ["look at the log", hint, hint]


def test_progress_grows_and_gives_the_time_left(tmp_path: Path) -> None:
    """Shares rise from 0 towards 1, and the estimate falls once a configuration has been timed."""
    heard = swept(run_of(tmp_path, 100.0), Children(takes_s=10.0), **ONE_ROUND)
    assert [now.share for now in heard] == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6])
    assert heard[-1].left_s == pytest.approx(5.0)


@pytest.mark.parametrize("budget_s", [60.0, None])
def test_time_that_is_left_goes_to_what_the_budget_cut_short(tmp_path: Path, budget_s: float | None) -> None:
    """A third of the budget is not enough for the slow one; the others leave theirs, and its verdict becomes firm."""
    run, children = run_of(tmp_path, budget_s), Children()
    swept(run, children)
    assert children.workers == [0, 1, 2, 0]
    once, found = children.orders[3].earlier, measured(run)
    assert once is not None and NO_TIME in once.notes and NO_TIME not in found.notes
    assert (verdict(once).bound.cause, verdict(found).bound.cause) == ("inconclusive", "storage")
    assert found.segments[: len(once.segments)] == once.segments


@pytest.mark.parametrize("budget_s", [27.0, 30.0])
def test_the_budget_is_kept_by_further_rounds(tmp_path: Path, budget_s: float) -> None:
    """They end within it, and less than one round of it is left; progress never says more than all."""
    run, children = run_of(tmp_path, budget_s), Children()
    heard = swept(run, children)
    assert (children.clock.now_ns() - FakeClock().now_ns()) / 1e9 <= budget_s
    assert len(measured(run).segments) > 2
    assert NO_TIME in measured(run).notes, "the rest was not enough for one more"
    assert all(0 <= now.share <= 1 for now in heard)


def test_a_failure_of_a_further_round_leaves_the_measurement(tmp_path: Path) -> None:
    """It is tried once, and what was measured before stays as it is."""
    run, children = run_of(tmp_path, 60.0), Children(breaks=True)
    swept(run, children)
    assert [order.earlier is not None for order in children.orders] == [False, False, False, True]
    assert measured(run) == children.orders[3].earlier
    assert not list((run.path / "failures").iterdir())


def asked(*done: tuple[int, SweepResult], spent_s: float = 0.0, **options: Any) -> Any:
    """(workers, budget) of what is measured next of three configurations, or why nothing is, after these results."""
    policy = SweepPolicy(spec=SweepSpec(configs=CONFIGS, **options), todo=CONFIGS)
    so_far = [Result(what=Task(config=CONFIGS[n], number=n + 1, total=3), found=found) for n, found in done]
    found = policy.next(Results(done=so_far, spent_s=spent_s))
    if isinstance(found, Stop):
        return found.reason
    assert found.what.further == (len(done) >= 3)
    return found.what.config.loader.workers, found.what.budget_s


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
        found = asked(*((n, SweepResult()) for n in range(number)), spent_s=number * took_s, **options)
        assert found == (expected if isinstance(expected, str) else (number, pytest.approx(expected))), number


DONE, OPEN = (SweepResult(needed_s=5.0, is_open=is_open) for is_open in (False, True))
CHEAP = SweepResult(needed_s=4.0, is_open=True)
FIRST = [(0, OPEN), (1, DONE), (2, CHEAP)]


@pytest.mark.parametrize(
    ("further", "options", "expected"),
    [
        ([], {}, (2, 10.0)),  # half of what is left
        ([(2, CHEAP)], {}, (0, 20.0)),
        ([(2, CHEAP), (0, OPEN)], {}, (2, 10.0)),
        ([(2, SweepResult()), (0, SweepResult())], {}, (1, 20.0)),
        ([], {"spent_s": 35.5}, (2, 4.5)),  # the only one that fits
        ([], {"spent_s": 36.5}, "complete"),
        ([], {"thorough": True, "budget_s": None}, "complete"),  # all is measured at once
    ],
)
def test_time_that_is_left_goes_to_further_rounds_while_one_fits(
    further: list[tuple[int, SweepResult]], options: dict[str, Any], expected: tuple[int, float] | str
) -> None:
    """Of open verdicts first, each once before any twice, the cheapest first; what brought nothing is left alone."""
    found = asked(*FIRST, *further, **{"budget_s": 40 / DEALT, "spent_s": 20.0, **options})
    assert found == (expected if isinstance(expected, str) else (expected[0], pytest.approx(expected[1])))


@pytest.mark.parametrize(
    ("count", "changes", "said"),
    [
        (0, {}, "Plan: everything is already measured."),
        (21, {}, "where the cause is still open. about 5 min 57 s; --budget"),
        (21, {"thorough": True}, "about 11 min 54 s; --budget"),
        (21, {"budget_s": 300.0}, "within the budget of 5 min, 14 s each"),
        (21, {"budget_s": 30.0}, "less than the 2 min 48 s that one round. may be left for --resume"),
    ],
)
def test_a_plan_says_what_is_measured_and_for_how_long(count: int, changes: dict[str, Any], said: str) -> None:
    """Ablations where the cause stays open, or everywhere; and where a budget does not suffice, before it is spent."""
    configs = tuple(example_config(batch_size=number + 1) for number in range(count))
    told = " ".join(sweep_plan_words(plan_sweep(SweepSpec(configs=configs, **changes), configs)))
    assert count == 0 or "21 configurations: the loader alone and in training, 3 rounds" in told or changes
    assert all(words.strip() in told for words in said.split(". "))
    assert "thorough" not in changes or "where the cause is still open" not in told


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [({}, 17), ({"rounds": 6}, 34), ({"rounds": 1}, 17), ({"compute": "cuda"}, 40), ({"compile": True}, 197)],
)
def test_a_configuration_has_its_usual_time(changes: dict[str, Any], seconds: float) -> None:
    """More rounds, a GPU and compiling take more."""
    assert usual_seconds(example_config(**changes)) == seconds


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
    no_gpu, no_waits = (Missing(name=name, reason=reported("not there")) for name in ("sm", "waits"))

    def seen(subject: str, found: Measurement) -> Measurement:
        waits = WaitSamples(
            time_ns=(1,), worker=(0,), kind=(1,), subject=(0,), subjects=(subject,), letters_only=None, cpu_ns=1,
            wall_ns=1,
        )  # fmt: skip
        series = Series(name="cores", unit="", source="", time_ns=(1,), values=(1.0,))
        return replace(found, waits=waits, series=(series,), missing=(no_gpu,))

    one = measure_fake(FAST)
    both = joined(seen("a.jpg", one), seen("b.jpg", one))
    assert both.waits is not None
    assert [both.waits.subjects[each] for each in both.waits.subject] == ["a.jpg", "b.jpg"]
    assert [len(each.values) for each in both.series] == [2]
    assert both.missing == (no_gpu,)
    assert joined(replace(one, missing=(no_waits,)), seen("b.jpg", one)).missing == (no_gpu,)


LOADER, TRAINING, RESIDENT = Part("baseline", "loader_only"), Part("baseline", "training"), Part("resident", "training")
WARM, CACHED = Part("warm", "loader_only"), Part("cached_samples", "loader_only")
ALL, FEW = [LOADER, TRAINING, RESIDENT, WARM, CACHED], [LOADER, TRAINING, WARM, CACHED]
OF_RANKS = [Part("baseline", "alone"), Part("baseline", "loader_only", 1), Part("exchange", "training")]
TWICE = {"shorter": FEW[:3], "times": 2}


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
        (FEW, 16.0, TWICE, FEW),
        (FEW, 15.0, TWICE, FEW[:3]),
        (FEW, 11.0, TWICE, FEW),  # one round in any case: all of it
        (FEW, 15.0, {"shorter": FEW[:3]}, FEW),  # the last round needs to fit once
        (FEW, 4.0, {"shorter": FEW[:3]}, [LOADER, WARM]),
        (FEW, 3.0, TWICE, []),
    ],
)
def test_a_round_that_does_not_fit_is_measured_in_part(
    plan: list[Part], left_s: float, options: dict[str, Any], expected: list[Part]
) -> None:
    """Segments of 2 s. One thread and ranks go first, then compute alone, then training where ablations are compared
    with the loader; what decides is measured if it fits twice where all of it does not."""
    durations = Durations(usual_s=2.0)
    assert durations.fitting(ALL[:3], 5.0) == [], "of those never measured"
    for part in ALL[:3]:
        durations.add(part, 2.0)
    assert durations.fitting(plan, left_s, **options) == expected


def test_a_part_of_a_round_is_noted() -> None:
    """The note says that the last round is not whole, and the budget that would do, in full steps of five seconds;
    further rounds take it away, and others stay."""
    clock, config, other = FakeClock(), CONFIGS[0], Remark(code="all_batches_made")
    session = scripted_session(CLEAR, clock, make_compute(config, clock), config, FILES, FakePageCache(), budget_s=7.6)
    session.run()
    found = session.measurement((), ())
    assert CUT_SHORT in found.notes
    assert session.more_s is not None and session.more_s > 0, "for two more rounds"
    assert {each.activity for each in found.segments if each.round == 1} == {"loader_only"}
    said = enough_said((CUT_SHORT, other), 31.0, 3)
    assert said == (replace(CUT_SHORT, facts={"budget_s": 35.0, "rounds": 3.0}), other)
    for notes in (found.notes, said[:1]):
        assert not joined(replace(found, notes=notes), replace(found, notes=())).notes

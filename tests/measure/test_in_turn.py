"""Two runs measured in turn: the order of their rounds, what is kept, what a budget has time for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.analyze.verdict.rounds import round_in_turn
from loaderprobe.measure.assembly import make_compute
from loaderprobe.measure.in_turn import (
    InTurnPolicy,
    TurnTask,
    begins_with_a,
    measure_in_turn,
    pairs_left,
    plan_in_turn,
    rounds_of,
)
from loaderprobe.measure.runner import Order
from loaderprobe.measure.segments import pace_for
from loaderprobe.measure.session import Recorder, Session
from loaderprobe.measure.sweep import DEALT, Progress
from loaderprobe.policy import Ask, follow
from loaderprobe.records.config import SweepSpec, Turns
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import (
    FakeClock,
    FakePageCache,
    Service,
    example_config,
    example_environment,
    example_files,
)
from tests.measure.scripted import scripted_parts

FILES = example_files(2048)
Sides = tuple[RunDirectory, RunDirectory]
Meanwhile = Callable[[int, Order], RunFailure | None]
"""What happens instead of the child of this number and order, if anything."""


class Children:
    """Stands in for the child processes: a session on a fake clock for each order. Keeps their order."""

    def __init__(
        self, clock: FakeClock, meanwhile: Callable[[int, Order], RunFailure | None] = lambda *_: None
    ) -> None:
        self.clock, self.meanwhile = clock, meanwhile
        self.orders: list[Order] = []

    @property
    def turns(self) -> str:
        """Decoder and workers of each order: `a0 b0 b0 a0`."""
        names = {"pillow": "a", "torchvision": "b"}
        return " ".join(f"{names[each.config.loader.decoder]}{each.config.loader.workers}" for each in self.orders)

    def __call__(self, order: Order, **_: Any) -> Measurement | RunFailure:
        if failed := self.meanwhile(len(self.orders), order):
            return failed
        self.orders.append(order)
        config = order.config
        parts = scripted_parts(
            Service(cpu_s=0.0005), self.clock, make_compute(config, self.clock), config, FILES,
            FakePageCache(),
        )  # fmt: skip
        session = Session(
            recorder=Recorder(config, earlier=order.earlier), files=FILES,
            parts=replace(parts, next_round=round_in_turn), on_stage=lambda *_: None,
            turn=pace_for(workers=config.loader.workers, rounds=1, budget_s=order.budget_s),
        )  # fmt: skip
        session.run()
        return session.measurement((), ())


def made(path: Path, *, workers: tuple[int, ...] = (0, 2), rounds: int = 4, **options: Any) -> Sides:
    """A and B, which has another decoder."""

    def side(name: Any, decoder: str) -> RunDirectory:
        configs = tuple(
            example_config(
                data=FILES.fingerprint, workers=count, compute="emulated:100", batch_size=8, rounds=rounds,
                decoder=decoder,
            )
            for count in workers
        )  # fmt: skip
        turns = Turns(pair="x", side=name, changes=("decoder",), against="RUN")
        record = RunRecord(
            created_utc="2026-01-01T00:00:00+00:00", spec=SweepSpec(configs=configs, turns=turns, **options),
            environment=example_environment(),
        )  # fmt: skip
        return RunDirectory.create(path / name.lower(), record, [FILES])

    return side("A", "pillow"), side("B", "torchvision")


def measure(sides: Sides, children: Children, heard: list[Progress] | None = None) -> list[str]:
    """Measure what is left; the sides of which a round was kept."""
    kept: list[str] = []
    measure_in_turn(
        *sides, clock=children.clock, on_progress=(heard if heard is not None else []).append, run_one=children,
        on_kept=lambda run, order, measured: kept.append(run.path.name),
    )  # fmt: skip
    return kept


def failure(order: Order) -> RunFailure:
    """Of a child that broke."""
    return RunFailure(
        config=order.config, stage="start", reason="it broke", hint="", exit_code=1, signal=None, log=(),
        started_utc="", wall_s=1.0,
    )  # fmt: skip


def test_sides_take_turns_and_begin_in_turn(tmp_path: Path) -> None:
    """A B, then B A; each configuration has its first pair before any has a second, and neighbours begin otherwise."""
    sides, children = made(tmp_path), Children(FakeClock())
    kept = measure(sides, children)
    assert children.turns == "a0 b0 b2 a2 b0 a0 a2 b2 a0 b0 b2 a2 b0 a0 a2 b2"
    assert sorted(kept) == ["a"] * 8 + ["b"] * 8 and pairs_left(*sides) == 0
    for run in sides:
        found = run.result(run.record.spec.configs[0].key)
        assert isinstance(found, Measurement)
        trained = [each for each in found.segments if (each.mode, each.activity) == ("baseline", "training")]
        assert [each.round for each in trained] == [0, 1, 2, 3], "each round trains"
        others = {each.round for each in found.segments if each.activity == "loader_only"}
        assert others == {0}, "one round is enough for the verdict, and the rest only trains"
    assert [each.budget_s for each in children.orders] == [None] * 16


def test_two_pairs_cancel_a_steady_drift_and_no_load_keeps_step() -> None:
    """Of each two one begins with A and one with B; which comes first is drawn, the same again after an interrupt."""
    for place in range(20):
        orders = [begins_with_a(place, number) for number in range(40)]
        assert all(one != other for one, other in zip(orders[::2], orders[1::2], strict=True))
        assert 0 < sum(orders[::2]) < 20 and orders == [begins_with_a(place, number) for number in range(40)]


def rounds(
    *, fails: Collection[str] = (), have: Sequence[int] = (0, 0), budget_s: float | None = None, took_s: float = 1.0
) -> tuple[str, str | None]:
    """The rounds that the policy asks of two configurations, as `a0 b0 b1`, and why it ends; `fails` are some."""
    configs = [
        (example_config(workers=place, rounds=4), example_config(workers=place, rounds=4, decoder="torchvision"))
        for place in range(2)
    ]
    clock, said = FakeClock(), list[str]()

    def measure(ask: Ask[TurnTask]) -> bool:
        turn = ask.what
        assert turn.config == configs[turn.place][turn.side] and turn.number == len(said) + 1
        said.append(f"{'ab'[turn.side]}{turn.place}")
        clock.sleep(took_s)
        return f"{said[-1]}.{turn.pairs}" not in fails

    policy = InTurnPolicy(configs=configs, have=have, budget_s=budget_s)
    _, reason = follow(policy, measure, clock=clock)
    return " ".join(said), reason


@pytest.mark.parametrize(
    ("options", "asked", "reason"),
    [
        ({}, "a0 b0 b1 a1 b0 a0 a1 b1 a0 b0 b1 a1 b0 a0 a1 b1", "complete"),
        ({"have": (4, 3)}, "a1 b1", "complete"),
        ({"have": (1, 3)}, "b0 a0 a0 b0 b0 a0 a1 b1", "complete"),
        ({"fails": ("b0.0",)}, "a0 b0 b1 a1 a1 b1 b1 a1 a1 b1", "complete"),
        ({"fails": ("b1.1", "a0.2")}, "a0 b0 b1 a1 b0 a0 a1 b1 a0 b0", "complete"),
        ({"budget_s": 4 / DEALT, "took_s": 1.2}, "a0 b0 b1 a1", "no_time"),
        ({"budget_s": 4 / DEALT, "took_s": 0.9}, "a0 b0 b1 a1", "no_time"),
        ({"budget_s": 4 / DEALT, "took_s": 0.6}, "a0 b0 b1 a1 b0 a0", "no_time"),
    ],
)  # fmt: skip
def test_the_policy_asks_for_pairs(options: dict[str, Any], asked: str, reason: str) -> None:
    """The other side of a begun pair always; then the configuration with the fewest, none that failed, in the time."""
    assert rounds(**options) == (asked, reason)


def test_a_pair_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    """Ctrl-C within the third pair leaves two; going on measures both sides of it."""
    sides = made(tmp_path, workers=(2,))

    def interrupt(number: int, order: Order) -> None:
        if number == 5:
            raise KeyboardInterrupt

    clock = FakeClock()
    with pytest.raises(KeyboardInterrupt):
        measure(sides, Children(clock, interrupt))
    assert [rounds_of(run, run.record.spec.configs[0]) for run in sides] == [2, 2] and pairs_left(*sides) == 2
    again = Children(clock)
    measure(sides, again)
    assert again.turns == "a2 b2 b2 a2" and all(order.earlier for order in again.orders)
    assert measure(sides, Children(clock)) == []


def test_a_round_that_only_one_side_kept_is_measured_again(tmp_path: Path) -> None:
    """Killed between the two saves of a pair, A has a round more than B: later rounds are pairs all the same."""
    sides, clock = made(tmp_path, workers=(2,)), FakeClock()
    children = Children(clock, lambda number, order: failure(order) if number == 2 else None)
    measure(sides, children)
    a, b = sides
    (config,) = a.record.spec.configs
    kept = a.result(config.key)
    assert isinstance(kept, Measurement)
    order = Order(config=config, files=FILES, budget_s=None, begin_ns=clock.now_ns(), earlier=kept, in_turn=True)
    ahead = Children(clock)(order)
    assert isinstance(ahead, Measurement)
    a.save(ahead)
    assert (rounds_of(a, config), pairs_left(a, b)) == (2, 3)
    measure(sides, Children(clock))
    for run in sides:
        found = run.result(run.record.spec.configs[0].key)
        assert isinstance(found, Measurement)
        trained = [each for each in found.segments if (each.mode, each.activity) == ("baseline", "training")]
        assert [each.round for each in trained] == [0, 1, 2, 3]


def test_a_side_that_fails_stands_in_its_run_and_is_tried_again_with_its_partner(tmp_path: Path) -> None:
    """The other configurations go on; A's single round then is no part of a pair, so A begins again with B."""
    sides = made(tmp_path, rounds=2)
    children = Children(FakeClock(), lambda _, order: failure(order) if "b0" in name(order) else None)
    measure(sides, children)
    assert children.turns == "a0 b2 a2 a2 b2"
    a, b = sides
    assert isinstance(b.result(b.record.spec.configs[0].key), RunFailure)
    assert rounds_of(a, a.record.spec.configs[0]) == 1 and pairs_left(a, b) == 2
    again = Children(FakeClock())
    measure(sides, again)
    assert again.turns == "a0 b0 b0 a0" and again.orders[0].earlier is None and pairs_left(a, b) == 0


def name(order: Order) -> str:
    """`b0` for B's serial loader."""
    return f"{'a' if order.config.loader.decoder == 'pillow' else 'b'}{order.config.loader.workers}"


def test_a_later_failure_leaves_the_pairs_before(tmp_path: Path) -> None:
    """Nothing of that pair is kept, and the configuration is left out from then on."""
    sides = made(tmp_path, workers=(2,))
    children = Children(FakeClock(), lambda number, order: failure(order) if number == 3 else None)
    measure(sides, children)
    assert [rounds_of(run, run.record.spec.configs[0]) for run in sides] == [1, 1]
    assert children.turns == "a2 b2 b2"


def test_the_budget_is_for_both_sides(tmp_path: Path) -> None:
    """Pairs begin while there is time for one more; segments are as short as their share of it."""
    clock = FakeClock()
    sides, children, heard = made(tmp_path, budget_s=12.0), Children(clock), list[Progress]()
    begin_ns = clock.now_ns()
    measure(sides, children, heard)
    left = pairs_left(*sides)
    assert 0 < left < 8 and (clock.now_ns() - begin_ns) / 1e9 <= 12.0
    assert all(order.budget_s is not None and order.budget_s < 12.0 / 16 for order in children.orders)
    assert [each.share for each in heard] == sorted(each.share for each in heard) and heard[0].total == 16
    assert heard[-1].left_s > 0


def test_the_plan_is_of_what_is_left(tmp_path: Path) -> None:
    """Of both sides, with the least that their pairs take: three that decide, one that trains."""
    sides = made(tmp_path, budget_s=30.0)
    plan = plan_in_turn(*sides)
    assert (plan.configurations, plan.pairs, plan.rounds, plan.budget_s) == (2, 8, 4, 30.0)
    assert plan.least_s == pytest.approx(2 * 2 * (3 * 5.75 + 3.25))
    assert plan.fitting == 1 and plan.expected_s > plan.least_s
    measure(made(tmp_path / "whole"), Children(FakeClock()))
    whole = RunDirectory.open(tmp_path / "whole" / "a"), RunDirectory.open(tmp_path / "whole" / "b")
    assert plan_in_turn(*whole).pairs == plan_in_turn(*whole).expected_s == 0

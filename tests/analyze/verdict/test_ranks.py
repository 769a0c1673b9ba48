"""Several ranks: a slow one, slow batches and the exchange of gradients, as planted and measured with two ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.rounds import next_round
from loaderprobe.records.measurement import Measurement, Segment
from loaderprobe.records.verdict import Cause, Side, Verdict
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import BATCH, Cost, alike

ALIKE: dict[str, Any] = {"alone": (90.0, 91.0), "without": {0: 340.0, 1: 343.0}}
LIMITED_DISK = alike(training=180.0, baseline=176.0, warm=338.0, cached_samples=185.0, no_transport=181.0)
SLEEPING = alike(training=88.0, baseline=86.0, warm=90.0, cached_samples=868.0, no_transport=88.0)
SLOW: dict[str, Any] = {"alone": (114.0, 37.0), "without": {1: 229.0, 0: 72.0}}
STEPS: dict[str, Any] = {
    "training": 54.0,
    "baseline": 256.0,
    "warm": 256.0,
    "cached_samples": 258.0,
    "no_transport": 257.0,
}
DECODING = alike(training=75.0, baseline=73.0, warm=88.0, cached_samples=624.0, no_transport=85.0)


def judged(*arguments: Any, **changes: Any) -> Verdict:
    return verdict(rank_run(*arguments, **changes))


@pytest.mark.parametrize(
    ("case", "side", "cause"),
    [
        (rank_run(LIMITED_DISK, Cost(blocked_s=0.05), **ALIKE), "input", "storage"),
        (
            rank_run(DECODING, Cost(delay_s=0.01), alone=(45.0, 45.0), without={0: 100.0, 1: 108.0}, workers=2),
            "input", "cpu",
        ),
        (
            rank_run(
                alike(training=120.0, baseline=260.0, warm=260.0, cached_samples=262.0, no_transport=261.0),
                compute=120.0, alone=(130.0, 131.0), without={0: 270.0, 1: 400.0},
            ),
            "compute", "compute",
        ),
        (rank_run(SLEEPING, **SLOW), "input", "imbalance"),
        (rank_run(alike(**STEPS, resident=56.0), no_exchange=95.0, exchange=123.0), "compute", "compute"),
        (
            rank_run(alike(**{**STEPS, "training": 28.0}, resident=29.0), no_exchange=83.0, exchange=40.6),
            "compute", "gradients",
        ),
    ],
    ids=["disk", "decode", "compute", "imbalance", "ddp", "slow-wire"],
)  # fmt: skip
def test_the_planted_cases(case: Measurement, side: Side, cause: Cause) -> None:
    """The figures that two ranks measured with a known limit: each verdict names it."""
    found = verdict(case).bound
    assert (found.side, found.cause) == (side, cause)


def test_equal_ranks_on_shared_storage_are_no_imbalance() -> None:
    """Without either, the other has the disk for itself: twice as fast, and no faster than without the other one."""
    found = judged(LIMITED_DISK, Cost(blocked_s=0.05), alone=(90.0, 91.0), without={0: 352.0, 1: 349.0})
    assert found.bound.cause == "storage" and found.bound.rank is None
    assert found.speedups.imbalance and found.speedups.imbalance.value == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("slow", [(229.0, 229.0, 80.0), (82.0, 82.0, 82.0)])
def test_an_imbalance_must_lead_in_every_round(slow: tuple[float, ...]) -> None:
    """One round in which it does not, or a lead of less than 1.15, leaves the cause of all ranks."""
    found = judged(SLEEPING, alone=(114.0, 37.0), without={1: slow, 0: 72.0})
    assert found.bound.cause == "preprocessing"


@pytest.mark.parametrize(("rounds", "lead", "cause"), [(2, 1.6, "imbalance"), (2, 1.4, "preprocessing"),
    (1, 2.1, "imbalance"), (1, 1.9, "preprocessing")])  # fmt: skip
def test_few_rounds_need_a_wider_lead(rounds: int, lead: float, cause: Cause) -> None:
    """As for the other speed-ups: fewer than three have no useful spread."""
    found = judged(SLEEPING[:rounds], alone=(114.0, 37.0), without={1: 72.0 * lead, 0: 72.0})
    assert found.bound.cause == cause


def test_a_rank_that_is_no_slower_by_itself_is_no_imbalance() -> None:
    """Two experiments that do not agree are noise."""
    assert judged(SLEEPING, alone=(38.0, 37.0), without={1: 229.0, 0: 72.0}).bound.cause == "preprocessing"


def test_slow_batches_stand_beside_the_cause() -> None:
    """With prefetching as their remedy; never as the cause, and not beside an imbalance."""
    found = judged(LIMITED_DISK, Cost(blocked_s=0.05), **{**ALIKE, "alone": (110.0, 111.0)})
    assert found.bound.cause == "storage"
    assert found.bound.reason.facts["straggler_speedup"] == pytest.approx(221 / 176)
    (advice,) = [each for each in found.advice if each.action.code == "prefetch"]
    assert advice.command == "prefetch_factor=8" and advice.after.low == advice.before.value
    assert "straggler_speedup" not in judged(SLEEPING, **SLOW).bound.reason.facts
    assert "straggler_speedup" not in judged(LIMITED_DISK, Cost(blocked_s=0.05), **ALIKE).bound.reason.facts


def test_ranks_of_two_speeds_do_not_wait_for_slow_batches() -> None:
    """Two of four are slow themselves, as on a slow node: prefetching takes nothing from that."""
    without = {2: 180.0, 0: 176.0}
    found = judged(LIMITED_DISK, Cost(blocked_s=0.05), alone=(110.0, 110.0, 50.0, 50.0), without=without, ranks=4)
    assert found.bound.cause == "storage" and found.speedups.straggler and found.speedups.straggler.value > 1.5
    assert "straggler_speedup" not in found.bound.reason.facts
    assert "prefetch" not in {each.action.code for each in found.advice}


def test_exchange_and_device_may_be_too_close_to_tell_apart() -> None:
    """Then both are named, on the side of compute."""
    found = judged(alike(**{**STEPS, "training": 28.0}, resident=29.0), no_exchange=60.0, exchange=58.0)
    assert (found.bound.side, found.bound.cause) == ("compute", "either")
    assert set(found.bound.candidates) == {"compute", "gradients"}


def test_no_faster_accelerator_where_the_exchange_limits() -> None:
    """A free device still exchanges gradients: its speed-up counts that, and no rate is promised for a faster one."""
    found = judged(alike(**{**STEPS, "training": 28.0}, resident=29.0), no_exchange=83.0, exchange=40.6)
    assert found.speedups.compute and found.speedups.compute.value == pytest.approx(40.6 / 29)
    assert [each.action.code for each in found.advice] == ["exchange"]


def test_compute_is_not_certain_where_ranks_exchange_gradients() -> None:
    """Nothing but compute is left, which is the device or the exchange: the side alone is certain."""
    rounds, quick = alike(1, training=10.0, baseline=240.0, resident=11.4), Cost(cpu_s=0.002, blocked_s=0.0005)
    bounds = [
        verdict(stepping(rank_run(rounds, quick, synchronous=True, no_exchange=faster, exchange=60.0))).bound
        for faster in (11.5, 30.0)
    ]
    assert [(each.side, each.cause) for each in bounds] == [("compute", "compute"), ("compute", "inconclusive")]


def stepping(measurement: Measurement) -> Measurement:
    """With training that waits for nothing and works in its steps, for all of their time."""

    def with_steps(one: Segment) -> Segment:
        end = tuple(begin + one.closed_ns // one.steps for begin in one.begin_ns)
        return replace(one, end_ns=end, finished_ns=()) if one.activity == "training" else one

    return replace(measurement, segments=tuple(map(with_steps, measurement.segments)))


def test_files_must_have_been_cold_on_every_rank() -> None:
    """One rank with warm files hides in the bytes of all."""
    found = judged(LIMITED_DISK, Cost(blocked_s=0.05), cold=(1.0, 0.5), **ALIKE)
    assert found.speedups.storage is None and found.bound.cause == "inconclusive"
    reason = found.unavailable["speedups.storage"]
    assert (reason.code, reason.facts["rank"], reason.facts["share"]) == ("bytes_on_a_rank", "1", 0.5)


def test_rates_leave_out_what_only_some_ranks_did() -> None:
    """Segments without a rank, alone and without gradients change no rate of all ranks."""
    with_all = run_experiments(rank_run(LIMITED_DISK, Cost(blocked_s=0.05), **ALIKE))
    plain = run_experiments(rank_run(LIMITED_DISK, Cost(blocked_s=0.05)))
    assert with_all.loader == plain.loader and with_all.speedups == plain.speedups
    assert with_all.end_to_end == plain.end_to_end and with_all.how == plain.how


def test_an_image_takes_a_worker_as_long_whatever_the_ranks() -> None:
    """Figures of one worker are those of its own images; the parts of a step sum to the batch of all ranks."""
    one, four = (judged(LIMITED_DISK, Cost(blocked_s=0.05), ranks=ranks) for ranks in (1, 4))
    assert one.worker_time and four.worker_time
    assert four.worker_time.blocked_s == pytest.approx(one.worker_time.blocked_s)
    spent = four.step_time
    assert spent.wait_s + spent.copy_s + spent.step_s + spent.other_s == pytest.approx(4 * BATCH / 180.0)


def test_one_rank_has_none_of_it() -> None:
    """The same figures, from one rank, name the cause without ranks; a reason stands for each of the three."""
    found = judged(LIMITED_DISK, Cost(blocked_s=0.05), ranks=1)
    assert found.bound.cause == "storage"
    for name in ("imbalance", "straggler", "gradients"):
        assert getattr(found.speedups, name) is None
        assert found.unavailable[f"speedups.{name}"].code == "one_rank"


def test_ranks_are_measured_without_each_resource() -> None:
    """Idle workers of a rank that waits for another show no estimate: every mode is run."""
    first = next_round(rank_run(LIMITED_DISK[:1], Cost(blocked_s=0.05)), thorough=False)
    assert {mode for mode, _ in first} == {"baseline", "warm", "cached_samples", "no_transport"}

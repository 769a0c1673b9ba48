"""Compute is certain where two things measured apart leave nothing else, and only there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rounds import next_round
from loaderprobe.records.measurement import ComputeInfo, Measurement, Segment
from tests.analyze.runs import STEPS, Cost, run

QUICK = Cost(cpu_s=0.002, blocked_s=0.0005)
"""Workers that decode an image in 2 ms: of training at 5 images/s they take 1 % of a core."""


def trained(
    *, loader: float = 120.0, training: float = 5.0, alone: float = 5.7, outside: float = 0.002, rounds: int = 1,
    cost: Cost = QUICK, facts: Mapping[str, Any] | None = None, **changes: Any,
) -> Measurement:  # fmt: skip
    """A step on the CPU at 88 % of compute alone, by default in one round; `outside` is the share beside the steps."""
    found = run(
        [{"baseline": loader, "training": training, "resident": alone}] * rounds, cost, synchronous=True, facts=facts,
        **changes,
    )  # fmt: skip
    return replace(found, segments=tuple(_with_steps(each, outside) for each in found.segments))


def _with_steps(segment: Segment, outside: float) -> Segment:
    """Its steps, which wait for `outside` of their time, and work for the rest."""
    if segment.activity == "loader_only":
        return segment
    step_ns = segment.closed_ns // STEPS
    ready = tuple(begin + round(outside * step_ns) for begin in segment.begin_ns)
    end = tuple(begin + step_ns for begin in segment.begin_ns)
    return replace(segment, ready_ns=ready, copied_ns=ready, end_ns=end, finished_ns=())


def in_training(without: float) -> Measurement:
    """Three rounds of training at 36 % of compute alone, and at `without` images/s with warm or kept samples."""
    each = {"baseline": 120.0, "training": 0.415, "resident": 1.14, "training_warm": 0.415}
    return run([{**each, "training_cached_samples": without}] * 3, QUICK, synchronous=True)


def test_compute_is_not_the_limit_far_below_its_own_rate() -> None:
    """Nothing that was removed makes up for it: something else holds the steps up. Where decoding does, it may be."""
    found = verdict(in_training(0.42)).bound
    assert (found.cause, found.reason.code) == ("inconclusive", "outside_noise_band")
    assert found.reason.facts["predicted_share"] == pytest.approx(0.36, abs=0.01)
    assert verdict(in_training(1.0)).bound.reason.code != "outside_noise_band"


def test_one_round_is_enough_where_nothing_else_is_left() -> None:
    """Training misses its prediction by 12 %, but waits 0.2 % of its time, and the loader is 24 times as fast."""
    found = verdict(trained())
    assert found.prediction_error is not None and found.prediction_error < -0.1
    assert (found.bound.side, found.bound.cause) == ("compute", "compute")
    assert found.bound.reason.facts["speedup"] == pytest.approx(24)
    assert next_round(trained(), thorough=False) == ()
    assert next_round(trained(), thorough=True) != ()


@pytest.mark.parametrize(
    "changes",
    [
        {"outside": 0.045},  # waiting and working workers together may be worth 5 %
        {"loader": 24.0},  # 4.8 times as fast: two noisy segments may be so far apart
        {"alone": 6.7},  # a quarter of the time is in no account
        {"cost": Cost(cpu_s=0.01)},  # workers hold up the step for 5 % of its time
        {"cost": Cost(cpu_s=0.002, delay_s=0.008)},  # or wait for its cores
        {"cost": Cost(cpu_s=0.002, cold=0.0)},  # files were warm that were to be cold
        {"cost": Cost(cpu_s=0.002, cold=0.5)},  # or half of them
    ],
    ids=str,
)
def test_anything_else_that_may_matter_leaves_it_open(changes: dict[str, Any]) -> None:
    """Each alone keeps the verdict inconclusive, and asks for more rounds."""
    measurement = trained(**changes)
    assert verdict(measurement).bound.cause == "inconclusive"
    assert next_round(measurement, thorough=False) != ()


def test_every_round_must_show_it() -> None:
    """One of three rounds in which training waits takes the certainty; so does one of a slower loader."""
    waits = trained(rounds=3)
    odd = tuple(_with_steps(each, 0.1) if each.round == 1 else each for each in waits.segments)
    assert verdict(trained(rounds=3)).bound.cause == "compute"
    assert verdict(replace(waits, segments=odd)).bound.cause == "inconclusive"
    slower = run(
        [{"baseline": rate, "training": 5.0, "resident": 5.7} for rate in (120.0, 20.0, 120.0)], QUICK, synchronous=True
    )
    slow = replace(slower, segments=tuple(_with_steps(each, 0.002) for each in slower.segments))
    assert verdict(slow).bound.cause == "inconclusive"


def test_lost_records_of_workers_leave_it_open() -> None:
    """How much they worked during training is not known then."""
    measured = trained()
    (first, *_) = [
        each.first_batch for each in measured.segments if each.activity == "training" and each.mode != "resident"
    ]
    records = measured.worker_batches
    kept = [row for row, number in enumerate(records.batch) if not first <= number < first + STEPS]
    columns: dict[str, Any] = {
        name: tuple(getattr(records, name)[row] for row in kept)
        for name in ("batch", "worker", "start_ns", "wall_ns", "cpu_ns", "run_delay_ns", "read_bytes", "images",
                     "collate_ns", "instrument_ns")
    }  # fmt: skip
    assert verdict(replace(measured, worker_batches=replace(records, **columns))).bound.cause == "inconclusive"


def test_an_emulated_accelerator_is_judged_by_its_own_rate() -> None:
    """Of one that is asynchronous, too: what is in no step of the host is counted as lost."""
    device = ComputeInfo(name="", device="", synchronous=False, specified_images_per_s=5.7, source="")
    assert verdict(trained(facts={"compute": device})).bound.cause == "compute"


def test_the_serial_loader_works_outside_the_steps() -> None:
    """Its work is counted once: 4 % of the time at 24 times the rate of training."""
    assert verdict(trained(workers=0, alone=6.0, outside=0.042)).bound.cause == "compute"
    assert verdict(trained(workers=0, alone=6.0, outside=0.05)).bound.cause == "inconclusive"

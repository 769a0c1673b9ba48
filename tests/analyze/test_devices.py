"""Why several devices are not faster: one made-up placement for each answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from loaderprobe.analyze.devices import judge
from loaderprobe.records.devices import (
    LARGER,
    DeviceCause,
    DeviceName,
    DeviceSegment,
    Placement,
    PlacementResult,
    PlacementVerdict,
    SegmentName,
    Workload,
    WorkloadResult,
)
from loaderprobe.records.measurement import RunFailure
from loaderprobe.testing import example_config

WORKLOAD = Workload(model="mlp", data="mnist", shape=(1, 28, 28), batch_size=100, samples=10_000)
WOBBLE = (1.0, 1.01, 0.99, 1.005, 0.995)
Times = Mapping[SegmentName, float]


def placed(
    times: Times, *, ranks: int = 2, device: DeviceName = "cuda", wobble: Sequence[float] = WOBBLE
) -> PlacementResult:
    """Steps of so many ms, a few percent apart between rounds and between experiments."""
    segments = tuple(
        DeviceSegment(
            name=name, round=number, batch_size=100 * (LARGER if name.startswith("larger") else 1), steps=10,
            seconds=tuple(ms / 100 * wobble[(number + place) % 5] * (1 - 0.1 * rank) for rank in range(ranks)),
        )
        for number in range(5)
        for place, (name, ms) in enumerate(times.items())
    )  # fmt: skip
    return PlacementResult(placement=Placement(device=device, ranks=ranks), segments=segments)


def verdict_of(result: PlacementResult) -> PlacementVerdict:
    return judge(WorkloadResult(workload=WORKLOAD, placements=(result,))).placements[0]


GRADIENTS: Times = {"training": 10, "no_exchange": 5, "resident": 9.9, "larger_batch": 25, "larger_no_exchange": 20}
INPUT: Times = {"training": 10, "no_exchange": 9.9, "resident": 4, "larger_batch": 40, "larger_no_exchange": 40}
BATCH: Times = {"training": 10, "no_exchange": 9.9, "resident": 9.9, "larger_batch": 15, "larger_no_exchange": 15}
COMPUTE: Times = {"training": 10, "no_exchange": 9.9, "resident": 9.9, "larger_batch": 39.5, "larger_no_exchange": 39.5}
EITHER: Times = {"training": 10, "no_exchange": 6, "resident": 6.03, "larger_batch": 39, "larger_no_exchange": 24}


def test_the_device_is_no_limit_where_a_larger_batch_was_not_tried() -> None:
    """With fewer samples than one holds, it might have been faster."""
    few = Workload(model="mlp", data="mnist", shape=(1, 28, 28), batch_size=100, samples=399)
    result = placed({name: ms for name, ms in COMPUTE.items() if not name.startswith("larger")})
    judged = (judge(WorkloadResult(workload=each, placements=(result,))).placements[0] for each in (few, WORKLOAD))
    assert [each.cause for each in judged] == ["inconclusive", "compute"]


@pytest.mark.parametrize(
    ("times", "cause"),
    [(GRADIENTS, "gradients"), (INPUT, "input"), (BATCH, "batch"), (COMPUTE, "compute"), (EITHER, "either")],
)
def test_the_experiment_that_helps_most_is_the_cause(times: Times, cause: DeviceCause) -> None:
    """None that helps is the device itself; two that help alike are both named."""
    found = verdict_of(placed(times))
    assert found.cause == cause
    assert set(found.candidates) == ({"gradients", "input"} if cause == "either" else set())


def test_a_larger_batch_that_only_exchanges_less_often_is_no_small_batch() -> None:
    """It passes 1.6 times the samples because of the exchange, and without exchange no more."""
    found = verdict_of(placed(GRADIENTS))
    larger, batch = found.gain("larger"), found.gain("batch")
    assert larger and batch
    assert larger.speedup.low > 1.5 and batch.speedup.high < 1.1


def test_one_rank_has_no_exchange() -> None:
    """Its batch is compared as it is, and there is nothing to be faster than."""
    found = verdict_of(placed({"training": 10, "resident": 9.9, "larger_batch": 20}, ranks=1))
    assert (found.cause, found.speedup, found.efficiency) == ("batch", None, None)
    assert [each.name for each in found.gains] == ["input", "batch"] and found.parts.exchange == 0


def test_rounds_that_differ_too_much_are_inconclusive() -> None:
    """A gain within the noise is no cause, and its absence is not certain."""
    noisy = placed({**COMPUTE, "no_exchange": 9}, wobble=(1.0, 1.6, 0.7, 1.2, 0.8))
    assert verdict_of(noisy).cause == "inconclusive"


def test_the_slowest_rank_makes_the_step() -> None:
    """The others wait for it; parts add up to the step."""
    found = verdict_of(placed(GRADIENTS))
    assert found.step_ms.value == pytest.approx(10, rel=0.02)
    assert found.epoch_s.value == pytest.approx(1.0, rel=0.02)
    assert found.samples_per_s.value == pytest.approx(10_000, rel=0.02)
    assert found.parts.exchange == pytest.approx(5, rel=0.05)
    assert found.parts.whole == pytest.approx(found.step_ms.value)


@pytest.mark.parametrize(("device", "efficiency"), [("cuda", 0.4), ("cpu", 0.8)])
def test_efficiency_is_of_as_much_hardware(device: DeviceName, efficiency: float) -> None:
    """Two GPUs could be twice as fast as one; two ranks on the CPU share the cores of one process."""
    alone = placed({"training": 8, "resident": 7.9}, ranks=1, device=device)
    found = judge(WorkloadResult(workload=WORKLOAD, placements=(alone, placed(GRADIENTS, device=device))))
    both = found.placements[1]
    assert both.speedup and both.speedup.value == pytest.approx(0.8, rel=0.02)
    assert both.speedup.high < 1 and both.efficiency == pytest.approx(efficiency, rel=0.02)
    assert (found.fastest, found.close) == (Placement(device=device), ())


def test_placements_within_noise_are_close() -> None:
    """Neither is said to be the fastest alone."""
    alone = placed({"training": 10.05}, ranks=1)
    found = judge(WorkloadResult(workload=WORKLOAD, placements=(alone, placed(GRADIENTS))))
    assert found.fastest == Placement(device="cuda", ranks=2) and found.close == (Placement(device="cuda"),)


def test_a_failed_placement_has_no_verdict() -> None:
    """And none at all is no error."""
    failed = PlacementResult(
        placement=Placement(device="cuda"),
        failure=RunFailure(
            config=example_config(), stage="start", reason="no", hint="", exit_code=1, signal=None, log=(),
            started_utc="", wall_s=1.0,
        ),
    )  # fmt: skip
    found = judge(WorkloadResult(workload=WORKLOAD, placements=(failed,)))
    assert (found.placements, found.fastest) == ((), None)


def test_nothing_follows_from_rounds_that_differ_wildly() -> None:
    """Epochs of 0 to 21 s have no efficiency, and no cause that advice could rest on."""
    wild = (9.5, 10.0, 1.0, 0.8, 1.0)
    alone = placed({"training": 10, "resident": 9.9}, ranks=1, device="cpu", wobble=wild)
    found = judge(WorkloadResult(workload=WORKLOAD, placements=(alone, placed(GRADIENTS, device="cpu", wobble=wild))))
    assert [each.efficiency for each in found.placements] == [None, None]
    assert [(each.cause, each.candidates) for each in found.placements] == [("inconclusive", ())] * 2

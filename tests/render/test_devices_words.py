"""The answer about devices, for each verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.records.devices import (
    DeviceCause,
    DeviceGain,
    GainName,
    Placement,
    PlacementVerdict,
    StepParts,
    Workload,
    WorkloadVerdict,
)
from loaderprobe.records.verdict import Interval
from loaderprobe.render.devices import answer

ONE, TWO = Placement(device="cuda"), Placement(device="cuda", ranks=2)


def exactly(value: float) -> Interval:
    return Interval(value=value, low=value, high=value)


def placed(placement: Placement, epoch_s: float, cause: DeviceCause, *candidates: GainName) -> PlacementVerdict:
    names: tuple[GainName, ...] = ("gradients", "input", "batch")
    return PlacementVerdict(
        placement=placement, step_ms=exactly(10), epoch_s=exactly(epoch_s), samples_per_s=exactly(100), speedup=None,
        efficiency=None, parts=StepParts(exchange=4, input=2, compute=4), cause=cause, candidates=candidates,
        gains=tuple(DeviceGain(name=name, speedup=exactly(2.0), by_round=(2.0,)) for name in names),
    )  # fmt: skip


def said(two: PlacementVerdict, *, close: bool = False) -> str:
    workload = Workload(model="net", data="images", shape=(3, 8, 8), batch_size=8, samples=80)
    one = placed(ONE, 10, "compute")
    found = WorkloadVerdict(
        workload=workload, placements=(one, two), fastest=ONE if two.epoch_s.value > 10 else TWO,
        close=((TWO,) if two.epoch_s.value > 10 else (ONE,)) if close else (),
    )  # fmt: skip
    return answer(found)


@pytest.mark.parametrize(
    ("cause", "candidates", "says"),
    [
        ("gradients", (), "Exchanging gradients takes 40 % of a step; without it an epoch would take 10 s."),
        ("input", (), "Input takes 20 % of a step; without it an epoch would take 10 s."),
        ("batch", (), "The batch is too small for 2 GPUs: 4 times as large, samples pass 2.0 times as fast."),
        ("compute", (), "No experiment makes 2 GPUs faster: the device itself is the limit."),
        (
            "either",
            ("gradients", "input"),
            "What limits 2 GPUs has more than one answer: no gradient exchange 2.0 times",
        ),
        ("inconclusive", (), "Why 2 GPUs are not faster is inconclusive: no experiment stands out of the noise."),
    ],
)
def test_the_answer_has_the_cause(cause: DeviceCause, candidates: tuple[GainName, ...], says: str) -> None:
    """After which is fastest and what the other takes."""
    text = said(placed(TWO, 20, cause, *candidates))
    assert text.startswith("net: one GPU is fastest, 10 s an epoch. 2 GPUs take 20 s, 0.5 times as fast. ")
    assert says in text


def test_placements_that_do_not_differ_are_not_compared() -> None:
    """Neither is slower; why several are not faster is still said."""
    text = said(placed(TWO, 10.1, "compute"), close=True)
    assert text.startswith("net: one GPU and 2 GPUs do not differ beyond noise, about 10 s an epoch. No experiment")


def test_several_may_be_fastest() -> None:
    """Then the other is slower, and the question is why not more."""
    text = said(placed(TWO, 5, "compute"))
    assert text.startswith("net: 2 GPUs are fastest, 5.0 s an epoch. One GPU takes 10 s, 0.5 times as fast.")


def test_rounds_that_differ_wildly_are_not_compared() -> None:
    """The range is said, not its middle."""
    wild = Interval(value=4.8, low=0.0, high=21.0)
    words = said(replace(placed(TWO, 5, "inconclusive"), epoch_s=wild), close=True)
    assert "rounds differ too much to compare 2 GPUs and one GPU" in words and "do not differ" not in words

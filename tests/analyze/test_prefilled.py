"""Short benchmarks from a full buffer, by the law."""

from __future__ import annotations

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.report import buffer_effect, enough
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Prefilled, over_steady
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth

SLOW = measured(Truth(compute=100000.0), 2)
"""Its loader is the limit."""


@pytest.mark.parametrize(
    ("iterations", "free", "most", "ratio"),
    [(100, 12, 10.0, 100 / 88), (12, 12, 10.0, 10.0), (10, 12, 10.0, 10.0), (13, 12, 10.0, 10.0), (100, 12, 1.1, 1.1)],
)
def test_free_batches_cost_nothing(iterations: int, free: float, most: float, ratio: float) -> None:
    """k iterations cost k minus those at the steady rate; compute alone is the most there is."""
    assert over_steady(iterations, free, most) == pytest.approx(ratio)


@pytest.mark.parametrize(("free", "most", "iterations"), [(12.0, 10.0, 612), (60.0, 2.0, 3060), (12.0, 1.01, 1)])
def test_iterations_that_are_enough(free: float, most: float, iterations: int) -> None:
    """51 times the free batches for 2 %; where compute is the limit, the first one will do."""
    assert enough(free, most) == iterations
    assert over_steady(iterations, free, most) <= 1.02 + 1e-9
    assert iterations == 1 or over_steady(iterations - 1, free, most) > 1.02


def test_an_effect_that_was_not_measured_is_estimated() -> None:
    """From the rates of the verdict; a study that was refused gives its reason."""
    judged = verdict(SLOW)
    few = Remark(code="too_few_for_buffer", facts={"images": 99, "least": 100})
    refused = Prefilled(config=SLOW.config, started_utc="", reason=few)
    found = buffer_effect(SLOW, judged, refused)
    assert found is not None
    assert (found.batches, found.how, found.reason) == (4, "estimated", few)
    assert {each.iterations: each.over_steady for each in found.runs}[100] == pytest.approx(100 / 96.5)
    assert found.measured(100) is None and found.predicted(100) == pytest.approx(100 / 96.5)

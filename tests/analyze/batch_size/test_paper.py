"""The paper's strategies: each size, and each way to end, on devices whose answers are scripted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loaderprobe.analyze.batch_size import PaperStrategy
from loaderprobe.measure.batch_size import search
from loaderprobe.records.batch_size import BatchSizeProbe, StopCode
from loaderprobe.records.verdict import Interval
from loaderprobe.testing import FakeClock
from tests.batch_sizes import ScriptedProber

GROWING = [10, 12, 15, 19, 24, 30, 37, 45, 54, 64, 74, 84, 94]
"""Steps of 2, 3, ... up to 10."""


def moving() -> Callable[[int], float]:
    """A usage that keeps the size moving by more than 5 in five loops."""
    loops = iter(range(10_000))
    return lambda size: 0.5 if next(loops) // 10 % 2 == 0 else 1.0


# Of usage and of time: what the device answers, options, the sizes asked for, how it ends, and the size chosen.
USAGE: dict[str, tuple[Callable[[int], float], dict[str, int], list[int] | None, StopCode, int | None]] = {
    # Each step is one longer than that before, up to 10.
    "below the target it grows to the largest allowed": (lambda size: 0.5, {"most": 100}, GROWING, "at_maximum", 100),
    # Shrinking begins with a step of 1, again and longer; growing as well. Checked in each fifth loop only.
    "around its target it converges": (
        lambda size: 0.995 if size >= 50 else 0.9, {}, [*GROWING[:9], 53, 51, 48, 49, 51, 50, 48], "converged", 48,
    ),
    # 9, 7, 4, and then a size below 1.
    "at its target at once it shrinks": (lambda size: 0.99, {}, [10, 9, 7, 4], "at_minimum", 1),
    # At the last size that fits; the package would have died there.
    "memory ends the search": (lambda size: 0.5, {"fits_up_to": 20}, None, "out_of_memory", 19),
    "memory for nothing": (lambda size: 0.5, {"fits_up_to": 9}, [10], "nothing_fits", 0),
    "a hundred loops are the most": (moving(), {"most": 10_000}, None, "loops_spent", None),
}  # fmt: skip
TIME: dict[str, tuple[Callable[[int], float], dict[str, int], list[int], StopCode, int | None]] = {
    # The first ratio, 0, is compared with 100; the one after five loops differs from it by no more than 0.05.
    "a flat rate converges in the sixth loop": (
        lambda size: 100.0 + size / 100, {"images": 2280}, [10, 12, 15, 19, 24, 30], "converged", 30,
    ),
    # A rate that rises slowly: the improvement moves by more than 0.05 in each five loops.
    "grows while it improves by less than half": (lambda size: 100.0 + size, {"most": 100}, GROWING, "at_maximum", 100),
    # As the package does, and the paper does not say: from 21 on an epoch takes less than half of that with 10. A turn
    # makes the next step 2 in either direction, so it never converges.
    "shrinks beyond its target": (
        lambda size: 10.0 * size, {"images": 1_000_000}, [10, 12, 15, 19, 24, 22, *[19, 21] * 47], "loops_spent", None,
    ),
    "shrinks where it gets worse": (
        lambda size: 100.0 if size <= 10 else 90.0, {}, [10, 12] * 50, "loops_spent", 10,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", USAGE)
def test_usage_moves_the_batch(name: str) -> None:
    """Up below its target, down at it, until it stays within 5 for five loops or an end is reached."""
    busy, options, sizes, code, chosen = USAGE[name]
    prober = ScriptedProber(rate=lambda size: 100.0, utilization=busy, fits_up_to=options.get("fits_up_to"))
    _, stop = search(
        PaperStrategy(name="gpu-usage", images=1, most=options.get("most", 256)), prober.probe, clock=FakeClock()
    )
    assert stop.code == code and stop.chosen == (stop.chosen if chosen is None else chosen)
    assert prober.asked == sizes if sizes else len(prober.asked) <= 100
    assert code != "loops_spent" or len(prober.asked) == 100


@pytest.mark.parametrize("name", TIME)
def test_the_time_of_an_epoch_moves_the_batch(name: str) -> None:
    """Up while it improves by less than half, else down."""
    rate, options, sizes, code, chosen = TIME[name]
    prober = ScriptedProber(rate=rate)
    strategy = PaperStrategy(name="epoch-time", **{"images": 50_000, "most": 256, **options})
    _, stop = search(strategy, prober.probe, clock=FakeClock())
    assert (prober.asked, stop.code) == (sizes, code) and stop.chosen == (stop.chosen if chosen is None else chosen)


def test_usage_is_the_mean_of_the_upper_half_without_zeros() -> None:
    """Of half the readings, rounded down; 0 where all are 0, which grows the batch; nothing without readings."""

    def probe(*readings: float) -> BatchSizeProbe:
        rate = Interval(value=1.0, low=1.0, high=1.0)
        return BatchSizeProbe(batch_size=1, fits=True, images_per_s=rate, utilization_samples=readings)

    assert probe(0.0, 0.2, 1.0, 0.8, 0.0, 0.4).usage == pytest.approx(0.9)
    assert probe(0.0, 0.3, 0.5, 0.9).usage == pytest.approx(0.9)
    assert (probe(0.0, 0.0).usage, probe(0.7).usage, probe().usage) == (0.0, 0.0, None)

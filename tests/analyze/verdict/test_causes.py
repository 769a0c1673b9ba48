"""The verdict on pipelines whose truth is known: a row a cause, and a row an edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rates import Loop
from loaderprobe.records.measurement import Measurement
from tests.analyze.runs import Cost, Round, alike, run

EVEN = Cost(cpu_s=0.004, blocked_s=0.004, collate_s=0.0002)
AS_FOUND: dict[str, Any] = {"cache": "as-found", "facts": {"access": "none", "modes": ("baseline",)}}
RATE = 250.0


def times(storage: float, preprocessing: float, transport: float = 1.0, training: float = RATE) -> Round:
    """A round in which the loader is so many times as fast without each resource."""
    faster = {"warm": storage, "cached_samples": preprocessing, "no_transport": transport}
    return {"baseline": RATE, "training": training, **{mode: RATE * factor for mode, factor in faster.items()}}


def pipeline(rounds: Round | Sequence[Round], cost: Cost = EVEN, /, **changes: Any) -> Measurement:
    return run([rounds] * 3 if isinstance(rounds, dict) else rounds, cost, **changes)  # type: ignore[arg-type]  # not a dict


WAITING_FOR_CORES = Cost(cpu_s=0.005, delay_s=0.003)
TRUTHS = {
    "storage": (pipeline(times(3, 1.2)), "input storage largest_speedup"),
    "preprocessing": (pipeline(times(1.2, 3)), "input preprocessing largest_speedup"),
    "transport": (pipeline(times(1, 1, 3)), "input transport largest_speedup"),
    "compute": (pipeline(times(3, 1.2, training=80), compute=80), "compute compute largest_speedup"),
    "nothing is worth it": (pipeline(times(1.04, 1.03), compute=260), "balanced balanced no_speedup"),
    "within 15 %": (pipeline(times(1.9, 2)), "input either speedups_alike preprocessing storage"),
    "beyond 15 %": (pipeline(times(1.9, 2.3)), "input preprocessing largest_speedup"),
    "a lead that comes and goes": (
        pipeline([times(storage, 2) for storage in (1, 3, 5)]),
        "input either lead_within_spread storage preprocessing",
    ),
    "noise that both share": (
        pipeline([times(3 * factor, 2 * factor) for factor in (1, 1.2, 1.4)]), "input storage largest_speedup",
    ),
    "workers wait for cores": (pipeline(times(1, 3), WAITING_FOR_CORES), "input cpu all_cores_busy"),
    "more cores free no storage": (pipeline(times(3, 1), WAITING_FOR_CORES), "input storage largest_speedup"),
    "all cores in use": (
        pipeline(times(1, 3), Cost(cpu_s=0.008), facts={"cores_available": 2.0}), "input cpu all_cores_busy",
    ),
    "more workers than serial may help": (
        pipeline(times(1, 3), Cost(cpu_s=0.004), workers=0, facts={"cores_available": 0.5}),
        "input preprocessing largest_speedup",
    ),
    "training misses its prediction": (
        pipeline(times(1.2, 1.3, training=150)), "input inconclusive outside_noise_band",
    ),
    "one round misses it": (
        pipeline([times(1.2, 1.3, training=150)]), "inconclusive inconclusive one_round_does_not_fit",
    ),
    "a clear estimate": (run(alike(baseline=RATE), Cost(cpu_s=0.002, blocked_s=0.006), **AS_FOUND),
                         "input storage largest_speedup"),
    "estimates that are close": (run(alike(baseline=RATE), Cost(cpu_s=0.0036, blocked_s=0.0044), **AS_FOUND),
                                 "input either speedups_alike storage preprocessing"),
    "an estimate that is small": (
        run(alike(warm=RATE), Cost(cpu_s=0.008, cold=0.0), compute=275, **{**AS_FOUND, "cache": "warm"}),
        "inconclusive inconclusive estimate_too_small",
    ),
    "cold that was not cold": (
        pipeline(times(3, 1.2), Cost(cpu_s=0.004, blocked_s=0.004, cold=0.5)),
        "input inconclusive files_were_warm",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUTHS)
def test_the_verdict_is_the_truth(name: str) -> None:
    """Side, cause, reason, and the candidates where there are several, the largest first."""
    measurement, truth = TRUTHS[name]
    found = verdict(measurement).bound
    assert " ".join((found.side, found.cause, found.reason.code, *found.candidates)) == truth


rates, overheads = st.floats(1.0, 1e5), st.floats(0, 0.01)


@given(rates, rates, st.integers(0, 8), st.booleans(), overheads)
def test_training_is_never_faster_than_either_part(
    loader: float, compute: float, workers: int, synchronous: bool, overhead: float
) -> None:
    """The whole runs at most at the rate of the loader, and of the device."""
    loop = Loop(
        workers=workers, batch_size=32, synchronous=synchronous, compute_images_per_s=compute, overhead_s=overhead
    )  # fmt: skip
    assert loop.end_to_end(loader) <= min(loader, compute) * (1 + 1e-9)

"""Whole measurements of the made-up pipelines in `scripted`: every round alike, every rate exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loaderprobe.records.measurement import Measurement
from tests.analyze.runs import BATCH, Cost, run
from tests.analyze.runs import FILES as FILES
from tests.analyze.scripted import Truth


def measured(truth: Truth, workers: int, **changes: Any) -> Measurement:
    """Three rounds of the loader alone, cold and warm, and of training; `changes` are to the configuration."""
    warm = replace(truth, latency_s=0.0, bytes_per_s=1e15)
    rates = {
        "baseline": truth.service().loader(workers), "training": truth.training(workers),
        "warm": warm.service().loader(workers),
    }  # fmt: skip
    received_s = truth.parent_s * BATCH if workers else 0.0
    return run(
        [rates] * 3, _cost(truth, workers), {"warm": _cost(warm, workers)}, compute=truth.compute,
        synchronous=truth.synchronous, receive_s=dict.fromkeys(("baseline", "warm"), received_s), recorded=False,
        facts={"cores_available": truth.cores, "modes": ("baseline", "warm")}, workers=workers, **changes,
    )  # fmt: skip


def _cost(truth: Truth, workers: int) -> Cost:
    """Of workers that wait for storage, or for one another; storage faster than any is memory."""
    waited_s = max(workers, 1) / truth.service().loader(workers) - truth.cpu_s
    return Cost(
        cpu_s=truth.cpu_s, blocked_s=max(truth.service().storage_s, waited_s), cold=float(truth.bytes_per_s < 1e14)
    )

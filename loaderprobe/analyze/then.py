"""What limits training next, once one resource is free: what stands beside every speed-up."""

from __future__ import annotations

from loaderprobe.records.resources import INPUTS
from loaderprobe.records.verdict import Bottleneck, Verdict

_NEAR = 0.95
"""A rate that reaches this share of a limit is at the limit."""
_FAR = 0.5
"""Storage that would be asked for less than this share of its ceiling at this concurrency is no next limit."""


def next_limits(verdict: Verdict, workers: int) -> dict[str, Bottleneck]:
    """By resource that is made free, for the speed-ups that are known."""
    known = [name for name in (*INPUTS, "compute") if getattr(verdict.speedups, name) is not None]
    return {name: limit for name in known if (limit := _next_limit(verdict, name, workers))}


def _next_limit(verdict: Verdict, free: str, workers: int) -> Bottleneck | None:
    speedup, compute = getattr(verdict.speedups, free), verdict.rates_images_per_s.compute
    rate = verdict.images_per_s.value * speedup.value
    if free != "compute" and compute and rate >= _NEAR * compute:
        return "compute"
    cores = verdict.rates_images_per_s.cpu_limit
    if free != "preprocessing" and cores and rate >= _NEAR * cores:
        return "cores"
    return _largest_part(verdict, free, workers)


def _largest_part(verdict: Verdict, free: str, workers: int) -> Bottleneck | None:
    """Of a worker's time for one image; the rest of it is sending."""
    spent, loader = verdict.worker_time, verdict.rates_images_per_s.loader
    if spent is None or not loader:
        return None
    storage = spent.waits.get("storage", spent.blocked_s)
    parts: dict[Bottleneck, float] = {
        "storage": storage,
        "preprocessing": spent.cpu_s + spent.run_delay_s,
        "transport": max(0.0, max(workers, 1) / loader - spent.cpu_s - spent.run_delay_s - spent.blocked_s),
    }
    left = {name: seconds for name, seconds in parts.items() if name != free and name not in _not_next(verdict, free)}
    return max(left, key=lambda name: left[name])


def _not_next(verdict: Verdict, free: str) -> tuple[str, ...]:
    """Storage, where its ceiling is known, and the faster training would ask for little of it."""
    share = verdict.disk_ceiling_fraction
    return ("storage",) if share is not None and share * getattr(verdict.speedups, free).value < _FAR else ()

"""Advice by the speed-up of one resource: on waits for a network, for a lock, or of another kind."""

from __future__ import annotations

from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.resources import INPUTS, RESOURCE
from loaderprobe.records.verdict import WORTH, Action, Advice, Interval
from loaderprobe.stats import median

# More reads in flight than these workers have are advised one step at a time.
MORE_WORKERS = 4


def remedies(measurement: Measurement, found: Experiments) -> tuple[Advice, ...]:
    """For each resource with a remedy that gains enough, the largest first; none where workers were not looked at."""
    made = [
        _advice(found, name, _action(measurement, found, name), _most(measurement, found, name))
        for name in INPUTS
        if RESOURCE[name].remedy and name in found.speedups and found.speedups[name].value >= WORTH and found.end_to_end
    ]
    return tuple(sorted((each for each in made if each.speedup >= WORTH), key=lambda each: -each.speedup))


def _action(measurement: Measurement, found: Experiments, name: str) -> Action:
    subject = found.waiting.subjects.get(name, "") if found.waiting else ""
    facts: dict[str, float | str] = {"subject": subject} if subject else {}
    if name == "network":
        facts["workers"] = max(1, measurement.config.loader.workers) * MORE_WORKERS
    return Action(code=RESOURCE[name].remedy, facts=facts)


def _most(measurement: Measurement, found: Experiments, name: str) -> float:
    """Images/s of training at best: without the wait, or with so many more workers that wait at the same time."""
    now = median(list(found.end_to_end.values()))
    without = now * found.speedups[name].value
    if name != "network" or found.cost is None:
        return without
    cpu_s = max(found.cost.cpu_s, found.cost.process_cpu_s or 0.0) / found.cost.images
    of_cores = measurement.cores_available / cpu_s if cpu_s else without
    return min(now * MORE_WORKERS, of_cores, now * max(1.0, found.free_input_speedup))


def _advice(found: Experiments, name: str, action: Action, most: float) -> Advice:
    """The range begins at the rate of today: a server, or the holder of a lock, may have no more to give."""
    now = median(list(found.end_to_end.values()))
    today = Interval(value=now, low=now, high=now)
    after = Interval(value=max(now, most), low=now, high=max(now, most))
    return Advice(
        action=action, speedup=after.value / now, before=today, after=after,
        how="estimated",
    )  # fmt: skip

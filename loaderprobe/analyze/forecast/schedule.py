"""A DataLoader's schedule, batch by batch: what fetching further ahead is worth when batch times vary.

torch sends a new order only when a batch has been received; task k goes to worker k mod N; at most N times the
prefetch factor are outstanding; batches are delivered in order. For anything else the laws predict as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from loaderprobe.analyze.verdict.rates import segments_of
from loaderprobe.records.measurement import Measurement, Mode

# Steps a device that runs on its own is handed ahead of time.
STEPS_AHEAD = 2
# Enough for batch times to meet in many ways.
BATCHES = 400


def batch_seconds(measurement: Measurement, mode: Mode) -> list[list[float]]:
    """Wall time of each batch in its worker, in order, by round of the loader alone."""
    records = measurement.worker_batches
    by_number = {number: wall / 1e9 for number, wall in zip(records.batch, records.wall_ns, strict=True)}
    return [
        [by_number[n] for n in range(s.first_batch, s.first_batch + s.steps) if n in by_number]
        for s in segments_of(measurement, mode, "loader_only")
    ]


def scheduled_rate(
    batch_s: Sequence[float], *, workers: int, prefetch_factor: int, step_s: float, receive_s: float, synchronous: bool
) -> float:
    """Batches/s of training once the first buffer is used up, when task k takes `batch_s[k]` seconds in its worker.

    `step_s`: compute a batch; `receive_s`: the training thread a batch. The times are taken round and round.
    """
    ahead = workers * prefetch_factor
    skipped = workers * (prefetch_factor + 1)
    count = max(BATCHES, 4 * skipped, 2 * len(batch_s))
    sent = deque([0.0] * ahead)
    free = [0.0] * workers
    steps: deque[float] = deque(maxlen=STEPS_AHEAD)
    now = device = begin = 0.0
    ready: deque[float] = deque()
    # Runs a thousand times for a report: a comparison takes a third of the time of max().
    for number in range(count):
        while sent:
            task = number + len(ready)
            worker = task % workers
            idle_from, order = free[worker], sent.popleft()
            free[worker] = (order if order > idle_from else idle_from) + batch_s[task % len(batch_s)]
            ready.append(free[worker])
        made = ready.popleft()
        now = (made if made > now else now) + receive_s
        sent.append(now)
        device = (now if now > device else device) + step_s
        if synchronous:
            now = device
        else:
            if len(steps) == STEPS_AHEAD and steps[0] > now:
                now = steps[0]
            steps.append(device)
        if number == skipped:
            begin = device
    return (count - 1 - skipped) / (device - begin) if device > begin else float("inf")

"""What workers waited for: which looks count, what they bound, and the causes that only they can name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.forecast.advice import advise
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.rates import LEAST_SAMPLES, Waiting, attributed_cost, waiting_of
from loaderprobe.analyze.verdict.validity import why_not_as_asked
from loaderprobe.records.measurement import segments_of
from loaderprobe.records.remark import Remark
from loaderprobe.render.words import action_words
from tests.analyze.runs import Cost, alike, looked, run
from tests.analyze.verdict.test_truths import AS_FOUND, LAP

WAITING = Cost(cpu_s=0.002, blocked_s=0.02, cold=0.0)
UNKNOWN = AS_FOUND["facts"]


def waiting(**kinds: int) -> Waiting:
    return Waiting(samples=sum(kinds.values()), kinds={k: v for k, v in kinds.items() if k != "running"})  # type: ignore[misc]


def test_only_looks_while_a_batch_is_made_count() -> None:
    """Between two batches a worker is idle: that it then waits on a pipe says nothing."""
    seen = looked(run(alike(baseline=100), WAITING), "network", "running", outside=20)
    found = waiting_of(seen, segments_of(seen, "baseline", "loader_only") + segments_of(seen, "baseline", "training"))
    assert found is not None
    batches = len(seen.worker_batches.batch)
    assert dict(found.kinds) == {"network": batches}
    assert found.samples == 2 * batches


def test_a_few_looks_are_none() -> None:
    """They would make shares of chance."""
    seen = looked(run(alike(baseline=100), WAITING), "network")
    waits = seen.waits
    assert waits is not None
    few = LEAST_SAMPLES - 1
    cut = replace(
        waits,
        time_ns=waits.time_ns[:few],
        worker=waits.worker[:few],
        kind=waits.kind[:few],
        subject=waits.subject[:few],
    )
    assert waiting_of(replace(seen, waits=cut), seen.segments) is None


def test_the_upper_end_of_a_share_is_never_its_middle() -> None:
    """No look at a lock in 60 still allows a share of some 6 %, and half of 60 one of 62 %."""
    assert waiting(network=60).most("lock") == pytest.approx(0.06, abs=0.01)
    assert waiting(network=30, lock=30).most("lock") == pytest.approx(0.62, abs=0.01)
    assert waiting(running=5).most("lock") == 1.0


def test_waiting_for_threads_that_compute_is_preprocessing() -> None:
    """A pool of threads inside the data set decodes while the worker's own thread waits."""
    pooled = run(alike(baseline=90), Cost(cpu_s=0.002, blocked_s=0.02, cold=0.0), cache="as-found", facts=UNKNOWN)
    records = pooled.worker_batches
    busy = replace(pooled, worker_batches=replace(records, process_cpu_ns=tuple(8 * cpu for cpu in records.cpu_ns)))
    seen = looked(busy, "running")
    cost = attributed_cost(seen, segments_of(seen, "baseline", "loader_only"))
    assert cost is not None
    assert cost.helped_s == pytest.approx(cost.blocked_s)
    assert run_experiments(seen).speedups["preprocessing"].value > 5


STAMPS = ("begin_ns", "ready_ns", "copied_ns", "end_ns")


@pytest.mark.parametrize(("first", "cold"), [(64, True), (16, False)])
def test_cold_shards_are_known_by_the_batches_after_the_eviction(first: int, cold: bool) -> None:
    """The kernel reads ahead at first: 40 kB an image are few for a first_pass of 200 kB, but not 6 batches later.

    The first pass over 160 images read 200 kB an image; `first` MB are what the 6 batches before the timed ones read.
    """
    first_pass = replace(LAP, images=160, read_bytes=32_000_000)
    whole = run(
        alike(1, baseline=90), WAITING, workers=2, facts={**UNKNOWN, "access": "parts", "first_pass": first_pass}
    )
    segment, records = whole.segments[0], whole.worker_batches
    read = [first * 1_000_000 // 6] * 6 + [40_000 * 16] * (len(records.batch) - 6)
    timed = replace(segment, first_batch=6, **{name: getattr(segment, name)[6:] for name in STAMPS})
    measurement = replace(whole, segments=(timed,), worker_batches=replace(records, read_bytes=tuple(read)))
    reason = why_not_as_asked(measurement, "baseline")
    assert (reason.code if reason else None) == (None if cold else "read_less_again")


@pytest.mark.parametrize("access", ["parts", "fresh"])
def test_a_cold_segment_may_be_shorter_than_the_first_pass(access: str) -> None:
    """The batches after it belong to a warm one, and read nothing."""
    first_pass = replace(LAP, images=16 * 20, read_bytes=16 * 20 * 100_000)
    whole = run(
        alike(1, baseline=90), WAITING, workers=2, facts={**UNKNOWN, "access": access, "first_pass": first_pass}
    )
    segment, records = whole.segments[0], whole.worker_batches
    read = tuple(100_000 * 16 if number < 6 else 0 for number in range(len(records.batch)))
    timed = replace(segment, first_batch=0, **{name: getattr(segment, name)[:6] for name in STAMPS})
    measurement = replace(whole, segments=(timed,), worker_batches=replace(records, read_bytes=read))
    assert why_not_as_asked(measurement, "baseline") is None
    half = replace(records, read_bytes=tuple(each // 5 for each in read))
    reason = why_not_as_asked(replace(measurement, worker_batches=half), "baseline")
    assert reason == Remark(code="read_less_again", facts={"share": 0.2})


def test_a_network_gets_advice_of_its_own() -> None:
    """With a range that begins at today's rate: the server may have no more to give."""
    seen = looked(run(alike(baseline=90), WAITING, cache="as-found", facts=UNKNOWN), "network", subject="10.0.0.5:443")
    first = advise(seen, run_experiments(seen))[0]
    assert first.action.facts == {"workers": 8, "subject": "10.0.0.5:443"}
    assert "num_workers=8" in action_words(first.action)
    assert first.after.low == pytest.approx(first.before.value)
    assert first.speedup > 2

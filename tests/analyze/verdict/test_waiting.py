"""What workers waited for: which looks count, what they bound, and the causes that only they can name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.forecast.advice import advise
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.rates import LEAST_SAMPLES, Waiting, attributed_cost, waiting_of
from loaderprobe.analyze.verdict.validity import why_not_as_asked
from loaderprobe.records.measurement import FirstPass, Measurement, segments_of
from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WAIT_KINDS, WaitKind, WaitSamples
from loaderprobe.render.forecast_words import action_words
from tests.analyze.runs import Cost, alike, run

WAITING = Cost(cpu_s=0.002, blocked_s=0.02, cold=0.0)
UNKNOWN: dict[str, Any] = {"access": "none", "modes": ("baseline",)}
SECOND = 10**9


def looked(measurement: Measurement, *kinds: WaitKind, subject: str = "", outside: int = 0) -> Measurement:
    """The same with workers that were seen so in turn while each of their batches was made."""
    records = measurement.worker_batches
    begins = tuple(number * 100 * SECOND for number in range(len(records.batch)))
    rows = [
        (begin + 1 + look, records.worker[number], WAIT_KINDS.index(kind))
        for number, begin in enumerate(begins)
        for look, kind in enumerate(kinds)
    ]
    rows += [(begins[n] - SECOND, records.worker[n], WAIT_KINDS.index("pipe")) for n in range(1, outside + 1)]
    rows.sort()
    waits = WaitSamples(
        time_ns=tuple(row[0] for row in rows),
        worker=tuple(row[1] for row in rows),
        kind=tuple(row[2] for row in rows),
        subject=tuple(0 if subject and row[2] != WAIT_KINDS.index("running") else -1 for row in rows),
        subjects=(subject,) if subject else (),
        letters_only=None,
        cpu_ns=1,
        wall_ns=SECOND,
    )
    return replace(measurement, worker_batches=replace(records, start_ns=begins), waits=waits)


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


@pytest.mark.parametrize(
    ("kind", "cause"), [("network", "network"), ("lock", "lock"), ("sleep", "wait"), ("pipe", "wait")]
)
def test_waiting_that_is_seen_is_named(kind: WaitKind, cause: str) -> None:
    """Without samples of what workers wait for, remote data are inconclusive."""
    unseen = run(alike(baseline=90), WAITING, cache="as-found", facts=UNKNOWN)
    assert verdict(unseen).bound.cause == "inconclusive"
    seen = verdict(looked(unseen, kind, subject="10.0.0.5:443"))
    assert (seen.bound.side, seen.bound.cause) == ("input", cause)
    assert seen.bound.reason.facts["subject"] == "10.0.0.5:443"
    assert seen.bound.reason.facts["waiting_share"] == pytest.approx(10 / 11, rel=0.02)
    speedup = getattr(seen.speedups, cause)
    assert speedup.how == "estimated"
    assert speedup.value == pytest.approx(11, rel=0.02)


def test_a_wait_that_a_lock_may_be_held_in_is_named_beside_the_lock() -> None:
    """Workers that sleep while they hold a shared lock wait less for it once they sleep less."""
    samples: tuple[WaitKind, ...] = ("lock", "lock", "lock", "sleep", "running")
    found = verdict(looked(run(alike(baseline=90), WAITING, cache="as-found", facts=UNKNOWN), *samples))
    assert (found.bound.side, found.bound.cause) == ("input", "either")
    assert set(found.bound.candidates) == {"lock", "wait"}
    alone = verdict(looked(run(alike(baseline=90), WAITING, cache="as-found", facts=UNKNOWN), "lock", "running"))
    assert alone.bound.cause == "lock"


def test_a_lock_without_looks_is_missing_with_its_reason() -> None:
    """And no speed-up stands for it."""
    found = verdict(run(alike(baseline=90), WAITING))
    assert found.speedups.lock is None
    assert found.unavailable["speedups.lock"]


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


def test_what_is_missing_gains_no_more_than_all_waiting_for_it() -> None:
    """Waiting of 7 % does not make a tenfold speed-up of preprocessing inconclusive."""
    decoding = Cost(cpu_s=0.02, blocked_s=0.0015)
    warm_was_cold = {"warm": replace(decoding, cold=0.5)}
    rounds = [{**each, "warm": 95.0, "cached_samples": 900.0} for each in alike(baseline=93)]
    bounded = run(rounds, decoding, warm_was_cold)
    assert run_experiments(bounded).bounds["storage"] == pytest.approx(1.075, abs=0.01)
    assert verdict(bounded).bound.cause in ("preprocessing", "cpu")
    waits_long = Cost(cpu_s=0.002, blocked_s=0.02)
    unbounded = run(rounds, waits_long, {"warm": replace(waits_long, cold=0.5)})
    assert verdict(unbounded).bound.cause == "inconclusive"


def test_the_side_stands_where_only_the_cause_is_open() -> None:
    """Workers starve training, and compute does not hold it up."""
    found = verdict(run(alike(baseline=90), WAITING, cache="as-found", facts=UNKNOWN))
    assert (found.bound.side, found.bound.cause) == ("input", "inconclusive")
    assert found.bound.reason.code == "ablation_missing"
    assert found.bound.reason.facts["resource"] == "storage"


STAMPS = ("begin_ns", "ready_ns", "copied_ns", "end_ns")
LAP = FirstPass(
    images=100, wall_s=2.2, cpu_s=0.2, read_bytes=10_000_000, called_bytes=10_000_000, again_wall_s=2.2,
    again_cpu_s=0.2, again_read_bytes=0,
)  # fmt: skip


@pytest.mark.parametrize(("read", "code"), [(0, "always_warm"), (10_000_000, "warm_after_first_pass")])
def test_files_that_could_not_be_made_cold_allow_no_word_on_cold_ones(read: int, code: str) -> None:
    """Read by calls, but not from storage after the first time, or not at all: the cache answered."""
    facts = {**UNKNOWN, "first_pass": replace(LAP, read_bytes=read)}
    decoding = Cost(cpu_s=0.02, blocked_s=0.0001, cold=0.0)
    found = verdict(run(alike(baseline=95), decoding, cache="as-found", facts=facts))
    assert found.bound.cause == "inconclusive"
    assert found.files_were == "warm"
    assert found.unavailable["speedups.storage"].code == code


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


def test_a_data_set_that_reads_no_file_needs_no_cold_ones() -> None:
    """What it makes costs CPU time only, and that is the cause."""
    facts = {**UNKNOWN, "first_pass": replace(LAP, read_bytes=0, called_bytes=0)}
    decoding = Cost(cpu_s=0.02, blocked_s=0.0001, cold=0.0)
    found = verdict(run(alike(baseline=95), decoding, cache="as-found", facts=facts))
    assert found.bound.cause in ("preprocessing", "cpu")
    assert found.files_were is None


def test_a_network_gets_advice_of_its_own() -> None:
    """With a range that begins at today's rate: the server may have no more to give."""
    seen = looked(run(alike(baseline=90), WAITING, cache="as-found", facts=UNKNOWN), "network", subject="10.0.0.5:443")
    first = advise(seen, run_experiments(seen))[0]
    assert first.action.facts == {"workers": 8, "subject": "10.0.0.5:443"}
    assert "num_workers=8" in action_words(first.action)
    assert first.after.low == pytest.approx(first.before.value)
    assert first.speedup > 2


@pytest.mark.parametrize(("blocked_s", "cause"), [(0.4, "storage"), (0.004, "inconclusive")])
def test_an_estimate_that_leads_far_needs_no_ablation(blocked_s: float, cause: str) -> None:
    """Where time ended before warm files were measured: workers that wait nearly all the time wait for the storage."""
    slow = Cost(cpu_s=0.002, blocked_s=blocked_s, cold=20.0)
    facts = {"access": "parts", "modes": ("baseline", "warm"), "sample_bytes": 100_000.0}
    rate = 1 / (slow.cpu_s + slow.blocked_s)
    seen = looked(run(alike(1, baseline=rate), slow, workers=1, facts=facts), "storage", "storage", "storage")
    found = verdict(seen)
    assert found.bound.cause == cause
    assert found.speedups.storage is not None and found.speedups.storage.how == "estimated"
    if cause == "inconclusive":
        assert found.bound.reason.code == "estimate_not_measured"

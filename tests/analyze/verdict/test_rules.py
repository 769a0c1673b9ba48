"""What holds of every verdict, whatever the pipeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.judge import Judged, verdict
from loaderprobe.analyze.report import detail_of
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.rates import cores_in_training
from loaderprobe.records.measurement import Measurement, Others, Series, segments_of
from loaderprobe.store.run_directory import RunDirectory
from tests.analyze.runs import Cost, alike, looked, reordered, run, scaled, with_records, with_steps, with_training
from tests.analyze.verdict.test_truths import AS_FOUND

MODES = ("warm", "cached_samples", "no_transport")


seconds = st.floats(1e-4, 2e-2)
ablated = st.sampled_from([MODES[:count] for count in range(4)])
spread = st.lists(st.floats(0.9, 1.1), min_size=3, max_size=5)


def made(
    cost: Cost, *, workers: int, measured: tuple[str, ...] = (), wobble: list[float] | None = None,
    synchronous: bool = False, compute: float = 1e5, **changes: Any,
) -> Measurement:  # fmt: skip
    """What workers of these costs deliver, in the baseline and the `measured` modes; training is as predicted."""
    processes = max(workers, 1)
    whole = cost.cpu_s + cost.delay_s + cost.blocked_s
    left = {
        "baseline": whole,
        "warm": whole - cost.blocked_s,
        "cached_samples": cost.blocked_s + 1e-5,
        "no_transport": whole - cost.collate_s,
    }
    rounds = []
    for factor in wobble or [1.0, 1.0, 1.0]:
        rates = {mode: processes / left[mode] * factor for mode in ("baseline", *measured)}
        loader = rates["baseline"]
        rates["training"] = 1 / (1 / loader + 1 / compute) if synchronous and not workers else min(loader, compute)
        rounds.append(rates)
    return run(rounds, cost, compute=compute, synchronous=synchronous, workers=workers, **changes)


@given(seconds, seconds, st.integers(0, 8), spread, ablated, st.integers(1, 10), st.data())
def test_neither_the_scale_of_times_nor_the_order_of_rounds_matters(
    cpu_s: float, blocked_s: float, workers: int, wobble: list[float], measured: tuple[str, ...], power: int,
    data: st.DataObject,
) -> None:  # fmt: skip
    """A machine that is slower in everything gets the same words and speed-ups; so do the rounds in another order."""
    measurement = made(
        Cost(cpu_s=cpu_s, blocked_s=blocked_s, collate_s=cpu_s / 8), workers=workers, wobble=wobble,
        measured=measured, compute=300.0,
    )  # fmt: skip
    order = data.draw(st.permutations(range(len(wobble))))
    one, *others = (
        (found.bound.side, found.bound.cause, found.bound.candidates, found.speedups)
        for found in map(verdict, (measurement, scaled(measurement, 2**power), reordered(measurement, order)))
    )
    assert others == [one, one]


@given(seconds, seconds, st.floats(1.0, 10.0), st.integers(0, 8), st.booleans(), st.booleans())
def test_slower_storage_never_lowers_its_speedup(
    cpu_s: float, blocked_s: float, slower: float, workers: int, synchronous: bool, measured: bool
) -> None:
    """Workers that wait longer for the same files gain no less without storage, measured or estimated."""
    values = []
    for factor in (1.0, slower):
        cost = Cost(cpu_s=cpu_s, blocked_s=blocked_s * factor)
        found = run_experiments(
            made(cost, workers=workers, synchronous=synchronous, measured=("warm",) if measured else (), compute=300.0)
        )
        values.append(found.speedups["storage"].value)
    assert values[1] >= values[0] * (1 - 1e-5)


@given(seconds, seconds, st.integers(0, 4), st.booleans(), st.floats(50, 1e4))
def test_the_range_of_a_speedup_holds_it(
    cpu_s: float, blocked_s: float, workers: int, synchronous: bool, compute: float
) -> None:
    """What the samples of workers say of a speed-up is of training, as the speed-up is."""
    cost = Cost(cpu_s=cpu_s, blocked_s=blocked_s, cold=0.0)
    plain = made(cost, workers=workers, synchronous=synchronous, compute=compute, **AS_FOUND)
    found = run_experiments(looked(plain, "network", "running"))
    assert found.ranges.keys() >= {"network", "lock"}
    for name, (least, most) in found.ranges.items():
        assert least <= found.speedups[name].value * (1 + 1e-9) and found.speedups[name].value <= most * (1 + 1e-9)


@pytest.mark.parametrize("lost", [0.3, 0.5])
@pytest.mark.parametrize("key", ["6296e1332bea7293", "c6abb333b1b11848"])
def test_batches_whose_record_is_lost_change_no_word(key: str, lost: float) -> None:
    """The oldest are: of cold files it seemed that half came from memory, and of busy cores that half were idle."""
    whole = RunDirectory.open(Path(__file__).parents[3] / "fixtures/runs/storage").result(key)
    assert isinstance(whole, Measurement)
    batches = whole.worker_batches.batch
    cut = with_records(whole, {*batches[round(lost * len(batches)) :]})
    before, after = verdict(whole), verdict(cut)
    assert after.bound.cause == before.bound.cause
    assert after.cold_fraction == pytest.approx(before.cold_fraction, abs=0.001)
    assert after.other_read_bytes_per_s == pytest.approx(before.other_read_bytes_per_s, abs=5e4)
    cores = [cores_in_training(each, segments_of(each, each.config.mode, "training")) for each in (whole, cut)]
    assert cores[1] == pytest.approx(cores[0], rel=0.05)


@pytest.mark.parametrize(("counted", "cores"), [(True, 1.9), (False, 5.0)])
def test_no_more_cores_are_in_use_than_the_kernel_counts(counted: bool, cores: float) -> None:
    """Batches that were made before a short segment, and are taken in it, took none of its time."""
    made = run(alike(baseline=100.0, training=500.0), Cost(cpu_s=0.01), workers=2)
    records = replace(made.worker_batches, process_cpu_ns=made.worker_batches.cpu_ns)
    others = Others(span_ns=10**9, cores=2, cpu_ns=0, own_cpu_ns=1_900_000_000, steal_ns=0) if counted else None
    made = with_training(made, lambda one: replace(one, process_cpu_ns=0, others=others))
    found = replace(made, worker_batches=records)
    assert cores_in_training(found, segments_of(found, "baseline", "training")) == pytest.approx(cores)


@pytest.mark.parametrize(("blocked_s", "gains"), [(0.0, False), (0.002, True)])
def test_storage_without_waits_gains_nothing(*, blocked_s: float, gains: bool) -> None:
    """However idle workers are: of CIFAR in memory, two of them made 300 images/s and could have made 500."""
    rounds, cost = [{"baseline": 300.0, "training": 150.0}] * 3, Cost(cpu_s=0.004, blocked_s=blocked_s)
    found = run_experiments(run(rounds, cost, workers=2, compute=400.0, **AS_FOUND))
    assert (found.speedups["storage"].value > 1.0) is gains


SLOWED = run(alike(baseline=400.0, training=80.0, resident=100.0), Cost(), workers=4)
AS_ALONE = run(alike(baseline=400.0, training=99.0, resident=100.0), Cost(), workers=4)
FEW = run(alike(2, baseline=400.0, training=80.0, resident=100.0), Cost(), workers=4)
SERIAL = run(alike(baseline=400.0, training=80.0, resident=100.0), Cost(), workers=0)
FED_SLOWLY = run(alike(baseline=40.0, training=40.0, resident=100.0), Cost(cpu_s=0.1), workers=4)


def waiting(measurement: Measurement, share: float) -> Measurement:
    """Training waits for its input for so much of its time."""
    return with_training(measurement, lambda one: with_steps(one, share if one.mode == "baseline" else 0.0))


@pytest.mark.parametrize(
    ("measurement", "times_s"),
    [
        (SLOWED, (0.2, 0.16)),
        (AS_ALONE, None),
        (FEW, None),
        (SERIAL, None),
        (waiting(FED_SLOWLY, 0.6), None),
        (waiting(SLOWED, 0.2), None),
        (waiting(FED_SLOWLY, 0.3), (0.28, 0.16)),
    ],
    ids=["slowed", "as alone", "two rounds", "serial", "input-bound", "waits", "input-bound on the same cores"],
)
def test_steps_that_the_loader_holds_up_are_noted(
    measurement: Measurement, times_s: tuple[float, float] | None
) -> None:
    """With the times of a step beside the loader and without it, whatever limits; waits for input are not in them."""
    notes = [note.facts for note in detail_of(Judged(measurement=measurement)).notes if note.code == "steps_held_up"]
    found = [(facts["beside_s"], facts["alone_s"]) for facts in notes]
    assert found == ([pytest.approx(times_s)] if times_s else [])


@pytest.mark.parametrize(("others", "noted"), [((0.0, 0.0), []), ((0.0, 2.0), [2])])
def test_processes_that_had_the_gpu_open_are_noted(others: tuple[float, ...], noted: list[int]) -> None:
    """The most at once: what they run makes compute alone slower than the GPU is."""
    times_ns = [one.begin_ns[0] for one in SLOWED.segments if one.activity == "training"][:2]
    series = Series(name="gpu_other_processes", unit="", source="NVML", time_ns=tuple(times_ns), values=others)
    notes = detail_of(Judged(measurement=replace(SLOWED, series=(series,)))).notes
    assert [note.facts["processes"] for note in notes if note.code == "gpu_shared"] == noted

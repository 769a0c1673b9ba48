"""The rule: what it must hold whatever the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rates import Loop, WorkerCost
from loaderprobe.analyze.verdict.rule import judge
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Bound, Speedup

speedups = st.floats(1.0, 20.0)


def experiments(**changes: Any) -> Experiments:
    """Three quiet rounds of training at 100 images/s; speed-ups are given by name, as numbers."""
    named = {
        name: changes.pop(name) for name in ("storage", "preprocessing", "transport", "compute") if name in changes
    }
    values = {"storage": 1.0, "preprocessing": 1.0, "transport": 1.0, "compute": 1.0, **named}
    found = Experiments(
        base="baseline",
        compute=1000.0,
        loader={0: 100.0, 1: 100.0, 2: 100.0},
        without={},
        how={},
        speedups={
            name: Speedup(value=value, low=value * 0.99, high=value * 1.01, how="measured")
            for name, value in values.items()
        },
        ratios={name: {0: value * 0.99, 1: value, 2: value * 1.01} for name, value in values.items()},
        end_to_end={0: 100.0, 1: 101.0, 2: 99.0},
        predicted={0: 100.0, 1: 100.0, 2: 100.0},
        free_input_speedup=10.0,
        cost=WorkerCost(images=100, wall_s=1.0, cpu_s=0.5, run_delay_s=0.01, read_bytes=10**7),
        overhead_s=0.001,
        batch_size=16,
    )
    return replace(found, **changes)


def estimated(found: Experiments, *names: str, at_most: bool = False) -> Experiments:
    """The same experiments, of which these were only estimated."""
    speedups = {
        name: replace(speedup, how="estimated") if name in names else speedup
        for name, speedup in found.speedups.items()
    }
    return replace(found, speedups=speedups, at_most=frozenset(names) if at_most else frozenset())


def judged(found: Experiments) -> Bound:
    return judge(found, workers=2, cores_available=64.0)


@pytest.mark.parametrize(
    ("named", "side", "cause"),
    [
        ({"storage": 3.0, "preprocessing": 1.2}, "input", "storage"),
        ({"preprocessing": 3.0, "storage": 1.2}, "input", "preprocessing"),
        ({"transport": 3.0}, "input", "transport"),
        ({"compute": 3.0}, "compute", "compute"),
        ({"storage": 1.04, "compute": 1.03}, "balanced", "balanced"),
        ({"storage": 2.0, "preprocessing": 1.9}, "input", "either"),
        ({"storage": 2.0, "compute": 1.9}, "inconclusive", "either"),
    ],
)
def test_the_largest_speedup_names_the_cause(named: dict[str, float], side: str, cause: str) -> None:
    """The resource with the largest speed-up is the cause; close calls name both; small ones none."""
    found = judged(experiments(**named))
    assert (found.side, found.cause) == (side, cause)


def test_two_that_do_not_differ_are_both_named() -> None:
    """Candidates are those within 15 % of the largest speed-up, largest first."""
    assert judged(experiments(storage=1.9, preprocessing=2.0, transport=1.1)).candidates == ("preprocessing", "storage")


@pytest.mark.parametrize(
    ("lead", "cause"), [(1.6, "storage"), (1.4, "either"), (1.2, "either")]
)  # fmt: skip
def test_an_estimate_needs_a_wider_lead(lead: float, cause: str) -> None:
    """Half again what the next gains makes an estimate firm; less names both, where measured speed-ups need 15 %."""
    found = experiments(storage=1.5 * lead, preprocessing=1.5)
    assert judged(estimated(found, "storage")).cause == cause
    assert judged(estimated(found, "preprocessing")).cause == cause
    assert judged(found).cause == "storage"


def test_a_small_estimated_speedup_is_no_firm_word() -> None:
    """Where nothing else gains, an estimate of 10 % says too little, one of 20 % enough."""
    assert judged(estimated(experiments(storage=1.2), "storage")).cause == "storage"
    small = judged(estimated(experiments(storage=1.1), "storage"))
    assert small.cause == "inconclusive"
    assert small.reason.code == "estimate_too_small"
    assert small.reason.facts == {"resource": "storage", "speedup": 1.1, "how": "estimated"}


def test_a_disk_that_may_be_full_keeps_decoding_from_being_named() -> None:
    """What decoding gains at most leads nothing firmly while storage gains 15 % and more."""
    full = experiments(preprocessing=4.0, storage=1.3)
    assert judged(estimated(full, "preprocessing", at_most=True)).candidates == ("preprocessing", "storage")
    free = experiments(preprocessing=4.0, storage=1.1)
    assert judged(estimated(free, "preprocessing", at_most=True)).cause == "preprocessing"


@pytest.mark.parametrize(
    ("storage", "cause"), [((1.05, 1.3, 1.05), "preprocessing"), ((1.05, 1.3, 1.2), "either"), ((1.05, 1.3), "either")]
)
def test_one_round_of_three_does_not_make_a_disk_full(storage: tuple[float, ...], cause: str) -> None:
    """It may be an outlier; two of three are not, nor is one of two."""
    found = estimated(experiments(preprocessing=4.0, storage=1.05), "preprocessing", at_most=True)
    ratios = {"storage": dict(enumerate(storage)), "preprocessing": dict.fromkeys(range(len(storage)), 4.0)}
    assert judged(replace(found, ratios=found.ratios | ratios)).cause == cause


def test_waiting_for_cores_makes_the_cause_the_cpu() -> None:
    """Workers that wait for a core over 20 % of their time are not helped by more workers."""
    waiting = WorkerCost(images=100, wall_s=1.0, cpu_s=0.5, run_delay_s=0.3, read_bytes=0)
    assert judged(experiments(preprocessing=3.0, cost=waiting)).cause == "cpu"
    assert judged(experiments(storage=3.0, cost=waiting)).cause == "storage"


def test_a_lead_that_comes_and_goes_is_not_clear() -> None:
    """A speed-up of 3 beside one of 2 does not lead when single rounds say the opposite."""
    wide = experiments(storage=3.0, preprocessing=2.0)
    wide.ratios["storage"] = {0: 1.0, 1: 3.0, 2: 5.0}
    assert judged(wide).cause == "either"


def test_noise_that_both_speedups_share_does_not_hide_the_lead() -> None:
    """Rounds on a machine that slows down by half move both speed-ups, and the lead stays."""
    shared = experiments(storage=3.0, preprocessing=2.0)
    for name in ("storage", "preprocessing"):
        shared.ratios[name] = {n: ratio * (1 + n) for n, ratio in shared.ratios[name].items()}
    assert judged(shared).cause == "storage"


def test_training_outside_the_noise_band_is_inconclusive() -> None:
    """Training at 60 % of the prediction, round by round, allows no word on its cause."""
    found = judged(experiments(storage=3.0, end_to_end={0: 60.0, 1: 60.0, 2: 60.0}))
    assert found.cause == "inconclusive"
    assert found.reason.code == "outside_noise_band"
    assert found.reason.facts == {"predicted_share": pytest.approx(0.6), "noise_band": pytest.approx(0.1)}


@given(storage=speedups, preprocessing=speedups, transport=speedups, compute=speedups)
def test_a_missing_experiment_never_yields_a_firm_word_that_needs_it(
    storage: float, preprocessing: float, transport: float, compute: float
) -> None:
    """Without the storage experiment, only a speed-up beyond that of a free input is firm."""
    found = experiments(
        preprocessing=preprocessing,
        transport=transport,
        compute=compute,
        missing={"storage": Remark(code="no_segment", facts={"files": "cold"})},
    )
    del found.speedups["storage"]
    judgement = judged(found)
    assert judgement.cause != "storage"
    if judgement.cause not in ("inconclusive",):
        assert max(preprocessing, transport, compute) >= found.free_input_speedup or found.free_input_speedup < 1.05


@given(
    storage=speedups, preprocessing=speedups, order=st.permutations([0, 1, 2]), scale=st.floats(0.01, 100.0)
)  # fmt: skip
def test_neither_the_order_of_rounds_nor_the_speed_of_the_machine_changes_the_verdict(
    storage: float, preprocessing: float, order: list[int], scale: float
) -> None:
    """Permuting rounds and scaling all times leave side and cause."""
    found = experiments(storage=storage, preprocessing=preprocessing)

    def changed(rates: dict[int, float]) -> dict[int, float]:
        return {order[number]: rate * scale for number, rate in rates.items()}

    other = replace(
        found, loader=changed(found.loader), end_to_end=changed(found.end_to_end), predicted=changed(found.predicted)
    )
    assert judged(other).cause == judged(found).cause


@given(
    st.floats(1.0, 1e5), st.floats(1.0, 1e5), st.floats(1.0, 4.0), st.integers(0, 8), st.booleans(), st.floats(0, 0.01)
)
def test_slower_storage_never_lowers_its_speedup(
    loader: float, compute: float, slower: float, workers: int, synchronous: bool, overhead: float
) -> None:
    """With the warm rate fixed, a slower cold rate makes the speed-up of free storage no smaller."""
    loop = Loop(
        workers=workers, batch_size=32, synchronous=synchronous, compute_images_per_s=compute, overhead_s=overhead
    )  # fmt: skip
    warm = loop.end_to_end(loader)
    assert warm / loop.end_to_end(loader / slower) >= warm / loop.end_to_end(loader) * (1 - 1e-9)


@given(st.floats(1.0, 1e5), st.floats(1.0, 1e5), st.integers(0, 8), st.booleans(), st.floats(0, 0.01))
def test_training_is_never_faster_than_either_part(
    loader: float, compute: float, workers: int, synchronous: bool, overhead: float
) -> None:
    """The whole runs at most at the rate of the loader, and of the device."""
    loop = Loop(
        workers=workers, batch_size=32, synchronous=synchronous, compute_images_per_s=compute, overhead_s=overhead
    )  # fmt: skip
    assert loop.end_to_end(loader) <= min(loader, compute) * (1 + 1e-9)


def test_cores_at_their_limit_make_the_cause_the_cpu() -> None:
    """Preprocessing that uses all cores is a limit that workers cannot lift."""
    found = judge(experiments(preprocessing=3.0), workers=2, cores_available=0.5)
    assert found.cause == "cpu"
    assert any(item.metric == "loader_cores" for item in found.evidence)


def test_the_serial_loader_is_not_called_cpu_bound() -> None:
    """Without workers, more of them may help."""
    assert judge(experiments(preprocessing=3.0), workers=0, cores_available=0.5).cause == "preprocessing"


def test_a_single_round_has_no_noise_to_explain_with() -> None:
    """Training at half of its prediction is inconclusive; with one round the reason is that there is but one."""
    three = experiments(preprocessing=3.0, end_to_end={0: 50.0, 1: 50.0, 2: 50.0})
    one = replace(three, end_to_end={0: 50.0}, predicted={0: 100.0}, loader={0: 100.0})
    for found, code in ((three, "outside_noise_band"), (one, "one_round_does_not_fit")):
        judgement = judge(found, workers=2, cores_available=4.0)
        assert judgement.cause == "inconclusive"
        assert judgement.reason.code == code

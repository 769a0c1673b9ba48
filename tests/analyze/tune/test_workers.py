"""The search for the number of workers, on loaders whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.tune.workers import Planned, WorkersPolicy, limit_of, rows_of
from loaderprobe.errors import DeadWorker
from loaderprobe.policy import Ask, Result, Results, Stop
from loaderprobe.records.tune_workers import WITHIN, WorkersForecast, WorkersSetting, WorkersVisit
from loaderprobe.records.verdict import Interval
from tests.analyze.tune.scripted import Scripted, searched

SEEDS = 50
ONE = WorkersSetting(workers=1, prefetch_factor=2)
LOADERS = {
    "2 cores": Scripted(cores=2, cpu_s=0.004),
    "8 cores": Scripted(cores=8, cpu_s=0.004),
    "1 core": Scripted(cores=1, cpu_s=0.004),
    "latency of storage": Scripted(cores=2, cpu_s=0.001, wait_s=0.02),
    "a lock": Scripted(cores=4, cpu_s=0.0001, lock_s=0.01),
    "compute": Scripted(cores=8, cpu_s=0.03, compute=100),
    "compute, of a quick loader": Scripted(cores=4, cpu_s=0.0001, compute=50),
    "varying batches": Scripted(cores=4, cpu_s=0.004, wait_s=0.004, further_ahead=1.3),
    "a machine that drifts": Scripted(cores=2, cpu_s=0.004, drift=True),
}


def after(policy: WorkersPolicy, *visits: WorkersVisit | DeadWorker | None, spent_s: float = 0.0) -> Planned | str:
    """What is visited next, or why nothing is; visits without a setting were to the serial loader."""
    serial = WorkersSetting(workers=0, prefetch_factor=0)
    done = [
        Result(what=Planned(setting=found.setting if isinstance(found, WorkersVisit) else serial, turn=0), found=found)
        for found in visits
    ]
    asked = policy.next(Results(done=done, spent_s=spent_s))
    return asked.reason if isinstance(asked, Stop) else asked.what


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("own", [None, ONE], ids=["images", "own"])
def test_within_2_percent_of_the_best_in_half_the_measurements(name: str, own: WorkersSetting | None) -> None:
    """Of the exhaustive search, for every seed of noise of 5 %."""
    for seed in range(SEEDS):
        loader = replace(LOADERS[name])
        found = searched(loader, seed, own)
        best = max(loader.truth(each) for each in found.grid)
        assert loader.truth(found.search.choice) >= WITHIN * best, (seed, found.search.choice)
        assert len(found.search.visits) <= found.search.grid_visits / 2, seed


def test_without_noise_the_smallest_is_found() -> None:
    """And few settings are looked at."""
    expected = {
        "2 cores": (2, 2), "8 cores": (8, 2), "latency of storage": (8, 2), "a lock": (0, 0), "compute": (3, 2),
        "compute, of a quick loader": (0, 0), "varying batches": (8, 4),
    }  # fmt: skip
    for name, (workers, factor) in expected.items():
        found = searched(replace(LOADERS[name], noise=0.0), 0)
        assert found.search.choice == WorkersSetting(workers=workers, prefetch_factor=factor), name


def test_what_is_ruled_out_is_not_measured() -> None:
    """Compute that is reached, and cores that are busy, leave nothing to more workers."""
    for name in ("compute, of a quick loader", "8 cores"):
        found = searched(replace(LOADERS[name], noise=0.0), 0)
        most = max(each.workers for each in found.search.rates)
        rows = {row.setting.workers: row for row in rows_of(found.search, stop="decided")}
        closed = [row for count, row in rows.items() if count > most]
        assert closed and all(row.closed in ("compute", "cores") for row in closed), name
        assert limit_of(found.search) == ("compute" if "compute" in name else "cores")


def test_a_forecast_rules_out() -> None:
    """Where even its upper end is too low."""
    four = WorkersSetting(workers=4, prefetch_factor=2)
    low, good = (Interval(value=value, low=value * 0.8, high=value * 1.2) for value in (25.0, 95.0))
    visit = WorkersVisit(
        setting=four, turn=0, images_per_s=100.0, compute_images_per_s=101.0,
        forecasts=(WorkersForecast(workers=1, images_per_s=low), WorkersForecast(workers=3, images_per_s=good)),
    )  # fmt: skip
    planned = after(WorkersPolicy(own=four, cores=4), visit, None)
    assert isinstance(planned, Planned) and planned.setting.workers in (2, 3)


def test_the_own_setting_is_measured_first_and_in_turns() -> None:
    """Else nothing says how much is gained."""
    own = WorkersSetting(workers=1, prefetch_factor=8)
    found = searched(replace(LOADERS["8 cores"], noise=0.01), 0, own)
    assert found.search.visits[0].setting == own
    assert sorted(visit.turn for visit in found.search.visits if visit.setting == own) == [0, 1, 2]


def test_a_large_prefetch_factor_is_not_kept_for_nothing() -> None:
    """The usual one with as many workers is measured, too."""
    own = WorkersSetting(workers=2, prefetch_factor=8)
    found = searched(replace(LOADERS["2 cores"], noise=0.0), 0, own)
    assert found.search.choice == WorkersSetting(workers=2, prefetch_factor=2)
    kept = searched(replace(LOADERS["varying batches"], noise=0.0), 0, WorkersSetting(workers=8, prefetch_factor=8))
    assert kept.search.choice == WorkersSetting(workers=8, prefetch_factor=4)


def test_late_settings_that_were_seen_are_compared_first() -> None:
    """Before fewer workers are looked at; more of them may be much faster."""
    two, three, four = (WorkersSetting(workers=count, prefetch_factor=2) for count in (2, 3, 4))
    visits = [WorkersVisit(setting=each, turn=0, images_per_s=rate) for each, rate in ((three, 98.5), (four, 99.0))]
    policy = WorkersPolicy(own=None, cores=2, budget_s=100.0)
    early, late = (after(policy, *visits, spent_s=spent_s) for spent_s in (50.0, 51.0))
    assert isinstance(early, Planned) and early.turn == 0 and early.setting < three
    assert isinstance(late, Planned) and late.turn == 1 and late.setting in (three, four)
    slower = [WorkersVisit(setting=each, turn=0, images_per_s=rate) for each, rate in ((ONE, 25.0), (two, 50.0))]
    more = after(policy, *slower, spent_s=60.0)
    assert isinstance(more, Planned) and more == Planned(setting=four, turn=0)


def test_noise_is_said_not_hidden() -> None:
    """Where turns cannot separate settings, measuring ends, and the smaller is not called worse."""
    stops = {searched(Scripted(cores=2, cpu_s=0.004, noise=0.15), seed).stop for seed in range(10)}
    assert "alike" in stops


def test_workers_that_die_end_only_their_setting() -> None:
    """Nothing above is tried; the best below is found."""
    found = searched(replace(LOADERS["latency of storage"], dies_from=6), 0)
    assert found.search.choice.workers == 4
    assert {each.workers for each in found.search.failed} <= {6, 8}
    rows = rows_of(found.search, stop="decided")
    failed = next(row for row in rows if row.state == "failed")
    assert (failed.failure, failed.hint) == ("a loader worker was killed", "free memory")
    assert all(row.state in ("failed", "closed") for row in rows if row.setting.workers > failed.setting.workers)


def test_fewer_are_tried_when_the_own_setting_dies() -> None:
    """Until there are none left."""
    own = WorkersSetting(workers=8, prefetch_factor=2)
    found = searched(replace(LOADERS["2 cores"], dies_from=3), 0, own)
    assert found.search.choice.workers == 2
    with pytest.raises(DeadWorker, match="was killed"):
        searched(replace(LOADERS["2 cores"], dies_from=0), 0)


def test_the_end_of_the_search_is_kept() -> None:
    """`most` ends it, and is considered itself."""
    found = searched(replace(LOADERS["latency of storage"], noise=0.0), 0, most=5)
    assert found.search.counts == [0, 1, 2, 3, 4, 5] and found.search.choice.workers == 5
    assert limit_of(found.search) == "workers"


def test_an_iterable_with_few_shares_gets_no_more_workers() -> None:
    """A visit says how many got data."""
    four = WorkersSetting(workers=4, prefetch_factor=2)
    visits = [WorkersVisit(setting=four, turn=0, images_per_s=100.0, fed_workers=3)]
    policy = WorkersPolicy(own=four, cores=8)
    for _ in range(60):
        planned = after(policy, *visits)
        if not isinstance(planned, Planned):
            break
        assert planned.setting.workers <= 4
        visits.append(WorkersVisit(setting=planned.setting, turn=planned.turn, images_per_s=100.0))


def test_no_visit_begins_that_would_end_after_the_budget() -> None:
    """By what those so far took; the first begins in any case, and a search that is decided says so."""
    policy = WorkersPolicy(own=ONE, cores=8, budget_s=90.0)
    visits = [
        WorkersVisit(setting=WorkersSetting(workers=count, prefetch_factor=2), turn=0, images_per_s=100.0 * count)
        for count in (1, 2)
    ]
    assert isinstance(after(policy, *visits, spent_s=60.0), Planned)
    assert after(policy, *visits, spent_s=61.0) == "budget"
    assert after(policy, spent_s=1000.0) == Planned(setting=ONE, turn=0)
    asked = policy.next(Results(spent_s=10.0))
    assert isinstance(asked, Ask) and asked.left() == 80.0

"""Forecasts: exact where the model is the truth, within their range, and refused where the data end."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.caches import page_cache_hits
from loaderprobe.analyze.forecast.changes import (
    accelerator,
    alternative,
    cached,
    disk,
    pinned,
    unchanged,
    worker_forecasts,
    workers,
)
from loaderprobe.analyze.forecast.fit import DRIFT, Fit, Storage, fit
from loaderprobe.records.bandwidth import KindOfDevice
from loaderprobe.records.measurement import Alternative
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Forecast
from tests.analyze.scripted import Truth

TOKEN_BUCKET, SINGLE_SERVER, LATENCY = Truth(), Truth(model="single_server"), Truth(model="latency", latency_s=0.02)
KINDS = (TOKEN_BUCKET, SINGLE_SERVER, LATENCY)
kinds = pytest.mark.parametrize("truth", KINDS, ids=lambda truth: truth.model)


def code(forecast: Forecast) -> str | None:
    return forecast.refused.code if forecast.refused else None


def rate(forecast: Forecast) -> float:
    assert forecast.refused is None
    assert forecast.images_per_s
    assert forecast.images_per_s.low <= forecast.images_per_s.value <= forecast.images_per_s.high
    return forecast.images_per_s.value


@kinds
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8, 16, 32])
def test_unmeasured_workers_follow_the_law_of_the_kind(truth: Truth, count: int) -> None:
    """Fitted on 1 and 2 workers, every other number is what the model gives, up to where storage or cores end."""
    made = worker_forecasts((truth.point(1), truth.point(2)), truth.storage())
    assert rate(made[count]) == pytest.approx(truth.training(count), rel=1e-6)


@kinds
@pytest.mark.parametrize("factor", [1.5, 3.0, 100.0])
def test_a_faster_disk_follows_the_law_of_the_kind(truth: Truth, factor: float) -> None:
    """Bandwidth for token buckets and single servers, latency for the third; the latency of the first two stays."""
    faster = (
        replace(truth, latency_s=truth.latency_s / factor)
        if truth.model == "latency"
        else replace(truth, bytes_per_s=truth.bytes_per_s * factor)
    )
    assert rate(disk(truth.fit(1, 4, anchor=4), factor)) == pytest.approx(faster.training(4), rel=1e-6)


def test_the_serial_loader_counts_as_one_worker() -> None:
    """Without workers, one image after the other; and a synchronised step comes on top."""
    truth = Truth(synchronous=True, compute=500.0)
    made = rate(workers(truth.fit(1, 2, anchor=1), 0))
    assert made == pytest.approx(1 / (0.005 + 1 / 500))


@given(
    st.sampled_from(KINDS), st.integers(0, 8), st.floats(0.0005, 0.05), st.floats(0, 0.05), st.floats(10, 1e5),
    st.booleans(), st.floats(0.75, 1.3),
)  # fmt: skip
def test_at_the_measured_point_forecasts_are_what_was_measured(
    truth: Truth, count: int, cpu_s: float, latency_s: float, compute: float, synchronous: bool, noise: float
) -> None:
    """Whatever the noise, no change is no change: in workers, disk, cache, accelerator and decoder."""
    truth = replace(truth, cpu_s=cpu_s, latency_s=latency_s, compute=compute, synchronous=synchronous)
    exact = truth.point(count)
    point = replace(exact, loader=exact.loader * noise)
    found = fit((point,), point, truth.storage())
    if isinstance(found, Remark):
        return
    same = Alternative(name="torchvision", cpu_s=0.003, usual_cpu_s=0.003)
    for made in (
        unchanged(found, "workers", ""), disk(found, 1.0), cached(found, 0.0), pinned(found, 0.0),
        accelerator(found, point.compute), alternative(found, same),
    ):  # fmt: skip
        assert rate(made) == pytest.approx(point.training, rel=1e-6)


@given(
    st.sampled_from(KINDS), st.integers(0, 8), st.floats(0.5, 100.0), st.floats(1.0, 10.0), st.floats(10, 1e5),
    st.sampled_from(["token_bucket", "single_server", "latency", "unknown"]),
)  # fmt: skip
def test_a_faster_disk_never_lowers_a_forecast(
    truth: Truth, count: int, factor: float, more: float, compute: float, kind: KindOfDevice
) -> None:
    """By whatever model, and above whatever compute; refused at most."""
    truth = replace(truth, compute=compute)
    point = truth.point(count)
    found = fit((truth.point(1), point), point, truth.storage(kind))
    if isinstance(found, Remark):
        return
    slow, fast = disk(found, factor), disk(found, factor * more)
    if slow.images_per_s and fast.images_per_s:
        assert fast.images_per_s.value >= slow.images_per_s.value * (1 - 1e-9)


def test_caching_everything_is_the_measured_rate() -> None:
    """What was measured outranks the model: warm files gave 900, so all files in memory give 900, and half less.

    Of training that is a prediction, unless it was measured on warm files itself.
    """
    found = TOKEN_BUCKET.fit(1, 2, 4, anchor=4, measured={"storage": 900.0})
    everything = cached(found, 1.0)
    assert rate(everything) == pytest.approx(900.0)
    assert everything.how == "estimated"
    trained = replace(found, anchor=replace(found.anchor, trained_warm=True))
    assert cached(trained, 1.0).how == "measured"
    assert rate(cached(found, 0.0)) < rate(cached(found, 0.5)) < 900.0
    assert rate(disk(found, 1000.0)) <= 900.0


@kinds
def test_half_of_the_files_is_half_of_the_hits_only_where_they_are_pinned(truth: Truth) -> None:
    """The page cache answers less, and its range holds the range of its model."""
    found, hits = truth.fit(1, 4, anchor=4), page_cache_hits(0.5)
    low, value, high, half = (
        truth.service().with_cached(each).loader(4) for each in (hits.low, hits.value, hits.high, 0.5)
    )
    page = cached(found, 0.5)
    assert rate(pinned(found, 0.5)) == pytest.approx(half)
    assert rate(page) == pytest.approx(value) and value < half
    assert page.images_per_s and page.images_per_s.low < low and high < page.images_per_s.high
    assert (page.changed, page.to) == ("page_cache_share", "50 % of the files, 15 to 41 % hits")
    assert rate(cached(found, 1.0)) == rate(pinned(found, 1.0))


def test_a_cheaper_decoder_gains_by_its_measured_ratio() -> None:
    """2 ms instead of 4 ms, in workers that wait 1 ms for storage: 3 ms an image."""
    cheaper = Alternative(name="torchvision", cpu_s=0.002, usual_cpu_s=0.004)
    assert rate(alternative(TOKEN_BUCKET.fit(1, 2, anchor=1), cheaper)) == pytest.approx(1 / 0.003)


def test_free_preprocessing_limits_what_a_decoder_gains() -> None:
    """No decoder is faster than none at all, where that was measured."""
    found = TOKEN_BUCKET.fit(1, 2, anchor=1, measured={"preprocessing": 220.0})
    cheaper = Alternative(name="torchvision", cpu_s=0.001, usual_cpu_s=0.004)
    assert rate(alternative(found, cheaper)) == pytest.approx(220.0)


def test_an_accelerator_is_the_limit_until_the_loader_is() -> None:
    """Of 100 images/s it is the limit; of 1000 the loader is, at its own rate."""
    found = TOKEN_BUCKET.fit(1, 2, anchor=1)
    slow, fast = accelerator(found, 100.0), accelerator(found, 1000.0, "fast")
    assert rate(slow) == pytest.approx(100.0)
    assert rate(fast) == pytest.approx(200.0)
    assert [slow.bottleneck, fast.bottleneck, fast.to] == ["compute", "preprocessing", "fast"]


def test_a_loader_that_ran_slower_beside_compute_does_not_slow_compute() -> None:
    """Trained 10 % below its parts by the loader: a slow accelerator still limits at its own rate, workers keep it."""
    found = TOKEN_BUCKET.fit(1, 2, anchor=1, training=180.0)
    assert rate(accelerator(found, 50.0)) == pytest.approx(50.0)
    assert rate(workers(found, 2)) == pytest.approx(360.0)


def test_the_range_is_wide_near_a_knee() -> None:
    """Two limits within 15 % make 20 % of range at least, a limit that stands alone no more than it drifts."""
    near, far = (
        replace(TOKEN_BUCKET, compute=210.0).fit(1, 2, anchor=1),
        replace(TOKEN_BUCKET, cpu_s=1e-6).fit(1, 2, anchor=1),
    )
    down = {}
    for name, found in (("near", replace(near, drift=0.1, cpu_drift=0.1)), ("far", far)):
        shown = accelerator(found, found.anchor.compute).images_per_s
        assert shown
        down[name] = 1 - shown.low / shown.value
    assert down == pytest.approx({"near": 0.2, "far": DRIFT}, rel=0.01)


def test_the_range_holds_a_cpu_of_another_speed_where_that_matters() -> None:
    """4 of 5 ms are CPU time, which may be 20 % more: that is in the range of one worker, and not of a full disk."""
    for count, expected in ((1, math.hypot(DRIFT, 1 - 5 / 5.8)), (4, DRIFT)):
        shown = accelerator(TOKEN_BUCKET.fit(1, 4, anchor=count), 1e5).images_per_s
        assert shown
        assert 1 - shown.low / shown.value == pytest.approx(expected)


def test_the_credit_of_a_token_bucket_does_not_last() -> None:
    """Two workers that trained a second at 1.2 times the rate of a full device: more of them get what lasts."""
    found = TOKEN_BUCKET.fit(2, anchor=2, training=480.0, loader=480.0)
    assert rate(workers(found, 4)) == pytest.approx(400.0)
    same = unchanged(found, "workers", "2")
    assert rate(same) == pytest.approx(400.0)
    assert same.how == "estimated"
    assert same.images_per_s
    assert same.images_per_s.high >= 480.0


def test_the_drift_between_rounds_is_in_the_range() -> None:
    """Rounds that differ by 20 % up and down leave at least that."""
    shown = accelerator(TOKEN_BUCKET.fit(1, 2, anchor=1, loader_spread=0.2), 1e6).images_per_s
    assert shown
    assert shown.low <= 0.8 * shown.value


def test_no_more_workers_than_twice_the_cores() -> None:
    """On 2 cores, 4 workers are forecast and 5 refused, with the reason."""
    found = replace(TOKEN_BUCKET, cores=2.0).fit(1, anchor=1)
    assert workers(found, 4).refused is None
    assert workers(found, 5).refused == Remark(code="more_than_cores", facts={"cores": 2.0})


def test_an_unseen_bandwidth_is_not_invented() -> None:
    """Without a ceiling, two workers that storage did not stop say nothing about eight."""
    points, ceiling = (
        (TOKEN_BUCKET.point(1), replace(TOKEN_BUCKET, bytes_per_s=1e10).point(2)),
        TOKEN_BUCKET.storage().ceiling,
    )
    assert ceiling
    made = worker_forecasts(points, Storage(ceiling=replace(ceiling, phases=())))
    assert made[2].how == "measured"
    assert code(made[8]) == "more_than_storage"


def test_an_unknown_kind_is_refused_where_the_laws_part() -> None:
    """A disk of unknown kind that is used in full: twice as fast may mean much or little."""
    points = (SINGLE_SERVER.point(1), SINGLE_SERVER.point(2))
    found = fit(points, points[0], SINGLE_SERVER.storage("unknown"))
    assert isinstance(found, Fit)
    assert code(disk(found, 10.0)) == "laws_disagree"
    near = disk(found, 1.05)
    assert near.refused is None


def test_what_came_from_memory_says_nothing_about_disks() -> None:
    """A warm configuration refuses disks and caches, and forecasts workers all the same."""
    found = Truth().fit(1, 2, anchor=1, from_storage=False, unproved=Remark(code="files_from_memory"))
    assert code(disk(found, 2.0)) == code(cached(found, 1.0)) == "files_from_memory"
    assert workers(found, 4).refused is None


def test_a_loader_that_no_law_describes_gets_no_forecast() -> None:
    """Twice as slow as workers, storage, cores and transport explain."""
    point = replace(TOKEN_BUCKET.point(2), loader=100.0, training=100.0, blocked_s=0.001)
    assert fit((point,), point, TOKEN_BUCKET.storage()) == Remark(code="no_model_fits")

"""Forecasts, exact where the model is the truth and refused where the data end; the advice made of them; caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.advice import Recommendation, recommend, recommend_groups
from loaderprobe.analyze.forecast import (
    TAR_BYTES,
    TAR_READ_BYTES,
    Fit,
    Surroundings,
    accelerator,
    alternative,
    cached,
    closed_network,
    disk,
    find_knee,
    fit,
    page_cache_hits,
    pinned,
    shards,
    unchanged,
    worker_forecasts,
    workers,
)
from loaderprobe.analyze.next_configs import next_factor, next_workers
from loaderprobe.analyze.verdict.experiments import Experiments, run_experiments
from loaderprobe.records.measurement import OWN_STEP, Alternative, Measurement
from loaderprobe.records.phases import BandwidthPhase, KindOfDevice, StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.records.thresholds import WORTH
from loaderprobe.records.verdict import ActionCode, Evidence, Forecast, Interval
from loaderprobe.records.waits import WaitKind
from loaderprobe.render.words import action_words, knee_words, remark_words
from tests.analyze.runs import FILES, Cost, alike, looked, rank_run, run
from tests.analyze.scripted import Truth, measured
from tests.examples.bandwidth import example_phase

TOKEN_BUCKET, SINGLE_SERVER, LATENCY = Truth(), Truth(model="single_server"), Truth(model="latency", latency_s=0.02)
KINDS = (TOKEN_BUCKET, SINGLE_SERVER, LATENCY)
FAST = replace(TOKEN_BUCKET, bytes_per_s=1e10)
CHANGES: Mapping[str, Callable[..., Forecast]] = {
    "workers": workers, "disk": disk, "cached": cached, "pinned": pinned, "accelerator": accelerator,
    "decoder": lambda found, cpu_s: alternative(found, Alternative(name="torchvision", cpu_s=cpu_s, usual_cpu_s=0.004)),
    "shards": shards,
    "nothing": lambda found, _: unchanged(found),
}  # fmt: skip


def rate(forecast: Forecast) -> float:
    assert forecast.refused is None
    assert forecast.images_per_s
    assert forecast.images_per_s.low <= forecast.images_per_s.value <= forecast.images_per_s.high
    return forecast.images_per_s.value


def faster(truth: Truth, factor: float) -> Truth:
    """Bandwidth counts for token buckets and single servers, latency for the third."""
    if truth.model == "latency":
        return replace(truth, latency_s=truth.latency_s / factor)
    return replace(truth, bytes_per_s=truth.bytes_per_s * factor)


def fitted(truth: Truth, kind: KindOfDevice) -> Fit:
    """To one and two workers on a storage that was taken for another kind."""
    points = (truth.point(1), truth.point(2))
    found = fit(points, points[0], truth.storage(kind))
    assert isinstance(found, Fit)
    return found


ONE = TOKEN_BUCKET.fit(1, 2, anchor=1)
WARM = TOKEN_BUCKET.fit(1, 2, 4, anchor=4, measured={"storage": 900.0})
NO_PREPROCESSING = TOKEN_BUCKET.fit(1, 2, anchor=1, measured={"preprocessing": 220.0})
SYNCHRONOUS = Truth(synchronous=True, compute=500.0).fit(1, 2, anchor=1)
CREDIT = TOKEN_BUCKET.fit(2, anchor=2, training=480.0, loader=480.0)
SLOWED = TOKEN_BUCKET.fit(1, 2, anchor=1, training=180.0)
TWO_CORES = replace(TOKEN_BUCKET, cores=2.0).fit(1, anchor=1)
FROM_MEMORY = Truth().fit(1, 2, anchor=1, from_storage=False, unproved=Remark(code="files_from_memory"))
QUEUED = Truth(model="single_server", cpu_s=0.01)
UNKNOWN = fitted(SINGLE_SERVER, "unknown")
IMAGE, AHEAD = 25_000.0, 125_000
FEW = Surroundings(image_bytes=IMAGE, read_ahead_bytes=AHEAD, generated=True)
AWAITED = (IMAGE + TAR_BYTES) / (TAR_READ_BYTES / 4)
"""Waits of an image, of one for each file: of the 8.4 parts read at once one is there, and two are under way."""
FEW_BYTES = replace(TOKEN_BUCKET, bytes_per_image=IMAGE, bytes_per_s=5e6)
LARGE_IMAGES = Truth(model="latency", latency_s=0.06, bytes_per_image=2.5 * AHEAD)
SMALL_FAR, SMALL_NEAR = (
    Truth(model="latency", latency_s=0.02 * waits, bytes_per_image=IMAGE) for waits in (1, AWAITED)
)  # fmt: skip


def sized(truth: Truth, share: float | None) -> Surroundings:
    """Its storage, whose rate with the size of files was seen."""
    storage = truth.storage()
    assert storage.kind
    seen = () if share is None else (Evidence(metric="rate_by_file_size", value=share, threshold=0.5, unit=""),)
    return replace(FEW, storage=replace(storage, kind=replace(storage.kind, evidence=seen)))


def sharded(truth: Truth) -> Fit:
    """Two workers, which never do better than from files in memory."""
    return truth.fit(1, 2, anchor=2, measured={"storage": 480.0})


# A fit, what is changed, and images/s; or the code of the refusal.
FORECASTS: dict[str, tuple[Fit, str, Any, Any]] = {
    **{
        f"{truth.model}: storage {factor} times as fast": (
            truth.fit(1, 4, anchor=4), "disk", factor, faster(truth, factor).training(4),
        )
        for truth in KINDS for factor in (1.5, 3.0, 100.0)
    },
    **{
        f"{truth.model}: half of the files, pinned": (
            truth.fit(1, 4, anchor=4), "pinned", 0.5, truth.service().with_cached(0.5).loader(4),
        )
        for truth in KINDS
    },
    # One image after the other; and a synchronised step comes on top.
    "the serial loader counts as one worker": (SYNCHRONOUS, "workers", 0, 1 / (0.005 + 1 / 500)),
    "what was measured outranks the model": (WARM, "cached", 1.0, 900.0),
    "of a disk as fast as memory, too": (WARM, "disk", 1000.0, 800.0),
    "2 ms of CPU time instead of 4, and 1 ms of waiting": (ONE, "decoder", 0.002, 1 / 0.003),
    "no decoder is faster than none": (NO_PREPROCESSING, "decoder", 0.001, 220.0),
    "an accelerator is the limit": (ONE, "accelerator", 100.0, 100.0),
    "until the loader is": (ONE, "accelerator", 1000.0, 200.0),
    "a loader that ran 10 % slower does not slow compute": (SLOWED, "accelerator", 50.0, 50.0),
    "and its workers keep that": (SLOWED, "workers", 2, 360.0),
    # Two workers that trained a second at 1.2 times the rate of a full device.
    "the credit of a token bucket does not last": (CREDIT, "workers", 4, 400.0),
    "nor for as many": (CREDIT, "nothing", 0, 400.0),
    "the queue before a single server is no latency": (QUEUED.fit(4, anchor=4), "workers", 1, QUEUED.training(1)),
    "twice the cores": (TWO_CORES, "workers", 4, None),
    "twice as fast may mean much or little": (UNKNOWN, "disk", 10.0, "laws_disagree"),
    "little faster means little": (UNKNOWN, "disk", 1.05, None),
    "memory says nothing about disks": (FROM_MEMORY, "disk", 2.0, "files_from_memory"),
    "nor about caches": (FROM_MEMORY, "cached", 1.0, "files_from_memory"),
    "but about workers": (FROM_MEMORY, "workers", 4, None),
    # A fifth of the requests where five images are read ahead, for as many bytes.
    "shards, where requests wait": (
        sharded(SMALL_FAR), "shards", sized(SMALL_FAR, None), pytest.approx(SMALL_NEAR.training(2), rel=0.02),
    ),
    "shards, where bytes take the time": (
        sharded(FEW_BYTES), "shards", sized(FEW_BYTES, 0.1), pytest.approx(200 / (1 + TAR_BYTES / IMAGE), rel=0.02),
    ),
    "shards, where requests do": (sharded(FEW_BYTES), "shards", sized(FEW_BYTES, 0.9), pytest.approx(480.0, rel=0.02)),
    "shards, where neither is known to": (sharded(FEW_BYTES), "shards", sized(FEW_BYTES, None), "requests_or_bytes"),
    # Of images of two and a half reads ahead, two waits become 1.2 and what a shard adds.
    "shards of large images gain little": (
        LARGE_IMAGES.fit(1, 2, anchor=2), "shards", replace(sized(LARGE_IMAGES, None), image_bytes=2.5 * AHEAD),
        pytest.approx(LARGE_IMAGES.training(2) * 1.6, rel=0.04),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("collated", "sure"), [(0.05, True), (0.83, False)])
def test_workers_may_lose_what_sending_large_batches_costs(collated: float, sure: bool) -> None:
    """A serial loader that put 100 MB together for 83 % of its time was no slower than two workers, which send them."""
    serial = TOKEN_BUCKET.fit(0, anchor=0, collated=collated)
    found = workers(serial, 4).images_per_s
    assert found and (found.low > serial.anchor.training) is sure and found.value > serial.anchor.training


@pytest.mark.parametrize("name", FORECASTS)
def test_a_change_has_the_rate_of_the_truth(name: str) -> None:
    """Or is refused where that is not known."""
    found, change, by, expected = FORECASTS[name]
    made = CHANGES[change](found, by)
    if isinstance(expected, str):
        assert made.refused is not None and made.refused.code == expected
    else:
        wanted = rate(made) if expected is None else expected
        assert rate(made) == (pytest.approx(wanted, rel=1e-6) if isinstance(wanted, float) else wanted)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8, 16, 32])
@pytest.mark.parametrize("truth", KINDS, ids=lambda truth: truth.model)
def test_unmeasured_workers_follow_the_law_of_the_kind(truth: Truth, count: int) -> None:
    """Fitted on 1 and 2 workers, every other number is what the model gives, up to where storage or cores end.

    No more than twice the cores are looked at.
    """
    made = worker_forecasts((truth.point(1), truth.point(2)), truth.storage())
    assert rate(made[count]) == pytest.approx(truth.training(count), rel=1e-6) and max(made) == 2 * truth.cores


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
    same = {"nothing": 0, "disk": 1.0, "cached": 0.0, "pinned": 0.0, "accelerator": point.compute, "decoder": 0.004}
    for change, by in same.items() if isinstance(found, Fit) else ():
        assert rate(CHANGES[change](found, by)) == pytest.approx(point.training, rel=1e-6)


def test_requests_of_shards_bring_from_what_is_read_ahead_to_what_is_read_at_once() -> None:
    """Both are in the range where requests are the limit: 4.7 images a request to 39."""
    made = shards(replace(FEW_BYTES, bytes_per_s=1e6).fit(1, 2, anchor=2), sized(FEW_BYTES, 0.9))
    assert made.images_per_s and made.images_per_s.low < 40 * 4.7 and made.images_per_s.high > 450


@pytest.mark.parametrize(
    ("truth", "knee", "bottleneck"),
    [
        (TOKEN_BUCKET, 2, "storage"),
        (replace(FAST, cores=4.0), 6, "cores"),
        (replace(FAST, compute=900.0), 6, "compute"),
        (replace(FAST, parent_s=0.002), 3, "transport"),
        (replace(LATENCY, cores=4.0), 8, None),
    ],
)
def test_the_knee_is_where_a_resource_ends(truth: Truth, knee: int, bottleneck: str | None) -> None:
    """The disk, the cores, the accelerator or the training thread; where the most workers are best nothing is named."""
    found = find_knee(["a"], worker_forecasts((truth.point(1), truth.point(2)), truth.storage()))
    assert (found.workers, found.bottleneck) == (knee, bottleneck)
    assert found.how == ("measured" if knee < 3 else "estimated")
    assert ("still rises" in knee_words(found)) is (bottleneck is None)


def test_a_rate_that_is_noise_is_no_knee() -> None:
    """The fewest workers of the others are, however large it is; and they are advised."""
    forecasts = worker_forecasts((TOKEN_BUCKET.point(1), TOKEN_BUCKET.point(2)), TOKEN_BUCKET.storage())
    for number in (1, 4):
        noisy = replace(forecasts[number], images_per_s=Interval(value=9000.0, low=0.0, high=20000.0))
        by_workers = {**forecasts, number: noisy}
        found = advised(measured(TOKEN_BUCKET, 1), TOKEN_BUCKET, workers=by_workers)
        assert find_knee(["a"], by_workers).workers == 2
        assert [each.command for each in found.advice if each.action.code == "workers"] == ["--workers 2"]


QUEUED_SHARES = ((1, 1 / 2), (2, 4 / 5), (3, 15 / 16))


@pytest.mark.parametrize(
    ("workers", "own_s", "served_s", "cpu_s", "cores", "images_per_s"),
    [
        (64, 0.01, 0.0, 0.01, 8.0, 800),
        (64, 0.01, 0.005, 0.01, 8.0, 200),
        (1, 0.01, 0.005, 0.01, 0.5, 1 / 0.035),
        # Of 4 ms of CPU time 1 ms goes on beside the rest.
        (1, -0.001, 0.0, 0.004, 2.0, 1 / 0.003),
        (9, -0.001, 0.0, 0.004, 2.0, 2 / 0.004),
        # Where a disk or a core takes as long as the rest, one worker reaches half of what it can, two 4/5.
        *((count, 0.0025, 0.0025, 0.0, 16.0, share * 400) for count, share in QUEUED_SHARES),
        *((count, 0.0025, 0.0, 0.0025, 1.0, share * 400) for count, share in QUEUED_SHARES),
    ],
)
def test_many_workers_use_up_what_there_is(
    workers: int, own_s: float, served_s: float, cpu_s: float, cores: float, images_per_s: float
) -> None:
    """The cores, a server, and both at half of it, before which workers queue as in a closed network."""
    found = closed_network(workers, own_s=own_s, served_s=served_s, cpu_s=cpu_s, cores=cores)
    assert found == pytest.approx(images_per_s)


def ceiling_of(kind: Truth, *phases: BandwidthPhase) -> StorageCeiling:
    ceiling = kind.storage()
    assert ceiling
    return replace(ceiling, phases=phases) if phases else ceiling


def test_storage_is_what_its_phases_show() -> None:
    """The mean of all that are alike, without a slower one of too few readers; uncounted ones where the kind is known.

    A lone reader shows what a file takes beside its bytes: before a single server its mean, else the fastest file.
    """
    phases = (
        replace(example_phase(readers, rate), bw_low=rate * 0.95, bw_high=rate * 1.05, runtime=1000.0)
        for readers, rate in ((1, 10e6), (4, 20e6), (16, 21e6))
    )
    assert StorageCeiling(data="", phases=tuple(phases)).bytes_per_s == pytest.approx(20.5e6)
    unproved = [replace(phase, cache="unproved") for phase in ceiling_of(SINGLE_SERVER).phases]
    known = ceiling_of(SINGLE_SERVER, *unproved)
    assert known.bytes_per_s == SINGLE_SERVER.bytes_per_s
    assert replace(known, kind=None).bytes_per_s is None
    lone, more = (replace(example_phase(readers, 20e6), cache="cold") for readers in (1, 4))
    assert lone.file_ns and more.file_ns
    for kind, some, alone_ns in (
        (SINGLE_SERVER, (lone, more), lone.file_ns.mean),
        (SINGLE_SERVER, (more,), more.file_ns.min),
        (TOKEN_BUCKET, (lone, more), lone.file_ns.min),
    ):
        assert ceiling_of(kind, *some).alone_s * 1e9 == alone_ns


SLOW_DISK = Truth(bytes_per_s=20e6)


def advised(measurement: Measurement, truth: Truth, **around: Any) -> Recommendation:
    return recommend(run_experiments(measurement), Surroundings(storage=truth.storage(), **around))


MANY: dict[str, Any] = {"root": "/data", "size_bytes": 10e9, "memory_bytes": 4e9}
FITS: dict[str, Any] = {"root": "/data/my photos", "size_bytes": 1e9, "memory_bytes": 8e9}
FULL, CPU_BOUND, FAR = measured(SLOW_DISK, 4), Truth(bytes_per_s=1e10), Truth(model="latency", latency_s=0.02)
WAYS = (
    Alternative(name="torchvision", cpu_s=0.003, usual_cpu_s=0.004),
    Alternative(name="uint8", cpu_s=0.002, usual_cpu_s=0.004),
)
FEEDABLE, STARVED, COMPUTE_BOUND = (
    replace(CPU_BOUND, compute=900.0), replace(SLOW_DISK, compute=900.0), Truth(compute=100.0),
)  # fmt: skip
H100: dict[str, Any] = {"accelerators": {"mlperf-h100": 1786.0}}


def reserve(bytes_per_s: float) -> StorageCeiling:
    """What storage of far files gives to as many readers."""
    ceiling = FAR.storage()
    assert ceiling is not None
    return replace(ceiling, phases=(replace(example_phase(4, bytes_per_s), cache="cold"),))


def as_found() -> Measurement:
    """Files of which it is unknown what came from memory."""
    return replace(measured(SLOW_DISK, 1, cache="as-found"), storage_counts_reads=False)


COMPUTED = measured(COMPUTE_BOUND, 4)
TRAINED: dict[str, Any] = {"training": 100.0, "training_cached_samples": 400.0}
# What was measured, on what; and by the code of the action: command or words, and speed-up; None where it is missing.
ADVISED: dict[str, tuple[Measurement, Surroundings, dict[ActionCode, tuple[str, float] | None]]] = {
    # Four workers on a disk for one: a disk four times as fast gains nearly as much as memory.
    "a full disk": (
        FULL, Surroundings(storage=SLOW_DISK.storage(), **FITS),
        {
            "files_in_memory": ("'/data/my photos'", 5.0), "files_pinned": None,
            "faster_storage": ("times as fast (training then reads ", 3.97),
        },
    ),
    # Of 10 GB in a memory of 4 GB, 28 % can stay.
    "data beyond memory": (
        FULL, Surroundings(storage=SLOW_DISK.storage(), **MANY),
        {
            "files_pinned": ("pin 28 % of the files in memory (2.80 GB,", 1 / 0.72),
            "files_in_memory": (
                "which holds 28 % of the files and answers 4.3 to 22 % of the reads",
                1 / (1 - page_cache_hits(0.28).value),
            ),
        },
    ),
    "far files of a storage that is used": (
        measured(FAR, 4), Surroundings(storage=reserve(40e6)), {"faster_storage": ("use storage", 5.85)},
    ),
    **{
        f"far files, which tar shards hold {how}": (
            measured(FAR, 4), replace(FEW, storage=FAR.storage(), generated=how == "if asked to"),
            {"shards": (command, 3.97)},
        )
        for how, command in (("if asked to", "--layout tar"), ("if converted", "--layout files,tar --convert-to DIR"))
    },
    "with ten times as much to give": (measured(FAR, 4), Surroundings(storage=reserve(2e9)), {"faster_storage": None}),
    "files as found": (
        as_found(), Surroundings(storage=SLOW_DISK.storage()), {"files_in_memory": None, "files_pinned": None},
    ),
    "one worker where six feed the accelerator": (
        measured(FEEDABLE, 1), Surroundings(storage=FEEDABLE.storage()), {"workers": ("--workers 6", 4.5)},
    ),
    "other decoders and bytes for floats": (
        replace(measured(CPU_BOUND, 1), alternatives=WAYS), Surroundings(storage=CPU_BOUND.storage()),
        {"decoder": ("--decoder torchvision", 5 / 4), "tensor": ("--tensor uint8", 5 / 3)},
    ),
    "a faster device on a slow disk": (
        measured(STARVED, 4), Surroundings(storage=STARVED.storage(), **H100),
        {
            "accelerator": None,
            "accelerator_gains_nothing": (
                "A faster accelerator gains nothing until the loader delivers more than 900 images/s.", 1.0,
            ),
        },
    ),
    # Two of the three take all that the loader delivers.
    "the slowest of the accelerators that gain as much": (
        measured(replace(COMPUTE_BOUND, compute=300.0), 4),
        Surroundings(storage=COMPUTE_BOUND.storage(), accelerators={"c": 1200.0, "a": 310.0, "b": 938.0}),
        {"accelerator": ("an accelerator of 938 images/s (b, specified)", 4 / 3)},
    ),
    # Its loader delivers 1.2 times as much, which is less than the spread between rounds.
    "a faster device within noise": (
        run(
            [{"warm": 120.0, "training": rate, "resident": rate} for rate in (80.0, 100.0, 120.0)],
            Cost(cpu_s=4 / 120, cold=0.0), compute=100.0, workers=4, cache="warm", facts={"cores_available": 16.0},
        ),
        Surroundings(), {"accelerator": None, "accelerator_gains_nothing": None},
    ),
    "faster than compute alone, by noise": (
        run(alike(warm=1000.0, training=104.0, resident=100.0), Cost(cold=0.0), workers=4, cache="warm"),
        Surroundings(),
        {"input_gains_nothing": ("A faster input gains nothing: training reaches 104 % of compute alone.", 1.0)},
    ),
    # The loader alone is 1.08 times as fast as training, which no part of it explains.
    "a faster device of which the forecast says less than the experiment": (
        run(
            alike(**TRAINED, warm=108.0), Cost(cpu_s=4 / 108, cold=0.0), workers=4, cache="warm",
            facts={"cores_available": 16.0},
        ),
        Surroundings(),
        {"accelerator": None, "accelerator_gains_nothing": None},
    ),
    # As a loader and a step in turn, training would be a tenth slower than it was.
    "and one of which it says more": (
        run(
            alike(**TRAINED, warm=103.0, resident=790.0), Cost(cpu_s=1 / 103, cold=0.0), workers=0, synchronous=True,
            cache="warm",
        ),
        Surroundings(), {"accelerator": None, "accelerator_gains_nothing": ("", 1.0)},
    ),
    "compute-bound": (
        measured(COMPUTE_BOUND, 4), Surroundings(storage=COMPUTE_BOUND.storage(), **H100),
        {
            "accelerator": ("", 4.0), "workers": None, "faster_storage": None,
            "input_gains_nothing": ("A faster input gains nothing: training reaches 100 % of compute alone.", 1.0),
        },
    ),
    # In a loop of one's own an accelerator may not do all: it may save, log, or wait for others.
    "compute-bound, by a step of one's own": (
        replace(COMPUTED, compute=replace(COMPUTED.compute, name=OWN_STEP)),
        Surroundings(storage=COMPUTE_BOUND.storage()), {"accelerator": ("make a step take ", 4.0)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ADVISED)
def test_what_gains_is_advised_with_what_to_type(name: str) -> None:
    """And what gains nothing is not, or is said to; the largest gain first, each from a forecast that was made."""
    measurement, around, expected = ADVISED[name]
    recommended = recommend(run_experiments(measurement), around)
    speedups = [each.speedup for each in recommended.advice]
    assert speedups == sorted(speedups, reverse=True) and all(gain == 1 or gain >= WORTH for gain in speedups)
    forecast = {each.images_per_s for each in recommended.forecasts if each.refused is None}
    assert all(each.after in forecast for each in recommended.advice if each.speedup > 1)
    assert all((each.images_per_s is None) == (each.refused is not None) for each in recommended.forecasts)
    made = {each.action.code: each for each in recommended.advice}
    for code, wanted in expected.items():
        if wanted is None:
            assert code not in made
            continue
        words, speedup = wanted
        found = made[code]
        assert words in f"{found.command} {action_words(found.action)}"
        assert found.speedup == pytest.approx(speedup, rel=0.05)
        assert (
            found.how == ("estimated" if speedup > 1 else "measured")
            and found.after.low <= found.after.value <= found.after.high
        )


@pytest.mark.parametrize(("kind", "more"), [("storage", True), ("lock", False)])
def test_workers_that_wait_for_a_lock_are_not_advised_to_be_more(kind: WaitKind, more: bool) -> None:
    """They would wait longer for it."""
    trials = run_experiments(looked(measured(FEEDABLE, 1), kind))
    codes = [advice.action.code for advice in recommend(trials, Surroundings(storage=FEEDABLE.storage())).advice]
    assert ("workers" in codes) is more


@pytest.mark.parametrize(("loader", "command"), [("torch", "--layout tar"), ("grain", "--layout tar"), ("spdl", "")])
def test_shards_are_typed_for_a_loader_that_reads_them(loader: str, command: str) -> None:
    """For others they are advised alone: a sweep refuses that layout."""
    around = replace(FEW, storage=FAR.storage())
    found = recommend(run_experiments(measured(FAR, 4, loader=loader)), around).advice
    assert [each.command for each in found if each.action.code == "shards"] == [command]


def test_faster_storage_gains_no_more_than_free_storage_was_measured_to() -> None:
    """Nor does training read more than that takes; files in memory gain as much. Forecasts say the same."""
    found = run_experiments(FULL)
    free = replace(found.speedups["storage"], value=3.0)
    found = replace(found, speedups={**found.speedups, "storage": free})
    made = recommend(found, Surroundings(storage=SLOW_DISK.storage(), **FITS))
    (faster,) = [each for each in made.advice if each.action.code == "faster_storage"]
    (in_memory,) = [each for each in made.advice if each.action.code == "files_in_memory"]
    assert faster.speedup == in_memory.speedup == pytest.approx(3.0)
    forecasts = {each.changed: each.images_per_s for each in reversed(made.forecasts)}
    assert forecasts["disk_speed"] == faster.after and forecasts["page_cache_share"] == in_memory.after
    assert faster.action.facts["bytes_per_s"] == pytest.approx(faster.after.value * SLOW_DISK.bytes_per_image)


def test_forecasts_that_cannot_be_made_are_refused() -> None:
    """Training at half of its prediction, or seen alone, and files of which it is unknown what came from memory."""
    found = run_experiments(FULL)
    halved = replace(found, end_to_end={n: each / 2 for n, each in found.predicted.items()})
    (forecast,) = recommend(halved, Surroundings()).forecasts
    words = "training ran at 50 % of its prediction, outside the noise band"
    assert (
        forecast.refused and remark_words(forecast.refused) == words and recommend(halved, Surroundings()).advice == ()
    )
    for seen, code in (
        (replace(found, end_to_end={}, predicted={}), "no_complete_round"),
        (replace(found, cost=None), "no_worker_times"),
    ):
        (forecast,) = recommend(seen, Surroundings()).forecasts
        assert forecast.refused and forecast.refused.code == code
    forecasts = advised(as_found(), SLOW_DISK).forecasts
    refused = {each.changed for each in forecasts if each.refused and each.refused.code == "files_as_found"}
    assert refused == {"page_cache_share", "pinned_share", "disk_speed"}
    assert {"page_cache_share", "pinned_share"} <= {each.changed for each in advised(FULL, SLOW_DISK, **MANY).forecasts}


def judged(measurements: Sequence[Measurement], truth: Truth | None = None) -> list[Experiments]:
    """Their experiments, on the storage of the truth."""
    ceiling = truth.storage() if truth else None
    return [run_experiments(measurement, ceiling) for measurement in measurements]


def test_measured_neighbours_are_measured_advice_and_no_forecast_mixes_ranks() -> None:
    """A sweep that tried 1, 2 and 4 workers advises 4 to the first two. Each number of ranks has a knee of its own,
    from the numbers of workers that it was measured with."""
    truth = replace(SLOW_DISK, bytes_per_s=80e6)
    one = [measured(truth, workers) for workers in (0, 1, 2, 4)]
    two = [rank_run(alike(training=rate, baseline=rate), workers=workers) for workers, rate in ((1, 90.0), (2, 95.0))]
    around = {FILES.fingerprint: Surroundings(storage=truth.storage())}
    recommendations, (knee, of_two) = recommend_groups(judged([*one, *two], truth), around, {})
    keys = [{each.config.key for each in members} for members in (one, two)]
    assert [set(knee.keys), set(of_two.keys)] == keys
    assert (knee.workers, knee.bottleneck, knee.how) == (4, "storage", "measured")
    assert knee_words(knee) == "4 workers, 800 images/s; beyond it, storage is the limit."
    for member in one[:3]:
        (more,) = [each for each in recommendations[member.config.key].advice if each.command.startswith("--workers")]
        assert (more.command, more.how) == ("--workers 4", "measured")


def test_what_was_measured_is_a_knee_also_where_no_forecast_fits_it() -> None:
    """Of two workers training ran far from its prediction: no model has them, and they are the fastest all the same."""
    one = run(alike(training=90.0, baseline=90.0), Cost(), workers=1, compute=1000.0)
    two = run(alike(training=150.0, baseline=60.0), Cost(), workers=2, compute=1000.0)
    recommendations, (knee,) = recommend_groups(judged([one, two]), {}, {})
    assert [each.refused.code for each in recommendations[two.config.key].forecasts if each.refused][:1] == [
        "outside_noise_band"
    ]
    assert knee.images_per_s and knee.images_per_s.value == pytest.approx(150.0)
    assert (knee.workers, knee.how) == (2, "measured")
    assert two.config.key in knee.keys


@pytest.mark.parametrize(("model", "name"), [("resnet50", "a100-amp"), ("vgg16", None)])
def test_accelerators_are_counted_for_each_rank_and_advised_for_their_model(model: str, name: str | None) -> None:
    """A published rate is that of one accelerator, of which every rank has one, and of its model; the pace of a
    benchmark is no rate."""
    made = rank_run(alike(training=58.0, baseline=700.0), compute=60.0, workers=4, model=model)
    recommendations, _ = recommend_groups(judged([made]), {}, {"a100-amp": 360.0, "mlperf-a100": 900.0})
    (faster,) = [each for each in recommendations[made.config.key].advice if each.action.code == "accelerator"]
    facts = faster.action.facts
    assert (facts.get("name"), facts["ranks"]) == (name, 2)
    assert facts["images_per_s"] == (360.0 if name else pytest.approx(344.9, rel=1e-3))
    assert faster.after.value == pytest.approx(700.0, rel=0.05)


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_decoder_gains_as_much_whatever_the_ranks(ranks: int) -> None:
    """Where it saves 2 of the 8 ms that an image takes in a worker."""
    images_per_s = 125.0 * ranks
    rates = alike(baseline=images_per_s, warm=images_per_s)
    made = rank_run(rates, Cost(cpu_s=0.008, cold=0.0), ranks=ranks, workers=1, cache="warm")
    way = Alternative(name="torchvision", cpu_s=0.002, usual_cpu_s=0.004)
    found = advised(replace(made, alternatives=(way,), cores_available=16.0), CPU_BOUND).advice
    assert [each.speedup for each in found if each.action.code == "decoder"] == [pytest.approx(8 / 6)]


def exact(**rates: float) -> dict[int, Interval]:
    """`w2=100` is 100 images/s with two workers, or prefetch factor 2."""
    return {int(name[1:]): Interval(value=rate, low=rate, high=rate) for name, rate in rates.items()}


WIDE = {1: Interval(value=100.0, low=100.0, high=100.0), 2: Interval(value=100.0, low=90.0, high=130.0)}
NEXT: dict[str, tuple[dict[int, Interval], dict[str, float | None], int | None]] = {
    "a forecast knee is measured first": (exact(w0=50, w1=50), {"knee": 6}, 6),
    "as far as so many may be tried": (exact(w0=50, w1=50), {"knee": 6, "most": 5}, 2),
    "where all have failed": ({}, {"knee": 6}, None),
    # It also sends what it loads; two may be faster than both.
    "one worker that is slower than none": (exact(w0=100, w1=60), {"knee": 0}, 2),
    "compute is reached": (exact(w0=100, w1=60), {"knee": 0, "compute": 101}, None),
    "two gain nothing": (exact(w1=100) | {2: Interval(value=100.0, low=90.0, high=102.0)}, {"knee": 1}, None),
    "and may, by the end of the interval": (WIDE, {"knee": 1}, 4),
    "but no more may be tried": (WIDE, {"knee": 1, "most": 2}, None),
    "fewer than the first number": (exact(w0=100, w8=400, w16=400), {"knee": 8, "most": 16}, 3),
    "but none that is no fewer than a number that failed": (exact(w0=100, w8=400, w16=400), {"knee": 8, "most": 3}, 2),
    "none is enough": (exact(w0=400, w8=400, w16=400), {"knee": 0, "most": 16}, None),
}


@pytest.mark.parametrize("name", NEXT)
def test_more_workers_are_tried_while_they_may_gain(name: str) -> None:
    """The report then names what was measured."""
    rates, options, number = NEXT[name]
    assert next_workers(rates, **{"most": 8, **options}) == number  # type: ignore[arg-type]  # numbers of workers


def test_prefetch_factors_are_tried_while_they_gain() -> None:
    """2, 4, 8; of those within 2 % the smallest is enough."""
    assert next_factor(exact(f2=100)) == 4
    assert next_factor(exact(f2=100, f4=101)) is None
    assert next_factor(exact(f2=100, f4=110)) == 8
    assert next_factor(exact(f2=100, f4=110, f8=120)) is None


MEASURED = {
    # Share, GB of the set: hits in epoch 2, fewest and most of epochs 3 to 6, on one node. Linux 6.18.
    (0.1, 0.44): (0.005, 0.007, 0.022),
    (0.3, 0.44): (0.047, 0.080, 0.110),
    (0.5, 0.44): (0.145, 0.200, 0.218),
    (0.7, 0.44): (0.331, 0.400, 0.423),
    (0.9, 0.44): (0.657, 0.720, 0.824),
    (0.3, 4.4): (0.049, 0.094, 0.174),
    (0.5, 4.4): (0.154, 0.270, 0.290),
    (0.7, 4.4): (0.340, 0.459, 0.479),
    (0.9, 4.4): (0.671, 0.765, 0.826),
}
"""By `scripts/bench forecast caches`."""
SHORT = 0.02
"""Hits in epoch 2 may be this much under LRU's: orders of 4000 files differ."""


@pytest.mark.parametrize(("share", "size_gb"), MEASURED)
def test_the_page_cache_stays_in_its_range(share: float, size_gb: float) -> None:
    """In epoch 2 nearly as LRU, later within the range of the law; small sets and large."""
    second, least, most = MEASURED[share, size_gb]
    assert page_cache_hits(share, 2).value == pytest.approx(second, abs=SHORT)
    law = page_cache_hits(share)
    assert law.low <= least <= most <= law.high

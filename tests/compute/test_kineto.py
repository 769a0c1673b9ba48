"""What is kept of a profiler's records, in all of their shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from loaderprobe.compute.kineto import RawEvent, convert
from loaderprobe.errors import LoaderprobeError
from tests.compute.traced import (
    BACKWARD,
    BEGIN,
    OTHER,
    SECOND_STREAM,
    US,
    call,
    copy,
    kernel,
    of_amd,
    record,
    synchronize,
    window,
    without_activities,
)

Shape = Callable[[Iterable[RawEvent]], list[RawEvent]]

SHAPES = pytest.mark.parametrize(
    "shape", [list, without_activities, of_amd], ids=["with activities", "names only", "of AMD"]
)


@SHAPES
def test_a_starved_window(shape: Shape) -> None:
    """Two short steps in 20 ms: four kernels, two copies, and none of the syncs or annotations between them."""
    events = [
        *copy(8000, 8100), *kernel(8200, 8900), *kernel(8900, 9000, thread=BACKWARD),
        *copy(18000, 18100), *kernel(18200, 18900), *kernel(18900, 19000, thread=BACKWARD),
        *synchronize(18950, 19990),
        record("ProfilerStep#1", "gpu_user_annotation", 0, 20000, annotation=True),
    ]  # fmt: skip
    found = convert(shape(events), window(20))
    assert found.records.kind == ("h2d", "kernel", "kernel", "h2d", "kernel", "kernel")
    assert sum(end - begin for begin, end in zip(found.records.begin_ns, found.records.end_ns, strict=True)) == (
        2 * (100 + 700 + 100) * US
    )
    assert found.records.loader == (False,) * 6
    assert (found.launches, found.launches_without_record, found.rejected) == (4, 0, ())
    assert found.calls.kind == ("launch",) * 6 + ("sync",)
    assert set(found.calls.training) == {True}
    assert found.names[found.records.name[1]] == "sm90_xmma_fprop"


@SHAPES
def test_annotations_that_overlap_everything_are_no_work(shape: Shape) -> None:
    """A span round the whole step on the GPU would read as a GPU that is always busy."""
    spans = [
        record("forward", "gpu_user_annotation", 0, 10000, annotation=True),
        record("Stream Wait Event", "cuda_sync", 0, 10000),
        record("Event Sync", "cuda_sync", 0, 10000),
    ]
    found = convert(shape([*spans, *kernel(1000, 1100)]), window(10))
    assert found.records.kind == ("kernel",)


def test_an_unknown_activity_of_the_gpu_is_no_kernel() -> None:
    """Where torch says what a record is, its name does not count."""
    found = convert([record("counter", "cuda_profiler_range", 0, 9000), *kernel(1000, 1100)], window(10))
    assert found.records.kind == ("kernel",)


@SHAPES
def test_a_pageable_copy_blocks_the_host(shape: Shape) -> None:
    """Its call both puts work on a stream and waits; a pinned one does not wait."""
    events = [*copy(1000, 1500, pageable=True, host_us=450), *copy(2000, 2100), *kernel(2200, 3000)]
    found = convert(shape(events), window(5))
    assert found.calls.kind == ("launch", "sync", "launch", "launch")
    assert "Pageable" in found.names[found.records.name[0]]


@SHAPES
def test_an_asynchronous_copy_that_takes_long_blocks_the_host(shape: Shape) -> None:
    """Whatever its name says."""
    found = convert(shape([*copy(1000, 1500, host_us=201), *kernel(2200, 3000)]), window(5))
    assert found.calls.kind == ("launch", "sync", "launch")


@SHAPES
def test_all_kernels_of_a_graph_share_one_launch(shape: Shape) -> None:
    """It counts once, is complete, and its kernels may overlap and use other streams."""
    graph = call("cudaGraphLaunch", 100, 120, correlation=900)
    parts = [
        record("a", "kernel", 200, 400, correlation=900),
        record("b", "kernel", 300, 600, correlation=900),
        record("c", "kernel", 300, 500, correlation=900, resource=SECOND_STREAM),
    ]
    found = convert(shape([graph, *parts]), window(1))
    assert (found.launches, found.launches_without_record, found.rejected) == (1, 0, ())
    assert found.records.loader == (False, False, False)
    assert [(end - BEGIN) // US for end in found.records.end_ns] == [400, 500, 600]


@SHAPES
def test_missing_kernels_are_counted(shape: Shape) -> None:
    """Two of three launches left no record."""
    lost = [event for event in [*kernel(1000, 1100), *kernel(1200, 1300)] if not event.on_gpu]
    found = convert(shape([*lost, *kernel(1400, 1500)]), window(5))
    assert (found.launches, found.launches_without_record) == (3, 2)


@SHAPES
def test_launches_before_the_window_are_not_missed(shape: Shape) -> None:
    """Warm-up ran before it."""
    found = convert(shape([call("cudaLaunchKernel", -500, -490), *kernel(1000, 1100)]), window(5))
    assert found.launches == 1


@SHAPES
def test_records_that_cannot_be_true_are_refused_and_counted(shape: Shape) -> None:
    """Zero stamps, 2^63, out of the window, before their own launch."""
    good = kernel(1000, 1100)
    broken = [
        record("zero", "kernel", 0, 0)._replace(begin_ns=0, end_ns=0),
        record("huge", "kernel", 0, 0)._replace(begin_ns=2**63, end_ns=2**63 + 5),
        record("negative", "kernel", 0, 0)._replace(begin_ns=-(2**63)),
        record("late", "kernel", 4000, 5100),
        record("early", "kernel", -200, -100),
        *kernel(2000, 2100, launched_us=2050),
    ]
    found = convert(shape([*good, *broken]), window(5))
    assert found.records.kind == ("kernel",)
    assert {each.reason: each.count for each in found.rejected} == {"no_stamp": 3, "outside": 2, "too_early": 1}
    assert (found.launches, found.launches_without_record) == (2, 1)


@SHAPES
def test_clocks_may_be_apart_by_a_little(shape: Shape) -> None:
    """A kernel that seems to begin 3 us before its launch is true."""
    assert convert(shape(kernel(2000, 2100, launched_us=2003)), window(5)).rejected == ()


@SHAPES
def test_an_impossible_duration_ends_where_the_next_begins(shape: Shape) -> None:
    """A kernel of 9 ms in whose midst others of its stream ran is cut; another stream may overlap."""
    events = [
        *kernel(500, 9500, name="endless"), *kernel(600, 700), *kernel(800, 900),
        *kernel(550, 650, resource=SECOND_STREAM),
    ]  # fmt: skip
    found = convert(shape(events), window(10))
    ends = dict(zip((found.names[n] for n in found.records.name), found.records.end_ns, strict=False))
    assert (ends["endless"] - BEGIN) // US == 600
    assert [(each.reason, each.count) for each in found.rejected] == [("cut", 1)]


@SHAPES
def test_two_devices(shape: Shape) -> None:
    """Only our own is kept; kernels of the other are not missed."""
    found = convert(shape([*kernel(1000, 1100), *kernel(1000, 4000, device=1)]), window(5))
    assert [(end - BEGIN) // US for end in found.records.end_ns] == [1100]
    assert (found.launches, found.launches_without_record) == (2, 0)


@SHAPES
@pytest.mark.parametrize("backward", [frozenset({BACKWARD}), frozenset()], ids=["autograd's thread known", "unknown"])
def test_loader_kernels_are_issued_inside_next_or_by_another_thread(shape: Shape, backward: frozenset[int]) -> None:
    """Backward kernels come from a thread of their own, too, and are training's; so are those on other streams.

    Where the threads of autograd are not known, they are those that launch more than a few of the main stream's.
    """
    events = [
        *kernel(1000, 2000), *kernel(2000, 2500, thread=BACKWARD),
        *kernel(2600, 2700, resource=SECOND_STREAM), *kernel(2700, 2800, thread=OTHER, resource=SECOND_STREAM),
        *kernel(2800, 2900, resource=SECOND_STREAM, name="ncclDevKernel_AllReduce", thread=OTHER),
        *kernel(4000, 4100, resource=SECOND_STREAM), *kernel(4200, 4300, launched_us=4200),
    ]  # fmt: skip
    inside = (BEGIN + 3800 * US, BEGIN + 4200 * US)
    found = convert(shape(events), window(5, backward_threads=backward, waits=(inside,)))
    assert found.records.loader == (False, False, False, True, False, True, False)


@SHAPES
def test_second_streams_are_the_loaders_only_where_the_window_says_so(shape: Shape) -> None:
    """Decoding on the GPU is issued by the training thread; the stream with most kernels trains, however long others
    run, and communication is never the loader's."""
    events = [
        *kernel(1000, 1100), *kernel(1100, 1200, thread=BACKWARD), *kernel(1300, 3000, resource=SECOND_STREAM),
        *kernel(3000, 4900, resource=20, name="ncclDevKernel_AllReduce"),
    ]  # fmt: skip
    assert convert(shape(events), window(5)).records.loader == (False,) * 4
    found = convert(shape(events), window(5, loader_streams=True))
    assert found.records.loader == (False, False, True, False)


@SHAPES
def test_the_stream_that_trains_is_not_chosen_by_communication(shape: Shape) -> None:
    """NCCL runs longer, and more often, than what the training thread launches beside autograd's."""
    exchanges = [
        kernel(at, at + 400, resource=SECOND_STREAM, name="ncclDevKernel_AllGather") for at in range(1600, 4000, 500)
    ]
    events = [*kernel(100, 600), *kernel(600, 1600, thread=BACKWARD), *(e for pair in exchanges for e in pair)]
    found = convert(shape(events), window(5, loader_streams=True))
    assert not any(found.records.loader)


@SHAPES
def test_a_copy_within_the_device_is_no_sync(shape: Shape) -> None:
    """However long its call takes: the queue of launches was full."""
    events = [
        call("cudaMemcpyAsync", 100, 500, correlation=950),
        record("Memcpy DtoD (Device -> Device)", "gpu_memcpy", 4800, 4850, correlation=950),
        call("cudaMemcpyAsync", 600, 900, correlation=951),
        record("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 4850, 4860, correlation=951),
        *kernel(0, 4800, launched_us=-3),
    ]
    found = convert(shape(events), window(5))
    assert found.calls.kind == ("launch", "launch", "sync")


@SHAPES
def test_kernels_launched_to_overlap_may(shape: Shape) -> None:
    """Programmatic dependent launch: the second begins before the first has ended, and neither is cut."""
    pair = [record("a", "kernel", 200, 300, correlation=970), record("b", "kernel", 299, 400, correlation=971)]
    for name in ("cuLaunchKernelEx", "cudaLaunchKernelExC"):
        calls = [call(name, 100, 101, correlation=970), call(name, 102, 103, correlation=971)]
        found = convert([*calls, *pair], window(1))
        assert found.rejected == ()
        assert [(end - BEGIN) // US for end in found.records.end_ns] == [300, 400]
    plain = [call("cudaLaunchKernel", 100, 101, correlation=970), call("cudaLaunchKernel", 102, 103, correlation=971)]
    assert [each.reason for each in convert(shape([*plain, *pair]), window(1)).rejected] == ["cut"]


@SHAPES
def test_autograds_thread_blocks_the_training_too(shape: Shape) -> None:
    """Freeing memory in backward holds it up; a thread of the loader does not."""
    events = [
        *kernel(100, 200), *kernel(300, 400, thread=BACKWARD), call("cudaFree", 500, 900, thread=BACKWARD),
        call("cudaFree", 950, 990, thread=OTHER),
    ]  # fmt: skip
    for backward in (frozenset({BACKWARD}), frozenset[int]()):
        found = convert(shape(events), window(5, backward_threads=backward))
        assert found.calls.kind == ("launch", "launch", "sync", "sync")
        assert found.calls.training == (True, True, True, False)


@SHAPES
def test_a_stretch_of_a_recording_knows_what_lies_around_it(shape: Shape) -> None:
    """Work before and after it is no error, work across its ends is kept, and so is the call that issued it."""
    before, across = kernel(-900, -800), kernel(-100, 150, launched_us=-700)
    late = kernel(5100, 5200, launched_us=4900)
    found = convert(shape([*before, *across, *kernel(200, 300), *late]), window(5, whole=False))
    assert found.rejected == ()
    assert [(begin - BEGIN) // US for begin in found.records.begin_ns] == [-100, 200]
    assert [(begin - BEGIN) // US for begin in found.calls.begin_ns] == [-700, 190, 4900]
    assert (found.launches, found.launches_without_record) == (2, 0)


def test_copies_of_older_recorders_of_amd_are_known() -> None:
    """They have names of their own; with activities as kineto gives them."""
    names = {"CopyHostToDevice": "h2d", "CopyDeviceToHost": "d2h", "CopyDeviceToDevice": "d2d", "FillBuffer": "memset"}
    copies = [record(name, "gpu_memcpy", 100 + 10 * n, 105 + 10 * n) for n, name in enumerate(names)]
    found = convert([*copies, *of_amd(kernel(200, 300))], window(1))
    assert found.records.kind == (*names.values(), "kernel")


def test_the_training_thread_is_known_by_the_last_wait_for_the_device() -> None:
    """Also where the profiler numbers threads in its own way."""
    events = [*kernel(1000, 3000, thread=77), *synchronize(3000, 4000, thread=77)]
    assert convert(events, window(5)).calls.training == (True, True)
    with pytest.raises(LoaderprobeError, match="the training thread is not known"):
        convert(kernel(1000, 3000, thread=77), window(5))


def test_no_kernels_at_all_is_an_error_with_its_causes() -> None:
    """Launches without any record: another profiler, no libcupti, WSL."""
    with pytest.raises(LoaderprobeError, match="recorded none of them") as caught:
        convert([event for event in kernel(1000, 1100) if not event.on_gpu], window(5))
    assert "libcupti" in caught.value.hint
    with pytest.raises(LoaderprobeError, match="no kernel launched"):
        convert([], window(5))


def test_occupancy_goes_with_kernels_only() -> None:
    """A copy fills no SM; a kernel with 64 registers a thread fits 4 blocks of 256 threads, half of the warps."""
    found = convert([*copy(500, 600), *kernel(1000, 1100), *kernel(1200, 1300, details={})], window(5))
    assert found.records.occupancy == (None, 0.5, None)
    assert found.records.blocks_per_sm == (None, 10.0, None)


def test_calls_that_wait_or_free() -> None:
    """Synchronising, a blocking copy, freeing; not what is asynchronous or only asks."""
    names = [
        "cudaStreamSynchronize", "cudaEventSynchronize", "cudaFree", "cudaHostAlloc", "cudaMallocAsync",
        "cudaFreeAsync", "cudaEventQuery", "cudaLaunchHostFunc", "cudaStreamWaitEvent",
    ]  # fmt: skip
    events = [call(name, 100 + 10 * n, 105 + 10 * n) for n, name in enumerate(names)]
    found = convert([*events, call("cudaMemcpy", 300, 350), *kernel(1000, 1100)], window(5))
    kept = [found.names[n] for n, kind in zip(found.calls.name, found.calls.kind, strict=True) if kind == "sync"]
    assert kept == [*names[:4], "cudaMemcpy"]
    assert set(found.calls.training) == {True}

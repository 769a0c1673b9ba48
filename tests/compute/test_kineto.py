"""What is kept of a profiler's records, in all of their shapes, live and of files; and occupancy from a launch."""

from __future__ import annotations

import gzip
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
import torch
from torch.profiler import ProfilerActivity

from loaderprobe.compute import profile as of_profiler
from loaderprobe.compute import trace_file
from loaderprobe.compute.kineto import DeviceLimits, RawEvent, Window, blocks_per_sm, convert, occupancy
from loaderprobe.compute.profile import Device, play, raw_events, record_window, thread_numbers
from loaderprobe.compute.trace_file import Recording, read_trace, why_no_device
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.records.measurement import Timeline
from tests.examples.traces import FIXTURES, event, training, written
from tests.measure.scripted import in_threads

US, MS = 1_000, 1_000_000
BEGIN = 1_700_000_000_000_000_000
TRAINING, BACKWARD, OTHER = 4001, 4002, 4009
MAIN_STREAM, SECOND_STREAM = 7, 20
# An SM of a Hopper GPU, 132 of them; and enough blocks of 256 threads for every one.
HOPPER = DeviceLimits(sm_count=132)
SHAPE: dict[str, Any] = {"grid": [1320, 1, 1], "block": [256, 1, 1], "registers per thread": 64, "shared memory": 0}
Events = list[RawEvent]

_numbers = count(1)


def window(steps_ms: int, **changes: Any) -> Window:
    """One of so many milliseconds on device 0."""
    fields: dict[str, Any] = {
        "begin_ns": BEGIN, "end_ns": BEGIN + steps_ms * MS, "device": 0, "training_threads": frozenset({TRAINING}),
        "backward_threads": frozenset({BACKWARD}), "limits": HOPPER,
    }  # fmt: skip
    return Window(**(fields | changes))


def record(name: str, activity: str, begin_us: float, end_us: float, **changes: Any) -> RawEvent:
    """Of the GPU, in microseconds since the window's begin."""
    fields: dict[str, Any] = {
        "name": name, "activity": activity, "begin_ns": BEGIN + round(begin_us * US),
        "end_ns": BEGIN + round(end_us * US), "on_gpu": True, "device": 0, "resource": MAIN_STREAM, "correlation": 0,
        "annotation": False, "details": {},
    }  # fmt: skip
    return RawEvent(**(fields | changes))


def call(name: str, begin_us: float, end_us: float, *, thread: int = TRAINING, correlation: int = 0) -> RawEvent:
    """Of the host, to the CUDA runtime."""
    number = correlation or next(_numbers)
    return record(name, "cuda_runtime", begin_us, end_us, on_gpu=False, resource=thread, correlation=number)


def kernel(
    begin_us: float, end_us: float, *, launched_us: float | None = None, thread: int = TRAINING,
    name: str = "sm90_xmma_fprop", details: Mapping[str, Any] = SHAPE, launch: str = "cudaLaunchKernel", **changes: Any,
) -> Events:  # fmt: skip
    """A kernel and its launch, 10 us before it unless given."""
    number = next(_numbers)
    at = begin_us - 10 if launched_us is None else launched_us
    return [
        call(launch, at, at + 5, thread=thread, correlation=number),
        record(name, "kernel", begin_us, end_us, correlation=number, details=details, **changes),
    ]


def copy(begin_us: float, end_us: float, *, kind: str = "HtoD (Pinned -> Device)", host_us: float = 5) -> Events:
    """A copy of a batch and its call, which takes the host `host_us`."""
    number = next(_numbers)
    return [
        call("cudaMemcpyAsync", begin_us - 10, begin_us - 10 + host_us, correlation=number),
        record(f"Memcpy {kind}", "gpu_memcpy", begin_us, end_us, correlation=number),
    ]


def synchronize(begin_us: float, end_us: float, thread: int = TRAINING) -> Events:
    """A wait for the device, and the record of the GPU that goes with it."""
    return [
        call("cudaDeviceSynchronize", begin_us, end_us, thread=thread),
        record("Context Sync", "cuda_sync", begin_us, end_us, resource=-1),
    ]


def nccl(begin_us: float, end_us: float, **changes: Any) -> Events:
    return kernel(begin_us, end_us, resource=SECOND_STREAM, name="ncclDevKernel_AllReduce", **changes)


def of_amd(events: Iterable[RawEvent]) -> Events:
    """As a ROCm build of torch shows them."""
    return [event._replace(name=event.name.replace("cuda", "hip").replace("nccl", "rccl")) for event in events]


def without_activities(events: Iterable[RawEvent]) -> Events:
    """As torch 2.11 shows them: only names tell what a record is."""
    return [event._replace(activity=None) for event in events]


class Case(NamedTuple):
    """Records, the window's own options, and what must be found; `launches` counts those and those without record."""

    events: Events
    found: dict[str, Any]
    window_ms: int = 5
    window: Mapping[str, Any] = {}


GOOD = kernel(1000, 1100)
LOADERS = [
    *kernel(1000, 2000), *kernel(2000, 2500, thread=BACKWARD), *kernel(2600, 2700, resource=SECOND_STREAM),
    *kernel(2700, 2800, thread=OTHER, resource=SECOND_STREAM), *nccl(2800, 2900, thread=OTHER),
    *kernel(4000, 4100, resource=SECOND_STREAM), *kernel(4200, 4300, launched_us=4200),
]  # fmt: skip
SECOND = [
    *kernel(1000, 1100), *kernel(1100, 1200, thread=BACKWARD), *kernel(1300, 3000, resource=SECOND_STREAM),
    *nccl(3000, 4900),
]  # fmt: skip
FREES = [
    *kernel(100, 200), *kernel(300, 400, thread=BACKWARD), call("cudaFree", 500, 900, thread=BACKWARD),
    call("cudaFree", 950, 990, thread=OTHER),
]  # fmt: skip
FREED = {"calls": "launch launch sync sync", "training": "1110"}
INSIDE_NEXT = {"waits": ((BEGIN + 3800 * US, BEGIN + 4200 * US),)}
BLOCKING = ["cudaStreamSynchronize", "cudaEventSynchronize", "cudaFree", "cudaHostAlloc", "cudaMemcpy"]
PASSING = ["cudaMallocAsync", "cudaFreeAsync", "cudaEventQuery", "cudaLaunchHostFunc", "cudaStreamWaitEvent"]
CASES = {
    "a starved window: a short step, without its syncs and annotations": Case(
        [
            *copy(8000, 8100), *kernel(8200, 8900), *kernel(8900, 9000, thread=BACKWARD), *synchronize(8950, 9990),
            record("ProfilerStep#1", "gpu_user_annotation", 0, 10000, annotation=True),
        ],
        {
            "records": "h2d kernel kernel", "ends": [8100, 8900, 9000], "loader": "000", "launches": (2, 0),
            "rejected": {}, "training": "1111", "calls": "launch launch launch sync",
        },
        10,
    ),
    # Of 64 registers a thread 4 blocks of 256 threads fit, half of the warps.
    "a copy fills no SM, and how a kernel does may not be known": Case(
        [*copy(500, 600), *GOOD, *kernel(1200, 1300, details={})],
        {"occupancy": (None, 0.5, None), "blocks": (None, 10.0, None), "names": "Memcpy" + 2 * " sm90_xmma_fprop"},
    ),
    "annotations that overlap everything are no work": Case(
        [
            record("forward", "gpu_user_annotation", 0, 10000, annotation=True),
            record("Stream Wait Event", "cuda_sync", 0, 10000), record("Event Sync", "cuda_sync", 0, 10000), *GOOD,
        ],
        {"records": "kernel"}, 10,
    ),
    "a pageable copy blocks the host; a pinned one does not": Case(
        [*copy(1000, 1500, kind="HtoD (Pageable -> Device)", host_us=450), *copy(2000, 2100), *kernel(2200, 3000)],
        {"calls": "launch sync launch launch"},
    ),
    "a long call of a copy blocks, but for one within the device: the queue of launches was full": Case(
        [
            *copy(110, 4850, kind="DtoD (Device -> Device)", host_us=400),
            *copy(610, 4860, kind="DtoH (Device -> Pinned)", host_us=201), *kernel(0, 4800, launched_us=-3),
        ],
        {"calls": "launch launch sync"},
    ),
    "all kernels of a graph share one launch, and may overlap": Case(
        [
            call("cudaGraphLaunch", 100, 120, correlation=900), record("a", "kernel", 200, 400, correlation=900),
            record("b", "kernel", 300, 600, correlation=900),
            record("c", "kernel", 300, 500, correlation=900, resource=SECOND_STREAM),
        ],
        {"launches": (1, 0), "rejected": {}, "loader": "000", "ends": [400, 500, 600]}, 1,
    ),
    "earlier launches are not missed": Case([call("cudaLaunchKernel", -500, -490), *GOOD], {"launches": (1, 0)}),
    "records that cannot be true are refused and counted": Case(
        [
            *GOOD, record("zero", "kernel", 0, 0)._replace(begin_ns=0, end_ns=0),
            record("huge", "kernel", 0, 0)._replace(begin_ns=2**63, end_ns=2**63 + 5),
            record("negative", "kernel", 0, 0)._replace(begin_ns=-(2**63)),
            record("late", "kernel", 4000, 5100), record("early", "kernel", -200, -100), record("back", "kernel", 9, 8),
            *kernel(2000, 2100, launched_us=2050),
        ],
        {
            "records": "kernel", "launches": (2, 1),
            "rejected": {"no_stamp": 3, "backwards": 1, "outside": 2, "too_early": 1},
        },
    ),
    "clocks may be apart by a little": Case(kernel(2000, 2100, launched_us=2003), {"rejected": {}}),
    "an impossible duration ends where the next of its stream begins": Case(
        [*kernel(500, 9500), *kernel(600, 700), *kernel(800, 900), *kernel(550, 650, resource=SECOND_STREAM)],
        {"ends": [600, 650, 700, 900], "rejected": {"cut": 1}}, 10,
    ),
    "of two devices ours is kept": Case([*GOOD, *kernel(1000, 4000, device=1)], {"ends": [1100], "launches": (2, 0)}),
    "kernels launched inside next or by another thread are the loader's, those of backward not": Case(
        LOADERS, {"loader": "0001010"}, window=INSIDE_NEXT
    ),
    "autograd's threads, where unknown, are those that launch more than a few of the main stream's": Case(
        LOADERS, {"loader": "0001010"}, window={"backward_threads": frozenset(), **INSIDE_NEXT}
    ),
    "second streams may be training's": Case(SECOND, {"loader": "0000"}),
    "second streams are the loader's where the window says so, but never communication": Case(
        SECOND, {"loader": "0010"}, window={"loader_streams": True}
    ),
    "the stream that trains is not chosen by communication, which runs longer and more often": Case(
        [
            *kernel(100, 600), *kernel(600, 1600, thread=BACKWARD),
            *(event for at in range(1600, 4000, 500) for event in nccl(at, at + 400)),
        ],
        {"loader": "0" * 7}, window={"loader_streams": True},
    ),
    "kernels without a leave to overlap are cut": Case(
        [*kernel(200, 300, name="a"), *kernel(299, 400, name="b")], {"rejected": {"cut": 1}}, 1
    ),
    "the training thread is known by the last wait for the device, as where a profiler has numbers of its own": Case(
        [*kernel(1000, 3000, thread=77), *synchronize(3000, 4000, thread=77)], {"training": "11"}
    ),
    "freeing memory in backward holds training up; in a thread of the loader not": Case(FREES, FREED),
    "so where autograd's threads are unknown": Case(FREES, FREED, window={"backward_threads": frozenset()}),
    "a stretch of a recording knows what lies around it": Case(
        [
            *kernel(-900, -800), *kernel(-100, 150, launched_us=-700), *kernel(200, 300),
            *kernel(5100, 5200, launched_us=4900),
        ],
        {"rejected": {}, "begins": [-100, 200], "called": [-700, 190, 4900], "launches": (2, 0)},
        window={"whole": False},
    ),
    "calls that synchronise, copy or free wait; not what is asynchronous or only asks": Case(
        [*(call(name, 100 + 10 * n, 105 + 10 * n) for n, name in enumerate(BLOCKING + PASSING)), *GOOD],
        {"calls": "sync sync sync sync launch sync launch", "training": "1111111"},
    ),
}  # fmt: skip


def read(events: Events, given: Window) -> Timeline:
    return convert(events, given, device="", steps=1, batch_size=0, step_begin_ns=(), plain_ns=0)


def seen(events: Events, given: Window) -> dict[str, Any]:
    found = read(events, given)
    records, calls = found.records, found.calls
    return {
        "records": " ".join(records.kind),
        "begins": [(begin - BEGIN) // US for begin in records.begin_ns],
        "ends": [(end - BEGIN) // US for end in records.end_ns],
        "loader": "".join(str(int(each)) for each in records.loader),
        "calls": " ".join(calls.kind),
        "called": [(begin - BEGIN) // US for begin in calls.begin_ns],
        "training": "".join(str(int(each)) for each in calls.training),
        "launches": (found.launches, found.launches_without_record),
        "rejected": {each.reason: each.count for each in found.rejected},
        "occupancy": records.occupancy,
        "blocks": records.blocks_per_sm,
        "names": " ".join(found.names[name].split()[0] for name in records.name),
    }


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [list, without_activities, of_amd], ids=["with activities", "names only", "of AMD"])
def test_what_is_kept_of_records(shape: Callable[[Events], Events], name: str) -> None:
    """The same of every shape in which versions of torch show them."""
    case = CASES[name]
    found = seen(shape(case.events), window(case.window_ms, **case.window))
    assert {key: found[key] for key in case.found} == case.found


def test_kernels_launched_to_overlap_may() -> None:
    """Programmatic dependent launch: each begins before the one before has ended, and none is cut."""
    ways = "cudaLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC"
    row = [event for at, way in enumerate(ways) for event in kernel(200 + 99 * at, 300 + 99 * at, launch=way)]
    found = seen(row, window(1))
    assert (found["rejected"], found["ends"]) == ({}, [300, 399, 498])


@pytest.mark.parametrize(
    ("events", "says"),
    [
        (GOOD[:1], "recorded none of them"),
        ([], "no kernel launched"),
        (kernel(1000, 3000, thread=77), "the training thread is not known"),
    ],
    ids=["another profiler, no libcupti, WSL", "no launch", "no wait for the device"],
)
def test_records_that_say_nothing_are_an_error(events: Events, says: str) -> None:
    """With its causes, where they are known."""
    with pytest.raises(LoaderprobeError, match=says) as caught:
        read(events, window(5))
    assert events != GOOD[:1] or "libcupti" in caught.value.hint


KIB = 1024
V100 = {
    "name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0, "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 98304, "numSms": 80,
}  # fmt: skip
OF_V100 = DeviceLimits.recorded(V100)
GIVEN = "est. achieved occupancy %"


@pytest.mark.parametrize(
    ("registers", "shared", "others", "limits", "expected"),
    [
        # The scarcest resource decides, by hand for an SM of 64 warps, 65536 registers, 228 KiB and 32 blocks.
        (32, 0, {}, HOPPER, 1.0),
        (128, 0, {}, HOPPER, 0.25),
        (32, 64 * KIB, {}, HOPPER, 0.375),
        (128, 64 * KIB, {}, HOPPER, 0.25),
        (32, 200 * KIB, {"block": [384, 1, 1]}, HOPPER, 0.1875),
        (32, 0, {"block": [32, 1, 1]}, HOPPER, 10 * 32 / 2048),
        (32, 0, {"block": [32, 1, 1], "grid": [132 * 64, 1, 1]}, HOPPER, 0.5),
        (32, 0, {"grid": [66, 1, 1]}, HOPPER, 0.0625),
        # Above 48 KiB the profiler's zero is not believed, but computed again; a zero below may be true.
        (32, 64 * KIB, {GIVEN: 0}, HOPPER, 0.375),
        (32, 64 * KIB, {GIVEN: 0}, None, None),
        (32, 0, {GIVEN: 0}, None, 0.0),
        (32, 0, {GIVEN: 37}, None, 0.37),
        # A launch that fits no SM as we know it.
        (32, 300 * KIB, {}, HOPPER, None),
    ],
)
def test_occupancy(
    registers: int, shared: int, others: dict[str, Any], limits: DeviceLimits | None, expected: float | None
) -> None:
    """The scarcest resource decides; recordings below show other GPUs."""
    launch = {**SHAPE, "registers per thread": registers, "shared memory": shared, **others}
    assert occupancy(launch, limits) == (None if expected is None else pytest.approx(expected))


def test_what_is_not_known_is_none() -> None:
    """Without fields; the profiler's own number of blocks is believed."""
    assert occupancy({}, HOPPER) is occupancy({GIVEN: 0}, HOPPER) is blocks_per_sm({}, HOPPER) is None
    assert (blocks_per_sm(SHAPE, HOPPER), blocks_per_sm({"blocks per SM": 2.5}, None)) == (10.0, 2.5)


def test_limits_of_a_device() -> None:
    """From a trace by kineto's names, or from the device, of which consumer GPUs hold fewer blocks. Of AMD's GPUs
    kineto records too few, and so may torch."""
    assert DeviceLimits(sm_count=80, shared_bytes_per_sm=98304, reserved_bytes=0) == OF_V100
    ampere = DeviceLimits.recorded(V100 | {"computeMajor": 8})
    assert ampere is not None and ampere.reserved_bytes == 1024
    mi300x = {"name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 304, "warpSize": 64,
              "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 131072, "sharedMemPerBlock": 65536}  # fmt: skip
    assert DeviceLimits.recorded(mi300x) is DeviceLimits.of(SimpleNamespace(multi_processor_count=128)) is None
    properties = SimpleNamespace(
        multi_processor_count=128, max_threads_per_multi_processor=1536, regs_per_multiprocessor=65536,
        shared_memory_per_multiprocessor=102400, major=8, minor=9,
    )  # fmt: skip
    limits = DeviceLimits(sm_count=128, threads_per_sm=1536, shared_bytes_per_sm=102400, blocks_per_sm=24)
    assert DeviceLimits.of(properties) == limits


@pytest.mark.parametrize("name", ["v100_2106_w0_a", "hta_diff_control", "param_resnet", "tl_h100_nsfw"])
def test_occupancy_is_that_of_the_profiler(name: str) -> None:
    """Within its rounding for every kernel for which it gives one: capabilities 7.0, 7.5, 8.0 and 9.0."""
    whole = json.loads(gzip.decompress((FIXTURES / f"{name}.json.gz").read_bytes()))
    limits = DeviceLimits.recorded(whole["deviceProperties"][0])
    kernels = [each["args"] for each in whole["traceEvents"] if each.get("cat") in ("Kernel", "kernel")]
    given = [each for each in kernels if each[GIVEN]]
    assert len(given) > 50
    for each in given:
        assert occupancy(each, limits) == pytest.approx(each[GIVEN] / 100, abs=0.0101), each


def device(step: Callable[[Any], Any], synchronize: Callable[[], None] = lambda: None) -> Device:
    return Device(
        name="Fake GPU", index=0, limits=None, step=step, synchronize=synchronize, backward_threads=frozenset,
        activities=(ProfilerActivity.CPU,),
    )  # fmt: skip


def test_the_real_profiler_records_the_steps_of_the_window_and_only_those() -> None:
    """On the CPU one product a step, on time.time_ns()'s clock, without kernels; none of the warm-up."""
    product = device(lambda batch: batch @ batch)
    stamps, events = of_profiler.trace(lambda count: iter([torch.ones(16, 16)] * count), product, steps=5, warm_up=3)
    products = [event for event in events if event.name == "aten::mm"]
    assert len(products) == 5
    assert all(stamps.begin_ns <= e.begin_ns <= e.end_ns <= stamps.end_ns for e in products)
    assert {e.resource for e in products} <= thread_numbers()
    assert not any(e.on_gpu for e in events)
    assert any(e.annotation for e in events)
    with pytest.raises(LoaderprobeError, match="no kernel launched"):
        record_window(lambda count: iter([torch.ones(4, 4)] * count), product, steps=2, warm_up=3, batch_size=4)


def test_a_window_becomes_a_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps are played twice, with and without the profiler; its records and the stamps go into one record. After
    the warm-up and after the last step the device is waited for, before the profiler hears of the step."""
    notes: list[str] = []

    def feed(count: int) -> Iterator[Any]:
        for _ in range(count):
            notes.append("next")
            yield torch.ones(4, 4)

    def traced(feed: Any, device: Device, steps: int, warm_up: int) -> tuple[of_profiler.Stamps, list[RawEvent]]:
        notes.append("profiler")
        stamps = play(feed(warm_up + steps), device, steps, warm_up, lambda: notes.append("on_step"))
        shift = stamps.begin_ns - kernel(10, 11)[1].begin_ns + 10_000
        own = threading.get_native_id()
        events = [*kernel(10, 11, thread=own), *synchronize(11, 12, thread=own)]
        moved = [e._replace(begin_ns=e.begin_ns + shift, end_ns=e.end_ns + shift) for e in events]
        times = list(itertools.chain(*zip(stamps.wait_begin_ns, stamps.wait_end_ns, strict=True)))
        assert [stamps.begin_ns, *times, stamps.end_ns] == sorted([stamps.begin_ns, *times, stamps.end_ns])
        stamps.end_ns = stamps.begin_ns + 20_000
        return stamps, moved

    monkeypatch.setattr(of_profiler, "trace", traced)
    played = device(lambda batch: notes.append("step"), lambda: notes.append("synchronize"))
    found = record_window(feed, played, steps=3, warm_up=2, batch_size=16)
    one, last = ["next", "step", "on_step"], ["next", "step", "synchronize", "on_step"]
    heard = [*one, *last, *one, *one, *last]
    assert notes == [*(note for note in heard if note != "on_step"), "profiler", *heard]
    assert (found.device, found.steps, found.batch_size, found.launches) == ("Fake GPU", 3, 16, 1)
    assert found.step_begin_ns == found.wait_begin_ns and len(found.wait_end_ns) == 3
    assert found.plain_ns > 0 and found.records.kind == ("kernel",) and all(found.calls.training)


def of_kineto(fields: str, on_gpu: bool = True) -> Any:
    """An event as torch 2.11 shows it: methods that return what is known."""
    kinds = torch._C._autograd.DeviceType
    known = {
        "name": "kernel", "device_index": 0, "device_resource_id": 7, "start_ns": 10, "end_ns": 20, "correlation_id": 3,
        "is_user_annotation": False, "metadata_json": fields, "device_type": kinds.CUDA if on_gpu else kinds.CPU,
    }  # fmt: skip
    return SimpleNamespace(**{name: lambda value=value: value for name, value in known.items()})


def test_events_of_an_older_torch_become_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without activities; kernels have the fields that can be read, none where torch names its settings otherwise."""
    (found,) = raw_events([of_kineto('"grid": [4, 1, 1], "stream": 7')])
    assert (found.activity, found.name, found.resource, found.correlation) == (None, "kernel", 7, 3)
    assert found.details == {"grid": [4, 1, 1], "stream": 7}
    odd = of_kineto(""), of_kineto('"name": "a"b"'), of_kineto("1", on_gpu=False)
    assert [each.details for each in raw_events([*odd])] == [{}, {}, {}]
    monkeypatch.setattr(torch._C, "_profiler", SimpleNamespace(_ExperimentalConfig=object))
    assert of_profiler._experimental() is None


def test_a_thread_is_known_by_all_its_numbers() -> None:
    """The kernel's, and the library's cut to 32 bits, signed or not; other threads have others."""
    others: list[frozenset[int]] = []
    in_threads([lambda: others.append(thread_numbers())])
    mine = thread_numbers()
    assert threading.get_native_id() in mine
    assert threading.get_ident() & 0xFFFFFFFF in mine
    assert any(-(2**31) <= own < 2**31 and own & 0xFFFFFFFF == threading.get_ident() & 0xFFFFFFFF for own in mine)
    assert not mine & others[0]


def test_the_distance_of_the_clocks_is_known_closely() -> None:
    """Within what lies between two readings of both."""
    before = time.time_ns() - time.monotonic_ns()
    assert abs(of_profiler.clock_offset_ns() - before) < 50_000_000


NAMES = sorted(path.name for path in FIXTURES.glob("*.json.gz"))


def same(one: Recording, two: Recording) -> bool:
    return (one.events, one.spans, one.kinds, one.cut_off) == (two.events, two.spans, two.kinds, two.cut_off)


def plain(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "plain.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("name", NAMES)
def test_slices_change_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does compression, or the way for damaged files, one event after the other, on a sound one."""
    whole = read_trace(FIXTURES / name)
    assert whole.events and whole.unreadable == 0 and not whole.cut_off and whole.complete
    path = plain(tmp_path, gzip.decompress((FIXTURES / name).read_bytes()))
    for size in (700, 10_000):
        monkeypatch.setattr(trace_file, "SLICE_BYTES", size)
        assert same(read_trace(path), whole)
    monkeypatch.setattr(trace_file, "_quickly", lambda stream: None)
    monkeypatch.setattr(trace_file, "SLICE_BYTES", 50_000)
    assert same(read_trace(FIXTURES / name), whole)


def test_stamps_are_exact(tmp_path: Path) -> None:
    """A float would lose up to 256 ns of a Unix time."""
    stamps = [("1719853884123456.789", 1.001), ('"1719853884123457"', 2), (12.5, 0.25), ("1.5e+2", 1)]
    events = [KERNEL % ('"k"', begin, duration, '{"device": 0}') for begin, duration in stamps]
    found = read_trace(plain(tmp_path, f"[{','.join(events)}]"))
    assert [(each.begin_ns, each.end_ns) for each in found.events] == [
        (1719853884123456789, 1719853884123457790), (1719853884123457000, 1719853884123459000), (12500, 12750),
        (150000, 151000),
    ]  # fmt: skip


def test_names_of_2021_and_a_bare_list(tmp_path: Path) -> None:
    """Categories begin with a capital, threads and streams are texts, and nothing surrounds the list."""
    events = [
        event("Runtime", "cudaLaunchKernel", 5, 3, tid="4093687616", correlation=3),
        event("Kernel", "gemm", 9, 3, tid="stream 7", device=0, correlation=3),
        event("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 3, tid="4093687616"),
    ]
    found = read_trace(plain(tmp_path, json.dumps(events)))
    assert [(each.activity, each.resource, each.correlation) for each in found.events] == [
        ("cuda_runtime", 4093687616, 3), ("kernel", 7, 3),
    ]  # fmt: skip
    assert [each.thread for each in found.spans.waits] == [4093687616]


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(packed: bool, tmp_path: Path) -> None:
    """Within an event, and within compressed data; it says so."""
    data = written(tmp_path / "t.json", training(steps=40)).read_bytes()
    path = tmp_path / "cut.json"
    path.write_bytes(gzip.compress(data)[:-60] if packed else data[: 2 * len(data) // 3])
    found = read_trace(path)
    assert found.cut_off and 20 < len(found.events) < 80


KERNEL = '{"ph": "X", "cat": "kernel", "name": %s, "ts": %s, "dur": %s, "args": %s}'
HOSTILE: dict[str, tuple[str, int, int]] = {
    # the event, how many more kernels are read, and how many are unreadable
    "control characters": (KERNEL % ('"a\x01\n\x1b[2Jb"', 1, 1, "{}"), 1, 0),
    "no UTF-8": (KERNEL % ('"a\udcffb"', 1, 1, "{}"), 1, 0),
    "half a character": (KERNEL % ('"a\\ud800b"', 1, 1, "{}"), 1, 0),
    "a wrong escape": (KERNEL % ('"C:\\qux"', 1, 1, "{}"), 0, 1),
    "not a number": (KERNEL % ('"k"', "NaN", 1, "{}"), 0, 1),
    "NaN in its fields": (KERNEL % ('"k"', 1, 1, '{"x": NaN}'), 1, 0),
    "an infinite time": (KERNEL % ('"k"', "1e999", 1, "{}"), 0, 1),
    "an infinite duration": (KERNEL % ('"k"', 1, "1e999", "{}"), 0, 1),
    "a huge number": (KERNEL % ('"k"', "9" * 5000, 1, "{}"), 0, 1),
    "a huge stream": (KERNEL % ('"k"', 1, 0, f'{{"stream": {"9" * 500}}}'), 1, 0),
    "deep nesting": (KERNEL % ('"k"', 1, 1, "[" * 100000 + "]" * 100000), 0, 1),
    "no object": ('3, "text", null, [1, 2]', 0, 4),
    "other types": ('{"ph": ["X"], "cat": {}, "name": 3, "ts": {}, "dur": "long", "args": [1]}', 0, 0),
    "a name that is none": (KERNEL % ('{"a": 1}', 1, 1, "{}"), 1, 0),
    "a strange launch": (KERNEL % ('"k"', 1, 1, '{"grid": {"x": -1}, "block": 3}'), 1, 0),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_damaged_event_costs_only_itself(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands before and after it is read, in whatever slice it lies."""
    text, more, lost = HOSTILE[what]
    good = ", ".join(map(json.dumps, training(steps=50)))
    path = plain(tmp_path, f"[{good}, {text}, {good}]".encode(errors="surrogateescape"))
    for size in (1 << 20, 3000):
        monkeypatch.setattr(trace_file, "SLICE_BYTES", size)
        found = read_trace(path)
        assert sum(each.activity == "kernel" for each in found.events) == 100 + more
        assert found.unreadable == lost and not found.cut_off


def test_of_too_many_records_the_first_part_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By time, whatever their order in the file, so that memory does not grow with it."""
    events = training(steps=500)
    kernels = [each for each in events if each["cat"] == "kernel"]
    calls = [each for each in events if each["cat"] == "cuda_runtime"]
    marks = [each for each in events if each["cat"] not in ("kernel", "cuda_runtime")]
    monkeypatch.setattr(trace_file, "MOST_RECORDS", 200)
    found = read_trace(written(tmp_path / "t.json", [*kernels[::-1], *marks, *calls]))
    assert not found.complete and found.records == 1000 and len(found.events) == 200
    assert {each.activity for each in found.events} == {"kernel", "cuda_runtime"}
    assert max(each.begin_ns for each in found.events) < found.until_ns


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("t.json", b"", "is empty"),
        ("t.json", b"\x00\x01\x02", "is no JSON"),
        ("t.json", b"hello", "is no JSON"),
        ("t.json", b"\x1f\x8b\x00", "is damaged gzip"),
        ("t.json", b'{"a": 1}', "has no traceEvents"),
        ("t.json", b'{"a": ' + b"[" * 200_000, "has no traceEvents"),
        ("t.json", b"SQLite format 3\x00abc", "is a database"),
        ("t.json", b"PK\x03\x04abc", "is a zip archive"),
        ("t.nsys-rep", b"anything", "is a file of nsys"),
        ("t.pftrace", b"\x0aanything", "is a file of Perfetto"),
    ],
)
def test_what_is_no_recording_is_refused_by_name(name: str, data: bytes, says: str, tmp_path: Path) -> None:
    """With what it is, and how to record."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadValue, match=says) as caught:
        read_trace(tmp_path / name)
    assert "torch.profiler" in caught.value.hint


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not there, or none, as a pipe, which would block. Without permission the reason of the system is named."""
    with pytest.raises(BadValue, match="does not exist"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(BadValue, match="no regular file"):
        read_trace(tmp_path)
    path = written(tmp_path / "t.json")
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(MissingPart, match="Permission denied"):
        read_trace(path)


def test_an_event_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it takes all memory."""
    monkeypatch.setattr(trace_file, "LONGEST_EVENT", 100_000)
    monkeypatch.setattr(trace_file, "SLICE_BYTES", 10_000)
    with pytest.raises(BadValue, match="has an event of more than"):
        read_trace(plain(tmp_path, '[{"name": "' + "a" * 1_000_000 + '"}]'))


@pytest.mark.parametrize(
    ("categories", "says"),
    [
        (("cpu_op", "user_annotation"), "only the CPU was recorded"),
        (("cpu_op", "mtia_ccp_events"), "MTIA"),
        (("cpu_op", "xpu_runtime"), "Intel's XPU"),
        (("cpu_op", "mlu_runtime", "kernel"), "Cambricon's MLU"),
        (("toplevel",), "no event of torch.profiler"),
    ],
)
def test_other_devices_are_named(categories: tuple[str, ...], says: str, tmp_path: Path) -> None:
    """A CPU alone, and accelerators that are no GPU of NVIDIA or AMD."""
    path = written(tmp_path / "t.json", [event(each, "x", 1, 1) for each in categories])
    assert says in why_no_device(read_trace(path))

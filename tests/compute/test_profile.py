"""The window itself: with torch's real profiler on the CPU, and with a fake of its records."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity

from loaderprobe.compute import profile as module
from loaderprobe.compute.kineto import RawEvent
from loaderprobe.compute.profile import (
    Device,
    Stamps,
    clock_offset_ns,
    play,
    raw_events,
    record_window,
    thread_numbers,
    trace,
)
from loaderprobe.errors import LoaderprobeError
from tests.compute.test_kineto import kernel, synchronize


def device(step: Callable[[Any], Any], synchronize: Callable[[], None] = lambda: None) -> Device:
    return Device(
        name="Fake GPU", index=0, limits=None, step=step, synchronize=synchronize, backward_threads=frozenset,
        activities=(ProfilerActivity.CPU,),
    )  # fmt: skip


class Played:
    """A device that notes its calls, in order."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def feed(self, count: int) -> Iterator[Any]:
        self.notes.append(f"feed {count}")
        for _ in range(count):
            self.notes.append("next")
            yield torch.ones(4, 4)

    def device(self) -> Device:
        return device(lambda batch: self.notes.append("step"), lambda: self.notes.append("synchronize"))


def test_a_window_begins_and_ends_on_an_idle_device() -> None:
    """After the warm-up and after the last step the device is waited for, before the profiler hears of the step."""
    played = Played()
    stamps = play(played.feed(5), played.device(), 3, 2, lambda: played.notes.append("on_step"))
    one, last = ["next", "step", "on_step"], ["next", "step", "synchronize", "on_step"]
    assert played.notes == ["feed 5", *one, *last, *one, *one, *last]
    times = list(itertools.chain(*zip(stamps.wait_begin_ns, stamps.wait_end_ns, strict=True)))
    assert [stamps.begin_ns, *times, stamps.end_ns] == sorted([stamps.begin_ns, *times, stamps.end_ns])


def test_the_real_profiler_records_the_steps_of_the_window_and_only_those() -> None:
    """On the CPU one product a step, on time.time_ns()'s clock, without kernels; none of the warm-up."""
    product = device(lambda batch: batch @ batch)
    stamps, events = trace(lambda count: iter([torch.ones(16, 16)] * count), product, steps=5, warm_up=3)
    products = [event for event in events if event.name == "aten::mm"]
    assert len(products) == 5
    assert all(stamps.begin_ns <= e.begin_ns <= e.end_ns <= stamps.end_ns for e in products)
    assert {e.resource for e in products} <= thread_numbers()
    assert not any(e.on_gpu for e in events)
    assert any(e.annotation for e in events)
    with pytest.raises(LoaderprobeError, match="no kernel launched"):
        record_window(lambda count: iter([torch.ones(4, 4)] * count), product, steps=2, warm_up=3, batch_size=4)


def test_a_window_becomes_a_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps are played twice, with and without the profiler; its records and the stamps go into one record."""
    played = Played()

    def traced(feed: Any, device: Device, steps: int, warm_up: int) -> tuple[Stamps, list[RawEvent]]:
        stamps = play(feed(warm_up + steps), device, steps, warm_up, lambda: None)
        shift = stamps.begin_ns - kernel(10, 11)[1].begin_ns + 10_000
        own = threading.get_native_id()
        events = [*kernel(10, 11, thread=own), *synchronize(11, 12, thread=own)]
        moved = [e._replace(begin_ns=e.begin_ns + shift, end_ns=e.end_ns + shift) for e in events]
        stamps.end_ns = stamps.begin_ns + 20_000
        return stamps, moved

    monkeypatch.setattr(module, "trace", traced)
    found = record_window(played.feed, played.device(), steps=4, warm_up=3, batch_size=16)
    assert played.notes.count("feed 7") == 2
    assert (found.device, found.steps, found.batch_size, found.launches) == ("Fake GPU", 4, 16, 1)
    assert found.step_begin_ns == found.wait_begin_ns
    assert len(found.wait_end_ns) == 4
    assert found.plain_ns > 0
    assert found.records.kind == ("kernel",)
    assert all(found.calls.training)


class Event:
    """One of kineto's, as torch 2.11 shows it."""

    def __init__(self, fields: str, on_gpu: bool = True) -> None:
        self.fields, self.on_gpu = fields, on_gpu

    def device_type(self) -> Any:
        kinds = torch._C._autograd.DeviceType
        return kinds.CUDA if self.on_gpu else kinds.CPU

    def metadata_json(self) -> str:
        return self.fields

    def __getattr__(self, name: str) -> Any:
        known = {
            "name": "kernel", "device_index": 0, "device_resource_id": 7, "start_ns": 10, "end_ns": 20,
            "correlation_id": 3, "is_user_annotation": False,
        }  # fmt: skip
        if name not in known:
            raise AttributeError(name)
        return lambda: known[name]


def test_events_of_an_older_torch_become_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without activities; kernels have the fields that can be read, none where torch names its settings otherwise."""
    (found,) = raw_events([Event('"grid": [4, 1, 1], "stream": 7')])
    assert (found.activity, found.name, found.resource, found.correlation) == (None, "kernel", 7, 3)
    assert found.details == {"grid": [4, 1, 1], "stream": 7}
    assert [each.details for each in raw_events([Event(""), Event('"name": "a"b"'), Event("1", on_gpu=False)])] == [
        {}, {}, {},
    ]  # fmt: skip
    monkeypatch.setattr(torch._C, "_profiler", SimpleNamespace(_ExperimentalConfig=object))
    assert module._experimental() is None


def test_a_thread_is_known_by_all_its_numbers() -> None:
    """The kernel's, and the library's cut to 32 bits, signed or not; other threads have others."""
    others: list[frozenset[int]] = []
    thread = threading.Thread(target=lambda: others.append(thread_numbers()))
    thread.start()
    thread.join()
    mine = thread_numbers()
    assert threading.get_native_id() in mine
    assert threading.get_ident() & 0xFFFFFFFF in mine
    assert any(
        -(2**31) <= number < 2**31 and number & 0xFFFFFFFF == threading.get_ident() & 0xFFFFFFFF for number in mine
    )
    assert not mine & others[0]


def test_the_distance_of_the_clocks_is_known_closely() -> None:
    """Within what lies between two readings of both."""
    before = time.time_ns() - time.monotonic_ns()
    assert abs(clock_offset_ns() - before) < 50_000_000

"""Records of real GPUs, cut to two steps each: fixtures/traces says whose they are."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.analyze.gpu import attribute, syncs_per_step, use_of
from loaderprobe.compute.kineto import DeviceLimits, RawEvent, Window, convert, occupancy
from loaderprobe.records.measurement import Timeline, communicates
from loaderprobe.records.verdict import TIME_PARTS

TRACES = Path(__file__).parents[3] / "fixtures" / "traces"
OLD = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime"}
WORK, CALLS = {"kernel", "gpu_memcpy", "gpu_memset"}, {"cuda_runtime", "cuda_driver"}
NVIDIA = ("v100_2106_w0_a", "hta_diff_control", "param_resnet", "tl_h100_nsfw")
NAMES = (*NVIDIA, "v100_2101_w4", "tl_mi300_ddp_resnet18")


def ns(microseconds: Any) -> int:
    return int(Decimal(str(microseconds)) * 1000)


def load(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(the first GPU's properties, the events)."""
    with gzip.open(TRACES / f"{name}.json.gz", "rt") as file:
        whole = json.load(file, parse_float=Decimal)
    if isinstance(whole, list):
        return {}, whole
    return whole["deviceProperties"][0], whole["traceEvents"]


def raw(event: dict[str, Any]) -> RawEvent:
    kind, arguments = OLD.get(event["cat"], event["cat"]), event["args"]
    begin = ns(event["ts"])
    return RawEvent(
        name=event["name"],
        activity=kind,
        on_gpu=kind in WORK,
        device=arguments.get("device", 0),
        resource=arguments["stream"] if kind in WORK else int(event["tid"]),
        begin_ns=begin,
        end_ns=begin + ns(event["dur"]),
        correlation=arguments["correlation"],
        annotation=False,
        details=arguments if kind in WORK else {},
    )


def recorded(name: str) -> Timeline:
    """The steps from the first mark of a step, of a batch asked for, or of a finished update."""
    gpu, events = load(name)
    records = [raw(e) for e in events if OLD.get(e["cat"], e["cat"]) in WORK | CALLS]
    marks = {words: [e for e in events if e["name"].startswith(words)] for words in ("Prof", "enumerate", "Optimizer")}
    first = next(found for found in marks.values() if found)[0]
    begin = ns(first["ts"]) + (ns(first["dur"]) if first in marks["Optimizer"] else 0)
    waits = tuple((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in marks["enumerate"])
    end = max(e.end_ns for e in records)
    window = Window(
        begin_ns=begin, end_ns=end, device=gpu.get("id", 0), training_threads=frozenset({int(first["tid"])}),
        limits=DeviceLimits.recorded(gpu), waits=waits, whole=False,
    )  # fmt: skip
    found = convert(records, window)
    return Timeline(
        device=gpu.get("name", ""), steps=1 if name == "tl_h100_nsfw" else 2, batch_size=0, begin_ns=begin,
        end_ns=end, wait_begin_ns=tuple(b for b, _ in waits), wait_end_ns=tuple(e for _, e in waits),
        step_begin_ns=(), names=found.names, records=found.records, calls=found.calls, rejected=found.rejected,
        launches=found.launches, launches_without_record=found.launches_without_record, plain_ns=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "largest"),
    [
        ("v100_2106_w0_a", {"compute": 56.9, "input": 32.1, "launch": 8.4, "device": 1.3, "copy": 1.2, "sync": 0.2}),
        ("v100_2101_w4", {"compute": 58.2, "launch": 37.1, "copy": 2.3, "device": 1.4, "input": 0.5, "sync": 0.4}),
        ("hta_diff_control", {"compute": 63.2, "communication": 18.8, "launch": 11.5, "copy": 4.0, "device": 2.0}),
        ("param_resnet", {"compute": 44.0, "input": 45.4, "launch": 5.2, "copy": 5.1, "sync": 0.2}),
        ("tl_h100_nsfw", {"compute": 15.7, "launch": 79.0, "device": 3.3, "sync": 2.0}),
        ("tl_mi300_ddp_resnet18", {"compute": 6.9, "sync": 93.0, "launch": 0.1}),
    ],
)
def test_each_cause_has_its_time(name: str, largest: dict[str, float]) -> None:
    """In percent of the window, as a reader that shares no code with this one splits the same files."""
    timeline = recorded(name)
    gaps = attribute(timeline).gaps_of(timeline.steps)
    found = {str(part): gaps.share(part) for part in TIME_PARTS}
    # That reader has no `unknown`: what the device took after the call counts as the device's.
    found["device"] += found.pop("unknown")
    assert {cause: 100 * found[cause] for cause in largest} == pytest.approx(largest, abs=0.15)
    assert sum(found.values()) == pytest.approx(1)


@pytest.mark.parametrize("name", NAMES)
def test_real_records_are_all_kept_and_none_is_taken_for_the_loaders(name: str) -> None:
    """Also where NCCL runs for longer than what the training thread launches, and on AMD's GPUs."""
    timeline = recorded(name)
    assert timeline.rejected == ()
    assert timeline.launches_without_record == 0 < timeline.launches
    assert not any(timeline.records.loader)
    exchanged = any(communicates(each) for each in timeline.names)
    assert exchanged == (name == "hta_diff_control")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v100_2106_w0_a", 2),  # images and labels, from pageable memory
        ("param_resnet", 2),
        ("hta_diff_control", 10),  # .item(): each is a copy and a wait for the stream
        ("tl_mi300_ddp_resnet18", 564),  # hipMalloc and hipFree: there is no caching allocator
    ],
)
def test_waits_for_the_device_are_counted_once(name: str, expected: float) -> None:
    """By step; copies within the device are none."""
    assert syncs_per_step(recorded(name), own=0) == expected


@pytest.mark.parametrize("name", NVIDIA)
def test_occupancy_is_that_of_the_profiler(name: str) -> None:
    """Within its rounding for every kernel for which it gives one: capabilities 7.0, 7.5, 8.0 and 9.0."""
    gpu, events = load(name)
    limits = DeviceLimits.recorded(gpu)
    kernels = [e["args"] for e in events if e.get("cat") in ("Kernel", "kernel")]
    given = [each for each in kernels if each["est. achieved occupancy %"]]
    assert len(given) > 50
    for each in given:
        assert occupancy(each, limits) == pytest.approx(float(each["est. achieved occupancy %"]) / 100, abs=0.0101), (
            each
        )
    assert use_of(recorded(name)).occupancy_coverage == 1


def test_of_amds_gpus_no_occupancy_is_known() -> None:
    """Their records have no registers, and warps of 64 threads."""
    use = use_of(recorded("tl_mi300_ddp_resnet18"))
    assert (use.occupancy_estimated, use.sm_efficiency_estimated, use.occupancy_coverage) == (None, None, 0)
    assert use.kernel_busy == use.training_busy > 0

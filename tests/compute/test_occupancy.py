"""Occupancy from the shape of a launch."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace
from typing import Any

import pytest

from loaderprobe.compute.kineto import DeviceLimits, blocks_per_sm, occupancy
from tests.examples.traces import FIXTURES

HOPPER = DeviceLimits(sm_count=132)


def launch(**changes: Any) -> dict[str, Any]:
    """Enough blocks of 256 threads for every SM."""
    return {"grid": [1320, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0} | changes


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1.0),
        ({"registers per thread": 128}, 0.25),
        ({"shared memory": 65536}, 0.375),
        ({"shared memory": 65536, "registers per thread": 128}, 0.25),
        ({"shared memory": 200 * 1024, "block": [384, 1, 1]}, 0.1875),
        ({"block": [32, 1, 1]}, 10 * 32 / 2048),
        ({"block": [32, 1, 1], "grid": [132 * 64, 1, 1]}, 0.5),
        ({"grid": [66, 1, 1]}, 0.0625),
    ],
)
def test_the_scarcest_resource_decides(changes: dict[str, Any], expected: float) -> None:
    """Worked out by hand for an SM of 64 warps, 65536 registers, 228 KiB and 32 blocks."""
    assert occupancy(launch(**changes), HOPPER) == pytest.approx(expected)


def test_above_48_kib_the_profilers_zero_is_not_believed() -> None:
    """It is computed again, and unknown where the device is not known; a zero below may be true."""
    told = launch(**{"shared memory": 65536, "est. achieved occupancy %": 0})
    assert occupancy(told, HOPPER) == pytest.approx(0.375)
    assert occupancy(told, None) is None
    assert occupancy(launch(**{"est. achieved occupancy %": 0}), None) == 0.0
    assert occupancy(launch(**{"est. achieved occupancy %": 37}), None) == pytest.approx(0.37)
    assert occupancy({"est. achieved occupancy %": 0}, HOPPER) is None


def test_what_is_not_known_is_none() -> None:
    """No fields, no device, or a launch that fits no SM as we know it."""
    assert occupancy({}, HOPPER) is None
    assert blocks_per_sm({}, HOPPER) is None
    assert occupancy(launch(**{"shared memory": 300 * 1024}), HOPPER) is None
    assert blocks_per_sm(launch(), HOPPER) == 10.0
    assert blocks_per_sm({"blocks per SM": 2.5}, None) == 2.5


V100 = {
    "name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0, "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 98304, "numSms": 80,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Two blocks take all of the shared memory: nothing of it is reserved.
        ({"grid": [64, 7, 4], "registers per thread": 126, "shared memory": 49152}, 0.25),
        # A warp takes 2816 registers: 5 fit each quarter of 16384, so 20 and not 23 fit the SM.
        ({"grid": [32, 2, 32], "block": [8, 8, 1], "registers per thread": 88, "shared memory": 3328}, 0.3125),
    ],
)
def test_before_capability_8_no_shared_memory_is_reserved(changes: dict[str, Any], expected: float) -> None:
    """Two kernels of a V100, with the figures of CUDA's own calculation in its trace."""
    assert occupancy(launch(**changes), DeviceLimits.recorded(V100)) == pytest.approx(expected)


def test_limits_come_from_a_trace() -> None:
    """By kineto's names; of AMD's GPUs it records too few."""
    assert DeviceLimits.recorded(V100) == DeviceLimits(sm_count=80, shared_bytes_per_sm=98304, reserved_bytes=0)
    ampere = DeviceLimits.recorded(V100 | {"computeMajor": 8})
    assert ampere is not None
    assert ampere.reserved_bytes == 1024
    mi300x = {"name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 304, "warpSize": 64,
              "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 131072, "sharedMemPerBlock": 65536}  # fmt: skip
    assert DeviceLimits.recorded(mi300x) is None


def test_limits_come_from_the_device() -> None:
    """Consumer GPUs hold fewer blocks; a torch that reports too little gives none."""
    properties = SimpleNamespace(
        multi_processor_count=128, max_threads_per_multi_processor=1536, regs_per_multiprocessor=65536,
        shared_memory_per_multiprocessor=102400, major=8, minor=9,
    )  # fmt: skip
    assert DeviceLimits.of(properties) == DeviceLimits(
        sm_count=128, threads_per_sm=1536, shared_bytes_per_sm=102400, blocks_per_sm=24
    )
    assert DeviceLimits.of(SimpleNamespace(multi_processor_count=128)) is None


@pytest.mark.parametrize("name", ["v100_2106_w0_a", "hta_diff_control", "param_resnet", "tl_h100_nsfw"])
def test_occupancy_is_that_of_the_profiler(name: str) -> None:
    """Within its rounding for every kernel for which it gives one: capabilities 7.0, 7.5, 8.0 and 9.0."""
    whole = json.loads(gzip.decompress((FIXTURES / f"{name}.json.gz").read_bytes()))
    limits = DeviceLimits.recorded(whole["deviceProperties"][0])
    kernels = [each["args"] for each in whole["traceEvents"] if each.get("cat") in ("Kernel", "kernel")]
    given = [kernel for kernel in kernels if kernel["est. achieved occupancy %"]]
    assert len(given) > 50
    for kernel in given:
        assert occupancy(kernel, limits) == pytest.approx(kernel["est. achieved occupancy %"] / 100, abs=0.0101), kernel

"""What is not known of a GPU until it is asked: its name in NVML, GPM, what the profiler records and loses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

UNPRIVILEGED = 65534
GPM_NAMES = ("GRAPHICS_UTIL", "SM_UTIL", "SM_OCCUPANCY", "ANY_TENSOR_UTIL", "DRAM_BW_UTIL", "PCIE_RX_PER_SEC",
             "PCIE_TX_PER_SEC", "NVJPG_0_UTIL")  # fmt: skip
# Of GPM's own refresh; NVIDIA asks for more than 0.1 s.
GPM_SECONDS = 0.5
SESSIONS = 4
IDLE_SECONDS = 2.0


def outcome(call: Callable[[], Any]) -> Any:
    """What it returns, or how it failed."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  # how it fails is the fact
        return {"error": f"{type(error).__name__}: {error}", "value": getattr(error, "value", None)}


def gpu(batch_size: int = 64, **options: Any) -> tuple[Any, Any]:
    """A trainer on the GPU, warmed up, and a batch that stays there."""
    import torch

    from loaderprobe.compute.torch import CudaCompute
    from loaderprobe.measure.clock import SystemClock
    from loaderprobe.testing import example_arguments

    compute = CudaCompute(example_arguments(SystemClock(), compute="cuda", batch_size=batch_size, **options))
    batch = compute.copy((torch.randn(batch_size, 3, 224, 224), torch.randint(0, 1000, (batch_size,))))
    for _ in range(10):
        compute.step(batch)
    compute.finish()
    return compute, batch


def identity(out: Path, seconds: float) -> dict[str, Any]:
    """The forms of the UUID, and whether NVML finds the GPU by them."""
    import pynvml
    import torch

    from loaderprobe.compute.torch import CudaCompute
    from loaderprobe.measure.clock import SystemClock
    from loaderprobe.testing import example_arguments

    raw = str(torch.cuda.get_device_properties(0).uuid)
    pynvml.nvmlInit()
    ours = CudaCompute(example_arguments(SystemClock(), compute="cuda")).uuid()

    def name(uuid: str) -> str:
        return str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByUUID(uuid)))

    properties = torch.cuda.get_device_properties(0)
    return {
        "str_uuid": raw,
        "has_prefix": raw.startswith(("GPU-", "MIG-")),
        "found_by_ours": outcome(lambda: name(ours)),
        "found_by_raw": outcome(lambda: name(raw)),
        "driver": outcome(lambda: str(pynvml.nvmlSystemGetDriverVersion())),
        "properties": sorted(n for n in dir(properties) if not n.startswith("_")),
        "shared_memory_per_sm": getattr(properties, "shared_memory_per_multiprocessor", None),
        "registers_per_sm": getattr(properties, "regs_per_multiprocessor", None),
    }


def gpm(out: Path, seconds: float) -> dict[str, Any]:
    """GPM while the GPU trains, and, from root, GPM as another user."""
    compute, batch = gpu()
    found: dict[str, Any] = {"user_id": os.geteuid()}

    def work() -> None:
        end = time.monotonic() + GPM_SECONDS
        while time.monotonic() < end:
            for _ in range(5):
                compute.step(batch)
            compute.finish()

    found["training"] = outcome(lambda: read_gpm(compute.uuid(), work))
    found["idle"] = outcome(lambda: read_gpm(compute.uuid(), lambda: time.sleep(GPM_SECONDS)))
    if os.geteuid() == 0:
        found["as_unprivileged"] = outcome(lambda: as_unprivileged(compute.uuid()))
    return found


def read_gpm(uuid: str, work: Callable[[], None]) -> dict[str, Any]:
    """Metrics between two samples; for each that is not there, NVML's status."""
    import pynvml as nvml

    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
        return {"supported": False}
    first, second = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
    try:
        nvml.nvmlGpmSampleGet(handle, first)
        work()
        nvml.nvmlGpmSampleGet(handle, second)
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.sample1, asked.sample2 = nvml.NVML_GPM_METRICS_GET_VERSION, first, second
        names = [name for name in GPM_NAMES if hasattr(nvml, f"NVML_GPM_METRIC_{name}")]
        asked.numMetrics = len(names)
        for place, name in enumerate(names):
            asked.metrics[place].metricId = getattr(nvml, f"NVML_GPM_METRIC_{name}")
        nvml.nvmlGpmMetricsGet(asked)
        reported = {name: asked.metrics[place] for place, name in enumerate(names)}
        return {
            "supported": True,
            "metrics": {n: m.value if m.nvmlReturn == 0 else {"status": m.nvmlReturn} for n, m in reported.items()},
        }
    finally:
        nvml.nvmlGpmSampleFree(first)
        nvml.nvmlGpmSampleFree(second)


def as_unprivileged(uuid: str) -> Any:
    """The same, idle, in a process without root's rights."""
    code = (
        "import json,os,sys,time; sys.path[:0]=json.loads(sys.argv[2]); import gpu_check_facts as f, pynvml;"
        f"os.setgid({UNPRIVILEGED}); os.setuid({UNPRIVILEGED});"
        "print(json.dumps(f.outcome(lambda: f.read_gpm(sys.argv[1], lambda: time.sleep(f.GPM_SECONDS)))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, uuid, json.dumps(sys.path)], capture_output=True, text=True, timeout=30
    )  # fmt: skip
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-500:]}


def sessions(out: Path, seconds: float) -> dict[str, Any]:
    """Profiler sessions one after the other in one process, each after idling: what is recorded, and what is lost.

    A later session may lose its first records (pytorch issue 192021); the product has one in a process.
    """
    from torch.profiler import ProfilerActivity

    compute, batch = gpu()
    found: dict[str, Any] = {}
    for warm_up in (1, 3):
        found[f"warm_up_{warm_up}"] = [
            session(compute, batch, (ProfilerActivity.CUDA,), warm_up) for _ in range(SESSIONS)
        ]  # fmt: skip
    found["with_cpu"] = session(compute, batch, (ProfilerActivity.CPU, ProfilerActivity.CUDA), 3)
    return found


def session(compute: Any, batch: Any, activities: Any, warm_up: int, steps: int = 20) -> dict[str, Any]:
    import torch

    from loaderprobe.compute.kineto import KERNEL_LAUNCH, DeviceLimits, Window, convert, device_kind
    from loaderprobe.compute.profile import Stage, play, thread_numbers, trace

    time.sleep(IDLE_SECONDS)
    stage = Stage(step=compute.step, synchronize=torch.cuda.synchronize, activities=activities)
    feed: Callable[[int], Any] = lambda count: repeat(batch, count)  # noqa: E731  # it is one expression
    plain = play(feed(warm_up + steps), stage, steps, warm_up, lambda: None)
    stamps, events = trace(feed, stage, steps, warm_up)
    backward = compute._trainer.backward_threads
    properties = torch.cuda.get_device_properties(0)
    window = Window(
        begin_ns=stamps.begin_ns, end_ns=stamps.end_ns, device=0, training_threads=thread_numbers(),
        backward_threads=backward - thread_numbers(), limits=DeviceLimits.of(properties),
    )  # fmt: skip
    launches = [e for e in events if not e.on_gpu and KERNEL_LAUNCH.match(e.name)]
    recorded = {e.correlation for e in events if e.on_gpu}
    lost = [place for place, e in enumerate(launches) if e.correlation not in recorded]
    kernels = [e for e in events if e.on_gpu and device_kind(e) == "kernel"]
    converted = outcome(lambda: convert(events, window))
    compute.finish()
    return {
        "plain_ms": (plain.end_ns - plain.begin_ns) / 1e6,
        "profiled_ms": (stamps.end_ns - stamps.begin_ns) / 1e6,
        "overhead": (stamps.end_ns - stamps.begin_ns) / (plain.end_ns - plain.begin_ns) - 1,
        "events": len(events),
        "activities": Counter(str(e.activity) for e in events),
        "annotations": sum(e.annotation for e in events),
        "aten_ops": sum(e.name.startswith("aten::") for e in events),
        "calls": Counter(e.name for e in events if not e.on_gpu and e.name.startswith("cu")).most_common(20),
        "kernels": len(kernels),
        "launches": len(launches),
        "lost": len(lost),
        "first_lost": lost[:10],
        "launch_threads": Counter(e.resource for e in launches).most_common(),
        "training_thread": sorted(thread_numbers()),
        "backward_threads": sorted(backward),
        "streams": Counter(e.resource for e in kernels).most_common(),
        "kernel_fields": kernels[0].details if kernels else {},
        "above_48_kib": occupancies(kernels, window),
        "converted": converted if isinstance(converted, dict) else converted_facts(converted),
        "clock_shift_ns": stamps.shift_ns,
    }


def occupancies(kernels: list[Any], window: Any) -> list[Any]:
    """(shared memory, what the profiler says in percent, what is computed) of some kernels of much shared memory."""
    from loaderprobe.compute.kineto import occupancy

    large = {k.name: k for k in kernels if k.details.get("shared memory", 0) > 49152}
    return [
        [k.details["shared memory"], k.details.get("est. achieved occupancy %"), occupancy(k.details, window.limits)]
        for k in list(large.values())[:8]
    ]


def converted_facts(found: Any) -> dict[str, Any]:
    return {
        "records": Counter(found.records.kind),
        "calls": Counter(found.calls.kind),
        "rejected": {each.reason: each.count for each in found.rejected},
        "launches": found.launches,
        "launches_without_record": found.launches_without_record,
        "loader_kernels": sum(found.records.loader),
        "training_calls": sum(found.calls.training),
        "without_occupancy": sum(o is None for o in found.records.occupancy),
    }


def trace(out: Path, seconds: float) -> dict[str, Any]:
    """Three steps for a trace viewer."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    compute, batch = gpu()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as running:
        for _ in range(3):
            compute.step(batch)
        torch.cuda.synchronize()
    path = out / "trace.json.gz"
    running.export_chrome_trace(str(path))
    return {"bytes": path.stat().st_size}

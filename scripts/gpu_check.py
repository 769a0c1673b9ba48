"""What only a GPU can show: a table of checks, each in a process of its own; results in OUT/results.json.

Exit codes: 0 all as it must be, 3 no GPU or a part is missing, 4 a check failed or found what must not be.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import torch

import loaderprobe
from loaderprobe.analyze import gpu
from loaderprobe.compute.kineto import DeviceLimits
from loaderprobe.compute.profile import Device, record_window
from loaderprobe.compute.torch import CudaCompute
from loaderprobe.measure.pace import Pace
from loaderprobe.measure.segments import train
from loaderprobe.records.remark import Remark
from loaderprobe.render.words import remark_words
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.samplers.recorded import DiskSampler, SamplerThread
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import example_arguments

MISSING, FAILED = 3, 4
LIMIT_S = 240.0
"""Of one check; the sweep takes two of its minutes."""
STEPS, WARM_UP, SIZE, SMALL = 30, 3, 256, 16
"""Images of a batch that keeps an H100 busy, and of one whose steps a host cannot launch fast enough."""
BUSY, IDLE = 0.9, 0.1
"""Shares of time: a GPU that trains, and one that does nothing."""
SAMPLED_S = 3.0
SPUN_CYCLES, TINY_KERNELS = 20_000_000, 3000
COPIED = 1024
"""Images that come over for each step on 16."""
ROUNDS, ROUND_BATCHES = 6, 20
LEAST_RATIO = 0.99
"""The instrument may cost 1 % of images/s."""

Figures = dict[str, Any]
"""What a check saw; `met` is whether that is as it must be."""


def trainer(batch_size: int = SIZE, **options: Any) -> tuple[Any, Any]:
    """A model that trains on the GPU, warmed up, and a batch that stays there."""
    compute = CudaCompute(example_arguments(SystemClock(), compute="cuda", batch_size=batch_size, **options))
    batch = compute.copy((torch.randn(batch_size, 3, 224, 224), torch.randint(0, 1000, (batch_size,))))
    burst(compute, batch, steps=10)
    return compute, batch


def burst(compute: Any, batch: Any, steps: int = 5) -> None:
    """So many steps on a batch, whose end is waited for."""
    for _ in range(steps):
        compute.step(batch)
    compute.finish()


def sampled(uuid: str, work: Callable[[], object]) -> Figures:
    """The mean of each counter of the GPU while this works, and the reason of each that is missing."""
    with SamplerThread([DiskSampler(SystemClock(), ()), NvmlSampler(SystemClock(), uuid)]) as thread:
        end_s = time.monotonic() + SAMPLED_S
        while time.monotonic() < end_s:
            work()
    series, missing = thread.collected()
    means = {gauge.name: sum(gauge.values) / len(gauge.values) for gauge in series if gauge.name.startswith("gpu_")}
    return {**means, "missing": {gauge.name: remark_words(gauge.reason) for gauge in missing}}


def windowed(compute: Any, step: Callable[[Any], None], batches: Iterable[Any] = repeat(None)) -> Figures:
    """A profiler window of a step on each of these batches, as many as it takes; read as the product reads it."""
    limits = DeviceLimits.of(torch.cuda.get_device_properties(0))
    device = Device(
        name="GPU", index=0, limits=limits, step=step, synchronize=torch.cuda.synchronize,
        backward_threads=lambda: compute._trainer.backward_threads,
    )  # fmt: skip
    timeline = record_window(partial(islice, batches), device, steps=STEPS, warm_up=WARM_UP, batch_size=SIZE)
    compute.finish()
    split = gpu.attribute(timeline).gaps_of(STEPS)
    at_own_pace = gpu.without_profiler(split, timeline)
    refused = gpu.why_refused(timeline) or (at_own_pace if isinstance(at_own_pace, Remark) else None)
    gaps = split if isinstance(at_own_pace, Remark) else at_own_pace
    use = gpu.use_of(timeline, gaps.window_ns)
    shares = {"input": gaps.share("input", "loader"), "copy": gaps.share("copy"), "host": gaps.share("launch", "sync")}
    records = list(zip(timeline.records.kind, timeline.records.begin_ns, timeline.records.end_ns, strict=True))
    copies, kernels = (gpu.merge((b, e) for kind, b, e in records if kind == name) for name in ("h2d", "kernel"))
    return {
        "named": "busy" if use.training_busy > BUSY else max(shares, key=lambda name: shares[name]),
        "busy": use.training_busy, "busy_profiled": split.share("compute"), "shares": shares,
        "refused": refused and refused.code,
        "sm_efficiency": use.sm_efficiency_estimated, "occupancy": use.occupancy_estimated,
        "overhead": gpu.overhead_of(timeline), "launches": timeline.launches,
        "launches_without_record": timeline.launches_without_record,
        "copies_beside_kernels": gpu.total(gpu.intersect(copies, kernels)) / gpu.total(copies) if copies else None,
    }  # fmt: skip


def named(cause: str, figures: Figures, *more: bool) -> Figures:
    return {**figures, "planted": cause, "met": figures["named"] == cause and figures["refused"] is None and all(more)}


def counters() -> Figures:
    """NVML, and GPM on Hopper and newer, read a GPU that trains as busy, and an idle one as idle."""
    compute, batch = trainer()
    training = sampled(compute.uuid(), partial(burst, compute, batch))
    idle = sampled(compute.uuid(), lambda: time.sleep(0.1))
    met = training.get("gpu_utilization", 0.0) > BUSY and idle.get("gpu_utilization", 1.0) < IDLE
    if "gpu_sm_utilization" in training:
        met &= training["gpu_sm_utilization"] > 0.5 and idle["gpu_sm_utilization"] < IDLE
        met &= IDLE < training["gpu_sm_occupancy"] <= 1.0
    return {"training": training, "idle": idle, "met": met}


def one_block() -> Figures:
    """A kernel of one block keeps the GPU busy and one SM of all: NVML, GPM and the kernel's grid say so."""
    compute, _ = trainer()
    one_sm = 1 / torch.cuda.get_device_properties(0).multi_processor_count

    def spin(_: object = None) -> None:
        torch.cuda._sleep(SPUN_CYCLES)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def spin_and_wait() -> None:
        spin()
        torch.cuda.synchronize()

    counted, window = sampled(compute.uuid(), spin_and_wait), windowed(compute, spin)
    estimated = window["sm_efficiency"]
    met = window["busy"] > BUSY and estimated is not None and abs(estimated / one_sm - 1) < IDLE
    met &= counted.get("gpu_utilization", 0.0) > BUSY and counted.get("gpu_sm_utilization", 0.0) < max(3 * one_sm, 0.05)
    return {"one_sm": one_sm, "sampled": counted, "window": window, "met": met}


def small() -> Figures:
    """Steps that the host launches too slowly: without the profiler's cost the window is as busy as by counters."""
    compute, batch = trainer(SMALL)
    counted = sampled(compute.uuid(), partial(burst, compute, batch))
    window = windowed(compute, lambda _: compute.step(batch))
    agrees = abs(counted.get("gpu_utilization", 2.0) - window["busy"]) < IDLE
    return {"sampled": counted, "window": window, "met": agrees and window["refused"] is None}


def resident() -> Figures:
    """Nothing is planted: the GPU is busy, every kernel has an occupancy, the window is not refused."""
    compute, batch = trainer()
    figures = windowed(compute, lambda _: compute.step(batch))
    return named("busy", figures, figures["launches"] > 100 * STEPS, figures["occupancy"] is not None)


def starved() -> Figures:
    """A loader that sleeps for twice the time of a step is called input."""
    compute, batch = trainer()
    begin_s = time.monotonic()
    burst(compute, batch, steps=10)
    step_s = (time.monotonic() - begin_s) / 10

    return named("input", windowed(compute, lambda _: compute.step(batch), map(time.sleep, repeat(2 * step_s))))


def pageable() -> Figures:
    """Copies of many images from pageable memory are called copy."""
    compute, batch = trainer(16)
    images = torch.randn(COPIED, 3, 224, 224), torch.randint(0, 1000, (COPIED,))

    def step(_: object) -> None:
        compute.copy(images)
        compute.step(batch)

    return named("copy", windowed(compute, step))


def overlap() -> Figures:
    """Copies of pinned batches on a stream of their own run beside kernels, and no time goes to them."""
    compute, _ = trainer(side_stream=True)
    images = torch.randn(SIZE, 3, 224, 224).pin_memory(), torch.randint(0, 1000, (SIZE,)).pin_memory()
    figures = windowed(compute, lambda given: compute.step(compute.copy(given)), repeat(images))
    return named("busy", figures, (figures["copies_beside_kernels"] or 0.0) > 0.8)


def item() -> Figures:
    """A figure that is read in every small step is called host: launches begin on an empty GPU."""
    compute, batch = trainer(8)
    figure = torch.ones(1, device="cuda")

    def step(_: object) -> None:
        compute.step(batch)
        figure.add_(1).item()

    return named("host", windowed(compute, step))


def tiny() -> Figures:
    """Kernels that are shorter than their own launch are called host."""
    compute, _ = trainer(8)
    figure = torch.ones(1, device="cuda")

    def step(_: object) -> None:
        for _ in range(TINY_KERNELS):
            figure.add_(1)

    return named("host", windowed(compute, step))


def overhead() -> Figures:
    """The measured loop reaches 99 % of the images/s of a bare one, in turn, over a resident batch."""
    compute, batch = trainer()
    clock, pace = SystemClock(), Pace(min_batches=ROUND_BATCHES, max_batches=ROUND_BATCHES)

    def bare_s() -> float:
        begin_s = time.monotonic()
        for _ in range(ROUND_BATCHES):
            compute._trainer.train_step(batch)
        torch.cuda.synchronize()
        return time.monotonic() - begin_s

    def measured_s() -> float:
        with SamplerThread([DiskSampler(clock, ()), NvmlSampler(clock, compute.uuid())]):
            begin_s = time.monotonic()
            train(repeat(batch), compute, clock, pace.enough)
            return time.monotonic() - begin_s

    ratios = sorted([bare_s() / measured_s() for _ in range(1 + ROUNDS)][1:])
    return {"measured_over_bare": ratios, "met": ratios[ROUNDS // 2] >= LEAST_RATIO}


def marked() -> Figures:
    """The tests that are marked gpu pass."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-q", "tests/compute"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"last_lines": (done.stdout + done.stderr).splitlines()[-8:], "met": done.returncode == 0}


def sweep() -> Figures:
    """A sweep of warm files, serial and with 16 workers, ends with a profiler window where compute limits."""
    with tempfile.TemporaryDirectory() as folder:
        run = loaderprobe.sweep(
            data_dir=folder, resolutions="256x256", workers=16, compute="cuda", model="resnet152",
            cache="warm", rounds=1, decoder="torchvision", out=Path(folder, "run"),
        )  # fmt: skip
        rows = json.loads(run.json())["configurations"]
    met = all(row["status"] == "measured" for row in rows) and any(row["gpu_window"] for row in rows)
    return {"configurations": rows, "met": met}


ALL = (counters, one_block, small, resident, starved, pageable, overlap, item, tiny, overhead, marked, sweep)
CHECKS: dict[str, Callable[[], Figures]] = {check.__name__: check for check in ALL}
"""Each says in its docstring what it proves."""


def in_process(name: str) -> Figures:
    """One check, which ends with its process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "figures.json")
        try:
            subprocess.run([sys.executable, __file__, "--check", name, "--out", str(out)], check=False, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return {"met": False, "failed": f"took more than {LIMIT_S:g} s"}
        figures: Figures = json.loads(out.read_text()) if out.exists() else {"met": False, "failed": "its process died"}
        return figures


def main() -> int:
    text = "\n".join([str(__doc__), *(f"{name:10} {check.__doc__}" for name, check in CHECKS.items())])
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="where results are written")
    parser.add_argument("--only", action="append", choices=CHECKS, metavar="CHECK", help="may be repeated")
    parser.add_argument("--check", choices=CHECKS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        why = f"no GPU: torch {torch.__version__} sees no CUDA device; run it where `nvidia-smi` shows one"
        print(f"gpu_check: {why}", file=sys.stderr)
        return MISSING
    if chosen.check:
        try:
            figures = CHECKS[chosen.check]()
        except Exception as error:  # noqa: BLE001  # what goes wrong in a check is its result
            traceback.print_exc()
            figures = {"met": False, "failed": f"{type(error).__name__}: {error}"}
        chosen.out.write_text(json.dumps(figures))
        return 0
    chosen.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Figures] = {}
    for name in chosen.only or CHECKS:
        results[name] = in_process(name)
        (chosen.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        print(f"{'yes' if results[name]['met'] else 'NO':3} {name:10} {CHECKS[name].__doc__}", flush=True)
    return 0 if all(figures["met"] for figures in results.values()) else FAILED


if __name__ == "__main__":
    sys.exit(main())

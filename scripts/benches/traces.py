"""Is `loaderprobe trace` right on recordings of real GPUs? Against figures of its own, and against published ones.

For every recording in a folder (fixtures/traces unless one is given): the share of time with a kernel, SM efficiency,
occupancy, communication alone and idle time inside next() are computed again from samples of the timeline, by code
that shares nothing with the product; they agree within half a point. Parts sum to the step. Recordings whose cause is
known by hand have it. Then the memory that a long recording takes, made of one of these.

Ends with code 1 when one of these does not hold.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import loaderprobe
from loaderprobe.records.resources import TIME_PARTS
from loaderprobe.records.trace import TraceRank
from scripts.benches.harness import parser

FIXTURES = Path(__file__).parents[2] / "fixtures" / "traces"
WITHIN = 0.5
"""Percentage points."""
SAMPLES = 2_000_000
LARGEST_MB = 300
"""Of memory."""
LEAST_KNOWN = 0.98
"""Of the kernels' time: with less, the profiler's occupancy is of other kernels than ours."""
CAUSES = {
    "v100_2106_w0_a": "input", "v100_2106_w0_b": "input", "v100_2106_w4_a": "host", "v100_2106_w4_b": "host",
    "v100_2101_w0": "either", "v100_2101_w4": "host", "param_resnet": "input", "hta_diff_control": "either",
    "hta_nccl_parser": "host", "tl_mi300_ddp_resnet18": "sync", "tl_h100_nsfw": "host",
}  # fmt: skip
"""By hand, of all steps on record. Of the two steps of a fixture, communication leads the host in hta_diff_control."""
PUBLISHED = {"v100_2106_w0_a": {"busy": 55.51, "sm": 54.68, "occupancy": 49.13, "next": 33.4}}
"""By the documentation of kineto's tb_plugin (README, screenshots), of all six steps."""
FIGURES = ("busy", "sm", "occupancy", "communication", "next")
WORK, CALLS = ("kernel", "gpu_memcpy", "gpu_memset"), ("cuda_runtime", "cuda_driver")
HOST = ("cpu_op", "user_annotation", "Operator")
TO_GPU = re.compile(r"HtoD|HostToDevice")
OLD = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime"}
CHILD = """
import re, sys
from pathlib import Path
from loaderprobe.api.trace import trace
report = trace(sys.argv[1])
print(re.search(r"VmHWM:\\s*([0-9]+)", Path("/proc/self/status").read_text())[1], report.steps)
"""
"""Prints kB of its own memory, and steps: ru_maxrss would count that of the process that started it."""


Span = tuple[float, float, dict[str, Any]]
"""Begin and end in microseconds, and the event."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Percent of the window; None where the recording has no such figure."""

    busy: float
    sm: float | None
    occupancy: float | None
    communication: float
    next: float | None


def whole_in(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, strict=False)


def spans_in(whole: Any) -> list[Span]:
    """All events that last, with the categories of today."""
    events = [event for event in (whole if isinstance(whole, list) else whole["traceEvents"]) if event.get("ph") == "X"]
    for event in events:
        event["cat"] = OLD.get(event.get("cat", ""), event.get("cat", ""))
    return [(float(e["ts"]), float(e["ts"]) + float(e.get("dur", 0)), e) for e in events]


def window(spans: Sequence[Span], rank: TraceRank, left_out: int) -> tuple[float, float]:
    """From the first step that counts to the end of the work that was issued in the last, and of its launches."""
    calls = {e["args"]["correlation"]: low for low, _, e in spans if e["cat"] in CALLS and "correlation" in e["args"]}
    work = [span for span in spans if span[2]["cat"] in WORK and span[2]["args"].get("device", 0) == rank.device]
    begin, last = min(low for low, *_ in work), max(high for _, high, _ in work)
    words = {
        "profiler_steps": "ProfilerStep",
        "batches": "enumerate(DataLoader)#",
        "optimizer_steps": "Optimizer.step#",
    }
    name = words.get(rank.marked, "no mark")
    marks = sorted(span[:2] for span in spans if span[2]["name"].startswith(name) and span[2]["cat"] in HOST)
    if rank.marked == "optimizer_steps":
        begin, last = marks[left_out][1], marks[left_out + rank.steps][1]
    elif marks:
        begin = marks[left_out][0]
        last = marks[left_out + rank.steps - 1][1] if rank.marked == "profiler_steps" else last
    issued = [end for _, end, e in work if begin <= calls.get(e["args"].get("correlation"), -1) < last]
    launching = [high for low, high, e in spans if e["cat"] in CALLS and "Launch" in e["name"] and begin <= low < last]
    return begin, max(issued + launching, default=last)


def blocks_per_sm(kernel: dict[str, Any], sms: int | None) -> float | None:
    """As the profiler has it, or from the grid and the GPU's SMs."""
    given, grid = (kernel["args"].get(name) for name in ("blocks per SM", "grid"))
    if given is not None or not sms or not grid:
        return None if given is None else float(given)
    return float(math.prod(grid) / sms)


def occupancy_of(kernel: dict[str, Any]) -> float | None:
    """The profiler's percentage; its 0 above 48 KiB of shared memory is none."""
    value = kernel["args"].get("est. achieved occupancy %")
    return None if value is None or (value == 0 and kernel["args"].get("shared memory", 0) > 48 << 10) else float(value)


def sampled(path: Path, rank: TraceRank, left_out: int) -> Sampled:
    """The figures from what runs at evenly spaced moments of the same steps."""
    whole = whole_in(path)
    spans, gpus = spans_in(whole), whole.get("deviceProperties", []) if isinstance(whole, dict) else []
    sms = next((gpu.get("numSms") for gpu in gpus if gpu["id"] == rank.device and not rank.amd), None)
    begin, end = window(spans, rank, left_out)
    step = (end - begin) / SAMPLES

    def active(subset: Sequence[Span], weights: Sequence[float | None] = ()) -> Any:
        edges = np.zeros(SAMPLES + 1)
        for number, (low, high, _) in enumerate(subset):
            first, last = (min(max(int(np.ceil((at - begin) / step)), 0), SAMPLES) for at in (low, high))
            weight = (weights[number] or 0) if weights else 1
            edges[first] += weight
            edges[last] -= weight
        return np.cumsum(edges)[:SAMPLES]

    work = [span for span in spans if span[2]["cat"] in WORK and span[2]["args"].get("device", 0) == rank.device]
    kernels = [span for span in work if span[2]["cat"] == "kernel"]
    exchange = [span for span in kernels if "nccl" in span[2]["name"].lower()]
    compute = [span for span in work if "nccl" not in span[2]["name"].lower() and not TO_GPU.search(span[2]["name"])]
    waits = [span for span in spans if "enumerate(DataLoader)#" in span[2]["name"] and span[2]["cat"] in HOST]
    blocks = [blocks_per_sm(span[2], sms) for span in kernels]
    inside = [(high - low, occupancy_of(e)) for low, high, e in kernels if begin <= low < end]
    achieved = [(length, value) for length, value in inside if value is not None]
    given = sum(length for length, _ in achieved)
    busy = active(kernels) > 0.5
    return Sampled(
        busy=100 * busy.mean(),
        sm=None if None in blocks else 100 * np.minimum(1, active(kernels, blocks)).mean(),
        occupancy=(
            sum(length * value for length, value in achieved) / given
            if given and given >= LEAST_KNOWN * sum(length for length, _ in inside)
            else None
        ),
        communication=100 * ((active(exchange) > 0.5) & ~(active(compute) > 0.5)).mean(),
        next=100 * ((active(waits) > 0.5) & ~busy).mean() if waits else None,
    )


def ours(rank: TraceRank) -> Sampled:
    """The same figures of the product. Idle inside next() is input, and what of next() lies within copies or calls."""
    percent = [
        None if share is None else 100 * share
        for share in (rank.use.sm_efficiency_estimated, rank.use.occupancy_estimated)
    ]
    return Sampled(
        busy=100 * rank.use.kernel_busy, sm=percent[0], occupancy=percent[1],
        communication=100 * rank.gaps.share("communication"),
        next=100 * rank.gaps.share("input") if rank.loader else None,
    )  # fmt: skip


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def checked(path: Path, whole: bool) -> tuple[TraceRank | None, bool]:
    """A line for one recording; (what was found, whether all holds)."""
    name = path.name.split(".")[0]
    try:
        rank = loaderprobe.trace(path).ranks[0]
    except loaderprobe.LoaderprobeError as error:
        print(f"{name:24}refused: {error.message.removeprefix(str(path)).strip()}")
        return None, name not in CAUSES
    left_out = next((int(n.facts["steps"]) for n in rank.notes if n.code == "first_steps_left_out"), 0)
    mine = ours(rank)
    samples = sampled(path, rank, left_out)
    pairs = [
        (a, b) for a, b in ((getattr(mine, n), getattr(samples, n)) for n in FIGURES) if a is not None and b is not None
    ]
    worst = max(abs(a - b) for a, b in pairs)
    summed = abs(rank.gaps.seconds(*TIME_PARTS) / rank.step_s - 1) < 1e-9
    # A host that mostly waits for the GPU has advice of its own.
    cause = "sync" if rank.bound.gap == "sync" else rank.bound.cause
    right = not whole or CAUSES.get(name, cause) == cause
    cells = "".join(f"{f'{shown(getattr(mine, n))} / {shown(getattr(samples, n))}':>16}" for n in FIGURES)
    marks = (
        ("" if worst <= WITHIN else f"  off by {worst:.2f}")
        + ("" if summed else "  no sum")
        + ("" if right else "  wrong cause")
    )
    print(f"{name:24}{rank.steps:4}{cells}  {cause}{marks}", flush=True)
    good = worst <= WITHIN and summed and right
    if whole and name in PUBLISHED:
        off = {n: getattr(mine, n) - value for n, value in PUBLISHED[name].items()}
        print(f"{'':24}published: {PUBLISHED[name]}; off by at most {max(map(abs, off.values())):.2f} points")
        good &= max(map(abs, off.values())) <= WITHIN
    return rank, good


def long_recording(source: Path, path: Path, megabytes: float) -> None:
    """The same steps repeated, each time later and with calls of its own, to that size."""
    spans = spans_in(whole_in(source))
    length = max(high for _, high, _ in spans) - min(low for low, *_ in spans)
    pieces = []
    for low, _, event in spans:
        number = event.get("args", {}).get("correlation", 0)
        text = json.dumps(event | {"ts": "@", "args": {**event.get("args", {}), "correlation": "@"}}, indent=2)
        pieces.append((low, number, text.split('"@"')))
    size = turn = 0
    with path.open("w") as file:
        file.write('{"traceEvents": [\n')
        while size < megabytes * 1e6:
            for low, number, (first, second, third) in pieces:
                size += file.write(
                    f"{first}{low + turn * length:.3f}{second}{number + turn * 10_000_000 if number else 0}{third},\n"
                )
            turn += 1
        file.write('{"ph": "M", "name": "end"}]}\n')


def in_little_memory(source: Path, megabytes: float) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "long.json")
        long_recording(source, path, megabytes)
        done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True)
        kilobytes, steps = map(int, done.stdout.split())
        print(f"{path.stat().st_size / 1e6:.0f} MB in {kilobytes / 1e3:.0f} MB of memory, {steps} steps shown")
    return kilobytes / 1e3 < LARGEST_MB


def main() -> int:
    options = parser(__doc__)
    options.add_argument("folder", nargs="?", type=Path, default=FIXTURES, help="of recordings; else the fixtures")
    options.add_argument("--long", type=float, default=1000.0, help="MB of the long recording; 0 for none")
    chosen = options.parse_args()
    paths = sorted(chosen.folder.glob("*.json*"))
    print(f"{'ours / sampled':24}steps" + "".join(f"{name:>16}" for name in FIGURES) + "  cause")
    results = {path.name.split(".")[0]: checked(path, chosen.folder != FIXTURES) for path in paths}
    good = all(holds for _, holds in results.values())
    read = [path for path in paths if results[path.name.split(".")[0]][0]]
    if chosen.long and read:
        good &= in_little_memory(max(read, key=lambda path: path.stat().st_size), chosen.long)
    print("all holds" if good else "NOT all holds")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

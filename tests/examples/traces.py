"""Recordings of a small training with known times, as torch.profiler writes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[2] / "fixtures" / "traces"
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
GPU = {
    "id": 0, "name": "Test GPU", "computeMajor": 8, "computeMinor": 0, "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 167936, "numSms": 108,
}  # fmt: skip
LAUNCH = {
    "grid": [216, 1, 1], "block": [1024, 1, 1], "registers per thread": 32, "shared memory": 0, "blocks per SM": 2.0,
    "est. achieved occupancy %": 100,
}  # fmt: skip
Event = dict[str, Any]


def event(cat: str, name: str, begin_us: float, dur_us: float, *, tid: Any = 1, **args: Any) -> Event:
    """One record; `args` with blanks in their names are given as a dict."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": begin_us, "dur": dur_us, "args": args}


def training(
    *, steps: int = 4, input_ms: float = 0, compute_ms: float = 10, communication_ms: float = 0, host_ms: float = 0,
    loader: str = NEXT, function: str = "slow.py(3): work",
    first: int = 0, begin_us: float = 1e6,
) -> list[Event]:  # fmt: skip
    """Steps one after the other: a wait for input, Python that does something else, a kernel, and one of NCCL.

    `first` is the number of the first.
    """
    events: list[Event] = []
    at = begin_us
    for number in range(first, first + steps):
        begin = at
        if loader:
            events.append(event("user_annotation", loader, at, input_ms * 1e3))
        at += input_ms * 1e3
        if host_ms:
            events.append(event("python_function", function, at, host_ms * 1e3))
            at += host_ms * 1e3
        events += _kernel(2 * number + 1, at, at + 10, compute_ms * 1e3, 7, "gemm")
        at += 10 + compute_ms * 1e3
        if communication_ms:
            name = "ncclDevKernel_AllReduce"
            events += _kernel(
                2 * number + 2, begin + (input_ms + host_ms) * 1e3 + 20, at, communication_ms * 1e3, 8, name
            )
            at += communication_ms * 1e3
        events.append(event("user_annotation", f"ProfilerStep#{number}", begin, at - begin))
    return events


def _kernel(number: int, called_us: float, begin_us: float, dur_us: float, stream: int, name: str) -> list[Event]:
    call = event("cuda_runtime", "cudaLaunchKernel", called_us, 8, correlation=number)
    work = event("kernel", name, begin_us, dur_us, tid=stream, device=0, stream=stream, correlation=number)
    work["args"] |= LAUNCH
    return [call, work]


def written(path: Path, events: list[Event] | None = None, **head: Any) -> Path:
    """The recording in a file, gzipped by its ending."""
    whole = {"schemaVersion": 1, "deviceProperties": [GPU], **head, "traceEvents": events or training()}
    data = json.dumps(whole, indent=1).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def ranks(folder: Path, communication_ms: tuple[float, ...] = (4, 4, 1)) -> Path:
    """A folder with a recording of each rank; who computes longer communicates less."""
    folder.mkdir(exist_ok=True)
    for rank, ms in enumerate(communication_ms):
        events = training(compute_ms=14 - ms, communication_ms=ms)
        group = {"backend": "nccl", "rank": rank, "world_size": len(communication_ms)}
        written(folder / f"host_{rank}.pt.trace.json", events, distributedInfo=group)
    return folder

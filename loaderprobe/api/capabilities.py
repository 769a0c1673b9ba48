"""What can and cannot be measured on this machine, why, and how to get the rest."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Literal

from loaderprobe.api.assembly import make_compute
from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.clock import SystemClock
from loaderprobe.protocols import Clock
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.environment import Capability, StorageLocation
from loaderprobe.records.measurement import Missing, Series
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.render.note_words import note_words
from loaderprobe.render.unavailable_words import unavailable_words
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.system.cpu import cores_available
from loaderprobe.system.device import locate, read_sectors
from loaderprobe.system.environment import list_gpus
from loaderprobe.system.memory import free_shared_memory_bytes
from loaderprobe.system.pagecache import LinuxPageCache, why_unknown
from loaderprobe.system.process import read_process
from loaderprobe.system.thread import ThreadMeter
from loaderprobe.system.thread_files import ThreadGone
from loaderprobe.system.waits import WatchedProcess, yama_scope
from loaderprobe.units import format_bytes, significant

PROBE_BYTES = 1 << 20
# Two workers' batches of 32 float images, with a prefetch factor of 2.
USUAL_SHARED_MEMORY = 7 * 32 * 3 * 224 * 224 * 4
# GPM compares two samples, which must be more than 0.1 s apart.
GPM_GAP_S = 0.15
UNKNOWN_CACHE = "the state of the page cache is unknown here"
_UTILIZATION, _OCCUPANCY = "GPU utilization (NVML)", "SM occupancy (NVML GPM)"


def capabilities(path: Path) -> tuple[Capability, ...]:
    """One entry for each thing that a sweep measures, for data under `path`."""
    location = locate(path)
    return (
        _storage(location),
        _cold_reads(path, location),
        _device_reads(location),
        _own_reads(location),
        _waits(),
        _run_delay(),
        _cores(),
        _shared_memory(),
        _training(),
        *gpu_counters(SystemClock()),
    )


def _storage(location: StorageLocation) -> Capability:
    name, where = "storage under the data", f"{location.filesystem} on {', '.join(location.devices) or location.source}"
    if location.kind == "memory":
        return Capability(
            name=name, state="no", why=f"{location.path} is in memory, not on storage",
            next_step="give a path on the storage in question",
        )  # fmt: skip
    state = "yes" if location.counts_reads and location.devices else "limited"
    return Capability(name=name, state=state, why="; ".join([where, *map(note_words, location.notes)]))  # type: ignore[arg-type]  # a literal either way


def _cold_reads(path: Path, location: StorageLocation) -> Capability:
    """Tried on a temporary file under `path`; otherwise the reason why not."""
    name = "cold reads, proved"
    if location.kind == "memory":
        return Capability(name=name, state="no", why="files in memory are always warm")
    if not os.access(path, os.W_OK):
        return Capability(
            name=name, state="limited", why="no permission to write a test file here; the sweep checks by bytes read",
            next_step=f"run doctor on a directory of {location.mount} with write permission",
        )  # fmt: skip
    cache = LinuxPageCache()
    with tempfile.NamedTemporaryFile(dir=path, prefix=".loaderprobe-") as file:
        file.write(os.urandom(PROBE_BYTES))
        file.flush()
        os.fsync(file.fileno())
        cache.evict([Path(file.name)])
        left = cache.resident([Path(file.name)])
        unknown = why_unknown(Path(file.name)) if left is None else None
    if left is None:
        return Capability(name=name, state="limited", why=unavailable_words(unknown) if unknown else UNKNOWN_CACHE)
    if left > 0:
        return Capability(name=name, state="no", why=f"{left:.0%} of a file stayed in the cache after it was dropped")
    return Capability(name=name, state="yes", why="a file was dropped from the page cache, confirmed by the kernel")


def _device_reads(location: StorageLocation) -> Capability:
    name = "reads of the device"
    if read_sectors(location.devices) is None:
        return Capability(name=name, state="no", why="/proc/diskstats shows no device of this file system")
    return Capability(name=name, state="yes", why=f"/proc/diskstats counts {', '.join(location.devices)}")


def _own_reads(location: StorageLocation) -> Capability:
    name = "reads of each worker"
    counters = read_process(os.getpid())
    if counters is None or counters.read_bytes is None:
        return Capability(name=name, state="no", why="no permission to read /proc/PID/io")
    if not location.counts_reads:
        return Capability(name=name, state="limited", why=f"the kernel does not count reads of {location.filesystem}")
    return Capability(name=name, state="yes", why="/proc/PID/io and getrusage count bytes fetched from storage")


def _waits() -> Capability:
    """Tried on a child process: if a child can be sampled, so can workers."""
    name = "waits of workers"
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        reason = _why_letters_only(child.pid)
        child.kill()
    if reason is None:
        return Capability(name=name, state="yes", why="/proc/PID/task/TID/syscall shows files, sockets and locks")
    if not Path("/proc/self/task").is_dir():
        return Capability(name=name, state="no", why="there is no /proc here")
    step = ""
    if reason.code in ("ptrace_scope", "trace_refused"):
        step = "sysctl kernel.yama.ptrace_scope=1" if yama_scope() > 1 else "docker run --cap-add=SYS_PTRACE"
    return Capability(
        name=name, state="limited", next_step=step,
        why=f"{unavailable_words(reason)}; states and kernel functions show the kinds of waits, but not files",
    )  # fmt: skip


def _why_letters_only(pid: int) -> Unavailable | None:
    try:
        process = WatchedProcess(pid)
    except ThreadGone:
        return Unavailable(code="processes_hidden")
    with closing(process), suppress(ThreadGone):
        process.look(pid)
    return process.letters_only


def _run_delay() -> Capability:
    name = "waits for a core"
    meter = ThreadMeter()
    known = meter.run_delay_known
    meter.close()
    if known:
        return Capability(name=name, state="yes", why="/proc/thread-self/schedstat counts the run-queue delay")
    return Capability(
        name=name, state="limited", why="no schedstat: waiting for a core counts as waiting for storage",
        next_step="a kernel with CONFIG_SCHED_INFO",
    )  # fmt: skip


def _cores() -> Capability:
    return Capability(
        name="cores", state="yes", why=f"{significant(cores_available())} after affinity and quota, of {os.cpu_count()}"
    )


def _shared_memory() -> Capability:
    name, free = "shared memory for workers", free_shared_memory_bytes()
    if free is None:
        return Capability(name=name, state="no", why="there is no /dev/shm", next_step="mount a tmpfs there")
    if free < USUAL_SHARED_MEMORY:
        return Capability(
            name=name, state="limited", why=f"{format_bytes(free)} free, too little for 2 workers",
            next_step="docker run --shm-size=8g, or smaller batches",
        )  # fmt: skip
    return Capability(name=name, state="yes", why=f"{format_bytes(free)} free in /dev/shm")


_ON_A_GPU = RunConfig(
    data="", resolution="", loader=LoaderSpec(workers=0, prefetch_factor=0),
    compute=ComputeSpec(name="cuda", batch_size=1),
)  # fmt: skip


def _training() -> Capability:
    name = "training on a GPU"
    try:
        info = make_compute(_ON_A_GPU, SystemClock()).info()
    except LoaderprobeError as error:
        return Capability(
            name=name, state="no", why=error.message,
            next_step="--compute emulated:mlperf-h100 shows what that GPU would need; --compute cpu trains on the CPU",
        )  # fmt: skip
    return Capability(name=name, state="yes", why=info.device)


def gpu_counters(clock: Clock) -> tuple[Capability, ...]:
    """Utilization and SM occupancy, tried on every GPU with the sampler that a sweep uses."""
    gpus, found_none = list_gpus()
    if found_none:
        reason = unavailable_words(found_none)
        return (
            Capability(
                name=_UTILIZATION, state="no", why=reason, next_step="an NVIDIA GPU, and its driver's libnvidia-ml"
            ),
            Capability(name=_OCCUPANCY, state="no", why=reason, next_step="an NVIDIA GPU, Hopper or newer"),
        )
    with ExitStack() as stack:
        tried = [(gpu.name, stack.enter_context(NvmlSampler(clock, gpu.uuid))) for gpu in gpus]
        for wait_s in (GPM_GAP_S, 0.0):
            for _, each in tried:
                each.sample()
            clock.sleep(wait_s)
        found = [(name, each.series()) for name, each in tried]
    return (
        _gpu_counter(_UTILIZATION, "gpu_utilization", "share of time with any kernel at all", found),
        _gpu_counter(_OCCUPANCY, "gpu_sm_occupancy", "active warps over the maximum of the SMs", found),
    )


def _gpu_counter(
    name: str, series: str, meaning: str, found: Sequence[tuple[str, Sequence[Series | Missing]]]
) -> Capability:
    read = [gpu for gpu, items in found if any(isinstance(item, Series) and item.name == series for item in items)]
    reasons = dict.fromkeys(
        f"{gpu}: {unavailable_words(item.reason)}"
        for gpu, items in found
        for item in items
        if isinstance(item, Missing) and item.name == series
    )
    state: Literal["yes", "limited", "no"] = "yes" if len(read) == len(found) else "limited" if read else "no"
    good = [f"{', '.join(dict.fromkeys(read))}: {meaning}"] if read else []
    return Capability(name=name, state=state, why="; ".join([*good, *reasons]))

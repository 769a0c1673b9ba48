"""What can and cannot be measured on this machine, why, and how to get the rest."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from shutil import disk_usage
from typing import Any, Literal

from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.assembly import make_compute
from loaderprobe.protocols import Clock
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.environment import Capability, CapabilityName, StepCode, StorageLocation
from loaderprobe.records.measurement import Missing, Series
from loaderprobe.records.remark import Remark, each_once, reported
from loaderprobe.records.thresholds import DISTURBED_FROM
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.system.device import locate, read_sectors
from loaderprobe.system.environment import list_gpus
from loaderprobe.system.host import SystemClock, cores_total
from loaderprobe.system.limits import cores_available, free_shared_memory_bytes
from loaderprobe.system.others import OthersMeter
from loaderprobe.system.pagecache import LinuxPageCache, why_unknown
from loaderprobe.system.process import ThreadMeter, read_process
from loaderprobe.system.waits import ThreadGone, WatchedProcess, yama_scope

PROBE_BYTES = 1 << 20
# The data sets of a usual sweep have 305 MB; its run is kept besides.
USUAL_SPACE = 500e6
# Two workers' batches of 32 float images, with a prefetch factor of 2.
USUAL_SHARED_MEMORY = 7 * 32 * 3 * 224 * 224 * 4
# GPM compares two samples, which must be more than 0.1 s apart.
GPM_GAP_S = 0.15
# In which two cores have 60 ticks of CPU time.
LOOK_S = 0.3


def capabilities(path: Path) -> tuple[Capability, ...]:
    """One entry for each thing that a sweep measures, for data under `path`."""
    location = locate(path)
    return (
        _storage(location),
        _free_space(path),
        _cold_reads(path, location),
        _device_reads(location),
        _own_reads(location),
        _waits(),
        _run_delay(),
        _capability("cores", "yes", "cores", cores=cores_available(), all=cores_total()),
        _others(),
        _shared_memory(),
        _training(),
        *gpu_counters(SystemClock()),
    )


State = Literal["yes", "limited", "no"]


def _capability(
    name: CapabilityName, state: State, code: str, *further: Remark, step: StepCode | None = None, **facts: Any
) -> Capability:
    """A capability for one reason, with its facts, and for further ones."""
    return Capability(name=name, state=state, why=(Remark(code=code, facts=facts), *further), next_step=step)


def _storage(location: StorageLocation) -> Capability:
    if location.kind == "memory":
        return _capability("storage", "no", "path_in_memory", path=location.path, step="path_on_storage")
    known = bool(location.counts_reads and location.devices)
    where: dict[str, Any] = {
        "filesystem": location.filesystem,
        "devices": ", ".join(location.devices) or location.source,
    }
    if location.read_ahead_bytes is not None:
        where["read_ahead_bytes"] = location.read_ahead_bytes
    return _capability("storage", "yes" if known else "limited", "on_storage", *location.notes, **where)


def _free_space(path: Path) -> Capability:
    free = disk_usage(path).free
    if free < USUAL_SPACE:
        return _capability("free_space", "limited", "space_free", step="make_space", free_bytes=free, least=USUAL_SPACE)
    return _capability("free_space", "yes", "space_free", free_bytes=free)


def _cold_reads(path: Path, location: StorageLocation) -> Capability:
    """Tried on a temporary file under `path`; otherwise the reason why not."""
    if location.kind == "memory":
        return _capability("cold_reads", "no", "memory_always_warm")
    cache = LinuxPageCache()
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".loaderprobe-") as file:
            file.write(os.urandom(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
            cache.evict([Path(file.name)])
            left = cache.resident([Path(file.name)])
            unknown = why_unknown(Path(file.name)) if left is None else None
    except OSError as error:
        facts = {"mount": location.mount, "error": error.strerror}
        return _capability("cold_reads", "limited", "no_trial_file", step="directory_to_write", **facts)
    if left is None:
        return Capability(name="cold_reads", state="limited", why=(unknown or Remark(code="no_cache_state"),))
    if left > 0:
        return _capability("cold_reads", "no", "stays_in_cache", share=left)
    return _capability("cold_reads", "yes", "evicted")


def _device_reads(location: StorageLocation) -> Capability:
    if read_sectors(location.devices) is None:
        return _capability("device_reads", "no", "disks_not_listed")
    return _capability("device_reads", "yes", "device_counted", devices=", ".join(location.devices))


def _own_reads(location: StorageLocation) -> Capability:
    counters = read_process(os.getpid())
    if counters is None or counters.read_bytes is None:
        return _capability("worker_reads", "no", "reads_refused")
    if not location.counts_reads:
        return _capability("worker_reads", "limited", "filesystem_counts_no_reads", filesystem=location.filesystem)
    return _capability("worker_reads", "yes", "reads_counted")


def _waits() -> Capability:
    """Tried on a child process: if a child can be sampled, so can workers."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        reason = _why_letters_only(child.pid)
        child.kill()
    if reason is None:
        return _capability("waits", "yes", "calls_seen")
    if not Path("/proc/self/task").is_dir():
        return _capability("waits", "no", "no_proc")
    step: StepCode | None = None
    if reason.code in ("ptrace_scope", "trace_refused"):
        step = "allow_ptrace" if yama_scope() > 1 else "add_sys_ptrace"
    return Capability(name="waits", state="limited", next_step=step, why=(reason, Remark(code="kinds_only")))


def _why_letters_only(pid: int) -> Remark | None:
    try:
        process = WatchedProcess(pid)
    except ThreadGone:
        return Remark(code="processes_hidden")
    with closing(process), suppress(ThreadGone):
        process.look(pid)
    return process.letters_only


def _run_delay() -> Capability:
    meter = ThreadMeter()
    known = meter.run_delay_known
    meter.close()
    if known:
        return _capability("run_delay", "yes", "delay_counted")
    return _capability("run_delay", "limited", "delay_not_counted", step="kernel_with_schedstat")


def _others() -> Capability:
    meter = OthersMeter()
    meter.begin()
    SystemClock().sleep(LOOK_S)
    reading = meter.end()
    if reading is None:
        why = tuple(lack.reason for lack in meter.missing())
        return Capability(name="other_processes", state="no", why=why)
    share, cores = reading.cpu_ns / (reading.span_ns * reading.cores), float(reading.cores)
    if share > DISTURBED_FROM:
        return _capability("other_processes", "limited", "others_take", step="end_others", share=share, cores=cores)
    return _capability("other_processes", "yes", "others_take", share=share, cores=cores)


def _shared_memory() -> Capability:
    free = free_shared_memory_bytes()
    if free is None:
        return _capability("shared_memory", "no", "no_shared_memory", step="mount_tmpfs")
    if free < USUAL_SHARED_MEMORY:
        return _capability(
            "shared_memory", "limited", "shared_memory_small", free_bytes=free, step="more_shared_memory"
        )
    return _capability("shared_memory", "yes", "shared_memory", free_bytes=free)


_ON_A_GPU = RunConfig(
    data="", resolution="", loader=LoaderSpec(workers=0, prefetch_factor=0),
    compute=ComputeSpec(name="cuda", batch_size=1),
)  # fmt: skip


def _training() -> Capability:
    try:
        info = make_compute(_ON_A_GPU, SystemClock()).info()
    except LoaderprobeError as error:
        why = reported(error.message)
        return Capability(name="gpu_training", state="no", why=(why,), next_step="train_elsewhere")
    return _capability("gpu_training", "yes", "trains_on", device=info.device)


def gpu_counters(clock: Clock) -> tuple[Capability, ...]:
    """Utilization and SM occupancy, tried on every GPU with the sampler that a sweep uses."""
    gpus, why_none = list_gpus()
    if why_none:
        return (
            Capability(name="gpu_utilization", state="no", why=(why_none,), next_step="nvidia_gpu"),
            Capability(name="gpu_sm_occupancy", state="no", why=(why_none,), next_step="hopper_gpu"),
        )
    with ExitStack() as stack:
        tried = [(gpu.name, stack.enter_context(NvmlSampler(clock, gpu.uuid))) for gpu in gpus]
        for wait_s in (GPM_GAP_S, 0.0):
            for _, sampler in tried:
                sampler.sample()
            clock.sleep(wait_s)
        by_gpu = [(name, sampler.series()) for name, sampler in tried]
    return (
        _gpu_counter("gpu_utilization", "utilization_read", by_gpu),
        _gpu_counter("gpu_sm_occupancy", "occupancy_read", by_gpu),
    )


def _gpu_counter(
    name: CapabilityName, code: str, by_gpu: Sequence[tuple[str, Sequence[Series | Missing]]]
) -> Capability:
    """Capabilities are named as the series that show them."""
    read = [gpu for gpu, items in by_gpu if any(isinstance(item, Series) and item.name == name for item in items)]
    reasons = [
        Remark(code="gpu_not_read", facts={**item.reason.because, "gpu": gpu})
        for gpu, items in by_gpu
        for item in items
        if isinstance(item, Missing) and item.name == name
    ]
    state: State = "yes" if len(read) == len(by_gpu) else "limited" if read else "no"
    good = [Remark(code=code, facts={"gpus": ", ".join(dict.fromkeys(read))})] if read else []
    return Capability(name=name, state=state, why=(*good, *each_once(reasons)))

"""What can be measured on a machine, and why not the rest, in words and as a document."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.capability import Capability, CapabilityName, Finding, FindingCode, StepCode
from loaderprobe.records.note import Note
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.render.document import Cell, Document, Section, Table
from loaderprobe.render.facts import fact
from loaderprobe.render.note_words import note_words
from loaderprobe.render.unavailable_words import because_words, unavailable_words

TITLES: dict[CapabilityName, str] = {
    "storage": "storage under the data",
    "cold_reads": "cold reads, proved",
    "device_reads": "reads of the device",
    "worker_reads": "reads of each worker",
    "waits": "waits of workers",
    "run_delay": "waits for a core",
    "cores": "cores",
    "other_processes": "other processes",
    "shared_memory": "shared memory for workers",
    "gpu_training": "training on a GPU",
    "gpu_utilization": "GPU utilization (NVML)",
    "gpu_sm_occupancy": "SM occupancy (NVML GPM)",
}
_TEXTS: dict[FindingCode, str] = {
    "on_storage": "{filesystem} on {devices}{ahead}",
    "in_memory": "{path} is in memory, not on storage",
    "always_warm": "files in memory are always warm",
    "no_trial_file": "no permission to write a test file here; the sweep checks by bytes read",
    "cache_unknown": "the state of the page cache is unknown here",
    "stays_in_cache": "{share} of a file stayed in the cache after it was dropped",
    "evicted": "a file was dropped from the page cache, confirmed by the kernel",
    "device_counted": "/proc/diskstats counts {devices}",
    "device_not_counted": "/proc/diskstats shows no device of this file system",
    "reads_counted": "/proc/PID/io and getrusage count bytes fetched from storage",
    "reads_refused": "no permission to read /proc/PID/io",
    "reads_not_counted": "the kernel does not count reads of {filesystem}",
    "calls_seen": "/proc/PID/task/TID/syscall shows files, sockets and locks",
    "no_proc": "there is no /proc here",
    "kinds_only": "states and kernel functions show the kinds of waits, but not files",
    "delay_counted": "/proc/thread-self/schedstat counts the run-queue delay",
    "delay_not_counted": "no schedstat: waiting for a core counts as waiting for storage",
    "cores": "{cores} after affinity and quota, of {all}",
    "others_take": "they take {share} of {cores} cores now, counted by /proc/stat",
    "no_shared_memory": "there is no /dev/shm",
    "shared_memory_small": "{free_bytes} free, too little for 2 workers",
    "shared_memory": "{free_bytes} free in /dev/shm",
    "trains_on": "{device}",
    "utilization_read": "{gpus}: share of time with any kernel at all",
    "occupancy_read": "{gpus}: active warps over the maximum of the SMs",
    "gpu_not_read": "{gpu}: {why}",
}
_STEPS: dict[StepCode, str] = {
    "path_on_storage": "give a path on the storage in question",
    "directory_to_write": "run doctor on a directory of {mount} with write permission",
    "allow_ptrace": "sysctl kernel.yama.ptrace_scope=1",
    "add_sys_ptrace": "docker run --cap-add=SYS_PTRACE",
    "kernel_with_schedstat": "a kernel with CONFIG_SCHED_INFO",
    "mount_tmpfs": "mount a tmpfs there",
    "more_shared_memory": "docker run --shm-size=8g, or smaller batches",
    "train_elsewhere": (
        "--compute emulated:mlperf-h100 shows what that GPU would need; --compute cpu trains on the CPU"
    ),
    "nvidia_gpu": "an NVIDIA GPU, and its driver's libnvidia-ml",
    "hopper_gpu": "an NVIDIA GPU, Hopper or newer",
}


def finding_words(found: Finding) -> str:
    """A clause without a full stop: `2 after affinity and quota, of 4`."""
    facts = {name: fact(name, value) for name, value in found.facts.items()}
    if found.code == "on_storage":
        facts["ahead"] = f", {facts['read_ahead_bytes']}" if "read_ahead_bytes" in facts else ""
    if found.code == "gpu_not_read":
        facts["why"] = because_words(found.facts)
    return _TEXTS[found.code].format(**facts)


def why_words(capability: Capability) -> str:
    """All that was found of it, with semicolons between."""
    return "; ".join(map(_words, capability.why))


def step_words(capability: Capability) -> str:
    """How to get the rest, quoting what was found; empty where there is nothing to get."""
    if capability.next_step is None:
        return ""
    facts = {name: value for why in capability.why for name, value in why.facts.items()}
    return _STEPS[capability.next_step].format(**facts)


def _words(why: Finding | Note | Unavailable) -> str:
    if isinstance(why, Finding):
        return finding_words(why)
    return note_words(why) if isinstance(why, Note) else unavailable_words(why)


_TONES = {"yes": "good", "limited": "warning", "no": "failed"}


def capabilities_document(found: Sequence[Capability]) -> Document:
    """A line for each, with the reason and how to get the rest."""
    ready = sum(each.state == "yes" for each in found)
    lines = tuple((TITLES[each.name], Cell(text=each.state, tone=_TONES[each.state]), _why(each)) for each in found)
    table = Table(head=("measured", "here", "why"), lines=lines, right=frozenset())
    return Document(title=f"{ready} of {len(found)} can be measured in full", sections=(Section(parts=(table,)),))


def _why(each: Capability) -> str:
    step = step_words(each)
    return "\n".join(filter(None, (why_words(each), f"to get it: {step}" if step else "")))

"""What can be measured on a machine, and why not the rest, in words and as a document."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.environment import Capability, CapabilityName, StepCode
from loaderprobe.render.document import Cell, Document, Section, Table
from loaderprobe.render.words import remark_words

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


def why_words(capability: Capability) -> str:
    """All that was found of it, with semicolons between."""
    return "; ".join(map(remark_words, capability.why))


def step_words(capability: Capability) -> str:
    """How to get the rest, quoting what was found; empty where there is nothing to get."""
    if capability.next_step is None:
        return ""
    facts = {name: value for why in capability.why for name, value in why.facts.items()}
    return _STEPS[capability.next_step].format(**facts)


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

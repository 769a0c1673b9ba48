"""Why a sampler read nothing, or the profiler recorded nothing, in words."""

from __future__ import annotations

from loaderprobe.records.unavailable import UnavailableCode

_WAITS_PROCESS = "the process that samples the workers' waits"
_NO_SYSCALL = "no permission to read /proc/PID/syscall"
COUNTERS: dict[UnavailableCode, str] = {
    "no_gpu_trains": "no GPU trains in this configuration",
    "pynvml_missing": "pynvml cannot be imported ({error}): pip install nvidia-ml-py",
    "nvml_not_started": "NVML does not start: {error}",
    "no_gpu_listed": "NVML lists no GPU",
    "gpus_not_listed": "NVML lists no GPU: {error}",
    "nvml": "{status}",
    "no_process_listed": "NVML lists no process on this GPU, not even this one; this may be a container",
    "mig_instance": "NVML does not support it for a MIG instance",
    "mig_split": "this GPU does not support it as a whole while it is split by MIG",
    "no_gpm": "this GPU has no GPM (Hopper and newer data-centre GPUs do)",
    "gpm": "GPM: {status}",
    "gpm_no_number": "GPM gave no number",
    "sampler_stopped": "{sampler} stopped: {error}",
    "disks_not_listed": "no device of this file system is listed in /proc/diskstats",
    "no_workers": "the serial loader has no workers",
    "worker_stat_unreadable": "/proc/PID/stat of a worker cannot be read",
    "worker_io_refused": "no permission to read /proc/PID/io of a worker",
    "workers_not_sampled": "the workers were not sampled",
    "waits_not_started": "sampling of the workers' waits has not started",
    "waits_not_startable": f"{_WAITS_PROCESS} could not be started: {{error}}",
    "waits_not_ready": f"{_WAITS_PROCESS} was not ready after {{limit_s}} s",
    "waits_ended": f"{_WAITS_PROCESS} ended: {{how}}",
    "no_proc": "there is no /proc here",
    "machine_uncounted": "/proc/stat counts no CPU time here, as in some sandboxes",
    "processes_hidden": "/proc does not show processes here",
    "no_syscall_file": "this kernel has no /proc/PID/syscall",
    "ptrace_scope": f"{_NO_SYSCALL}: kernel.yama.ptrace_scope is {{scope}}",
    "trace_refused": f"{_NO_SYSCALL}: no permission to trace, as in hardened containers",
    "calls_unknown": "the system call numbers of {machine} are unknown",
    "window_not_asked": "no profiler window was asked for",
    "window_without_steps": "nothing was trained on",
    "window_without_time": "there was no time left for a profiler window",
    "window_too_long": "a profiler window of {steps} steps would take {needed_s} s, of {limit_s} s that it may take",
    "window_failed": "the profiler window failed: {error}",
    "window_without_gpu": "no step was given, so no GPU trained",
    "window_emulated": "an emulated accelerator runs no kernels",
    "window_own_step": "kernels are recorded only for loaderprobe's own training steps, not for your step",
    "window_other_device": "training ran on {device}, whose kernels are not recorded",
    "window_of_ranks": "kernels are recorded for one rank only",
}
NVML_ERRORS = {
    0: "NVML has no value for it",
    1: "NVML was not initialised",
    2: "NVML rejects this query for this GPU",
    3: "this GPU does not support it",
    4: "no permission to ask NVML",
    6: "NVML does not know this GPU",
    7: "NVML's answer changed size while it was read",
    9: "the NVIDIA driver is not loaded",
    10: "NVML took too long to answer",
    12: "there is no NVIDIA driver library (libnvidia-ml.so.1)",
    13: "the driver or nvidia-ml-py is too old for it",
    15: "the GPU has been lost",
    16: "the GPU must be reset",
    17: "the operating system blocks NVML; a container may lack this GPU's device files",
    18: "driver and library versions differ: reboot after the driver's update",
    19: "the GPU is in use in a way that forbids it",
    20: "NVML found too little memory",
    21: "NVML had no data yet",
    25: "the driver does not support the structure version of nvidia-ml-py",
    999: "NVML failed; a container may have lost access to the GPU",
}
"""By the value of the error: pynvml's exceptions cannot be compared reliably."""


def nvml_words(status: float) -> str:
    """What an error of NVML means."""
    return NVML_ERRORS.get(int(status), f"NVML error {status:g}")

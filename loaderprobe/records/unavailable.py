"""Why there is no figure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FigureCode = Literal[
    "no_segment", "not_beside", "files_in_memory", "bytes_from_storage", "pages_resident", "read_less_again",
    "warm_after_first_pass", "always_warm", "samples_kept", "no_worker_times", "no_warm_segment",
    "warm_files_waited_for", "waits_alike", "wait_unexplained", "no_worker_cpu_times", "too_few_wait_samples",
    "nothing_else_takes_time", "overhead_not_recorded", "no_resident_segment", "compute_unknown", "no_step",
    "reads_not_counted", "files_came_from_memory", "devices_not_visible", "warm_as_asked", "ceiling_not_measured",
    "ceiling_not_cold", "cores_below_ceiling", "no_gpu_sampled", "no_reading_in_training", "no_kernel_fits",
    "blocks_unknown", "window_empty", "kernels_not_seen", "no_kernel_launched", "launches_lost", "steps_not_timed",
    "profiler_slows", "clock_moved", "gaps_not_checked", "gaps_disagree", "window_too_short",
    "slower_without_profiler", "interrupted", "not_measured", "failed", "result_damaged", "not_read",
    "file_damaged", "peak_unreadable", "bytes_on_a_rank", "one_rank", "ranks_not_apart", "exchange_not_measured",
    "ceiling_of_one_node",
]  # fmt: skip
"""What the rounds, the counters and the profiler window lack."""
CounterCode = Literal[
    "no_gpu_trains", "pynvml_missing", "nvml_not_started", "no_gpu_listed", "gpus_not_listed", "nvml",
    "no_process_listed", "mig_instance", "mig_split", "no_gpm", "gpm", "gpm_no_number", "sampler_stopped",
    "disks_not_listed", "no_workers", "worker_stat_unreadable", "worker_io_refused", "workers_not_sampled",
    "waits_not_started", "waits_not_startable", "waits_not_ready", "waits_ended", "no_proc", "processes_hidden",
    "machine_uncounted",
    "no_syscall_file", "ptrace_scope", "trace_refused", "calls_unknown", "window_not_asked", "window_without_steps",
    "window_without_time", "window_too_long", "window_failed", "window_without_gpu", "window_emulated",
    "window_own_step", "window_other_device", "window_of_ranks",
]  # fmt: skip
"""Why a sampler read nothing, or the profiler recorded nothing. `nvml` and `gpm` have NVML's error as `status`."""
StorageCode = Literal[
    "not_regular", "on_fuse", "own_cache", "foreign_on_network", "foreign_hidden", "not_examined", "phase_failed",
    "phase_interrupted", "too_few_files", "opens_of_blocks", "direct_refused", "files_vanished", "no_large_file",
    "no_single_reader", "fio_cannot_pause", "ceiling_failed", "kind_failed", "files_empty",
    "filesystem_not_counted",
]  # fmt: skip
"""Why the page cache does not show what it holds, or a phase of a probe was not measured."""
StudyCode = Literal[
    "buffer_not_told", "buffer_not_filled", "too_few_for_buffer", "too_few_for_epoch", "epochs_too_long", "study_left",
]  # fmt: skip
"""Why training from a full buffer, or whole epochs, were not measured beside the verdicts."""
UnavailableCode = Literal[FigureCode, CounterCode, StorageCode, StudyCode, "reported"]
"""What is in the way of a figure. The last is what another program, or an error, said itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """Why a figure does not exist."""

    code: UnavailableCode
    facts: dict[str, float | str] = field(default_factory=dict)
    """What the sentence quotes: shares are 0 to 1, times s. `files` is what they were to be; with `reported` the
    `reason`, with `failed` the `error`, its `stage` and `hint`; `ended_after_s`, where readings ended before the
    measurement did."""
    sentence: str = field(default="", compare=False)
    """The reason in words; `render` adds it where the figures leave the program."""

    @property
    def because(self) -> dict[str, float | str]:
        """Its facts, and its code under `because`: facts of something else that follows from it."""
        return {**self.facts, "because": self.code}


def reported(reason: str) -> Unavailable:
    """What another program, or an error, said itself."""
    return Unavailable(code="reported", facts={"reason": reason})

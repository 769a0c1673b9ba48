"""Why there is no figure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

UnavailableCode = Literal[
    "no_segment",
    "not_beside",
    "files_in_memory",
    "bytes_from_storage",
    "pages_resident",
    "read_less_again",
    "warm_after_first_pass",
    "always_warm",
    "samples_kept",
    "no_worker_times",
    "no_warm_segment",
    "warm_files_waited_for",
    "waits_alike",
    "wait_unexplained",
    "no_worker_cpu_times",
    "too_few_wait_samples",
    "nothing_else_takes_time",
    "overhead_not_recorded",
    "no_resident_segment",
    "compute_unknown",
    "no_step",
    "reads_not_counted",
    "files_came_from_memory",
    "devices_not_visible",
    "warm_as_asked",
    "ceiling_not_measured",
    "ceiling_not_cold",
    "cores_below_ceiling",
    "no_gpu_sampled",
    "no_reading_in_training",
    "no_kernel_fits",
    "blocks_unknown",
    "window_empty",
    "kernels_not_seen",
    "no_kernel_launched",
    "launches_lost",
    "steps_not_timed",
    "profiler_slows",
    "clock_moved",
    "gaps_not_checked",
    "gaps_disagree",
    "window_too_short",
    "slower_without_profiler",
    "interrupted",
    "reported",
]
"""What is in the way of a figure. The last is what a sampler, a probe or a failed configuration reported itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """Why a figure does not exist."""

    code: UnavailableCode
    facts: dict[str, float | str] = field(default_factory=dict)
    """What the sentence quotes: shares are 0 to 1, times s. `files` is what they were to be; with `reported` the
    `reason`."""
    sentence: str = ""
    """The reason in words; `render` adds it where the figures leave the program."""


def reported(reason: str) -> Unavailable:
    """What a sampler, a probe or a failed configuration said itself."""
    return Unavailable(code="reported", facts={"reason": reason})

"""Why a part of a storage plan is not made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PlanPart = Literal[
    "measured_storage", "rank_storage", "cold_opens", "workers", "cores", "reads_in_flight", "stragglers", "lock_step"
]  # fmt: skip
"""What a plan may have to leave out, in the order in which that is said."""
PlanReasonCode = Literal[
    "not_measured",
    "files_in_memory",
    "ceiling_not_measured",
    "ladder_not_measured",
    "ladder_from_memory",
    "reads_unproved",
    "reads_not_cold",
    "ranks_not_storage",
    "opens_not_measured",
    "opens_from_memory",
    "opens_unproved",
    "opens_from_memory_after_drop",
    "read_not_timed",
    "read_in_shard_not_timed",
    "no_worker_times",
    "file_wait_unknown",
    "bandwidth_without_workers",
    "bandwidth_without_steps",
    "steps_of_another",
    "steps_of_ranks",
    "steps_not_recorded",
    "too_few_steps",
    "fewer_steps_than_ranks",
    "batches_not_timed",
    "too_few_batches",
    "bandwidth_without_batches",
    "trace_without_workers",
    "trace_without_storage",
    "accelerator_waited",
    "only_a_cpu",
    "unavailable",
    "reported",
]
"""What is in the way. `unavailable`: what the storage's measurement lacks; the last is what is wrong with what was
asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReason:
    """Why a part of a plan, or the whole of it, is not made."""

    code: PlanReasonCode
    facts: dict[str, float | str] = field(default_factory=dict)
    """What the sentence quotes: shares are 0 to 1. `files` is what they were; with `reported` the `reason`,
    with `unavailable` the facts of what is, its code under `because`."""
    sentence: str = field(default="", compare=False)
    """The reason in words; added where the plan leaves the program."""


def reported(reason: str) -> PlanReason:
    """What is wrong with what was asked for."""
    return PlanReason(code="reported", facts={"reason": reason})

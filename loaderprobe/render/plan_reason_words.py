"""Why a part of a storage plan is not made, in words."""

from __future__ import annotations

from loaderprobe.records.plan import PlanPart, PlanReason, PlanReasonCode
from loaderprobe.render.facts import fact
from loaderprobe.render.unavailable_words import because_words

PART: dict[PlanPart, str] = {
    "measured_storage": "measured storage",
    "rank_storage": "storage by ranks",
    "cold_opens": "cold opens of the measured storage",
    "workers": "workers",
    "cores": "cores",
    "reads_in_flight": "reads in flight",
    "stragglers": "stragglers",
    "lock_step": "cost of lock-step",
}
_TEXTS: dict[PlanReasonCode, str] = {
    "not_measured": "this was not measured",
    "files_in_memory": "the files were in memory, so no storage was measured",
    "ceiling_not_measured": "the ceiling of the storage was not measured",
    "ladder_not_measured": "no step of the ladder was measured",
    "ladder_from_memory": "a step of its ladder came from memory, at least partly",
    "reads_unproved": "its reads cannot be proved to have come from storage",
    "reads_not_cold": "its reads were {files}, not cold",
    "ranks_not_storage": "storage did not limit the {ranks} ranks, so their {bytes_per_s} are no rate of it",
    "opens_not_measured": "opens/s were not measured",
    "opens_from_memory": ("names and inodes were in memory: only bandwidth --drop-caches (root) measures opens/s cold"),
    "opens_unproved": "names and inodes were dropped, but nothing counts whether they came from storage again",
    "opens_from_memory_after_drop": "names and inodes were dropped, but came from memory all the same",
    "read_not_timed": "the time of a read was not measured",
    "read_in_shard_not_timed": "the time of a read within a shard was not measured",
    "no_worker_times": "the workers left no record of their time",
    "file_wait_unknown": "how long a worker waits for a file on storage that keeps up is not known",
    "bandwidth_without_workers": "a bandwidth result has no worker: plan from a sweep",
    "bandwidth_without_steps": "a bandwidth result has no training steps",
    "steps_of_ranks": "the steps measured are those of several ranks, which wait for the slowest already",
    "steps_of_another": "the steps of this accelerator were not measured",
    "steps_not_recorded": "no single steps were measured",
    "too_few_steps": "{steps} measured steps are too few: {least} are needed",
    "fewer_steps_than_ranks": "{steps} measured steps cannot show how late the latest of {ranks} ranks is",
    "batches_not_timed": "the loader left no record of how long each batch took",
    "too_few_batches": "{batches} measured batches are too few: {least} are needed",
    "bandwidth_without_batches": "a bandwidth result has no batches: plan from a sweep",
    "trace_without_workers": "a recording holds nothing of the loader's workers: plan from a sweep",
    "trace_without_storage": "a recording holds nothing of a storage",
    "accelerator_waited": (
        "the measured accelerator waited {share} of its time, so its loader or storage did not keep up; "
        "single late steps do not show"
    ),
    "only_a_cpu": "training ran on a CPU only, so no accelerator's rate is known",
    "reported": "{reason}",
}


def plan_reason_words(reason: PlanReason) -> str:
    """A clause without a full stop: `no step of the ladder was measured`."""
    if reason.code == "unavailable":
        return because_words(reason.facts)
    return _TEXTS[reason.code].format(**{name: fact(name, value) for name, value in reason.facts.items()})

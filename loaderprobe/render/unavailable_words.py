"""Why a figure does not exist, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import cast

from loaderprobe.errors import MEASURE_AGAIN
from loaderprobe.records.unavailable import Unavailable, UnavailableCode
from loaderprobe.render.counter_words import COUNTERS
from loaderprobe.render.facts import fact
from loaderprobe.render.storage_words import STORAGE

_UNCOUNTED = "this file system counts no bytes"
_TEXTS: dict[UnavailableCode, str] = {
    "no_segment": "no {files} segment was measured",
    "not_beside": "no round measured it beside the configuration as asked",
    "files_in_memory": "the files are on a file system in memory, not on storage",
    "bytes_from_storage": "{share} of the bytes came from storage in segments meant to be {files}",
    "pages_resident": "{share} of the files was in the page cache before segments meant to be {files}",
    "read_less_again": "batches meant to be cold read {share} of what the first pass read from storage",
    "warm_after_first_pass": (
        "not all files are known, so they could not be evicted and came from memory after the first pass"
    ),
    "always_warm": "not all files are known, so they could not be evicted and were in memory",
    "samples_kept": "the data set keeps its samples, so warm files take less work and show nothing",
    "no_worker_times": "the workers left no record of their time",
    "no_warm_segment": f"{_UNCOUNTED}, and no warm segment was measured to compare waits with",
    "warm_files_waited_for": f"{_UNCOUNTED}, and workers waited {{share}} of their time on files meant to be warm",
    "waits_alike": (
        f"{_UNCOUNTED}, and waits do not separate cold segments ({{cold_s}} ms an image) from warm ones ({{warm_s}} ms)"
    ),
    "wait_unexplained": "workers wait {share} of their time, and nothing shows that it is for storage",
    "no_worker_cpu_times": "the workers left no record of their CPU time",
    "too_few_wait_samples": "too few samples of what workers wait for",
    "nothing_else_takes_time": "nothing else takes measurable time",
    "overhead_not_recorded": "this run did not record its own overhead",
    "no_resident_segment": "no segment with a resident batch was measured",
    "compute_unknown": "the rate of compute alone is not known",
    "no_step": "no step was given",
    "reads_not_counted": "this file system does not count reads",
    "files_came_from_memory": "the files came from memory, not from storage",
    "devices_not_visible": "the devices are not visible from here",
    "warm_as_asked": "the files are warm as asked, so nothing is read from storage",
    "ceiling_not_measured": (
        "the ceiling was not measured at this concurrency, only where storage may be the limit and for the most workers"
    ),
    "ceiling_not_cold": "the reads that measured the ceiling were {files}, not cold",
    "cores_below_ceiling": "the cores cannot read faster than {bytes_per_s}; the storage delivers more",
    "no_gpu_sampled": "no GPU was sampled",
    "no_reading_in_training": "no reading fell into a training segment",
    "no_kernel_fits": "no kernel record has the number of warps that fit on an SM",
    "blocks_unknown": "too few kernels tell over how many SMs they spread",
    "window_empty": "the profiler's window is empty",
    "kernels_not_seen": (
        "the profiler saw {launches} launches and not one kernel: another profiler that is attached (CUPTI serves one "
        "at a time) or WSL may be the reason"
    ),
    "no_kernel_launched": "no kernel was launched while the profiler ran",
    "launches_lost": "{exact_share} of the launches left no record of a kernel, refused above {most}",
    "steps_not_timed": "the steps were not timed without the profiler, so its cost is not known",
    "profiler_slows": "the profiler slowed the steps by {exact_share}, refused above {most}",
    "clock_moved": "the host's clock was moved by {clock_s} µs while the profiler ran, refused above {most_s} µs",
    "gaps_not_checked": "the rate of compute alone is not known, so the attribution is not checked against rates",
    "gaps_disagree": (
        "attribution and throughput disagree: by the gaps the device was idle for its input for {idle_by_gaps} of the "
        "time, by the rates for {idle_by_rates}"
    ),
    "window_too_short": (
        "the window of {steps} steps is shorter than twice the {ahead} batches that are loaded ahead, so input may "
        "look faster than it is"
    ),
    "slower_without_profiler": (
        "the steps were {exact_share} slower without the profiler than with it, so its cost is not known"
    ),
    "interrupted": "Ctrl-C came before it was judged",
    "not_measured": "not measured yet",
    "failed": "{error} (at: {stage}){hint}",
    "result_damaged": f"{{file}} {{error}}; {MEASURE_AGAIN}",
    "not_read": "nothing was read in so short a time",
    "file_damaged": "{file} {error}",
    "peak_unreadable": "the peak of memory cannot be read here",
    "buffer_not_told": "this loader does not tell when its buffer is full",
    "buffer_not_filled": "the loader did not fill its buffer within {within_s}",
    "too_few_for_buffer": "{images} images are too few to read each once: --images {least} is enough",
    "too_few_for_epoch": "{images} images are too few for an epoch: {least} are needed",
    "epochs_too_long": "{epochs} epochs of {images} images take about {take_s}, more than --time-limit: {timeout_s}",
    "study_left": "not yet; --resume continues",
    "bytes_on_a_rank": (
        "on rank {rank} ({host}), {share} of the bytes came from storage in segments meant to be {files}"
    ),
    "one_rank": "one rank waits for no other",
    "ranks_not_apart": "the ranks were measured in step only, none by itself",
    "exchange_not_measured": "the exchange of gradients was not measured apart",
    "ceiling_of_one_node": "the ceiling was measured from one node, and several read",
    "reported": "{reason}",
    **COUNTERS,
    **STORAGE,
}
_ENDED = "; its readings end {ended_after_s} s after sampling began"


def unavailable_words(*reasons: Unavailable) -> str:
    """A clause without a full stop: `no warm segment was measured`. Several with one code give their range."""
    return _worded(reasons[0].code, [each.facts for each in reasons])


def because_words(*facts: Mapping[str, float | str]) -> str:
    """The same for facts that stand among others, with their code under `because`."""
    code = cast("UnavailableCode", facts[0]["because"])
    return _worded(code, facts)


def _worded(code: UnavailableCode, facts: Sequence[Mapping[str, float | str]]) -> str:
    text = _TEXTS[code] + (_ENDED if "ended_after_s" in facts[0] else "")
    if code == "failed" and "rank" in facts[0]:
        text = text.replace("{stage}", "{stage}, rank {rank}" + (" on {host}" if facts[0].get("host") else ""))
    names = [field for _, field, _, _ in Formatter().parse(text) if field]
    return text.format(**{name: _range(name, [each[name] for each in facts]) for name in names})


def _range(name: str, values: Sequence[float | str]) -> str:
    """`15 %`, or `15 % to 33 %`; a fact that is a word is the same in all."""
    if isinstance(values[0], str):
        return f"; {values[0]}" if name == "hint" and values[0] else values[0]
    numbers = sorted(float(value) for value in values)
    return " to ".join(dict.fromkeys(fact(name, value) for value in (numbers[0], numbers[-1])))

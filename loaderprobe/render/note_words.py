"""What else is to know of a result, in words."""

from __future__ import annotations

from typing import get_args

from loaderprobe.records.measurement import RejectedCode
from loaderprobe.records.note import Note, NoteCode, TraceNote
from loaderprobe.render.facts import fact
from loaderprobe.render.unavailable_words import because_words
from loaderprobe.render.unknown_files_words import UNKNOWN_FILES
from loaderprobe.render.wording import counted, percent, times_as_fast
from loaderprobe.units import join_words

_LOOKS_COLD = "its reads look cold, but no storage is behind them"
_STAYS = "changes there during the diagnosis stay"
_NOT_SHARED = "each of the {ranks} ranks goes through the whole data set, so an epoch has every sample {ranks} times"
_SPIN = (
    "torch's threads spin while the serial loader makes a batch: alone it keeps {cores} cores busy for {loader_per_s} "
    "{unit}, and {one_thread_cores} for {one_thread_per_s} {unit} with torch on one thread"
)
_DURING = "during {segments} of {of} segments"
_TEXTS: dict[NoteCode, str] = {
    "no_time": "there was no time left for another round{more}",
    "cut_short": "there was no time left for all of the last round{more}",
    "all_batches_made": "every batch of the data set was made once, so there was no further round",
    "only_watched": "training was only watched: of all rates and speed-ups, only the rate of training is measured",
    "begun_each_batch": "the script iterates its loader from the start for each batch: what that takes is in no rate",
    "measured_again": "segments in which the script did something else than training were measured again",
    "too_few_samples": "the {samples} samples are too few to read each once per segment: {needed} are needed",
    "script_ended": "the script ended within a round",
    "broken_off": "batches or steps took so long that a round was broken off",
    "workers_without_data": "{idle} of {workers} workers {get} no data: measured with {with_data}",
    "wrapper_left_out": "what {wrapper} does around its DataLoader is left out: {why}; {path} is measured",
    "taken_in_order": "batches were taken in order, although the loader has in_order=False",
    "odd_batches": "batches differ in length; {batches} that are not as long as the first were left out",
    "shared_memory_stays": (
        f"{{size_bytes}} of the memory that the loader shares with its workers cannot be restored: {_STAYS}"
    ),
    "manager_stays": f"state of the loader is in a multiprocessing.Manager: {_STAYS}",
    "one_round": "there was one round only, so how far the rates vary is not known",
    "files_hidden": "{hidden}, so files were read as they were found, and speed-ups are estimated",
    "reads_no_files": "samples read no files, so nothing was made cold or warm",
    "samples_kept": (
        "batches made again take less time, so the data set, or what it reads from, keeps them: in the first epoch "
        "the loader alone delivers {first_per_s} {unit}{later}; the verdict is on the {judged}"
    ),
    "fits_in_memory": (
        "the whole data set (about {size_bytes}) fits in memory: after the first epoch its files may be warm, where "
        "the loader alone delivers {warm_per_s} {unit}"
    ),
    "read_ahead": (
        "for each {sample_bytes} of samples the storage reads {read_bytes}, {amplification} times as much, because the "
        "kernel reads ahead. Hardly a sample was served by what was read for another, as in a set larger than memory. "
        "Of that the loader alone delivers {low_per_s} to {high_per_s} {unit}"
    ),
    "small_set": (
        "the whole data set (about {size_bytes}) can stay in memory, and the storage delivers it in about {within_s}: "
        "in the first epoch the loader alone delivers {low_per_s} to {high_per_s} {unit} (estimated), limited by "
        "storage; in later ones {memory_per_s} ({how}), without it"
    ),
    "ranks_together": (
        "{ranks} ranks{on}, measured together: rates are those of all of them, which train in step. Times of workers "
        "are those of the slowest rank. The exchange of gradients counts as compute"
    ),
    "ranks_meet": (
        "to stay in step, ranks met after each step, which takes {meeting_s}: about {share} of a training step, in "
        "every rate"
    ),
    "ranks_meet_loading": (
        "with the loader only, ranks meet after each batch, which takes {meeting_s}: about {share} of its time"
    ),
    "ranks_in_step": (
        "{ranks} ranks{on}, measured in step: rates are those of all of them together. Times of workers are those of "
        "the slowest rank{exchange}"
    ),
    "same_samples": (
        f"{_NOT_SHARED}. In their first batches, {{again}} of {{files}} files opened were repeats of another rank's"
    ),
    "same_batches": (f"{_NOT_SHARED}. Their first batches have the same content"),
    "storage_alone": (
        "the storage alone delivers {least}{alone_bytes_per_s} to {readers}; {read_bytes_per_s} are read here, {share} "
        "of that"
    ),
    "threads_spin": _SPIN,
    "threads_spin_in_training": (
        f"{_SPIN}. Training runs at {{training_per_s}} and {{one_thread_training_per_s}} {{unit}}"
    ),
    "others_took": f"other processes took {{share}} of {{cores}} cores {_DURING}",
    "host_took": f"the hypervisor gave other machines {{share}} of {{cores}} cores {_DURING}",
    "others_read_too": f"other processes read {{bytes_per_s}} from the same devices {_DURING}",
    "script_paused": (
        "the script did something else than train for {paused_s} between batches, which counts towards the budget"
    ),
    "mount_hidden": "the mount of this path is not listed, so its file system is not known",
    "device_hidden": "the block device under this file system is not visible from here",
    "zfs_cache": "ZFS has its own cache, which cannot be emptied file by file",
    "in_memory": "memory, not storage: nothing here can be read cold",
    "nfs": "NFS counts reads for the whole mount, and the server's cache cannot be emptied from here",
    "remote_uncounted": (
        "nothing here counts what {filesystem} reads, and its remote caches cannot be emptied from here"
    ),
    "fuse": "FUSE: another program reads, so reads are not counted for the caller; its caches cannot be emptied",
    "device_in_memory": f"{{device}} is a device in memory: {_LOOKS_COLD}",
    "loop_hidden": "what file {device} is cannot be seen from here",
    "loop_file_hidden": "{device} is the file {file}, which is not visible from here{cache}",
    "loop_file": "{device} is the file {file} on {filesystem} ({under}){cache}",
    "layers_hidden": "the layers of this overlay, and so its devices, are not visible from here, as in most containers",
    "some_layers_hidden": "{hidden} of the {layers} layers of this overlay are not visible from here",
    "layers_in_memory": "the visible layers of this overlay are memory, not storage: nothing in them can be read cold",
    "some_layers_in_memory": "a read of a file in a layer of this overlay is from memory ({paths})",
    "files_elsewhere": "the files are not on the file system of {path}, but on {mount}",
    "several_filesystems": "the files lie on several file systems ({mounts}), whose reads cannot be separated",
    "files_unknown": "the files are not known",
    "files_skipped": "{files} files skipped: {why}",
    "large_files_in_blocks": "files of more than 16 MiB are read in blocks of 1 MiB at random",
    "scratch_file": "a scratch file of {size_bytes}, read in blocks of 128 KiB",
    "read_again": (
        "the files read hold {size_bytes}; they were evicted and read again {times} times, which a cache below this "
        "machine (controller, file server, host of a virtual machine) may have served: only more data than it holds "
        "rules that out"
    ),
    "cache_unknown": "the state of the page cache before a phase is unknown: {because}",
    "short_reading": "only {seconds} s of reading: use more files for a more stable figure",
    "probe_busy": "the probe kept {cores} of {cores_available} cores busy",
    "repeats_faster": (
        "the first pass over the files got {first_bytes_per_s}, repeats {again_bytes_per_s}: a cache below this "
        "machine served them"
    ),
    "opens_short": "opens/s are those of under a second, and may be lower for longer: probe more files",
    "opens_unsettled": "the rate of opens had not settled",
    "no_images": "the files are no images by their names; each is taken for one",
    "not_published": "not published: {limits}",
    "others_read": "other processes read {bytes_per_s} from it meanwhile",
    "rate_unsettled": "the rate had not settled",
    "bytes_as_read": "bytes an image are what storage gave for it; --layout shards:IMAGES counts the opens of shards",
    "ranks_at_least": (
        "{ranks} ranks in step did not reach its limit, so it gives at least that: {next} ranks may show more"
    ),
    "clients_at_least": (
        "{clients} readers did not reach its limit, so it gives at least that: {next} readers may show more"
    ),
    "ranks_uneven": (
        "rank {rank} on {host} read at {share} of the fastest rank's rate: accelerators in step wait for it, and may "
        "get as little as {bytes_per_s}"
    ),
    "samples_as_images": "batches hold no images: each sample is taken for one",
    "workers_not_recorded": "a recording holds nothing of the loader's workers, so input is not split further",
    "no_loader_spans": (
        "no span of a loader is on record, so input cannot be separated from the host: what the training waits for its "
        "loader counts as the host's"
    ),
    "no_step_marks": "nothing marks steps, so the whole recording counts as one",
    "few_steps": "only {recorded} on record, so how far steps vary is not known",
    "first_steps_left_out": "{first} at the beginning, slower than usual, {left} left out",
    "host_slowed_by_profiler": "the profiler slows the host, so its share is an upper limit",
    "occupancy_not_known": "occupancy is not known: the recording lacks registers of kernels, or the GPU's limits",
    "occupancy_of_nvidia": "occupancy is not known: it is estimated for GPUs of NVIDIA only",
    "steps_vary": "steps vary by more than 20 % around their mean, which says little of a single one",
    "trace_cut_off": "the file ends early: it was read as far as it goes",
    "trace_too_long": "the file has {records} records: its first {first} are shown, as many as are kept in memory",
    "trace_unreadable": "{events} events are no JSON, and were left out",
    "launches_not_recorded": (
        "the launch of {kernels} kernels is not on record: what the GPU waited for there is not known"
    ),
    "ranks_missing": (
        "{given} of {ranks} ranks are given: waiting for the input of another rank counts as communication here"
    ),
    "first_steps_fed": (
        "the first {first} did not wait for input: batches loaded ahead may have fed them. From step {next} on input "
        "and copies take {input_share}. Without, it would be {as_fast} from there on"
    ),
    "perhaps_fed": (
        "{recorded} few where workers have loaded batches ahead: a wait for input may come later. Record 2 to 3 times "
        "workers x prefetch_factor steps, after a wait of as many"
    ),
    "records_rejected": "{records} records of the profiler were left out: {why}",
    "reported": "{text}",
}
REJECTED: dict[RejectedCode, str] = {
    "no_stamp": "without a valid time",
    "backwards": "ended before it began",
    "outside": "outside the window",
    "too_early": "began before it was launched",
    "cut": "overlapped the next record of its stream, and was cut there",
}
_WHY_LEFT_OUT = {
    "not_one_for_one": "it does not give one batch for each that it takes",
    "new_batches": "it may form new batches",
    "has_del": "it cannot be copied because it has a __del__",
    "at_work": "it cannot be copied, since its .{attribute} is at work",
    "not_copied": "it cannot be copied ({error})",
}
_LIMITS = {"opens_at_size": "opens at this size", "requests_at_size": "requests at this size",
           "operations": "opens and requests"}  # fmt: skip
_LOOP_CACHE = {
    "in_memory": f", in memory: {_LOOKS_COLD}",
    "own_cache": "; that file's own cache may serve reads that look cold (losetup --direct-io=on forbids it)",
    "none": "",
}


_MORE_TIME = "; a budget of {budget_s} s would allow {rounds} rounds"


def note_words(note: Note) -> str:
    """A clause without a full stop: `the rate had not settled`."""
    facts = {name: fact(name, value) for name, value in note.facts.items()}
    facts["more"] = _MORE_TIME.format(**facts) if "budget_s" in facts else ""
    facts |= _trace_facts(note)
    match note.code:
        case "workers_without_data":
            idle, busy = note.facts["idle"], note.facts["busy"]
            facts |= {"get": "gets" if idle == 1 else "get", "with_data": f"{busy:g} worker{'' if busy == 1 else 's'}"}
        case "wrapper_left_out":
            facts["why"] = _WHY_LEFT_OUT[str(note.facts["because"])].format(**facts)
        case "storage_alone":
            facts["readers"] = counted(int(note.facts["readers"]), "reader")
        case "files_hidden":
            facts["hidden"] = UNKNOWN_FILES[note.facts["because"]]  # type: ignore[index]  # one of its codes
        case "samples_kept":
            facts["later"] = f", in later ones {facts['later_per_s']}" if "later_per_s" in facts else ""
            facts["judged"] = "later epochs" if note.facts["judged"] == "later" else f"{note.facts['judged']} epoch"
        case "loop_file" | "loop_file_hidden":
            facts["cache"] = _LOOP_CACHE[str(note.facts["cache"])]
        case "ranks_together" | "ranks_in_step":
            hosts = note.facts["hosts"]
            facts["on"] = f" on {hosts:g} hosts" if hosts != 1 else ""
            as_compute = note.facts.get("exchange") == "compute"
            facts["exchange"] = ". If the step exchanges gradients, that counts as compute" if as_compute else ""
        case "cache_unknown":
            facts["because"] = because_words(note.facts)
        case "not_published":
            limits = str(note.facts["limits"]).split(" ")
            facts["limits"] = join_words([_LIMITS.get(each, each) for each in limits])
    return _TEXTS[note.code].format(**facts)


def _trace_facts(note: Note) -> dict[str, str]:
    """What notes of recordings put into their forms."""
    if note.code == "records_rejected":
        return {"why": REJECTED[note.facts["because"]]}  # type: ignore[index]  # one of its codes
    if note.code not in get_args(TraceNote) or "steps" not in note.facts:
        return {}
    steps = int(note.facts["steps"])
    one = steps == 1
    said = counted(steps, "step")
    found = {"first": said, "left": "was" if one else "were", "recorded": f"{said} {'is' if one else 'are'}"}
    if "input_share" in note.facts:
        share = float(note.facts["input_share"])
        found |= {"input_share": percent(share), "as_fast": times_as_fast(1 / (1 - share), "at most ")}
    return found

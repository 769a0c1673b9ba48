"""The catalogue of remarks: the words of every note, reason, refusal and missing figure, by its code.

A code exists because it stands here. A text is a clause without a full stop; what stands in braces is a fact, shown
with the unit that the end of its name says (`fact`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Formatter

from loaderprobe.errors import MEASURE_AGAIN
from loaderprobe.records.files import UnknownFilesCode
from loaderprobe.records.measurement import RejectedCode
from loaderprobe.records.remark import Remark
from loaderprobe.records.resources import BOTTLENECKS, RESOURCE
from loaderprobe.render.wording import counted, named, percent, rate, times_as_fast
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

Facts = Mapping[str, float | str]

_LOOKS_COLD = "its reads look cold, but no storage is behind them"
_STAYS = "changes there during the diagnosis stay"
_NOT_SHARED = "each of the {ranks} ranks goes through the whole data set, so an epoch has every sample {ranks} times"
_SPIN = (
    "torch's threads spin while the serial loader makes a batch: alone it keeps {cores} cores busy for {loader_per_s} "
    "{unit}, and {one_thread_cores} for {one_thread_per_s} {unit} with torch on one thread"
)
_DURING = "during {segments} of {of} segments"
_UNCOUNTED = "this file system counts no bytes"
_WAITS_PROCESS = "the process that samples the workers' waits"
_NO_SYSCALL = "no permission to read /proc/PID/syscall"
_OF_A_MEASUREMENT = {
    "no_time": "there was no time left for another round{more}",
    "cut_short": "time ran out within the last round{more}",
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
        f"{_SPIN}. In those rounds training ran at {{training_per_s}} and {{one_thread_training_per_s}} {{unit}}"
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
    "quoted": "{text}",
}
"""Of what was measured, of the storage under a path, of a probe, of a plan, of a recording."""
_NO_FIGURE = {
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
    "kept_samples_show_nothing": "the data set keeps its samples, so warm files take less work and show nothing",
    "no_worker_times": "the workers left no record of their time",
    "no_warm_segment": f"{_UNCOUNTED}, and no warm segment was measured to compare waits with",
    "warm_files_waited_for": f"{_UNCOUNTED}, and workers waited {{share}} of their time on files meant to be warm",
    "waits_alike": (
        f"{_UNCOUNTED}, and waits do not separate cold segments ({{cold_s}} ms an image) from warm ones ({{warm_s}} ms)"
    ),
    "wait_unexplained": "workers wait {share} of their time, and nothing shows that it is for storage",
    "no_worker_cpu_times": "the workers left no record of their CPU time",
    "no_mode_without": "this loader has no mode without it",
    "too_few_wait_samples": "too few samples of what workers wait for",
    "nothing_else_takes_time": "nothing else takes measurable time",
    "decoding_not_timed": "decoding was not timed apart from augmentation",
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
}
"""Why a figure does not exist: what the rounds, the counters and the profiler window lack."""
_NO_COUNTER = {
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
"""Why a sampler read nothing, or the profiler recorded nothing. `nvml` and `gpm` have NVML's error as `status`."""
_NO_PHASE = {
    "not_regular": "{path} is not a regular file",
    "on_fuse": "{path} is on FUSE, where opening a file to ask may empty its cache",
    "own_cache": "{path} is on {filesystem}, which has its own cache that the kernel does not show",
    "foreign_on_network": (
        "{path} belongs to another user, and on network file systems the kernel hides its cache state"
    ),
    "foreign_hidden": "{path} belongs to another user, and this file system hides its cache state",
    "not_examined": "{path} cannot be examined: {error}",
    "phase_failed": "failed: {error}",
    "phase_interrupted": "the probing ended before",
    "too_few_files": "{files} files are too few for concurrency {readers}",
    "opens_of_blocks": "a loader seldom opens files that it reads in blocks",
    "direct_refused": "this file system refuses O_DIRECT: {error}",
    "files_vanished": "the files have vanished",
    "no_large_file": "there is no file of 64 MB or more to read sequentially; --scratch 1GB makes one",
    "no_single_reader": "it is compared with concurrency 1, which --readers left out",
    "ceiling_failed": "measuring the ceiling failed: {error}",
    "kind_failed": "the kind of storage was not found out: {error}",
    "files_empty": "the files are empty",
    "filesystem_not_counted": "reads of {filesystem} are not counted, so there is nothing to compare",
}
"""Why the page cache does not show what it holds, or a phase of a probe was not measured."""
_NO_PLAN = {
    "part_not_measured": "this was not measured",
    "no_storage_behind_files": "the files were in memory, so no storage was measured",
    "no_ceiling": "the ceiling of the storage was not measured",
    "ladder_not_measured": "no step of the ladder was measured",
    "ladder_from_memory": "a step of its ladder came from memory, at least partly",
    "reads_unproved": "its reads cannot be proved to have come from storage",
    "reads_not_cold": "its reads were {files}, not cold",
    "opens_not_measured": "opens/s were not measured",
    "opens_from_memory": ("names and inodes were in memory: only bandwidth --drop-caches (root) measures opens/s cold"),
    "opens_unproved": "names and inodes were dropped, but nothing counts whether they came from storage again",
    "opens_from_memory_after_drop": "names and inodes were dropped, but came from memory all the same",
    "read_not_timed": "the time of a read was not measured",
    "read_in_shard_not_timed": "the time of a read within a shard was not measured",
    "file_wait_unknown": "how long a worker waits for a file on storage that keeps up is not known",
    "ranks_do_not_pause": "ranks read without pauses",
    "bandwidth_without_workers": "a bandwidth result has no worker: plan from a sweep",
    "trace_without_workers": "a recording holds nothing of the loader's workers: plan from a sweep",
    "trace_without_storage": "a recording holds nothing of a storage",
    "only_a_cpu": "training ran on a CPU only, so no accelerator's rate is known",
}
"""Why a part of a storage plan is not made."""
_NO_FORECAST = {
    "no_complete_round": "no round measured the loader, compute and training on both",
    "outside_noise_band": "training ran at {predicted_share} of its prediction, outside the noise band",
    "no_model_fits": "no model comes near the measured rate, so something else limits the loader",
    "files_from_memory": "the files came from memory, so nothing is known of the storage",
    "files_as_found": "the files were read as found, so the share of storage is not known",
    "more_than_cores": "only {cores} cores were measured",
    "no_cpu_time": "its CPU time was not measured",
    "more_than_storage": "it needs {bytes_per_s}, more than the storage was measured to deliver",
    "exchange_of_gradients": "ranks exchange gradients, for which a faster device waits as well",
    "laws_disagree": (
        "the kind of storage is not known, and forecasts range from {least_images_per_s} to {most_images_per_s} "
        "images/s"
    ),
}
"""Why there is no forecast."""
_ON_THIS_MACHINE = {
    "on_storage": "{filesystem} on {devices}{ahead}",
    "path_in_memory": "{path} is in memory, not on storage",
    "memory_always_warm": "files in memory are always warm",
    "no_trial_file": "no permission to write a test file here; the sweep checks by bytes read",
    "no_cache_state": "the state of the page cache is unknown here",
    "stays_in_cache": "{share} of a file stayed in the cache after it was dropped",
    "evicted": "a file was dropped from the page cache, confirmed by the kernel",
    "device_counted": "/proc/diskstats counts {devices}",
    "device_not_counted": "/proc/diskstats shows no device of this file system",
    "reads_counted": "/proc/PID/io and getrusage count bytes fetched from storage",
    "reads_refused": "no permission to read /proc/PID/io",
    "filesystem_counts_no_reads": "the kernel does not count reads of {filesystem}",
    "calls_seen": "/proc/PID/task/TID/syscall shows files, sockets and locks",
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
    "gpu_not_read": "{gpu}: {because}",
}
"""What was found of what can be measured here."""
_ALONE_GAVE = (
    "alone it gave {least}{alone_bytes_per_s}, {times} times the {read_bytes_per_s} that training read in the tightest "
    "case ({of})"
)
_OF_THE_ANSWER = {
    "training_reaches": "at best it reaches {reached} % of the accelerator's {alone}",
    "cores_full_from": "{all} cores are busy{data} from {workers} on",
    "if_storage_were_free": "if it cost nothing, training would be {as_fast}",
    "reads_near_ceiling": (
        "training read {read_bytes_per_s} ({of}), and the storage alone gave {least}{alone_bytes_per_s}"
    ),
    "reads_far_below_ceiling": _ALONE_GAVE,
    "reads_take_time": f"{_ALONE_GAVE}: the time that a read takes, not bandwidth",
    "measure_longer": "measure longer: no configuration is conclusive yet",
    "train_on_emulated": "No GPU trained here. An emulated accelerator shows what this input would feed",
    "more_cores": (
        "more cores:{gains} {one} needs {needed} there (estimated), {more}; this machine has {cores_available}"
    ),
    "pace_of_a_benchmark": (
        "{accelerator} is the pace of a storage benchmark, not how fast that GPU trains: {recipe} trains {rate} "
        "images/s. Your rate: loaderprobe plan --kind IMAGES_PER_S"
    ),
    "real_gpu": "a real GPU",
    "own_images": "your own images",
    "several_machines": "several machines on one storage",
    "storage_ceiling": "the most that the storage here gives",
}
"""What the answer says beside the limits, what to do next, and what does not follow."""
_OF_ABLATIONS = {
    "ablated_in_training": "ablations measured in training itself, {rounds}: the prediction did not fit",
    "ablated": "ablations measured, {rounds}: {nouns}",
    "nothing_to_ablate": "no round measured the loader, compute and training",
    "ablations_cannot_matter": (
        "no ablation measured: the speed-up is {input} if all input were free, {compute} if compute were"
    ),
    "ablations_not_possible": ("no ablation that would decide was measured. Estimated speed-ups if free: {speedups}"),
    "ablations_not_needed": "no ablation needed: the workers' own times show the cause. Speed-ups if free: {speedups}",
}
"""Which resources were made free, and why no more."""
WORDS: dict[str, str] = {
    **_OF_A_MEASUREMENT,
    **_NO_FIGURE,
    **_NO_COUNTER,
    **_NO_PHASE,
    **_NO_PLAN,
    **_NO_FORECAST,
    **_ON_THIS_MACHINE,
    **_OF_THE_ANSWER,
    **_OF_ABLATIONS,
    "reported": "{reason}",
    "unavailable": "{because}",
    "storage_missing": "{because}",
}
"""All of them. What another program, or an error, said itself is `reported`; a text from a catalogue is `quoted`."""
UNKNOWN_FILES: dict[UnknownFilesCode, str] = {
    "none_seen": "no file that the data set opens was seen",
    "none_read": "samples read no files",
    "opened_below_python": "the data set opens files below Python, so the files of a batch are unknown",
    "read_in_parts": "the data set reads only parts of the files that it opens",
    "read_beside": "the data set reads more than the files that it opens in Python",
}
"""Why the files that a loader reads are not known."""
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


_ENDED = "; its readings end {ended_after_s} s after sampling began"
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


def remark_words(*remarks: Remark) -> str:
    """A clause without a full stop: `no warm segment was measured`. Several with one code give their range."""
    return _worded(remarks[0].code, [remark.facts for remark in remarks])


def because_words(*facts: Facts) -> str:
    """The same for facts that stand among others, with their code under `because`."""
    return _worded(str(facts[0]["because"]), facts)


def _worded(code: str, facts: Sequence[Facts]) -> str:
    text = WORDS[code] + (_ENDED if "ended_after_s" in facts[0] else "")
    if code == "failed" and "rank" in facts[0]:
        text = text.replace("{stage}", "{stage}, rank {rank}" + (" on {host}" if facts[0].get("host") else ""))
    phrases = PHRASES[code](facts[0]) if code in PHRASES else {}
    names = {field for _, field, _, _ in Formatter().parse(text) if field}
    quoted = {name: _range(name, [each[name] for each in facts]) for name in names - phrases.keys()}
    return text.format(**quoted, **phrases)


def _range(name: str, values: Sequence[float | str]) -> str:
    """`15 %`, or `15 % to 33 %`; a fact that is a word is the same in all."""
    if isinstance(values[0], str):
        return f"; {values[0]}" if name == "hint" and values[0] else values[0]
    numbers = sorted(float(value) for value in values)
    return " to ".join(dict.fromkeys(fact(name, value) for value in (numbers[0], numbers[-1])))


def _more_time(facts: Facts) -> dict[str, str]:
    quoted = {name: fact(name, value) for name, value in facts.items()}
    return {"more": _MORE_TIME.format(**quoted) if "budget_s" in facts else ""}


def _of_ranks(facts: Facts) -> dict[str, str]:
    hosts, as_compute = facts["hosts"], facts.get("exchange") == "compute"
    return {
        "on": f" on {hosts:g} hosts" if hosts != 1 else "",
        "exchange": ". If the step exchanges gradients, that counts as compute" if as_compute else "",
    }


def _idle_workers(facts: Facts) -> dict[str, str]:
    idle, busy = facts["idle"], facts["busy"]
    return {"get": "gets" if idle == 1 else "get", "with_data": f"{busy:g} worker{'' if busy == 1 else 's'}"}


def _kept(facts: Facts) -> dict[str, str]:
    later = f", in later ones {fact('later_per_s', facts['later_per_s'])}" if "later_per_s" in facts else ""
    return {"later": later, "judged": "later epochs" if facts["judged"] == "later" else f"{facts['judged']} epoch"}


def _ahead(facts: Facts) -> dict[str, str]:
    ahead = facts.get("read_ahead_bytes")
    return {"ahead": f", {fact('read_ahead_bytes', ahead)}" if ahead is not None else ""}


def _unpublished(facts: Facts) -> dict[str, str]:
    return {"limits": join_words([_LIMITS.get(limit, limit) for limit in str(facts["limits"]).split(" ")])}


def _steps_of_trace(facts: Facts) -> dict[str, str]:
    steps = int(facts["steps"])
    said = counted(steps, "step")
    found = {
        "first": said,
        "left": "was" if steps == 1 else "were",
        "recorded": f"{said} {'is' if steps == 1 else 'are'}",
    }
    if "input_share" in facts:
        share = float(facts["input_share"])
        found |= {"input_share": percent(share), "as_fast": times_as_fast(1 / (1 - share), "at most ")}
    return found


def _reached(facts: Facts) -> dict[str, str]:
    ends = (percent(float(facts[name])).removesuffix(" %") for name in ("low", "high"))
    alone = f"{rate(float(facts['alone_images_per_s']))} images/s" if "alone_images_per_s" in facts else "rate"
    return {"reached": " to ".join(dict.fromkeys(ends)), "alone": alone}


def _full_cores(facts: Facts) -> dict[str, str]:
    low, high, cores = facts["low_workers"], facts["high_workers"], facts["cores"]
    ends = " to ".join(dict.fromkeys((f"{low}", f"{high}")))
    return {
        "all": "both" if cores == 2 else f"all {cores:g}",
        "workers": f"{ends} worker{'s' if float(high) > 1 else ''}" if float(high) else "the serial loader",
        "data": f" for {facts['data']}" if "data" in facts else "",
    }


def _one_configuration(facts: Facts) -> str:
    """`256x256, 2 workers`."""
    workers = int(facts["workers"])
    return f"{facts['data']}, {counted(workers, 'worker') if workers else 'serial'}"


def _without_storage(facts: Facts) -> dict[str, str]:
    speedup, high = float(facts["speedup"]), float(facts["high"])
    said = times_as_fast(speedup, "at best ")
    of = _one_configuration(facts)
    if significant(high, 2) == significant(max(speedup, 1.0), 2):
        return {"as_fast": said if said == "no faster" else f"{said} ({of})"}
    return {"as_fast": f"{said} ({of}; up to {significant(high, 2)} within noise)"}


def _needed_cores(facts: Facts) -> dict[str, str]:
    def of(count: int) -> str:
        # From the figure that is shown of one, so that a reader who multiplies finds the same.
        shown = (float(significant(float(facts[name]), 2)) for name in ("low_cores", "high_cores"))
        ends = (f"{count * each:.0f}" for each in shown)
        return " to ".join(dict.fromkeys(ends))

    one = (significant(float(facts[name]), 2) for name in ("low_cores", "high_cores"))
    by_size = " by the size of the images" if facts["data_sets"] != 1 else ""
    then = f", then {BOTTLENECKS[str(facts['then'])].noun} limits these workers" if "then" in facts else ""
    return {
        "gains": f" {facts['gains']} images/s with preprocessing free{then};" if "gains" in facts else "",
        "one": named(str(facts["accelerator"])),
        "needed": f"{' to '.join(dict.fromkeys(one))}{by_size}",
        "more": f"8 need {of(8)} and 64 need {of(64)}",
    }


def _ablated(facts: Facts) -> dict[str, str]:
    """Of rounds by resource, or `rounds`."""
    rounds = max(map(float, facts.values()))
    return {
        "rounds": f"{rounds:.0f} round{'s' if rounds > 1 else ''}",
        "nouns": join_words([RESOURCE[name].noun for name in facts if name in RESOURCE]),
    }


def _speedups(facts: Facts) -> dict[str, str]:
    each = {name: significant(float(value), 2) for name, value in facts.items()}
    return {"speedups": ", ".join(f"{RESOURCE[name].noun} {value}" for name, value in each.items())}


PHRASES: dict[str, Callable[[Facts], dict[str, str]]] = {
    **dict.fromkeys(
        ("unavailable", "storage_missing", "cache_unknown", "gpu_not_read"),
        lambda facts: {"because": because_words(facts)},
    ),
    **dict.fromkeys(("no_time", "cut_short"), _more_time),
    **dict.fromkeys(("ranks_together", "ranks_in_step"), _of_ranks),
    **dict.fromkeys(("loop_file", "loop_file_hidden"), lambda facts: {"cache": _LOOP_CACHE[str(facts["cache"])]}),
    **dict.fromkeys(
        ("few_steps", "first_steps_left_out", "first_steps_fed", "perhaps_fed", "trace_too_long"), _steps_of_trace
    ),
    **dict.fromkeys(
        ("reads_far_below_ceiling", "reads_take_time"),
        lambda facts: {"times": significant(float(facts["times"]), 2), "of": _one_configuration(facts)},
    ),
    "reads_near_ceiling": lambda facts: {"of": _one_configuration(facts)},
    **dict.fromkeys(("ablated", "ablated_in_training"), _ablated),
    **dict.fromkeys(("ablations_not_possible", "ablations_not_needed"), _speedups),
    "ablations_cannot_matter": lambda facts: {name: significant(float(facts[name])) for name in ("input", "compute")},
    "training_reaches": _reached,
    "cores_full_from": _full_cores,
    "if_storage_were_free": _without_storage,
    "pace_of_a_benchmark": lambda facts: {"rate": significant(float(facts["recipe_images_per_s"]))},
    "more_cores": _needed_cores,
    "on_storage": _ahead,
    "workers_without_data": _idle_workers,
    "samples_kept": _kept,
    "not_published": _unpublished,
    "storage_alone": lambda facts: {"readers": counted(int(facts["readers"]), "reader")},
    "wrapper_left_out": lambda facts: {"why": _WHY_LEFT_OUT[str(facts["because"])].format(**facts)},
    "files_hidden": lambda facts: {"hidden": UNKNOWN_FILES[facts["because"]]},  # type: ignore[index]  # one of its codes
    "records_rejected": lambda facts: {"why": REJECTED[facts["because"]]},  # type: ignore[index]  # one of its codes
}
"""What a text quotes in a form of its own."""


def nvml_words(status: float) -> str:
    """What an error of NVML means."""
    return NVML_ERRORS.get(int(status), f"NVML error {status:g}")


# Facts as sentences quote them, each by the end of its name.


def fact(name: str, value: float | str) -> str:
    """`15 %` of a share, `20.3 MB/s`, `1.86 ms`; a word is itself, a count without a decimal point."""
    if isinstance(value, str):
        return value
    return next((shown(value) for ends, shown in _BY_END if name.endswith(ends)), f"{value:.10g}")


def read_ahead_words(size_bytes: float) -> str:
    """`read-ahead 128 KiB`, as `read_ahead_kb` of the kernel has it."""
    return f"read-ahead {size_bytes / 1024:.0f} KiB"


def _milliseconds(seconds: float) -> str:
    return significant(seconds * 1e3)


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}"


# The first that fits.
_BY_END: tuple[tuple[str | tuple[str, ...], Callable[[float], str]], ...] = (
    ("status", nvml_words),
    ("bytes_per_s", format_rate),
    ("read_ahead_bytes", read_ahead_words),
    ("_per_s", significant),
    ("bytes", format_bytes),
    (("share", "most", "idle_by_gaps", "idle_by_rates"), percent),
    (("cold_s", "warm_s"), _milliseconds),
    (("clock_s", "most_s"), _microseconds),
    (("file_s", "meeting_s", "paused_s", "within_s", "take_s", "timeout_s"), format_duration),
    ("ended_after_s", "{:.1f}".format),
    ("_s", "{:.0f}".format),
    ("amplification", "{:.2g}".format),
    ("seconds", "{:.2f}".format),
    (("cores", "cores_available", "rise", "paced"), "{:.3g}".format),
)

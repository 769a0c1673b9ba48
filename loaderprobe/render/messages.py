"""The catalogue: the text of every code, one row each. `format.py` says what stands in braces and brackets.

A remark (a note, a refusal, a missing figure) has its code alone, and its text is a clause without a full stop. Other
codes have the name of their kind before them.
"""

from __future__ import annotations

from loaderprobe.records.resources import RESOURCES

MESSAGES: dict[str, str] = {
    # Of what was measured, of the storage under a path, of a probe, of a plan, of a recording.
    "no_time": "no time was left for another round[; a budget of {budget_s:duration} would allow {rounds:count round}]",
    "cut_short": "time ran out in the last round[; a budget of {budget_s:duration} would allow {rounds:count round}]",
    "all_batches_made": "every batch of the data set was made once, so there was no further round",
    "only_watched": "training was only watched: of all rates and speed-ups, only the rate of training is measured",
    "begun_each_batch": "the script iterates its loader from the start for each batch: what that takes is in no rate",
    "workers_start_each_epoch": (
        "starting its workers again takes {start_s:duration} of each epoch, beside {epoch_s:duration} of training: it "
        "is in the rate of training, and in none of the loader alone"
    ),
    "steps_held_up": (
        "a step takes {beside_s:duration} beside the loader and {alone_s:duration} without it, not counting waits for "
        "input: what feeds it may hold it up (workers on its cores, threads that pin batches, copies to the device)"
    ),
    "gpu_shared": "{processes:count process} beside this training had its GPU open: compute alone is what that left",
    "measured_again": "segments in which the script did something else than training were measured again",
    "too_few_samples": (
        "[{data}: ]{samples} samples are too few to read each once in a segment: {needed} are needed[ (--images "
        "{images})], fewer with a smaller batch or fewer workers"
    ),
    "script_ended": "the script ended within a round",
    "script_interrupted": "it was interrupted within a round",
    "broken_off": "batches or steps took so long that a round was broken off",
    "workers_without_data": "workers without data: {idle} of {workers}; measured with {busy:count worker}",
    "wrapper_left_out": "what {wrapper} does around {path}, which is measured, is left out: {because:code left_out}",
    "iterated_itself": (
        "{iterable} is no DataLoader that can be copied, so it was iterated itself, and stays where that left it; it "
        "has no mode without decoding or transport, so speed-ups are estimated from what it waits for and computes"
    ),
    "made_ahead": "it makes batches ahead, out of sight: {batches} were ready after a pause. That counts as one worker",
    "iterable_ended": "the iterable ended within a round, and did not begin again",
    "taken_in_order": "batches were taken in order, although the loader has in_order=False",
    "odd_batches": "batches differ in length; {batches} that are not as long as the first were left out",
    "uneven_batches": "batches have from {least} to {most} samples; each counts as {samples}, the mean of the first",
    "shared_memory_stays": "{size_bytes:bytes} shared with workers cannot be restored: changes there stay",
    "manager_stays": "state of the loader is in a multiprocessing.Manager: changes there during the diagnosis stay",
    "one_round": "there was one round only, so how far the rates vary is not known",
    "files_hidden": "{because:code unknown_files}, so files were read as they were found, and speed-ups are estimated",
    "reads_no_files": "samples read no files, so nothing was made cold or warm",
    "samples_kept": (
        "batches made again take less time, so the data set, or what it reads from, keeps them: in the first epoch "
        "the loader alone delivers {first_per_s:rate} {unit}[, in later ones {later_per_s:rate}]; the verdict is on "
        "the {judged:code part.epoch}"
    ),
    "fits_in_memory": (
        "the whole data set (about {size_bytes:bytes}) fits in memory: after the first epoch its files may be warm, "
        "where the loader alone delivers {warm_per_s:rate} {unit}"
    ),
    "read_ahead": (
        "for each {sample_bytes:bytes} of samples the storage reads {read_bytes:bytes}, {amplification:2} times as "
        "much, because the kernel reads ahead. Hardly a sample was served by what was read for another, as in a set "
        "larger than memory. Of that the loader alone delivers {low_per_s:rate} to {high_per_s:rate} {unit}"
    ),
    "small_set": (
        "the whole data set (about {size_bytes:bytes}) can stay in memory, and the storage delivers it in about "
        "{within_s:duration}: in the first epoch the loader alone delivers {low_per_s:rate} to {high_per_s:rate} "
        "{unit} (estimated), limited by storage; in later ones {memory_per_s:rate} ({how}), without it"
    ),
    "ranks_together": (
        "{ranks} ranks on {hosts:count host}, measured together: rates are those of all of them, which train in "
        "step. Times of workers are those of the slowest rank. The exchange of gradients counts as compute"
    ),
    "ranks_meet": "ranks met after each step, which takes {meeting_s:duration}, {share:percent} of a training step",
    "ranks_meet_loading": "with the loader only, ranks meet after each batch ({share:percent}, {meeting_s:duration})",
    "ranks_in_step": (
        "{ranks} ranks on {hosts:count host}, measured in step: rates are those of all of them together. Times of "
        "workers are those of the slowest rank[. If the step exchanges gradients, that counts as {exchange}]"
    ),
    "same_samples": (
        "each of the {ranks} ranks goes through the whole data set, so an epoch has every sample {ranks} times. In "
        "their first batches, {again} of {files} files opened were repeats of another rank's"
    ),
    "same_batches": "each of the {ranks} ranks goes through the whole data set, and their first batches are the same",
    "storage_alone": (
        "the storage alone delivers [{at_least:code part.at_least}]{alone_bytes_per_s:bytes/s} to "
        "{readers:count reader}; {read_bytes_per_s:bytes/s} are read here, {ceiling_fraction:percent} of that"
    ),
    "threads_spin": (
        "torch's threads spin while the serial loader makes a batch: alone it keeps {cores:.3g} cores busy for "
        "{loader_per_s:rate} {unit}, and {one_thread_cores:.3g} for {one_thread_per_s:rate} {unit} with torch on one "
        "thread"
    ),
    "threads_spin_in_training": (
        "{cores:code threads_spin}. In those rounds training ran at {training_per_s:rate} and "
        "{one_thread_training_per_s:rate} {unit}"
    ),
    "warm_slower": "warm files trained {low-high:range 2} times as fast as cold ones: the machine changed in between",
    "others_took": "other processes took {share:percent} of {cores:.3g} cores in {segments} of {of} segments",
    "host_took": "other machines took {share:percent} of {cores:.3g} cores in {segments} of {of} segments",
    "others_read_too": "other processes read {bytes_per_s:bytes/s} from its devices in {segments} of {of} segments",
    "script_paused": "the script did not train for {paused_s:duration} between batches: that counts towards the budget",
    "mount_hidden": "the mount of this path is not listed, so its file system is not known",
    "device_hidden": "the block device under this file system is not visible from here",
    "zfs_cache": "ZFS has its own cache, which cannot be emptied file by file",
    "in_memory": "memory, not storage: nothing here can be read cold",
    "nfs": "NFS counts reads for the whole mount, and the server's cache cannot be emptied from here",
    "remote_uncounted": "nothing here counts what {filesystem} reads, and its caches cannot be emptied from here",
    "fuse": "FUSE: another program reads, for all who use the mount; its own caches cannot be emptied from here",
    "device_in_memory": "{device} is a device in memory: its reads look cold, but no storage is behind them",
    "loop_hidden": "what file {device} is cannot be seen from here",
    "loop_file_hidden": "{device} is the file {file}, which is not visible from here{cache:code loop_cache}",
    "loop_file": "{device} is the file {file} on {filesystem} ({under}){cache:code loop_cache}",
    "layers_hidden": "the layers of this overlay, and so its devices, are not visible from here, as in most containers",
    "some_layers_hidden": "{hidden} of the {layers} layers of this overlay are not visible from here",
    "layers_in_memory": "the visible layers of this overlay are memory, not storage: nothing in them can be read cold",
    "some_layers_in_memory": "a read of a file in a layer of this overlay is from memory ({paths})",
    "files_elsewhere": "the files are not on the file system of {path}, but on {mount}",
    "several_filesystems": "the files lie on several file systems ({mounts}), whose reads cannot be separated",
    "files_skipped": "{files} files skipped: {why}",
    "large_files_in_blocks": "files of more than 16 MiB are read in blocks of 1 MiB at random",
    "large_objects_in_ranges": "objects of more than 16 MiB are read in ranges of 8 MiB at random",
    "listing_cut": "only the first {objects} objects of the listing were taken",
    "objects_read_again": "{size_bytes:bytes} of objects were read again {times} times, maybe from the store's cache",
    "requests_retried": "{requests} requests were made again: {why}",
    "part.read_again": "; {size_bytes:bytes} of files, read again {times} times",
    "scratch_file": "a scratch file of {size_bytes:bytes}, read in blocks of 128 KiB",
    "read_again": (
        "the files read hold {size_bytes:bytes}; they were evicted and read again {times} times, which a cache below "
        "this machine (controller, file server, host of a virtual machine) may have served: only more data than it "
        "holds rules that out"
    ),
    "cache_unknown": "the state of the page cache before a phase is unknown: {because:code}",
    "short_reading": "only {seconds:.2f} s of reading: use more files for a more stable figure",
    "no_processes": "reading by several processes failed ({error}): one process may be slower",
    "probe_busy": "the probe kept {cores:.3g} of {cores_available:.3g} cores busy",
    "repeats_faster": (
        "the first pass over the files got {first_bytes_per_s:bytes/s}, repeats {again_bytes_per_s:bytes/s}: a cache "
        "below this machine served them"
    ),
    "opens_short": "opens/s are those of under a second, and may be lower for longer: probe more files",
    "opens_unsettled": "the rate of opens had not settled",
    "no_images": "the files are no images by their names; each is taken for one",
    "not_published": "not published: {limits:list unpublished}",
    "others_read": "other processes read {bytes_per_s:bytes/s} from it meanwhile",
    "rate_unsettled": "the rate had not settled",
    "bytes_as_read": "bytes an image are what storage gave for it; --layout shards:IMAGES counts the opens of shards",
    "clients_at_least": "{clients} readers did not reach its limit: it gives at least that, and {next} may show more",
    "ranks_uneven": (
        "rank {rank} on {host} read at {share:percent} of the fastest rank's rate: accelerators in step wait for it, "
        "and may get as little as {bytes_per_s:bytes/s}"
    ),
    "run_not_sure": "how sure that run itself is: low. Measure longer before this is signed",
    "faster_than_alone": "training ran at {share:percent} of that: the machine changed, and the need may be as high",
    "samples_as_images": "batches hold no images: each sample is taken for one",
    "workers_not_recorded": "a recording holds nothing of the loader's workers, so input is not split further",
    "no_loader_spans": "no span of a loader is on record: waiting for the loader counts as the host's",
    "no_step_marks": "nothing marks steps, so the whole recording counts as one",
    "few_steps": "only {steps:count step} on record, so how far steps vary is not known",
    "first_steps_left_out": "left out: {steps:count step} at the beginning, slower than usual",
    "host_slowed_by_profiler": "the profiler slows the host, so its share is an upper limit",
    "occupancy_not_known": "occupancy is not known: the recording lacks registers of kernels, or the GPU's limits",
    "occupancy_of_nvidia": "occupancy is not known: it is estimated for GPUs of NVIDIA only",
    "steps_vary": "steps vary by more than 20 % around their mean, which says little of a single one",
    "trace_cut_off": "the file ends early: it was read as far as it goes",
    "trace_too_long": "the file has {records} records: its first {steps:count step} are shown, which fit in memory",
    "trace_unreadable": "{events} events are no JSON, and were left out",
    "launches_not_recorded": "the launches of {kernels} kernels are not on record, nor what the GPU waited for there",
    "ranks_missing": "recordings of {given} of {ranks} ranks are given: waits for others' input count as communication",
    "first_steps_fed": (
        "the first {steps:count step} did not wait for input: batches loaded ahead may have fed them. From step "
        "{next} on input and copies take {input_share:percent}[. Without, it would be at most {speedup:times} times as "
        "fast from there on]"
    ),
    "perhaps_fed": (
        "only {steps:count step} on record, where workers have loaded batches ahead: a wait for input may come "
        "later. Record 2 to 3 times workers x prefetch_factor steps, after a wait of as many"
    ),
    "records_rejected": "{records:count record} of the profiler left out: {because:code rejected}",
    "quoted": "{text}",
    # Why a figure does not exist: what the rounds, the counters and the profiler window lack.
    "no_segment": "no {files} segment was measured",
    "not_beside": "no round measured it beside the configuration as asked",
    "files_in_memory": "the files are on a file system in memory, not on storage",
    "bytes_from_storage": "{share:percent} of the bytes came from storage in segments meant to be {files}",
    "pages_resident": "{share:percent} of the files was in the page cache before segments meant to be {files}",
    "read_less_again": "batches meant to be cold read {share:percent} of what the first pass read from storage",
    "read_before": (
        "the timed batches read {read_bytes:bytes} a sample from storage, all batches since the loader began "
        "{owed_bytes:bytes}: what the data set or the kernel had read ahead served the timed samples from memory"
    ),
    "read_for_later": (
        "the timed batches read {read_bytes:bytes} a sample from storage, all batches since the loader began "
        "{owed_bytes:bytes}: the data set reads in pieces, and a piece serves many more samples than were timed"
    ),
    "warm_after_first_pass": "not all files are known, so none was evicted: they are warm after the first pass",
    "always_warm": "not all files are known, so they could not be evicted and were in memory",
    "kept_samples_show_nothing": "the data set keeps its samples, so warm files take less work and show nothing",
    "no_worker_times": "the workers left no record of their time",
    "no_warm_segment": "this file system counts no bytes, and no warm segment was measured to compare waits with",
    "warm_files_waited_for": "this file system counts no bytes, and workers waited {share:percent} for warm files",
    "waits_alike": (
        "this file system counts no bytes, and waits do not separate cold segments ({cold_s:duration} an image) from "
        "warm ones ({warm_s:duration})"
    ),
    "wait_unexplained": "workers wait {share:percent} of their time, and nothing shows for what",
    "no_worker_cpu_times": "the workers left no record of their CPU time",
    "no_mode_without": "this loader has no mode without it",
    "too_few_wait_samples": "too few samples of what workers wait for",
    "nothing_else_takes_time": "nothing else takes measurable time",
    "decoding_not_timed": "decoding was not timed apart from augmentation",
    "overhead_not_recorded": "this run did not record its own overhead",
    "no_resident_segment": "no segment with a resident batch was measured",
    "compute_unknown": "the rate of compute alone is not known",
    "no_step": "no step was given",
    "reads_not_counted": "reads are not counted here",
    "files_came_from_memory": "the files came from memory, not from storage",
    "devices_not_visible": "the devices are not visible from here",
    "warm_as_asked": "the files are warm as asked, so nothing is read from storage",
    "ceiling_not_measured": "the ceiling is measured only where storage may be the limit, and for the most workers",
    "ceiling_not_cold": "the reads that measured the ceiling were {files}, not cold",
    "cores_below_ceiling": "the probe read {bytes_per_s:bytes/s}, and may itself have been the limit",
    "no_gpu_sampled": "no GPU was sampled",
    "no_reading_in_training": "no reading fell into a training segment",
    "no_kernel_fits": "no kernel record has the number of warps that fit on an SM",
    "blocks_unknown": "too few kernels tell over how many SMs they spread",
    "window_empty": "the profiler's window is empty",
    "kernels_not_seen": "{launches} launches and not one kernel were seen: WSL, or another profiler (CUPTI serves one)",
    "no_kernel_launched": "no kernel was launched while the profiler ran",
    "launches_lost": "{exact_share:percent} of the launches left no record of a kernel, refused above {most:percent}",
    "steps_not_timed": "the steps were not timed without the profiler, so its cost is not known",
    "profiler_slows": (
        "the profiler cost {cost_fraction:percent} more than the device's idle time holds, refused above {most:percent}"
    ),
    "clock_moved": "the host's clock moved by {clock_s:duration} under the profiler, refused above {most_s:duration}",
    "gaps_not_checked": "the rate of compute alone is not known, so the attribution is not checked against rates",
    "gaps_disagree": (
        "attribution and throughput disagree: by the gaps the device was idle for its input for "
        "{idle_by_gaps:percent} of the time, by the rates for {idle_by_rates:percent}"
    ),
    "window_too_short": "{steps} steps are less than twice the {ahead} batches loaded ahead: input may look too fast",
    "slower_without_profiler": "steps were {exact_share:percent} slower without the profiler, so its cost is not known",
    "interrupted": "Ctrl-C came before it was judged",
    "not_measured": "not measured yet",
    "failed": "{error} (at: {stage}[, rank {rank}][ on {host}])[; {hint}]",
    "result_damaged": "{file} {error}; complete the run with --resume, which measures it again",
    "not_read": "nothing was read in so short a time",
    "file_damaged": "{file} {error}",
    "peak_unreadable": "the peak of memory cannot be read here",
    "buffer_not_told": "this loader does not tell when its buffer is full",
    "buffer_not_filled": "the loader did not fill its buffer within {within_s:duration}",
    "too_few_for_buffer": "{images} images are too few to read each once: --images {least} is enough",
    "too_few_for_epoch": "{images} images are too few for an epoch: {least} are needed",
    "epochs_too_long": (
        "{epochs} epochs of {images} images take about {take_s:duration}, more than --time-limit: {timeout_s:duration}"
    ),
    "study_left": "not yet; --resume continues",
    "bytes_on_a_rank": "on rank {rank} ({host}), {share:percent} of the bytes came from storage, in {files} segments",
    "one_rank": "one rank waits for no other",
    "ranks_not_apart": "the ranks were measured in step only, none by itself",
    "exchange_not_measured": "the exchange of gradients was not measured apart",
    "ceiling_of_one_node": "the ceiling was measured from one node, and several read",
    # Why a sampler read nothing, or the profiler recorded nothing.
    "no_gpu_trains": "no GPU trains in this configuration",
    "pynvml_missing": "pynvml cannot be imported ({error}): pip install nvidia-ml-py",
    "nvml_not_started": "NVML does not start: {error}",
    "no_gpu_listed": "NVML lists no GPU",
    "gpus_not_listed": "NVML lists no GPU: {error}",
    "nvml": "{status:code error.nvml}",
    "no_process_listed": "NVML lists no process on this GPU, not even this one; this may be a container",
    "mig_instance": "NVML does not support it for a MIG instance",
    "mig_split": "this GPU does not support it as a whole while it is split by MIG",
    "no_gpm": "this GPU has no GPM (Hopper and newer data-centre GPUs do)",
    "gpm": "GPM: {status:code error.nvml}",
    "gpm_no_number": "GPM gave no number",
    "sampler_stopped": "{sampler} stopped: {error}",
    "disks_not_listed": "/proc/diskstats does not count every device of this file system",
    "workers_not_sampled": "the workers were not sampled",
    "waits_not_started": "sampling of the workers' waits has not started",
    "waits_not_startable": "the process that samples the workers' waits could not be started: {error}",
    "waits_not_ready": "the process that samples the workers' waits was not ready after {limit_s:duration}",
    "waits_ended": "the process that samples the workers' waits ended: {how}",
    "no_proc": "there is no /proc here",
    "machine_uncounted": "/proc/stat counts no CPU time here, as in some sandboxes",
    "processes_hidden": "/proc does not show processes here",
    "no_syscall_file": "this kernel has no /proc/PID/syscall",
    "ptrace_scope": "no permission to read /proc/PID/syscall: kernel.yama.ptrace_scope is {scope}",
    "trace_refused": "no permission to read /proc/PID/syscall: no permission to trace, as in hardened containers",
    "calls_unknown": "the system call numbers of {machine} are unknown",
    "window_not_asked": "no profiler window was asked for",
    "window_without_steps": "nothing was trained on",
    "window_without_time": "there was no time left for a profiler window",
    "window_too_long": "{steps} profiled steps would take {needed_s:duration}; there was time for {limit_s:duration}",
    "window_failed": "the profiler window failed: {error}",
    "window_without_gpu": "no step was given, so no GPU trained",
    "window_emulated": "an emulated accelerator runs no kernels",
    "window_own_step": "kernels are recorded only for loaderprobe's own training steps, not for your step",
    "window_other_device": "training ran on {device}, whose kernels are not recorded",
    "window_of_ranks": "kernels are recorded for one rank only",
    # Why the page cache does not show what it holds, or a phase of a probe was not measured.
    "not_regular": "{path} is not a regular file",
    "on_fuse": "{path} is on FUSE, where opening a file to ask may empty its cache",
    "own_cache": "{path} is on {filesystem}, which has its own cache that the kernel does not show",
    "foreign_on_network": "{path} belongs to another user: network file systems hide whether it is in the page cache",
    "foreign_hidden": "{path} belongs to another user, and this file system hides its cache state",
    "not_examined": "{path} cannot be examined: {error}",
    "phase_failed": "failed: {error}",
    "phase_interrupted": "the probing ended before",
    "too_few_files": "{files} files are too few for concurrency {readers}",
    "not_of_objects": "a store of objects has neither a page cache nor open files here",
    "requests_hidden": "the library for {scheme}:// does not show it",
    "opens_of_blocks": "a loader seldom opens files that it reads in blocks",
    "direct_refused": "this file system refuses O_DIRECT: {error}",
    "files_vanished": "the files have vanished",
    "no_large_file": "there is no file of 64 MB or more to read sequentially; --scratch 1GB makes one",
    "no_single_reader": "it is compared with concurrency 1, which --readers left out",
    "ceiling_failed": "measuring the ceiling failed: {error}",
    "kind_failed": "the kind of storage was not found out: {error}",
    "files_empty": "the files are empty",
    "filesystem_not_counted": "reads of {filesystem} are not counted, so there is nothing to compare",
    # Why a part of a storage plan is not made.
    "no_storage_behind_files": "the files were in memory, so no storage was measured",
    "no_ceiling": "the ceiling of the storage was not measured",
    "ladder_not_measured": "no step of the ladder was measured",
    "ladder_from_memory": "a step of its ladder came from memory, at least partly",
    "reads_unproved": "its reads cannot be proved to have come from storage",
    "reads_not_cold": "its reads were {files}, not cold",
    "images_of_files_unknown": "how many images a large file has: --layout shards:IMAGES counts opens",
    "opens_not_measured": "opens/s were not measured",
    "opens_from_memory": "names and inodes were in memory: only bandwidth --drop-caches (root) measures opens/s cold",
    "opens_asked": "each open asked the server, but names may have been in memory: bandwidth --drop-caches drops them",
    "opens_unproved": "names and inodes were dropped, but nothing counts whether they came from storage again",
    "opens_from_memory_after_drop": "names and inodes were dropped, but came from memory all the same",
    "measured_in_shards": "it was measured by blocks of shards, which says nothing of files of one image each",
    "read_not_timed": "the storage alone was not read: only that times a read, not a worker's wait",
    "read_in_shard_not_timed": "the time of a read within a shard was not measured",
    "file_wait_unknown": "how long a worker waits for a file on storage that keeps up is not known",
    "waits_for_lock": "they wait for a lock, and more of them would wait longer",
    "ranks_do_not_pause": "ranks read without pauses",
    "bandwidth_without_workers": "a bandwidth result has no worker: plan from a sweep",
    "trace_without_workers": "a recording holds nothing of the loader's workers: plan from a sweep",
    "trace_without_storage": "a recording holds nothing of a storage",
    # Why there is no forecast.
    "no_complete_round": "no round measured the loader, compute and training on both",
    "outside_noise_band": "training ran at {predicted_fraction:percent} of its prediction, outside the noise band",
    "no_model_fits": "no model comes near the measured rate, so something else limits the loader",
    "files_from_memory": "the files came from memory, so nothing is known of the storage",
    "files_as_found": "the files were read as found, so the share of storage is not known",
    "more_than_storage": "it needs {bytes_per_s:bytes/s}, more than the storage was measured to deliver",
    "exchange_of_gradients": "ranks exchange gradients, for which a faster device waits as well",
    "laws_disagree": (
        "the kind of storage is not known, and forecasts range from {least_images_per_s:rate} to "
        "{most_images_per_s:rate} images/s"
    ),
    "requests_or_bytes": "it is not known whether this storage limits bytes/s or requests/s: try --layout files,tar",
    # What was found of what can be measured here.
    "on_storage": "{filesystem} on {devices}[, read-ahead {read_ahead_bytes:KiB}]",
    "path_in_memory": "{path} is in memory, not on storage",
    "space_free": "{free_bytes:bytes} free here[, and a usual sweep takes {least:bytes}]",
    "memory_always_warm": "files in memory are always warm",
    "no_trial_file": "no test file can be written here ({error}); the sweep checks by bytes read",
    "no_cache_state": "the state of the page cache is unknown here",
    "stays_in_cache": "{share:percent} of a file stayed in the cache after it was dropped",
    "evicted": "a file was dropped from the page cache, confirmed by the kernel",
    "device_counted": "/proc/diskstats counts {devices}",
    "reads_counted": "/proc/PID/io and getrusage count bytes fetched from storage",
    "reads_refused": "no /proc/PID/io, or no permission to read it",
    "filesystem_counts_no_reads": "the kernel does not count reads of {filesystem}",
    "calls_seen": "/proc/PID/task/TID/syscall shows files, sockets and locks",
    "kinds_only": "states and kernel functions show the kinds of waits, but not files",
    "delay_counted": "/proc/thread-self/schedstat counts the run-queue delay",
    "delay_not_counted": "no schedstat: waiting for a core counts as waiting for storage",
    "cores": "{cores:.3g} after affinity and quota, of {all}",
    "others_take": "they take {share:percent} of {cores:.3g} cores now, counted by /proc/stat",
    "no_shared_memory": "there is no /dev/shm",
    "shared_memory_small": "{free_bytes:bytes} free, too little for 2 workers",
    "shared_memory": "{free_bytes:bytes} free in /dev/shm",
    "trains_on": "{device}",
    "utilization_read": "{gpus}: share of time with any kernel at all",
    "occupancy_read": "{gpus}: active warps over the maximum of the SMs",
    "gpu_not_read": "{gpu}: {because:code}",
    # How sure that is, what to do next, and what does not follow.
    "how_sure": (
        "{level}[, cause clear in {clear} of {of}, {low_rounds-high_rounds:range count round}, "
        "{shown:code part.rates} ±{low_band-high_band:range percent}]"
    ),
    "part.rates": "rates",
    "part.rates.1": "rate",
    "measure_longer": "measure longer: little is conclusive yet",
    "measure_again": "measure again: training outran its own compute, so the machine changed meanwhile",
    "measure_alone": "end other processes, which took {share:percent} of the cores, and measure again",
    "train_on_emulated": "an emulated accelerator shows how many images/s this input can deliver",
    "other_layout": "{data}: the layout {best} trained {low-high:range 2} times as fast as {now} (measured)",
    "layout_gains_nothing": (
        "large files (shards) [bring no sure gain: {layouts} trained {low-high:range 2} times as fast as files "
        "(measured)|gain nothing: {layouts} trained no faster than files (measured)|bring no sure gain: files in "
        "memory train {low-high:range 2} times as fast ({how})]"
    ),
    "other_loader": "{data}: the loader {best} trained {low-high:range 2} times as fast as {now} (measured)",
    "use_idle_cores": "let workers use the idle cores: look for sched_setaffinity, taskset, a CPU quota",
    "cheaper_preprocessing": (
        "make a sample cheaper: a faster decoder, smaller images, fewer transforms; {low:code part.at_no_cost}"
    ),
    "cheaper_transport": (
        "deliver less: uint8 tensors that are normalised on the device, smaller samples; {low:code part.at_no_cost}"
    ),
    "cheaper_compute": (
        "make the step faster: a faster device, mixed precision, a smaller model; {low:code part.at_no_cost}"
    ),
    "part.at_no_cost": "[at most {most:2}x|{low-high:range 2}x] if that cost nothing[ ({how})]",
    "train_from_copy": "train {data} from a copy: {low-high:range 2} times as fast (measured)",
    "staging": (
        "{data}: an epoch of {images:.0f} images takes {source_s:duration}, and {later_s:duration} from the copy[, "
        "which has space for {share:percent} of it] (estimated from these rates)[. Copying takes {copying_s:duration} "
        "at {bytes_per_s:bytes/s} and is paid back after {epochs:count epoch}; copied beside the first epoch, that one "
        "takes {first_s:duration} at least][. Memory of {memory_bytes:bytes} may serve later epochs instead]"
    ),
    "staging_gains_nothing": (
        "{data}: training is {low-high:range 2} times as fast from the copy, no sure gain[; both are on one device, "
        "{device}, which a copy does not make faster][. Copying takes {copying_s:duration} at {bytes_per_s:bytes/s}]"
    ),
    "more_cores": (
        "more cores: [{ranks} x {accelerator:accelerator} on a machine need|one {accelerator:accelerator} needs] "
        "{low_cores-high_cores:range 2} (estimated), {cores_available:.3g} here"
    ),
    "pace_of_a_benchmark": (
        "{accelerator} is the pace of a storage benchmark, not how fast that GPU trains: {recipe} trains "
        "{recipe_images_per_s:rate} images/s. Your rate: loaderprobe plan --kind IMAGES_PER_S"
    ),
    "real_gpu": "a real GPU",
    "own_images": "your own images",
    "several_machines": "several machines",
    "storage_ceiling": "what this storage gives more readers",
    # Which resources were made free, and why no more.
    "ablated_in_training": "ablated in training, {rounds:count round}: the prediction did not fit, and is not used",
    "ablated": "ablations measured, {rounds:count round}: {resources:nouns}",
    "nothing_to_ablate": "no round measured the loader, compute and training",
    "ablations_cannot_matter": (
        "no ablation measured: the speed-up is {input:3} if all input were free, {compute:3} if compute were"
    ),
    "ablations_not_possible": "no ablation that decides was measured. Estimated speed-ups: {resources:speedups}",
    "ablations_not_needed": "no ablation needed: workers' times show the cause. Speed-ups: {resources:speedups}",
    # What another program, or an error, said itself; what follows from something else.
    "reported": "{reason}",
    "unavailable": "{because:code}",
    "storage_missing": "{because:code}",
    # Added to any of these.
    "part.readings_end": "[; its readings end {ended_after_s:duration} after sampling began]",
    # Why the files that a loader reads are not known.
    "unknown_files.none_seen": "no file that the data set opens was seen",
    "unknown_files.none_read": "samples read no files",
    "unknown_files.opened_below_python": "the data set opens files below Python, so the files of a batch are unknown",
    "unknown_files.read_in_parts": "the data set reads only parts of the files that it opens",
    "unknown_files.too_large": "the data set's files are more than 20,000: too many to evict",
    "unknown_files.no_data_loader": "files are looked for only below a DataLoader",
    "unknown_files.read_beside": "the data set reads more than the files that it opens in Python",
    # What is wrong with a record of the profiler.
    "rejected.no_stamp": "without a valid time",
    "rejected.backwards": "ended before it began",
    "rejected.outside": "outside the window",
    "rejected.too_early": "began before it was launched",
    "rejected.cut": "overlapped the next record of its stream, and was cut there",
    # Why what a wrapper does around its DataLoader is left out.
    "left_out.not_one_for_one": "it does not give one batch for each that it takes",
    "left_out.new_batches": "it may form new batches",
    "left_out.has_del": "it cannot be copied because it has a __del__",
    "left_out.at_work": "it cannot be copied, since its .{attribute} is at work",
    "left_out.not_copied": "it cannot be copied ({error})",
    # Whether a file below a loop device has a cache of its own.
    "loop_cache.in_memory": ", in memory: its reads look cold, but no storage is behind them",
    "loop_cache.own_cache": "; that file's own cache may serve reads that look cold (losetup --direct-io=on)",
    "loop_cache.none": "",
    # What a vendor does not publish of a storage.
    "unpublished.opens_at_size": "opens at this size",
    "unpublished.requests_at_size": "requests at this size",
    "unpublished.operations": "opens and requests",
    # By the value of the error: pynvml's exceptions cannot be compared reliably.
    "error.nvml.0": "NVML has no value for it",
    "error.nvml.1": "NVML was not initialised",
    "error.nvml.2": "NVML rejects this query for this GPU",
    "error.nvml.3": "this GPU does not support it",
    "error.nvml.4": "no permission to ask NVML",
    "error.nvml.6": "NVML does not know this GPU",
    "error.nvml.7": "NVML's answer changed size while it was read",
    "error.nvml.9": "the NVIDIA driver is not loaded",
    "error.nvml.10": "NVML took too long to answer",
    "error.nvml.12": "there is no NVIDIA driver library (libnvidia-ml.so.1)",
    "error.nvml.13": "the driver or nvidia-ml-py is too old for it",
    "error.nvml.15": "the GPU has been lost",
    "error.nvml.16": "the GPU must be reset",
    "error.nvml.17": "the operating system blocks NVML; a container may lack this GPU's device files",
    "error.nvml.18": "driver and library versions differ: reboot after the driver's update",
    "error.nvml.19": "the GPU is in use in a way that forbids it",
    "error.nvml.20": "NVML found too little memory",
    "error.nvml.21": "NVML had no data yet",
    "error.nvml.25": "the driver does not support the structure version of nvidia-ml-py",
    "error.nvml.999": "NVML failed; a container may have lost access to the GPU",
    "error.nvml": "NVML error {status}",
    # On which epochs the verdict is, where samples are kept.
    "part.epoch": "{judged} epoch",
    "part.epoch.later": "later epochs",
    # Before a figure of a storage whose limit was not reached.
    "part.at_least": "",
    "part.at_least.yes": "at least ",
    # What a storage is, and where, and what limits it.
    "part.objects": "objects of {filesystem} at {source}",
    "part.place": (
        "{filesystem}[ ({kind})] mounted on {mount} from {source}[, device {devices}][, read-ahead "
        "{read_ahead_bytes:KiB}]"
    ),
    "supply.bandwidth": "bandwidth",
    "supply.opens": "opens/s",
    "supply.requests": "requests/s",
    "supply.client": "client's share",
    "supply.nic": "node's network",
    # What a cache must answer for a storage to be enough.
    "part.enough_cache": (
        "it feeds all of them where caches answer {hits:percent} of the reads[: {pinned_bytes:bytes} of files pinned "
        "on each node, or {page_bytes:bytes} of its page cache{slow:code part.nodes}]"
    ),
    "part.nodes.one": ", from epoch 3 on",
    "part.nodes.several": ", after several epochs",
    # Behind a figure. At most: at the limit of storage or network, which is not known, less is gained.
    "how.measured": "",
    "how.estimated": " (estimated)",
    "limit.unknown": " at most",
    # Whose input all ranks wait for, in a heading.
    "part.slow": "[rank {rank}[ ({host})]|host {host}|one rank]",
    # The reason of a verdict, and its parts.
    "reason.largest_speedup": "{resource:code part.largest}.",
    "part.largest": (
        "{judged:code runs}; if {resource:noun} were free, it would be {speedup:times} times as fast"
        "[{limit:code limit}]{how:code how}"
    ),
    "part.largest.compute": (
        "{judged:code runs}[. A free device would make it {compute_speedup:times} times as fast, no exchange of "
        "gradients {gradients_speedup:times} times|. A faster device would make it up to {speedup:times} times as "
        "fast{how:code how}; if {input:noun} were free, {input_speedup:times} times{input_how:code how}|; the loader "
        "alone is {speedup:times} times as fast as training{how:code how}]"
    ),
    "part.largest.gradients": (
        "[without it training would be {gradients_speedup:times} times as fast, with a free device "
        "{compute_speedup:times} times|{judged:code runs}; without it training would be {speedup:times} times as "
        "fast{how:code how}]"
    ),
    "runs.loader": "the loader alone delivers {images_per_s:rate} {sample}s/s",
    "runs.training": (
        "[training reaches {utilization:percent} of {device:code device}|training runs at {images_per_s:rate} "
        "{sample}s/s]"
    ),
    "device.emulated": "the emulated accelerator",
    "device.measured": "compute alone[{compute_how:code how}]",
    "what.loader": "the loader",
    "what.loader_only": "the loader",
    "what.training": "training",
    "predicted.loader": "the second measurement of the loader ran at {predicted_fraction:percent} of its prediction",
    "predicted.training": "training ran at {predicted_fraction:percent} of its prediction",
    "reason.all_cores_busy": (
        "[workers wait {run_delay_share:percent} of their time for a core. All of this uses {own_cores:.2g} of "
        "{cores:.2g}, other processes the rest|all cores are busy], so more workers do not help. {judged:Code runs}; "
        "free preprocessing would make it {speedup:times} times as fast[{limit:code limit}]{how:code how}."
    ),
    "reason.kept_from_cores": (
        "workers wait {run_delay_share:percent} of their time for a core, while {idle_cores:.2g} of {cores:.2g} stay "
        "idle: something keeps workers from them (affinity, taskset, a quota). {judged:Code runs}; free preprocessing "
        "would make it {speedup:times} times as fast[{limit:code limit}]{how:code how}."
    ),
    "reason.device_idle": "{cause:code part.idle}.",
    "part.idle": "the device is idle for {cause:noun}",
    "part.idle.copy": "the device waits {copy_share:percent} of the time for copies[. Most come from {copies_from}]",
    "part.idle.communication": "{communication_share:percent} of the time the device only communicates with other GPUs",
    "part.idle.host": "the device waits for launches {launch_share:percent}, for synchronisation {sync_share:percent}",
    "reason.slow_rank": (
        "all wait for its [{resource:noun}|input]; with a middle rank's input {judged:code what} would be "
        "{speedup:times} times as fast{how:code how}.[ By itself, rank {rank} loads {slow_images_per_s:rate} "
        "{sample}s/s, another rank {middle_images_per_s:rate}. {judged:Code runs}.]"
    ),
    "reason.slow_host": (
        "{slow_ranks} of the {host_ranks} ranks there are slow, and the others wait for their "
        "[{resource:noun}|input]. With ranks like the slowest elsewhere, {judged:code what} would be up to "
        "{speedup:times} times as fast{how:code how}. By itself, a rank there loads {slow_images_per_s:rate} "
        "{sample}s/s, the slowest rank elsewhere {other_images_per_s:rate}. {judged:Code runs}."
    ),
    "reason.speedups_alike": (
        "the speed-ups if one were free are too close to tell apart[ in {rounds:count round} alone]. They are {alike}."
    ),
    "part.alike": "{speedup:times}x{how:code how}",
    "reason.no_speedup": "{judged:code runs}; no resource, if free, would make it {least_speedup:times} times as fast.",
    "reason.no_complete_round": "no round measured both the loader and training.",
    "reason.files_were_warm": "{because:code}.",
    "reason.above_ceiling": (
        "samples came at {samples_bytes_per_s:bytes/s}, but storage delivers {ceiling_bytes_per_s:bytes/s}. Memory "
        "served a part of them."
    ),
    "reason.one_round_does_not_fit": (
        "{judged:code predicted} in the only round there was time for; a larger --budget gives more rounds."
    ),
    "reason.outside_noise_band": "{judged:code predicted}, outside the noise band: the model does not fit this run.",
    "reason.rounds_differ": "training over its prediction differs by {spread:percent} between rounds, too much.",
    "part.gain": "the speed-up if {resource:noun} were free ({speedup:times})",
    "reason.ablation_missing": "the speed-up if {resource:noun} were free is not known: {because:code}.",
    "reason.estimate_not_measured": "{resource:code part.gain} is only estimated; there was no time to measure it.",
    "reason.estimate_too_small": "{resource:code part.gain} is only estimated, and too small for a verdict.",
    "reason.within_noise": "{resource:code part.gain} is within the rounds' spread.",
    "reason.slower_without": (
        "without {resource:noun} {activity:code what} ran at {rate_share:percent} of its rate; something else "
        "disturbed the rounds."
    ),
    "reason.interval_too_wide": "the rate is {low_per_s-high_per_s:range rate} {sample}s/s: too wide for a verdict.",
    "reason.lead_within_spread": (
        "the largest speed-up leads the next by {lead:times}x, as the mean of the rounds and within their spread "
        "({spread:percent}). If one were free, they are {alike}, as medians."
    ),
    "reason.limit_not_known": (
        "if {first:noun} were free, it would be {first_speedup:times}x at most (estimated), and 1x if {second:noun} "
        "is at its limit, which is not known. If {second:noun} were free, {second_speedup:times}x{second_how:code how}."
    ),
    "reason.ranges_meet": (
        "if {first:noun} were free, it may be only {least:times}x, and if {second:noun} were free as much as "
        "{most:times}x, by the samples of what workers wait for. Their middle values are {alike}."
    ),
    "reason.input_in_parts": (
        "if compute were free, {judged:code what} would be {compute_speedup:times} times as fast{compute_how:code how}"
        ", and {input_speedup:times} times if all of its input were. No part of that alone gains as much."
    ),
    "reason.rounds_disturbed": (
        "{resource:code part.gain} is only from rounds that other processes disturbed ({rounds:count round})."
    ),
    "reason.cores_shared": (
        "training keeps {own_cores:.2g} of {cores:.2g} cores busy. Workers may hold up its steps, so compute alone "
        "may be faster than it looks from training."
    ),
    # Why rates that stand together do not agree.
    "part.above_prediction": (
        "Training ran at {share:percent} of what the loader alone and compute predict: rates differ from minute to "
        "minute."
    ),
    "part.beyond_cores": "The limit of the CPU cores is for all the work on a sample; what is free takes no core.",
    # What else is to be known of a verdict, behind its reason.
    "part.beside_reason": (
        "[ The storage delivers {read_bytes_per_s:bytes/s}: {ceiling_fraction:percent} of its ceiling at concurrency "
        "{concurrency}.][ Workers spend {waiting_share:percent} of their time in this wait[ ({subject})].][ "
        "Each epoch starts its workers again, for {start_s:duration} of {whole_s:duration}.][ Ranks "
        "also wait for each other's slow batches: by themselves they load {straggler_speedup:times} times as fast.][ "
        "The files were {files_were}, although cold files were asked for.][ This file system counts no bytes: only "
        "the workers' {cold_reads_known_by} shows which reads were cold.]"
    ),
    # What to change.
    "action.workers": "use {workers:loader}",
    "action.prefetch": "prefetch {batches} batches in each worker",
    "action.files_in_memory": (
        "[leave {bytes:bytes} of memory to the page cache, which holds {share:percent} of the files and answers "
        "{hits_low-hits_high:range percent} of the reads from epoch 2 on|cache all files before epoch 1[ "
        "({bytes:bytes}; {most:bytes} fit)]]"
    ),
    "action.files_pinned": (
        "pin {share:percent} of the files in memory ({bytes:bytes}, by vmtouch -l or a copy in tmpfs), which answers "
        "{share:percent} of the reads"
    ),
    "action.shards": "keep the images in large files: tar shards, read in sequence",
    "action.faster_storage": "use storage {factor:2} times as fast[ (training then reads {bytes_per_s:bytes/s})]",
    "action.faster_network": "use a faster network[ (training then reads {bytes_per_s:bytes/s})], or data nearer",
    "action.accelerator": (
        "[make a step take {step_s:duration}: of its {now_s:duration} now, {waits_s:duration} use no core (logging, "
        "files, a network, or a device that is not seen here)|"
        "make a step take {step_s:duration}, {now_s:duration} now: a faster accelerator, or less work in the loop|"
        "train on [{ranks:count accelerator}, each|an accelerator] of {images_per_s:rate} {sample}s/s[ ({name}, "
        "specified)]]"
    ),
    "action.decoder": "decode with {decoder:code library}",
    "action.tensor": "deliver uint8 tensors and normalise on the device",
    **{f"action.{resource.remedy}": resource.advice for resource in RESOURCES if resource.remedy},
    "action.slow_host": (
        "check the cores, the network and the storage path of host {slow_host}: all ranks wait for the {slow_ranks} "
        "there"
    ),
    "action.persistent_workers": "start the workers once: one loader for all epochs, whose workers stay",
    "action.own_shares": "give each rank its own share: DistributedSampler(dataset), of a stream split_dataset_by_node",
    "action.one_thread": "load with torch on one thread: its threads spin between the small operations of a sample",
    "action.accelerator_gains_nothing": (
        "A faster accelerator gains nothing until the loader delivers more than {until_images_per_s:rate} {sample}s/s."
    ),
    "action.input_gains_nothing": (
        "A faster input gains nothing: training reaches {utilization:percent} of compute alone."
    ),
    "library.torchvision": "torchvision.io",
    "library.pillow": "Pillow",
    "library.simplejpeg": "simplejpeg",
    "library.opencv": "OpenCV",
    "library.torchcodec": "torchcodec",
    # The line of code that makes the change; a change without a line here is not one of code.
    "line.workers": "DataLoader(..., num_workers={workers})",
    "line.prefetch": "DataLoader(..., prefetch_factor={batches})",
    "line.decoder": "{decoder:code line.decoder}",
    "line.decoder.torchvision": 'torchvision.io.decode_image(path, mode="RGB"), a tensor, for PIL.Image.open(path)',
    "line.decoder.pillow": 'PIL.Image.open(path).convert("RGB") instead of torchvision.io.decode_image(path)',
    "line.decoder.simplejpeg": "simplejpeg.decode_jpeg(data), an array, for PIL.Image.open(path); JPEG files only",
    "line.decoder.opencv": (
        "cv2.cvtColor(cv2.imdecode(numpy.frombuffer(data, numpy.uint8), cv2.IMREAD_COLOR + "
        "cv2.IMREAD_IGNORE_ORIENTATION), cv2.COLOR_BGR2RGB), an array, for PIL.Image.open(path)"
    ),
    "line.decoder.torchcodec": "torchcodec.decoders.decode_image(path), a tensor, for PIL.Image.open(path)",
    "line.tensor": "transforms.PILToTensor(), not transforms.ToTensor(); batch.to(device).float() / 255 in the step",
    "line.requests_in_flight": "DataLoader(..., num_workers={workers})",
    "line.persistent_workers": "DataLoader(..., persistent_workers=True)",
    "line.own_shares": "DataLoader(..., sampler=DistributedSampler(dataset))",
    "line.one_thread": "torch.set_num_threads(1) before next(batches), and the former number after it",
    # What a change is forecast to give, and what limits training after it.
    "part.forecast": (
        "[{doubt:code doubt}]{before:rate} → [about {about:rate}|{after:rate}] {sample}/s ({low-high:range rate}), "
        "[{least-most:range 2}|{speedup:times}]x, {how}[; then {then:code part.then}]"
    ),
    "doubt.slower": "not certain, probably ",
    "part.limit": "{then:code part.then}",
    "part.then": "{then:noun} is the limit",
    "part.then.cores": "{then:noun} are the limit",
    # The fewest workers that are enough.
    "knee.unknown": "No knee: [{why}|nothing was measured].",
    "knee.no_forecast": "{how:code knee.at}; no forecast for more workers: {why}.",
    "knee.no_gain": "{how:code knee.at}; more workers gain nothing.",
    "knee.rises": "{how:code knee.at}; the rate still rises at the most workers that can be judged here.",
    "knee.inconclusive": "{how:code knee.at}; inconclusive there, so what limits beyond it is not known.",
    "knee.limited": "{how:code knee.at}; beyond it, {then:code part.then}.",
    "knee.at": "{workers:loader}, [about {about:rate}|{images_per_s:rate}] images/s",
    "knee.at.estimated": "{workers:loader}, [about {about:rate}|{images_per_s:rate}] images/s (forecast)",
    # What stops the ladder of readers, or of ranks, from rising.
    "ladder.no_step": "No step of the ladder was measured.",
    "ladder.from_memory": "The files came {share} from memory: this is no limit of storage.",
    "ladder.probe_busy": "No limit found: the probe itself may have been the limit, at {best_bytes_per_s:bytes/s}.",
    "ladder.interrupted": "The ladder was interrupted: whether more readers get more is not known.",
    "ladder.one_step": "One number of readers cannot tell a bandwidth limit from a latency limit.",
    "ladder.flat": (
        "Bandwidth-limited: already {first_bytes_per_s:bytes/s} with {first_readers:count reader}, and with no "
        "number of readers more than {best_bytes_per_s:bytes/s}."
    ),
    "ladder.uneven": (
        "Uneven: {first_bytes_per_s:bytes/s} with {first_readers:count reader}, {best_bytes_per_s:bytes/s} with "
        "{best_readers}, but less with {after_readers} ({after_bytes_per_s:bytes/s}) than with {before_readers} "
        "({before_bytes_per_s:bytes/s}): where more readers stop gaining is not known. Longer phases (--seconds) may "
        "tell."
    ),
    "ladder.rises": (
        "Latency-limited: each file takes {file_s:duration} however few are read at once, so the rate rises with the "
        "readers, to {best_bytes_per_s:bytes/s} with {knee_readers}, and {end:code more_readers}."
    ),
    "more_readers.rising": "more readers would gain more",
    "more_readers.flat": "more than {knee_readers} gain nothing",
    "ladder.rises_then_flat": (
        "Latency-limited below {knee_readers:count reader} ({first_bytes_per_s:bytes/s} with "
        "{first_readers:count reader}, {file_s:duration} a file); {end:code from_there}."
    ),
    "from_there.rising": "it may rise further",
    "from_there.flat": "from there on more readers gain nothing ({best_bytes_per_s:bytes/s}): bandwidth-limited",
    "ladder.too_short": (
        "Not known: the slowest rank gets {share:percent} of the fastest, but in {reading_s:duration} of reading. "
        "More files, or longer --seconds, tell."
    ),
    "ladder.slow_rank": (
        "Rank {rank} on {host} gets {bytes_per_s:bytes/s}, {share:percent} of the fastest: look at its process, its "
        "cores, its files, and the path of its node to the storage. Training in step waits for it."
    ),
    "ladder.slow_host": (
        "{slow_ranks} of the {host_ranks} ranks on host {host} get {bytes_per_s:bytes/s} each, the slowest rank "
        "elsewhere {elsewhere_bytes_per_s:bytes/s}: look at the path of that host to the storage. Training in step "
        "waits for it."
    ),
    "ladder.process": (
        "One process or node, not the storage: {clients} readers get {bytes_per_s:bytes/s} in {ranks:count rank} on "
        "{nodes:count node}, and {fewer_bytes_per_s:bytes/s} in {fewer_ranks:count rank} on {fewer_nodes:count node}."
    ),
    "ladder.plateau": "The storage, or the path to it: from {clients} to {most_clients} readers it gives no more.",
    "ladder.rising": "None yet: with {clients} readers it still rises, so it gives at least this. Try {next} readers.",
    "ladder.one_step_of_ranks": "Not known from one step: add more ranks, as --ranks 1,2,4.",
    # What kind of device a storage is.
    "kind.token_bucket": "A token bucket: idle time is credit, as on a throttled or cloud volume.",
    "kind.single_server": "A single server: it serves one request after the other, and idle time is lost.",
    "kind.latency": "Latency-bound: each request takes the same time at any concurrency, as in object stores.",
    "kind.from_memory": "The kind of device is not known: the files did not come from it alone.",
    "kind.probe_busy": "The kind of device is not known: the probe itself may have been the limit.",
    "kind.not_paced": "The kind of device is not known: {because:code}.",
    "kind.none_of_them": (
        "No known kind of device: {readers} readers get {rise:.3g} times what one gets, and after pauses a file takes "
        "{paced:.3g} of its time."
    ),
    # Why a search for a batch size ended, what keeps the rate from rising there, and what was trained.
    "search.no_candidate_better": "At 95 %, by a curve through all rates, no other size that fits gains over 2 %.",
    "search.probes_spent": (
        "After {probes} probes another size may still be faster by up to {left:percent}: the rates vary too much. "
        "Measure again when the machine is idle, or with more --iterations."
    ),
    "search.converged": "The search converged: {strategy:code converged} in five loops.",
    "search.at_maximum": "The search reached the largest size allowed.",
    "search.at_minimum": "The search reached the smallest size.",
    "search.loops_spent": "The search used its 100 loops and did not converge.",
    "search.out_of_memory": "The search ended where memory did: batch {wall} does not fit.",
    "search.nothing_fits": "Not even one image fits.",
    "search.interrupted": "The search was interrupted: another size may be faster.",
    "converged.gpu-usage": "the size moved by 5 or less",
    "converged.epoch-time": "the improvement moved by 0.05 or less",
    "converged.throughput": "the size did not move",
    "batch_limit.memory": (
        "Memory limits: the rate still rises at batch {size}, but {wall} does not fit[ into {limit:bytes}]."
    ),
    "batch_limit.maximum": "--max limits: the rate still rises at batch {size}. Try a larger --max.",
    "batch_limit.compute": (
        "Compute limits at batch {size}, by construction: the batch stays in memory, so no loader can limit. With "
        "DATA, batches are loaded, and the input is judged, too."
    ),
    "batch_limit.unknown": "What limits training at batch {size} is not known: {why}.",
    "part.model": "A copy of the model was trained in {precision} on {on:code trained}[; memory limit {limit:bytes}].",
    "trained.memory": "[random images in memory of {pixels} x {pixels} pixels|one batch's samples repeated in memory]",
    "trained.folder": "batches from {data}, loaded by {workers:loader}; files were read as they were found",
    "trained.loader": "a loader's batches",
    # What a GPU waits for, by a recording; and what to do then.
    "gap.input": "The GPU waits for input.",
    "gap.copy": "The GPU waits for copies from the host.",
    "gap.host": "The GPU waits for the host, which launches late.",
    "gap.sync": "The host stops to wait for the GPU.",
    "gap.communication": "The GPU waits for other ranks.",
    "gap.compute": "The GPU computes nearly all the time.",
    "gap.inconclusive": "What the GPU waits for is not on record.",
    "gap.either": "{names} take about as much of a step.",
    "trace_advice.host": "Less work for the host: torch.compile, CUDA graphs, a fused optimizer, larger batches.",
    "trace_advice.sync": "Fewer waits for the GPU: no .item() or print of a loss in each step.",
    "trace_advice.communication": "Give the recordings of all ranks, and look at the one that communicates least.",
    "trace_advice.compute": "Faster kernels: lower precision, torch.compile, channels_last.",
    "trace_advice.compute_alone": (
        "Faster kernels: lower precision, torch.compile, channels_last. A faster loader gains little."
    ),
    "trace_advice.serial": "The training loads its batches itself (num_workers=0): DataLoader(num_workers=4) first.",
    "trace_advice.freed": "{call}, {calls:2} a step, waits for the GPU: its memory runs out, or {variable} is set.",
    "trace_advice.pinned": (
        "Pinned memory: copies from pageable memory take {copies_s:duration} a step. DataLoader(pin_memory=True) and "
        ".to(device, non_blocking=True) hide them."
    ),
    "trace_advice.span": 'To see the input: torch.profiler.record_function("load") around next(), --annotation load.',
    # What a sweep is about to measure.
    "sweep_plan.configurations": (
        "Plan: {configurations:count configuration}: the loader alone and in training, {rounds} rounds[, as far as "
        "{budget_s:duration} allow]; then the same with {experiments:code experiments}{ablated:code ablated}; in "
        "training itself, where the prediction error is too large."
    ),
    "experiments.of_files": "warm files, cached samples and no transport",
    "experiments.of_objects": "no transport",
    "ablated.everywhere": "",
    "ablated.where_open": ", where the cause is still open",
    "sweep_plan.verdicts_measured": "Plan: all verdicts are already measured.",
    "sweep_plan.all_measured": "Plan: everything is already measured.",
    "sweep_plan.further": (
        "Further rounds of {further:count configuration} measured before have the time that is left, each at least "
        "{further_s:duration}."
    ),
    "sweep_plan.time": (
        "It takes about {expected_s:duration}, {open_s:duration} more where a cause stays open; --budget SECONDS gives "
        "more or less, --thorough all."
    ),
    "sweep_plan.time_thorough": "It takes about {expected_s:duration}; --budget SECONDS sets a limit.",
    "sweep_plan.time_auto": (
        "These take about {expected_s:duration}, {open_s:duration} more where a cause stays open; --budget SECONDS "
        "sets a limit for all."
    ),
    "sweep_plan.budget": (
        "It stays within the budget of {budget_s:duration}[, {each_s:duration} each]; a first round that has begun is "
        "ended, up to 30 s later where steps are slow, and the rest is for --resume."
    ),
    "sweep_plan.budget_short": (
        "The budget of {budget_s:duration}, {each_s:duration} each, is less than the {least_s:duration} that one round "
        "of all would take: segments get short, and [{left}|none] of them may be left for --resume."
    ),
    "sweep_plan.more": (
        "Then more [numbers of workers (up to {most_workers}) and prefetch {factors}|numbers of workers (up to "
        "{most_workers})|prefetch factors], until the fewest that train within 2 % of the best are known: how many "
        "configurations that takes is not known beforehand."
    ),
    "sweep_plan.prefilled": "Then from a full buffer: {configurations:count configuration}, {each_s:duration} each.",
    "sweep_plan.epochs": (
        "Then {epochs} epochs of {images} images (up to {set_bytes:bytes}), in {configurations:count configuration}: "
        "{each_s:duration} each at {images_per_s:g} images/s; --images makes them shorter."
    ),
    # What can be measured on a machine, and how to get the rest.
    "capability.storage": "storage under the data",
    "capability.free_space": "space for data and results",
    "capability.cold_reads": "cold reads, proved",
    "capability.device_reads": "reads of the device",
    "capability.worker_reads": "reads of each worker",
    "capability.waits": "waits of workers",
    "capability.run_delay": "waits for a core",
    "capability.cores": "cores",
    "capability.other_processes": "other processes",
    "capability.shared_memory": "shared memory for workers",
    "capability.gpu_training": "training on a GPU",
    "capability.gpu_utilization": "GPU utilization (NVML)",
    "capability.gpu_sm_occupancy": "SM occupancy (NVML GPM)",
    "step.path_on_storage": "give a path on the storage in question",
    "step.make_space": "remove what is not needed, or give another disk (--data-dir, --out)",
    "step.directory_to_write": "run doctor on a directory of {mount} with write permission and space",
    "step.allow_ptrace": "sysctl kernel.yama.ptrace_scope=1",
    "step.add_sys_ptrace": "docker run --cap-add=SYS_PTRACE",
    "step.kernel_with_schedstat": "a kernel with CONFIG_SCHED_INFO",
    "step.end_others": "end other processes, or measure when the machine is idle: they take time from what is measured",
    "step.mount_tmpfs": "mount a tmpfs there",
    "step.more_shared_memory": "docker run --shm-size=8g, or smaller batches",
    "step.train_elsewhere": "--compute emulated:mlperf-h100 shows what that GPU would need; --compute cpu trains here",
    "step.nvidia_gpu": "an NVIDIA GPU, and its driver's libnvidia-ml",
    "step.hopper_gpu": "an NVIDIA GPU, Hopper or newer",
    # What a comparison has in its rows; beside the word of a row, where it says more; and what weakens it.
    "compared.sweep": "configuration",
    "compared.bandwidth": "phase",
    "compared.diagnosis": "loader",
    "word.beyond_noise": "",
    "word.within_size": "",
    "word.too_noisy": "",
    "word.one_of_many": "by chance in one of so many",
    "word.near_size": "perhaps by less than matters",
    "word.no_spread": "nothing shows how much it varies",
    "word.others_took": "others took cores in {side}",
    "part.others_took": (
        "other processes took [{before}|an unknown part] of the cores in A, [{after}|an unknown part] in B[, in {some}]"
    ),
    "comparison.other_reads": "other processes read from the same devices",
    "comparison.few_rounds": "fewer than three rounds, so their intervals stand in",
    "comparison.probe_limited": "the probe itself may have been the limit: the storage may be faster",
    # What is said in a training script while it is measured.
    "script.begins": (
        "measuring {loader:each part.loader}[ on {ranks} ranks together] for about {budget_s:duration}"
        "[, {most_s:duration} while the verdict is open], with this "
        "script's loop as the step. The training from here on is thrown away; the script ends when the verdict stands."
        "[ A step also takes from {others:each part.loader}: that counts as compute.]"
    ),
    "script.waits": (
        "nothing is measured before {steps} training steps: in {waited_s:duration} {batches} batches were taken, and "
        "{backward_passes} backward passes made[. A loop without them is measured with --loader {number}]"
    ),
    "script.round": "{round} …",
    "script.was_paused": (
        "the script did something else than train for {paused_s:duration} between two batches[, most of it in "
        "{place}]. That counts towards the budget of {budget_s:duration}"
    ),
    "script.no_loader_yet": (
        "{passes:count backward pass} without a new batch of a torch DataLoader, so nothing is measured. The script "
        "trains on, and saves, as without loaderprobe; what its thread does meanwhile is estimated"
    ),
    "script.no_such_loader": (
        "nothing is measured yet: there is no loader {asked}, only {loaders:each part.loader}. The script trains on as "
        "without loaderprobe; Ctrl-C ends it. Without --loader, the loader that trains is measured"
    ),
    "script.stopped_before": "stopped before the script would write over or remove {path}: nothing of it is changed",
    "script.watched": "{at_s:duration}: [{images_per_s:rate} {unit}, ]input wait {input_wait_fraction:percent}{rest}",
    "script.not_kept": "the last interval is not kept: {error}",
    "script.saved": "the script made files meanwhile, which hold nothing of use: {files}[ and {more} more]",
    "part.loader": "loader {number} ({dataset}, [batch size {batch_size}, ]{workers:workers})",
    # Why a command, or a process of it, has no verdict, and what was seen of its training.
    "script.no_verdict": "no verdict[: {reason}[. Try: {hint}]]",
    "script.exit_code": "no verdict: the command ended with exit code {exit_code}, not measured. Try: run it by itself",
    "script.no_training": (
        "no verdict: torch was imported, but no DataLoader was iterated and no backward pass made in a process that "
        "ended by itself. Try: let it train, and end by itself"
    ),
    "script.no_python": (
        "no verdict: no torch DataLoader was iterated in a Python process that ended by itself. Try: install "
        "loaderprobe for the Python that trains; python -I, -E and -S keep it out"
    ),
    "script.two_processes": "One process takes batches, and another trains: only both in one are measured",
    "seen.loader": "{loader:each part.loader}: {batches} batches taken, {backward_passes} backward passes",
    "seen.calls": "estimated from {timed:count step} of {step_s:duration} in which the loop's calls were timed:",
    "seen.place": (
        "[{share:percent} (±{share_off:percent}) of a step is in {place}, outside the model and the "
        "optimizer[. Free, it would make training at most {most:2}x]|a step is in the model, its backward pass, the "
        "optimizer and the loop's own code]"
    ),
    "seen.thread": "[the thread runs {running_share:percent} of the time, waits {storage_share:percent} for storage]",
    "why_not.no_loader": "hardly any backward pass was on a new batch of a torch DataLoader: batches come otherwise",
    "try.why_not.no_loader": "loaderprobe.diagnose(loader, step) in Python, with a DataLoader around what makes them",
    "why_not.script_error": "the script ended with an error of its own: {detail}",
    "try.why_not.script_error": "run it without loaderprobe",
    "why_not.several_processes": "{detail} processes train at the same time, not joined by torch.distributed",
    "try.why_not.several_processes": "start the script with one process that trains",
    "why_not.no_backward": "batches were taken, but torch made no backward pass after them in this process",
    "try.why_not.no_backward": "loaderprobe run --loader NUMBER: its loop is the step, as of inference",
    "why_not.too_few_steps": "the script ended after too few training steps",
    "try.why_not.too_few_steps": "let it train for longer",
    "why_not.no_such_loader": "there is no loader of that number",
    "try.why_not.no_such_loader": "one of the numbers below",
    "why_not.other_thread": "batches are taken in another thread than the one that trains",
    "try.why_not.other_thread": "loaderprobe.diagnose(loader, step) in Python",
    "why_not.ranks": "the script trains on {detail} ranks not joined by torch.distributed; one cannot stop alone",
    "try.why_not.ranks": "start it with one rank",
    "why_not.ranks_apart": "the ranks are not measured together",
    "why_not.follows": "this process trains with rank 0, which has the verdict or the reason",
    "why_not.another_process": "another process of the command is measured already",
    "why_not.begun_each_batch": "the script starts its loader for each batch, and so its workers, too",
    "try.why_not.begun_each_batch": "batches = iter(loader) before the loop, and next(batches) in it",
    "why_not.refused": "{detail}",
    "why_not.not_seen_again": "the script went on [with {detail}|without a DataLoader] before a round was complete",
    "try.why_not.not_seen_again": "make the DataLoader once, before the epochs; or use loaderprobe.diagnose in Python",
    "why_not.interrupted": "interrupted before there was a verdict",
    "try.why_not.interrupted": "the same command again; --budget SECONDS sets how long it measures",
    "why_not.ended_early": (
        "[the script was stopped before it would write over or remove {endangered}, and no round was measured until "
        "then|the script ended before a round was measured]"
    ),
    "try.why_not.ended_early": "let it train for longer",
    "try.why_not.endangered": "another, empty directory for what it saves",
    # Why ranks are not measured together.
    "apart.silent": "{ranks:ranks} took no batches from a torch DataLoader to train on: all are measured, or none",
    "try.apart.silent": "loaderprobe run --loader NUMBER, if one of the loaders below trains",
    "apart.other_thread": "on {ranks:ranks}, batches are taken in another thread than the one that trains",
    "try.apart.other_thread": "loaderprobe.diagnose(loader, step) in Python, with one rank",
    "apart.another_process": "another training of the command is measured already",
    "apart.loaders_differ": "the loader of {ranks:ranks} has another {detail:list setting} than that of rank 0",
    "try.apart.loaders_differ": "give all ranks the same",
    "setting.batch_size": "batch size",
    "setting.workers": "number of workers",
    "setting.prefetch_factor": "prefetch factor",
    "setting.period": "number of batches an update",
    "setting.exchanges": "exchange of gradients",
    "apart.out_of_step": "{ranks:ranks} did not come to the same step as the others",
    "try.apart.out_of_step": "start it with one rank",
    "apart.no_group": "the ranks could not meet over gloo: {detail}",
    "try.apart.no_group": "GLOO_SOCKET_IFNAME names the network interface that joins them",
    "apart.refused": "{detail} (on {ranks:ranks})",
    "apart.ended": "the script ended before all ranks agreed on a step",
    "try.apart.ended": "let it train for longer",
    "apart.lost": "[{detail}|another rank does not answer]",
}

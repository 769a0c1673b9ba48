"""What else is to know of a result."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal

SessionNote = Literal[
    "no_time", "cut_short", "all_batches_made", "only_watched", "measured_again", "begun_each_batch", "too_few_samples",
    "script_ended", "broken_off", "workers_without_data", "wrapper_left_out", "taken_in_order", "odd_batches",
    "shared_memory_stays", "manager_stays", "one_round", "files_hidden", "reads_no_files", "samples_kept",
    "fits_in_memory",
    "ranks_together", "ranks_meet", "ranks_meet_loading", "ranks_in_step", "same_samples", "same_batches",
    "storage_alone", "read_ahead", "small_set", "threads_spin", "threads_spin_in_training", "others_took", "host_took",
    "others_read_too", "script_paused",
]  # fmt: skip
"""Of what was measured of one loader."""
PlaceNote = Literal[
    "mount_hidden", "device_hidden", "zfs_cache", "in_memory", "nfs", "remote_uncounted", "fuse",
    "device_in_memory", "loop_hidden", "loop_file_hidden", "loop_file", "layers_hidden", "some_layers_hidden",
    "layers_in_memory", "some_layers_in_memory", "files_elsewhere", "several_filesystems", "files_unknown",
]  # fmt: skip
"""Of the storage under a path: what cannot be known."""
ProbeNote = Literal[
    "files_skipped", "large_files_in_blocks", "scratch_file", "read_again", "cache_unknown", "short_reading",
    "probe_busy", "repeats_faster",
]  # fmt: skip
"""Of a bandwidth probe or one of its phases."""
PlanNote = Literal[
    "opens_short", "opens_unsettled", "no_images", "not_published", "others_read", "rate_unsettled",
    "bytes_as_read", "samples_as_images", "ranks_at_least", "clients_at_least", "ranks_uneven",
]  # fmt: skip
"""Of a storage plan or one of its supplies."""
TraceNote = Literal[
    "workers_not_recorded", "no_loader_spans", "no_step_marks", "few_steps", "first_steps_left_out",
    "host_slowed_by_profiler", "occupancy_not_known", "trace_cut_off", "trace_too_long", "trace_unreadable",
    "launches_not_recorded", "records_rejected", "ranks_missing",
]  # fmt: skip
"""Of a recording of torch.profiler."""
NoteCode = Literal[SessionNote, PlaceNote, ProbeNote, PlanNote, TraceNote, "reported"]
"""What it says. The last: a text from elsewhere, such as a catalogue or an older version."""
NEEDED = "needed"
"""A fact that may differ between notes that say the same; a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something to know, before it is put into words."""

    code: NoteCode
    facts: dict[str, float | str] = field(default_factory=dict)
    """What the sentence quotes: times s, sizes bytes, rates images/s or bytes/s by name; with `reported` the `text`."""
    sentence: str = field(default="", compare=False)
    """The note in words; `render` adds it where the result leaves the program."""


def each_once(notes: Iterable[Note]) -> tuple[Note, ...]:
    """The notes in their order, without repetitions; of those that differ in what is needed, the one with the most."""
    found: dict[Hashable, Note] = {}
    for note in notes:
        same = subject_of(note)
        if same not in found or float(note.facts.get(NEEDED, 0)) > float(found[same].facts.get(NEEDED, 0)):
            found[same] = note
    return tuple(found.values())


def subject_of(note: Note) -> Hashable:
    """The same for notes that say one thing: the code and the facts, without what is needed."""
    return note.code, tuple(sorted((name, value) for name, value in note.facts.items() if name != NEEDED))

"""Notes in words."""

from __future__ import annotations

from typing import get_args

import pytest

from loaderprobe.records.note import Note, NoteCode, each_once
from loaderprobe.render.note_words import note_words

FACTS: dict[str, float | str] = {
    "samples": 12.0, "needed": 40.0, "idle": 1.0, "workers": 3.0, "busy": 2.0, "wrapper": "Piped", "path": "loader",
    "batches": 5.0, "size_bytes": 467e6, "first_per_s": 80.0, "unit": "images/s", "judged": "later",
    "warm_per_s": 1234.0, "filesystem": "cifs", "device": "loop3", "file": "/a.img", "cache": "own_cache",
    "under": "vda", "hidden": 1.0, "layers": 2.0, "paths": "/a", "mount": "/mnt", "mounts": "/a, /b", "files": 10.0,
    "why": "empty", "times": 3.0, "seconds": 0.254, "cores": 15.51, "cores_available": 16.0, "bytes_per_s": 12.5e6,
    "first_bytes_per_s": 20e6, "again_bytes_per_s": 3e9, "limits": "bandwidth opens_at_size", "text": "it snowed",
    "ranks": 2.0, "hosts": 1.0, "meeting_s": 0.004, "share": 0.08, "next": 4.0, "clients": 8.0, "rank": "3",
    "host": "node0", "again": 5.0, "readers": 1.0, "alone_bytes_per_s": 612e6, "read_bytes_per_s": 26e6, "least": "",
    "sample_bytes": 108e3, "read_bytes": 2.5e6, "amplification": 23.1481, "within_s": 8.3, "low_per_s": 93.0,
    "high_per_s": 182.0, "memory_per_s": 189.0, "how": "estimated",
    "loader_per_s": 302.0, "one_thread_cores": 1.0, "one_thread_per_s": 292.0, "training_per_s": 189.0,
    "one_thread_training_per_s": 184.0,
    "segments": 4.0, "of": 12.0, "steps": 3.0, "records": 600.0, "events": 2.0, "kernels": 5.0,
    "given": 1.0, "paused_s": 38.0,
}  # fmt: skip
BECAUSE = {"wrapper_left_out": "new_batches", "files_hidden": "read_in_parts", "cache_unknown": "on_fuse",
           "records_rejected": "too_early"}  # fmt: skip


def _note(code: NoteCode, **facts: float | str) -> Note:
    return Note(code=code, facts={**FACTS, "because": BECAUSE.get(code, ""), **facts})


@pytest.mark.parametrize("code", get_args(NoteCode))
def test_every_code_has_words(code: NoteCode) -> None:
    """A clause without a full stop; a code without words would fail only in a user's report."""
    words = note_words(_note(code))
    assert words and not words.endswith(".") and "{" not in words


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (_note("workers_without_data"), "1 of 3 workers gets no data: measured with 2 workers"),
        (_note("workers_without_data", idle=2.0, busy=1.0), "2 of 3 workers get no data: measured with 1 worker"),
        (_note("samples_kept", later_per_s=200.0), "delivers 80.0 images/s, in later ones 200; the verdict is on the "
         "later epochs"),
        (_note("samples_kept", judged="first"), "80.0 images/s; the verdict is on the first epoch"),
        (_note("loop_file", cache="in_memory"), "is the file /a.img on cifs (vda), in memory: its reads look cold"),
        (_note("loop_file", cache="none"), "loop3 is the file /a.img on cifs (vda)"),
        (_note("cache_unknown"), "unknown: loader is on FUSE"),
        (_note("not_published"), "not published: bandwidth and opens at this size"),
        (_note("probe_busy"), "kept 15.5 of 16 cores busy"),
        (_note("no_time", budget_s=60.0, rounds=3.0), "for another round; a budget of 60 s would allow 3 rounds"),
        (_note("cut_short"), "there was no time left for all of the last round"),
        (_note("short_reading"), "only 0.25 s of reading"),
        (_note("ranks_together"), "2 ranks, measured together"),
        (_note("ranks_together", ranks=16.0, hosts=2.0), "16 ranks on 2 hosts, measured together"),
        (_note("storage_alone", share=0.04), "612 MB/s to 1 reader; 26.0 MB/s are read here, 4% of that"),
        (_note("storage_alone", least="at least ", readers=2.0), "delivers at least 612 MB/s to 2 readers"),
        (_note("threads_spin", cores=1.97), "keeps 1.97 cores busy for 302 images/s, and 1 for 292 images/s"),
        (_note("threads_spin_in_training"), "on one thread. Training runs at 189 and 184 images/s"),
        (_note("read_ahead"), "for each 108 kB of samples the storage reads 2.50 MB, 23 times as much"),
        (_note("small_set"), "93.0 to 182 images/s (estimated), limited by storage; in later ones 189 (estimated)"),
        (_note("ranks_meet"), "takes 4.00 ms: about 8% of a training step"),
        (_note("few_steps", steps=1.0), "only 1 step is on record"),
        (_note("first_steps_left_out"), "3 steps at the begin, slower than usual, were left out"),
        (_note("records_rejected"), "600 records of the profiler were left out: began before it was launched"),
        (_note("repeats_faster"), "got 20.0 MB/s, repeats 3.00 GB/s"),
    ],
)  # fmt: skip
def test_facts_are_quoted_with_units(note: Note, words: str) -> None:
    """Rates, sizes and times in their units; one and several in their own form."""
    assert words in note_words(note)


def test_each_note_stands_once() -> None:
    """In the order in which it came first; facts that differ make another note."""
    first, second = Note(code="probe_busy", facts={"cores": 1.0}), Note(code="probe_busy", facts={"cores": 2.0})
    assert each_once([second, first, second]) == (second, first)


def test_of_what_is_needed_the_most_is_said() -> None:
    """A segment with workers' batches in the way needs more images than one without; of other samples it is news."""
    few, more, other = (
        Note(code="too_few_samples", facts={"samples": samples, "needed": needed})
        for samples, needed in ((512.0, 672.0), (512.0, 704.0), (640.0, 672.0))
    )
    assert each_once([few, more, few, other]) == (more, other)

"""Why the page cache does not show what it holds, or a phase of a probe was not measured, in words."""

from __future__ import annotations

from loaderprobe.records.unavailable import UnavailableCode

STORAGE: dict[UnavailableCode, str] = {
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
    "fio_cannot_pause": "fio cannot pause in proportion to what it has read; leave out --engine fio",
    "ceiling_failed": "measuring the ceiling failed: {error}",
    "kind_failed": "the kind of storage was not found out: {error}",
    "files_empty": "the files are empty",
    "filesystem_not_counted": "reads of {filesystem} are not counted, so there is nothing to compare",
}

"""What the storage under some files delivers at one concurrency, with which the reads of a loader are compared."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from loaderprobe.errors import LoaderprobeError
from loaderprobe.protocols import PageCache
from loaderprobe.records.files import FileSet, PartFiles
from loaderprobe.records.loader_files import BatchFiles
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.storage.files import LARGE_BLOCK_BYTES, Piece, Sample, blocks, locate_pieces
from loaderprobe.storage.objects import ONE_INTERPRETER, ObjectEngine
from loaderprobe.storage.phase import PhaseSettings, run_fastest
from loaderprobe.storage.reader import ReadEngine, Supply, ThreadEngine
from loaderprobe.system.device import locate_root, reads_from_storage
from loaderprobe.system.limits import cores_available
from loaderprobe.system.objects import open_store

MOST_BLOCKS, MOST_LISTED = 2048, 50_000


def raise_ceiling(
    known: StorageCeiling | None, files: FileSet | BatchFiles | PartFiles, readers: int, *, seconds: float,
    longest_s: float, cache: PageCache,
) -> StorageCeiling:  # fmt: skip
    """`known` with a phase at concurrency `readers` added: whole files or objects, in random order, cold.

    Of files that are read in parts a random sample of blocks of 1 MB: storage delivers about its maximum at that block
    size, and a loader with smaller reads gets no more. If it cannot be measured, `missing` has the reason.
    KeyboardInterrupt is passed on.
    """
    known = known or StorageCeiling(data=files.fingerprint if isinstance(files, FileSet) else "", phases=())
    if known.at(readers):
        return known
    engine: ReadEngine
    try:
        sample = sample_of(files, seed=readers)
        if not sample.pieces:
            return replace(known, missing=Remark(code="files_empty"))
        if isinstance(files, FileSet) and files.remote:
            engine, supply = ObjectEngine(open_store(files.root), sample), Supply(sample, None, seed=readers)
            location, cores = locate_root(files.root), ONE_INTERPRETER
        else:
            engine, supply = ThreadEngine(), Supply(sample, cache, seed=readers)
            location, cores = locate_pieces(sample.pieces[0].path.parent, sample.pieces), cores_available()
            if not location.counts_reads and reads_from_storage(location) is None:
                uncounted = Remark(code="filesystem_not_counted", facts={"filesystem": location.filesystem})
                return replace(known, missing=uncounted)
        settings = PhaseSettings(
            engine=engine, supply=supply, location=location, cores_available=cores, readers=readers, seconds=seconds,
            longest_s=longest_s,
        )  # fmt: skip
        return replace(known, phases=(*known.phases, run_fastest(settings)), missing=None)
    except (LoaderprobeError, OSError) as error:
        return replace(known, missing=Remark(code="ceiling_failed", facts={"error": str(error)}))


def sample_of(files: FileSet | BatchFiles | PartFiles, *, seed: int = 0) -> Sample:
    """All of these files or objects, whole; blocks at random, by `seed`, of those that are read in parts."""
    folder = files.folder if isinstance(files, FileSet) and not files.remote else Path()
    sizes = files.file_bytes.items()
    pieces = [Piece(path=folder / path, offset=0, size_bytes=size) for path, size in sizes if size]
    in_parts = bool(files.whole_bytes) if isinstance(files, FileSet) else isinstance(files, PartFiles)
    if in_parts:
        # Of some TB, those at equal distances: all would be millions.
        step = LARGE_BLOCK_BYTES * (1 + sum(size for _, size in sizes) // (MOST_LISTED * LARGE_BLOCK_BYTES))
        every = [part for piece in pieces for part in blocks(piece.path, piece.size_bytes, step)]
        some = random.Random(seed).sample(every, min(len(every), MOST_BLOCKS))
        pieces = [replace(part, size_bytes=min(LARGE_BLOCK_BYTES, part.size_bytes)) for part in some]
    return Sample(pieces=tuple(pieces), block_bytes=LARGE_BLOCK_BYTES if in_parts else None)

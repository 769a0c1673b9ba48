"""What the storage under one file set delivers at one concurrency: the ceiling that a sweep compares its reads with."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from loaderprobe.errors import LoaderprobeError
from loaderprobe.protocols import PageCache
from loaderprobe.records.files import FileSet
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.storage.files import LARGE_BLOCK_BYTES, Piece, Sample, blocks, locate_pieces
from loaderprobe.storage.objects import ONE_INTERPRETER, ObjectEngine, sample_of
from loaderprobe.storage.phase import PhaseSettings, run_fastest
from loaderprobe.storage.reader import Supply, ThreadEngine
from loaderprobe.system.device import locate_root, reads_from_storage
from loaderprobe.system.limits import cores_available
from loaderprobe.system.objects import open_store

MOST_BLOCKS = 2048


def raise_ceiling(
    known: StorageCeiling | None, files: FileSet, readers: int, *, seconds: float, longest_s: float, cache: PageCache
) -> StorageCeiling:
    """`known` with a phase at concurrency `readers` added: whole files or objects of the set, in random order,
    cold; of files that hold several samples, blocks.

    If it cannot be measured, `missing` has the reason. KeyboardInterrupt is passed on.
    """
    known = known or StorageCeiling(data=files.fingerprint, phases=())
    if known.at(readers):
        return known
    if files.remote:
        sample = sample_of(files)
        try:
            engine = ObjectEngine(open_store(files.root), sample)
        except LoaderprobeError as error:
            return _failed(known, error)
        settings = PhaseSettings(
            name="files", engine=engine, supply=Supply(sample, None, seed=readers), location=locate_root(files.root),
            cores_available=ONE_INTERPRETER, readers=readers, seconds=seconds, longest_s=longest_s,
        )  # fmt: skip
        return _with_phase(known, settings)
    if files.parts:
        whole = files.parts.file_bytes
        return ceiling_of_parts(whole, readers, seconds=seconds, longest_s=longest_s, cache=cache, known=known)
    pieces = tuple(
        Piece(path=files.folder / path, offset=0, size_bytes=size) for path, size in files.file_bytes.items() if size
    )
    sample = Sample(pieces=pieces, found=len(pieces), images=True, block_bytes=None)
    return _of_sample(known, sample, Path(files.root), readers, seconds=seconds, longest_s=longest_s, cache=cache)


def ceiling_of_parts(
    file_bytes: Mapping[str, int], readers: int, *, seconds: float, longest_s: float, cache: PageCache,
    known: StorageCeiling | None = None,
) -> StorageCeiling:  # fmt: skip
    """The same for files that a loader reads in parts: a random sample of blocks of 1 MB.

    Storage delivers about its maximum at that block size; a loader with smaller reads gets no more.
    """
    pieces = [
        piece
        for path, size in file_bytes.items()
        for piece in blocks(Path(path), size, LARGE_BLOCK_BYTES)
        if piece.size_bytes
    ]
    chosen = random.Random(readers).sample(pieces, min(len(pieces), MOST_BLOCKS))
    known = known or StorageCeiling(data="", phases=())
    if not chosen:
        return replace(known, missing=Remark(code="files_empty"))
    sample = Sample(pieces=tuple(chosen), found=len(chosen), images=True, block_bytes=LARGE_BLOCK_BYTES)
    root = chosen[0].path.parent
    return _of_sample(known, sample, root, readers, seconds=seconds, longest_s=longest_s, cache=cache)


def _of_sample(
    known: StorageCeiling, sample: Sample, root: Path, readers: int, *, seconds: float, longest_s: float,
    cache: PageCache,
) -> StorageCeiling:  # fmt: skip
    try:
        location = locate_pieces(root, sample.pieces)
        if not location.counts_reads and reads_from_storage(location) is None:
            facts: dict[str, float | str] = {"filesystem": location.filesystem}
            return replace(known, missing=Remark(code="filesystem_not_counted", facts=facts))
    except (LoaderprobeError, OSError) as error:
        return _failed(known, error)
    settings = PhaseSettings(
        name="files", engine=ThreadEngine(), supply=Supply(sample, cache, seed=readers), location=location,
        cores_available=cores_available(), readers=readers, seconds=seconds, longest_s=longest_s,
    )  # fmt: skip
    return _with_phase(known, settings)


def _with_phase(known: StorageCeiling, settings: PhaseSettings) -> StorageCeiling:
    try:
        phase = run_fastest(settings)
    except (LoaderprobeError, OSError) as error:
        return _failed(known, error)
    return replace(known, phases=(*known.phases, phase), missing=None)


def _failed(known: StorageCeiling, error: Exception) -> StorageCeiling:
    return replace(known, missing=Remark(code="ceiling_failed", facts={"error": str(error)}))

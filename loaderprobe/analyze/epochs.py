"""Rate and cold share of each epoch, and whether the data set fits into memory."""

from __future__ import annotations

from loaderprobe.records.files import FileSet
from loaderprobe.records.studies import Epoch, EpochFigures, Epochs, EpochsMeasured, Fit

LEAST_PART = 0.3
"""Of the set: where memory holds less, a cache with the least recently used files dropped answers under 5 % of reads
in a random order, c + (1 - c) ln(1 - c) with c = 0.3."""


def epochs_of(measured: EpochsMeasured, files: FileSet | None) -> Epochs:
    """`files` are those that an epoch reads; None where they are not known."""
    found = files.images_found / files.count if files else 1.0
    return Epochs(
        epochs=tuple(_figures(each) for each in measured.epochs),
        set_bytes=measured.set_bytes,
        memory_bytes=measured.memory_bytes,
        fit=None if measured.memory_bytes is None else fit(measured.set_bytes, measured.memory_bytes),
        whole_set_bytes=measured.set_bytes * max(1.0, found),
        reason=measured.reason,
    )


def fit(set_bytes: float, memory_bytes: float) -> Fit:
    """Whether a set fits into memory for files."""
    if memory_bytes >= set_bytes:
        return "fits"
    return "fits in part" if memory_bytes >= LEAST_PART * set_bytes else "does not fit"


def _figures(epoch: Epoch) -> EpochFigures:
    """Storage gives whole pages, and so may give more than all bytes of the files."""
    read = epoch.storage_bytes
    cold = None if read is None or not epoch.delivered_bytes else min(1.0, read / epoch.delivered_bytes)
    return EpochFigures(images_per_s=epoch.images / epoch.wall_s, cold_fraction=cold)

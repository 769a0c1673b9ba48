"""A loader of one's own, measured by itself or with a step."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.config import RunConfig
from loaderprobe.records.loader_files import UnknownFiles
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.phases import StorageCeiling

DIAGNOSIS_SCHEMA, DIAGNOSIS_VERSION = "loaderprobe/diagnosis", 2
# 1  2026-11  the verdict's figures were fields of the result
# 2  2026-11  they are those of a configuration in a summary


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLoader:
    """A function without arguments that returns a loader, or a loader and a step."""

    name: str
    """As it was typed: `train.py:make_loader`, `package.module:make_loader`."""
    folder: str
    """Where its module is looked for first; absolute."""
    module: str
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFound:
    """What is known of a whole data set from the batches that were looked at."""

    hidden: UnknownFiles | None
    """Why its files are not known."""
    size_bytes: float | None
    """Of all files; None when that is not known."""
    root: str
    """Where all the files seen are, if that is no place for everything; else empty."""
    samples: int | None = None
    """None when its length is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMeasured:
    """What measuring a loader came to; of the child of rank 0 it is what all ranks measured."""

    config: RunConfig
    """Of a rank as it was asked for: the loader's own settings are in the measurement's."""
    measurement: Measurement
    data: DataFound
    ceiling: StorageCeiling | None = None

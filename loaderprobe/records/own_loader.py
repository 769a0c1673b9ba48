"""A function of the user's that makes a loader, by which each rank makes its own, and what was measured of it."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import UnknownFiles
from loaderprobe.records.measurement import Measurement


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
    """What the child of a rank returns; of rank 0 it is what all measured."""

    config: RunConfig
    """As it was asked for: the loader's own settings are in the measurement's."""
    measurement: Measurement
    data: DataFound
    with_step: bool
    ceiling: StorageCeiling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What one rank takes of the data set, as far as that is seen from its first batches."""

    batch_size: int
    workers: int
    prefetch_factor: int
    files: tuple[int, ...]
    """A hash of the name of each file behind them; empty where these are not known."""
    first: int | None
    """A hash of the content of the first batch; None where nothing in it can be hashed, or another is the same."""
    whole: bool
    """True where the sampler goes through the whole data set."""
    exchanges: bool = False
    """True where the step exchanges gradients in a way that can be switched off."""

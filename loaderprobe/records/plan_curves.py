"""Curves beside a storage plan: the measured ladder, and what caches do in general."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.verdict import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class RampStep:
    """One step of the measured ladder."""

    readers: int
    files_per_s: float
    bytes_per_s: float
    """Delivered to the readers."""
    p50_s: float | None
    """Median time of one file; None where files were not timed one by one."""
    p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEpochs:
    """The share of reads that reach storage in epoch 1, 2, ..., where each node's cache holds the whole set."""

    nodes: int
    cold: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheHits:
    """What a node's cache that holds this share of the set answers in the end."""

    share: float
    lru: float
    """Where the least recently used files leave it."""
    page: Interval
    """The kernel's page cache, by what was measured of it."""
    pinned: float
    """Where a fixed part of the files stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCurves:
    """Caches in general, for the nodes of this plan: no figure of a run is in them."""

    epochs: tuple[NodeEpochs, ...]
    sizes: tuple[CacheHits, ...]

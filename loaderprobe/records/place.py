"""The place of one rank among those that measure a configuration together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which rank a process is, and the store by which it finds the others."""

    rank: int
    size: int
    """Ranks of the configuration."""
    node: int
    """Of the rank, from 0."""
    local_rank: int
    """Among the ranks of its node, from 0."""
    local_size: int
    """Ranks of the configuration on its node."""
    address: str
    """Of the store, which outlives the processes that measure."""
    port: int
    prefix: str
    """Of all keys of this configuration and of this attempt at it."""
    timeout_s: float = 60.0
    """For the others to come to a meeting, or to end a step."""

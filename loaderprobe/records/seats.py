"""What passes between the processes that a launcher started: who they are, what is next, how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One of the processes that a launcher started, by the variables that it set."""

    rank: int
    size: int
    """Of all processes."""
    node: str
    """A name that the processes of one node share; empty where the launcher gave none."""
    address: str
    """Of the store."""
    port: int
    agent_store: bool
    """True where the launcher holds the store; otherwise the process of rank 0 does."""
    attempt: str = "0"
    """Grows when the launcher starts all processes again, which find the same store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Ranks as they are asked for: `8`, or `4x2` on four nodes."""

    ranks: int
    """Of all nodes."""
    nodes: int | None = None
    """None for as few as have the processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatSeen:
    """What a process says of itself when it comes."""

    rank: int
    host: str
    node: str
    gpus: tuple[str, ...]
    """The UUIDs of those that it sees."""
    version: str
    """Of loaderprobe."""
    address: str = ""
    """Of this host, as it reaches the store; empty on the host that holds it by a name for itself only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, with the processes that the launcher started there."""

    host: str
    seats: tuple[int, ...]
    """Their ranks."""
    gpus: int
    """That its processes see; 0 also where they cannot be listed."""
    address: str = ""
    """By which others reach it; empty where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What the processes do next: measure a configuration, look for the files of a data set on each node, or end."""

    kind: Literal["measure", "files", "end"]
    ranks: int = 0
    nodes: int = 0
    time_limit_s: float = 0.0
    exit_code: int = 0
    """With `end`: of all processes. A launcher that sees others end well may wait for them for minutes."""


EndKind = Literal["done", "failed", "timeout", "ended", "lost"]
"""ended: its own process was ended because another rank could not go on. lost: it gave no word at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatEnd:
    """How one rank's part in a turn ended."""

    rank: int
    """Among those of the turn."""
    host: str
    kind: EndKind
    stage: str = ""
    """The last that it reported."""
    events: int = 0
    """How many it reported."""
    first: bool = False
    """True for the first of all that could not go on."""
    consequence: bool = False
    """True where all that it says is that it lost another rank."""
    reason: str = ""
    hint: str = ""
    exit_code: int | None = None
    signal: str | None = None
    log: tuple[str, ...] = ()

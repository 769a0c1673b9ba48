"""What passes between processes of ranks: those that a launcher started, and those that are measured together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.phases import BandwidthPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One of the processes that a launcher started, by the variables that it set."""

    rank: int
    size: int
    """How many processes the launcher started."""
    node: str
    """A name that the processes of one node share; empty where the launcher gave none."""
    address: str
    """The address of the store."""
    port: int
    agent_store: bool
    """True where the launcher has the store; otherwise the process of rank 0 makes it."""
    attempt: str = "0"
    """Grows when the launcher starts all processes again, which find the same store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """What a process stores about itself when it joins."""

    rank: int
    host: str
    node: str
    gpus: tuple[str, ...]
    """The UUIDs of the GPUs that it sees."""
    version: str
    """The version of loaderprobe."""
    address: str = ""
    """The address of this host as it reaches the store; empty on the host of the store, which has a loopback name."""
    core_limits: Mapping[str, float] = field(default_factory=dict)
    """What limits its cores, by names that processes of one host share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, with the processes that the launcher started there."""

    host: str
    processes: tuple[int, ...]
    """The ranks of these processes, in ascending order."""
    gpus: int
    """How many GPUs its processes see; 0 also where they cannot be listed."""
    address: str = ""
    """The address by which others reach it; empty where that is not known."""
    cores: tuple[float, ...] = ()
    """The share of each process."""


def shares(limits: Sequence[Mapping[str, float]]) -> list[float]:
    """The cores of each process of a host: the least of what limits it, of which all under that limit have as much.

    `limits` are what `core_limits` says on each; without any, the cores are infinite.
    """
    under = Counter(chain(*limits))
    return [min((cores / under[name] for name, cores in of_one.items()), default=math.inf) for of_one in limits]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCommand:
    """What the processes do next: measure a configuration, look for the files of a data set on each node, or end."""

    kind: Literal["measure", "files", "end"]
    ranks: int = 0
    nodes: int = 0
    time_limit_s: float = 0.0
    exit_code: int = 0
    """With `end`: of all processes. A launcher that sees others end well may wait for them for minutes."""


OutcomeKind = Literal["done", "failed", "timeout", "ended", "lost"]
"""ended: its own process was ended because another rank could not go on. lost: it reported nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOutcome:
    """How one rank's part in a command ended."""

    rank: int
    """The rank among those of the command."""
    host: str
    kind: OutcomeKind
    stage: str = ""
    """The last stage that it reported."""
    events: int = 0
    first: bool = False
    """True for the first rank that could not go on."""
    consequence: bool = False
    """True where its error says only that it lost another rank."""
    reason: str = ""
    hint: str = ""
    exit_code: int | None = None
    signal: str | None = None
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlacement:
    """Which rank a process is, and the store by which it finds the others."""

    rank: int
    size: int
    """Ranks of the configuration."""
    node: int
    """The node of the rank, from 0."""
    local_rank: int
    """Among the ranks of its node, from 0."""
    local_size: int
    """Ranks of the configuration on its node."""
    address: str
    """The address of the store, which outlives the processes that measure."""
    port: int
    prefix: str
    """The prefix of all keys of this configuration and of this attempt at it."""
    timeout_s: float = 60.0
    """Seconds for the others to arrive at a barrier, or to end a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTogether:
    """One step of a ladder: what all ranks read, of which each has a share, and how."""

    pieces: bytes
    """All of them, as `storage.files.encoded_pieces` writes them."""
    location: StorageLocation
    places: tuple[tuple[str, int], ...]
    """(host, node) of each rank."""
    readers: int
    """Of each rank."""
    seconds: float
    """The time of one run."""
    seed: int
    block_bytes: int | None = None
    """Size of one read; None when files are read whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """What came of one step."""

    config: RunConfig
    phase: BandwidthPhase | None
    """On rank 0; None on the others."""


NotTogetherCode = Literal[
    "silent", "other_thread", "another_process", "loaders_differ", "out_of_step", "no_group", "refused", "ended", "lost"
]
"""Why ranks are not measured together. silent: ranks of which none of the DataLoaders trained in time. loaders_differ:
from those of rank 0. out_of_step: they did not come to the agreed step. no_group: they could not meet. refused: a
loader cannot be measured. ended: the script ended. lost: ranks do not answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTogether:
    """Why all ranks go on with the script, or why the measurement ended."""

    code: NotTogetherCode
    ranks: tuple[int, ...]
    """Those that are the reason."""
    detail: str = ""
    """An error's own words."""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOffer:
    """The loader that trains on one rank, and its settings, which are the same on all."""

    loader: int
    """Its number."""
    batch_size: int | None
    workers: int
    prefetch_factor: int
    period: int
    """Batches between two updates of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMeasurement:
    """What one rank measured, on its own clock."""

    rank: int
    host: str
    """Ranks of one host share its storage's counters and its cores."""
    cores: float
    """Available to this rank."""
    affinity: tuple[int, ...]
    """The cores that it may run on: those of ranks that may run on the same count once."""
    measurement: Measurement
    node: int = 0
    core_limits: Mapping[str, float] = field(default_factory=dict)
    """What limits `cores`, by names that ranks of one host share; empty in results of earlier versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInput:
    """What one rank takes of the data set, as far as that is seen from its first batches."""

    batch_size: int
    """0 where the data set makes its batches itself: they may differ."""
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

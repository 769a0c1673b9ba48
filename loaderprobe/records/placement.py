"""What passes between the process that asks for a placement, the launcher and the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loaderprobe.records.devices import DeviceSegment, Placement, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOrder:
    """What every rank of a placement measures."""

    workload: Workload
    placement: Placement
    threads: int
    rounds: int
    steps: int | None
    """Of a segment; None takes as many as fit into its usual time."""
    seed: int
    timeout_s: float
    """Without a step of any rank."""
    scratch: str
    """The directory for the files of this placement."""

    def result(self, rank: int) -> Path:
        """Where a rank writes its `RankRecord`."""
        return Path(self.scratch) / f"rank-{rank}.json"

    def error(self, rank: int) -> Path:
        """Where a rank writes the `RankError` that ended it."""
        return Path(self.scratch) / f"rank-{rank}-error.json"

    def marks(self, rank: int) -> Path:
        """Where a rank says how far it is."""
        return Path(self.scratch) / f"rank-{rank}-marks"

    @property
    def ends(self) -> Path:
        """Where the launcher writes its `LauncherEnd`."""
        return Path(self.scratch) / "ends.json"

    @property
    def logs(self) -> Path:
        """The directory of what the ranks print."""
        return Path(self.scratch) / "logs"

    @property
    def store(self) -> Path:
        """The file by which the ranks find each other: no port is opened for that."""
        return Path(self.scratch) / "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """What one rank measured; in its segments are its own seconds alone."""

    rank: int
    device: str
    backend: str
    gradient_bytes: int
    segments: tuple[DeviceSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankError:
    """The exception that ended a rank."""

    rank: int
    reason: str
    hint: str
    exit_code: int
    at_ns: int
    """On the clock that all processes of the machine share."""
    everywhere: bool = False
    """The model or an option is wrong, whatever the placement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """How the process of a rank that failed ended."""

    rank: int
    exit_code: int
    """Minus the signal, if one ended it."""
    log: str
    """The path of what it printed on standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherEnd:
    """What the launcher saw of the ranks that failed."""

    failed: tuple[RankEnd, ...]

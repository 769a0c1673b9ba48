"""The messages between the sweep and the child that measures one configuration."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.own_loader import OwnLoader
from loaderprobe.records.place import Place
from loaderprobe.records.sweep_plan import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The configuration that the child measures, and its budget."""

    config: RunConfig
    files: FileSet
    budget_s: float | None
    begin_ns: int
    """Time of the order in ns, on the clock that all processes of the machine share."""
    thorough: bool = False
    earlier: Measurement | None = None
    """What was measured of it before; the child adds to that."""
    study: Study | None = None
    """None for the configuration itself."""
    epochs: int = 0
    """Of the study of epochs."""
    in_turn: bool = False
    """One round, which trains in any case; then it is the turn of another configuration."""
    place: Place | None = None
    """Of the child among the ranks of its configuration; None for one that has no other."""
    own: OwnLoader | None = None
    """What makes the user's own loader, which is measured instead; `files` then holds its module."""

    @property
    def result(self) -> str:
        """The kind of the record that it asks for."""
        return self.study or ("own-loader" if self.own else "measurement")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the child's standard output: its stage, or the reason of its failure."""

    stage: str
    done: int = 0
    total: int = 0
    failure: str | None = None
    hint: str = ""
    lost: bool = False
    """True where the failure is that another rank was lost."""

"""What crosses the border between the sweep and the child that measures one configuration."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.config import FileSet, RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the child is to measure, in how many seconds from when, and whose child it is."""

    config: RunConfig
    files: FileSet
    budget_s: float | None
    begin_ns: int
    """When the order was given, on the clock that all processes of the machine share."""
    thorough: bool = False
    parent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the child's standard output: where it is, or why it gave up."""

    stage: str
    done: int = 0
    total: int = 0
    failure: str | None = None
    hint: str = ""

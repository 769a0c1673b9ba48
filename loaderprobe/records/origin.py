"""Where a result comes from."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.environment import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """When, by which command and on what machine a result was made."""

    created_utc: str
    command: str
    """As it was typed, or the call in Python."""
    environment: Environment

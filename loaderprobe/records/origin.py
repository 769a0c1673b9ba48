"""Where a result comes from, and the version of all files and results."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.environment import Environment

# History of stored files, and of results as JSON, which are interfaces:
# 1  2026-11  first version
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """When, by which command and on what machine a result was made."""

    created_utc: str
    command: str
    """As it was typed, or the call in Python."""
    environment: Environment

"""A file of a stored run that cannot be used, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """What is in its place: bytes that do not decode, numbers that cannot be, a directory, no permission to read."""

    file: str
    """Relative to the run: `measurements/0123456789abcdef.json`."""
    reason: str
    """What is wrong with it, without its name."""

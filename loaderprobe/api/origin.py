"""Where a result that is made now comes from, and the directory it is kept in."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from loaderprobe.records.environment import Origin
from loaderprobe.system.environment import describe_environment


def origin_now(command: str, *paths: Path) -> Origin:
    """This machine and this moment, with the storage under `paths`."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Origin(created_utc=created, command=command, environment=describe_environment(paths))


def usual_out(kind: str = "") -> Path:
    """A new directory for a run, named by the time, and by its kind where it is no sweep."""
    name = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("loaderprobe-runs") / (f"{name}-{kind}" if kind else name)

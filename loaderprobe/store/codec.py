"""Records as JSON files: typed, versioned, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from loaderprobe.errors import BadValue, MissingPart, NoSpace

T = TypeVar("T")

# History of the stored files:
# 1  2026-11  first version
# 2  2026-11  a configuration holds a loader and a compute; modes have names
SCHEMA_VERSION = 2


def encode(kind: str, value: object) -> bytes:
    """`value` in an envelope that names its kind and schema version, as JSON."""
    envelope = {"schema": f"loaderprobe/{kind}", "schema_version": SCHEMA_VERSION, kind: value}
    return msgspec.json.encode(envelope)


def decode(kind: str, data: bytes, type_: type[T], source: str) -> T:
    """The value in an envelope, with all types checked. Raises BadValue naming `source`."""
    try:
        envelope: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise _damaged(source, error) from error
    found = (envelope.get("schema"), envelope.get("schema_version"))
    if found != (f"loaderprobe/{kind}", SCHEMA_VERSION):
        raise BadValue(
            f"{source} is {found[0]} version {found[1]}, not loaderprobe/{kind} version {SCHEMA_VERSION}",
            hint="render it with the loaderprobe that wrote it",
        )
    try:
        return msgspec.convert(envelope[kind], type_)
    except (msgspec.DecodeError, KeyError, BadValue) as error:
        # BadValue: the types are right, but the record refuses such values.
        raise _damaged(source, error) from error


def _damaged(source: str, error: Exception) -> BadValue:
    return BadValue(f"{source} is damaged: {error}", hint="delete it and measure again with --resume")


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds all of it or what it held before, even across a crash.

    Raises NoSpace on a full disk and MissingPart without permission.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        # Ctrl-C as much as a full disk; and there is nothing to remove where nothing could be made.
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise write_error(error, path) from error
        raise


def write_error(error: OSError, path: Path) -> NoSpace | MissingPart:
    """The error to raise when writing `path` failed with `error`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"no space left to write {path}", hint="free some, or choose another place with --out")
    return MissingPart(
        f"{path} cannot be written: {error.strerror}", hint="choose a place you may write to, with --out"
    )

"""Records as JSON files: typed, versioned, written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from loaderprobe.errors import BadValue, DamagedRun, MissingPart, NoSpace, Refused, masked_text
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.records.files import ONE_AT_A_TIME, from_json, to_json

T = TypeVar("T")

# 64 bits hold every count and every clock in ns.
MOST_NUMBER = 2**63


def encode(kind: str, value: object) -> bytes:
    """`value` in an envelope that names its kind and schema version, as JSON; URLs in it are masked."""
    envelope = {"schema": f"loaderprobe/{kind}", "schema_version": SCHEMA_VERSION, kind: value}
    data = to_json(envelope)
    return masked_text(data.decode()).encode() if b"://" in data else data


def decode(kind: str, data: bytes, type_: type[T], source: str) -> T:
    """The value in an envelope, with all types checked. Raises DamagedRun naming `source`."""
    try:
        envelope: dict[str, Any] = from_json(data, dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedRun(source, f"is damaged: {error}") from error
    written: tuple[Any, Any] = (envelope.get("schema"), envelope.get("schema_version"))
    if written != (f"loaderprobe/{kind}", SCHEMA_VERSION):
        shown = " version ".join(str(part)[:60] for part in written)
        reason = f"is {shown}, not loaderprobe/{kind} version {SCHEMA_VERSION}"
        raise DamagedRun(source, reason, hint="render it with the loaderprobe that wrote it")
    try:
        check_numbers(envelope)
        with ONE_AT_A_TIME:
            return msgspec.convert(envelope[kind], type_)
    except (msgspec.DecodeError, BadValue) as error:
        # BadValue: the types are right, but the record refuses such values.
        raise DamagedRun(source, f"is damaged: {error}") from error
    except KeyError as error:
        raise DamagedRun(source, f"is damaged: it has no {kind}") from error


def read(path: Path) -> bytes | None:
    """The bytes of a stored file; None where there is none. Raises DamagedRun when it cannot be read."""
    try:
        # Not opened before it is known to be a file: a pipe in its place would block.
        if not stat.S_ISREG(path.stat().st_mode):
            what = "a directory" if path.is_dir() else "no regular file"
            raise DamagedRun(str(path), f"cannot be read: it is {what}", hint="remove it and measure with --resume")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        hint = "check its permissions, and the disk it is on"
        raise DamagedRun(str(path), f"cannot be read: {error.strerror}", hint=hint) from error


def stored(kind: str, type_: type[T], path: Path) -> T | None:
    """The value in the envelope of a stored file; None where there is none. Raises DamagedRun."""
    data = read(path)
    return None if data is None else decode(kind, data, type_, str(path))


def check_numbers(tree: Any) -> None:
    """Raises BadValue for a number that no counter or clock gives: arithmetic with it would overflow."""
    todo = [tree]
    while todo:
        branch = todo.pop()
        children = [*branch.values()] if isinstance(branch, dict) else branch
        kinds = set(map(type, children))
        numbers = children if kinds <= {int, float} else [value for value in children if type(value) in (int, float)]
        if numbers and not -MOST_NUMBER <= min(numbers) <= max(numbers) <= MOST_NUMBER:
            raise BadValue(f"a number in it is beyond {MOST_NUMBER:g}")
        if kinds & {dict, list}:
            todo += [value for value in children if type(value) in (dict, list)]


def write_atomically(path: Path, data: bytes, option: str = "--out") -> None:
    """Write `data` so that `path`, which `option` chose, holds all of it or what it held before, even across a crash.

    Raises NoSpace on a full disk and MissingPart without permission.
    """
    with writing(path, option), written_whole(path) as part, part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


PART = ".part"


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Another name to write to first, so that an interrupted file never counts as complete."""
    part = path.with_name(f".{path.name}{PART}")
    part.unlink(missing_ok=True)  # of a process that was killed; a database would go on in it
    try:
        yield part
        part.replace(path)
    except BaseException:
        # Ctrl-C as much as a full disk; and there is nothing to remove where nothing could be made.
        with suppress(OSError):
            part.unlink()
        raise


def check_folder(path: Path, option: str = "--out") -> None:
    """Raises BadValue and MissingPart, before anything takes long, where `path` can be no directory to write in."""
    with writing(path, option):
        nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        if not nearest.is_dir():
            raise BadValue(f"{nearest} is a file", hint=f"choose another path for {option}")
        if not os.access(nearest, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def file_to_write(path: Path, option: str) -> Path | None:
    """Where to write the file that `option` names: a link stays, and leads there.

    None for a device, a pipe, or a file that is open here, as `/dev/stdout` may be. Raises BadValue for a directory,
    Refused for a file of what was measured, MissingPart where its own is not there or cannot be written.
    """
    with writing(path, option):
        if path.is_dir():
            raise BadValue(f"{path} is a directory", hint=f"choose another path for {option}")
        if path.exists():
            real = path.resolve()
            kept = real.name in ("run.json", "result.json") and b'"loaderprobe/summary"' not in real.read_bytes()[:99]
            if kept or (real.suffix == ".json" and any((folder / "run.json").exists() for folder in real.parents[1:3])):
                raise Refused(f"{path} holds what was measured", hint=f"choose another path for {option}")
            with os.scandir("/dev/fd") as opened:
                if not path.is_file() or any(os.path.samestat(path.stat(), entry.stat()) for entry in opened):
                    return None
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        target.parent.stat()
    check_folder(target.parent, option)
    return target


@contextmanager
def writing(path: Path, option: str = "--out") -> Iterator[None]:
    """Raises `write_error` for an OSError of its block."""
    try:
        yield
    except OSError as error:
        raise write_error(error, path, option) from error


def write_in_folder(path: Path, data: bytes) -> None:
    """Write a file in a folder of a run that may not be there yet. Raises NoSpace, MissingPart."""
    with writing(path):
        path.parent.mkdir(exist_ok=True)
    write_atomically(path, data)


def write_error(error: OSError, path: Path, option: str = "--out") -> NoSpace | MissingPart:
    """The error to raise when writing `path`, which `option` chose, failed with `error`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"no space left to write {path}", hint=f"free some, or choose another path for {option}")
    why, hint = error.strerror, f"choose another path for {option}"
    if error.errno == errno.ENOENT:
        why, hint = "its directory is not there", f"check whether it was moved or removed, or {hint}"
    return MissingPart(f"{path} cannot be written: {why}", hint=hint)

"""Which files of a set are whole, while it is being made: a line is written only after they are on the medium."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loaderprobe.system.sync import sync_filesystem

JOURNAL = "journal.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file that was written."""

    number: int
    images: int
    size_bytes: int
    xxh3: str


class Journal:
    """Append-only: each line holds entries and their checksum, so that a torn line is told from a whole one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / JOURNAL

    def entries(self) -> list[Entry]:
        """All that can be believed; of a line that a crash tore, and of what comes after it, nothing."""
        found: list[Entry] = []
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        for line in lines:
            checksum, _, body = line.partition(b" ")
            if not line.endswith(b"\n") or checksum != _checksum(body):
                return found
            found += msgspec.json.decode(body, type=list[Entry])
        return found

    def begin(self, entries: Iterable[Entry]) -> None:
        """Start anew with these, which were believed before."""
        self._path.unlink(missing_ok=True)
        self._append(list(entries))

    def add(self, entries: Iterable[Entry]) -> None:
        """Make the files of these durable, then say so."""
        sync_filesystem(self._directory)
        self._append(list(entries))

    def end(self) -> None:
        """The manifest has taken over."""
        self._path.unlink(missing_ok=True)

    def _append(self, entries: list[Entry]) -> None:
        if not entries:
            return
        body = msgspec.json.encode(entries) + b"\n"
        with self._path.open("ab") as file:
            file.write(_checksum(body) + b" " + body)
            file.flush()
            os.fsync(file.fileno())


def _checksum(body: bytes) -> bytes:
    return f"{zlib.crc32(body):08x}".encode()

"""The complete files of a set that is being generated: a line is written only after they are on the disk."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loaderprobe.store.codec import write_atomically
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
    """Append-only: each line holds entries and their checksum, so that a torn line is recognised."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / JOURNAL

    def entries(self) -> list[Entry]:
        """All entries up to the first line that a crash tore."""
        found: list[Entry] = []
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        for line in lines:
            checksum, _, body = line.partition(b" ")
            if not line.endswith(b"\n") or checksum != _checksum(body):
                return found
            found += msgspec.json.decode(body, type=list[Entry])
        return found

    def begin(self, entries: Sequence[Entry]) -> None:
        """Start a new journal with these entries of the old one."""
        write_atomically(self._path, _line(entries) if entries else b"")

    def add(self, entries: Sequence[Entry]) -> None:
        """Make the files of these entries durable, then write them. Raises OSError, and then writes none of them."""
        sync_filesystem(self._directory)
        if not entries:
            return
        with self._path.open("ab") as file:
            file.write(_line(entries))
            file.flush()
            os.fsync(file.fileno())

    def end(self, beyond: Sequence[Entry]) -> None:
        """Keep only these entries, which a larger set will need; the manifest holds the others."""
        if beyond:
            self.begin(beyond)
        else:
            self._path.unlink(missing_ok=True)


def _line(entries: Sequence[Entry]) -> bytes:
    body = msgspec.json.encode(entries) + b"\n"
    return _checksum(body) + b" " + body


def _checksum(body: bytes) -> bytes:
    return f"{zlib.crc32(body):08x}".encode()

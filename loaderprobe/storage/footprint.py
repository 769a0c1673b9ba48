"""The storage that really holds the files, which may differ from the storage of their folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.note import Note
from loaderprobe.storage.files import Piece
from loaderprobe.system.device import locate

LOOKED_AT = 32


def locate_pieces(path: Path, pieces: Sequence[Piece]) -> StorageLocation:
    """The storage under a sample of the files: links and mounted folders may lead away from `path`.

    If the files are on several file systems, no single counter covers them all. Raises OSError when a path cannot
    be opened.
    """
    step = max(1, len(pieces) // LOOKED_AT)
    found: dict[str, StorageLocation] = {}
    for piece in pieces[::step]:
        # A file that was just removed, or may not be opened, is counted when it is read.
        with contextlib.suppress(OSError):
            place = locate(piece.path)
            found[place.mount] = place
    own = locate(path)
    if found.keys() <= {own.mount}:
        return own
    if len(found) == 1:
        (place,) = found.values()
        note = Note(code="files_elsewhere", facts={"path": str(path), "mount": place.mount})
        return replace(place, path=str(path), notes=(*place.notes, note))
    note = Note(code="several_filesystems", facts={"mounts": ", ".join(sorted(found))})
    return replace(own, kind="unknown", devices=(), layers=(), notes=(note,))


def path_text(path: Path | str) -> str:
    """A path as text for JSON: bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def as_text(location: StorageLocation) -> StorageLocation:
    """The same with all names as text."""
    return replace(
        location,
        path=path_text(location.path),
        mount=path_text(location.mount),
        source=path_text(location.source),
        notes=tuple(_note_as_text(note) for note in location.notes),
    )


def _note_as_text(note: Note) -> Note:
    facts = {name: path_text(value) if isinstance(value, str) else value for name, value in note.facts.items()}
    return replace(note, facts=facts)

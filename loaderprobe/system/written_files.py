"""What a program writes, removes and renames: an audit hook that hears of it before it happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKPOINTS = frozenset(
    (
        ".bin", ".ckpt", ".distcp", ".h5", ".hdf5", ".msgpack", ".npz", ".onnx", ".params", ".pkl", ".pt", ".pth",
        ".safetensors", ".tar", ".weights",
    )
)  # fmt: skip
"""Endings of files that hold a trained model."""
MODELS = frozenset((".ckpt", ".distcp", ".onnx", ".params", ".pt", ".pth", ".safetensors", ".weights"))
"""Of them, those that hold nothing else: data in files such as `.bin` and `.h5` is often mapped with `r+`."""
WRITING = os.O_WRONLY | os.O_RDWR
EVENTS = ("open", "os.link", "os.remove", "os.rename", "os.symlink", "shutil.rmtree")

_watching: list[WrittenFiles | None] = []
"""The one that hears, if any: an audit hook cannot be removed, so there is one for all from the first on."""


class WrittenFiles:
    """From `begin` to `end`, lists new files, and calls `endangered(path)` before a trained model would be lost.

    What `endangered` raises stops the program's call. Files that appeared since `listen` are the program's to remove.
    `ours()` is true while it is not the program that runs.
    """

    def __init__(self, endangered: Callable[[str], None], ours: Callable[[], bool] = lambda: False) -> None:
        self.new: dict[str, None] = {}
        self._own_before: dict[str, None] = {}
        """Files that the program made between `listen` and `begin`."""
        self._endangered, self._ours = endangered, ours
        self._inside = self._guards = False

    def listen(self) -> None:
        if not _watching:
            sys.addaudithook(_on_event)
        _watching[:] = [self]

    def begin(self) -> None:
        self.listen()
        self._guards = True

    def end(self) -> None:
        if self in _watching:
            _watching[:] = [None]

    def saving(self, target: Any) -> None:
        """A model is going to be saved there by code that raises no audit event."""
        path = _path(target)
        if self in _watching and path:
            self._written(path, truncates=True)

    def on_event(self, event: str, given: tuple[Any, ...]) -> None:
        if self._inside or self._ours():
            return
        self._inside = True
        try:
            self._judge(event, given)
        finally:
            self._inside = False

    def _judge(self, event: str, given: tuple[Any, ...]) -> None:
        path = _path(given[0])
        if event == "os.rename":
            self._renamed(path, _path(given[1]))
        elif event == "os.link":
            self._linked(path, _path(given[1]))
        elif event == "os.symlink":
            target = _path(given[1])
            self._linked(_path(Path(target).parent / os.fsdecode(given[0])), target)
        elif not path:
            return
        elif event == "open":
            if isinstance(given[2], int) and given[2] & WRITING:
                self._written(path, truncates=bool(given[2] & os.O_TRUNC))
        elif self._lost(path):
            self._endangered(path)

    def _renamed(self, source: str, target: str) -> None:
        if self._lost(source):
            self._endangered(source)
        if source and not self._guards and not self._is_own(source):
            self._own_before.pop(target, None)  # what was there before has another name now
        elif source and target:
            self._written(target, truncates=True)

    def _linked(self, source: str, target: str) -> None:
        """A link to what was there before is no new file: what is written into it takes the place of that."""
        if self._is_own(source):
            self._written(target, truncates=False)

    def _written(self, path: str, *, truncates: bool) -> None:
        if not os.path.lexists(path) or (truncates and path in self._own_before):
            (self.new if self._guards else self._own_before)[path] = None
        elif self._lost(path) if truncates else self._guards and Path(path).suffix in MODELS and not self._is_own(path):
            self._endangered(path)

    def _is_own(self, path: str) -> bool:
        return path in self.new or path in self._own_before

    def _lost(self, path: str) -> bool:
        """True when a trained model from before would be lost with this file or directory."""
        if not self._guards or not path or self._is_own(path) or not os.path.lexists(path):
            return False
        file = Path(path)
        if file.is_dir():
            return any(not self._is_own(str(entry)) for entry in file.rglob("*") if entry.suffix in CHECKPOINTS)
        beside = file.parent.iterdir() if file.parent.is_dir() else ()
        return any(entry.suffix in CHECKPOINTS and not self._is_own(str(entry)) for entry in (file, *beside))


def _on_event(event: str, given: tuple[Any, ...]) -> None:
    if _watching and (files := _watching[0]) and event in EVENTS:
        files.on_event(event, given)


def _path(value: Any) -> str:
    """An absolute path; empty for what is none, such as a number of a descriptor."""
    if not isinstance(value, str | bytes | os.PathLike):
        return ""
    return str(Path(os.fsdecode(value)).absolute())

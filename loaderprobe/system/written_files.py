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
WRITING = os.O_WRONLY | os.O_RDWR
MOST_LISTED = 200
EVENTS = ("open", "os.remove", "os.rename", "shutil.rmtree")


class WrittenFiles:
    """While `on`, lists new files, and calls `endangered(path)` before a trained model that was there would be lost.

    What `endangered` raises stops the program's call. Files that appeared meanwhile are the program's to remove.
    """

    def __init__(self, endangered: Callable[[str], None], ours: Callable[[], bool] = lambda: False) -> None:
        """`ours()` is true while it is not the program that runs."""
        self.on = False
        self._ours = ours
        self.new: dict[str, None] = {}
        self._endangered = endangered
        self._inside = False
        sys.addaudithook(self._heard)

    def saving(self, target: Any) -> None:
        """A model is going to be saved there by code that raises no audit event."""
        path = _path(target)
        if self.on and path:
            self._written(path, truncates=True)

    def _heard(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.on or self._inside or event not in EVENTS or self._ours():
            return
        self._inside = True
        try:
            self._judge(event, given)
        finally:
            self._inside = False

    def _judge(self, event: str, given: tuple[Any, ...]) -> None:
        path = _path(given[1] if event == "os.rename" else given[0])
        if not path:
            return
        if event == "open":
            if isinstance(given[2], int) and given[2] & WRITING:
                self._written(path, truncates=bool(given[2] & os.O_TRUNC))
        elif event == "os.rename":
            self._written(path, truncates=True)
        elif path not in self.new and os.path.lexists(path) and _precious(path):
            self._endangered(path)

    def _written(self, path: str, *, truncates: bool) -> None:
        if not os.path.lexists(path):
            if len(self.new) < MOST_LISTED:
                self.new[path] = None
        elif truncates and path not in self.new and _precious(path):
            self._endangered(path)


def _path(value: Any) -> str:
    """An absolute path; empty for what is none, such as a number of a descriptor."""
    if not isinstance(value, str | bytes | os.PathLike):
        return ""
    return str(Path(os.fsdecode(value)).absolute())


def _precious(path: str) -> bool:
    """True for a trained model, for a directory with one in it, and for a file beside one."""
    found = Path(path)
    if found.suffix in CHECKPOINTS:
        return True
    if found.is_dir():
        return any(each.suffix in CHECKPOINTS for each in found.rglob("*"))
    return found.parent.is_dir() and any(each.suffix in CHECKPOINTS for each in found.parent.iterdir())

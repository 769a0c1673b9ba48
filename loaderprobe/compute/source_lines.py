"""Which lines of source run operators, and for how long: forward, and in backward functions written in Python."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Line = tuple[str, int]
"""(file, number)."""
_OURS = f"{Path(__file__).parents[1]}/"
_TORCH = f"{Path(torch.__file__).parent}/"


@dataclass(slots=True)
class Lines:
    """Seconds by line, for each (layer, call) of the forward pass and each backward function by its name."""

    forward: dict[tuple[str, int], dict[Line, float]] = field(default_factory=dict)
    backward: dict[str, dict[Line, float]] = field(default_factory=dict)
    called: dict[tuple[str, int], Line] = field(default_factory=dict)
    """Where a layer was called."""


class _Timing(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Times each operator and adds it to the line of the user's code that runs it."""

    def __init__(self, lines: Lines, layer: Callable[[], tuple[str, int] | None], wait: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._lines, self._layer, self._wait = lines, layer, wait

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        line = user_line(sys._getframe(1))
        node = torch._C._current_autograd_node()
        layer = self._layer()
        begin_s = time.perf_counter()
        made = func(*args, **(kwargs or {}))
        self._wait()
        seconds = time.perf_counter() - begin_s
        if line is not None:
            if node is not None:
                _add(self._lines.backward.setdefault(node.name(), {}), line, seconds)
            elif layer is not None:
                _add(self._lines.forward.setdefault(layer, {}), line, seconds)
        return made


@contextmanager
def timing(lines: Lines, layer: Callable[[], tuple[str, int] | None], wait: Callable[[], None]) -> Iterator[None]:
    """Operators that run in this time are added to `lines`; `layer` is the innermost layer that runs now."""
    with _Timing(lines, layer, wait):
        yield


def user_line(frame: FrameType | None) -> Line | None:
    """The innermost line of the model; None where torch alone runs, as in its own backward functions."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, "<")):
            return file, frame.f_lineno
        frame = frame.f_back
    return None


def _add(found: dict[Line, float], line: Line, seconds: float) -> None:
    found[line] = found.get(line, 0.0) + seconds

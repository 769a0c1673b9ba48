"""Each operator timed by itself, as it runs: for which lines of source, and for which backward functions."""

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


Took = Callable[[FrameType, Any, float], object]
"""Takes (the frame that ran an operator, the backward function that runs now or None, seconds) of each operator."""


@dataclass(slots=True)
class Lines:
    """Seconds by line, for each (layer, call) of the forward pass and each backward function by its name."""

    forward: dict[tuple[str, int], dict[Line, float]] = field(default_factory=dict)
    backward: dict[str, dict[Line, float]] = field(default_factory=dict)
    called: dict[tuple[str, int], Line] = field(default_factory=dict)
    """Where a layer was called."""

    def add(self, frame: FrameType, node: Any, layer: tuple[str, int] | None, seconds: float) -> None:
        """One operator of a layer or of a backward function; those of no line of the model are left out."""
        line = user_line(frame)
        if line is None:
            return
        if node is not None:
            found = self.backward.setdefault(node.name(), {})
        elif layer is not None:
            found = self.forward.setdefault(layer, {})
        else:
            return
        found[line] = found.get(line, 0.0) + seconds


class _Timing(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    def __init__(self, took: Took, wait: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._took, self._wait = took, wait

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = sys._getframe(1)
        node = torch._C._current_autograd_node()
        begin_s = time.perf_counter()
        made = func(*args, **(kwargs or {}))
        self._wait()
        self._took(frame, node, time.perf_counter() - begin_s)
        return made


@contextmanager
def timing(took: Took, wait: Callable[[], None]) -> Iterator[None]:
    """`took` hears of each operator that runs in this time, after `wait` has waited for it to end on the device."""
    with _Timing(took, wait):
        yield


def user_line(frame: FrameType | None) -> Line | None:
    """The innermost line of the model; None where torch alone runs, as in its own backward functions."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, "<")):
            return file, frame.f_lineno
        frame = frame.f_back
    return None

"""Where a thread of a script is, by looks at its stack: which function that is called beside the training step."""

from __future__ import annotations

import random
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

Stack = tuple[tuple[CodeType, str], ...]
"""(code, name of its module) of each frame, the outermost first."""

OF_TRAINING = (
    "torch.amp", "torch.autograd", "torch.cuda.amp", "torch.distributed", "torch.nn", "torch.optim",
    "torch._dynamo", "torch._functorch", "torch._inductor",
)  # fmt: skip
"""Modules in whose functions a model runs, backwards too, and is updated."""
NO_SCRIPT = ("torch.", "loaderprobe.")


class Place(NamedTuple):
    """A function."""

    name: str
    file: str
    line: int
    library: str
    """The package that it is of; empty for the script's own."""

    def __str__(self) -> str:
        return f"{self.name} of {self.library}" if self.library else f"{self.name} ({self.file}:{self.line})"


def stack_of(frame: FrameType | None) -> Stack:
    """The frame and all that called it."""
    found = []
    while frame is not None:
        found.append((frame.f_code, str(frame.f_globals.get("__name__", ""))))
        frame = frame.f_back
    return tuple(reversed(found))


def of_the_script(stack: Stack) -> Stack:
    """Down to where it calls torch."""
    end = next((n for n, (_, module) in enumerate(stack) if f"{module}.".startswith(NO_SCRIPT)), len(stack))
    return stack[:end]


def shared(first: Stack, second: Stack) -> Stack:
    """The frames from the outermost on that are in both."""
    count = next((n for n, (one, other) in enumerate(zip(first, second, strict=False)) if one != other), None)
    return first[: min(len(first), len(second)) if count is None else count]


def beside(loop: Stack, seen: Stack) -> Place | None:
    """The function that a loop calls, of a look at its thread.

    None for the loop's own code, and for all that leads to the model, to its backward pass or to the optimizer.
    """
    inner = seen[len(shared(loop, seen)) :]
    return None if any(_is_training(code, module) for code, module in inner) else called(loop, seen)


def called(loop: Stack, seen: Stack) -> Place | None:
    """The same, whatever it leads to."""
    inner = seen[len(shared(loop, seen)) :]
    if not inner:
        return None
    code, module = inner[0]
    name = getattr(code, "co_qualname", code.co_name)
    return Place(name, Path(code.co_filename).name, code.co_firstlineno, _library(code.co_filename, module))


def _is_training(code: CodeType, module: str) -> bool:
    of_module = any(module == each or module.startswith(f"{each}.") for each in OF_TRAINING)
    return of_module or (module == "torch._tensor" and code.co_name == "backward")


def _library(file: str, module: str) -> str:
    """The module of code that is installed; empty for that of the script."""
    installed = {sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")}
    inside = file.startswith("<frozen") or any(file.startswith(f"{each}/") for each in installed)
    return module if inside else ""


class StackLooks:
    """Calls `heard(stack)` of one thread about every `every_s` seconds, from entering to `close`.

    Looks are at random distances, so that no loop keeps step with them. One costs some 20 us.
    """

    def __init__(self, thread: int, every_s: float, heard: Callable[[Stack], None]) -> None:
        self._thread, self._every_s, self._heard = thread, every_s, heard
        self._closed = threading.Event()
        self._random = random.Random(0)  # of its own: the script's is left as it is
        threading.Thread(target=self._look, name="loaderprobe looks", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _look(self) -> None:
        while not self._closed.wait(self._every_s * self._random.uniform(0.5, 1.5)):
            frame = sys._current_frames().get(self._thread)
            if frame is None:
                return
            self._heard(stack_of(frame))

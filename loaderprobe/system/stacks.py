"""Where a thread of a script is: by timing the functions that its loop calls, and by looks at its stack."""

from __future__ import annotations

import atexit
import random
import site
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

from loaderprobe.records.waits import CodePlace

Stack = tuple[tuple[CodeType, str], ...]
"""(code, name of its module) of each frame, the outermost first."""

OF_TRAINING = (
    "torch.amp", "torch.autograd", "torch.cuda.amp", "torch.distributed", "torch.nn", "torch.optim",
    "torch._dynamo", "torch._functorch", "torch._inductor",
)  # fmt: skip
"""Modules in whose functions a model runs, backwards too, and is updated."""
NO_SCRIPT = ("torch.", "loaderprobe.")
INSTALLED = tuple(
    f"{folder}/"
    for folder in {
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
        # A user's own, and those of the system that a virtual environment has as well.
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
)


def is_installed(file: str) -> bool:
    """True for code of Python itself and of installed packages."""
    return file.startswith(("<frozen", *INSTALLED))


def stack_of(frame: FrameType | None) -> Stack:
    """The frame and all that called it."""
    frames = []
    while frame is not None:
        frames.append((frame.f_code, str(frame.f_globals.get("__name__", ""))))
        frame = frame.f_back
    return tuple(reversed(frames))


def of_the_script(stack: Stack) -> Stack:
    """Down to where it calls torch."""
    end = next((n for n, (_, module) in enumerate(stack) if f"{module}.".startswith(NO_SCRIPT)), len(stack))
    return stack[:end]


def shared(first: Stack, second: Stack) -> Stack:
    """The frames from the outermost on that are in both."""
    count = next((n for n, (left, right) in enumerate(zip(first, second, strict=False)) if left != right), None)
    return first[: min(len(first), len(second)) if count is None else count]


def called(loop: Stack, stack: Stack) -> CodePlace | None:
    """The function that a loop calls, of a look at its thread; None where it is in the loop's own code."""
    inner = stack[len(shared(loop, stack)) :]
    return place_of(*inner[0]) if inner else None


def place_of(code: CodeType, module: str) -> CodePlace:
    """Of a function, by its code."""
    name, file = getattr(code, "co_qualname", code.co_name), code.co_filename
    library = module if is_installed(file) else ""
    return CodePlace(name, Path(file).name, code.co_firstlineno, library)


def _is_training(code: CodeType, module: str) -> bool:
    of_module = any(module == package or module.startswith(f"{package}.") for package in OF_TRAINING)
    return of_module or (module == "torch._tensor" and code.co_name == "backward")


class CallTimes:
    """Wall time in the functions that a loop calls, without those which lead to the model or the optimizer.

    By Python's own profile hook, in the thread that begins it: a thread that looks would need the lock of the
    interpreter, and so only see where that is released. The hook slows what it times, by some 0.3 us a call.
    """

    def __init__(self, loop: Stack, clock: Callable[[], int]) -> None:
        self._clock = clock
        # By identity: code hashes all that is in it, each time.
        self._loop = {id(code): code for code, _ in loop}
        self._called: dict[int, tuple[CodeType, str]] = {}
        self._ns: Counter[int] = Counter()
        """By the identity of the code, since the last time that it was taken."""
        self._inside: FrameType | None = None
        self._begun_ns = 0
        self._trains = False
        self._ended = False

    def begin(self) -> bool:
        """Time calls from now on; False where the script has a profile hook of its own."""
        if sys.getprofile() is not None:
            return False
        sys.setprofile(self._on_event)
        return True

    def end(self) -> None:
        """Time no more. Called in another thread, the hook goes when its own thread next calls it."""
        self._ended = True
        if sys.getprofile() == self._on_event:
            sys.setprofile(None)

    def taken(self) -> Counter[CodePlace]:
        """What it came to since the last time."""
        by_place = Counter[CodePlace]()
        for code_id, ns in self._ns.items():
            by_place[place_of(*self._called[code_id])] += ns
        self._ns.clear()
        return by_place

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if self._ended:
            sys.setprofile(None)
        elif event == "call":
            if self._inside is None:
                caller = frame.f_back
                if caller is None or id(caller.f_code) not in self._loop or id(frame.f_code) in self._loop:
                    return
                self._inside, self._begun_ns, self._trains = frame, self._clock(), False
            if not self._trains:
                self._trains = _is_training(frame.f_code, str(frame.f_globals.get("__name__", "")))
        elif event == "return" and frame is self._inside:
            took_ns = self._clock() - self._begun_ns
            if not self._trains:
                code = frame.f_code
                self._called[id(code)] = code, str(frame.f_globals.get("__name__", ""))
                self._ns[id(code)] += took_ns
            self._inside = None


LAST_LOOK_S = 1.0
"""A look that takes longer is not waited for."""


class StackLooks:
    """Calls `on_stack(stack)` of one thread about every `every_s` seconds, from entering to `close`.

    Looks are at random distances, so that no loop keeps step with them. One costs some 20 us.
    """

    def __init__(self, thread: int, every_s: float, on_stack: Callable[[Stack], None]) -> None:
        self._thread, self._every_s, self._on_stack = thread, every_s, on_stack
        self.cpu_ns = 0
        """CPU time of all looks so far."""
        self._closed = threading.Event()
        self._random = random.Random(0)  # of its own: the script's is left as it is
        self._looking = threading.Thread(target=self._look, name="loaderprobe looks", daemon=True)
        self._looking.start()
        # A thread that wakes while the interpreter ends takes the process down (seen in a worker started by spawn).
        atexit.register(self.close)

    def close(self) -> None:
        """Look no more; a call under way is waited for, unless it makes this one."""
        self._closed.set()
        if threading.current_thread() is not self._looking:
            self._looking.join(LAST_LOOK_S)
        atexit.unregister(self.close)

    def _look(self) -> None:
        while not self._closed.wait(self._every_s * self._random.uniform(0.5, 1.5)):
            frame = sys._current_frames().get(self._thread)
            if frame is None:
                return
            stack = stack_of(frame)
            del frame  # it keeps all that is in it, iterators and their workers
            self._on_stack(stack)
            self.cpu_ns = time.thread_time_ns()

"""The reason and the next step for a failed child, as sentences."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from loaderprobe.errors import LoaderprobeError
from loaderprobe.system.process import signal_name

_SHARED_MEMORY_HINT = (
    "give the container more /dev/shm (docker run --shm-size), or lower --batch-size, --workers or --prefetch-factor"
)
_OUT_OF_MEMORY = "check dmesg for the out-of-memory killer"
_KILLED_WORKER = re.compile(r"DataLoader worker \(pid (\d+)\) is killed by signal: ([^.]+)\.")
"""What torch raises in the middle of anything, as soon as it hears of a worker's end."""


def explain_error(error: BaseException) -> tuple[str, str]:
    """(reason, hint) for an exception that ended a measurement.

    An exception in a worker arrives with the worker's traceback as its text: its last line says what happened.
    """
    text = str(error)
    if "No space left on device" in text or "unable to allocate shared memory" in text:
        return "a loader worker ran out of shared memory", _SHARED_MEMORY_HINT
    if killed := _KILLED_WORKER.search(text):
        return _of_worker(*killed.groups())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    if text.startswith("Caught "):
        return f"the data set raised in a worker: {last}", "the worker's traceback is in the failure record"
    hint = error.hint if isinstance(error, LoaderprobeError) else ""
    reason = last if isinstance(error, LoaderprobeError) else f"{type(error).__name__}: {last}"
    return reason, hint


def _of_worker(pid: str, described: str) -> tuple[str, str]:
    if described == signal.strsignal(signal.SIGBUS):
        return f"a loader worker (pid {pid}) ran out of shared memory", _SHARED_MEMORY_HINT
    name = next((each.name for each in signal.Signals if signal.strsignal(each) == described), described)
    return f"a loader worker (pid {pid}) was killed by {name}", f"{_OUT_OF_MEMORY}; fewer workers need less memory"


def explain_death(return_code: int, log: Sequence[str]) -> tuple[str, str, str | None]:
    """(reason, hint, signal) for a child that ended without a message."""
    if return_code < 0:
        name = signal_name(-return_code)
        hint = _OUT_OF_MEMORY if name == "SIGKILL" else ""
        return f"the measuring process was killed by {name}", hint, name
    last = next((line for line in reversed(log) if line.strip()), "no output")
    return f"the measuring process ended with code {return_code}: {last}", "", None

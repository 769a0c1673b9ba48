"""What a dying child said, as a sentence and a next step."""

from __future__ import annotations

import pytest

from loaderprobe.errors import BadValue
from loaderprobe.measure.runner import explain_death, explain_error


@pytest.mark.parametrize(
    ("error", "reason", "hint"),
    [
        (RuntimeError("unable to allocate shared memory(shm) for file"), "shared memory", "--shm-size"),
        (
            ValueError("Caught ValueError in DataLoader worker process 0.\nTraceback ...\nValueError: bad label\n"),
            "the data set raised in a worker: ValueError: bad label",
            "traceback",
        ),
        (
            RuntimeError("DataLoader worker (pid 77) is killed by signal: Killed. "),
            "a loader worker (pid 77) was killed by SIGKILL",
            "out-of-memory killer",
        ),
        (
            RuntimeError("DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that ..."),
            "a loader worker (pid 77) ran out of shared memory",
            "--shm-size",
        ),
        (BadValue("x.jpg cannot be decoded", hint="remove it"), "x.jpg cannot be decoded", "remove it"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero", ""),
    ],
)
def test_an_error_becomes_a_reason_and_a_hint(error: Exception, reason: str, hint: str) -> None:
    """The reason says what happened in one sentence, the hint what to do about it."""
    found = explain_error(error)
    assert reason in found[0]
    assert hint in found[1]
    assert "\n" not in found[0]


def test_a_silent_death_is_known_from_its_signal_or_last_line() -> None:
    """A child that could not speak is explained by how it ended."""
    assert explain_death(-9, [])[::2] == ("the measuring process was killed by SIGKILL", "SIGKILL")
    assert "last words" in explain_death(1, ["first", "last words", ""])[0]

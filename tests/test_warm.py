"""A Python that is forked ends as one that is started."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

ENDS = {
    "print('a', end='')": (0, "a", ""),
    "raise SystemExit(7)": (7, "", ""),
    "raise SystemExit('no')": (1, "", "no"),
    "raise KeyError(1)": (1, "", "KeyError: 1"),
    "import os; os.kill(os.getpid(), 9)": (-9, "", ""),
    "raise KeyboardInterrupt": (-signal.SIGINT, "", "KeyboardInterrupt"),
    "import atexit; atexit.register(print, 'end', end='')": (0, "end", ""),
    "import sys, torch; print(sys.argv, input(), end='')": (0, "['-c', 'x'] in", ""),
    "import os; print(os.getcwd(), os.environ['A'], os.getpgrp(), end='')": (0, "{folder} b {group}", ""),
}


@pytest.mark.parametrize("code", ENDS)
def test_a_command_ends_as_python_ends(code: str, python: str, tmp_path: Path) -> None:
    """By the same code or signal, with the same output, in the folder, environment and group of who starts it."""
    done = subprocess.run(
        [python, "-c", code, "x"], input="in", capture_output=True, text=True, check=False, cwd=tmp_path, env={"A": "b"}
    )
    ended, out, last = ENDS[code]
    assert done.returncode == ended, done.stderr
    assert done.stdout == out.format(folder=tmp_path, group=os.getpgrp())
    assert done.stderr.strip().rpartition("\n")[2] == last


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_reach_it(number: int, python: str) -> None:
    """Also the one that its program cannot pass on."""
    code = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    with subprocess.Popen([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        pidfd = os.pidfd_open(int(process.stdout.readline()))
        process.send_signal(number)
        assert process.wait(60) == -number
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        pass
    finally:
        os.close(pidfd)

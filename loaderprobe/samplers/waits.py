"""What workers wait for, sampled by a separate process while they work."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WaitSamples
from loaderprobe.system.process import child_environment, read_process, signal_name
from loaderprobe.system.waits import GONE, let_be_read_by, read_rounds

RATE_HZ = 12.0
# It takes a tenth of a second; on a file system that is cold and far away, some more.
START_LIMIT_S = 30.0
LOG = "log"
Threads = Callable[[], Sequence[tuple[int, int]]]
"""(process id, thread id) of each worker, in order; a serial loader has its own."""


def looking_command(folder: Path, rate_hz: float) -> list[str]:
    """The command line of the sampling process, a child of this one."""
    arguments = [str(folder), str(os.getpid()), str(rate_hz)]
    return [sys.executable, "-P", "-m", "loaderprobe.system.waits", *arguments]


class WaitsSampler:
    """Samples `threads` about `rate_hz` times a second, from entering to leaving.

    Enter it when the workers exist, and in a thread that outlives it: the kernel ends the sampling process with the
    thread that started it. Workers must allow sampling where Yama asks for it (`let_be_read_by`); this process allows
    it for itself. Entering waits until the sampling process is ready, which takes 0.1 s. It never raises when sampling
    is impossible: `samples` has the reason.
    """

    def __init__(
        self,
        threads: Threads,
        scratch: Path,
        *,
        rate_hz: float = RATE_HZ,
        command: Callable[[Path, float], list[str]] = looking_command,
    ) -> None:
        self._threads = threads
        self._scratch = scratch
        self._rate_hz = rate_hz
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._reason: Remark | None = Remark(code="waits_not_started")
        self._allowed = False

    def __enter__(self) -> Self:
        if not Path("/proc/self/task").is_dir():
            self._reason = Remark(code="no_proc")
            return self
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="waits-", dir=self._scratch))
            self._begin(self._folder)
        except OSError as error:
            self._fail(Remark(code="waits_not_startable", facts={"error": str(error)}))
        return self

    def __exit__(self, *_: object) -> None:
        self._check()
        self._end()
        if self._allowed:
            let_be_read_by(0)

    def follow_threads(self) -> None:
        """List the threads again, after workers have started, ended or been replaced."""
        process = self._process
        if process is None or process.stdin is None:
            return
        words = [_word(pid, tid) for pid, tid in self._threads()]
        with suppress(BrokenPipeError):  # it has ended; samples() says how
            process.stdin.write(" ".join(words).encode() + b"\n")

    def samples(self) -> WaitSamples | Missing:
        """All samples so far, also after leaving; or the reason why there are none."""
        self._check()
        if self._reason is not None or self._folder is None:
            return Missing(name="waits", reason=self._reason or Remark(code="waits_not_started"))
        return read_rounds(self._folder)

    def _begin(self, folder: Path) -> None:
        with (folder / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                self._command(folder, self._rate_hz),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env=child_environment(),
            )
        self._reason, process = None, self._process
        assert process.stdout is not None
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        if not poll.poll(START_LIMIT_S * 1e3):
            self._fail(Remark(code="waits_not_ready", facts={"limit_s": START_LIMIT_S}))
        elif not process.stdout.read(1):
            process.wait()
            self._check()
        else:
            if any(pid == os.getpid() for pid, _ in self._threads()):
                # For this process alone: what it starts may look at it, if Yama would not let it.
                let_be_read_by(process.pid)
                self._allowed = True
            self.follow_threads()

    def _check(self) -> None:
        """Note how the process ended, if it did so by itself."""
        code = self._process.poll() if self._process is not None else None
        if code is None or self._folder is None:
            return
        lines = (self._folder / LOG).read_text(errors="replace").strip().splitlines()
        how = lines[-1] if lines else signal_name(-code) if code < 0 else f"exit code {code}"
        self._fail(Remark(code="waits_ended", facts={"how": how}))

    def _fail(self, reason: Remark) -> None:
        self._end()
        self._reason = reason

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # It keeps nothing back that would be worth a polite end.
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _word(pid: int, tid: int) -> str:
    """A thread in the input format of the sampling process."""
    process = read_process(pid)
    return f"{pid},{tid},{process.start}" if process else GONE

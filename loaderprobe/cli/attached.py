"""Attaches to a process that `loaderprobe run` started; called by its first loop over a DataLoader."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any

from loaderprobe.errors import LoaderprobeError

CLEAR_LINE = "\r\x1b[K"
SAME_S = 2.0
"""Signals that come within this time are one."""
FOLDED = TextWrapper(100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)

if TYPE_CHECKING:
    from loaderprobe.records.attached import Attached, AttachRequest


def attach_by_environment() -> None:
    """Look on from now on, measure when a loader trains, and keep what was found when the process ends."""
    from loaderprobe.api.run import VARIABLE, requested

    request = requested(os.environ[VARIABLE])
    if request.watch:
        _watch(request)
    else:
        _measure(request)


def _measure(request: AttachRequest) -> None:
    from loaderprobe.api.run import attachment_of, keep, keep_seen
    from loaderprobe.loaders.attached import attach

    undo: list[Callable[[], None]] = []

    def say(code: str, facts: Mapping[str, Any]) -> None:
        _say(code, facts)
        if code == "script.begins":
            undo.append(_quiet_ctrl_c())
            if not facts["ranks"]:
                undo.append(_sigterm_as_ctrl_c())
        while code == "script.no_verdict" and undo:
            undo.pop()()

    attachment = attachment_of(request, say, lambda diagnosis: keep(diagnosis, request), _number("WORLD_SIZE", 1))
    attach(attachment)

    def end() -> None:
        attachment.end()
        keep_seen(with_error(attachment.record()), request)

    _at_the_end(end)


def _quiet_ctrl_c() -> Callable[[], None]:
    """From now on Ctrl-C ends this process without a traceback, until what this returns is called: where the script
    was says nothing, once what it trains is thrown away. A hook that the script sets later is its own.
    """
    from loaderprobe.loaders.attached import hook

    def shown(original: Callable[..., None], kind: type[BaseException], *rest: object) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            original(kind, *rest)

    return hook(sys, "excepthook", shown)


def _sigterm_as_ctrl_c() -> Callable[[], None]:
    """From now on SIGTERM, as of a batch system whose time is up, ends this process with the rounds that there are,
    until what this returns is called.

    Not where the script handles it, or loops in another thread, and in no process that is forked from this one.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return lambda: None
    came_s: list[float] = []

    def end(number: int, frame: object) -> None:
        came_s.append(time.monotonic())
        if len(came_s) == 1:
            signal.signal(signal.SIGCHLD, lambda *_: None)  # torch's raises an error where workers got it, too
            raise KeyboardInterrupt
        # A process group and `loaderprobe run` may both send it. Another is for a script that goes on.
        if came_s[-1] - came_s[0] > SAME_S:
            as_before()
            signal.raise_signal(number)

    def as_before() -> None:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, end)
    os.register_at_fork(after_in_child=as_before)
    return as_before


def _watch(request: AttachRequest) -> None:
    """Change nothing; of ranks, the first is watched. What was seen is kept after each interval, all at the end."""
    if _number("RANK", 0):
        return
    from loaderprobe.api.run import Watch, keep, keep_seen, watcher_of
    from loaderprobe.loaders.attached import attach
    from loaderprobe.measure.attach.attachment import claimed

    @cache
    def first() -> bool:
        """Of several processes that train, the first that has something to keep is shown."""
        return claimed(Path(request.scratch))

    watcher = watcher_of(request, _say, lambda report: keep(report, request, raw=True) if first() else None)
    detach = attach(watcher)

    def end() -> None:
        detach()
        report, attached = watcher.result(), watcher.record()
        if report is not None and first():
            keep(Watch.of(report), request)
        elif report is not None:
            attached = replace(attached, why_not="another_process")
        keep_seen(with_error(attached), request)
        watcher.close()

    _at_the_end(end)


def with_error(attached: Attached) -> Attached:
    """Where the script ends with an error of its own before there is a verdict, that is the reason."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    if error is None or isinstance(error, SystemExit | KeyboardInterrupt) or attached.why_not not in BY_ITSELF:
        return attached
    said = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(":. ")
    return replace(attached, why_not="script_error", detail=said)


BY_ITSELF = ("no_loader", "no_backward", "too_few_steps", "ended_early")
"""Why there is no verdict on a script that nothing has stopped."""


def _at_the_end(call: Callable[[], None]) -> None:
    """Of this process; one that is forked from it is not the one that trains.

    A process that multiprocessing started ends without what `atexit` keeps, if it was forked.
    """
    owner, called = os.getpid(), [False]

    def end() -> None:
        if os.getpid() != owner or called[0]:
            return
        called[0] = True  # also of a call that Ctrl-C ends
        try:
            call()
        except LoaderprobeError as error:
            _print(error.message)
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
            # A process that Ctrl-C ends is to die by SIGINT: Python does so if that ended what it executed last.
            with suppress(KeyboardInterrupt):
                exec("raise KeyboardInterrupt")

    atexit.register(end)
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, end, exitpriority=100)


def _number(variable: str, usual: int) -> int:
    """What a launcher says in the environment."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else usual


def _say(code: str, facts: Mapping[str, Any]) -> None:
    from loaderprobe.render.watch import said

    _print(said(code, facts))


def _print(text: str) -> None:
    """On standard error, as whole lines, folded at 100 columns; where it is closed, training goes on.

    In a terminal the line takes the place of a progress bar that the script draws there: it is drawn again.
    """
    if sys.stderr is None:
        return
    with suppress(OSError, ValueError):
        bar = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        lines = [
            folded
            for line in f"loaderprobe: {text}".splitlines()
            for folded in ([line] if "loaderprobe run" in line else FOLDED.wrap(line))  # a command is for copying
        ]
        sys.stderr.write("\n".join([f"{CLEAR_LINE if bar else ''}{lines[0]}", *lines[1:], ""]))
        sys.stderr.flush()

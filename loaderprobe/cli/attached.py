"""Attaches to a process that `loaderprobe run` started; called by its first loop over a DataLoader."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loaderprobe.records.attachment import AttachRequest


def attach_by_environment() -> None:
    """Look on from now on, measure when a loader trains, and keep what was found when the process ends."""
    from loaderprobe.api.attachment import Attachment
    from loaderprobe.api.run import VARIABLE, keep, keep_seen, requested
    from loaderprobe.loaders.attached import attach

    request = requested(os.environ[VARIABLE])
    if request.watch:
        _watch(request)
        return
    attachment = Attachment(request, _say, lambda found: keep(found, request))
    detach = attach(attachment)
    owner = os.getpid()

    def end() -> None:
        # A process that was forked from this one is not the one that trains.
        if os.getpid() == owner:
            detach()
            attachment.end()
            keep_seen(attachment, request)

    atexit.register(end)


def _watch(request: AttachRequest) -> None:
    """Change nothing; keep what was seen, if anything trained, when the process ends."""
    from loaderprobe.api.run import keep
    from loaderprobe.api.watch import Watcher
    from loaderprobe.loaders.attached import attach

    watcher = Watcher(request.command, _say)
    detach = attach(watcher)
    owner = os.getpid()

    def end() -> None:
        if os.getpid() == owner:
            detach()
            found = watcher.result()
            if found is not None:
                keep(found, request)
            watcher.close()

    atexit.register(end)


def _say(text: str) -> None:
    """On standard error, as whole lines."""
    sys.stderr.write(f"loaderprobe: {text}\n")
    sys.stderr.flush()

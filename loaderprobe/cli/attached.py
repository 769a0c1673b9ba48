"""Attaches to a process that `loaderprobe run` started; called by its first loop over a DataLoader."""

from __future__ import annotations

import atexit
import os
import sys


def attach_by_environment() -> None:
    """Look on from now on, measure when a loader trains, and keep what was found when the process ends."""
    from loaderprobe.api.attachment import Attachment
    from loaderprobe.api.run import VARIABLE, keep, keep_seen, requested
    from loaderprobe.loaders.attached import attach

    request = requested(os.environ[VARIABLE])
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


def _say(text: str) -> None:
    """On standard error, as whole lines."""
    sys.stderr.write(f"loaderprobe: {text}\n")
    sys.stderr.flush()

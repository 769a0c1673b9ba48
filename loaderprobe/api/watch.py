"""`run --watch`: what was seen of a training that nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loaderprobe.api.policy import JUDGING
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.measure.attach.watcher import Watcher
from loaderprobe.records.diagnosis import AttachRequest, WatchReport
from loaderprobe.render.watch import watch_columns, watch_document, watch_exhibits


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Watch(Documented, WatchReport):
    """A watched training. Shows itself."""

    document = watch_document
    columns = watch_columns
    exhibits = watch_exhibits


def watcher_of(
    request: AttachRequest, say: Callable[[str], None], keep: Callable[[Watch], None] = lambda found: None
) -> Watcher:
    """What looks on; `say(text)` is called once an interval, and `keep(found)` with all so far."""
    return Watcher(request, say, lambda found: keep(watch_of(found)), origin_now, JUDGING)


def watch_of(found: WatchReport) -> Watch:
    """The same, which shows itself."""
    return Watch.of(found)

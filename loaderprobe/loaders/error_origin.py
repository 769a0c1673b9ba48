"""The origin of an error: data set, collate_fn, sampler or worker_init_fn, in this process or in a worker."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from loaderprobe.errors import LoaderprobeError

# A worker's error arrives as an exception of the same kind, with the worker's traceback as its text.
FROM_WORKER = re.compile(r"Caught (\w+) ")
# A text in the traceback, from any process, and the code that ran there; the innermost first.
PLACES = (
    ("in _collated", "the loader's collate_fn"),
    ("in _next_index", "the loader's sampler"),
    ("self.own(worker)", "the loader's worker_init_fn"),
    ("in fetch", "the data set"),
    ("in create_fetcher", "the data set"),
)
# loaderprobe's functions that call user code; compiled code has no traceback line of its own.
CALLS = (
    "_collated",
    "_begin_again",
    "_make",
    "_whole",
    "own_sampler",
    "__call__",
    "__iter__",
    "__next__",
    "__getattr__",
)
PACKAGE = f"{Path(__file__).parents[1]}/"
# The innermost line of a traceback, and Python's message for a class that lacks an attribute.
LINE = re.compile(r'^\s*File "(.+)", line \d+, in (\w+)$', re.MULTILINE)
LACKING = re.compile(r"'(Pool|Guarded|Epochs|WorkerProbe|WorkerSetup|UserLoader)' (object|instance)")
OURS_HINT = "please report this with the whole traceback; the loader was not changed"
HINT = "iterate the loader yourself to see the same error; the loader was not changed"


def origin_of(error: Exception) -> LoaderprobeError:
    """The error as one sentence that names its origin; the caller sets `error` as its cause."""
    whole = "".join(traceback.format_exception(error))
    if _ours(error, whole):
        from_worker = FROM_WORKER.match(str(error))
        line = str(error).rstrip().splitlines()[-1] if from_worker else _named(type(error).__name__, str(error))
        return LoaderprobeError(f"loaderprobe failed in its own code: {line}", hint=OURS_HINT)
    who = next((who for mark, who in PLACES if mark in whole), "the loader")
    caught = FROM_WORKER.match(str(error))
    if not caught:
        return LoaderprobeError(f"{who} raised {_named(type(error).__name__, str(error))}", hint=HINT)
    # The last line that begins with its name; more lines may follow.
    named = re.compile(rf"^(?:[\w.]+\.)?{caught[1]}(?:: (.*))?\Z", re.MULTILINE | re.DOTALL)
    said = [match[1] or "" for match in named.finditer(str(error).rstrip())]
    return LoaderprobeError(f"{who} raised {_named(caught[1], said[-1] if said else '')}, in a worker", hint=HINT)


def _ours(error: Exception, whole: str) -> bool:
    """True when loaderprobe's own code raised, or one of its classes lacks an attribute."""
    if LACKING.search(str(error)):
        return True
    # The last line is the innermost; of a worker's error that of the worker, which is the message.
    lines = LINE.findall(str(error) if FROM_WORKER.match(str(error)) else whole)
    return bool(lines) and lines[-1][0].startswith(PACKAGE) and lines[-1][1] not in CALLS


def _named(kind: str, message: str) -> str:
    return f"{kind}: {message}" if message else kind

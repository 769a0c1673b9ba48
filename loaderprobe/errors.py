"""All errors, as one tree. Every class has an exit code; every error gives the fact, the reason and the next step.

LoaderprobeError           1   a bug, or an unexpected error
├── BadValue               2   a value, file or path that the user gave
│   ├── DamagedRun             a file of a stored run cannot be used
│   └── NotComparable          two results differ in more than what was meant to differ
├── DeadWorker                 a worker of a loader was killed, or ended
├── LostRank                   another rank of the training does not answer
├── MissingPart            3   a missing plug-in, GPU, permission or tool
└── Refused                5   refused, to keep data safe
    ├── ForeignDirectory       the directory holds something else
    ├── NoSpace                not enough space on a file system or in shared memory
    └── Locked                 another process is writing there now
"""

from __future__ import annotations

import re

EXIT_DONE = 0
EXIT_SOME_FAILED = 4
EXIT_GATE_FAILED = 6
EXIT_INTERRUPTED = 130


MASK = "***"
_URL = r"((?::/|\b(?:https?|ftp|s3|gs):)/"  # as a pathlib.Path, a URL has one slash
_USER = re.compile(_URL + r""")[^\s/?#"'\\]+@""")
_QUERY = re.compile(_URL + r"""[^\s?#"'\\]*)\?[^\s#"'\\]+""")


def masked_text(text: str) -> str:
    """`text` without what may be secret in URLs: user and password, and the query, which may be a signature."""
    return _QUERY.sub(rf"\1?{MASK}", _USER.sub(rf"\1{MASK}@", text)) if ":/" in text else text


class LoaderprobeError(Exception):
    """Base of all errors raised on purpose. `hint` is the next step, as a sentence or a command. URLs are masked."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = masked_text(message), masked_text(hint)
        super().__init__(self.message)


class BadValue(LoaderprobeError):
    """A value or path given by the user cannot be used."""

    exit_code = 2


class DeadWorker(LoaderprobeError):
    """A worker of a loader was killed, or ended by itself: fewer workers may do."""


class LostRank(LoaderprobeError):
    """Another rank of the training does not answer, or has gone."""


MEASURE_AGAIN = "complete the run with --resume, which measures it again"


class DamagedRun(BadValue):
    """A file of a stored run cannot be read, or holds what cannot be. `reason` leaves out its name."""

    def __init__(self, file: str, reason: str, *, hint: str = MEASURE_AGAIN) -> None:
        super().__init__(f"{file} {reason}", hint=hint)
        self.file = file
        self.reason = masked_text(reason)


class NotComparable(BadValue):
    """Two results differ in what makes them comparable. `fields` are the names of what differs."""

    def __init__(self, message: str, *, fields: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.fields = fields


class MissingPart(LoaderprobeError):
    """Something that the command needs is not installed, not permitted or does not exist."""

    exit_code = 3


class Refused(LoaderprobeError):
    """Nothing was done, because continuing could destroy data or disturb another run."""

    exit_code = 5


class ForeignDirectory(Refused):
    """The directory is not empty and was not made by loaderprobe."""


class NoSpace(Refused):
    """A file system, or shared memory, has less space than the command needs."""


class Locked(Refused):
    """Another process is working in the same directory."""

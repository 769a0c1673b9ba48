"""The file format of the sampling process: rows of fixed size, and a second file with names.

Each sampling round is one write, so a reader finds whole rounds at any time. Rows with a negative worker are about
the sampling itself.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from loaderprobe.records.unavailable import Unavailable
from loaderprobe.records.waits import WAIT_KINDS, WaitSamples
from loaderprobe.system.wait_kinds import Wait

# time in ns, number of the subject or -1, worker, number of the kind
ROW = struct.Struct("<qqii")
# The value is CPU time in ns that this process has used; the first such row is from before the first look.
OWN_CPU = -1
# The value is the subject that says, as JSON, why system calls are hidden, or -1 when they are seen again.
LETTERS_ONLY = -2
ROWS, SUBJECTS = "rows", "subjects"
# In orders to that process: a worker that has gone.
GONE = "-"
# A million images are a million paths; so many are enough to see which files they are.
MOST_SUBJECTS = 2000
_KINDS = {kind: number for number, kind in enumerate(WAIT_KINDS)}


class RowWriter:
    """Appends to the files in a folder. Only the current round is buffered."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # Names before rows: a reader never meets a number without its name.
        self._subjects_file = os.open(folder / SUBJECTS, flags)
        self._rows_file = os.open(folder / ROWS, flags)
        self._subjects: dict[str, int] = {}
        self._letters_only: Unavailable | None = None
        self._round = bytearray()

    def add(self, time_ns: int, worker: int, wait: Wait) -> None:
        """Add one sample of one worker."""
        self._round += ROW.pack(time_ns, self._number(wait.subject), worker, _KINDS[wait.kind])

    def end_round(self, time_ns: int, own_cpu_ns: int | None, letters_only: Unavailable | None) -> None:
        """Write the added samples, and this process's CPU time so far where it is requested."""
        if letters_only != self._letters_only:
            self._letters_only = letters_only
            why = json.dumps([letters_only.code, letters_only.facts]) if letters_only else None
            self._round += ROW.pack(time_ns, self._number(why, most=MOST_SUBJECTS + 100), LETTERS_ONLY, 0)
        if own_cpu_ns is not None:
            self._round += ROW.pack(time_ns, own_cpu_ns, OWN_CPU, 0)
        if self._round:
            os.write(self._rows_file, self._round)
            self._round.clear()

    def _number(self, subject: str | None, most: int = MOST_SUBJECTS) -> int:
        if subject is None:
            return -1
        number = self._subjects.get(subject)
        if number is None:
            if len(self._subjects) >= most:
                return -1
            number = self._subjects[subject] = len(self._subjects)
            # Names of files may be no text at all.
            os.write(self._subjects_file, subject.encode("utf-8", "backslashreplace") + b"\0")
        return number


def read_rows(folder: Path) -> WaitSamples:
    """All complete rows so far; also works while they are being written."""
    data = (folder / ROWS).read_bytes()
    subjects = tuple(name.decode() for name in (folder / SUBJECTS).read_bytes().split(b"\0")[:-1])
    rows = list(ROW.iter_unpack(data[: len(data) - len(data) % ROW.size]))
    samples = [row for row in rows if row[2] >= 0]
    own = [(time_ns, cpu_ns) for time_ns, cpu_ns, worker, _ in rows if worker == OWN_CPU]
    reasons = [value for _, value, worker, _ in rows if worker == LETTERS_ONLY]
    return WaitSamples(
        time_ns=tuple(row[0] for row in samples),
        worker=tuple(row[2] for row in samples),
        kind=tuple(row[3] for row in samples),
        subject=tuple(row[1] for row in samples),
        subjects=subjects,
        letters_only=_reason(subjects[reasons[-1]]) if reasons and reasons[-1] >= 0 else None,
        cpu_ns=own[-1][1] - own[0][1] if own else 0,
        wall_ns=own[-1][0] - own[0][0] if own else 0,
    )


def _reason(text: str) -> Unavailable:
    code, facts = json.loads(text)
    return Unavailable(code=code, facts=facts)

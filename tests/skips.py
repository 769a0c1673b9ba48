"""What was skipped, summed up: each reason once, with its count and what brings these tests.

REMEDIES are tried in order; the first whose pattern is found in the reason answers.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from loaderprobe.system.device import locate

OTHER_FOLDER = "TMPDIR=/a/folder/on/ext4 scripts/test (a real disk; not overlay, tmpfs or NFS)"
AS_ROOT = "sudo -E scripts/test, in a container with --privileged"
REMEDIES: tuple[tuple[str, str], ...] = (
    (r"starts a process", "scripts/test, without --fast"),
    (r"libfuse is not installed", "apt-get install fuse3 libfuse3-3"),
    (r"mfusepy is not installed", ".venv/bin/pip install mfusepy, which scripts/setup dev does"),
    (r"/dev/fuse|fusermount|fuse: |FUSE|mount failed", "docker run --privileged --device /dev/fuse, or modprobe fuse"),
    (r"no \w+ disk can be planted", AS_ROOT),
    (r"djpeg is not installed", "apt-get install libjpeg-turbo-progs"),
    (r"C compiler", "apt-get install gcc"),
    (r"scripts/bench libraries", "scripts/bench libraries"),
    (r"could not import", ".venv/bin/pip install -e '.[dev]', which scripts/setup dev does"),
    (r"without (ip|nsenter)", "apt-get install iproute2 util-linux"),
    (r"without unshare|setpriv", "apt-get install util-linux, and " + AS_ROOT),
    (r"no GPU here", "scripts/gpu_check on a machine with an NVIDIA GPU"),
    (r"there is a GPU", "scripts/test on a machine without a GPU"),
    (r"root may read everything", "scripts/test as a user other than root"),
    (r"another user may not run this interpreter", "a checkout and .venv that every user may read, as in /opt"),
    (r"/dev/shm|shared memory|second file system", "docker run --shm-size=1g, or mount -t tmpfs tmpfs /dev/shm"),
    (r"only root|not permitted here|given to another user", AS_ROOT),
    (r"temporary directory|reads are not counted|does not count reads|file system|direct I/O|O_DIRECT", OTHER_FOLDER),
)
MOST_CHARACTERS = 160
"""Of a reason; longer ones are cut."""
WIDTH = 118


def needs_cold_reads(folder: Path) -> None:
    """Skips a test where what is written to this folder stays in memory, or where reads of it are not counted."""
    location = locate(folder)
    if not location.counts_reads or (location.layers or (location.kind,))[0] != "block":
        pytest.skip("the temporary directory is not on a block device, whose pages can be dropped")


def remedy(reason: str) -> str | None:
    """The command that brings what a skipped test lacks; None where none is known."""
    return next((command for pattern, command in REMEDIES if re.search(pattern, reason)), None)


def summary(reasons: Iterable[str]) -> list[str]:
    """Lines for the end of a test run: count and reason, then the command; the most frequent first."""
    lines = []
    for reason, count in Counter(" ".join(reason.split()) for reason in reasons).most_common():
        shown = textwrap.shorten(reason, MOST_CHARACTERS, placeholder=" ...")
        lines += textwrap.wrap(f"{count:4} {shown}", WIDTH, subsequent_indent=" " * 5)
        lines.append(f"     to run: {remedy(reason) or 'no command is known'}")
    return lines

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loaderprobe.datasets.generate.generate import JOURNAL, Entry, Journal
from tests.datasets.conftest import Make, tree

PROGRAM = """
import sys
from pathlib import Path
from loaderprobe.datasets.generate import generate as module
from loaderprobe.datasets.generate.generate import generate
from loaderprobe.datasets.generate.generate import SetRequest
module.SYNC_S = 0.0
say = lambda done, _: print(done, flush=True)
request = SetRequest(resolution=(64, 48), classes=3, base_images=4)
generate(Path(sys.argv[1]), request, count=200, processes=2, progress=say)
"""


def _entry(number: int) -> Entry:
    return Entry(number=number, images=1, size_bytes=100 + number, xxh3="00")


def test_what_was_added_is_believed_again(tmp_path: Path) -> None:
    """In order, over several lines, and by another journal of the same directory."""
    journal = Journal(tmp_path)
    journal.add([_entry(1), _entry(2)])
    journal.add([_entry(5)])
    assert Journal(tmp_path).entries() == [_entry(1), _entry(2), _entry(5)]
    journal.end([_entry(5)])
    assert Journal(tmp_path).entries() == [_entry(5)]
    journal.end([])
    assert Journal(tmp_path).entries() == []


@pytest.mark.parametrize("lost", range(1, 60, 7))
def test_a_torn_line_is_not_believed(tmp_path: Path, lost: int) -> None:
    """Whatever the crash cut off the end of the last line, that line is gone and those before it are kept."""
    journal = Journal(tmp_path)
    journal.add([_entry(1)])
    journal.add([_entry(2)])
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes()[:-lost])
    assert Journal(tmp_path).entries() == [_entry(1)]


def test_a_changed_line_is_not_believed(tmp_path: Path) -> None:
    """A line whose checksum fails ends what is believed."""
    journal = Journal(tmp_path)
    journal.add([_entry(1)])
    journal.add([_entry(2)])
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes().replace(b'"size_bytes":101', b'"size_bytes":999'))
    assert Journal(tmp_path).entries() == []


@pytest.mark.parametrize("after", [0, 70, 150])
def test_killed_at_any_moment_a_set_completes_to_the_same_tree(tmp_path: Path, make: Make, after: int) -> None:
    """kill -9 of all its processes once so many files are written, then resumed: the same bytes."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "cut")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        written = next(count for count in map(int, process.stdout) if count >= after)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert written < 200, "it was killed in the middle"
    resumed = make(tmp_path / "cut", count=200)
    assert tree(resumed) == tree(make(tmp_path / "whole", count=200, processes=2))

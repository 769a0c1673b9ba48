"""Processes with little memory keep few files in the page cache, and nothing is left of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted.files import random_files
from tests.planted.slow_disk import CannotPlant
from tests.planted.slow_reader import evict
from tests.planted.small_memory import pages_bytes, small_memory

READ_ALL = """
import sys
from pathlib import Path
for file in sorted(Path(sys.argv[1]).rglob("*.jpg")):
    file.read_bytes()
print("read", flush=True)
input()
"""


def test_a_process_keeps_as_much_as_it_has_memory_for(tmp_path: Path) -> None:
    """The device serves all files once; a limit then leaves a third of them, and the process lives."""
    try:
        with small_memory(fill=random_files, scratch=tmp_path, size_bytes=100_000_000) as place:
            files = sorted(place.folder.rglob("*.jpg"))
            before, whole = place.read_bytes(), pages_bytes(files)
            command = place.command([sys.executable, "-c", READ_ALL, str(place.folder)])
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout and process.stdout.readline() == "read\n"
                assert place.read_bytes() - before == pytest.approx(whole, rel=0.02)
                place.leave_for_files(whole / 3)
                assert place.cached_bytes() == pytest.approx(whole / 3, rel=0.1)
                place.lift()
                process.communicate("\n")
                assert process.returncode == 0
            evict(files)
            assert place.cached_bytes() < 0.02 * whole
            group = place.group
    except CannotPlant as error:
        pytest.skip(str(error))
    assert not group.exists() and not list(tmp_path.iterdir())

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.storage.files import Piece, Sample, sample_files
from loaderprobe.storage.fio import SAFE, FioEngine, fio_version
from loaderprobe.storage.reader import ReadOrder

OUTPUT = Path(__file__).parents[2] / "fixtures" / "fio-3.33.json"
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


class FakeFio:
    """Stands for the command: keeps what it was asked, answers as scripted."""

    def __init__(self, output: str, code: int = 0) -> None:
        self._output, self._code = output, code
        self.command: list[str] = []
        self.job = ""
        self.logs: list[str] = []

    def __call__(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.command = command
        self.job = Path(command[-1]).read_text()
        self.logs = [path.read_text() for path in sorted(Path(command[-1]).parent.glob("reads-*"))]
        return subprocess.CompletedProcess(command, self._code, self._output, "fio: it broke\n" if self._code else "")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeFio:
    """fio answers with the output of a real run over three files."""
    made = FakeFio(OUTPUT.read_text())
    monkeypatch.setattr("loaderprobe.storage.fio.subprocess.run", made)
    return made


def test_real_output_is_understood(fake: FakeFio, sample: Sample) -> None:
    """Bytes, read calls and every single latency come out of fio's JSON, whatever is printed before it."""
    reading = FioEngine().read(sample.pieces, ReadOrder(readers=2, seconds=2.0))
    assert (reading.ios, reading.delivered_bytes, len(reading.read_ns)) == (3, 60_003, 3)
    assert reading.slices == [(reading.seconds, 60_003)] and reading.taken == len(sample.pieces)


def test_fio_can_do_no_harm(fake: FakeFio, sample: Sample) -> None:
    """fio is asked to write nothing and to create nothing, and gets only reads to replay."""
    FioEngine().read(sample.pieces, ReadOrder(readers=3, seconds=2.0))
    assert set(SAFE) <= set(fake.command) and "--readonly" in SAFE and "--allow_file_create=0" in SAFE
    actions = {line.split()[1] for log in fake.logs for line in log.splitlines()[1:]}
    assert actions == {"add", "open", "read", "close"} and len(fake.logs) == 3


def test_the_same_reads_are_ordered(fake: FakeFio, sample: Sample) -> None:
    """Each reader gets every n-th piece, whole; directly, the odd rest of a file is left out."""
    FioEngine().read(sample.pieces, ReadOrder(readers=2, seconds=2.0))
    first = [line.split() for line in fake.logs[0].splitlines() if " read " in line][: len(sample.pieces) // 2]
    assert [(name, int(size)) for name, _, _, size in first] == [
        (str(piece.path), piece.size_bytes) for piece in sample.pieces[::2]
    ]
    FioEngine().read(sample.pieces, ReadOrder(readers=2, seconds=2.0, direct=True))
    sizes = [int(line.split()[3]) for line in fake.logs[0].splitlines() if " read " in line]
    assert all(size % 4096 == 0 for size in sizes) and "direct=1" in fake.job


def test_names_with_spaces_are_linked(fake: FakeFio, tmp_path: Path) -> None:
    """fio's list has no white space in names; such files are read under another name."""
    path = tmp_path / "my photo.jpg"
    path.write_bytes(b"x" * 5000)
    FioEngine().read([Piece(path=path, offset=0, size_bytes=5000)], ReadOrder(readers=1, seconds=2.0))
    assert all(len(line.split()) in (2, 4) for line in fake.logs[0].splitlines()[1:])


def test_odd_lists_are_still_lists(fake: FakeFio, tmp_path: Path) -> None:
    """More readers than files, names that are long or no text, and files too small to read directly."""
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff" + b"x" * 230))
    odd.write_bytes(b"x" * 5000)
    small = tmp_path / "small"
    small.write_bytes(b"x" * 100)
    pieces = [Piece(path=odd, offset=0, size_bytes=5000), Piece(path=small, offset=0, size_bytes=100)]
    FioEngine().read(pieces, ReadOrder(readers=8, seconds=2.0))
    assert len(fake.logs) == 2 and all(len(line) < 256 for log in fake.logs for line in log.splitlines())
    FioEngine().read(pieces, ReadOrder(readers=8, seconds=2.0, direct=True))
    assert len(fake.logs) == 1
    with pytest.raises(BadValue):
        FioEngine().read(pieces[1:], ReadOrder(readers=8, seconds=2.0, direct=True))


def test_a_failing_fio_is_an_error(monkeypatch: pytest.MonkeyPatch, sample: Sample) -> None:
    """fio's own last words are passed on."""
    monkeypatch.setattr("loaderprobe.storage.fio.subprocess.run", FakeFio("", code=1))
    with pytest.raises(LoaderprobeError, match="it broke"):
        FioEngine().read(sample.pieces, ReadOrder(readers=1, seconds=2.0))


def test_no_fio_is_a_missing_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fio the error says how to get it."""
    monkeypatch.setattr("loaderprobe.storage.fio.shutil.which", lambda _: None)
    with pytest.raises(MissingPart) as raised:
        fio_version()
    assert "apt-get install fio" in raised.value.hint


@needs_fio
def test_fio_reads_what_we_read(folder: Path) -> None:
    """The real fio reads each file whole, also one with a space in its name, and is done when its list is."""
    (folder / "0.jpg").rename(folder / "a space.jpg")
    sample = sample_files(folder, limit_bytes=10**9, seed=0)
    reading = FioEngine().read(sample.pieces, ReadOrder(readers=2, seconds=1.5))
    total = sum(piece.size_bytes for piece in sample.pieces)
    assert reading.delivered_bytes >= total and not reading.unread
    assert len(reading.read_ns) == reading.ios >= len(sample.pieces)
    assert fio_version().startswith("fio-")

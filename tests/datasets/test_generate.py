"""Sets are written whole, and resumed, enlarged and repaired; what is in the way is refused."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import xxhash

import loaderprobe
from loaderprobe.datasets.generate import generate
from loaderprobe.datasets.generate.generate import JOURNAL, Entry, Journal
from loaderprobe.datasets.generate.manifest import read_manifest
from loaderprobe.errors import BadValue, ForeignDirectory, LoaderprobeError, MissingPart, NoSpace, Refused
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.store.run_directory import lock_directory
from tests.conftest import AsUnprivileged
from tests.datasets.conftest import Make, tree


def images_of(directory: Path) -> int:
    manifest = read_manifest(directory)
    assert manifest is not None
    return manifest.images


def identities(directory: Path) -> dict[str, tuple[int, int]]:
    """What changes when an image is written again."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in directory.rglob("*.JPEG")}


def interrupt_at(done: int, error: BaseException) -> Callable[[int, int], None]:
    def progress(now: int, _total: int) -> None:
        if now >= done:
            raise error

    return progress


def test_a_set_depends_on_its_spec_alone(tmp_path: Path, make: Make) -> None:
    """Not on how the work was shared; its manifest has schema, version, spec, and size and digest of every file."""
    told: list[tuple[int, int]] = []
    one = make(tmp_path / "one", progress=lambda *now: told.append(now))
    assert told == sorted(told) and (told[0], told[-1]) == ((0, 70), (70, 70))
    assert tree(one) == tree(make(tmp_path / "three", processes=3))
    other = tree(make(tmp_path / "other", seed=1, count=4))
    names = [name for name in other if name.endswith(".JPEG")]
    assert sorted(names) == [f"train/n0000000{k}/n0000000{k}_{i}.JPEG" for k, i in ((0, 0), (0, 3), (1, 1), (2, 2))]
    assert not {other[name] for name in names} & {*tree(one).values()}
    envelope = json.loads((one / "manifest.json").read_bytes())
    assert (envelope["schema"], envelope["schema_version"]) == ("loaderprobe/image-set", SCHEMA_VERSION)
    manifest = read_manifest(one)
    assert manifest is not None
    assert (manifest.spec.resolution, manifest.spec.seed, manifest.spec.classes, manifest.images) == ("64x48", 0, 3, 70)
    for number, (size, digest) in enumerate(zip(manifest.size_bytes, manifest.xxh3, strict=True)):
        data = (one / manifest.spec.path(number)).read_bytes()
        assert (len(data), xxhash.xxh3_128_hexdigest(data)) == (size, digest)
    odd = read_manifest(make(tmp_path / "odd", oddities=("grey", "icc")))
    assert odd is not None and odd.odd_images == {"grey": 2, "icc": 10}


@pytest.mark.parametrize("classes", [4, 10])
def test_imagefolder_takes_the_set(tmp_path: Path, make: Make, classes: int) -> None:
    """torchvision's ImageFolder finds every image, in its class; with fewer images than classes none is empty."""
    datasets = pytest.importorskip("torchvision.datasets")
    folder = datasets.ImageFolder(make(tmp_path, count=5, classes=classes) / "train")
    assert (len(folder), len(folder.classes)) == (5, min(classes, 5))


def test_a_set_grows_without_touching_what_is_there(tmp_path: Path, make: Make) -> None:
    """It equals one made at full size, and has the manifest of the smaller one until it is complete. Its base images
    are those that were saved; with changed ones it is refused."""
    directory = make(tmp_path / "grown")
    before = identities(directory)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "grown", count=140, progress=interrupt_at(96, KeyboardInterrupt()))
    assert images_of(directory) == 70
    grown = make(tmp_path / "grown", count=140, processes=2, on_base_image=lambda *_: pytest.fail("it is painted"))
    assert before.items() <= identities(grown).items()
    assert tree(grown) == tree(make(tmp_path / "whole", count=140))
    (grown / "pool.msgpack").write_bytes((make(tmp_path / "other", seed=1, count=1) / "pool.msgpack").read_bytes())
    with pytest.raises(BadValue, match="not the pool"):
        make(tmp_path / "grown", count=150)


@pytest.mark.parametrize(("processes", "group"), [(1, False), (2, False), (2, True)])
def test_an_interrupted_set_goes_on_where_it_was(tmp_path: Path, make: Make, processes: int, group: bool) -> None:
    """After Ctrl-C, SIGTERM to the whole process group, or a kill that left half a file; asking for fewer keeps what
    the larger set had. After a power failure a name can be there without its bytes: only the journal is believed."""

    def interrupt(now: int, _total: int) -> None:
        for child in multiprocessing.active_children() if group and now >= 64 else ():
            child.terminate()
        interrupt_at(64, KeyboardInterrupt())(now, _total)

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "cut", count=140, processes=processes, progress=interrupt)
    directory = tmp_path / "cut" / "64x48"
    kept = identities(directory)
    assert len(kept) >= 64
    assert not (directory / "manifest.json").exists()
    assert not list(directory.rglob("*.part"))
    part = directory / "train" / "n00000000" / ".n00000000_999.JPEG.part"
    part.write_bytes(b"half")
    unrecorded = part.with_name("n00000000_138.JPEG")
    unrecorded.write_bytes(bytes(500))
    kept.pop(unrecorded.name, None)  # two processes may have made it already
    kept = {} if group else kept  # what a killed process had made of its chunk is not recorded
    assert images_of(make(tmp_path / "cut", count=10)) == 10
    make(tmp_path / "cut", count=140, processes=processes)
    assert kept.items() <= identities(directory).items()
    assert tree(directory) == tree(make(tmp_path / "whole", count=140))


def test_a_set_enlarged_meanwhile_does_not_shrink(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is looked at again under the lock."""

    @contextlib.contextmanager
    def late(directory: Path) -> Iterator[None]:
        monkeypatch.undo()
        make(tmp_path, count=140)
        with lock_directory(directory):
            yield

    monkeypatch.setattr(generate, "lock_directory", late)
    assert images_of(make(tmp_path)) == 140


@pytest.mark.parametrize("count", [5, 70])
def test_a_complete_set_is_repaired_and_then_left_alone(tmp_path: Path, make: Make, count: int) -> None:
    """A file that is gone or cut short is made again, nothing else is touched, and the set does not shrink. Asking
    again for as many images, or fewer, writes nothing at all."""
    directory = make(tmp_path)
    whole, before = tree(directory), identities(directory)
    gone, short = (directory / f"train/n0000000{k}/n0000000{k}_{k}.JPEG" for k in (1, 2))
    gone.unlink()
    short.write_bytes(short.read_bytes()[:100])
    make(tmp_path, count=count)
    assert tree(directory) == whole
    assert {name for name, identity in identities(directory).items() if before[name] != identity} == {
        gone.name, short.name,
    }  # fmt: skip
    times = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    make(tmp_path, count=count, progress=interrupt_at(0, AssertionError("nothing is to be done")))
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == times


PROGRAM = """
import sys
from pathlib import Path
from loaderprobe.datasets.generate import generate as module
from loaderprobe.datasets.generate.generate import generate
from loaderprobe.datasets.generate.generate import set_asked_for
module.SYNC_S = 0.0
say = lambda done, _: print(done, flush=True)
spec = set_asked_for("64x48", classes=3, base_images=4)
generate(Path(sys.argv[1]), spec, count=200, processes=2, progress=say)
"""


def _entry(number: int) -> Entry:
    return Entry(number=number, images=1, size_bytes=100 + number, xxh3="00")


def test_a_torn_line_is_not_believed(tmp_path: Path) -> None:
    """What the crash cut off the end of the last line, or left as zeros, or a checksum that fails: those before are
    kept."""
    journal, path = Journal(tmp_path), tmp_path / JOURNAL
    journal.add([_entry(3)])
    journal.write()
    journal.end([])
    assert Journal(tmp_path).entries() == []
    for number in (1, 2):
        journal.add([_entry(number)])
        journal.write()
    assert Journal(tmp_path).entries() == [_entry(1), _entry(2)]
    whole = path.read_bytes()
    flipped = whole.replace(b'"size_bytes":102', b'"size_bytes":999')
    torn_off = (whole[:-lost] for lost in range(1, 60, 7))
    for torn in (*torn_off, whole[:-9] + bytes(9), whole[:-9] + b"\xff", flipped):
        path.write_bytes(torn)
        assert Journal(tmp_path).entries() == [_entry(1)]


@pytest.mark.parametrize("after", [0, 150])
def test_killed_at_any_moment_a_set_completes_to_the_same_tree(tmp_path: Path, make: Make, after: int) -> None:
    """kill -9 once so many files are written, then resumed: the same bytes. No worker outlives its parent."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "cut")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        written = next(count for count in map(int, process.stdout) if count >= after)
        process.kill()
        try:
            # Returns when the last holder of the pipe has gone; the limit only keeps a failure from hanging.
            process.communicate(timeout=30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert written < 200, "it was killed in the middle"
    resumed = make(tmp_path / "cut", count=200)
    assert tree(resumed) == tree(make(tmp_path / "whole", count=200, processes=2))


@pytest.mark.parametrize("name", ["thesis.txt", "spec.json", "manifest.json", ".hidden", "pool.msgpack"])
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, make: Make, name: str) -> None:
    """Whatever lies there and is not ours stays as it was, and nothing is added; a root that is a file, too."""
    directory = tmp_path / "64x48"
    directory.mkdir()
    (directory / name).write_text("{}")
    with pytest.raises(ForeignDirectory) as refusal:
        make(tmp_path)
    assert refusal.value.exit_code == 5
    assert [path.name for path in directory.iterdir()] == [name]
    with pytest.raises(BadValue, match="in the way"):
        make(directory / name)


@pytest.mark.parametrize("image", ["a.JPG", "cats/a.png", "train/cats/a.jpeg"])
def test_generated_images_never_come_among_others(tmp_path: Path, make: Make, image: str) -> None:
    """In a folder of other classes a set would be one more class, and be measured in place of them."""
    (tmp_path / image).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / image).touch()
    with pytest.raises(ForeignDirectory, match="holds other images"):
        make(tmp_path)
    assert not (tmp_path / "64x48").exists()
    assert make(tmp_path / "own") == tmp_path / "own/64x48"


@pytest.mark.parametrize("change", [{"seed": 1}, {"classes": 4}, {"base_images": 5}, {"mean_bytes": 2000}])
def test_another_set_in_the_directory_is_refused(tmp_path: Path, make: Make, change: dict[str, object]) -> None:
    """Sets of two specs are never mixed."""
    before = tree(make(tmp_path))
    with pytest.raises(Refused, match="another data set") as refusal:
        make(tmp_path, count=140, **change)
    assert refusal.value.hint
    assert tree(tmp_path / "64x48") == before


@pytest.mark.parametrize(
    "change", [{"seed": -1}, {"count": 0}, {"classes": 0}, {"shard_images": 0}, {"pool": 0}, {"mean_size": 0}]
)
def test_impossible_numbers_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """A number that cannot be is a bad value, not a traceback from numpy."""
    with pytest.raises(BadValue):
        loaderprobe.generate(tmp_path, **change)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("shortage", [{"f_bavail": 10}, {"f_favail": 10}])
def test_too_little_space_is_refused_before_writing(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, shortage: dict[str, int]
) -> None:
    """Bytes or inodes short: nothing is written, and no lock left. To go on takes space for what is missing."""
    room = {"f_bavail": 10**9, "f_frsize": 4096, "f_files": 10**9, "f_favail": 10**9}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**room | shortage))
    (tmp_path / "there" / "64x48").mkdir(parents=True)
    for root in ("new", "there"):
        with pytest.raises(NoSpace):
            make(tmp_path / root)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["64x48", "there"]
    monkeypatch.undo()
    make(tmp_path, count=69)
    whole = tree(make(tmp_path / "whole"))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**room | {"f_bavail": 4, "f_files": 0, "f_favail": 0}))
    assert tree(make(tmp_path)) == whole


def full_after_forty() -> Any:
    """Of the files that are begun, the forty-first is half there when the disk is full."""
    written, write_bytes = itertools.count(), Path.write_bytes

    def write(path: Path, data: bytes) -> int:
        if path.name.endswith(".part") and next(written) >= 40:
            write_bytes(path, data[:100])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(path, data)

    return write


def killed_at_forty(write_file: Any = generate.Work.file) -> Any:
    def write(work: generate.Work, number: int) -> Entry:
        if number == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        found: Entry = write_file(work, number)
        return found

    return write


EIO = OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    ("patches", "kind", "says", "images", "entered"),
    [
        pytest.param([(Path, "write_bytes", full_after_forty())], NoSpace, "it resumes", 40, None, id="full disk"),
        # The kernel reports once that it could not write back: no record of those files.
        pytest.param(
            [(generate, "sync_filesystem", Mock(side_effect=EIO)), (generate, "SYNC_S", 1e9)],
            MissingPart, "Input/output", None, 0, id="failed write",
        ),
        pytest.param(
            [(generate, "sync_filesystem", Mock(side_effect=[None, EIO])), (generate, "SYNC_S", 0.0)],
            MissingPart, "Input/output", None, 32, id="second write failed",
        ),
        pytest.param([(generate.Work, "file", killed_at_forty())], LoaderprobeError, "it resumes", None, None,
                     id="killed worker"),
    ],
)  # fmt: skip
def test_a_set_that_was_not_completed_loses_nothing(
    patches: list[Any], kind: type[LoaderprobeError], says: str, images: int | None, entered: int | None,
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One clear error, no manifest, and no half image; the next call completes the set."""
    with monkeypatch.context() as patch:
        for patched in patches:
            patch.setattr(*patched)
        with pytest.raises(kind) as ended:
            make(tmp_path / "cut", processes=2 if patches[0][0] is generate.Work else 1)
    assert says in f"{ended.value} {ended.value.hint}"
    directory = tmp_path / "cut" / "64x48"
    assert not (directory / "manifest.json").exists() and not list(directory.rglob("*.part"))
    assert images is None or len(list(directory.rglob("*.JPEG"))) == images
    assert entered is None or len(generate.Journal(directory).entries()) == entered
    assert tree(make(tmp_path / "cut")) == tree(make(tmp_path / "whole"))


def test_nothing_is_entered_after_a_write_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reported it once, and it may have been any file: the next sync, which succeeds, proves nothing."""
    monkeypatch.setattr(generate, "sync_filesystem", Mock(side_effect=[OSError(errno.EIO, "Input/output error"), None]))
    journal = Journal(tmp_path)
    journal.add([_entry(0)])
    with pytest.raises(OSError, match="Input/output"):
        journal.write()
    journal.add([_entry(1)])
    journal.write()
    assert Journal(tmp_path).entries() == []


def test_files_of_somebody_else_are_left_alone(tmp_path: Path, make: Make) -> None:
    """Names like ours in other places stay, when a set is completed, repaired or made larger."""
    directory = make(tmp_path)
    others = ["train/n01440764/n01440764_1.JPEG", "train/mine/shard-000000.tar", "train/mine/.n00000001_4.JPEG.part"]
    for name in others:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(b"mine")
    (directory / "train/n00000001/n00000001_1.JPEG").unlink()
    make(tmp_path, count=100)
    assert {name: tree(directory)[name] for name in others} == dict.fromkeys(others, b"mine")


@pytest.mark.parametrize("below", ["", "new/deep"])
def test_a_closed_place_is_refused(open_path: Path, make: Make, as_unprivileged: AsUnprivileged, below: str) -> None:
    """Where this user may not write, the error says so and how to go on; a set that is there can be used."""
    directory = make(open_path, count=4)
    with as_unprivileged():
        assert make(open_path, count=4) == directory
    open_path = open_path / "other"
    open_path.mkdir(0o555)
    with as_unprivileged(), pytest.raises(MissingPart) as error:
        make(open_path / below)
    assert "write permission" in error.value.hint

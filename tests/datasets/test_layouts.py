"""Each layout holds the images of the folder, byte by byte, and says what is wrong with its files."""

from __future__ import annotations

import errno
import json
import os
import struct
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest
from PIL import Image

from loaderprobe.datasets import convert as convert_module
from loaderprobe.datasets.convert import convert, stage
from loaderprobe.datasets.folder import generated_set, layout_in, scan_layout
from loaderprobe.datasets.layouts import LAYOUTS, NAMES, Sample, blocks, check_layout, complete, format_of
from loaderprobe.errors import BadValue, MissingPart, NoSpace, Refused
from loaderprobe.loaders.libraries import encoded_in
from loaderprobe.records.files import FileSet, SkippedFile
from loaderprobe.testing import FakePageCache
from tests.conftest import AsUnprivileged
from tests.datasets.conftest import Make

COUNT = 70


def installed(name: str) -> str:
    if name in LAYOUTS and LAYOUTS[name].library:
        pytest.importorskip(LAYOUTS[name].library)
    return name


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return installed(request.param)


@pytest.fixture
def made(tmp_path: Path, make: Make, layout: str) -> Path:
    return make(tmp_path, layout=layout, shard_images=20)


def contents(files: FileSet) -> Iterator[tuple[bytes, int]]:
    """(encoded image, class) of each sample, in order, as a loader reads it."""
    if files.layout == "files":
        yield from zip((path.read_bytes() for path in files.absolute(0, files.count)), files.classes, strict=True)
        return
    reader = format_of(files.layout).Reader(files.folder)
    for path, place in zip(files.paths, files.places, strict=True):
        sample = reader.read(path, place)
        yield sample.image, sample.label


def scanned(folder: Path, layout: str, sample: int = 1, seed: int = 0) -> FileSet:
    return scan_layout(folder, layout, sample=sample, seed=seed, progress=lambda *_: None)


def whole(directory: Path, **changes: int) -> FileSet:
    return generated_set(directory, **{"sample": COUNT, "seed": 3, **changes})


def test_it_holds_the_same_images_as_files(tmp_path: Path, make: Make, made: Path) -> None:
    """The same bytes and classes, each once; by keys in the very order of files. Sizes and classes are known unread."""
    folder, files = whole(make(tmp_path)), whole(made)
    read, expected = list(contents(files)), list(contents(folder))
    assert sorted(read) == sorted(expected) and (files.streamed or read == expected)
    assert [(len(image), label) for image, label in read] == list(zip(files.size_bytes, files.classes, strict=True))
    assert files.label == f"64x48 {files.layout}" and files.parts is not None
    assert files.images_an_open == {"lmdb": COUNT, "mds": 1}.get(files.layout, COUNT // 4)
    sizes = {Path(path): size for path, size in files.parts.file_bytes.items()}
    assert {path: path.stat().st_size for path in files.absolute(0, COUNT)} == sizes


def test_it_is_recognised_without_its_manifest(made: Path, layout: str) -> None:
    """By the names of its files, and every image is looked at; a sample takes whole shards, not all; of any name."""
    assert layout_in(made) == layout
    found = scanned(made, layout, COUNT, 3)
    assert sorted(contents(found)) == sorted(contents(whole(made)))
    assert found.images_found == COUNT and not found.skipped_count
    some = scanned(made, layout, 5)
    assert 5 <= some.count < COUNT and len(some.whole_bytes) == len(set(some.paths))
    odd = made.rename(f"{made}\udcff")
    again = scanned(odd, layout, COUNT, 3)
    assert [*contents(again)] == [*contents(replace(found, root=found.root.replace(str(made), str(odd))))]


def test_workers_take_turns_and_each_reads_on(made: Path) -> None:
    """Of a stream, each worker's batches go through its own blocks; all batches of a pass hold different samples."""
    files = whole(made)
    dealt = files.dealt(2, 5)
    samples = list(zip(dealt.paths, dealt.places, strict=True))
    assert dealt.count % 10 == 0 and len(set(samples)) == dealt.count
    if not files.streamed:
        assert dealt == files
        return
    for worker in range(2):
        own = [sample for k, sample in enumerate(samples) if k // 5 % 2 == worker]
        blocks = [(path, block) for path, (block, _) in own]
        assert sorted(blocks, key=blocks.index) == blocks
    with pytest.raises(BadValue, match="do not give each of 9 workers"):
        files.dealt(9, 5)


def test_ranks_share_blocks(made: Path) -> None:
    """Every sample is of one rank, and no block of a stream is read by two."""
    files = whole(made)
    shares = [files.shard(rank, 3) for rank in range(3)]
    samples = [{*zip(share.paths, share.places, strict=True)} for share in shares]
    assert set.union(*samples) == {*zip(files.paths, files.places, strict=True)}
    assert sum(map(len, samples)) == files.count
    if files.streamed:
        blocks = [{(path, block) for path, (block, _) in share} for share in samples]
        assert sum(map(len, blocks)) == len(set.union(*blocks))


def test_a_damaged_file_is_named(made: Path) -> None:
    """In an error that says what to do, when it is read and when it is taken as data."""
    files = whole(made)
    for path in files.absolute(0, COUNT):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    with pytest.raises(BadValue, match=r"is damaged|fewer samples") as error:
        list(contents(files))
    assert error.value.hint and str(files.folder) in error.value.message
    with pytest.raises(BadValue, match="is damaged"):
        scanned(made, files.layout, COUNT)


def test_what_is_closed_is_not_damage(
    open_path: Path, make: Make, layout: str, as_unprivileged: AsUnprivileged
) -> None:
    """Permission is asked for a file, when it is read and when it is taken as data. A closed folder is named, as one of
    images; the shards beside it are used, as those beside the `lost+found` of a disk."""
    made = make(open_path, layout=layout)
    closed, files = made / "train/lost+found", whole(made)
    closed.mkdir(mode=0)
    try:
        with as_unprivileged():
            found = scanned(made, layout, COUNT)
    finally:
        closed.rmdir()
    assert (found.images_found, found.count, found.skipped_count) == (COUNT, COUNT, 1)
    assert found.skipped == (SkippedFile(path="lost+found", reason="cannot be read: Permission denied"),)
    for path in files.absolute(0, COUNT):
        path.chmod(0)
    for taken in (lambda: next(contents(files)), lambda: scanned(made, layout)):
        with as_unprivileged(), pytest.raises(MissingPart, match="no permission to read"):
            taken()


@pytest.mark.parametrize("layout", ["mds", "litdata"])
@pytest.mark.parametrize("content", [b"version https://git-lfs.github.com/spec/v1\n", b""], ids=["LFS", "empty"])
def test_a_file_too_short_for_its_offsets_is_damaged(tmp_path: Path, layout: str, content: bytes) -> None:
    """No memory is taken for what its first bytes count."""
    (tmp_path / LAYOUTS[layout].file.format(number=0)).write_bytes(content)
    with pytest.raises(BadValue, match="is damaged"):
        [*format_of(layout).counts(tmp_path / LAYOUTS[layout].file.format(number=0))]


def test_shards_without_an_image_are_refused(tmp_path: Path, layout: str) -> None:
    """With the first sample, what is wrong with it, and what a sample needs."""
    name = LAYOUTS[layout].file.format(number=0)
    format_of(layout).write([Sample("a", b"pixels", 0)], tmp_path / name)
    complete(layout, tmp_path)
    with pytest.raises(BadValue, match="holds no usable image") as error:
        scanned(tmp_path, layout)
    assert error.value.hint.startswith(f"first: {name}, sample 0, ")
    assert error.value.hint.endswith("each sample needs an encoded image, as in a JPEG file")


def rows_of_litdata(folder: Path) -> Iterator[tuple[bytes, int]]:
    for row in pytest.importorskip("litdata").StreamingDataset(str(folder)):
        yield bytes(row["image"]), row["label"]


def rows_of_streaming(folder: Path) -> Iterator[tuple[bytes, int]]:
    formats = pytest.importorskip("streaming.base.format")
    for shard in json.loads((folder / "index.json").read_text())["shards"]:
        for row in formats.reader_from_json(str(folder), None, shard):
            yield row["image"], row["label"]


@pytest.mark.parametrize(("indexed", "rows"), [("litdata", rows_of_litdata), ("mds", rows_of_streaming)])
def test_a_library_reads_our_shards(tmp_path: Path, make: Make, indexed: str, rows: Any) -> None:
    """By the index, with the same images and classes."""
    made = make(tmp_path, layout=indexed, shard_images=20)
    assert sorted(rows(made / "train")) == sorted(contents(whole(made)))


def test_rows_of_arrow_are_refused(tmp_path: Path) -> None:
    """litdata's own, by torch's reader."""
    writer = pytest.importorskip("litdata").streaming.writer.BinaryWriter(str(tmp_path), chunk_size=9)
    writer.add_item(0, {"image": b"image", "label": 1})
    writer.done(), writer.merge()
    with pytest.raises(BadValue, match=r"compressed, encrypted or of Arrow rows"):
        scanned(tmp_path, "litdata")


def test_a_row_without_an_image_is_damage(tmp_path: Path) -> None:
    """So is whatever else pyarrow, or a value in the file, raises. Without a column of images its columns are named."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"is damaged": {"image": pa.array([None], pa.binary())}, "no column of encoded images": {"text": ["a dog"]}}
    for what, row in rows.items():
        pq.write_table(pa.table(row), tmp_path / "a.parquet")
        with pytest.raises(BadValue, match=what):
            scanned(tmp_path, "parquet")


@pytest.mark.parametrize(
    ("column", "labels", "classes"),
    [("class", ["dog", "7"], [0, 7]), ("label", [None, 3], [0, 3]), ("labels", [[1, 2], [3]], [0, 0]),
     ("label", [float("nan"), 2.0], [0, 2]), ("label", [-(2**63), 2], [-(2**63), 2])],
)  # fmt: skip
def test_the_class_of_a_row(tmp_path: Path, make: Make, column: str, labels: list[object], classes: list[int]) -> None:
    """Parquet files that others wrote have words there, lists, or nothing."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    images = [path.read_bytes() for path in whole(make(tmp_path)).absolute(0, len(labels))]
    pq.write_table(pa.table({"image": images, column: labels}), tmp_path / "a.parquet")
    files = scanned(tmp_path, "parquet", len(labels))
    assert [label for _, label in contents(files)] == list(files.classes) == classes


def write_tar(folder: Path, *members: tuple[str, bytes]) -> None:
    with tarfile.open(folder / "a.tar", "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, BytesIO(data))


def test_of_several_images_the_first_is_the_sample(tmp_path: Path) -> None:
    """In a tar shard that others wrote, as WebDataset has them: files of one name that follow each other are one."""
    names = ("a.jpg", "a.small.jpg", "a.json", "b.jpg", "a.jpg", "c.jpg")
    write_tar(tmp_path, *((name, name.encode()) for name in names))
    ((path, block, samples),) = blocks("tar", tmp_path)
    reader = format_of("tar").Reader(tmp_path)
    assert [reader.read(path, (block, number)).image for number in range(samples)] == [
        b"a.jpg", b"b.jpg", b"a.jpg", b"c.jpg"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "label", [b"\xff", "\u00b2".encode(), b"9" * 5000, b"9" * 20], ids=["text", "digit", "long", "big"]
)
def test_a_class_that_is_no_number_is_damage(tmp_path: Path, label: bytes) -> None:
    """In a shard that others wrote; a word is class 0, as it may be anything. No tensor holds a large number."""
    write_tar(tmp_path, ("a.jpg", b"image"), ("a.cls", label))
    with pytest.raises(BadValue, match="is beyond int64" if len(label) == 20 else "is damaged"):
        scanned(tmp_path, "tar")


def test_a_layout_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown one with all that there are, one without its library with the line to type."""
    with pytest.raises(BadValue) as unknown:
        check_layout("zip")
    assert all(name in unknown.value.hint for name in NAMES)
    for name in (name for name in LAYOUTS if LAYOUTS[name].library):
        monkeypatch.setitem(sys.modules, LAYOUTS[name].library, None)
        with pytest.raises(MissingPart) as error:
            check_layout(name)
        assert error.value.hint == f"pip install 'loaderprobe[{name}]'"


def test_a_folder_is_written_in_a_layout(tmp_path: Path, make: Make, layout: str) -> None:
    """The same images in the same order; a second call writes only what is missing, and nothing of other images."""
    files, heard, place = whole(make(tmp_path)), Mock(), tmp_path / "other"
    found = convert(files, layout, place, heard)
    assert list(contents(found)) == list(contents(files)) and found.size_bytes == files.size_bytes
    assert heard.call_args_list[0] == call(0, COUNT) and heard.call_args == call(COUNT, COUNT)
    sizes = {path: (found.folder / path).stat().st_size for path in found.file_bytes}
    assert found.label == f"64x48 {layout}" and found.file_bytes == sizes
    first, *others = found.absolute(0, COUNT)
    (found.folder / "train" / f".{first.name}.part").write_bytes(b"half")
    first.unlink()
    written = {path: path.stat().st_mtime_ns for path in others}
    again = convert(files, layout, place, heard)
    assert again == found and list(contents(again)) == list(contents(files))
    assert {path: path.stat().st_mtime_ns for path in others} == written
    with pytest.raises(Refused, match="holds other images"):
        convert(files.chosen(range(9)), layout, place, heard)
    assert list(contents(again)) == list(contents(files))


@pytest.mark.parametrize("indexed", ["mds", "litdata"])
def test_big_images_get_more_shards(tmp_path: Path, make: Make, indexed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a shard of the usual number would be longer than its offsets can say."""
    files = whole(make(tmp_path))
    usual = len(convert(files, indexed, tmp_path / "usual", lambda *_: None).file_bytes)
    monkeypatch.setitem(convert_module.SHARD_BYTES, indexed, max(files.size_bytes))
    found = convert(files, indexed, tmp_path / "other", lambda *_: None)
    assert usual < len(found.file_bytes) == COUNT and list(contents(found)) == list(contents(files))


@pytest.mark.parametrize("damage", ["is gone", "links to itself", "has grown"])
def test_a_folder_that_changes_is_named(tmp_path: Path, make: Make, layout: str, damage: str) -> None:
    """The file that changed is named, and a whole file of the layout is written once it is as it was."""
    files = whole(make(tmp_path))
    last = files.absolute(COUNT - 1, 1)[0]
    image = last.read_bytes()
    last.unlink()
    if damage == "links to itself":
        last.symlink_to(last)
    elif damage == "has grown":
        last.write_bytes(image + b"more")
    with pytest.raises(BadValue, match=r"cannot be read|bytes, and has") as error:
        convert(files, layout, tmp_path / "other", lambda *_: None)
    assert str(last) in error.value.message and "begin" in error.value.hint
    last.unlink(missing_ok=True)
    last.write_bytes(image)
    assert list(contents(convert(files, layout, tmp_path / "other", lambda *_: None))) == list(contents(files))


def staged(source: FileSet, place: Path) -> FileSet:
    return stage(source, place, FakePageCache(), lambda *_: None)


@pytest.mark.parametrize("any_layout", NAMES)
def test_a_copy_holds_the_same_files(tmp_path: Path, make: Make, any_layout: str) -> None:
    """In the same order, read cold; a second call copies what is missing or cut short, and keeps the rate."""
    files = whole(make(tmp_path, layout=installed(any_layout)))
    heard, cache = list[tuple[int, int]](), FakePageCache()
    cache.warm(files.absolute(0, COUNT))
    found = stage(files, tmp_path / "copy", cache, lambda *done: heard.append(done))
    assert not cache.held
    assert list(contents(found)) == list(contents(files)) and found.content == files.content
    assert found.label == ("64x48 staged" if any_layout == "files" else f"64x48 staged {any_layout}")
    assert found.staged and found.staged.source == files.label and found.staged.share == 1
    indexes = len([*files.folder.rglob("index.json")])
    assert heard[0][0] == 0 and heard[-1] == (len(files.file_bytes) + indexes,) * 2
    again = staged(files, tmp_path / "copy")
    assert again == found
    first, *others = found.absolute(0, COUNT)
    first.write_bytes(b"half")
    written = {path: path.stat().st_mtime_ns for path in others}
    assert list(contents(staged(files, tmp_path / "copy"))) == list(contents(files))
    assert {path: path.stat().st_mtime_ns for path in others} == written
    # Of shards, which are copied whole, what was left out is in the copy, too.
    skipped = (SkippedFile(path="train/0, sample 1", reason="damaged"),)
    again = staged(replace(files, skipped_count=1, skipped=skipped), tmp_path / "copy")
    assert (again.skipped_count, again.skipped) == ((0, ()) if any_layout == "files" else (1, skipped))


@pytest.mark.parametrize("indexed", ["mds", "litdata"])
def test_a_copy_has_its_source_index(tmp_path: Path, make: Make, indexed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever columns that names, also where they change; and where Ctrl-C came before all was on the disk."""
    files = whole(make(tmp_path, layout=indexed, shard_images=20))
    (index,) = files.folder.rglob("index.json")
    index.write_text(index.read_text().replace('"int"', '"int64"'))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("loaderprobe.datasets.convert.sync_filesystem", Mock(side_effect=KeyboardInterrupt))
        staged(files, tmp_path / "copy")
    for text in (index.read_text(), index.read_text().replace('"int64"', '"uint8"')):
        index.write_text(text)
        found = staged(files, tmp_path / "copy")
        assert (found.folder / index.relative_to(files.folder)).read_text() == text
    index.write_text(text.replace('"uint8"', '"int64"'))
    assert list(contents(staged(files, tmp_path / "copy"))) == list(contents(files))


def test_a_copy_that_took_no_time_has_its_rate(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one small file, or of none where an earlier version kept no time for it."""
    one, ticks = whole(make(tmp_path)).chosen([0]), count()
    monkeypatch.setattr(convert_module, "time", SimpleNamespace(perf_counter=lambda: next(ticks) * 1e-6))
    found = staged(one, tmp_path / "copy").staged
    assert found and found.bytes_per_s == pytest.approx(one.size_bytes[0] * 1e6)
    (kept,) = (tmp_path / "copy").rglob("copied.txt")
    kept.write_text("631 0.000")
    again = staged(one, tmp_path / "copy").staged
    assert again and again.bytes_per_s is None


def test_a_copy_grows_and_takes_no_place_of_others(tmp_path: Path, make: Make) -> None:
    """More of the same images go beside those that are there; other images do not."""
    files = whole(make(tmp_path))
    few = staged(files.chosen(range(9)), tmp_path / "copy")
    assert set(staged(files, tmp_path / "copy").absolute(0, COUNT)) > set(few.absolute(0, 9))
    with pytest.raises(Refused, match="holds other images"):
        staged(replace(files, root=str(tmp_path / "moved")), tmp_path / "copy")
    part = staged(replace(files, images_found=10**15), tmp_path / "copy").staged
    assert part and 0 < part.share < 1


def test_space_is_that_of_all_shards(tmp_path: Path, make: Make, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some images, which may lie in all shards; and of some shards, where images are read in sequence."""
    every = whole(made := make(tmp_path, layout=layout, shard_images=20))
    free = round(1.5 * sum(every.file_bytes.values()))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1, f_files=0))
    copy = staged(whole(made, sample=20), tmp_path / "copy")
    assert copy.staged and copy.staged.share == 1
    if not LAYOUTS[layout].block:
        free = round(0.65 * sum(every.file_bytes.values()))
        part = staged(whole(made, sample=20), tmp_path / "part")
        assert part.staged and part.staged.share == pytest.approx(0.65, rel=0.05)


def test_where_a_copy_cannot_be_made(tmp_path: Path, make: Make) -> None:
    """Too little space leaves nothing. The hint names what helps; `..` may lead out of the images."""
    files = whole(make(tmp_path / "data"))
    huge, place = replace(files, size_bytes=(1 << 60,) * COUNT), tmp_path / "new" / "copy"
    convert_it = partial(convert, huge, "tar", place, lambda *_: None)
    for option, write in (("--stage", partial(staged, huge, place)), ("--convert-to", convert_it)):
        with pytest.raises(NoSpace, match="take about") as full:
            write()
        assert option in full.value.hint and "--images" in full.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    with pytest.raises(Refused, match="among the images") as among:
        staged(files, tmp_path / ".." / tmp_path.name / files.folder.relative_to(tmp_path) / "copy")
    assert "outside DATA" in among.value.hint
    with pytest.raises(MissingPart) as nowhere:
        staged(files, Path("/proc/nowhere"))
    assert "choose another path for --stage" in nowhere.value.hint
    assert list(contents(staged(files, files.folder / ".." / "copy"))) == list(contents(files))


def test_a_full_disk_leaves_whole_files(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """No half one; with space again, the copy goes on. A file that is gone is named."""
    files, written = whole(make(tmp_path)), count()

    def filling(file: Path) -> Iterator[bytes]:
        if next(written) >= 5:
            yield b"half"
            raise OSError(errno.ENOSPC, "No space left on device")
        yield file.read_bytes()

    with monkeypatch.context() as patch:
        patch.setattr("loaderprobe.datasets.convert._pieces", filling)
        with pytest.raises(NoSpace) as full:
            staged(files, tmp_path / "copy")
    assert "--stage" in full.value.hint and "--images" in full.value.hint
    there = [path for path in (tmp_path / "copy").rglob("*") if path.suffix in (".JPEG", ".part")]
    assert len(there) == 5 and {path.suffix for path in there} == {".JPEG"}
    assert list(contents(staged(files, tmp_path / "copy"))) == list(contents(files))
    (first,) = files.absolute(0, 1)
    first.unlink()
    for elsewhere in ("nowhere", "/proc/self/mem"):  # which opens, and gives EIO
        first.unlink(missing_ok=True)
        first.symlink_to(elsewhere)
        with pytest.raises(BadValue, match="cannot be read") as gone:
            staged(files, tmp_path / "other")
        assert "begin again" in gone.value.hint


def test_an_interrupted_copy_ends_within_its_files(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of large files is not copied first."""
    ending, shutdown = Event(), ThreadPoolExecutor.shutdown

    def ended(pool: ThreadPoolExecutor, **how: bool) -> None:
        ending.set()
        shutdown(pool, **how)

    def large(file: Path) -> Iterator[bytes]:
        data = file.read_bytes()
        yield data[:9]
        ending.wait()
        yield data[9:]

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", ended)
    monkeypatch.setattr(convert_module, "_pieces", large)
    with pytest.raises(KeyboardInterrupt):
        stage(whole(make(tmp_path)), tmp_path / "copy", FakePageCache(), Mock(side_effect=KeyboardInterrupt))
    assert not [path for path in (tmp_path / "copy").rglob("*") if path.suffix in (".JPEG", ".part")]


ENCODED = BytesIO()
PIXELS = Image.new("RGB", (8, 8))
PIXELS.save(ENCODED, "jpeg")
JPEG = ENCODED.getvalue()
WIDTHS = {"int": 8, "uint8": 1}
"""Bytes of numbers in MDS."""


@pytest.mark.parametrize(
    ("columns", "label", "decoded"),
    [({"class": ("int", 3), "image": ("jpeg", PIXELS), "json": ("bytes", b"{}"), "width": ("int", 8)}, 3, True),
     ({"image": ("str", "a.jpg"), "json": ("bytes", b"{}"), "photo": ("jpeg", PIXELS)}, 0, True),
     ({"a": ("bytes", b"{}"), "image": ("bytes", JPEG), "label": ("int", -1), "mask": ("jpeg", PIXELS)}, -1, False),
     ({"bytes": ("bytes", JPEG), "number": ("int", 4), "other": ("int", 5)}, 4, False),
     ({"image": ("jpeg", JPEG), "label": ("uint8", 200)}, 200, False)],
)  # fmt: skip
def test_columns_have_names(tmp_path: Path, columns: dict[str, tuple[str, Any]], label: int, decoded: bool) -> None:
    """As Streaming writes them, in the order of names: torch's reader and the library's take the same image and class,
    or the library has that image decoded, and none is taken for it."""
    kinds, row = [kind for kind, _ in columns.values()], {name: value for name, (_, value) in columns.items()}
    data = [
        JPEG if value is PIXELS
        else value.to_bytes(WIDTHS[kind], "little", signed=kind == "int") if isinstance(value, int)
        else value.encode() if isinstance(value, str) else value
        for kind, value in columns.values()
    ]  # fmt: skip
    sizes = [WIDTHS.get(kind) for kind in kinds]
    head = json.dumps({"column_names": [*row], "column_encodings": kinds, "column_sizes": sizes}).encode()
    free = [len(each) for each, size in zip(data, sizes, strict=True) if size is None]
    body = struct.pack(f"<{len(free)}I", *free) + b"".join(data)
    begin = 12 + len(head)
    (tmp_path / "shard.00000.mds").write_bytes(struct.pack("<3I", 1, begin, begin + len(body)) + head + body)
    files = scanned(tmp_path, "mds")
    assert [*contents(files)] == [(JPEG, label)]
    with pytest.raises(BadValue, match="decodes images of this set") if decoded else nullcontext():
        assert encoded_in(row) == (JPEG, label)

"""File sets: of a folder of images, and of a set that loaderprobe generated, whole or not at all."""

from __future__ import annotations

import io
import os
import random
import tarfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock, call

import numpy as np
import pytest
from PIL import Image

from loaderprobe.datasets.folder import NAMED_SKIPS, generated_set, scan_folder
from loaderprobe.datasets.generate.generate import verify_set
from loaderprobe.datasets.generate.manifest import SetSpec, is_generated
from loaderprobe.datasets.generate.pool import build_pool
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.image_data import image_sets
from loaderprobe.records.files import FileSet
from loaderprobe.store.codec import decode, encode
from tests.conftest import AsUnprivileged
from tests.datasets.conftest import Make, tree


def scan(root: Path, sample: int = 100, seed: int = 0) -> FileSet:
    return scan_folder(root, sample=sample, seed=seed, progress=lambda *_: None)


def save(path: Path, mode: str = "RGB", size: tuple[int, int] = (40, 30)) -> Path:
    """A real image of random content at `path`, in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = random.Random(str(path)).randbytes(size[0] * size[1] * len(Image.new(mode, (1, 1)).getbands()))
    Image.frombytes(mode, size, pixels).save(path)
    return path


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def reasons(files: FileSet) -> dict[str, str]:
    return {skipped.path: skipped.reason for skipped in files.skipped}


def test_the_class_is_the_first_directory(tmp_path: Path) -> None:
    """Classes are numbered by name; images beside the class directories are class 0."""
    for name in ("cat/a.jpg", "cat/deep/er/b.jpg", "ant/c.jpg", "loose.jpg"):
        save(tmp_path / name)
    files = scan(tmp_path)
    classes = {"loose.jpg": 0, "ant/c.jpg": 1, "cat/a.jpg": 2, "cat/deep/er/b.jpg": 2}
    assert dict(zip(files.paths, files.classes, strict=True)) == classes
    assert (files.label, files.generated, files.images_found, files.skipped_count) == (tmp_path.name, False, 4, 0)
    assert [Path(files.root, path).stat().st_size for path in files.paths] == list(files.size_bytes)


def test_the_root_of_the_classes_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ImageNet's layout, what is beside `train` takes no part. A relative path becomes absolute."""
    save(tmp_path / "data/train/cat/a.jpg")
    save(tmp_path / "data/val/cat/b.jpg")
    monkeypatch.chdir(tmp_path)
    files = scan(Path("data"))
    assert (files.paths, files.root) == (("cat/a.jpg",), str(tmp_path / "data" / "train"))
    assert files.label == scan(Path("data/../data")).label == "data", "the folder that was given"


def test_the_order_is_drawn_by_seed(tmp_path: Path) -> None:
    """A seed gives one order, another seed another, and the order is not that of the names; samples reach all."""
    for number in range(30):
        save(tmp_path / f"c/{number:02}.jpg", size=(8, 8))
    first, again, other = (scan(tmp_path, seed=seed).paths for seed in (1, 1, 2))
    assert first == again and sorted(first) == sorted(other)
    assert len({first, other, tuple(sorted(first))}) == 3
    assert len({path for seed in range(40) for path in scan(tmp_path, sample=6, seed=seed).paths}) == 30


def test_only_a_sample_without_damage_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 50 images, a sample of 5 opens 5; the set still says how many there are, and progress ends at the sample. With
    half of them damaged it is still full: others take their place."""
    for number in range(50):
        save(tmp_path / f"c/{number}.jpg", size=(8, 8))
    opened, told = Mock(wraps=Image.open), Mock()
    monkeypatch.setattr(Image, "open", opened)
    files = scan_folder(tmp_path, sample=5, seed=0, progress=told)
    assert (len(files.paths), files.images_found, opened.call_count, told.call_args) == (5, 50, 5, call(5, 5))
    bad = {f"c/{number}.jpg" for number in range(0, 50, 2)}
    for name in bad:
        cut(tmp_path / name)
    files = scan(tmp_path, sample=10)
    assert len(files.paths) == 10 and not bad & set(files.paths)
    assert files.images_found == 50 - files.skipped_count


def test_every_skipped_file_has_its_reason(tmp_path: Path) -> None:
    """Not an image, empty, cut, misnamed, a pipe, a link to nothing or too long a name, too large: named, not fatal.
    Links to directories above are not followed for ever, and no image counts twice."""
    save(tmp_path / "c/good.jpg")
    (tmp_path / "c/up").symlink_to(tmp_path)
    (tmp_path / "c/self").symlink_to(".")
    (tmp_path / "c/labels.csv").write_text("a,b")
    (tmp_path / "c/empty.jpg").write_bytes(b"")
    (tmp_path / "c/text.png").write_text("no image at all")
    cut(save(tmp_path / "c/cut.jpg"))
    cut(save(tmp_path / "c/cut.png"))
    os.mkfifo(tmp_path / "c/pipe.jpg")
    (tmp_path / "c/dangling.jpg").symlink_to("nowhere")
    (tmp_path / "c/long.jpg").symlink_to("x" * 300)
    (tmp_path / "c/bomb.ppm").write_bytes(b"P6 60000 60000 255\n")
    files = scan(tmp_path)
    found = reasons(files)
    assert files.paths == ("c/good.jpg",)
    assert (files.skipped_count, files.images_found) == (9, 1)
    assert found["c/labels.csv"] == "not an image"
    assert found["c/empty.jpg"] == "empty"
    assert found["c/pipe.jpg"] == found["c/dangling.jpg"] == "not a regular file"
    assert all(found[f"c/{name}"].startswith("damaged: ") for name in ("text.png", "cut.jpg", "cut.png", "long.jpg"))
    assert "decompression bomb" in found["c/bomb.ppm"] and str(tmp_path) not in "".join(found.values())
    for number in range(50):
        (tmp_path / f"c/0{number:02}.txt").write_text("")
    files = scan(tmp_path)
    assert (files.skipped_count, len(files.skipped)) == (59, NAMED_SKIPS), "all are counted, the first are named"


@pytest.mark.parametrize(
    ("name", "mode", "size"),
    [
        *((f"a.{suffix}", "RGB", (40, 30)) for suffix in ("JPEG", "Png", "webp", "bmp", "tif", "TIFF", "gif", "ppm")),
        *(("a.jpg", mode, size) for mode in ("L", "CMYK", "RGB") for size in ((1, 1), (3, 200), (7, 7), (64, 64))),
    ],
)
def test_usual_formats_are_images(tmp_path: Path, name: str, mode: str, size: tuple[int, int]) -> None:
    """By suffix, in any case of letters; greyscale, CMYK and images smaller than one JPEG block, too."""
    save(tmp_path / "c" / name.lower(), mode, size).rename(tmp_path / "c" / name)
    files = scan(tmp_path)
    assert (files.paths, files.skipped_count) == ((f"c/{name}",), 0)


def test_odd_metadata_raises_no_warning(tmp_path: Path) -> None:
    """Pillow warns of a PNG with broken animation data; the image is fine, and nothing reaches the terminal."""
    path = save(tmp_path / "c/a.png")
    data = path.read_bytes()
    # An animation control chunk (acTL) that claims no frames, after the header chunk.
    body = b"acTL" + bytes(8)
    path.write_bytes(data[:33] + (8).to_bytes(4) + body + zlib.crc32(body).to_bytes(4) + data[33:])
    with pytest.warns(UserWarning, match="APNG"), Image.open(path):
        pass
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert scan(tmp_path).paths == ("c/a.png",)
    assert not told


NAMES = (
    b"\xff.jpg", b"new\nline.jpg", b"\x1b[31mred.jpg", "\u202eevil.jpg".encode(), b"x" * 251 + b".jpg", b"\\udcff.jpg",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_strange_name_takes_part_and_is_stored(name: bytes, tmp_path: Path) -> None:
    """No UTF-8, a new line, an escape sequence, right to left, 255 bytes, or what looks like an escaped byte."""
    os.rename(save(tmp_path / "x.jpg"), os.path.join(os.fsencode(tmp_path), name))
    files = scan(tmp_path)
    stored = encode("files", files)
    back = decode("files", stored, FileSet, "")
    assert (back, back.fingerprint) == (files, files.fingerprint)
    assert [os.fsencode(path) for path in back.absolute(0, 1)] == [os.path.join(os.fsencode(tmp_path), name)]


def test_a_folder_without_a_usable_image_is_a_bad_value(tmp_path: Path) -> None:
    """Missing, a file or empty; else with the numbers of what was skipped by reason, and the first file by name."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, says in (("empty", "no files in it"), ("missing", "missing"), ("file", "file")):
        with pytest.raises(BadValue, match=says):
            scan(tmp_path / name)
    for name in ("a.txt", "b.txt", "c.jpg"):
        (tmp_path / "empty" / name).write_text("" if name == "c.jpg" else "text")
    with pytest.raises(BadValue, match="skipped: 2 not an image and 1 empty") as error:
        scan(tmp_path / "empty")
    assert "a.txt" in error.value.hint


def test_what_may_not_be_read_is_skipped_or_asked_for(open_path: Path, as_unprivileged: AsUnprivileged) -> None:
    """The rest of the set is used; where it is the root, permission is asked for."""
    save(open_path / "train/c/good.jpg")
    save(open_path / "train/c/secret.jpg").chmod(0)
    save(open_path / "train/private/a.jpg")
    closed = [open_path / "train/private", open_path / "train", open_path]
    try:
        closed[0].chmod(0)
        with as_unprivileged():
            files = scan(open_path)
        for root in closed[1:]:
            root.chmod(0)
            for taken in (scan, lambda path: image_sets(path, sample=1)):
                with as_unprivileged(), pytest.raises(MissingPart, match="no permission to read"):
                    taken(open_path)
    finally:
        for folder in reversed(closed):
            folder.chmod(0o755)
    assert files.paths == ("c/good.jpg",)
    assert reasons(files) == {"private": "cannot be read: Permission denied", "c/secret.jpg": "no read permission"}


def test_a_generated_set_is_read_from_its_manifest(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Label, classes and sizes are right, the order is by seed, and no image is opened."""
    made = make(tmp_path)
    monkeypatch.delattr(Image, "open")
    files = generated_set(made, sample=60, seed=3)
    assert (files.label, files.generated, files.images_found, len(files.paths)) == ("64x48", True, 70, 60)
    assert files == generated_set(made, sample=60, seed=3)
    assert files.paths != generated_set(made, sample=60, seed=4).paths
    for path, number, size in zip(files.paths, files.classes, files.size_bytes, strict=True):
        assert Path(files.root, path).stat().st_size == size
        assert Path(path).parent.name == f"n{number:08}"


def test_a_generated_set_that_is_not_whole_is_refused(tmp_path: Path, make: Make) -> None:
    """A file that is missing or of another size is named; without a manifest, as with that of another program, there
    is no set."""
    directory = make(tmp_path, count=6)
    assert is_generated(directory)
    image, manifest = next(directory.rglob("*.JPEG")), directory / "manifest.json"
    for spoil, says in (
        (lambda: image.write_bytes(b"short"), image.name),
        (image.unlink, image.name),
        (manifest.unlink, "no complete"),
    ):
        spoil()
        with pytest.raises(BadValue, match=says):
            generated_set(directory, sample=6, seed=0)
    manifest.write_text('{"name": "a web app"}')
    assert not is_generated(directory)


def test_a_spec_that_is_closed_needs_permission(open_path: Path, make: Make, as_unprivileged: AsUnprivileged) -> None:
    """What it is made with is not known."""
    made = make(open_path, count=4)
    (made / "spec.json").chmod(0)
    with as_unprivileged(), pytest.raises(MissingPart, match="no permission to read"):
        image_sets(made, sample=1)


SMALL, MIXED, LARGE = 380, 60, 10


def _files(resolution: str, base_images: int, count: int) -> list[bytes]:
    asked = SetSpec(resolution=resolution, classes=1, seed=0, base_images=base_images)
    pool = build_pool(asked, map, lambda *_: None)
    return [pool.image(0, index, ()) for index in range(count)]


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    """450 images of the real mixture's qualities and samplings: small ones, those of the mixture itself, large ones."""
    return _files("120x90", 24, SMALL) + _files("imagenet", 4, MIXED) + _files("1024x768", 1, LARGE)


def _torchvision(data: bytes) -> tuple[int, ...]:
    torch, read = pytest.importorskip("torch"), pytest.importorskip("torchvision.io")
    with warnings.catch_warnings():
        # That torchvision's decoders will move says nothing about a file.
        warnings.simplefilter("ignore", DeprecationWarning)
        return tuple(read.decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8)).shape[:0:-1])


DECODERS: dict[str, Callable[[bytes], tuple[int, ...]]] = {
    "pillow": lambda data: Image.open(io.BytesIO(data)).convert("RGB").size,
    "torchvision": _torchvision,
    "simplejpeg": lambda data: pytest.importorskip("simplejpeg").decode_jpeg(data, strict=True).shape[1::-1],
    "opencv": lambda data: pytest.importorskip("cv2").imdecode(np.frombuffer(data, np.uint8), 1).shape[1::-1],
}


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_takes_every_file(files: list[bytes], name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Each of the size that its header says; nothing is said on standard error, where libjpeg warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(DECODERS[name](data) == Image.open(io.BytesIO(data)).size for data in files)
    assert capfd.readouterr().err == ""


def _chunks(data: bytes) -> Iterator[bytes]:
    """Cut where the content says (FastCDC, 2 KiB on average)."""
    cuts = pytest.importorskip("fastcdc").fastcdc(data, min_size=512, avg_size=2048, max_size=16384)
    yield from (data[cut.offset : cut.offset + cut.length] for cut in cuts)


def _blocks(data: bytes) -> Iterator[bytes]:
    yield from (data[start : start + 4096] for start in range(0, len(data), 4096))


def test_hundreds_of_files_of_one_base_image_share_nothing() -> None:
    """Deduplication by blocks or by content, and compression that finds what is repeated far apart, save under 1 %."""
    asked = SetSpec(resolution="500x375", classes=1, seed=0, base_images=1, mean_bytes=110_000)
    pool = build_pool(asked, map, lambda *_: None)
    files = [pool.image(0, index, ()) for index in range(150)]
    for cut in (_blocks, _chunks):
        parts = [part for data in files for part in cut(data)]
        assert sum(map(len, parts)) / sum(map(len, {*parts})) < 1.01
    zstandard = pytest.importorskip("zstandard")
    window = zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=True)
    data = b"".join(files)
    assert len(data) / len(zstandard.ZstdCompressor(compression_params=window).compress(data)) < 1.01


def test_shards_have_the_form_of_webdataset(tmp_path: Path, make: Make) -> None:
    """NAME.jpg as in the folder, then NAME.cls; times are zero."""
    shards = make(tmp_path, count=25, layout="tar", shard_images=10) / "train"
    names = [f"shard-{number:06}.tar" for number in range(3)]
    assert sorted(path.name for path in shards.iterdir()) == names
    members = []
    for name in names:
        with tarfile.open(shards / name) as tar:
            members += tar.getmembers()
    assert {(member.mtime, member.uid, member.mode) for member in members} == {(0, 0, 0o644)}
    images = [f"n{number % 3:08}_{number}" for number in range(25)]
    assert [member.name for member in members] == [f"{name}.{suffix}" for name in images for suffix in ("jpg", "cls")]


def test_verify_finds_what_changed(tmp_path: Path, make: Make) -> None:
    """A flipped bit, a lost file and a longer one are named with what is wrong, and so is a set without a manifest."""
    directory = make(tmp_path)
    assert verify_set(directory, lambda *_: None) == {}
    flipped, lost, longer = (path for path in sorted(directory.rglob("*.JPEG"))[:3])
    data = bytearray(flipped.read_bytes())
    data[500] ^= 1
    flipped.write_bytes(data)
    lost.unlink()
    longer.write_bytes(longer.read_bytes() + b"x")
    told = Mock()
    found = verify_set(directory, told)
    paths = [path.relative_to(directory).as_posix() for path in (flipped, lost, longer)]
    assert found.keys() == set(paths)
    assert "content" in found[paths[0]]
    assert "No such file" in found[paths[1]]
    assert "bytes, not" in found[paths[2]]
    assert told.call_args == call(70, 70)
    (directory / "manifest.json").unlink()
    assert verify_set(directory, lambda *_: None) == {"manifest.json": "missing: the set is not complete"}


def test_shards_grow_by_the_last_one(tmp_path: Path, make: Make) -> None:
    """Which was not full, or is a longer one that an interrupted growth left: it is made again, and the others stay."""

    def stop(done: int, _: int) -> None:
        if done >= 40:
            raise KeyboardInterrupt

    options = {"layout": "tar", "shard_images": 10}
    directory = make(tmp_path / "grown", count=25, **options)
    whole, first = tree(directory), (directory / "train/shard-000000.tar").stat().st_ino
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "grown", count=47, progress=stop, **options)
    make(tmp_path / "grown", count=25, **options)
    assert verify_set(directory, lambda *_: None) == {}
    tars = {name: data for name, data in whole.items() if "json" not in name}
    assert {name: data for name, data in tree(directory).items() if name in tars} == tars
    make(tmp_path / "grown", count=47, **options)
    assert (directory / "train/shard-000000.tar").stat().st_ino == first
    assert tree(directory) == tree(make(tmp_path / "whole", count=47, **options))

from __future__ import annotations

import os
import random
import warnings
import zlib
from pathlib import Path

import pytest
from PIL import Image

from loaderprobe.datasets.folder import NAMED_SKIPS, scan_folder
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.records.files import FileSet
from tests.datasets.conftest import AsUnprivileged


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
    assert dict(zip(files.paths, files.classes, strict=True)) == {
        "loose.jpg": 0,
        "ant/c.jpg": 1,
        "cat/a.jpg": 2,
        "cat/deep/er/b.jpg": 2,
    }
    assert (files.label, files.generated, files.images_found, files.skipped_count) == (tmp_path.name, False, 4, 0)
    assert [Path(files.root, path).stat().st_size for path in files.paths] == list(files.size_bytes)


def test_a_train_directory_is_the_root_of_the_classes(tmp_path: Path) -> None:
    """With ImageNet's layout, what is beside `train` takes no part."""
    save(tmp_path / "train/cat/a.jpg")
    save(tmp_path / "val/cat/b.jpg")
    files = scan(tmp_path)
    assert (files.paths, files.root) == (("cat/a.jpg",), str(tmp_path / "train"))
    assert files.label == tmp_path.name, "the folder that was given"


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file set read in another directory still finds its files."""
    save(tmp_path / "data/a.jpg")
    monkeypatch.chdir(tmp_path)
    assert scan(Path("data")).root == str(tmp_path / "data")
    assert scan(Path("data/../data")).label == "data"


def test_the_order_is_drawn_by_seed(tmp_path: Path) -> None:
    """A seed gives one order, another seed another, and the order is not that of the names."""
    for number in range(30):
        save(tmp_path / f"c/{number:02}.jpg", size=(8, 8))
    first, again, other = (scan(tmp_path, seed=seed).paths for seed in (1, 1, 2))
    assert first == again
    assert sorted(first) == sorted(other)
    assert len({first, other, tuple(sorted(first))}) == 3


def test_only_the_sample_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 50 images, a sample of 5 opens 5; the set still says how many there are."""
    for number in range(50):
        save(tmp_path / f"c/{number}.jpg", size=(8, 8))
    opened: list[Path] = []
    image_open = Image.open
    monkeypatch.setattr(Image, "open", lambda path: opened.append(path) or image_open(path))  # type: ignore[func-returns-value]  # append returns None, on purpose
    files = scan(tmp_path, sample=5)
    assert (len(files.paths), files.images_found, len(opened)) == (5, 50, 5)


def test_samples_of_several_seeds_reach_all_images(tmp_path: Path) -> None:
    """A sample is drawn from the whole set, not from its beginning."""
    for number in range(20):
        save(tmp_path / f"c/{number}.jpg", size=(8, 8))
    assert len({path for seed in range(30) for path in scan(tmp_path, sample=4, seed=seed).paths}) == 20


def test_damaged_images_are_replaced_by_others(tmp_path: Path) -> None:
    """With half of the images damaged, the sample is still full, and no damaged one is in it."""
    bad = {f"c/{number}.jpg" for number in range(0, 20, 2)}
    for number in range(20):
        path = save(tmp_path / f"c/{number}.jpg")
        if f"c/{number}.jpg" in bad:
            cut(path)
    files = scan(tmp_path, sample=10)
    assert len(files.paths) == 10
    assert not bad & set(files.paths)
    assert files.images_found == 20 - files.skipped_count


def test_every_skipped_file_has_its_reason(tmp_path: Path) -> None:
    """Not an image, empty, cut, not what its name says, a pipe, a dangling link: each is named, none is fatal."""
    save(tmp_path / "c/good.jpg")
    (tmp_path / "c/labels.csv").write_text("a,b")
    (tmp_path / "c/empty.jpg").write_bytes(b"")
    (tmp_path / "c/text.png").write_text("no image at all")
    cut(save(tmp_path / "c/cut.jpg"))
    cut(save(tmp_path / "c/cut.png"))
    os.mkfifo(tmp_path / "c/pipe.jpg")
    (tmp_path / "c/dangling.jpg").symlink_to("nowhere")
    files = scan(tmp_path)
    found = reasons(files)
    assert files.paths == ("c/good.jpg",)
    assert (files.skipped_count, files.images_found) == (7, 1)
    assert found["c/labels.csv"] == "not an image"
    assert found["c/empty.jpg"] == "empty"
    assert found["c/pipe.jpg"] == found["c/dangling.jpg"] == "not a regular file"
    assert all(found[f"c/{name}"].startswith("damaged: ") for name in ("text.png", "cut.jpg", "cut.png"))
    assert str(tmp_path) not in "".join(found.values())


@pytest.mark.parametrize("suffix", ["jpg", "JPEG", "Png", "webp", "bmp", "tif", "TIFF", "gif", "ppm"])
def test_usual_formats_are_images(tmp_path: Path, suffix: str) -> None:
    """By suffix, in any case of letters; every one is opened and found whole."""
    save(tmp_path / f"c/a.{suffix.lower()}").rename(tmp_path / f"c/b.{suffix}")
    assert scan(tmp_path).paths == (f"c/b.{suffix}",)


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
@pytest.mark.parametrize("size", [(1, 1), (3, 200), (7, 7), (64, 64)])
def test_other_colours_and_tiny_images_are_whole(tmp_path: Path, mode: str, size: tuple[int, int]) -> None:
    """Greyscale, CMYK and images smaller than one JPEG block can all be used."""
    save(tmp_path / "c/a.jpg", mode, size)
    assert scan(tmp_path).skipped_count == 0


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


def test_links_that_go_round_end(tmp_path: Path) -> None:
    """A link to a directory above is not followed for ever, and no image counts twice."""
    save(tmp_path / "c/a.jpg")
    (tmp_path / "c/up").symlink_to(tmp_path)
    (tmp_path / "c/self").symlink_to(".")
    files = scan(tmp_path)
    assert files.paths == ("c/a.jpg",)


def test_a_linked_class_takes_part(tmp_path: Path) -> None:
    """A class directory that lies elsewhere and is linked to is read like any other."""
    save(tmp_path / "elsewhere/a.jpg")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/cat").symlink_to(tmp_path / "elsewhere")
    assert scan(tmp_path / "data").paths == ("cat/a.jpg",)


def test_a_name_that_no_record_can_hold_is_skipped(tmp_path: Path) -> None:
    """A file name that is not UTF-8 is skipped with its reason, and the set can be stored."""
    save(tmp_path / "c/good.jpg")
    os.rename(save(tmp_path / "c/x.jpg"), os.fsencode(tmp_path / "c") + b"/\xff.jpg")
    files = scan(tmp_path)
    assert files.paths == ("c/good.jpg",)
    assert "UTF-8" in files.skipped[0].reason
    assert files.fingerprint


def test_only_the_first_skipped_files_are_named(tmp_path: Path) -> None:
    """All are counted."""
    save(tmp_path / "c/a.jpg")
    for number in range(50):
        (tmp_path / f"c/{number:02}.txt").write_text("")
    files = scan(tmp_path)
    assert (files.skipped_count, len(files.skipped)) == (50, NAMED_SKIPS)
    assert files.skipped[0].path == "c/00.txt"


def test_progress_ends_at_the_sample(tmp_path: Path) -> None:
    """Done never exceeds the total, and the last word is the number of good images."""
    for number in range(8):
        save(tmp_path / f"c/{number}.jpg", size=(8, 8))
    told: list[tuple[int, int]] = []
    scan_folder(tmp_path, sample=6, seed=0, progress=lambda *now: told.append(now))
    assert told[-1] == (6, 6)


def test_a_path_that_is_no_directory_is_a_bad_value(tmp_path: Path) -> None:
    """Missing, or a file."""
    (tmp_path / "file").write_text("")
    for name in ("missing", "file"):
        with pytest.raises(BadValue, match=name):
            scan(tmp_path / name)


def test_no_usable_image_says_what_was_skipped_and_why(tmp_path: Path) -> None:
    """The numbers by reason, and the first file by name."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("text")
    (tmp_path / "c.jpg").write_bytes(b"")
    with pytest.raises(BadValue, match="skipped: 2 not an image and 1 empty") as error:
        scan(tmp_path)
    assert "a.txt" in error.value.hint


def test_an_empty_folder_is_a_bad_value(tmp_path: Path) -> None:
    """It says that there is nothing in it."""
    with pytest.raises(BadValue, match="no files in it"):
        scan(tmp_path)


@pytest.mark.parametrize("closed", ["", "train"])
def test_a_root_that_may_not_be_read_is_a_missing_part(
    open_path: Path, as_unprivileged: AsUnprivileged, closed: str
) -> None:
    """Permission is asked for, with exit code 3."""
    save(open_path / "train/c/a.jpg")
    (open_path / closed).chmod(0)
    try:
        with as_unprivileged(), pytest.raises(MissingPart):
            scan(open_path)
    finally:
        (open_path / closed).chmod(0o755)


def test_files_and_directories_that_may_not_be_read_are_skipped(
    open_path: Path, as_unprivileged: AsUnprivileged
) -> None:
    """The rest of the set is used."""
    save(open_path / "c/good.jpg")
    save(open_path / "c/secret.jpg").chmod(0)
    save(open_path / "private/a.jpg")
    (open_path / "private").chmod(0)
    try:
        with as_unprivileged():
            files = scan(open_path)
    finally:
        (open_path / "private").chmod(0o755)
    assert files.paths == ("c/good.jpg",)
    assert reasons(files) == {"private": "cannot be read: Permission denied", "c/secret.jpg": "no read permission"}

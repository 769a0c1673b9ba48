"""What loaders and storage see of a generated set."""

from __future__ import annotations

import io
import subprocess
import tarfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which

import numpy as np
import pytest
from PIL import Image

from loaderprobe.datasets.generate.generate import verify_set
from loaderprobe.datasets.generate.manifest import SetSpec
from loaderprobe.datasets.generate.pool import build_pool
from tests.datasets.conftest import Make, tree

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


def _djpeg(data: bytes) -> tuple[int, ...]:
    if which("djpeg") is None:
        pytest.skip("djpeg is not installed")
    done = subprocess.run(["djpeg", "-strict", "-pnm"], input=data, capture_output=True, check=True)
    assert done.stderr == b""
    return tuple(map(int, done.stdout.split()[1:3]))


DECODERS: dict[str, Callable[[bytes], tuple[int, ...]]] = {
    "pillow": lambda data: Image.open(io.BytesIO(data)).convert("RGB").size,
    "torchvision": _torchvision,
    "simplejpeg": lambda data: pytest.importorskip("simplejpeg").decode_jpeg(data, strict=True).shape[1::-1],
    "opencv": lambda data: pytest.importorskip("cv2").imdecode(np.frombuffer(data, np.uint8), 1).shape[1::-1],
    "djpeg": _djpeg,
}


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_takes_every_file_without_a_warning(
    files: list[bytes], name: str, capfd: pytest.CaptureFixture[str]
) -> None:
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
    told: list[tuple[int, int]] = []
    found = verify_set(directory, lambda *now: told.append(now))
    paths = [path.relative_to(directory).as_posix() for path in (flipped, lost, longer)]
    assert found.keys() == set(paths)
    assert "content" in found[paths[0]]
    assert "No such file" in found[paths[1]]
    assert "bytes, not" in found[paths[2]]
    assert told[-1] == (70, 70)
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

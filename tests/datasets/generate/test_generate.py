from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

from loaderprobe.datasets.generate import generate as module
from loaderprobe.datasets.generate.manifest import read_manifest
from loaderprobe.errors import BadValue
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.store.run_directory import lock_directory
from tests.datasets.conftest import Make, tree


def identities(directory: Path) -> dict[str, tuple[int, int]]:
    """What changes when an image is written again."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in directory.rglob("*.JPEG")}


def interrupt_at(done: int, error: BaseException) -> object:
    def progress(now: int, _total: int) -> None:
        if now >= done:
            raise error

    return progress


def test_any_number_of_processes_writes_the_same_bytes(tmp_path: Path, make: Make) -> None:
    """The set depends on its spec, not on how the work was shared."""
    assert tree(make(tmp_path / "one", processes=1)) == tree(make(tmp_path / "three", processes=3))


def test_another_seed_gives_other_images(tmp_path: Path, make: Make) -> None:
    """No image of one seed is an image of another."""
    sets = [make(tmp_path / str(seed), seed=seed, count=20) for seed in (0, 1)]
    ours, theirs = ({data for name, data in tree(made).items() if name.endswith(".JPEG")} for made in sets)
    assert len(ours) == len(theirs) == 20
    assert not ours & theirs


def test_names_and_classes_are_those_of_imagenet(tmp_path: Path, make: Make) -> None:
    """Image i lies in class i modulo the classes, as train/CLASS/CLASS_i.JPEG."""
    names = {name for name in tree(make(tmp_path, count=4)) if name.endswith(".JPEG")}
    assert names == {
        "train/n00000000/n00000000_0.JPEG",
        "train/n00000001/n00000001_1.JPEG",
        "train/n00000002/n00000002_2.JPEG",
        "train/n00000000/n00000000_3.JPEG",
    }


def test_the_manifest_has_size_and_digest_of_every_file(tmp_path: Path, make: Make) -> None:
    """Schema, version, spec, and for each file its size and its XXH3 digest."""
    directory = make(tmp_path)
    envelope = json.loads((directory / "manifest.json").read_bytes())
    assert (envelope["schema"], envelope["schema_version"]) == ("loaderprobe/image-set", SCHEMA_VERSION)
    manifest = read_manifest(directory)
    assert manifest is not None
    assert (manifest.spec.resolution, manifest.spec.seed, manifest.spec.classes, manifest.images) == ("64x48", 0, 3, 70)
    for number, (size, digest) in enumerate(zip(manifest.size_bytes, manifest.xxh3, strict=True)):
        data = (directory / manifest.spec.path(number)).read_bytes()
        assert (len(data), xxhash.xxh3_128_hexdigest(data)) == (size, digest)


def test_progress_counts_up_to_the_whole(tmp_path: Path, make: Make) -> None:
    """Progress never goes back, begins at what is there and ends at the count."""
    told: list[tuple[int, int]] = []
    make(tmp_path, progress=lambda *now: told.append(now))
    assert told == sorted(told)
    assert (told[0], told[-1]) == ((0, 70), (70, 70))


@pytest.mark.parametrize("count", [70, 12])
def test_a_complete_set_is_left_alone(tmp_path: Path, make: Make, count: int) -> None:
    """Asking again for as many images, or fewer, writes nothing at all."""
    before = {path: path.stat().st_mtime_ns for path in make(tmp_path).rglob("*")}
    directory = make(tmp_path, count=count, progress=interrupt_at(0, AssertionError("nothing is to be done")))
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before


def test_a_set_grows_without_touching_what_is_there(tmp_path: Path, make: Make) -> None:
    """An enlarged set equals one made at full size, and its first files were not written again."""
    before = identities(make(tmp_path / "grown"))
    grown = make(tmp_path / "grown", count=140, processes=2)
    assert before.items() <= identities(grown).items()
    assert tree(grown) == tree(make(tmp_path / "whole", count=140))


def test_a_growth_that_was_interrupted_leaves_the_smaller_set_whole(tmp_path: Path, make: Make) -> None:
    """Until the larger set is complete, the manifest is that of the smaller one."""
    directory = make(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, count=140, progress=interrupt_at(96, KeyboardInterrupt()))
    manifest = read_manifest(directory)
    assert manifest is not None
    assert manifest.images == 70


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_set_goes_on_where_it_was(tmp_path: Path, make: Make, processes: int) -> None:
    """After Ctrl-C there is no manifest and no half file; the next call keeps the images and makes the rest."""
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "cut", count=140, processes=processes, progress=interrupt_at(64, KeyboardInterrupt()))
    directory = tmp_path / "cut" / "64x48"
    kept = identities(directory)
    assert len(kept) >= 64
    assert not (directory / "manifest.json").exists()
    assert not list(directory.rglob("*.part"))
    make(tmp_path / "cut", count=140, processes=processes)
    assert kept.items() <= identities(directory).items()
    assert tree(directory) == tree(make(tmp_path / "whole", count=140))


def test_an_image_that_was_being_written_leaves_no_half_file(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of one file removes that file's first half."""

    def interrupted(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path)
    assert not list(tmp_path.rglob("*.part"))


def test_a_set_that_another_process_enlarged_meanwhile_does_not_shrink(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is looked at again under the lock."""

    @contextlib.contextmanager
    def late(directory: Path) -> Iterator[None]:
        monkeypatch.undo()
        make(tmp_path, count=140)
        with lock_directory(directory):
            yield

    monkeypatch.setattr(module, "lock_directory", late)
    manifest = read_manifest(make(tmp_path))
    assert manifest is not None
    assert manifest.images == 140


def test_files_that_no_record_names_are_made_again(tmp_path: Path, make: Make) -> None:
    """After a power failure a name can be there without its bytes: only the journal is believed."""
    directory = make(tmp_path)
    whole = tree(directory)
    (directory / "manifest.json").unlink()
    empty, zeroed = sorted(directory.rglob("*.JPEG"))[:2]
    empty.write_bytes(b"")
    zeroed.write_bytes(zeroed.read_bytes()[:700] + bytes(500))
    assert tree(make(tmp_path)) == whole


def test_the_pool_is_painted_once(tmp_path: Path, make: Make) -> None:
    """A set that goes on takes the saved base images; with changed ones it is refused."""
    directory = make(tmp_path)
    painted: list[tuple[int, int]] = []
    make(tmp_path, count=80, on_base_image=lambda *now: painted.append(now))
    assert painted == []
    other = make(tmp_path / "other", seed=1)
    (directory / "pool.npz").write_bytes((other / "pool.npz").read_bytes())
    with pytest.raises(BadValue, match="not the pool"):
        make(tmp_path, count=90)


def test_asking_for_fewer_keeps_what_a_larger_set_had(tmp_path: Path, make: Make) -> None:
    """An interrupted set of 200 is not thrown away for one of 10: files and journal stay, and it grows from there."""
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "cut", count=200, progress=interrupt_at(128, KeyboardInterrupt()))
    before = identities(tmp_path / "cut")
    small = make(tmp_path / "cut", count=10)
    manifest = read_manifest(small)
    assert manifest is not None
    assert manifest.images == 10
    grown = make(tmp_path / "cut", count=200)
    assert before.items() <= identities(grown).items()
    assert tree(grown) == tree(make(tmp_path / "whole", count=200))


@pytest.mark.parametrize("count", [5, 70])
def test_a_complete_set_is_repaired(tmp_path: Path, make: Make, count: int) -> None:
    """A file that is gone or cut short is made again, nothing else is touched, and the set does not shrink."""
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


def test_half_files_of_a_killed_process_are_removed(tmp_path: Path, make: Make) -> None:
    """A .part file of this set beyond the count that is asked now does not stay for ever."""
    directory = make(tmp_path)
    (directory / "manifest.json").unlink()
    part = directory / "train" / "n00000000" / ".n00000000_99.JPEG.part"
    part.write_bytes(b"half")
    make(tmp_path)
    assert not part.exists()


def test_a_set_with_fewer_images_than_classes_has_no_empty_class(tmp_path: Path, make: Make) -> None:
    """ImageFolder refuses a class without images."""
    directory = make(tmp_path, count=2, classes=10)
    assert len(list((directory / "train").iterdir())) == 2

"""Tar shards as WebDataset has them: of each sample NAME.jpg and NAME.cls, one after the other.

A worker reads a shard from its begin to its end, as a stream.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from loaderprobe.datasets.layouts import Sample, class_of, damage
from loaderprobe.errors import BadValue
from loaderprobe.records.files import IMAGE_SUFFIXES

BUFFER = 1 << 20
DAMAGE = (tarfile.TarError, EOFError, ValueError)  # the last for a class that is no number


def write(samples: Iterable[Sample], path: Path) -> None:
    """All else than names, images and classes is zero, so that the bytes depend on the samples alone."""
    with path.open("wb", buffering=BUFFER) as file:
        for sample in samples:
            for suffix, data in (("jpg", sample.image), ("cls", str(sample.label).encode())):
                # tarfile's own `addfile` takes as long as making the image.
                info = tarfile.TarInfo(f"{sample.name}.{suffix}")
                info.size, info.mode = len(data), 0o644
                file.write(info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE))
        # POSIX: two empty blocks end an archive, which is filled up to whole records.
        file.write(bytes(2 * tarfile.BLOCKSIZE))
        file.write(bytes(-file.tell() % tarfile.RECORDSIZE))


def _key(member: tarfile.TarInfo) -> str:
    """As WebDataset groups members: the path up to the first dot of its last part."""
    folder, slash, name = member.name.rpartition("/")
    return folder + slash + name.partition(".")[0]


def _suffix(member: tarfile.TarInfo) -> str:
    return Path(member.name).suffix.lower()


def samples_in(path: Path) -> Iterator[Sample]:
    """The samples of a shard, in their order. Raises BadValue for a damaged shard."""
    with damage(path, *DAMAGE), tarfile.open(path, mode="r|", bufsize=BUFFER) as tar:
        for key, members in groupby(filter(tarfile.TarInfo.isfile, tar), _key):
            image, label = b"", "0"
            for member in members:
                tar.members.clear()  # type: ignore[attr-defined]  # or it keeps all
                file, suffix = tar.extractfile(member), _suffix(member)
                if file is not None and suffix in IMAGE_SUFFIXES:
                    image = image or file.read()
                elif file is not None and suffix == ".cls":
                    label = file.read().decode().strip()
            if image:
                yield Sample(key, image, class_of(label))


class Reader:
    """Goes on in the shard that is open, as a stream does."""

    def __init__(self, root: Path) -> None:
        self._root, self._path, self._next = root, "", 0

    def read(self, path: str, position: tuple[int, int]) -> Sample:
        """Samples before it are read and dropped. Raises BadValue for a damaged shard."""
        if path != self._path or position[1] < self._next:
            self._path, self._next, self._samples = path, 0, samples_in(self._root / path)
        for sample in self._samples:
            self._next += 1
            if self._next > position[1]:
                return sample
        self._path = ""
        raise BadValue(
            f"{self._root / path} has fewer samples than it had", hint="begin a new run, which looks at the data again"
        )


def counts(path: Path) -> list[int]:
    """A block a shard."""
    with damage(path, *DAMAGE), tarfile.open(path) as tar:
        groups = groupby(filter(tarfile.TarInfo.isfile, tar), _key)
        return [sum(any(_suffix(file) in IMAGE_SUFFIXES and file.size for file in group) for _, group in groups)]

"""The files on planted disks."""

from __future__ import annotations

import random
from pathlib import Path


def random_files(folder: Path, *, count: int = 600, size_bytes: tuple[int, int] = (60_000, 180_000)) -> None:
    """Files of random bytes, named like photographs, in two folders named like classes."""
    chance = random.Random(0)
    for name in ("cats", "dogs"):
        (folder / name).mkdir()
    for number in range(count):
        data = chance.randbytes(chance.randint(*size_bytes))
        (folder / ("cats", "dogs")[number % 2] / f"{number:04}.jpg").write_bytes(data)


def files_of_one_request(folder: Path) -> None:
    """Files that FUSE reads in one request each, which is 128 KiB at most."""
    random_files(folder, size_bytes=(60_000, 128_000))

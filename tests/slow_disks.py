"""Disks that really are slow, planted once a session; a test that asks for one is skipped where none can be."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loaderprobe.testing.slow_disk import CannotPlant, SlowDisk, slow_disk

BYTES_PER_S = 20e6
LATENCY_S = 0.010

PlantDisk = Callable[..., SlowDisk]


def random_files(
    folder: Path, *, count: int = 600, size_bytes: tuple[int, int] = (60_000, 180_000), seed: int = 0
) -> None:
    """Files of random bytes, named like photographs, in two folders named like classes."""
    chance = random.Random(seed)
    for name in ("cats", "dogs"):
        (folder / name).mkdir()
    for number in range(count):
        data = chance.randbytes(chance.randint(*size_bytes))
        (folder / ("cats", "dogs")[number % 2] / f"{number:04}.jpg").write_bytes(data)


def files_of_one_request(folder: Path) -> None:
    """Files that FUSE reads in one request each, which is 128 KiB at most."""
    random_files(folder, size_bytes=(60_000, 128_000))


@pytest.fixture(scope="session")
def plant_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlantDisk]:
    """Plants slow disks that last as long as the session; takes the arguments of `slow_disk` but for `scratch`."""
    with ExitStack() as undo:

        def plant(**options: object) -> SlowDisk:
            options = {"fill": random_files, "scratch": tmp_path_factory.mktemp("slow-disk"), **options}
            try:
                return undo.enter_context(slow_disk(**options))  # type: ignore[arg-type]  # options by name, for brevity
            except CannotPlant as error:
                pytest.skip(str(error))

        yield plant


@pytest.fixture(scope="session")
def banked_disk(plant_disk: PlantDisk) -> SlowDisk:
    """20 MB/s, where idle time is credit: a block device wherever one can be had."""
    return plant_disk(kind="banked", bytes_per_s=BYTES_PER_S)


@pytest.fixture(scope="session")
def serial_disk(plant_disk: PlantDisk) -> SlowDisk:
    """20 MB/s, where idle time is lost."""
    return plant_disk(kind="serial", bytes_per_s=BYTES_PER_S)


@pytest.fixture(scope="session")
def latency_disk(plant_disk: PlantDisk) -> SlowDisk:
    """10 ms a request, and one request a file, however many readers there are."""
    return plant_disk(kind="latency", latency_s=LATENCY_S, fill=files_of_one_request)

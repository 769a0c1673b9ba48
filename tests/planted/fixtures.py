"""Disks that really are slow, planted once a session; a test that asks for one is skipped where none can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.planted.files import files_of_one_request, random_files
from tests.planted.slow_disk import CannotPlant, SlowDisk, slow_disk

BYTES_PER_S = 20e6
LATENCY_S = 0.010

PlantDisk = Callable[..., SlowDisk]


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
def token_bucket_disk(plant_disk: PlantDisk) -> SlowDisk:
    """20 MB/s, where idle time is credit: a block device wherever one can be had."""
    return plant_disk(kind="token_bucket", bytes_per_s=BYTES_PER_S)


@pytest.fixture(scope="session")
def single_server_disk(plant_disk: PlantDisk) -> SlowDisk:
    """20 MB/s, where idle time is lost."""
    return plant_disk(kind="single_server", bytes_per_s=BYTES_PER_S)


@pytest.fixture(scope="session")
def latency_disk(plant_disk: PlantDisk) -> SlowDisk:
    """10 ms a request, and one request a file, however many readers there are."""
    return plant_disk(kind="latency", latency_s=LATENCY_S, fill=files_of_one_request)

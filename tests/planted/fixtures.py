"""Disks that really are slow, planted once a session; a test that asks for one is skipped where none can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.planted.files import random_files
from tests.planted.slow_disk import CannotPlant, SlowDisk, slow_disk

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

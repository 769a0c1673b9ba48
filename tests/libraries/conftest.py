"""What holds for every library: it is diagnosed or refused with a hint, and gives the samples it gave without."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loaderprobe.api.diagnose import Diagnosis
from tests.api.conftest import Judge, _scripted_waits, _short_segments, judge
from tests.libraries.data import jpegs
from tests.said import all_said

__all__ = ["_scripted_waits", "_short_segments", "judge"]  # fixtures
Row = tuple[str, ...]
ROWS: list[Row] = []

Tried = Callable[..., Diagnosis]
EPOCHS = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Libraries warn of each other."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The rows of the guide's table, as they came out."""
    for row in ROWS:
        terminalreporter.write_line("| " + " | ".join(row) + " |")


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """64 JPEG files."""
    return jpegs(tmp_path_factory.mktemp("photos"))


def plain(batch: Any) -> Any:
    """A batch as lists, numbers and bytes."""
    if isinstance(batch, torch.Tensor | np.ndarray):
        return batch.tolist()
    if hasattr(batch, "items"):
        return {key: plain(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [plain(value) for value in batch]
    return batch


def seed() -> None:
    """All generators, as a training script does."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def epochs(loader: Any, between: Callable[[Any], Any]) -> Iterator[list[Any]]:
    """The samples of each epoch, after something was done with the loader."""
    for _ in range(EPOCHS):
        between(loader)
        yield [plain(batch) for batch in loader]


@pytest.fixture
def tried(judge: Judge) -> Iterator[Tried]:
    """Diagnoses the loader that `make` gives before each of two epochs, and holds it against one left alone."""
    count = len(ROWS)

    def run(make: Callable[[], Any], library: str, how: str) -> Diagnosis:
        found: list[Diagnosis] = []

        def diagnose(loader: Any) -> None:
            found.append(judge(loader, lambda batch: None, modes=("warm", "cached_samples", "no_transport")))

        seed()
        alone = list(epochs(make(), lambda loader: None))
        seed()
        judged = list(epochs(make(), diagnose))
        assert alone[0], "the loader gives nothing"
        assert judged == alone
        ROWS.append((library, version(library) if library else "", how, *row(found[0])))
        return found[0]

    yield run
    if len(ROWS) > count:
        gc.collect()  # files that a library leaves open warn in its own test, not in a later one


def row(found: Diagnosis) -> Row:
    """What was cold, what was measured by taking it away, what is estimated, and what was said of the loader."""
    speedups = {name: found.verdict.speedups[name] for name in ("storage", "preprocessing", "transport")}
    by = {
        how: [name for name, speedup in speedups.items() if speedup and speedup.how == how]
        for how in ("measured", "estimated")
    }
    missing = [
        f"{name} ({found.verdict.unavailable[f'speedups.{name}'].code})"
        for name, speedup in speedups.items()
        if speedup is None
    ]
    notes = all_said(found.detail.notes)
    said = [note for note in notes if "left out" in note or "no data" in note or "restored" in note]
    parts = (by["measured"], by["estimated"], missing)
    return (found.row.config.cache, *(", ".join(part) or "-" for part in parts), "; ".join(said) or "-")

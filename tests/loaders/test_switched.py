"""Any DataLoader driven from outside: modes, records, and workers that end."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader

from loaderprobe.errors import NoSpace
from loaderprobe.loaders import switched
from loaderprobe.loaders.switched import SwitchedLoader, dead_worker
from tests.api.samples import RawImages, raw_files


def _driven(folder: Path, workers: int) -> tuple[SwitchedLoader, list[str]]:
    """Batches of 4, each file named by its index."""
    paths = raw_files(folder / "data", 32)
    loader = DataLoader(RawImages(paths), batch_size=4, num_workers=workers)
    return SwitchedLoader(
        loader, folder, files_of=lambda indices: [Path(paths[i]) for i in indices], tied=False
    ), paths  # fmt: skip


def test_a_mode_holds_for_batches_not_yet_begun(tmp_path: Path) -> None:
    """With cached samples, one made before is returned; back in the baseline, batches are themselves again."""
    driven, _ = _driven(tmp_path, 0)
    with driven:
        batches = driven.batches()
        assert next(batches)[1].tolist() == [0, 1, 2, 3]
        driven.switch("cached_samples")
        assert next(batches)[1].tolist() == [0, 1, 2, 3]
        driven.switch("baseline")
        assert next(batches)[1].tolist() == [8, 9, 10, 11]
        assert driven.records().batch == (0, 1, 2)
        assert driven.records().images == (4, 4, 4)


def test_without_transport_a_count_is_sent(tmp_path: Path) -> None:
    """Once those made ahead are gone."""
    driven, _ = _driven(tmp_path, 1)
    with driven:
        batches = driven.batches()
        next(batches)
        driven.switch("no_transport")
        rest: list[Any] = list(batches)
        assert rest[-1] == 4
        assert driven.workers()
    assert driven.workers() == []


def test_files_that_are_gone_are_met_where_they_are_read(tmp_path: Path) -> None:
    """Cached samples read them as well."""
    driven, paths = _driven(tmp_path, 0)
    with driven:
        next(driven.batches())
        driven.switch("cached_samples")
        Path(paths[4]).unlink()
        with pytest.raises(FileNotFoundError):
            next(driven.batches())


def _ended(code: int | None) -> Any:
    return SimpleNamespace(pid=7, exitcode=code, sentinel=0, join=lambda _: None)


def test_the_exit_code_shows_what_ended_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bus errors are shared memory that has run out; a worker that lives is no trouble."""
    monkeypatch.setattr(switched, "wait", lambda sentinels, timeout: sentinels)
    found = dead_worker([_ended(None), _ended(-signal.SIGBUS)])
    assert isinstance(found, NoSpace)
    killed, ended = dead_worker([_ended(-signal.SIGKILL)]), dead_worker([_ended(3)])
    assert killed is not None
    assert ended is not None
    assert (killed.message, ended.message) == (
        "a loader worker (pid 7) was killed by SIGKILL", "a loader worker (pid 7) ended with code 3",
    )  # fmt: skip
    assert dead_worker([_ended(0), _ended(None)]) is None

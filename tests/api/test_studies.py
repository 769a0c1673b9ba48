"""Studies beside the verdicts, with real workers and real files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loaderprobe.api.study_child import study
from loaderprobe.measure import prefilled
from loaderprobe.measure.order import Order, Study
from loaderprobe.measure.pace import Pace
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.epochs import EpochsMeasured
from loaderprobe.records.files import FileSet
from loaderprobe.records.prefilled import Prefilled
from loaderprobe.system.device import locate

IMAGES, BATCH_SIZE = 96, 4


def order(photographs: FileSet, asked: Study) -> Order:
    files = replace(
        photographs, paths=photographs.paths[:IMAGES], classes=photographs.classes[:IMAGES],
        size_bytes=photographs.size_bytes[:IMAGES],
    )  # fmt: skip
    config = RunConfig(
        data=files.fingerprint,
        resolution=files.label,
        loader=LoaderSpec(workers=1, prefetch_factor=2),
        compute=ComputeSpec(name="emulated:100000", batch_size=BATCH_SIZE),
    )
    return Order(config=config, files=files, budget_s=None, begin_ns=0, study=asked, epochs=2)


def test_the_second_epoch_of_a_small_set_is_warm(photographs: FileSet, tmp_path: Path) -> None:
    """The first reads every byte from storage, where that is counted; both train on every image but the first few."""
    found = study(order(photographs, "epochs"), tmp_path, lambda *_: None)
    assert isinstance(found, EpochsMeasured)
    assert [each.images for each in found.epochs] == [IMAGES - BATCH_SIZE * (1 + 3), IMAGES]
    assert found.memory_bytes is not None and found.memory_bytes > found.set_bytes > sum(
        photographs.size_bytes[:IMAGES]
    )
    if not locate(photographs.folder).counts_reads:
        pytest.skip("the file system of the temporary directory does not count reads")
    first, second = (each.storage_bytes for each in found.epochs)
    assert first is not None and second is not None
    assert first >= 0.9 * found.epochs[0].delivered_bytes and second < 0.05 * found.epochs[1].delivered_bytes


def test_a_real_buffer_is_filled_and_used_up(
    photographs: FileSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches are there at once: the first iterations take no time of the loader's, the later ones do."""
    monkeypatch.setattr(prefilled, "STEADY", Pace(min_s=0.0, min_batches=4, max_s=0.1))
    found = study(order(photographs, "prefilled"), tmp_path, lambda *_: None)
    assert isinstance(found, Prefilled) and found.prefilled is not None, found
    waits = [ready - begin for begin, ready in zip(found.prefilled.begin_ns, found.prefilled.ready_ns, strict=True)]
    assert found.prefilled.steps == IMAGES // BATCH_SIZE - 5 and len(found.steady) == 2
    assert max(waits[:2]) < sum(waits[2:]) / len(waits[2:])

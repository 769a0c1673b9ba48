"""Studies beside the verdicts, with real workers and real files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loaderprobe.api.load import foreign_modules, judge_run
from loaderprobe.api.policy import JUDGING
from loaderprobe.measure import studies
from loaderprobe.measure.child import study
from loaderprobe.measure.runner import Order
from loaderprobe.measure.segments import Pace
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig, Study
from loaderprobe.records.files import FileSet
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.studies import Epoch, EpochsMeasured, Prefilled
from loaderprobe.store.run_directory import RunDirectory
from tests.skips import needs_cold_reads
from tests.stored import MEASUREMENTS, plain_run

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
    found = study(order(photographs, "epochs"), tmp_path, lambda *_: None, JUDGING)
    assert isinstance(found, EpochsMeasured)
    assert [each.images for each in found.epochs] == [IMAGES - BATCH_SIZE * (1 + 3), IMAGES]
    assert found.memory_bytes is not None and found.memory_bytes > found.set_bytes > sum(
        photographs.size_bytes[:IMAGES]
    )
    needs_cold_reads(photographs.folder)
    first, second = (each.storage_bytes for each in found.epochs)
    assert first is not None and second is not None
    assert first >= 0.9 * found.epochs[0].delivered_bytes and second < 0.05 * found.epochs[1].delivered_bytes


def test_a_real_buffer_is_filled_and_used_up(
    photographs: FileSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches are there at once: the first iterations take no time of the loader's, the later ones do."""
    monkeypatch.setattr(studies, "STEADY", Pace(min_s=0.0, min_batches=4, max_s=0.1))
    found = study(order(photographs, "prefilled"), tmp_path, lambda *_: None, JUDGING)
    assert isinstance(found, Prefilled) and found.prefilled is not None, found
    waits = [ready - begin for begin, ready in zip(found.prefilled.begin_ns, found.prefilled.ready_ns, strict=True)]
    assert found.prefilled.steps == IMAGES // BATCH_SIZE - 5 and len(found.steady) == 2
    assert max(waits[:2]) < sum(waits[2:]) / len(waits[2:])


def test_a_stored_study_is_in_the_report(tmp_path: Path) -> None:
    """In the row of its configuration; a damaged file is named, and only what it holds is missing."""
    run = plain_run(tmp_path / "run")
    config = MEASUREMENTS[1].config
    refused = Prefilled(config=config, started_utc="", reason=reported("it rained"))
    epoch = Epoch(images=1000, wall_s=2.0, delivered_bytes=100, storage_bytes=50)
    run.save_study("prefilled", refused)
    run.save_study(
        "epochs",
        EpochsMeasured(
            config=config, started_utc="", set_bytes=100, memory_bytes=60, resident_before=0.0, epochs=(epoch,)
        ),
    )
    row = rows(run)[config.key]
    assert row.buffer is not None and row.buffer.reason == reported("it rained")
    assert row.epochs is not None and row.epochs.fit == "fits in part"
    assert (row.epochs.epochs[0].images_per_s, row.epochs.epochs[0].cold_fraction) == (500.0, 0.5)
    (run.path / "epochs" / f"{config.key}.json").write_text("{")
    assert rows(run)[config.key].epochs is None
    (damaged,) = judge_run(run).summary.run.damaged
    assert damaged.file == f"epochs/{config.key}.json"


def rows(run: RunDirectory) -> dict[str, ConfigurationRow]:
    return {row.key: row for row in judge_run(run).summary.configurations}


def test_what_a_budget_left_is_said(tmp_path: Path) -> None:
    """Epochs that were asked for have no row of their own that could be pending."""
    run = plain_run(tmp_path / "run")
    asked = replace(run.record, spec=replace(run.record.spec, configs=(MEASUREMENTS[1].config,), epochs=2))
    row = rows(RunDirectory(run.path, asked))[MEASUREMENTS[1].config.key]
    assert row.epochs is not None and row.epochs.reason == Remark(code="study_left")
    assert foreign_modules(RunDirectory(run.path, asked)) == ()

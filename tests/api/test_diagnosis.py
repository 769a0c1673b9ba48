"""What results say: a diagnosis and how it shows itself, the frames of a stored run, studies beside its verdicts."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import loaderprobe
from loaderprobe.api.diagnose import Diagnosis, diagnosis
from loaderprobe.api.load import judge_run
from loaderprobe.api.sweep import foreign_modules
from loaderprobe.errors import DamagedRun, MissingPart
from loaderprobe.measure.child import study
from loaderprobe.measure.pace import Pace
from loaderprobe.measure.runner import Order
from loaderprobe.measure.user.loader import data_found
from loaderprobe.records.config import Study
from loaderprobe.records.diagnosis import BatchFiles, DataFound, OwnMeasured, UnknownFiles, UnknownFilesCode
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.resources import SPEEDUPS
from loaderprobe.records.studies import Epoch, EpochsMeasured, Prefilled
from loaderprobe.records.waits import CodePlace, StackSamples
from loaderprobe.render.sweep import report_columns
from loaderprobe.render.words import action_words
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.testing import example_config
from tests.analyze.runs import BATCH, STEPS, Cost, alike
from tests.analyze.runs import run as scripted
from tests.analyze.scripted import Truth, measured
from tests.conftest import needs_cold_reads
from tests.examples.bandwidth import example_phase
from tests.said import all_said, quoted
from tests.stored import FAILED, MEASUREMENTS, PENDING, RUNS, plain_run

SEEN = DataFound(hidden=None, size_bytes=1e9, root="/data/photos/train")
LOADER: Any = SimpleNamespace(dataset=range(10))


def _found(data: DataFound = SEEN, **changes: Any) -> Diagnosis:
    """Of workers that mostly wait for a slow disk."""
    return _of(replace(SLOW_DISK, **changes), data)


def _of(raw: Measurement, data: DataFound = SEEN, ceiling: StorageCeiling | None = None) -> Diagnosis:
    return diagnosis(OwnMeasured(config=raw.config, measurement=raw, data=data, ceiling=ceiling), "a command")


def test_it_says_what_limits_and_by_how_much() -> None:
    """In one word each for side and cause, in a sentence, and in figures."""
    found = _found()
    assert (found.bound.side, found.bound.cause) == ("input", "storage")
    assert found.bound.reason.code == "largest_speedup"
    assert found.headline().startswith("Input-bound by storage: training reaches ")
    storage, without = found.verdict.speedups["storage"], found.verdict.rates_images_per_s.loader_without["storage"]
    assert storage is not None and storage.value == pytest.approx((without or 0) / 200, rel=0.05)
    assert found.verdict.images_per_s.value == pytest.approx(200, rel=0.05)
    assert repr(found) == f"<Diagnosis: {found.headline()}>"
    plain = found.to_dict()
    assert plain.items() <= json.loads(found.json()).items() and not {"measurement", "ceiling"} & {*plain}
    odd = _found(notes=(quoted("a [bold]note[/bold] from \x1b[31m[/data]"),))
    out = io.StringIO()
    Console(file=out, width=50).print(odd)
    assert max(map(len, out.getvalue().splitlines())) <= 50 and "\x1b" not in out.getvalue()
    assert "[bold]note[/bold]" in " ".join(out.getvalue().split())
    # Most of the time may be in functions that each have too little of it to show.
    functions = tuple(CodePlace(f"function{number}", "train.py", number, "") for number in range(60))
    counts, stacks = (41, *[1] * 59), tuple((number,) for number in range(60))
    seen = StackSamples(functions=functions, stacks=stacks, counts=counts, cpu_ns=0)
    assert "it calls, from 2.0 %; 59 % is in functions that are not shown; total" in _found(stacks=seen).text(width=300)


def test_rates_that_do_not_agree_are_explained() -> None:
    """Training above its prediction, and a rate above the limit of the cores; a cause that leads has its range."""
    rounds = alike(training=240.0, baseline=180.0, warm=1620.0, cached_samples=182.0, no_transport=181.0)
    apart = _of(scripted(rounds, Cost(blocked_s=0.007), facts={"cores_available": 4.0})).text(width=200)
    together = _found().text(width=200)
    for said in ("Training ran at 133 % of what the loader alone and compute predict", "what is free takes no core"):
        assert said in apart and said not in together
    assert "How sure: ■■■ high, one cause leads (9.0x), 3 rounds" in apart


@pytest.mark.parametrize(("training", "share"), [(200.0, "100 %"), (240.0, "120 %")])
def test_training_above_compute_alone_is_noise(training: float, share: str) -> None:
    """It is the share that the figures have."""
    found = _of(scripted(alike(training=training, resident=200.0, warm=1620.0), Cost()))
    noise = ": more than 100 % is noise" if training > 200 else ""
    assert f"images/s, {share} of compute alone (200){noise}." in found.text(width=200)


SLOW_DISK = measured(Truth(bytes_per_s=20e6, cpu_s=0.0038, compute=900.0), 2)
BALANCED = scripted(
    alike(baseline=200.0, warm=201.0, cached_samples=202.0, no_transport=201.0, training=198.0, resident=203.0), Cost()
)
WARM = scripted(alike(baseline=200.0, warm=220.0, training=195.0, resident=900.0), Cost(cold=0.0), workers=2)
UNKNOWN_COMPUTE = replace(SLOW_DISK, compute=replace(SLOW_DISK.compute, specified_images_per_s=None))
STARTS: list[tuple[float, Measurement, str, str]] = [
    (0.5, SLOW_DISK, "input storage", "15 % of the emulated accelerator; if storage were free, it would be 1.70 "),
    (1.0, SLOW_DISK, "input either wait storage", "They are 2.00x (estimated) and 1.45x."),
    (4.0, SLOW_DISK, "input wait", "4.4 % of the emulated accelerator; if other waits were free, it would be 5.00 "),
    (0.8, BALANCED, "inconclusive inconclusive", "the speed-up if other waits were free (1.80) is only estimated, "),
    (4.0, WARM, "input inconclusive", "0 % of the bytes came from storage"),
    (4.0, UNKNOWN_COMPUTE, "input wait", "training runs at 40.0 images/s; if other waits were free, it would be 5.00 "),
]


@pytest.mark.parametrize(("start_s", "raw", "bound", "says"), STARTS)
def test_the_start_of_workers_in_each_epoch_is_a_wait(start_s: float, raw: Measurement, bound: str, says: str) -> None:
    """Beside an epoch of 1 s. All rates of training have it, and what costs nothing gains less beside it."""
    note = Remark(code="workers_start_each_epoch", facts={"start_s": start_s, "epoch_s": 1.0})
    found, within = _of(replace(raw, notes=(note,))), _of(raw)
    assert " ".join((found.bound.side, found.bound.cause, *found.bound.candidates)) == bound
    assert says in found.headline()
    rate, now = found.verdict.images_per_s, within.verdict.images_per_s
    assert rate.value == found.bound.reason.facts["images_per_s"] == pytest.approx(now.value / (1 + start_s))
    free, gains = ({name: each.verdict.speedups[name] for name in SPEEDUPS} for each in (within, found))
    expected = {name: (1 + start_s) / (1 / gain.value + start_s) for name, gain in free.items() if gain}
    assert {name: gain.value for name, gain in gains.items() if gain} == pytest.approx(expected | {"wait": 1 + start_s})
    assert "speedups.wait" not in found.verdict.unavailable
    # A single start may be off by a factor of 2.
    assert rate.low == pytest.approx(1 / (1 / now.low + 2 * start_s / now.value))
    assert rate.high == pytest.approx(1 / (1 / now.high + start_s / 2 / now.value))
    assert found.verdict.advice[0].how == gains["wait"].how == "estimated"  # type: ignore[union-attr]  # it has a value
    for advice in found.verdict.advice:
        assert advice.before == rate and advice.after.value == pytest.approx(rate.value * advice.speedup, rel=0.02)
    assert found.verdict.advice[0].action.code == "persistent_workers"
    assert found.text() and found.html()


def test_a_result_of_the_first_version_is_judged_again(tmp_path: Path) -> None:
    """What its measurement does not have is taken from its notes and advice; kept again, it is of today's version."""
    tree = json.loads((RUNS / "run" / "result.json").read_text())
    tree["notes"].append({"code": "script_paused", "facts": {"paused_s": 3.0}})
    action = {"code": "files_in_memory", "facts": {"share": 1.0, "bytes": 5e6}}
    tree["advice"] = [{"action": action, "command": "find '/data/a b' -type f"}]
    (tmp_path / "first.json").write_text(json.dumps(tree))
    found = Diagnosis.load(tmp_path / "first.json")
    assert [note.code for note in found.detail.notes].count("script_paused") == 1
    assert (found.data.root, found.data.size_bytes, found.data.hidden) == ("/data/a b", 5e6, None)
    again = Diagnosis.load(found.save(tmp_path / "again").parent)
    assert again == found and again.text() == found.text()
    tree["advice"] = [{"action": action, "command": "find '/data"}]
    (tmp_path / "first.json").write_text(json.dumps(tree))
    with pytest.raises(DamagedRun, match="is damaged"):
        Diagnosis.load(tmp_path / "first.json")


CODES: tuple[UnknownFilesCode, ...] = ("none_seen", "opened_below_python", "read_in_parts", "read_beside", "too_large")


@pytest.mark.parametrize("code", CODES)
def test_unknown_files_are_a_note_with_its_reason(code: UnknownFilesCode) -> None:
    """They could not be made cold, so no figure of storage is measured."""
    hidden = UnknownFiles(code=code)
    seen = data_found(LOADER, files=hidden)
    assert (seen.hidden, seen.size_bytes, seen.root, seen.samples) == (hidden, None, "", 10)
    assert "files_hidden" in {note.code for note in _found(seen).detail.notes}
    assert "files_hidden" not in {note.code for note in _found().detail.notes}
    assert "no files read" in str(_found(data_found(LOADER, files=UnknownFiles(code="none_read"))))


def test_a_data_set_that_fits_in_memory_may_be_warm_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note gives the rate that then applies; there is none for a larger one."""
    monkeypatch.setattr("loaderprobe.system.environment.memory_bytes", lambda: 2_000_000_000)
    found = _found()
    note = next(note for note in all_said(found.detail.notes) if "fits in memory" in note)
    assert "1.00 GB" in note
    assert f"{found.verdict.rates_images_per_s.loader_without['storage']:.0f} images/s" in note
    large = _found(DataFound(hidden=None, size_bytes=1e10, root="/data/photos/train"))
    assert not any("memory" in note for note in all_said(large.detail.notes))
    assert any("pin 14 % of the files in memory" in action_words(advice.action) for advice in large.row.advice)


def test_what_is_read_ahead_in_vain_and_what_a_small_set_finds_is_said() -> None:
    """Twelve times the bytes of a sample: the range of a larger set's rate, and of this one's first epoch. Where
    nothing is read in vain, neither is said. 2000 samples of 100 kB from 20 MB/s take 10 s."""
    truth = Truth(bytes_per_s=20e6, cpu_s=0.004, compute=9000.0)
    raw = measured(truth, 2)
    batches = replace(raw.worker_batches, read_bytes=tuple(12 * each for each in raw.worker_batches.read_bytes))
    parts = replace(raw, access="parts", sample_bytes=truth.bytes_per_image, worker_batches=batches)
    kind = truth.storage()
    assert kind is not None
    ceiling = replace(kind, phases=(replace(example_phase(2, 20e6), cache="cold"),))
    seen = DataFound(hidden=None, size_bytes=None, root="", samples=2000)
    notes = {note.code: note.facts for note in _of(parts, seen, ceiling).detail.notes}
    assert notes["read_ahead"]["amplification"] == pytest.approx(12, rel=0.01)
    assert notes["read_ahead"]["low_per_s"] < notes["read_ahead"]["high_per_s"]  # type: ignore[operator]
    small = notes["small_set"]
    later = float(small["memory_per_s"])
    assert small["within_s"] == pytest.approx(10)
    assert small["low_per_s"] == pytest.approx(2000 / (10 + 2000 / later))
    assert small["high_per_s"] == pytest.approx(2000 / max(10, 2000 / later))
    plain = replace(raw, access="parts", sample_bytes=truth.bytes_per_image)
    found = _of(plain, seen, ceiling)
    assert not {"read_ahead", "small_set"} & {note.code for note in found.detail.notes}


def test_no_advice_to_read_a_folder_that_may_hold_anything() -> None:
    """The command that warms files names a folder of the data, or is not given."""
    for second, root, size_bytes in (("/data/b/2", "", 10), ("/data/a/2", "/data/a", 10)):
        sizes = {"/data/a/1": 1, second: 1}
        files = BatchFiles(batch_size=1, paths=tuple((path,) for path in sizes), file_bytes=sizes)
        found = data_found(LOADER, files)
        assert (found.root, found.size_bytes) == (root, size_bytes)
    shallow = _found(DataFound(hidden=None, size_bytes=1e9, root=""))
    assert not any("find" in advice.command for advice in shallow.row.advice)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> loaderprobe.Run:
    """Two configurations measured, one failed, one still to be measured."""
    return loaderprobe.load(plain_run(tmp_path_factory.mktemp("stored") / "run").path)


def test_the_frame_has_a_row_a_configuration(run: loaderprobe.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the columns of the CSV; figures are numbers, with NaN where there is none. Pandas may be a missing part."""
    assert repr(run).startswith("<Run: ") and str(run.path) in repr(run)
    found = run.to_frame()
    assert list(found.columns) == list(report_columns(run.report()))
    assert list(found["key"]) == [*(each.config.key for each in MEASUREMENTS), FAILED.key, PENDING.key]
    assert found["images_per_s"].dtype == float
    assert list(found["images_per_s"].isna()) == [False, False, True, True]
    row = run.report().configurations[0]
    assert row.images_per_s and found["images_per_s"].iloc[0] == row.images_per_s.value
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPart, match="pandas"):
        run.to_frame()


def test_steps_are_the_raw_times_of_every_segment(run: loaderprobe.Run) -> None:
    """One row a step, in seconds since the first segment; the parts are differences of what was stamped."""
    steps = run.steps()
    segments = [segment for each in MEASUREMENTS for segment in each.segments]
    assert len(steps) == STEPS * len(segments)
    assert set(steps["key"]) == {each.config.key for each in MEASUREMENTS}
    assert set(steps["mode"]) == {"baseline", "warm"} and set(steps["activity"]) == {"loader_only", "training"}
    first = steps.iloc[:STEPS]
    begin = [ns / 1e9 for ns in segments[0].begin_ns]
    assert list(first["begin_at_s"]) == pytest.approx(begin)
    assert list(first["batch"]) == list(range(STEPS)) and set(first["images"]) == {BATCH}
    assert first["iteration_s"].sum() == pytest.approx(segments[0].closed_ns / 1e9)
    # The loader alone runs no step on a device.
    alone = steps["activity"] == "loader_only"
    assert steps.loc[alone, "device_end_at_s"].isna().all() and steps.loc[~alone, "device_end_at_s"].notna().all()


def test_batches_are_what_workers_recorded(run: loaderprobe.Run) -> None:
    """One row a batch, with its worker, and the mode of the segment that it served."""
    batches = run.batches()
    records = MEASUREMENTS[1].worker_batches
    own = batches[batches["key"] == MEASUREMENTS[1].config.key]
    assert list(own["worker"]) == list(records.worker)
    assert list(own["wall_s"]) == pytest.approx([ns / 1e9 for ns in records.wall_ns])
    assert list(own["read_bytes"]) == list(records.read_bytes)
    modes = [segment.mode for segment in MEASUREMENTS[1].segments for _ in range(segment.steps)]
    assert list(own["mode"]) == modes
    assert own["collate_s"].isna().all(), "was not recorded in this run"


IMAGES, BATCH_SIZE = 96, 4


def order(photographs: FileSet, asked: Study) -> Order:
    files = photographs.chosen(range(IMAGES))
    config = example_config(data=files.fingerprint, workers=1, compute="emulated:100000", batch_size=BATCH_SIZE)
    return Order(config=config, files=files, budget_s=None, begin_ns=0, study=asked, epochs=2)


def test_the_second_epoch_of_a_small_set_is_warm(photographs: FileSet, tmp_path: Path) -> None:
    """The first reads every byte from storage, where that is counted; both train on every image but the first few."""
    found = study(order(photographs, "epochs"), tmp_path, lambda *_: None)
    assert isinstance(found, EpochsMeasured)
    assert [each.images for each in found.epochs] == [IMAGES - BATCH_SIZE * (1 + 3), IMAGES]
    assert found.memory_bytes and found.memory_bytes > found.set_bytes > sum(photographs.size_bytes[:IMAGES])
    needs_cold_reads(photographs.folder)
    first, second = (each.storage_bytes for each in found.epochs)
    assert first is not None and second is not None
    assert first >= 0.9 * found.epochs[0].delivered_bytes and second < 0.05 * found.epochs[1].delivered_bytes


def test_a_buffer_is_filled_and_used_up(photographs: FileSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batches are there at once: the first iterations take no time of the loader's, the later ones do."""
    monkeypatch.setattr("loaderprobe.measure.study.STEADY", Pace(min_s=0.0, min_batches=4, max_s=0.1))
    found = study(order(photographs, "prefilled"), tmp_path, lambda *_: None)
    assert isinstance(found, Prefilled) and found.prefilled is not None, found
    waits = [ready - begin for begin, ready in zip(found.prefilled.begin_ns, found.prefilled.ready_ns, strict=True)]
    assert found.prefilled.steps == IMAGES // BATCH_SIZE - 5 and len(found.steady) == 2
    assert max(waits[:2]) < sum(waits[2:]) / len(waits[2:])


def test_a_stored_study_is_in_the_report(tmp_path: Path) -> None:
    """In the row of its configuration; a damaged file is named, and only what it holds is missing."""
    run = plain_run(tmp_path / "run")
    config = MEASUREMENTS[1].config
    refused = Prefilled(config=config, reason=reported("it rained"))
    epoch = Epoch(images=1000, wall_s=2.0, delivered_bytes=100, storage_bytes=50)
    run.save_study("prefilled", refused)
    epochs = EpochsMeasured(config=config, set_bytes=100, memory_bytes=60, epochs=(epoch,))
    run.save_study("epochs", epochs)
    row = rows(run)[config.key]
    assert row.buffer is not None and row.buffer.reason == reported("it rained")
    assert row.epochs is not None and row.epochs.fit == "fits in part"
    assert (row.epochs.epochs[0].images_per_s, row.epochs.epochs[0].cold_fraction) == (500.0, 0.5)
    (run.path / "epochs" / f"{config.key}.json").write_text("{")
    assert rows(run)[config.key].epochs is None
    (damaged,) = judge_run(run).run.damaged
    assert damaged.file == f"epochs/{config.key}.json"


def rows(run: RunDirectory) -> dict[str, ConfigurationRow]:
    return {row.key: row for row in judge_run(run).configurations}


def test_what_a_budget_left_is_said(tmp_path: Path) -> None:
    """Epochs that were asked for have no row of their own that could be pending."""
    run = plain_run(tmp_path / "run")
    asked = replace(run.record, spec=replace(run.record.spec, configs=(MEASUREMENTS[1].config,), epochs=2))
    row = rows(RunDirectory(run.path, asked))[MEASUREMENTS[1].config.key]
    assert row.epochs is not None and row.epochs.reason == Remark(code="study_left")
    assert foreign_modules(RunDirectory(run.path, asked)) == ()

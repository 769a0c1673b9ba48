"""What a diagnosis says, and how it shows itself: on a screen, in a notebook, as data."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from loaderprobe.analyze.judge import verdict
from loaderprobe.api.diagnose import Diagnosis, conclude
from loaderprobe.measure.own.loader import data_found
from loaderprobe.records.diagnosis import DataFound
from loaderprobe.records.files import BatchFiles, UnknownFiles, UnknownFilesCode
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth
from tests.examples.bandwidth import example_phase
from tests.said import all_said, quoted

SEEN = DataFound(hidden=None, size_bytes=1e9, root="/data/photos/train")


def _found(data: DataFound = SEEN, with_step: bool = True, **changes: Any) -> Diagnosis:
    """Of workers that mostly wait for a slow disk."""
    raw = replace(measured(Truth(bytes_per_s=20e6, cpu_s=0.0038, compute=900.0), 2), **changes)
    return conclude(raw, verdict(raw), data, with_step)


def test_it_says_what_limits_and_by_how_much() -> None:
    """In one word each for side and cause, in a sentence, and in figures."""
    found = _found()
    assert (found.side, found.cause) == ("input", "storage")
    assert found.reason.code == "largest_speedup"
    assert found.sentence.startswith("Input-bound by storage: training reaches ")
    assert found.speedups.storage is not None
    assert found.speedups.storage.value == pytest.approx((found.ceilings.loader_without_storage or 0) / 200, rel=0.05)
    assert found.images_per_s.value == pytest.approx(200, rel=0.05)
    assert repr(found) == f"<Diagnosis: {found.sentence}>"
    plain = found.to_dict()
    assert (plain["schema"], plain["schema_version"]) == ("loaderprobe/diagnosis", 1) and "measurement" not in plain
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    odd = replace(found, notes=(quoted("a [bold]note[/bold] from \x1b[31m[/data]"),))
    out = io.StringIO()
    Console(file=out, width=50).print(odd)
    assert max(map(len, out.getvalue().splitlines())) <= 50 and "\x1b" not in out.getvalue()
    assert "[bold]note[/bold]" in " ".join(out.getvalue().split())


CODES: tuple[UnknownFilesCode, ...] = ("none_seen", "opened_below_python", "read_in_parts", "read_beside")


@pytest.mark.parametrize("code", CODES)
def test_unknown_files_are_a_note_with_its_reason(code: UnknownFilesCode) -> None:
    """They could not be made cold, so no figure of storage is measured."""
    hidden = UnknownFiles(code=code)
    seen = data_found(_Loader(10), files=hidden)
    assert (seen.hidden, seen.size_bytes, seen.root, seen.samples) == (hidden, None, "", 10)
    assert "files_hidden" in {note.code for note in _found(seen).notes}
    assert "files_hidden" not in {note.code for note in _found().notes}


def test_samples_and_what_runs_without_a_step_are_called_so() -> None:
    """In sentence, advice, evidence and notes, but not in what is to be typed."""
    found = _found(DataFound(hidden=None, size_bytes=1e9, root="/data/images"), images=False)
    shown = f"{found}{found._repr_html_()}"
    assert "samples/s" in shown and "image" not in shown.replace("/data/images", "")
    alone = _found(with_step=False)
    assert alone.images_per_s.value == pytest.approx(alone.ceilings.loader)
    assert not any("accelerator" in advice.sentence for advice in alone.advice)
    assert not any("compute" in each.metric or "accelerator" in each.metric for each in alone.evidence)


def test_a_data_set_that_fits_in_memory_may_be_warm_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note gives the rate that then applies; there is none for a larger one."""
    monkeypatch.setattr("loaderprobe.api.diagnose.memory_bytes", lambda: 2_000_000_000)
    found = _found()
    note = next(note for note in all_said(found.notes) if "fits in memory" in note)
    assert "1.00 GB" in note
    assert f"{found.ceilings.loader_without_storage:.0f} images/s" in note
    large = _found(DataFound(hidden=None, size_bytes=1e10, root="/data/photos/train"))
    assert not any("memory" in note for note in all_said(large.notes))
    assert any("pin 14 % of the files in memory" in advice.sentence for advice in large.advice)


def test_what_is_read_ahead_in_vain_and_what_a_small_set_finds_is_said() -> None:
    """Twelve times the bytes of a sample: the range of a larger set's rate, and of this one's first epoch.

    Where nothing is read in vain, neither is said. 2000 samples of 100 kB from 20 MB/s take 10 s.
    """
    truth = Truth(bytes_per_s=20e6, cpu_s=0.004, compute=9000.0)
    raw = measured(truth, 2)
    batches = replace(raw.worker_batches, read_bytes=tuple(12 * each for each in raw.worker_batches.read_bytes))
    parts = replace(raw, access="parts", sample_bytes=truth.bytes_per_image, worker_batches=batches)
    kind = truth.storage().ceiling
    assert kind is not None
    ceiling = replace(kind, phases=(replace(example_phase(2, 20e6), cache="cold"),))
    seen = DataFound(hidden=None, size_bytes=None, root="", samples=2000)
    notes = {
        note.code: note.facts for note in conclude(parts, verdict(parts, ceiling), seen, True, ceiling=ceiling).notes
    }
    assert notes["read_ahead"]["amplification"] == pytest.approx(12, rel=0.01)
    assert notes["read_ahead"]["low_per_s"] < notes["read_ahead"]["high_per_s"]  # type: ignore[operator]
    small = notes["small_set"]
    later = float(small["memory_per_s"])
    assert small["within_s"] == pytest.approx(10)
    assert small["low_per_s"] == pytest.approx(2000 / (10 + 2000 / later))
    assert small["high_per_s"] == pytest.approx(2000 / max(10, 2000 / later))
    plain = replace(raw, access="parts", sample_bytes=truth.bytes_per_image)
    found = conclude(plain, verdict(plain, ceiling), seen, True, ceiling=ceiling)
    assert not {"read_ahead", "small_set"} & {note.code for note in found.notes}


def test_what_the_storage_gives_alone_is_printed_and_heeded() -> None:
    """Beside what is read here. The advice knows it, too: of a bucket of 20 MB/s, a faster one is advised."""
    truth = Truth(bytes_per_s=20e6, cpu_s=0.0038, compute=900.0)
    raw, kind = measured(truth, 2), truth.storage().ceiling
    assert kind is not None
    ceiling = replace(kind, phases=(replace(example_phase(2, 2e9), cache="cold"),))
    found, slow = (conclude(raw, verdict(raw, each), SEEN, True, ceiling=each) for each in (ceiling, kind))
    (note,) = [each for each in found.notes if each.code == "storage_alone"]
    # With what is read ahead beside it, as what is read here has it, too.
    assert note.facts["alone_bytes_per_s"] == pytest.approx(2.04e9) and note.facts["readers"] == 2
    assert "faster_storage" in {each.action.code for each in slow.advice}
    assert "faster_storage" not in {each.action.code for each in found.advice}


def test_no_advice_to_read_a_folder_that_may_hold_anything() -> None:
    """The command that warms files names a folder of the data, or is not given."""
    files = BatchFiles(
        batch_size=1,
        paths=(("/data/a/1.raw",), ("/data/b/2.raw",)),
        file_bytes={"/data/a/1.raw": 1, "/data/b/2.raw": 1},
    )
    assert data_found(_Loader(10), files).root == ""
    deep = replace(
        files, paths=(("/data/a/1.raw",), ("/data/a/2.raw",)), file_bytes={"/data/a/1.raw": 1, "/data/a/2.raw": 1}
    )
    assert (data_found(_Loader(10), deep).root, data_found(_Loader(10), deep).size_bytes) == ("/data/a", 10)
    shallow = _found(DataFound(hidden=None, size_bytes=1e9, root=""))
    assert not any("find" in advice.command for advice in shallow.advice)


class _Loader:
    def __init__(self, count: int) -> None:
        self.dataset = range(count)

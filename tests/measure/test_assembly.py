"""What is looked at before anything is measured: parts and their options, data sets, and what this machine permits."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure import capabilities
from loaderprobe.measure.assembly import alternatives, check_parts
from loaderprobe.measure.batch_size import Meter, with_readings
from loaderprobe.measure.image_data import image_sets
from loaderprobe.protocols import ComputeArguments
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Missing, Others
from loaderprobe.records.remark import Remark, reported
from loaderprobe.render.doctor import step_words, why_words
from loaderprobe.render.words import remark_words
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import (
    FakeClock,
    FakePageCache,
    ProfiledCompute,
    ScriptedLoader,
    Service,
    example_config,
    example_files,
)
from tests.batch_sizes import ScriptedProber
from tests.fakes import example_location


class Plain(ProfiledCompute):
    """A compute that has no `check`, as an outsider's may."""

    def __init__(self, arguments: ComputeArguments) -> None:
        self.arguments = arguments
        super().__init__(FakeClock(), 0.01)


class PlainLoader(ScriptedLoader):
    """A loader that knows no other ways to make its samples."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        super().__init__(config, files, FakeClock(), FakePageCache(), Service(cpu_s=0.001))


PLAIN = f"{__name__}:Plain"


@pytest.mark.parametrize(
    ("compute", "options", "words"),
    [
        ("emulated:1000", {"precision": "bf16"}, "precision does not apply to emulated:1000"),
        ("emulated:1000", {"compile": True, "pin_memory": False}, "compile and pin_memory do not apply"),
        ("cpu", {"side_stream": True}, "side_stream needs a GPU"),
        ("cpu", {"gpu_decode": True, "pin_memory": False}, "pin_memory and gpu_decode need a GPU"),
        ("cpu", {"precision": "tf32"}, "precision tf32 needs a GPU"),
        ("cuda", {"gpu_decode": True, "side_stream": True}, "leave out side_stream"),
        ("cuda", {"gpu_decode": True, "decoder": "torchvision"}, "gpu_decode"),
        ("cuda", {"gpu_decode": True, "pipeline": "crop"}, "gpu_decode"),
        ("cuda:first", {}, "'first' is not the number of a GPU"),
        ("emulated:h200", {}, "'h200' is neither a known accelerator nor a rate"),
        (PLAIN, {"compile": True}, f"compile does not apply to {PLAIN}: it takes none"),
    ],
)
def test_what_would_change_nothing_is_refused(compute: str, options: dict[str, Any], words: str) -> None:
    """Before anything is measured, and with the option's name."""
    with pytest.raises(BadValue, match=words):
        config = example_config(compute=compute, **options)
        check_parts(config.loader, config.compute)


def test_only_a_loader_that_knows_other_ways_is_asked_for_them() -> None:
    """An outsider's need know none, and where the GPU decodes none applies."""
    for changes in ({"gpu_decode": True}, {"loader": f"{__name__}:PlainLoader"}):
        assert alternatives(example_config(**changes), example_files(8)) == ()


def test_ones_own_folders_with_such_file_names_are_one_data_set(tmp_path: Path) -> None:
    """A `spec.json` of another program makes no generated set."""
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "a.png")
        (tmp_path / name / "spec.json").write_text("{}")
    (found,) = image_sets(tmp_path, sample=100)
    assert (found.label, found.generated, len(found.paths)) == (tmp_path.name, False, 2)


@pytest.mark.parametrize(
    ("refused", "scope", "step"),
    [
        (None, 0, None),
        (Remark(code="trace_refused"), 0, "SYS_PTRACE"),
        (Remark(code="trace_refused"), 2, "ptrace_scope=1"),
        (Remark(code="trace_refused"), 3, "ptrace_scope=1"),
        (reported("numbers not known"), 0, None),  # no permission helps
    ],
)
def test_refused_system_calls_are_a_limit_of_waits(
    monkeypatch: pytest.MonkeyPatch, refused: Remark | None, scope: int, step: str | None
) -> None:
    """Where a child may be looked at, workers may; else there is the reason and the step that brings the rest."""
    monkeypatch.setattr(capabilities, "_why_letters_only", lambda pid: refused)
    monkeypatch.setattr(capabilities, "yama_scope", lambda: scope)
    found = capabilities._waits()
    assert (found.name, found.state) == ("waits", "limited" if refused else "yes")
    assert (found.next_step is None) == (step is None)
    assert step is None or ("hardened" in why_words(found) and step in step_words(found))


@pytest.mark.parametrize(("seen", "words"), [(True, "they take 19 % of 2 cores now"), (False, "counts no CPU time")])
def test_what_others_take_now_is_said(monkeypatch: pytest.MonkeyPatch, *, seen: bool, words: str) -> None:
    """Or why it cannot be seen."""
    taken = Others(span_ns=10**9, cores=2, cpu_ns=380_000_000, own_cpu_ns=0, steal_ns=0)
    why = Missing(name="others", reason=Remark(code="machine_uncounted"))
    meter = SimpleNamespace(begin=lambda: None, end=lambda: taken if seen else None, missing=lambda: (why,))
    monkeypatch.setattr(capabilities, "OthersMeter", lambda: meter)
    monkeypatch.setattr(capabilities, "LOOK_S", 0.0)
    found = capabilities._others()
    assert (found.state, words in why_words(found)) == ("yes" if seen else "no", True)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_where_no_test_file_can_be_written_the_other_rows_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """As on a full disk: that cold reads were not tried is said, with the reason and the step that brings them."""

    def refused(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refused)
    found = capabilities._cold_reads(tmp_path, example_location("/data"))
    assert (found.state, os.strerror(code) in why_words(found)) == ("limited", True)
    assert "/data" in step_words(found) and list(tmp_path.iterdir()) == []


def test_the_row_of_the_storage_has_its_read_ahead() -> None:
    """As the kernel writes it."""
    place = example_location("/data")
    assert why_words(capabilities._storage(place)) == "ext4 on vdb"
    place = replace(place, read_ahead_bytes=2560 * 1024)
    assert why_words(capabilities._storage(place)) == "ext4 on vdb, read-ahead 2560 KiB"


def test_a_strategy_that_needs_utilization_says_that_it_is_not_there() -> None:
    """Instead of growing the batch for ever. A meter reads however short it is; of no GPU it gives the reason."""
    prober = ScriptedProber(rate=float, utilization=lambda size: 0.5)
    assert with_readings(prober.probe, remark_words)(8).utilization == 0.5
    with pytest.raises(MissingPart, match="needs the utilization of the device: the device is scripted"):
        with_readings(ScriptedProber(rate=float).probe, remark_words)(8)
    assert not with_readings(ScriptedProber(rate=float, fits_up_to=4).probe, remark_words)(8).fits
    for gpu in (None, "GPU-none"):
        with Meter(SystemClock(), gpu, period_s=1.0) as meter:
            sum(range(100_000))
        readings = meter.readings()
        if gpu:
            assert isinstance(readings, Missing) and readings.reason
        else:
            assert not isinstance(readings, Missing) and all(0 <= reading <= 1 for reading in readings)

"""Parts by name, options of a trainer, and devices that do not take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loaderprobe.compute import torch as trainers
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.assembly import alternatives, check_parts, make_compute
from loaderprobe.measure.clock import SystemClock
from loaderprobe.protocols import ComputeArguments
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.remark import Remark
from loaderprobe.store.codec import decode, encode
from loaderprobe.testing import (
    FakeClock,
    FakePageCache,
    ProfiledCompute,
    ScriptedLoader,
    Service,
    example_config,
    example_files,
)


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


def test_configurations_of_before_are_read() -> None:
    """Their files know nothing of younger options."""
    text = encode("config", example_config()).replace(b'"precision":"auto",', b"").replace(b'"compile":false,', b"")
    assert b"precision" not in text
    assert decode("config", text, RunConfig, "test") == example_config()


@pytest.mark.parametrize(
    ("compute", "options", "words"),
    [
        ("emulated:1000", {"precision": "bf16"}, "precision does not apply to emulated:1000"),
        ("emulated:1000", {"compile": True, "pin_memory": False}, "compile and pin_memory do not apply"),
        ("cpu", {"side_stream": True}, "side_stream needs a GPU"),
        ("cpu", {"gpu_decode": True, "pin_memory": False}, "pin_memory and gpu_decode need a GPU"),
        ("cpu", {"precision": "tf32"}, "precision tf32 needs a GPU"),
        ("cuda", {"gpu_decode": True, "side_stream": True}, "leave out side_stream"),
        ("cuda:first", {}, "'first' is not the number of a GPU"),
        ("emulated:h200", {}, "'h200' is neither a known accelerator nor a rate"),
        (PLAIN, {"compile": True}, f"compile does not apply to {PLAIN}: it takes none"),
    ],
)
def test_what_would_change_nothing_is_refused(compute: str, options: dict[str, Any], words: str) -> None:
    """Before anything is measured, and with the option's name."""
    config = example_config(compute=compute, **options)
    with pytest.raises(BadValue, match=words):
        check_parts(config.loader, config.compute)


def test_what_applies_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """On each device; the CPU says how it trains then."""
    monkeypatch.setattr(trainers, "list_gpus", lambda: (("a GPU",), None))
    for config in (example_config(), example_config(compute="cuda", precision="fp16", side_stream=True, compile=True)):
        check_parts(config.loader, config.compute)
    compute = make_compute(example_config(compute="cpu", precision="bf16", memory_format="contiguous"), SystemClock())
    assert compute.info().source == "ResNet-50 training steps, bf16 autocast, contiguous, SGD with momentum"
    emulated = make_compute(example_config(compute="emulated:500"), SystemClock())
    assert emulated.info().specified_images_per_s == 500


def test_a_gpu_that_is_not_there_is_missed_before_it_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By NVML, or by AMD's driver; the next step names what still works."""
    config = example_config(compute="cuda")
    monkeypatch.setattr(
        trainers, "list_gpus", lambda: ((), Remark(code="nvml_not_started", facts={"error": "no driver"}))
    )
    monkeypatch.setattr(trainers, "ROCM", tmp_path / "kfd")
    with pytest.raises(MissingPart, match=r"no GPU to train on: no driver$") as caught:
        check_parts(config.loader, config.compute)
    assert "emulated:mlperf-h100" in caught.value.hint
    (tmp_path / "kfd").touch()
    check_parts(config.loader, config.compute)


def test_every_compute_is_made_from_one_record() -> None:
    """An outsider's as ours: the options, what follows the colon, how batches reach it, the clock."""
    clock, config = FakeClock(), example_config(compute=PLAIN, batch_size=7)
    made = make_compute(config, clock)
    assert isinstance(made, Plain)
    assert made.arguments == ComputeArguments(spec=config.compute, loader=config.loader, clock=clock)


def test_only_a_loader_that_knows_other_ways_is_asked_for_them() -> None:
    """An outsider's need know none, and where the GPU decodes none applies."""
    files = example_files(8)
    assert alternatives(example_config(gpu_decode=True), files) == ()
    assert alternatives(example_config(loader=f"{__name__}:PlainLoader"), files) == ()


@pytest.mark.parametrize("changes", [{"decoder": "torchvision"}, {"pipeline": "crop"}])
def test_the_gpu_decodes_in_its_own_way(changes: dict[str, str]) -> None:
    """The choice of a decoder on the CPU is refused beside it."""
    with pytest.raises(BadValue, match="gpu_decode"):
        example_config(gpu_decode=True, **changes)

"""Options of a trainer, and devices that do not take them."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.errors import BadValue
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.options import check_options, make_compute
from loaderprobe.records.config import RunConfig, TrainOptions
from loaderprobe.store.codec import decode, encode
from loaderprobe.testing import example_config


def test_usual_options_leave_the_key_of_old_runs() -> None:
    """A run of before can be resumed; every option makes another configuration."""
    usual = example_config()
    assert usual.key == "f3f3aa142d1c4e89"
    options: list[dict[str, Any]] = [
        {"precision": "fp32"}, {"memory_format": "contiguous"}, {"compile": True}, {"pin_memory": False},
        {"side_stream": True}, {"gpu_decode": True},
    ]  # fmt: skip
    assert len({usual.key, *(example_config(**each).key for each in options)}) == 7


def test_configurations_of_before_are_read() -> None:
    """Their files know nothing of options."""
    text = encode("config", example_config()).replace(b'"precision":"auto",', b"").replace(b'"compile":false,', b"")
    assert b"precision" not in text
    assert decode("config", text, RunConfig, "test") == example_config()


@pytest.mark.parametrize(
    ("compute", "options", "words"),
    [
        ("emulated:1000", TrainOptions(precision="bf16"), "--precision does not apply to --compute emulated:1000"),
        ("emulated:1000", TrainOptions(compile=True, pin_memory=False), "--compile and --no-pin-memory do not apply"),
        ("cpu", TrainOptions(side_stream=True), "--side-stream needs a GPU"),
        ("cpu", TrainOptions(gpu_decode=True, pin_memory=False), "--no-pin-memory and --gpu-decode need a GPU"),
        ("cpu", TrainOptions(precision="tf32"), "--precision tf32 needs a GPU"),
        ("cuda", TrainOptions(gpu_decode=True, side_stream=True), "leave out --side-stream"),
    ],
)
def test_what_would_change_nothing_is_refused(compute: str, options: TrainOptions, words: str) -> None:
    """Before anything is measured, and with the option as it is written."""
    with pytest.raises(BadValue, match=words):
        check_options(compute, options)


def test_what_applies_is_taken() -> None:
    """On each device; the CPU says how it trains then."""
    check_options("emulated:1000", TrainOptions())
    check_options("cuda", TrainOptions(precision="fp16", side_stream=True, compile=True))
    compute = make_compute(example_config(compute="cpu", precision="bf16", memory_format="contiguous"), SystemClock())
    assert compute.info().source == "ResNet-50 training steps, bf16 autocast, contiguous, SGD with momentum"
    emulated = make_compute(example_config(compute="emulated:500"), SystemClock())
    assert emulated.info().specified_images_per_s == 500


@pytest.mark.parametrize("changes", [{"decoder": "torchvision"}, {"pipeline": "crop"}])
def test_the_gpu_decodes_in_its_own_way(changes: dict[str, str]) -> None:
    """What tells the CPU how to decode is refused beside it."""
    with pytest.raises(BadValue, match="--gpu-decode"):
        example_config(gpu_decode=True, **changes)

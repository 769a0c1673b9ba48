"""Options of a trainer, and devices that do not take them."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.errors import BadValue
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.options import check_options, make_compute
from loaderprobe.records.config import RunConfig
from loaderprobe.store.codec import decode, encode
from loaderprobe.testing import example_config


def test_configurations_of_before_are_read() -> None:
    """Their files know nothing of younger options."""
    text = encode("config", example_config()).replace(b'"precision":"auto",', b"").replace(b'"compile":false,', b"")
    assert b"precision" not in text
    assert decode("config", text, RunConfig, "test") == example_config()


@pytest.mark.parametrize(
    ("compute", "options", "words"),
    [
        ("emulated:1000", {"precision": "bf16"}, "precision does not apply to --compute emulated:1000"),
        ("emulated:1000", {"compile": True, "pin_memory": False}, "compile and pin_memory do not apply"),
        ("cpu", {"side_stream": True}, "side_stream needs a GPU"),
        ("cpu", {"gpu_decode": True, "pin_memory": False}, "pin_memory and gpu_decode need a GPU"),
        ("cpu", {"precision": "tf32"}, "precision tf32 needs a GPU"),
        ("cuda", {"gpu_decode": True, "side_stream": True}, "leave out side_stream"),
    ],
)
def test_what_would_change_nothing_is_refused(compute: str, options: dict[str, Any], words: str) -> None:
    """Before anything is measured, and with the option's name."""
    config = example_config(compute=compute, **options)
    with pytest.raises(BadValue, match=words):
        check_options(config.loader, config.compute)


def test_what_applies_is_taken() -> None:
    """On each device; the CPU says how it trains then."""
    for config in (example_config(), example_config(compute="cuda", precision="fp16", side_stream=True, compile=True)):
        check_options(config.loader, config.compute)
    compute = make_compute(example_config(compute="cpu", precision="bf16", memory_format="contiguous"), SystemClock())
    assert compute.info().source == "ResNet-50 training steps, bf16 autocast, contiguous, SGD with momentum"
    emulated = make_compute(example_config(compute="emulated:500"), SystemClock())
    assert emulated.info().specified_images_per_s == 500


@pytest.mark.parametrize("changes", [{"decoder": "torchvision"}, {"pipeline": "crop"}])
def test_the_gpu_decodes_in_its_own_way(changes: dict[str, str]) -> None:
    """Options for decoding on the CPU are refused beside it."""
    with pytest.raises(BadValue, match="gpu_decode"):
        example_config(gpu_decode=True, **changes)

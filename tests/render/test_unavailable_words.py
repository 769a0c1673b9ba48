"""Why figures do not exist, in words."""

from __future__ import annotations

from typing import get_args

import pytest

from loaderprobe.records.unavailable import Unavailable, UnavailableCode
from loaderprobe.render.unavailable_words import unavailable_words

FACTS: dict[str, float | str] = {
    "files": "cold", "share": 0.154, "exact_share": 0.0154, "most": 0.01, "cold_s": 0.0021, "warm_s": 0.002,
    "clock_s": 67e-6, "most_s": 66e-6, "bytes_per_s": 3e9, "launches": 12.0, "steps": 7.0, "ahead": 4.0,
    "idle_by_gaps": 0.62, "idle_by_rates": 0.51, "reason": "it rained",
    "error": "it broke", "stage": "round 1", "hint": "repair it", "file": "a.json", "ended_after_s": 3.04,
    "status": 15.0, "sampler": "Nvml", "limit_s": 30.0, "needed_s": 62.4, "how": "SIGKILL", "scope": 2.0,
    "machine": "riscv64", "device": "CPU", "path": "/data", "filesystem": "ZFS", "readers": 8.0,
    "within_s": 60.0, "images": 99.0, "least": 288.0, "epochs": 2.0, "take_s": 823.0, "timeout_s": 600.0,
    "rank": "1", "host": "node7",
}  # fmt: skip


@pytest.mark.parametrize("code", get_args(UnavailableCode))
def test_every_code_has_words(code: UnavailableCode) -> None:
    """A clause without a full stop; a code without words would fail only in a user's report."""
    words = unavailable_words(Unavailable(code=code, facts=FACTS))
    assert words and not words.endswith(".") and "{" not in words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("bytes_from_storage", "15% of the bytes came from storage in segments meant to be cold"),
        ("waits_alike", "cold segments (2.10 ms an image) from warm ones (2.00 ms)"),
        ("cores_below_ceiling", "the cores cannot read faster than 3.00 GB/s; the storage delivers more"),
        ("launches_lost", "1.5% of the launches left no record of a kernel, refused above 1%"),
        ("clock_moved", "moved by 67 µs while the profiler ran, refused above 66 µs"),
        ("nvml", "the GPU has been lost; its readings end 3.0 s after sampling began"),
        ("failed", "it broke (at: round 1, rank 1 on node7); repair it"),
        ("bytes_on_a_rank", "on rank 1 (node7), 15% of the bytes came from storage in segments meant to be cold"),
        ("window_too_long", "of 7 steps would take 62 s, of 30 s that it may take"),
        ("buffer_not_filled", "the loader did not fill its buffer within 1 min"),
        ("too_few_for_buffer", "99 images are too few to read each once: --images 288 is enough"),
        ("epochs_too_long", "2 epochs of 99 images take about 13 min 43 s, more than --time-limit: 10 min"),
        ("kernels_not_seen", "the profiler saw 12 launches and not one kernel"),
    ],
)
def test_facts_are_quoted_with_units(code: UnavailableCode, words: str) -> None:
    """Times in ms or µs, shares in percent, rates in MB/s or GB/s."""
    assert words in unavailable_words(Unavailable(code=code, facts=FACTS))


def test_several_with_one_code_share_a_clause() -> None:
    """Figures that differ become a range, in their order as numbers."""
    shares = (0.15, 0.09, 0.33)
    words = unavailable_words(*(Unavailable(code="wait_unexplained", facts={"share": share}) for share in shares))
    assert words == "workers wait 9% to 33% of their time, and nothing shows that it is for storage"

"""Advice in words."""

from __future__ import annotations

from typing import get_args

import pytest

from loaderprobe.records.verdict import Action, ActionCode
from loaderprobe.render.forecast_words import action_words

WORDS: list[tuple[ActionCode, dict[str, float | str], str]] = [
    ("workers", {"workers": 0}, "load in the training process"),
    ("workers", {"workers": 1}, "use 1 worker"),
    ("workers", {"workers": 4}, "use 4 workers"),
    ("prefetch", {"batches": 8}, "prefetch 8 batches in each worker"),
    ("files_in_memory", {"share": 1.0, "bytes": 1e9}, "keep all files in the page cache"),
    (
        "files_in_memory", {"share": 0.28, "bytes": 2.8e9, "hits_low": 0.04, "hits_high": 0.22},
        "leave 2.80 GB of memory to the page cache, which holds 28 % of the files and answers 4 to 22 % of the reads "
        "from epoch 2 on",
    ),
    (
        "files_pinned", {"share": 0.28, "bytes": 2.8e9},
        "pin 28 % of the files in memory (2.80 GB, by vmtouch -l or a copy in tmpfs), which answers 28 % of the reads",
    ),
    ("faster_storage", {"factor": 4.0, "bytes_per_s": 8e7}, "use storage 4.0 times as fast (80.0 MB/s)"),
    ("faster_storage", {"factor": 4.0}, "use storage 4.0 times as fast"),
    ("accelerator", {"images_per_s": 920.0}, "train on an accelerator of 920 images/s"),
    (
        "accelerator", {"images_per_s": 920.0, "name": "mlperf-a100"},
        "train on an accelerator of 920 images/s (mlperf-a100, specified)",
    ),
    (
        "accelerator", {"images_per_s": 920.0, "name": "mlperf-a100", "ranks": 4.0},
        "train on 4 accelerators, each of 920 images/s (mlperf-a100, specified)",
    ),
    (
        "slow_rank", {"rank": 3, "host": "node7"},
        "check the loader, cores and storage path of rank 3 on node7: all ranks wait for its input",
    ),
    (
        "slow_host", {"slow_host": "node7", "slow_ranks": 4},
        "check the cores, the network and the storage path of host node7: all ranks wait for the 4 there",
    ),
    (
        "exchange", {},
        "exchange gradients faster or less often: a faster link between ranks, gradient accumulation, compression; "
        "faster GPUs gain less",
    ),
    (
        "own_shares", {},
        "give each rank its own share of the data set: add DistributedSampler(dataset) to the DataLoader, or "
        "split_dataset_by_node to a stream",
    ),
    ("one_thread", {}, "load with torch on one thread: its threads spin between the small operations of a sample"),
    ("decoder", {"decoder": "torchvision"}, "decode with torchvision.io"),
    ("tensor", {"tensor": "uint8"}, "deliver uint8 tensors and normalise on the device"),
    ("shorter_lock", {"subject": "/a"}, "hold the lock (/a) for less time, or give each worker its own"),
    ("no_wait", {}, "remove the wait from the data set, or overlap it with work"),
    (
        "requests_in_flight", {"workers": 8, "subject": "10.0.0.5:443"},
        "keep more requests (10.0.0.5:443) in flight: num_workers=8, or asynchronous reads in the data set; "
        "larger objects or a local cache need fewer requests",
    ),
    (
        "accelerator_gains_nothing", {"until_images_per_s": 900.0},
        "A faster accelerator gains nothing until the loader delivers more than 900 images/s.",
    ),
    ("input_gains_nothing", {"share": 1.0}, "A faster input gains nothing: training reaches 100 % of compute alone."),
]  # fmt: skip


@pytest.mark.parametrize(("code", "facts", "words"), WORDS)
def test_an_action_has_words_with_its_facts(code: ActionCode, facts: dict[str, float | str], words: str) -> None:
    """What is not known leaves no gap in the sentence."""
    assert action_words(Action(code=code, facts=facts)) == words


def test_every_action_has_words() -> None:
    """A code without words would fail only in a user's report."""
    assert {code for code, _, _ in WORDS} == set(get_args(ActionCode))

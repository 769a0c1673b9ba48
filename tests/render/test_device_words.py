"""What limits a storage, and its kind, in words."""

from __future__ import annotations

from typing import get_args

import pytest

from loaderprobe.records.bandwidth import DeviceKind, KindCode, Limit, LimitCode
from loaderprobe.render.device_words import kind_words, limit_words

FACTS: dict[str, float | str] = {
    "share": "partly", "first_readers": 1.0, "first_bytes_per_s": 20e6, "file_s": 0.0057, "knee_readers": 8.0,
    "best_readers": 16.0, "best_bytes_per_s": 104e6, "before_readers": 4.0, "before_bytes_per_s": 60e6,
    "after_readers": 8.0, "after_bytes_per_s": 50e6, "end": "flat",
    "rank": 3.0, "host": "node0", "bytes_per_s": 4e6, "clients": 8.0, "most_clients": 32.0, "ranks": 4.0, "nodes": 1.0,
    "fewer_nodes": 1.0, "fewer_ranks": 1.0, "fewer_bytes_per_s": 2e6, "next": 64.0, "reading_s": 0.1, "slow_ranks": 4.0,
    "host_ranks": 4.0, "elsewhere_bytes_per_s": 6e6,
}  # fmt: skip


def _limit(code: LimitCode, **facts: float | str) -> str:
    return limit_words(Limit(by="unknown", knee_readers=None, code=code, facts={**FACTS, **facts}))


@pytest.mark.parametrize("code", get_args(LimitCode))
def test_every_limit_is_a_sentence(code: LimitCode) -> None:
    """A code without words would fail only in a user's report."""
    assert _limit(code).endswith(".") and "{" not in _limit(code)


@pytest.mark.parametrize(
    ("code", "end", "words"),
    [
        ("flat", "flat", "1 reader already gets 20.0 MB/s, and no number of readers more than 104 MB/s."),
        ("rises", "flat", "to 104 MB/s with 8, and more than 8 gain nothing."),
        ("rises", "rising", "to 104 MB/s with 8, and more readers would gain more."),
        ("rises_then_flat", "flat", "Latency-limited below 8 readers (1 reader alone gets 20.0 MB/s, 5.70 ms a file)"),
        ("rises_then_flat", "flat", "from there on more readers gain nothing (104 MB/s): bandwidth-limited."),
        ("rises_then_flat", "rising", "a file); it may rise further."),
        ("uneven", "flat", "but 8 readers fewer (50.0 MB/s) than 4 (60.0 MB/s)"),
    ],
)
def test_the_end_of_the_ladder_is_said(code: LimitCode, end: str, words: str) -> None:
    """Whether more readers would gain more, with the rates of the steps that show it."""
    assert words in _limit(code, end=end)


@pytest.mark.parametrize("code", get_args(KindCode))
def test_every_kind_is_a_sentence(code: KindCode) -> None:
    """Also of a device whose kind is not known, with the reason."""
    facts: dict[str, float | str] = {"readers": 32.0, "rise": 4.91, "paced": 1.0, "because": "fio_cannot_pause"}
    words = kind_words(DeviceKind(kind="unknown", code=code, facts=facts, evidence=()))
    assert words.endswith(".") and "{" not in words
    assert code != "not_paced" or "fio cannot pause" in words
    assert code != "none_of_them" or "32 readers get 4.91 times what one gets" in words

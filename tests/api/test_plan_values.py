"""Values of a plan as people type them; what cannot be is a bad value, never a crash and never infinity."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.api import values as values
from loaderprobe.errors import BadValue
from loaderprobe.records.plan import CacheAsked


def test_shares_counts_and_sizes_are_read_with_their_units() -> None:
    """MB is 10^6 bytes, MiB 2^20; a small b is a bit."""
    assert [values.share(text, "-") for text in ("90%", " 90 %", "0.9", 0.9)] == pytest.approx([0.9] * 4)
    assert [values.count(text, "-") for text in ("64", 64, "1.28M", "60k")] == [64, 64, 1_280_000, 60_000]
    assert [values.size(text, "-") for text in ("115kB", "1MiB", 2048, 115_000.4)] == [115_000, 2**20, 2048, 115_000]
    rates = ("12.5GB/s", "100Gb/s", "100Gbit/s", "1MiB/s", "1MB/s", 12.5e9)
    assert [values.byte_rate(text, "-") for text in rates] == [12.5e9, 12.5e9, 12.5e9, 2**20, 1e6, 12.5e9]
    assert (values.layout("folder"), values.layout("shards:1251")) == (1, 1251)
    assert values.cache("page:1TB") == CacheAsked(kind="page", bytes=1e12)
    assert values.cache("pinned:1TiB") == CacheAsked(kind="pinned", bytes=2.0**40)
    assert values.cache("none") == CacheAsked()


def test_a_storage_is_read_figure_by_figure() -> None:
    """In any order; a rate of a client is another figure than that of the whole."""
    assert values.storage_figures("5GB/s,60kopens/s,2ms,1.5GB/s/client,100kIOPS") == {
        "bandwidth": 5e9, "opens": 60_000.0, "latency": 0.002, "client": 1.5e9, "requests": 100_000.0,
    }  # fmt: skip
    assert values.storage_figures("300us, 40Gb/s") == {"latency": pytest.approx(3e-4), "bandwidth": 5e9}
    assert values.storage_figures("1GB/s/node,500files/s") == {"client": 1e9, "opens": 500.0}


BAD = {
    "share": (values.share, ("0%", "101%", "-5%", "90", "nan", "inf", "", "much", 0, 1.5, math.nan)),
    "count": (values.count, ("0", "-1", "1.5", "1e9", "nan", "", "many", "999999999999999", 0, -3, 2.5, math.inf)),
    "factor": (values.factor, ("0", "0.5", "1001", "nan", "inf", "", "twice", -1)),
    "size": (values.size, ("0", "-1MB", "1e300", "", "MB", "999999999TB", math.nan, math.inf, -1)),
    "byte_rate": (values.byte_rate, ("0GB/s", "5GB", "-1GB/s", "nan", "inf", "fast", "1e300", "", math.nan)),
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, (_, texts) in BAD.items() for text in texts])
def test_impossible_values_are_bad_values(kind: str, text: str | float) -> None:
    """Zero, negative, beyond all reason, not a number, infinite, empty, words."""
    with pytest.raises(BadValue):
        BAD[kind][0](text, "--option")


@pytest.mark.parametrize("text", ["shards", "shards:1", "shards:0", "folder:3", "tar", "", "shards:x"])
def test_other_layouts_are_bad_values(text: str) -> None:
    """With the two there are."""
    with pytest.raises(BadValue):
        values.layout(text)


@pytest.mark.parametrize("text", ["page", "page:", "pinned:0", "none:5GB", "memory:1TB", "", "page:-1GB"])
def test_other_caches_are_bad_values(text: str) -> None:
    """A kind and a size."""
    with pytest.raises(BadValue):
        values.cache(text)


@pytest.mark.parametrize(
    "text", ["5", "5GB", "5GB/s,6GB/s", "2ms", "0GB/s", "5GB/s,", "5GB/s,0ms", "5GB/s,quick", "1GB/s/day", "5 apples/s"]
)
def test_other_figures_of_a_storage_are_bad_values(text: str) -> None:
    """No unit, twice the same, no limit at all, zero, words."""
    with pytest.raises(BadValue):
        values.storage_figures(text)


@given(st.text(max_size=20))
def test_any_text_is_a_value_or_a_bad_value(text: str) -> None:
    """And never anything else."""
    for parse in (
        lambda: values.share(text, "-"), lambda: values.count(text, "-"), lambda: values.factor(text, "-"),
        lambda: values.size(text, "-"), lambda: values.byte_rate(text, "-"), lambda: values.layout(text),
        lambda: values.cache(text), lambda: values.storage_figures(text),
    ):  # fmt: skip
        try:
            found = parse()
        except BadValue:
            continue
        assert not isinstance(found, float) or 0 < found < math.inf

"""Which segments others disturbed, by what they took."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.verdict.validity import is_disturbed
from loaderprobe.records.measurement import Measurement, Others
from tests.analyze.runs import Cost, alike, run

MS = 1_000_000


def others(share: float = 0.0, **changes: Any) -> Others:
    """Of a second on two cores that own processes keep half busy."""
    span_ns, cores = 1000 * MS, int(changes.pop("cores", 2))
    own_ns = changes.pop("own_cpu_ns", span_ns)
    return Others(
        span_ns=span_ns, cores=cores, cpu_ns=round(share * cores * span_ns), own_cpu_ns=own_ns,
        steal_ns=changes.pop("steal_ns", 0), **changes,
    )  # fmt: skip


def seen(*each: Others | None, **facts: Any) -> Measurement:
    """As many segments as are given, on two cores unless said otherwise."""
    found = run(alike(4, baseline=100, warm=200), Cost(cpu_s=0.005), facts={"cores_available": 2.0, **facts})
    segments = found.segments[: len(each)]
    return replace(found, segments=tuple(replace(s, others=o) for s, o in zip(segments, each, strict=True)))


def reads(others_bytes: int, **facts: Any) -> Measurement:
    """Of 100 MB that the devices read, own processes read all but these."""
    found = seen(others(own_read_bytes=100 * 10**6 - others_bytes))
    return replace(found, segments=(replace(found.segments[0], disk_bytes=100 * 10**6),), **facts)


def beside_many(share: float) -> Measurement:
    """On 64 cores, of which own processes use 8."""
    return seen(others(share, cores=64, own_cpu_ns=8000 * MS), cores_available=64.0)


# Cores that stay idle are in the way of none; of 8 cores a quota allows 2: the other 6 are free for others.
DISTURBED: dict[str, tuple[Measurement, bool]] = {
    "38 % of two cores": (seen(others(0.38)), True),
    "5 %": (seen(others(0.05)), False),
    "15 % stolen": (seen(others(steal_ns=300 * MS)), True),
    "7 %": (seen(others(steal_ns=150 * MS)), False),
    "most cores are idle": (beside_many(0.3), False),
    "nearly none is": (beside_many(0.8), True),
    "not read": (seen(None), False),
    "cores that may not be used": (seen(others(0.5, cores=8)), False),
    "and some that may": (seen(others(0.9, cores=8)), True),
    "no other reads": (reads(0), False),
    "5 %, of what was read": (reads(5 * 10**6), False),
    "20 %, of what was read": (reads(20 * 10**6), True),
    "those of ranks are not known": (reads(20 * 10**6, ranks=2), False),
    "nor those of this storage": (reads(20 * 10**6, storage_counts_reads=False), False),
}


@pytest.mark.parametrize("name", DISTURBED)
def test_what_others_take_disturbs_where_few_cores_are_left(name: str) -> None:
    """Or from a tenth of what devices read; waiting of own threads is no sign of others."""
    measurement, is_so = DISTURBED[name]
    assert any(is_disturbed(measurement, segment) for segment in measurement.segments) is is_so

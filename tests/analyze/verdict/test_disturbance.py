"""Which segments others disturbed, by what they took."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.verdict.validity import counted, disturbance_notes, is_disturbed, like, pressing_share
from loaderprobe.records.measurement import Measurement, Others
from loaderprobe.render.words import remark_words
from tests.analyze.runs import Cost, alike, run, with_read
from tests.analyze.verdict.test_truths import EVEN, beside, cached

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


def test_cores_beyond_a_quota_are_no_loss() -> None:
    """0.9 of 8 cores take 1.2 of the 2 that may be used."""
    taken = seen(others(0.9, cores=8))
    assert pressing_share(taken, taken.segments[0]) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (others(0.1), others(0.2), True),
        (others(0.1), others(0.3), False),
        (others(), others(steal_ns=400 * MS), False),
        (None, others(0.9), True),
    ],
    ids=["near", "far", "stolen", "not read"],
)
def test_like_conditions_are_those_in_which_others_took_as_much(one: Others, other: Others, *, alike: bool) -> None:
    """Steal counts as what others take; what was not read is taken for alike."""
    assert like(seen(one).segments[0], seen(other).segments[0]) is alike


def test_the_note_has_the_figures_of_the_disturbed_segments_only() -> None:
    """One line for all measurements; none below the threshold."""
    found = seen(others(0.3), others(), others(0.5), others(0.02))
    (note,) = disturbance_notes([found])
    assert remark_words(note) == "other processes took 40 % of 2 cores in 2 of 4 segments"
    (note,) = disturbance_notes([found, found, seen(others(), others())])
    assert remark_words(note) == "other processes took 40 % of 2 cores in 4 of 10 segments"
    assert disturbance_notes([seen(others(0.05), None)]) == ()
    (note,) = disturbance_notes([seen(others(steal_ns=500 * MS), others())])
    assert remark_words(note) == "other machines took 25 % of 2 cores in 1 of 2 segments"


def first_round(*rates: float) -> Measurement:
    """The loader alone and training at the same rate, by round."""
    return run([{"baseline": rate, "training": rate} for rate in rates], EVEN)


@pytest.mark.parametrize("rates", [(90.0, 100.0, 100.0), (40.0, 60.0, 110.0), (100.0, 40.0, 100.0)])
def test_a_first_round_that_is_not_slow_stays(rates: tuple[float, ...]) -> None:
    """Nor does one go where later ones differ as much, and later ones never do."""
    assert counted(first_round(*rates)) == first_round(*rates)


def test_a_slow_first_round_is_no_round_unless_it_was_colder() -> None:
    """Connections were set up in it. Where later ones came from memory in part, it is the one that was asked for."""
    slow = first_round(40.0, 100.0, 100.0)
    assert {each.round for each in counted(slow).segments} == {1, 2}
    later = {n for s in slow.segments if s.round for n in range(s.first_batch, s.first_batch + s.steps)}
    warmer = with_read(slow, later, 0.5)
    assert counted(warmer) == warmer


def test_what_counts_counts_again() -> None:
    """Nothing more is left out the second time."""
    rounds = [*cached(0.6, 2), *cached(1.8)]
    seen = beside(run(rounds, EVEN), {(n, "cached_samples", "loader_only"): 1.0 for n in (0, 1)})
    assert counted(counted(seen)) == counted(seen) != seen

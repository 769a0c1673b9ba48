"""What a small data set means for cold segments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.measure.segments import MOST_EVICTED_AHEAD, Pace, Readiness
from loaderprobe.records.files import PartFiles
from loaderprobe.testing import FakeClock, FakePageCache, ScriptedLoader, Service, example_config, example_files


def test_too_few_samples_are_said_once_of_the_segment_that_needs_most() -> None:
    """Training takes a step that is not timed, so it needs a batch more than the loader alone."""
    config, files, cache = example_config(workers=1), example_files(10), FakePageCache()
    loader = ScriptedLoader(config, files, FakeClock(), cache, Service(cpu_s=0.001, blocked_s=0.0))
    ready = Readiness(config, files, "files", loader, cache, lambda count: None)
    for untimed in (3, 4, 3):
        ready.limit(Pace(), "baseline", untimed)
    (note,) = ready.notes
    ready.notes.clear()
    ready.limit(Pace(), "baseline", 4)
    assert [note] == ready.notes


class Evicted:
    """A loader whose workers evict ahead, where samples are drawn in random order; keeps what it was asked."""

    def __init__(self, *, random: bool) -> None:
        self.random, self.pool = random, 40
        self.asked: list[tuple[Path, ...]] = [()]

    def evicts(self) -> bool:
        return self.random

    def evict_ahead(self, paths: Sequence[Path]) -> None:
        self.asked.append(tuple(paths))

    def extend_pool(self, batches: int) -> int:
        self.pool = max(self.pool, batches)
        return self.pool


def ready(loader: Evicted, shards: int, megabytes: float, **known: Any) -> Readiness:
    """Samples of 100 kB, 16 a batch, in so many files of so many MB."""
    files = PartFiles(file_bytes={f"/data/{number}.tar": round(megabytes * 1e6) for number in range(shards)})
    facts = {"sample_bytes": 1e5, "read_ahead_bytes": 2_621_440, **known}
    config = example_config(workers=2, batch_size=16)
    return Readiness(config, files, "parts", loader, FakePageCache(), lambda count: None, loader.pool, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(("random", "shards", "evicts"), [(True, 1, True), (False, 1, False), (True, 300, False)])
def test_files_of_random_samples_are_evicted_ahead_while_they_are_to_be_cold(
    random: bool, shards: int, evicts: bool
) -> None:
    """Not those of a stream, and not many: what is read ahead ends with its file. Never while they are made warm."""
    assert (shards > MOST_EVICTED_AHEAD) == (shards == 300)
    loader = Evicted(random=random)
    made = ready(loader, shards, 90.0)
    for mode in ("baseline", "warm"):
        made._evict_ahead(cold=mode == "baseline")
        assert bool(loader.asked[-1]) == (evicts and mode == "baseline")
    limited = made.limit(Pace(multiple=2), "baseline", 6).max_batches
    assert limited == (None if evicts else made.pool - 6 - made.untimed("baseline", 6))


@pytest.mark.parametrize(
    ("shards", "megabytes", "known", "multiple"),
    [
        (8, 11.2, {}, 14),
        (8, 100.0, {}, 2),
        (2, 11.2, {}, 2),
        (8, 11.2, {"read_ahead_bytes": None}, 2),
        (8, 11.2, {"sample_bytes": None}, 2),
    ],
    ids=["short shards", "long shards", "fewer than a segment takes", "read-ahead unknown", "samples unknown"],
)
def test_a_segment_of_short_shards_is_as_long_as_one_of_each_worker(
    shards: int, megabytes: float, known: dict[str, Any], multiple: int
) -> None:
    """112 samples, 7 batches: then as much is read ahead at its end as at its begin."""
    made = ready(Evicted(random=False), shards, megabytes, **known)
    assert made.limit(Pace(multiple=2), "baseline", 6).multiple == multiple

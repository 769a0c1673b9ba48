"""What two passes over the first batches say about how a loader's files are made cold and warm."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.measure.own.loader import Learned, Learning, bytes_of_sample, measured_first_pass
from loaderprobe.records.files import PartFiles, UnknownFiles
from loaderprobe.records.measurement import FirstPass, WorkerBatches
from loaderprobe.testing import FakePageCache

FILES = PartFiles(file_bytes={"/data/a.tar": 10**9})
LAP: dict[str, Any] = {
    "images": 100, "wall_s": 1.0, "cpu_s": 0.4, "read_bytes": 10**7, "called_bytes": 10**7, "again_wall_s": 1.0,
    "again_cpu_s": 0.4, "again_read_bytes": 10**7,
}  # fmt: skip


class Renewable:
    """Has so many new batches; remembers whether they were asked for."""

    def __init__(self, left: float, held: bool) -> None:
        self.left, self.held = left, held
        self.took_new = False

    def new_left(self) -> float:
        return self.left

    def holds_files(self) -> bool:
        return self.held

    def take_new(self) -> None:
        self.took_new = True


def decided(
    left: float = 1e9,
    counts: bool = True,
    access: Any = "parts",
    read_again: float | None = None,
    held: bool = False,
    **changes: Any,
) -> tuple[Learned, bool]:
    loader = Renewable(left, held)
    learning = Learning(
        loader=loader,  # type: ignore[arg-type]  # only what deciding needs
        cache=FakePageCache(), workers=2, ahead=4, spent_s=lambda: 0.0, budget_s=None,
        ended=lambda taken: ValueError(str(taken)), counts_reads=lambda files: counts,
    )  # fmt: skip
    found = Learned(
        taken=30, pool=20, images=True, files=FILES, access=access, held=(), first_pass=FirstPass(**(LAP | changes)),
        keeps_samples=False, read_again=read_again,
    )  # fmt: skip
    return learning._decided(found), loader.took_new


def test_files_that_are_read_again_after_their_eviction_are_believed_to_be_all() -> None:
    """Then the pool goes round, and is evicted each time."""
    found, took_new = decided()
    assert (found.access, took_new) == ("parts", False)


def test_files_that_stay_warm_are_never_taken_twice() -> None:
    """Read below Python, and found nowhere: from the second time on the page cache answers."""
    found, took_new = decided(again_read_bytes=0, again_wall_s=0.5)
    assert (found.access, took_new, found.keeps_samples) == ("fresh", True, False)


@pytest.mark.parametrize(("read", "access"), [(16 << 10, "parts"), (64 << 10, "fresh")])
def test_a_page_of_a_module_is_no_cold_file(read: int, access: str) -> None:
    """A few pages read once, in a pass over small files that were in memory, are no sign of files that stay warm."""
    assert decided(images=8, read_bytes=read, again_read_bytes=0)[0].access == access


@pytest.mark.parametrize(
    ("changes", "access"),
    [
        ({}, "none"),
        ({"read_bytes": 6000, "called_bytes": 9000}, "none"),  # a module that is imported by the way
        ({"again_read_bytes": 10**6}, "parts"),
        ({"called_bytes": 10**6}, "parts"),
        ({"read_again": 4096.0}, "parts"),
        ({"counts": False}, "parts"),
        ({"held": True}, "parts"),  # a small file that is mapped is read by the first batch
    ],
    ids=[
        "nothing",
        "by the way",
        "from storage, once evicted",
        "by calls",
        "ahead of the first_pass",
        "not counted",
        "held",
    ],
)
def test_samples_that_read_nothing_are_not_in_the_files_that_are_named(changes: dict[str, Any], access: str) -> None:
    """They come from memory, whatever lies in the folder of their data set."""
    found, _ = decided(**{"read_bytes": 0, "called_bytes": 0, "again_read_bytes": 0} | changes)
    assert found.access == access
    assert (found.files == UnknownFiles(code="none_read")) == (access == "none")


def test_samples_that_are_kept_are_never_taken_twice() -> None:
    """Made again, they cost next to nothing."""
    found, _ = decided(read_bytes=0, again_read_bytes=0, again_wall_s=0.1, again_cpu_s=0.05)
    assert (found.access, found.keeps_samples) == ("fresh", True)


def test_without_new_batches_files_are_as_found() -> None:
    """There is nothing to take that was not taken."""
    assert decided(left=3, again_read_bytes=0)[0].access == "none"
    small, took_new = decided(left=3, again_wall_s=0.1, again_cpu_s=0.05)
    assert (small.access, small.keeps_samples, took_new) == ("parts", True, False)


@pytest.mark.parametrize(("again_wall_s", "access"), [(0.45, "fresh"), (1.0, "parts")])
def test_where_no_bytes_are_counted_waiting_shows_it(again_wall_s: float, access: str) -> None:
    """On FUSE, workers that wait no more the second time met the cache."""
    assert decided(counts=False, again_wall_s=again_wall_s)[0].access == access


def test_the_first_batch_of_a_worker_counts_in_neither_lap() -> None:
    """It pays for imports; and batches made before the eviction are no second time."""
    count = 12
    records = WorkerBatches(
        batch=tuple(range(count)), worker=(0,) * count, start_ns=(0,) * count, wall_ns=tuple(range(1, count + 1)),
        cpu_ns=(1,) * count, run_delay_ns=(0,) * count, read_bytes=(5,) * count, images=(4,) * count,
    )  # fmt: skip
    found = measured_first_pass(records, (7,) * 5, pool=5, skipped=1, again=range(7, 12))
    assert found is not None
    assert found.images == 4 * 4  # numbers 7, 8, 9, 11: batch 10 is the first one again
    assert found.called_bytes == 4 * 7
    assert found.wall_s == pytest.approx((3 + 4 + 5 + 2) / 1e9)
    assert measured_first_pass(records, (), pool=5, skipped=1, again=range(0)) is None


def test_waiting_for_a_core_is_no_work_that_was_saved() -> None:
    """A busy machine makes the first pass long; a delay between two records never makes a batch negative."""
    busy = {2: (50, 45), 3: (5, 60)}
    records = WorkerBatches(
        batch=tuple(range(10)), worker=(0,) * 10, start_ns=(0,) * 10,
        wall_ns=tuple(busy.get(number, (5, 0))[0] for number in range(10)), cpu_ns=(4,) * 10,
        run_delay_ns=tuple(busy.get(number, (5, 0))[1] for number in range(10)), read_bytes=(0,) * 10,
        images=(4,) * 10,
    )  # fmt: skip
    found = measured_first_pass(records, (), pool=5, skipped=1, again=range(5, 10))
    assert found is not None
    assert found.wall_s == pytest.approx((5 + 5 + 4 + 5) / 1e9)
    assert found.again_wall_s == pytest.approx(4 * 5 / 1e9)
    assert not found.quicker


@pytest.mark.parametrize(
    ("changes", "samples", "size"),
    [
        ({}, 1000, 100_000.0),
        ({"called_bytes": 700, "again_read_bytes": 10**8}, 10_000, 100_000.0),
        ({"called_bytes": 700}, None, None),
        ({"read_bytes": 0, "again_read_bytes": 0}, 1000, None),
    ],
    ids=["read by calls", "mapped", "mapped, of unknown length", "not from storage"],
)
def test_the_bytes_of_a_sample_are_those_of_its_files(
    changes: dict[str, int], samples: int | None, size: float | None
) -> None:
    """Not what the kernel reads around it, which is compared with them; nothing of what no storage read."""
    assert bytes_of_sample(FILES, FirstPass(**(LAP | changes)), samples) == size


def test_what_was_read_ahead_of_the_batches_compared_is_no_sample_that_is_kept() -> None:
    """Behind a device that reads far ahead, the first batches after the eviction read what all others need."""
    ahead, _ = decided(again_read_bytes=0, read_again=100_000.0)
    kept, _ = decided(again_read_bytes=0, read_again=20_000.0)
    assert (ahead.access, kept.access) == ("parts", "fresh")

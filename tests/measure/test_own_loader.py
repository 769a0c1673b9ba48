"""A loader of one's own: the function that makes it, how its files are made cold and warm, and what a segment needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import Mock

import pytest

from loaderprobe.loaders.reads import BatchReads
from loaderprobe.measure.pace import Pace
from loaderprobe.measure.segments import MOST_EVICTED_AHEAD, REST_S, Readiness, rest
from loaderprobe.measure.user.function import made, module_file, named
from loaderprobe.measure.user.loader import Discovery, LoaderProperties, bytes_of_sample, measured_first_pass
from loaderprobe.records.diagnosis import BatchFiles, UnknownFiles
from loaderprobe.records.files import PartFiles
from loaderprobe.records.measurement import FirstPass, WorkerBatches
from loaderprobe.testing import FakeClock, FakePageCache, ScriptedLoader, Service, example_config, example_files

MODULE = """
import sys
ARGUMENTS = list(sys.argv)
def alone(): return [ARGUMENTS]
def both(): return [1], print
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A script of the user's, and a package of theirs in the current folder; out of the way afterwards."""
    before = list(sys.path)
    path = tmp_path / "own_loader_script.py"
    path.write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield str(path)
    sys.path[:] = before
    sys.modules.pop("own_loader_script", None)


@pytest.mark.parametrize("by_the_user", [False, True])
@pytest.mark.parametrize("changed", [False, True])
def test_changes_are_imported(script: str, changed: bool, by_the_user: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since it was imported, or since this process began where the user has: an older one keeps its module. A loader
    comes with a step, or alone; the function sees no arguments of our command line."""
    os.utime(script, (1, 1))
    monkeypatch.syspath_prepend(Path(script).parent)
    if not by_the_user:
        made(named(f"{script}:both"))
    known = import_module("own_loader_script")
    if changed:
        Path(script).write_text("def both(): return [1, 2, 3], print")
    assert made(named(f"{script}:both")) == ([1, 2, 3] if changed else [1], print)
    assert changed or by_the_user or made(named(f"{script}:alone")) == ([[script]], None) != ([sys.argv], None)
    assert (sys.modules["own_loader_script"] is known) != changed


@pytest.mark.parametrize("inside", ["__init__.py", ""])
def test_nodes_are_asked_for_the_file_of_the_module(script: str, tmp_path: Path, inside: str) -> None:
    """It is found without its packages, which only run in ranks; also of packages without a file of their own."""
    folder = tmp_path / "own_outer" / "own_inner"
    folder.mkdir(parents=True)
    (folder / "data.py").write_text(MODULE)
    for package in (folder, folder.parent) if inside else ():
        (package / inside).write_text("raise RuntimeError('imported')")
    before = list(sys.path)
    assert module_file(named("own_outer.own_inner.data:alone")).root == str(folder)
    assert sys.path == before and "own_outer" not in sys.modules
    found = module_file(named(f"{script}:alone"))
    assert (found.root, found.paths, found.size_bytes) == (str(tmp_path), (Path(script).name,), (len(MODULE),))
    assert module_file(named("json.decoder:make")).paths == ("decoder.py",)


FILES = PartFiles(file_bytes={"/data/a.tar": 10**9})
PASS: dict[str, Any] = {
    "images": 100, "wall_s": 1.0, "cpu_s": 0.4, "read_bytes": 10**7, "called_bytes": 10**7, "again_wall_s": 1.0,
    "again_cpu_s": 0.4, "again_read_bytes": 10**7,
}  # fmt: skip
NOT_AGAIN: dict[str, Any] = {"again_read_bytes": 0}
KEPT: dict[str, Any] = {"again_wall_s": 0.1, "again_cpu_s": 0.05}
NOTHING: dict[str, Any] = {"read_bytes": 0, "called_bytes": 0, "again_read_bytes": 0}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Read again after their eviction: they are believed to be all, and the pool goes round.
        ({}, "parts"),
        # From the second time on the page cache answers: they are nowhere found, and never taken twice.
        ({**NOT_AGAIN, "again_wall_s": 0.5}, "fresh"),
        ({**NOT_AGAIN, "again_wall_s": 0.5, "left": 3}, "none"),
        ({**NOT_AGAIN, "left": 3}, "none"),
        # A few pages, read once in a pass over small files in memory, are those of a module.
        ({**NOT_AGAIN, "images": 8, "read_bytes": 16 << 10}, "parts"),
        ({**NOT_AGAIN, "images": 8, "read_bytes": 64 << 10}, "fresh"),
        # Samples that read nothing come from memory, whatever files are named.
        (NOTHING, "none"),
        ({**NOTHING, "read_bytes": 6000, "called_bytes": 9000}, "none"),
        ({**NOTHING, "again_read_bytes": 10**6}, "parts"),
        ({**NOTHING, "called_bytes": 10**6}, "parts"),
        ({**NOTHING, "read_again": 4096.0}, "parts"),
        ({**NOTHING, "counts": False}, "parts"),
        ({**NOTHING, "holds": True}, "parts"),
        # Samples that are kept cost next to nothing when they are made again.
        ({**NOT_AGAIN, **KEPT, "read_bytes": 0}, "fresh"),
        ({**NOT_AGAIN, **KEPT, "left": 3}, "parts"),
        # Half the time for as many bytes and as much work, on a disk that gives its credit: a database of 1,500 images,
        # seen at 20 MB/s, whose new batches the kernel then read ahead of, at 30 to 86 images/s.
        ({"again_wall_s": 0.5}, "parts"),
        # On FUSE no bytes are counted: workers that wait no more the second time met the cache.
        ({"counts": False, "again_wall_s": 0.45}, "fresh"),
        # Behind a device that reads far ahead, the first batches after the eviction read what all others need.
        ({**NOT_AGAIN, "read_again": 100_000.0}, "parts"),
        ({**NOT_AGAIN, "read_again": 20_000.0}, "fresh"),
    ],
)
def test_two_passes_say_how_files_are_made_cold(changes: dict[str, Any], expected: str) -> None:
    """New batches are taken where files stay warm or samples are kept, if there are enough."""
    given = {"left": 1e9, "counts": True, "read_again": None, "holds": False, **PASS, **changes}
    held, take_new = BatchReads(kept_open={"/a": 1} if given["holds"] else {}), Mock()
    loader: Any = SimpleNamespace(new_left=lambda: given["left"], pool_reads=lambda: [held], take_new=take_new)
    discovery = Discovery(
        loader=loader,
        cache=FakePageCache(), workers=2, ahead=4, spent_s=lambda: 0.0, budget_s=60.0,
        counts_reads=lambda files: given["counts"],
    )  # fmt: skip
    first_pass = FirstPass(**{name: given[name] for name in PASS})
    properties = LoaderProperties(
        taken=30, pool=20, batch_size=1, images=True, files=FILES, access="parts", resident_batches=(),
        first_pass=first_pass, read_again=given["read_again"],
    )  # fmt: skip
    found = discovery._decided(properties)
    assert found.access == expected
    assert take_new.called == (found.access == "fresh")
    assert (found.files == UnknownFiles(code="none_read")) == (found.access == "none" and "left" not in changes)


Kind = TypeVar("Kind", bound=ScriptedLoader)


def scripted(images: int, kind: type[Kind], *, cpu_s: float = 0.001, **changes: Any) -> Kind:
    service = Service(cpu_s=cpu_s)
    return kind(example_config(**changes), example_files(images), FakeClock(), FakePageCache(), service)


class Pool:
    """A loader whose batches have files of their own; `fails` where a worker never comes to an end."""

    exhausted = False
    pool = evicted_ns = 0

    def __init__(self, loader: ScriptedLoader, *, fails: bool) -> None:
        self.loader, self.clock, self.fails, self.records = loader, loader.clock, fails, loader.records
        self.iterator = loader.batches()

    def batches(self) -> Iterator[Any]:
        return self.iterator

    def finishes(self, taken: int) -> bool:
        for number in [] if self.fails else list(self.loader._asked_ns):
            self.loader._make(number)
            self.clock.sleep(max(0, self.loader._ready_ns[number][0] - self.clock.now_ns()) / 1e9)
        return not self.fails

    def check(self) -> None: ...

    def settle(self, taken: int) -> int:
        self.pool = (taken + 32) // 8 * 8
        return self.pool

    def release(self, taken: int) -> None:
        self.evicted_ns = self.clock.now_ns()

    def files(self, batch_size: int) -> BatchFiles:
        paths = tuple((f"/data/{number}",) for number in range(self.pool))
        return BatchFiles(batch_size=1, paths=paths, file_bytes={path: 9 for (path,) in paths}, in_order=True)

    def pool_reads(self) -> list[BatchReads]:
        return [BatchReads(called_bytes=9)] * self.pool

    def repeats(self) -> bool:
        return True


@pytest.mark.parametrize(("fails", "took_s"), [(False, 57.0), (True, 74.1)])
def test_all_batches_of_a_pool_are_made_before_their_files_are_evicted(fails: bool, took_s: float) -> None:
    """So the files of each are known; what is ahead need not be taken for that, but where workers do not come to an
    end, which shows why. One batch of each worker is compared: 8 have 4 ahead, and take 5.7 s for each."""
    made = scripted(4096, ScriptedLoader, cpu_s=5.7, workers=8, prefetch_factor=4, batch_size=1)
    loader = Pool(made, fails=fails)
    begun_ns = loader.clock.now_ns()
    found = Discovery(
        loader=loader,  # type: ignore[arg-type]  # as far as it is discovered
        cache=FakePageCache(), workers=8, ahead=32, spent_s=lambda: (loader.clock.now_ns() - begun_ns) / 1e9,
        budget_s=85.0, counts_reads=lambda files: True,
    ).run()  # fmt: skip
    rows = loader.records()
    made_ns = [begin_ns + wall_ns for begin_ns, wall_ns in zip(rows.start_ns, rows.wall_ns, strict=True)]
    assert loader.evicted_ns >= max(
        made for made, number in zip(made_ns, rows.batch, strict=True) if number < found.pool
    )
    assert found.pool == 56 and found.first_pass is not None and found.first_pass.images == 8
    assert (loader.clock.now_ns() - begun_ns) / 1e9 == pytest.approx(took_s)


def records(wall_ns: Sequence[int], cpu_ns: int, run_delay_ns: Sequence[int] | None = None) -> WorkerBatches:
    """Of one worker, 4 images and 5 bytes read a batch."""
    count = len(wall_ns)
    return WorkerBatches(
        batch=tuple(range(count)), worker=(0,) * count, start_ns=(0,) * count, wall_ns=tuple(wall_ns),
        cpu_ns=(cpu_ns,) * count, run_delay_ns=tuple(run_delay_ns or (0,) * count), read_bytes=(5,) * count,
        images=(4,) * count,
    )  # fmt: skip


MADE = records(range(1, 13), cpu_ns=1)
DELAYED = records([5, 5, 50, *[5] * 7], cpu_ns=4, run_delay_ns=[0, 0, 45, 60, *[0] * 6])
STALLED = records([*[50] * 3, 80, 70, *[1] * 5], cpu_ns=50)


@pytest.mark.parametrize(
    ("made", "skipped", "again", "expected"),
    [
        # Numbers 7, 8, 9, 11: the first batch of a worker pays for imports, and batch 10 is that one again.
        (MADE, 1, range(7, 12), {"images": 16, "called_bytes": 4 * 7, "read_bytes": 4 * 5, "wall_s": 14e-9}),
        # A busy machine makes the first pass long; a delay between two records never makes a batch negative.
        (DELAYED, 1, range(5, 10), {"wall_s": 19e-9, "again_wall_s": 20e-9, "quicker": False}),
        # A stall of the machine holds two of five batches up: the sums show it, the usual batch does not.
        (STALLED, 0, range(5, 10), {"wall_s": 300e-9, "cpu_s": 250e-9, "usual_wait_fraction": 0}),
    ],
)
def test_what_a_pass_took(made: WorkerBatches, skipped: int, again: range, expected: dict[str, float]) -> None:
    """Not the first batch of a worker, the wait for a core, or a stall; without a second time there is none."""
    found = measured_first_pass(made, (7,) * 5, pool=5, skipped=skipped, again=again)
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected)
    assert measured_first_pass(made, (), pool=5, skipped=skipped, again=range(0)) is None


@pytest.mark.parametrize(
    ("changes", "samples", "size"),
    [
        ({}, 1000, 100_000.0),
        ({"called_bytes": 700, "again_read_bytes": 10**8}, 10_000, 100_000.0),  # mapped
        ({"called_bytes": 700}, None, None),  # mapped, of unknown length
        ({"read_bytes": 0, "again_read_bytes": 0}, 1000, None),  # not from storage
    ],
)
def test_a_sample_has_the_bytes_of_its_files(changes: dict[str, int], samples: int | None, size: float | None) -> None:
    """Not what the kernel reads around it, which is compared with them; nothing of what no storage read."""
    assert bytes_of_sample(FILES, FirstPass(**(PASS | changes)), samples) == size


@pytest.mark.parametrize(("batch_s", "busy_s", "waits_s"), [(0.1, 0.3, 0.3), (0.1, 60, 10), (20, 30, 30), (20, 60, 40)])
def test_compute_alone_waits_until_the_workers_rest(batch_s: float, busy_s: float, waits_s: float) -> None:
    """Who would take its cores: it came out at a fifth of its rate. Each makes two batches, as the longest so far."""

    class Busy(ScriptedLoader):
        def still(self, taken: int) -> bool:
            return self.clock.now_ns() >= begun_ns + busy_s * 1e9

        def records(self) -> Any:
            return SimpleNamespace(wall_ns=(round(batch_s * 1e9),))

    loader = scripted(4096, Busy)
    begun_ns = loader.clock.now_ns()
    rest(loader, 10, loader.clock, 2)
    assert (loader.clock.now_ns() - begun_ns) / 1e9 == pytest.approx(waits_s, abs=2 * REST_S)


class Reading(ScriptedLoader):
    """Its worker has made one image, and read these bytes for it."""

    read_bytes = 0.0

    def records(self) -> Any:
        return SimpleNamespace(images=(1,), read_bytes=(self.read_bytes,))


@pytest.mark.parametrize(("read_bytes", "whole"), [(500.0, False), (2000.0, True)])
def test_small_shards_are_made_warm_by_reading_them(read_bytes: float, whole: bool) -> None:
    """A pool of 10 batches of 4 images reads 40 times those bytes; the shard has 64 kB."""
    loader, cache, taken = scripted(4096, Reading, batch_size=4), FakePageCache(), list[int]()
    shard = PartFiles(file_bytes={"/data/a.tar": 64_000})
    ready = Readiness(loader.config, shard, "parts", loader, cache, taken.append, pool=10)
    # What was read so far says it once: later it is mixed with warm batches.
    for so_far in (read_bytes, 0.0):
        loader.read_bytes = so_far
        ready.prepare("warm", taken=0, pace=Pace(), cores=2)
    assert (Path("/data/a.tar") in cache.held, taken) == (whole, [] if whole else [10, 10])


def evicting(*, random: bool) -> Any:
    """A loader whose workers evict ahead, where samples are drawn in random order; keeps what it was asked."""
    asked: list[Sequence[Path]] = [()]
    return SimpleNamespace(
        asked=asked, pool=40, evicts=lambda: random, evict_ahead=asked.append, release=lambda taken: None,
        extend_pool=lambda batches: max(40, batches),
    )  # fmt: skip


def ready_for(loader: Any, shards: int, megabytes: float, **known: Any) -> Readiness:
    """Samples of 100 kB, 16 a batch, in so many files of so many MB."""
    files = PartFiles(file_bytes={f"/data/{number}.tar": round(megabytes * 1e6) for number in range(shards)})
    facts = {"sample_bytes": 1e5, "read_ahead_bytes": 2_621_440, **known}
    config = example_config(workers=2, batch_size=16)
    return Readiness(config, files, "parts", loader, FakePageCache(), lambda count: None, loader.pool, **facts)


@pytest.mark.parametrize(("random", "shards", "evicts"), [(True, 1, True), (False, 1, False), (True, 300, False)])
def test_files_of_random_samples_are_evicted_ahead_to_be_cold(random: bool, shards: int, evicts: bool) -> None:
    """Not those of a stream, and not many: what is read ahead ends with its file. Never while they are made warm."""
    assert (shards > MOST_EVICTED_AHEAD) == (shards == 300)
    loader = evicting(random=random)
    ready = ready_for(loader, shards, 90.0)
    for mode in ("baseline", "warm"):
        ready._evict_ahead(cold=mode == "baseline")
        assert bool(loader.asked[-1]) == (evicts and mode == "baseline")
    limited = ready.limit(Pace(multiple=2), "baseline", 6).max_batches
    assert limited == (None if evicts else ready.pool - 6 - ready.untimed("baseline"))


def test_many_small_files_beside_a_large_one_do_not_keep_it_warm() -> None:
    """Those of a project, say, whose folder code names."""
    loader = evicting(random=True)
    ready = ready_for(loader, 300, 0.01)
    ready.files = PartFiles(file_bytes={**ready.files.file_bytes, "/data/z.bin": 9 * 10**9})  # type: ignore[union-attr]  # of parts
    ready._evict_ahead(cold=True)
    assert loader.asked[-1][0] == Path("/data/z.bin") and len(loader.asked[-1]) == MOST_EVICTED_AHEAD
    assert ready.limit(Pace(multiple=2), "baseline", 6).max_batches is None


@pytest.mark.parametrize(
    ("shards", "megabytes", "known", "multiple"),
    [
        (8, 11.2, {}, 14),
        (8, 100.0, {}, 2),  # long shards
        (2, 11.2, {}, 2),  # fewer than a segment takes
        (8, 11.2, {"read_ahead_bytes": None}, 2),
        (8, 11.2, {"sample_bytes": None}, 2),
    ],
)
def test_a_segment_has_whole_short_shards(shards: int, megabytes: float, known: dict[str, Any], multiple: int) -> None:
    """112 samples, 7 batches: then as much is read ahead at its end as at its begin."""
    ready = ready_for(evicting(random=False), shards, megabytes, **known)
    assert ready.limit(Pace(multiple=2), "baseline", 6).multiple == multiple

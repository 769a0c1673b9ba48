"""One configuration, measured on a fake clock where every rate is known exactly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.measure.assembly import make_compute
from loaderprobe.measure.segments import REST_S, Pace, Readiness
from loaderprobe.records.files import PartFiles
from loaderprobe.testing import FakeClock, FakePageCache, ScriptedLoader, Service, example_config, example_files
from tests.measure.conftest import Measure
from tests.measure.scripted import scripted_session
from tests.said import all_said


def test_storage_is_named_with_its_exact_speedup(measure_fake: Measure) -> None:
    """2 workers, 2 ms CPU and 6 ms storage an image: 250 images/s cold, 1000 warm, so the speed-up is 4."""
    judged = verdict(measure_fake(Service(cpu_s=0.002, blocked_s=0.006), compute="emulated:100000"))
    assert judged.bound.cause == "storage"
    assert judged.bound.side == "input"
    assert judged.images_per_s.value == pytest.approx(250, rel=0.02)
    assert judged.speedups.storage is not None
    assert judged.speedups.storage.value == pytest.approx(4, rel=0.03)
    assert judged.speedups.storage.how == "measured"
    assert judged.cold_fraction == pytest.approx(1)


@dataclass(frozen=True)
class Shards:
    """Files of many samples each, which is all that a session needs to know."""

    shards: int = 64
    samples: int = 64
    sample_bytes: int = 100_000

    @property
    def count(self) -> int:
        """Samples in all shards."""
        return self.shards * self.samples

    def absolute(self, first: int, count: int) -> list[Path]:
        """Each shard once."""
        numbers = (k // self.samples % self.shards for k in range(first, first + count))
        return [Path(f"/nowhere/{number}.tar") for number in dict.fromkeys(numbers)]

    def delivered_bytes(self, first: int, count: int) -> int:
        """All samples are of one size."""
        return count * self.sample_bytes


def test_a_file_may_hold_many_samples() -> None:
    """A session asks any `Files` which of them a batch reads: each is evicted, warmed and counted."""
    clock, cache, files = FakeClock(), FakePageCache(), Shards()
    config = example_config(compute="emulated:100000")
    service = Service(cpu_s=0.002, blocked_s=0.4)
    session = scripted_session(service, clock, make_compute(config, clock), config, files, cache, thorough=True)
    session.run()
    segments = session.measurement((), ()).segments
    resident = {each.mode: each.resident_before for each in segments}
    assert (resident["baseline"], resident["warm"]) == (0.0, 1.0)
    assert all(each.delivered_bytes == each.steps * each.batch_size * files.sample_bytes for each in segments)


def test_the_wait_for_the_first_batch_after_a_flush_is_not_timed(measure_fake: Measure) -> None:
    """Two workers of 200 ms a batch keep up with steps of 150 ms, but after a flush none of theirs is ready."""
    service = Service(cpu_s=0.0001, blocked_s=0.0249)
    judged = verdict(measure_fake(service, workers=2, batch_size=8, compute="emulated-sync:53.333"))
    assert judged.images_per_s.value == pytest.approx(53.333, rel=0.001)
    assert judged.bound.cause == "compute"


def test_compute_binding_needs_no_cold_proof(measure_fake: Measure) -> None:
    """Where even a free input gains nothing, a missing experiment cannot matter."""
    cache = FakePageCache(stubborn=True)
    judged = verdict(
        measure_fake(
            Service(cpu_s=0.001, blocked_s=0.001), page_cache=cache, files=example_files(2048), compute="emulated:50"
        )
    )
    assert judged.bound.cause == "compute"


def test_every_file_is_read_once_in_a_cold_segment(measure_fake: Measure) -> None:
    """The segment ends before the set begins again, so all its bytes come from storage."""
    measurement = measure_fake(
        Service(cpu_s=0.0001, blocked_s=0.0001), files=example_files(512), compute="emulated:1e6"
    )
    for segment in measurement.segments:
        if segment.mode == "baseline":
            assert segment.steps * segment.batch_size < 512
    judged = verdict(measurement)
    assert judged.cold_fraction == pytest.approx(1)


def test_too_few_files_are_measured_and_noted(measure_fake: Measure) -> None:
    """Twelve files cannot be read each once in a segment: measured all the same, with the number needed."""
    measurement = measure_fake(
        Service(cpu_s=0.002, blocked_s=0.001), files=example_files(12), batch_size=4, compute="emulated:50"
    )
    assert any("too few" in note for note in all_said(measurement.notes))
    assert verdict(measurement).bound.cause == "compute"


def test_the_first_batch_is_apart(measure_fake: Measure) -> None:
    """The wait for it is reported, and is in no segment."""
    measurement = measure_fake(Service(cpu_s=0.002))
    assert measurement.first_batch_s > 0
    assert all(segment.first_batch != 0 for segment in measurement.segments)


def test_rounds_hold_every_mode(measure_fake: Measure) -> None:
    """Each round has each planned segment once, in an order that differs between rounds."""
    measurement = measure_fake(Service(cpu_s=0.002), rounds=5)
    orders = [[(s.mode, s.activity) for s in measurement.segments if s.round == number] for number in range(5)]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len({tuple(order) for order in orders}) > 1


class Busy(ScriptedLoader):
    """Workers that go on making batches for 0.3 s after a segment."""

    def still(self, taken: int) -> bool:
        self.asked = getattr(self, "asked", 0) + 1
        return self.asked > 150


@pytest.mark.parametrize(("budget_s", "segments"), [(9.0, 8), (11.0, 10)])
def test_an_ablation_is_not_thought_as_slow_as_cold_reads(budget_s: float, segments: int) -> None:
    """Cold segments take 1.6 s here, warm ones 0.7 s: a round begins when there is time for its own segments."""
    clock, files, cache = FakeClock(), example_files(4096), FakePageCache()
    config = example_config(data=files.fingerprint, compute="emulated:100000", batch_size=8)
    service = Service(cpu_s=0.001, blocked_s=0.05)
    compute = make_compute(config, clock)
    session = scripted_session(service, clock, compute, config, files, cache, budget_s=budget_s)
    session.run()
    assert len(session.measurement((), ()).segments) == segments


def test_compute_alone_waits_until_the_workers_rest() -> None:
    """On a CPU they would take its cores from it: compute alone came out at a fifth of its rate."""
    clock, files = FakeClock(), example_files()
    config = example_config(data=files.fingerprint)
    loader = Busy(config, files, clock, FakePageCache(), Service(cpu_s=0.001))
    ready = Readiness(config, files, "files", loader, FakePageCache(), lambda count: None)
    begun_ns = clock.now_ns()
    ready.rest(10, clock)
    assert clock.now_ns() - begun_ns == pytest.approx(150 * REST_S * 1e9)


@pytest.mark.parametrize(("read_bytes", "whole"), [(500.0, False), (2000.0, True)])
def test_small_shards_are_made_warm_by_reading_them(read_bytes: float, whole: bool) -> None:
    """A pool of 10 batches of 4 images reads 40 times those bytes; the shard has 64 kB."""
    clock, files, cache, taken = FakeClock(), example_files(), FakePageCache(), list[int]()
    config = example_config(data=files.fingerprint, batch_size=4)
    shard = PartFiles(file_bytes={"/data/a.tar": 64_000})
    loader = ScriptedLoader(config, files, clock, cache, Service(cpu_s=0.001))
    ready = Readiness(config, shard, "parts", loader, cache, taken.append, pool=10)
    # What was read so far says it once: later it is mixed with warm batches.
    for so_far in (read_bytes, 0.0):
        ready.prepare("warm", taken=0, pace=Pace(), to_flush=4, cpu_s=0.001, read_bytes=so_far, cores=2)
    assert (Path("/data/a.tar") in cache.held, taken) == (whole, [] if whole else [10, 10])

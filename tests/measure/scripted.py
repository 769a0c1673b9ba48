"""Whole measurements of scripted loaders on fake clocks: by one process, and by ranks that are threads."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loaderprobe.errors import LostRank
from loaderprobe.measure.assembly import make_compute
from loaderprobe.measure.collectives import Collectives
from loaderprobe.measure.runner import Child, Start
from loaderprobe.measure.segment_runner import Parts
from loaderprobe.measure.session import Session
from loaderprobe.protocols import Clock, Compute, Files, Peers
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, Missing, Mode, Others
from loaderprobe.system.others import OthersMeter
from loaderprobe.testing import FakeClock, FakePageCache, ScriptedLoader, Service, example_config, example_files
from tests.fakes import FakeGroup, FakeStore, example_location


def by_command(command: Callable[[Path, Path], list[str]]) -> Start:
    """Starts children that are programs of any kind: from the paths of order and result to a command line."""

    def start(order: Path, result: Path, log: Path) -> Child:
        with log.open("wb") as log_file:
            return subprocess.Popen(
                command(order, result), stdout=subprocess.PIPE, stderr=log_file, start_new_session=True, bufsize=0
            )

    return start


FEW_STEPS = 500
"""What costs no time on a fake clock has so many steps in a segment, and not ten thousand."""


class PlantedDisturbance(OthersMeter):
    """Other processes that take a share of two cores: in each timed part, from the first, the one that is planted.
    After the last they take nothing."""

    def __init__(self, clock: Clock, shares: Sequence[float] = ()) -> None:
        super().__init__()
        self._clock, self._shares, self._begun = clock, list(shares), (0, 0)

    def begin(self) -> None:
        self._begun = self._clock.now_ns(), self._clock.process_cpu_ns()

    def end(self) -> Others:
        span_ns = max(1, self._clock.now_ns() - self._begun[0])
        share = self._shares.pop(0) if self._shares else 0.0
        own_cpu_ns = self._clock.process_cpu_ns() - self._begun[1]
        return Others(span_ns=span_ns, cores=2, cpu_ns=round(share * 2 * span_ns), own_cpu_ns=own_cpu_ns, steal_ns=0)

    def missing(self) -> Sequence[Missing]:
        return ()


class ScriptedStream(ScriptedLoader):
    """Begins again with every switch, for which it fills a buffer with 500 images."""

    begins = False

    def switch(self, mode: Mode) -> None:
        super().switch(mode)
        self.begins = True

    def batches(self) -> Iterator[Any]:
        for batch in super().batches():
            self.clock.sleep(500 * self.service.cpu_s if self.begins else 0.0)
            self.begins = False
            yield batch

    def repeats(self) -> bool:
        return False

    def take_new(self) -> None: ...
    def repeat(self, batches: int) -> None: ...
    def new_left(self) -> float:
        return 0.0


def scripted_parts(
    service: Service, clock: FakeClock, compute: Compute, config: RunConfig, files: Files, cache: FakePageCache,
    others: Sequence[float] = (),
) -> Parts:  # fmt: skip
    """The parts of a session on a scripted loader and a fake clock; `others` take these shares of the cores."""
    return Parts(
        loader=ScriptedLoader(config, files, clock, cache, service), compute=compute, clock=clock, cache=cache,
        location=example_location("/nowhere"), cores_available=64.0, counts_devices=False,
        disturbance=PlantedDisturbance(clock, others),
    )  # fmt: skip


def scripted_session(
    service: Service, config: RunConfig, files: Files, *, clock: FakeClock | None = None,
    cache: FakePageCache | None = None, make: Callable[[RunConfig, FakeClock], Compute] = make_compute, **options: Any,
) -> Session:  # fmt: skip
    """A session of such a loader; `options` are its own, `others` of its parts."""
    clock = clock or FakeClock()
    cache, others = cache or FakePageCache(), options.pop("others", ())
    parts = scripted_parts(service, clock, make(config, clock), config, files, cache, others)
    return Session(config=config, files=files, parts=parts, on_stage=lambda *_: None, **options)


def measured(session: Session) -> Measurement:
    session.run()
    return session.measurement((), ())


def measured_alone(
    service: Service, *, files: FileSet | None = None, session: dict[str, Any] | None = None, **changes: Any
) -> Measurement:
    """By one process; `session` are options of the session, `changes` of the configuration."""
    files = files or example_files()
    config = example_config(data=files.fingerprint, **changes)
    return measured(scripted_session(service, config, files, **(session or {})))


class Waiting:
    """A group whose meetings last until the slowest has come, on the clocks of all."""

    def __init__(self, group: FakeGroup, clock: FakeClock) -> None:
        self._group, self._clock = group, clock
        self._met_ns = clock.now_ns()
        self.rank, self.size = group.rank, group.size

    def all_reduce_max(self, *values: int, leaving: bool = False) -> tuple[int, ...]:
        own_ns = self._clock.now_ns() - self._met_ns
        *found, longest_ns = self._group.all_reduce_max(*values, own_ns, leaving=leaving)
        self._clock.sleep((longest_ns - own_ns) / 1e9)
        self._met_ns = self._clock.now_ns()
        return tuple(found)

    def gather(self, value: bytes) -> tuple[bytes, ...]:
        self.all_reduce_max()
        return self._group.gather(value)

    def broadcast(self, value: bytes) -> bytes:
        self.all_reduce_max()
        return self._group.broadcast(value)


class Rank:
    """One rank in a thread of its own, with a fake clock of its own, which began at another time."""

    def __init__(
        self, group: FakeGroup, device: FakeGroup, service: Service, files: FileSet, config: RunConfig,
        budget_s: float | None, earlier: Measurement | None,
    ) -> None:  # fmt: skip
        self._group, self._service, self._config, self._budget_s = group, service, config, budget_s
        self._files, self._earlier = files.shard(group.rank, group.size), earlier
        self._peers = Peers(group=device, local_rank=group.rank, cores=1.0, store=FakeStore(), timeout_s=1.0)
        self.own: Measurement | None = None
        self.all: Measurement | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001  # the test raises it
            self.error = error
            self._group.leave()

    def _run(self) -> None:
        clock, config = FakeClock(), self._config
        clock.sleep(1.7 * self._group.rank)
        group = Waiting(self._group, clock)
        compute = make_compute(config, clock, self._peers)
        collectives = Collectives(group)
        parts = scripted_parts(self._service, clock, compute, config, self._files, FakePageCache())
        measures = Session(
            config=config, earlier=self._earlier, files=self._files,
            parts=replace(parts, collectives=collectives),
            on_stage=lambda *_: None, budget_s=self._budget_s,
        )  # fmt: skip
        measures.run()
        measures.profile()
        self.own = measures.measurement((), ())
        collectives.gather(self.own)
        self.all = collectives.together(self._earlier) if collectives.by_rank else None


def in_threads(calls: Iterable[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ran(
    *services: Service, files: FileSet | None = None, budgets_s: tuple[float | None, ...] | None = None,
    earlier: Measurement | None = None, **changes: Any,
) -> list[Rank]:  # fmt: skip
    """All ranks, to their ends. Raises the error that began it, before what others heard of it."""
    size, files = len(services), files or example_files()
    config = replace(example_config(data=files.fingerprint, **changes), ranks=size)
    ranks = [
        Rank(group, device, service, files, config, budget_s, earlier)
        for group, device, service, budget_s in zip(
            FakeGroup.of(size), FakeGroup.of(size), services, budgets_s or (None,) * size, strict=True
        )
    ]
    in_threads(rank.run for rank in ranks)
    for rank in sorted(ranks, key=lambda rank: isinstance(rank.error, LostRank)):
        if rank.error:
            raise rank.error
    return ranks


def together(ranks: list[Rank]) -> Measurement:
    assert ranks[0].all is not None
    return ranks[0].all

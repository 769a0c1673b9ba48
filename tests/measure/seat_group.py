"""Processes of a launcher, as threads with a store in memory; their children are shell scripts."""

from __future__ import annotations

import shlex
import subprocess
import threading
from pathlib import Path

from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks.launch import Lead, Seat
from loaderprobe.measure.runner import Child, Event, Order, Start
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.ranks import Launched, Place, SeatSeen
from loaderprobe.store.codec import decode
from loaderprobe.testing import FakeStore, example_config, example_files

AT_ROUND = """echo '{"stage": "round 1"}'; """
DONE = AT_ROUND + "cp $MEASURED $RESULT"
KILLED = AT_ROUND + "kill -9 $$"
KILLED_WITH_WORKER = AT_ROUND + "sleep 1000 & kill -9 $$"
"""Its worker holds its output, as those of a DataLoader do for some seconds."""
HUNG = """echo '{"stage": "joining"}'; exec sleep 1000"""
RAISED = AT_ROUND + """echo '{"stage": "round 1", "failure": "ValueError: no"}'; exit 1"""
LOST = AT_ROUND + """echo '{"stage": "round 1", "failure": "another rank has gone", "lost": true}'; exit 1"""
WAITS = AT_ROUND + "exec sleep 1000"


class Group:
    """Two nodes with as many processes each as asked; `scripts` are those of the children, by rank."""

    def __init__(self, nodes: int, local: int, folder: Path, measured: bytes) -> None:
        self.store, self.folder = FakeStore(), folder
        self.scripts: dict[int, list[str]] = {}
        self.places: list[Place] = []
        self.codes: list[int] = []
        self._measured = folder / "measured.json"
        self._measured.write_bytes(measured)
        self.seats = [self.seat(rank, nodes * local, rank // local) for rank in range(nodes * local)]
        self.threads = [threading.Thread(target=self._follow, args=(seat,), daemon=True) for seat in self.seats[1:]]
        self.raised: list[BaseException] = []

    def seat(self, rank: int, size: int, node: int, version: str = "1") -> Seat:
        here = Launched(rank=rank, size=size, node=str(node), address="head", port=1, agent_store=True)
        seen = SeatSeen(rank=rank, host=f"host{node}", node=str(node), gpus=(), version=version)
        return Seat(here, seen, self.store, self.store, SystemClock(), "p/0")

    def lead(self) -> Lead:
        for thread in self.threads:
            thread.start()
        self.seats[0].come()
        return Lead(self.seats[0], self.start(0))

    def _follow(self, seat: Seat) -> None:
        try:
            seat.come()
            self.codes.append(seat.follow(self.start(seat.here.rank)))
        except BaseException as error:  # noqa: BLE001  # the test looks for it
            self.raised.append(error)

    def start(self, rank: int) -> Start:
        """Each child of a rank runs its next script."""

        def begin(order: Path, result: Path, log: Path) -> Child:
            read = decode("order", order.read_bytes(), Order, "order")
            assert read.place is not None
            self.places.append(read.place)
            script = f"MEASURED={shlex.quote(str(self._measured))}; RESULT={shlex.quote(str(result))}; "
            script += self.scripts[rank].pop(0)
            with log.open("wb") as log_file:
                return subprocess.Popen(
                    ["/bin/sh", "-c", script],
                    stdout=subprocess.PIPE,
                    stderr=log_file,
                    start_new_session=True,
                    bufsize=0,
                )

        return begin


ORDER_FILES = example_files(16)


def order(ranks: int = 2, nodes: int = 1) -> Order:
    """Of a configuration of several ranks."""
    config = example_config(data=ORDER_FILES.fingerprint, ranks=ranks, nodes=nodes)
    return Order(config=config, files=ORDER_FILES, budget_s=None, begin_ns=7)


def measure(lead: Lead, asked: Order, events: list[Event] | None = None) -> Measurement | RunFailure:
    """In the children of all ranks."""
    heard = events if events is not None else []
    return lead.run(asked, Measurement, clock=SystemClock(), time_limit_s=60.0, on_event=heard.append)

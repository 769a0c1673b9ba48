"""A rank without torch, which does what the name of its model says: measure, or fail in one of the ways of ranks."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from pathlib import Path

from loaderprobe.measure.clock import SystemClock
from loaderprobe.records.devices import DeviceSegment
from loaderprobe.records.ranks import RankError, RankOrder, RankRecord
from loaderprobe.store.codec import decode, encode, write_atomically
from loaderprobe.store.marks import MarksFile
from loaderprobe.system.process import die_with_parent


def main(order_path: Path, rank: int) -> int:
    """The trouble is planted on the last rank; the others then lose it, or wait for it."""
    die_with_parent(os.getppid())
    faulthandler.register(signal.SIGUSR1)
    order = decode("rank-order", order_path.read_bytes(), RankOrder, str(order_path))
    marks = MarksFile(order.marks(rank))
    marks.segment(3, 8)
    way, last = order.workload.model, rank == order.placement.ranks - 1
    if way != "measures":
        sys.stderr.write(f"rank {rank} is about to end\n")
        sys.stderr.flush()
        return _ends(way, order, rank) if last else _waits(way, order, rank, marks)
    segment = DeviceSegment(name="training", round=0, batch_size=8, steps=2, seconds=(1.0 + rank,))
    record = RankRecord(rank=rank, device="", backend="gloo", gradient_bytes=12, segments=(segment,))
    write_atomically(order.result(rank), encode("rank-record", record))
    return 0


def _ends(way: str, order: RankOrder, rank: int) -> int:
    if way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if way in ("raises", "wrong"):
        return _raises(order, rank, "ValueError: no way", wrong=way == "wrong")
    if way == "exits":
        return 7
    threading.Event().wait()
    return 0


def _waits(way: str, order: RankOrder, rank: int, marks: MarksFile) -> int:
    """It is one step further, and loses the other or waits for it."""
    marks.mark()
    if way in ("hangs", "raises"):
        threading.Event().wait()
    return _raises(order, rank, "RuntimeError: Connection reset by peer")


def _raises(order: RankOrder, rank: int, reason: str, *, wrong: bool = False) -> int:
    found = RankError(
        rank=rank, reason=reason, hint="try another", exit_code=2 if wrong else 1, at_ns=SystemClock().now_ns(),
        everywhere=wrong,
    )  # fmt: skip
    write_atomically(order.error(rank), encode("rank-error", found))
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))

"""The process of one rank, which the launcher starts: `python -m loaderprobe.measure.ranks.placement_rank`."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path

from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.runner import explain_error
from loaderprobe.plugins import resolve
from loaderprobe.records.ranks import RankError, RankOrder, RankRecord
from loaderprobe.store.codec import decode, encode, write_atomically
from loaderprobe.store.marks import MarksFile
from loaderprobe.system.process import die_with_parent


def measure(order: RankOrder, rank: int) -> RankRecord:
    """Make the model and its samples, and time them."""
    from loaderprobe.compute.placement_rank import PlacementSession
    from loaderprobe.compute.trainer import training_of

    marks = MarksFile(order.marks(rank))
    training = training_of(order.workload, resolve("model", order.workload.model), order.seed)
    return PlacementSession(order, training, rank, marks, SystemClock()).run()


def main(order_path: Path, launcher: int, rank: int) -> int:
    """Measure and write the result, or the exception; returns the exit code."""
    die_with_parent(launcher)
    # The parent asks a rank that hangs where it is.
    faulthandler.register(signal.SIGUSR1)
    order = decode("rank-order", order_path.read_bytes(), RankOrder, str(order_path))
    try:
        record = measure(order, rank)
    except Exception as error:  # noqa: BLE001  # the border of the process: everything becomes a record
        traceback.print_exc()
        reason, hint = explain_error(error)
        code = error.exit_code if isinstance(error, LoaderprobeError) else LoaderprobeError.exit_code
        found = RankError(
            rank=rank, reason=reason, hint=hint, exit_code=code, at_ns=SystemClock().now_ns(),
            everywhere=isinstance(error, LoaderprobeError),
        )  # fmt: skip
        write_atomically(order.error(rank), encode("rank-error", found))
        return code
    write_atomically(order.result(rank), encode("rank-record", record))
    return 0


if __name__ == "__main__":
    _code = main(Path(sys.argv[1]), int(sys.argv[2]), int(os.environ["RANK"]))
    sys.stderr.flush()
    # The destructors of gloo may wait for ranks that have gone.
    os._exit(_code)

"""torchrun on this host: `python -m loaderprobe.compute.seats PARENT RANKS ARGUMENTS...` runs loaderprobe so often.

It is torch.distributed.run; only how it ends differs: with the exit code of rank 0, and without a traceback.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from loaderprobe.system.process import die_with_parent

FAILED = 1


def launch(parent: int, ranks: int, arguments: Sequence[str]) -> int:
    """Run all to their end; returns the exit code of rank 0, or of the one that failed first."""
    die_with_parent(parent)
    # What it logs of processes that fail, each says itself.
    logging.disable(logging.CRITICAL)
    options = ["--standalone", "--nnodes", "1", "--nproc-per-node", str(ranks), "--local-addr", "127.0.0.1"]
    program = [sys.executable, "-P", "-m", "loaderprobe", *arguments]
    try:
        started = run.parse_args([*options, "--no-python", *program])  # type: ignore[no-untyped-call]
        run.run(started)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        _, first = error.get_first_failure()
        code = int(error.failures.get(0, first).exitcode)
        if code == -signal.SIGTERM:  # the agent ended it, because of the first
            code = int(first.exitcode)
        return code if code >= 0 else 128 - code
    except SignalException as ended:
        return 128 + int(ended.sigval)
    return 0


if __name__ == "__main__":
    sys.exit(launch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

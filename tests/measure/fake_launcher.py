"""A launcher without torch: it starts the ranks of an order, and says how they ended, as the real one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from loaderprobe.records.ranks import LauncherEnd, RankEnd, RankOrder
from loaderprobe.store.codec import decode, encode, write_atomically
from loaderprobe.system.process import die_with_parent


def main(order_path: Path, parent: int, module: str) -> int:
    """Run all ranks to their end; one that stays is ended when another has failed."""
    die_with_parent(parent)
    order = decode("rank-order", order_path.read_bytes(), RankOrder, str(order_path))
    started = []
    for rank in range(order.placement.ranks):
        folder = order.logs / "run" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        with (folder / "stderr.log").open("wb") as log:
            command = [sys.executable, "-P", "-m", module, str(order_path), str(rank)]
            started.append((subprocess.Popen(command, stderr=log), folder / "stderr.log"))
    codes: list[int] = []
    for process, _ in reversed(started):
        if any(codes):
            process.terminate()
        codes.append(process.wait())
    failed = tuple(
        RankEnd(rank=rank, exit_code=process.returncode, log=str(log))
        for rank, (process, log) in enumerate(started)
        if process.returncode
    )
    if failed:
        write_atomically(order.ends, encode("launcher-end", LauncherEnd(failed=failed)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))

"""Files on a block device of their own, and processes whose page cache holds only a part of them; as root.

A loop device whose reads the kernel counts, and a memory cgroup (version 1, else 2). A guardian process undoes both
even when this process is killed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.planted.slow_cgroup import inside
from tests.planted.slow_disk import CannotPlant, guarded
from tests.planted.slow_guardian import Order
from tests.planted.slow_reader import evict, files_in

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MOST_BYTES = 1 << 40
"""Of memory, before a limit is set: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallMemory:
    """A folder, and a cgroup of processes that read it; the folder's files are cold when it is handed out."""

    folder: Path
    how: str
    group: Path

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv`, wrapped so that its process and the children of that share the limit."""
        return inside(self.group / "cgroup.procs", argv)

    def cached_bytes(self) -> int:
        """Of files in the page cache of the cgroup."""
        fields = dict(line.split() for line in (self.group / "memory.stat").read_text().splitlines())
        return int(fields["active_file"]) + int(fields["inactive_file"])

    def used_bytes(self) -> int:
        return int(self._file("memory.usage_in_bytes", "memory.current").read_text()) - self.cached_bytes()

    def leave_for_files(self, size_bytes: float) -> None:
        """Limit the memory to this and what the cgroup uses now beside files."""
        self._limit().write_text(str(round(size_bytes + self.used_bytes())))

    def lift(self) -> None:
        self._limit().write_text("-1" if self._limit().name == "memory.limit_in_bytes" else "max")

    def read_bytes(self) -> int:
        """That the device under the folder has served so far, for all processes."""
        device = self.folder.stat().st_dev
        return int(Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()[2]) * 512

    def _limit(self) -> Path:
        return self._file("memory.limit_in_bytes", "memory.max")

    def _file(self, *names: str) -> Path:
        """What version 1 and version 2 call it."""
        return next(self.group / name for name in names if (self.group / name).exists())


@contextmanager
def small_memory(*, fill: Callable[[Path], None], scratch: Path, size_bytes: int) -> Iterator[SmallMemory]:
    """A disk of `size_bytes` with the files that `fill` writes into the folder it is given, all in `scratch`.

    The memory is without a limit until one is set. Raises CannotPlant without root or a memory controller.
    """
    order = Order(
        owner_pid=os.getpid(),
        scratch=str(scratch.resolve()),
        kind="small_memory",
        limit=MOST_BYTES,
        size_bytes=size_bytes,
        ways=("memory",),
    )
    with guarded(order) as planted:
        if not planted.members:
            raise CannotPlant("small_memory", planted.reasons)
        made = SmallMemory(folder=Path(planted.folder), how=planted.how, group=Path(planted.members).parent)
        fill(made.folder)
        subprocess.run(["sync", "--file-system", made.folder], check=True)
        evict(files_in(made.folder))
        yield made


def pages_bytes(files: Sequence[Path]) -> int:
    """What they take in the page cache."""
    return sum(-(-file.stat().st_size // PAGE_BYTES) * PAGE_BYTES for file in files)

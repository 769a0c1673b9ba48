"""What other processes take of the machine: all CPU time, less that of own processes."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loaderprobe.records.measurement import Missing, Others
from loaderprobe.records.remark import Remark
from loaderprobe.system.host import cores_allowed, cores_total
from loaderprobe.system.process import TICKS_PER_S, ProcessCounters, children_of, read_proc, read_process

PROC = Path("/proc")
TICK_NS = 1_000_000_000 // TICKS_PER_S
# Places in /proc/stat after the name: user, nice, system, idle, iowait, irq, softirq, steal. Interrupts are left out:
# they serve own reads as much as anything else.
_BUSY, _STEAL = (0, 1, 2), 7


_Processes = dict[tuple[int, int], ProcessCounters]
"""By number and start."""


@dataclass(frozen=True, slots=True)
class _Reading:
    now_ns: int
    busy: int
    steal: int
    tree: _Processes
    """The own processes but for ancestors."""
    above: _Processes
    """The ancestors; of their other children nothing counts as own."""


class OthersMeter:
    """Reads what other processes did between `begin` and `end`, in the thread that calls both.

    `roots` are processes that count as own with all that they start: this one always, and those of other ranks here.
    One reading takes 0.4 ms, with ten own processes 1.6 ms, and with 200 threads more 4.6 ms.
    """

    def __init__(self, roots: Sequence[int] = (), proc: Path = PROC) -> None:
        self._proc, self._roots = str(proc), tuple(dict.fromkeys((os.getpid(), *roots)))
        self._known: dict[int, int] = {}
        self._before: _Reading | None = None
        self._cores = self._own_cores()

    def begin(self) -> None:
        self._before = self._read()

    def end(self) -> Others | None:
        """It has ended: what others did meanwhile; None where the machine does not say."""
        before, after = self._before, self._read()
        if before is None or after is None or after.now_ns <= before.now_ns:
            return None
        own_ticks = _used(before, after)
        return Others(
            span_ns=after.now_ns - before.now_ns,
            cores=len(self._cores) or cores_total(),
            cpu_ns=max(0, after.busy - before.busy - own_ticks) * TICK_NS,
            own_cpu_ns=max(0, own_ticks) * TICK_NS,
            own_read_bytes=_read_bytes(before.tree, after.tree),
            steal_ns=max(0, after.steal - before.steal) * TICK_NS,
        )

    def missing(self) -> Sequence[Missing]:
        if self._machine() is not None:
            return ()
        there = Path(self._proc, "stat").is_file()
        return (Missing(name="others", reason=Remark(code="machine_uncounted" if there else "no_proc")),)

    def _own_cores(self) -> frozenset[int]:
        """Those that own processes may run on; empty for all: a container or taskset then has fewer than the machine.

        Of the topmost ancestor in sight that may run on fewer, since a rank may be bound to some of them.
        """
        everywhere = cores_total()
        cores: frozenset[int] = frozenset(cores_allowed())
        for pid in self._ancestors():
            try:
                allowed = frozenset(cores_allowed(pid))
            except OSError:
                break
            if not cores <= allowed or len(allowed) >= everywhere:
                break
            cores = allowed
        return cores if len(cores) < everywhere else frozenset()

    def _read(self) -> _Reading | None:
        machine = self._machine()
        if machine is None:
            return None
        tree = self._tree()
        above = {pid: read_process(pid, self._proc) for pid in self._ancestors() if pid not in tree}
        return _Reading(
            now_ns=time.monotonic_ns(),
            busy=machine[0],
            steal=machine[1],
            tree={(pid, process.start): process for pid, process in tree.items()},
            above={(pid, process.start): process for pid, process in above.items() if process},
        )

    def _machine(self) -> tuple[int, int] | None:
        """(busy, stolen) ticks of the cores since boot; None where nothing counts them, as in some sandboxes."""
        wanted = {b"cpu%d" % core for core in self._cores} or {b"cpu"}
        lines = read_proc(f"{self._proc}/stat").splitlines()
        rows = [line.split()[1:] for line in lines if line.partition(b" ")[0] in wanted]
        busy = sum(int(row[column]) for row in rows for column in _BUSY)
        steal = sum(int(row[_STEAL]) for row in rows if len(row) > _STEAL)
        return (busy, steal) if busy else None

    def _tree(self) -> dict[int, ProcessCounters]:
        """The roots and all below them, and those seen before whose parent has ended."""
        tree: dict[int, ProcessCounters] = {}
        # A kernel without CONFIG_PROC_CHILDREN lists no children: then all processes are looked at.
        lists = os.access(f"{self._proc}/{os.getpid()}/task/{os.getpid()}/children", os.R_OK)
        below = None if lists else self._by_parent()
        pending = list(self._roots)
        orphans = [pid for pid in self._known if pid not in pending]
        while pending or orphans:
            kept = not pending
            pid = orphans.pop() if kept else pending.pop()
            process = None if pid in tree else read_process(pid, self._proc)
            if process is None or (kept and process.start != self._known[pid]):
                continue
            tree[pid] = process
            pending += children_of(pid, self._proc) if below is None else below[pid]
        self._known = {pid: process.start for pid, process in tree.items()}
        return tree

    def _by_parent(self) -> defaultdict[int, list[int]]:
        children: defaultdict[int, list[int]] = defaultdict(list)
        for name in os.listdir(self._proc):  # noqa: PTH208
            process = read_process(int(name), self._proc) if name.isdecimal() else None
            if process:
                children[process.parent].append(int(name))
        return children

    def _ancestors(self) -> Iterator[int]:
        pid = os.getpid()
        while (process := read_process(pid, self._proc)) and process.parent > 1:
            pid = process.parent
            yield pid


def _used(before: _Reading, after: _Reading) -> int:
    """Ticks of own processes between the two.

    What a child used passes to the parent that waits for it, so the sums of all give the difference; where no parent
    waits for one that ends, it would leave the sum, and those that are still there give at least so much.
    """
    whole = sum(process.own + process.reaped for process in after.tree.values())
    whole -= sum(process.own + process.reaped for process in before.tree.values())
    above = {key: process for key, process in after.above.items() if key in before.above}
    return max(whole, _since(before.tree, after.tree)) + _since(before.above, above)


def _since(before: _Processes, after: _Processes) -> int:
    return sum(now.own - (before[key].own if key in before else 0) for key, now in after.items())


def _read_bytes(before: _Processes, after: _Processes) -> int | None:
    """None where a process ended, or may not be looked at."""
    if not before.keys() <= after.keys() or any(process.read_bytes is None for process in after.values()):
        return None
    earlier, later = (sum(process.read_bytes or 0 for process in tree.values()) for tree in (before, after))
    return max(0, later - earlier)

"""A cgroup whose processes read one device slowly, or have little memory. No cgroup that exists already is changed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

LEAVE_DEADLINE_S = 10.0


class Impossible(Exception):
    """This way of planting does not work here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A controller of one version of cgroups, and how a rule is written there: bytes/s, requests/s, or bytes."""

    how: str
    name: str
    file: str
    rule: str
    lift: str
    version: int


_BYTES, _REQUESTS = "blkio.throttle.read_bps_device", "blkio.throttle.read_iops_device"
_ON_LOOP, _DEVICE = "on a loop device", "{device} {amount}"
CONTROLLERS: Mapping[str, Sequence[Controller]] = {
    "blkio": [Controller(how=f"cgroup v1 blkio {_ON_LOOP}", name="blkio", file=_BYTES, rule=_DEVICE, lift="{device} 0",
                         version=1)],
    "blkio, requests": [Controller(how=f"cgroup v1 blkio {_ON_LOOP}, requests/s", name="blkio", file=_REQUESTS,
                                   rule=_DEVICE, lift="{device} 0", version=1)],
    "io.max": [Controller(how=f"cgroup v2 io.max {_ON_LOOP}", name="io", file="io.max", rule="{device} rbps={amount}",
                          lift="{device} rbps=max", version=2)],
    "io.max, requests": [Controller(how=f"cgroup v2 io.max {_ON_LOOP}, requests/s", name="io", file="io.max",
                                    rule="{device} riops={amount}", lift="{device} riops=max", version=2)],
    "memory": [
        Controller(how="cgroup v1 memory", name="memory", file="memory.limit_in_bytes", rule="{amount}", lift="-1",
                   version=1),
        Controller(how="cgroup v2 memory", name="memory", file="memory.max", rule="{amount}", lift="max", version=2),
    ],
}  # fmt: skip
"""By way of planting; the first that is there is taken. Page cache counts as memory."""


def find(way: str) -> tuple[Controller, Path, Path]:
    """(the controller, the cgroup to make others in, that of this process).

    Rules of version 1 are not inherited, so the cgroup of this process is a fit parent. In version 2 it is the nearest
    one at or above this process that hands the controller on; raises Impossible where none does: to make one do so
    would change a cgroup that is not ours.
    """
    for controller in CONTROLLERS[way]:
        old = controller.version == 1
        home = _home("cgroup" if old else "cgroup2", controller.name if old else "")
        if home is None:
            continue
        for parent in (home, *home.parents):
            handed_on = parent / "cgroup.subtree_control"
            if old or (handed_on.is_file() and controller.name in handed_on.read_text().split()):
                return controller, parent, home
        raise Impossible(f"no cgroup above this process hands on the {controller.name} controller")
    raise Impossible(f"no {way} hierarchy is mounted")


def _home(filesystem: str, controller: str) -> Path | None:
    """The folder of this process's cgroup in one hierarchy; None where that is not mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # number parent major:minor root point options ... - filesystem source options
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(maxsplit=2)
        if kind != filesystem or (controller and controller not in options.split(",")):
            continue
        root, point = before.split()[3:5]
        for membership in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = membership.split(":", 2)
            if controller in names.split(","):
                inside = os.path.relpath(path, root)
                return Path(point) if inside.startswith("..") else Path(point) / inside
    return None


def inside(members: Path, argv: Sequence[str]) -> list[str]:
    """`argv`, wrapped so that its process and the children of that are members of a cgroup."""
    return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(members), *argv]


def limit(way: str, device: str, amount: int, owner_pid: int, undo: ExitStack) -> tuple[str, Path]:
    """Make a cgroup that reads `device` (MAJOR:MINOR) this fast, or has so much memory.

    Returns what it is, and the file that takes its members' ids.

    To undo it is to kill whatever still runs in it, but for `owner_pid`. Raises OSError without the permission,
    Impossible where the kernel lacks the controller.
    """
    controller, parent, home = find(way)
    cgroup = parent / f"loaderprobe-{os.getpid()}"
    file = cgroup / controller.file
    cgroup.mkdir()
    undo.callback(_empty, cgroup, home, owner_pid)
    if not file.exists():
        raise Impossible(f"the kernel offers no {controller.file}")
    file.write_text(controller.rule.format(device=device, amount=amount))
    # First of all, or whoever is killed would wait for all that it asked for.
    undo.callback(file.write_text, controller.lift.format(device=device))
    return controller.how, cgroup / "cgroup.procs"


def _empty(cgroup: Path, home: Path, owner_pid: int) -> None:
    """Kill what still runs in the cgroup and remove it; the owner, should it have joined, is moved home."""

    def gone() -> bool:
        for pid in map(int, (cgroup / "cgroup.procs").read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                if pid == owner_pid:
                    (home / "cgroup.procs").write_text(str(pid))
                elif pid > 0:  # 0 stands for a process of another namespace
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            cgroup.rmdir()
        return not cgroup.exists()

    if not until(gone, LEAVE_DEADLINE_S):
        raise OSError(f"{cgroup} cannot be emptied")


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return met

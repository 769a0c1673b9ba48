"""A cgroup whose processes read one device slowly, or have little memory. No cgroup that exists already is changed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

LEAVE_DEADLINE_S = 10.0


class Impossible(Exception):
    """This way of planting does not work here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Where cgroups with a limit can be made, and how a rule is written there: bytes/s, requests/s, or bytes."""

    how: str
    parent: Path
    home: Path
    """The cgroup of this process."""
    file: str
    rule: str
    lift: str


def blkio(mounts: str, memberships: str) -> Controller:
    """The version 1 controller; its rules are not inherited, so the cgroup of this process is a fit parent.

    Takes the texts of /proc/self/mountinfo and /proc/self/cgroup. Raises Impossible where it is not mounted.
    """
    home = _home(mounts, memberships, "cgroup", "blkio")
    return Controller(
        how="cgroup v1 blkio on a loop device",
        parent=home,
        home=home,
        file="blkio.throttle.read_bps_device",
        rule="{device} {amount}",
        lift="{device} 0",
    )


def io_max(mounts: str, memberships: str) -> Controller:
    """The version 2 controller, under the nearest cgroup at or above this process that hands it on.

    Takes the texts of /proc/self/mountinfo and /proc/self/cgroup. Raises Impossible where none hands it on:
    to make one do so would change a cgroup that is not ours.
    """
    home = _home(mounts, memberships, "cgroup2", "")
    return Controller(
        how="cgroup v2 io.max on a loop device",
        parent=_handing_on("io", home),
        home=home,
        file="io.max",
        rule="{device} rbps={amount}",
        lift="{device} rbps=max",
    )


def memory(mounts: str, memberships: str) -> Controller:
    """The memory controller of either version, page cache included; under this process where that is version 1.

    Takes and raises what the others do.
    """
    with contextlib.suppress(Impossible):
        home = _home(mounts, memberships, "cgroup", "memory")
        file, lift = "memory.limit_in_bytes", "-1"
        return Controller(how="cgroup v1 memory", parent=home, home=home, file=file, rule="{amount}", lift=lift)
    home = _home(mounts, memberships, "cgroup2", "")
    return Controller(
        how="cgroup v2 memory",
        parent=_handing_on("memory", home),
        home=home,
        file="memory.max",
        rule="{amount}",
        lift="max",
    )


def _handing_on(controller: str, home: Path) -> Path:
    """The nearest cgroup of version 2, at `home` or above, that hands a controller on; raises Impossible."""
    for parent in (home, *home.parents):
        handed_on = parent / "cgroup.subtree_control"
        if not handed_on.is_file():
            break
        if controller in handed_on.read_text().split():
            return parent
    said = f"no cgroup above this process hands on the {controller} controller (cgroup.subtree_control lacks it)"
    raise Impossible(said)


def _home(mounts: str, memberships: str, filesystem: str, controller: str) -> Path:
    """The folder of this process's cgroup in one hierarchy; raises Impossible where that is not mounted."""
    for line in mounts.splitlines():
        # number parent major:minor root point options ... - filesystem source options
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(maxsplit=2)
        if kind != filesystem or (controller and controller not in options.split(",")):
            continue
        root, point = before.split()[3:5]
        for membership in memberships.splitlines():
            _, names, path = membership.split(":", 2)
            if controller in names.split(","):
                inside = os.path.relpath(path, root)
                return Path(point) if inside.startswith("..") else Path(point) / inside
    raise Impossible(f"no {controller or 'cgroup version 2'} hierarchy is mounted")


def of_requests(controller: Controller) -> Controller:
    """The same for requests/s, whatever their size."""

    def renamed(text: str) -> str:
        return text.replace("read_bps_device", "read_iops_device").replace("rbps=", "riops=")

    return replace(
        controller,
        how=f"{controller.how}, requests/s",
        file=renamed(controller.file),
        rule=renamed(controller.rule),
        lift=renamed(controller.lift),
    )


def inside(members: Path, argv: Sequence[str]) -> list[str]:
    """`argv`, wrapped so that its process and the children of that are members of a cgroup."""
    return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(members), *argv]


def limit(controller: Controller, device: str, amount: int, owner_pid: int, undo: ExitStack) -> Path:
    """Make a cgroup that reads `device` (MAJOR:MINOR) this fast, or has so much memory.

    Returns the file that takes its members' ids.

    To undo it is to kill whatever still runs in it, but for `owner_pid`. Raises OSError without the permission,
    Impossible where the kernel lacks the controller.
    """
    cgroup = controller.parent / f"loaderprobe-{os.getpid()}"
    file = cgroup / controller.file
    cgroup.mkdir()
    undo.callback(_empty, cgroup, controller.home, owner_pid)
    if not file.exists():
        raise Impossible(f"the kernel offers no {controller.file}")
    file.write_text(controller.rule.format(device=device, amount=amount))
    # First of all, or whoever is killed would wait for all that it asked for.
    undo.callback(file.write_text, controller.lift.format(device=device))
    return cgroup / "cgroup.procs"


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
    """Whether the condition came true in this time."""
    deadline = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return held

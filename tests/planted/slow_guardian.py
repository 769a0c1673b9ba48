"""The process that owns a slow disk: it plants mount, loop device, cgroup and image, and undoes them all.

It runs in a session of its own, `python -m tests.planted.slow_guardian`, and talks over pipes: one line
of JSON comes in, the order; one goes out, what was planted. It undoes everything at the next line, when its
standard input ends, or when the process that gave the order has died, whichever way that one ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from tests.planted.slow_cgroup import Impossible, limit, until

Kind = Literal["token_bucket", "single_server", "latency", "requests"]
Way = Literal["blkio", "io.max", "fuse", "memory"]

BUCKET_CREDIT_S = 0.1
"""Idle time that FUSE hands out as credit, at most; the kernel's throttle, 0.25 s (measured on Linux 6.18)."""
READ_AHEAD_BYTES = 128 << 10
"""What Linux reads ahead by default. A loop device inherits that of the disk below, which may be 20 times as much: a
few pages of a mapped file then bring all of a small data set into memory."""
MOUNT_DEADLINE_S = 10.0
BUSY_DEADLINE_S = 2.0
"""How long a busy mount is tried again before it is only taken out of the tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to plant, and for whom."""

    owner_pid: int
    scratch: str
    kind: Kind | Literal["small_memory"]
    limit: float
    """Bytes/s; s of a request (latency); requests/s; bytes (small_memory)."""
    size_bytes: int
    keep_cache: bool = False
    read_ahead_bytes: int | None = None
    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What was planted; without `how` nothing was, and `reasons` say why."""

    how: str = ""
    folder: str = ""
    fill: str = ""
    """Where files are written: the folder itself, or the one behind it when that is read-only."""
    members: str | None = None
    """The file that takes the ids of the processes that the limit is for; None when it is for all processes."""
    reasons: tuple[str, ...] = ()
    """Why the ways that were tried before did not work."""


def _on_loop(order: Order, folder: Path, undo: ExitStack, way: Way) -> Planted:
    """An ext4 image on a loop device, and a cgroup of its own that reads it slowly or has little memory."""
    disk = folder / "disk"
    read_ahead_bytes = READ_AHEAD_BYTES if order.read_ahead_bytes is None else order.read_ahead_bytes
    device = _mount_image(folder / "image", disk, order.size_bytes, read_ahead_bytes, undo)
    name = f"{way}, requests" if order.kind == "requests" else way
    how, members = limit(name, device, round(order.limit), order.owner_pid, undo)
    return Planted(how=how, folder=str(disk), fill=str(disk), members=str(members))


def _mount_image(image: Path, disk: Path, size_bytes: int, read_ahead_bytes: int, undo: ExitStack) -> str:
    """Make a file system, mount it, and return the numbers of its device as MAJOR:MINOR.

    Raises Impossible where a tool is missing, or the device does not keep the read-ahead.

    The image has no name and the device no other holder once it is mounted: unmounting gives back both.
    """
    try:
        with image.open("wb") as file:
            file.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image)
        device = _run("losetup", "--find", "--show", image).strip()
    finally:
        image.unlink(missing_ok=True)
    try:
        # Else the page cache of the image may serve what the limited device should.
        with contextlib.suppress(Impossible):
            _run("losetup", "--direct-io=on", device)
        _set_read_ahead(device, read_ahead_bytes)
        disk.mkdir(exist_ok=True)
        _run("mount", "-t", "ext4", "-o", "noatime,noinit_itable", device, disk)
        undo.callback(_unmount, disk)
    finally:
        # Of a mounted device this asks that it be freed when it is unmounted, of another it frees it now.
        _run("losetup", "--detach", device)
    return (_queue(device).parent / "dev").read_text().strip()


def _queue(device: str) -> Path:
    """Where the kernel keeps the settings of a block device's queue."""
    return Path("/sys/block", Path(device).name, "queue")


def _set_read_ahead(device: str, size_bytes: int) -> None:
    """Of the device, and so of each file that is opened on it from now on; raises Impossible where it is not kept."""
    setting, wanted = _queue(device) / "read_ahead_kb", size_bytes >> 10
    setting.write_text(str(wanted))
    # A kernel with larger pages rounds it.
    if (kept := int(setting.read_text())) != wanted:
        raise Impossible(f"{device} reads {kept} kB ahead, not {wanted}")


def _on_fuse(order: Order, folder: Path, undo: ExitStack) -> Planted:
    """A folder that a server of ours serves slowly."""
    if order.read_ahead_bytes is not None:
        raise Impossible("what is read ahead is agreed with the server, and is at most what the kernel offers it")
    source, disk = folder / "files", folder / "disk"
    source.mkdir()
    disk.mkdir(exist_ok=True)
    credit_s = BUCKET_CREDIT_S if order.kind == "token_bucket" else 0.0
    name = {"latency": "latency_s", "requests": "requests_per_s"}.get(order.kind, "bytes_per_s")
    schedule = json.dumps({name: order.limit, "credit_s": credit_s})
    server_of = [sys.executable, "-m", "tests.planted.slow_fuse", str(source), str(disk), schedule]
    command = [*server_of, "keep" if order.keep_cache else "drop"]
    log = folder / "log"
    with log.open("w") as output:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
    undo.callback(_stop_server, server, disk)
    until(lambda: mounted(disk) or server.poll() is not None, MOUNT_DEADLINE_S)
    if not mounted(disk):
        raise Impossible("; ".join(log.read_text().splitlines()) or "the server did not mount in time")
    return Planted(how=f"FUSE {order.kind}", folder=str(disk), fill=str(source))


WAYS: Mapping[Way, Callable[[Order, Path, ExitStack], Planted]] = {
    "blkio": partial(_on_loop, way="blkio"),
    "io.max": partial(_on_loop, way="io.max"),
    "fuse": _on_fuse,
    "memory": partial(_on_loop, way="memory"),
}


def plant(order: Order, undo: ExitStack) -> Planted:
    """Plant by the first of the order's ways that works; `undo` takes it all back."""
    folder = Path(tempfile.mkdtemp(prefix="slow-disk-", dir=order.scratch))
    undo.callback(_remove, folder)
    reasons: list[str] = []
    for way in order.ways:
        with ExitStack() as attempt:
            try:
                planted = WAYS[way](order, folder, attempt)
            except (Impossible, OSError) as error:
                reasons.append(f"{way}: {error}")
                continue
            undo.push(attempt.pop_all())
            return replace(planted, reasons=tuple(reasons))
    return Planted(reasons=tuple(reasons))


def mounted(path: Path) -> bool:
    """Whether something is mounted there; does not touch it, so a dead server cannot hold up the answer."""
    name = str(path).replace(" ", "\\040")
    return any(line.split()[4] == name for line in Path("/proc/self/mountinfo").read_text().splitlines())


def _run(*command: str | Path) -> str:
    # The tools of file systems are not in every user's path.
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except FileNotFoundError:
        raise Impossible(f"{command[0]} is not installed") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"failed with code {done.returncode}"]
        raise Impossible(f"{command[0]}: {said[0].removeprefix(f'{command[0]}: ')}")
    return done.stdout


def _unmount(disk: Path) -> None:
    """Unmount, as often as it takes; a mount that stays busy leaves the tree and ends with its last user."""
    tools = ["umount"] if os.geteuid() == 0 else ["fusermount3", "fusermount"]

    def gone(*lazily: str) -> bool:
        for tool in tools:
            with contextlib.suppress(Impossible):
                _run(tool, *([] if tool == "umount" else ["-u"]), *lazily, disk)
        return not mounted(disk)

    if not mounted(disk) or until(gone, BUSY_DEADLINE_S) or gone("-l" if tools == ["umount"] else "-z"):
        return
    raise OSError(f"{disk} cannot be unmounted")


def _stop_server(server: subprocess.Popen[bytes], disk: Path) -> None:
    assert server.stdin
    server.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(BUSY_DEADLINE_S)
    server.kill()
    server.wait()
    _unmount(disk)


def _remove(folder: Path) -> None:
    if mounted(folder / "disk"):
        raise OSError(f"{folder} is still mounted")
    shutil.rmtree(folder)


def _wait_for_the_end(owner_pid: int) -> None:
    """Until asked, or the owner has died: a forked child of its may hold the pipe open for longer."""
    ends: list[int] = [sys.stdin.fileno()]
    # No such process: it has died already, and then the pipe will end.
    with contextlib.suppress(OSError):
        ends.append(os.pidfd_open(owner_pid))
    select.select(ends, [], [])


def main() -> None:
    order = msgspec.json.decode(sys.stdin.readline(), type=Order)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as undo:
        planted = plant(order, undo)
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(msgspec.json.encode(planted).decode() + "\n")
            sys.stdout.flush()
        if planted.how:
            _wait_for_the_end(order.owner_pid)


if __name__ == "__main__":
    main()

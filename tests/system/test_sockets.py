"""What is at the other end of sockets."""

from __future__ import annotations

from loaderprobe.system.waits import Socket, TableBudget, peer


def test_peers_are_written_as_addresses() -> None:
    """IPv4, IPv6, and IPv4 through IPv6; no port, no peer."""
    assert peer(b"0100007F:1F90") == "127.0.0.1:8080"
    assert peer(b"00000000000000000000000001000000:0050") == "[::1]:80"
    assert peer(b"0000000000000000FFFF00000500000A:01BB") == "10.0.0.5:443"
    assert peer(b"00000000:0000") is None


def test_tables_of_connections_are_read_seldom() -> None:
    """A table that took 1 ms is not read again for 1 s."""
    now, cpu = [0], iter((0, 1_000_000, 1_000_000, 2_000_000))
    budget = TableBudget(now_ns=lambda: now[0], cpu_ns=lambda: next(cpu))
    found = Socket("network", "10.0.0.5:443")
    assert budget.spend(lambda: found) == found
    now[0] = 999_999_999
    assert budget.spend(lambda: found) is None
    now[0] = 1_000_000_000
    assert budget.spend(lambda: found) == found

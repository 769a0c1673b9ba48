"""A host whose ranks, all or nearly all of them, are slower than every rank elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.records.thresholds import FEWEST_RANKS, ONE_OF
from loaderprobe.stats import median


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowHost:
    """A host, and its ranks beside all others. Rates are in the unit that was given."""

    host: str
    slow: int
    """How many of its ranks are slow."""
    ranks: int
    """How many ranks it has."""
    rate: float
    """The median rate of its slow ranks."""
    elsewhere: float
    """The rate of the slowest rank of any other host."""
    lead: float
    """`elsewhere` over the rate of the fastest slow rank; above 1."""


def host_names(hosts: Sequence[tuple[int, str]]) -> list[str]:
    """The name of the host of each rank, from its (node, host); with the node where two nodes have the same name."""
    nodes: dict[str, set[int]] = {}
    for node, host in hosts:
        nodes.setdefault(host, set()).add(node)
    return [host if len(nodes[host]) == 1 else f"{host} (node {node})" for node, host in hosts]


def slow_host(rates: Sequence[tuple[str, float]]) -> SlowHost | None:
    """The host whose ranks are slower than all others, from (host, rate) of each rank; None without one."""
    by_host: dict[str, list[float]] = {}
    for host, rate in rates:
        by_host.setdefault(host, []).append(rate)
    candidates = (_if_slow(host, by_host) for host in by_host if len(by_host) > 1)
    return next((host for host in candidates if host), None)


def _if_slow(host: str, by_host: dict[str, list[float]]) -> SlowHost | None:
    own_rates = sorted(by_host[host])
    slow = own_rates[: len(own_rates) - len(own_rates) // ONE_OF]
    elsewhere = min(rate for other, rates in by_host.items() if other != host for rate in rates)
    if len(own_rates) < FEWEST_RANKS or not 0 < slow[-1] < elsewhere:
        return None
    return SlowHost(
        host=host,
        slow=sum(rate < elsewhere for rate in own_rates),
        ranks=len(own_rates),
        rate=median(slow),
        elsewhere=elsewhere,
        lead=elsewhere / slow[-1],
    )

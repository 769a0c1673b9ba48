"""A host whose ranks, all or nearly all of them, are slower than every rank elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.records import by_key
from loaderprobe.records.thresholds import FEWEST_RANKS, ONE_OF
from loaderprobe.stats import median


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowHost:
    """A host, and its ranks beside all others. Rates are in the unit that was given."""

    host: str
    slow: int
    """How many of its ranks are slow."""
    ranks: int
    rate: float
    """The median rate of its slow ranks."""
    elsewhere: float
    """The rate of the slowest rank of any other host."""
    lead: float
    """`elsewhere` over the rate of the fastest slow rank; above 1."""


def host_names(hosts: Sequence[tuple[int, str]]) -> list[str]:
    """The name of the host of each rank, from its (node, host); with the node where two nodes have the same name."""
    nodes = by_key(set(hosts), lambda rank: rank[1])
    return [host if len(nodes[host]) == 1 else f"{host} (node {node})" for node, host in hosts]


def slow_host(rates: Sequence[tuple[str, float]]) -> SlowHost | None:
    """The host whose ranks are slower than all others, from (host, rate) of each rank; None without one."""
    for host, ranks in by_key(rates, lambda rank: rank[0]).items():
        own_rates = sorted(rate for _, rate in ranks)
        slow = own_rates[: len(own_rates) - len(own_rates) // ONE_OF]
        elsewhere = min((rate for other, rate in rates if other != host), default=0.0)
        if len(own_rates) >= FEWEST_RANKS and 0 < slow[-1] < elsewhere:
            return SlowHost(
                host=host,
                slow=sum(rate < elsewhere for rate in own_rates),
                ranks=len(own_rates),
                rate=median(slow),
                elsewhere=elsewhere,
                lead=elsewhere / slow[-1],
            )
    return None

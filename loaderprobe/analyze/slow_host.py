"""A host whose ranks, all or nearly all of them, are slower than every rank elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.stats import median

FEWEST = 2
"""Ranks of a host: of one rank, the rank may be slow as well as its host."""
ONE_OF = 8
"""Of so many ranks of a host, one may be as fast as those elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowHost:
    """A host, and its ranks beside all others. Rates are in the unit that was given."""

    host: str
    slow: int
    """Its ranks that are slow."""
    ranks: int
    """All its ranks."""
    rate: float
    """Of its slow ranks, the median."""
    elsewhere: float
    """The slowest rank of any other host."""
    lead: float
    """That one over the fastest of the slow ones; above 1."""


def host_names(places: Sequence[tuple[int, str]]) -> list[str]:
    """Of (node, host) of each rank, the name of its host; with the node where two nodes have the same name."""
    nodes: dict[str, set[int]] = {}
    for node, host in places:
        nodes.setdefault(host, set()).add(node)
    return [host if len(nodes[host]) == 1 else f"{host} (node {node})" for node, host in places]


def slow_host(rates: Sequence[tuple[str, float]]) -> SlowHost | None:
    """Of (host, rate) of each rank; None where no host stands apart, and of one host."""
    by_host: dict[str, list[float]] = {}
    for host, rate in rates:
        by_host.setdefault(host, []).append(rate)
    found = (_apart(host, by_host) for host in by_host if len(by_host) > 1)
    return next((each for each in found if each), None)


def _apart(host: str, by_host: dict[str, list[float]]) -> SlowHost | None:
    own = sorted(by_host[host])
    slow = own[: len(own) - len(own) // ONE_OF]
    elsewhere = min(rate for other, rates in by_host.items() if other != host for rate in rates)
    if len(own) < FEWEST or not 0 < slow[-1] < elsewhere:
        return None
    return SlowHost(
        host=host,
        slow=sum(rate < elsewhere for rate in own),
        ranks=len(own),
        rate=median(slow),
        elsewhere=elsewhere,
        lead=elsewhere / slow[-1],
    )

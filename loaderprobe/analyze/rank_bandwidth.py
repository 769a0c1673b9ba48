"""What limits ranks that read at once: their storage, one process, or a rank behind a slower path. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.analyze.ranks import SlowHost, host_names, slow_host
from loaderprobe.records.bandwidth import RISING, RanksLimit, RanksPhase

TWO_DOUBLINGS = 4
PROCESS = 1.1
"""As many readers in more ranks that gain this much were held up by their process, or their node."""
UNFAIR = 0.8
"""Equal ranks on one throttled disk had 0.89 to 0.96 of the fastest; one behind a path of its own 0.58."""


def ranks_limit(phases: Sequence[RanksPhase]) -> RanksLimit:
    """What the steps show, by the one with the most ranks."""
    most = max(phases, key=lambda each: (each.ranks, each.nodes), default=None)
    if most is None:
        return RanksLimit(code="one_step")
    if any(each.cache in ("warm", "mixed") for each in phases):
        return RanksLimit(code="from_memory")
    if most.fairness < UNFAIR:
        if not most.long_enough:
            return RanksLimit(code="too_short", facts={"seconds": most.slowest.seconds, "fairness": most.fairness})
        hosts = host_names([(each.node, each.host) for each in most.by_rank])
        host = slow_host([(name, each.bw_bytes) for name, each in zip(hosts, most.by_rank, strict=True)])
        if host and host.lead > 1 / UNFAIR:
            return _slow_host(host)
        slow = most.slowest
        return RanksLimit(
            code="slow_rank",
            facts={
                "rank": slow.rank, "host": slow.host, "bytes_per_s": slow.bw_bytes, "fairness": most.fairness,
                "nodes": most.nodes,
            },
        )  # fmt: skip
    if most.at_least:
        return RanksLimit(code="probe_busy", facts={"clients": most.clients})
    return _process(phases, most) or _shape(phases, most)


def _slow_host(found: SlowHost) -> RanksLimit:
    return RanksLimit(
        code="slow_host",
        facts={
            "host": found.host, "slow_ranks": found.slow, "host_ranks": found.ranks, "bytes_per_s": found.rate,
            "elsewhere_bytes_per_s": found.elsewhere,
        },
    )  # fmt: skip


def has_ended(phases: Sequence[RanksPhase]) -> bool:
    """True where more readers got no more, and neither the probe nor one process held them up: a ceiling."""
    most = max(phases, key=lambda each: (each.ranks, each.nodes), default=None)
    if most is None or most.at_least or _process(phases, most):
        return False
    return _shape(phases, most).code == "plateau"


def _process(phases: Sequence[RanksPhase], most: RanksPhase) -> RanksLimit | None:
    """Where as many readers in fewer ranks, or on fewer nodes, get less."""
    alike = [each for each in phases if each.clients == most.clients and each is not most]
    fewer = min(alike, key=lambda each: (each.nodes, each.ranks), default=None)
    if fewer is None or most.bw_low < PROCESS * fewer.bw_high:
        return None
    return RanksLimit(
        code="process",
        facts={
            "clients": most.clients, "ranks": most.ranks, "nodes": most.nodes, "bytes_per_s": most.bw_bytes,
            "fewer_ranks": fewer.ranks, "fewer_nodes": fewer.nodes, "fewer_bytes_per_s": fewer.bw_bytes,
        },
    )  # fmt: skip


def _shape(phases: Sequence[RanksPhase], most: RanksPhase) -> RanksLimit:
    fewer = [each for each in phases if each.clients < most.clients]
    if not fewer:
        return RanksLimit(code="one_step", facts={"clients": most.clients})
    early = [each for each in fewer if each.clients * TWO_DOUBLINGS <= most.clients]
    last = max(early, key=lambda each: each.clients, default=None)
    best = max(each.bw_bytes for each in phases)
    if last is not None and best < RISING * last.bw_bytes:
        facts: dict[str, float | str] = {"bytes_per_s": most.bw_bytes, "clients": last.clients, "most": most.clients}
        return RanksLimit(code="plateau", facts=facts)
    return RanksLimit(code="rising", facts={"clients": most.clients, "next": 2 * most.clients})

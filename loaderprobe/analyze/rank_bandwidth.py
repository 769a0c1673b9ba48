"""What limits ranks that read at once: their storage, one process, or a rank behind a slower path. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.analyze.ranks import host_names, slow_host
from loaderprobe.records.bandwidth import RISING, Limit, LimitCode, LimitedBy, RanksPhase, most_ranks

TWO_DOUBLINGS = 4
PROCESS = 1.1
"""As many readers in more ranks that gain this much were held up by their process, or their node."""
UNFAIR = 0.8
"""Equal ranks on one throttled disk had 0.89 to 0.96 of the fastest; one behind a path of its own 0.58."""


_BY: dict[LimitCode, LimitedBy] = {
    "from_memory": "memory", "probe_busy": "probe", "slow_rank": "rank", "slow_host": "host", "plateau": "bandwidth",
    "process": "process",
}  # fmt: skip
"""What the ladder is limited by; not known with the other codes."""


def ranks_limit(phases: Sequence[RanksPhase]) -> Limit:
    """What the steps show, by the one with the most ranks."""
    most = most_ranks(phases)
    if most is None:
        return _limit("no_step")
    if any(each.cache in ("warm", "mixed") for each in phases):
        return _limit("from_memory", share="wholly" if all(each.cache == "warm" for each in phases) else "partly")
    if most.fairness < UNFAIR:
        return _uneven(most)
    if most.at_least:
        return _limit("probe_busy", best_bytes_per_s=most.bw_bytes)
    return _process(phases, most) or _shape(phases, most)


def _limit(code: LimitCode, **facts: float | str) -> Limit:
    return Limit(by=_BY.get(code, "unknown"), knee_readers=None, code=code, facts=facts)


def _uneven(most: RanksPhase) -> Limit:
    """Where ranks differ: by host, by rank, or by chance."""
    slow, share = most.slowest, most.fairness
    if not most.long_enough:
        return _limit("too_short", reading_s=slow.seconds, share=share)
    hosts = host_names([(each.node, each.host) for each in most.by_rank])
    host = slow_host([(name, each.bw_bytes) for name, each in zip(hosts, most.by_rank, strict=True)])
    if host and host.lead > 1 / UNFAIR:
        return _limit(
            "slow_host", host=host.host, slow_ranks=host.slow, host_ranks=host.ranks, bytes_per_s=host.rate,
            elsewhere_bytes_per_s=host.elsewhere,
        )  # fmt: skip
    return _limit("slow_rank", rank=slow.rank, host=slow.host, bytes_per_s=slow.bw_bytes, share=share, nodes=most.nodes)


def has_ended(phases: Sequence[RanksPhase]) -> bool:
    """True where more readers got no more, and neither the probe nor one process held them up: a ceiling."""
    most = most_ranks(phases)
    if most is None or most.at_least or _process(phases, most):
        return False
    return _shape(phases, most).code == "plateau"


def _process(phases: Sequence[RanksPhase], most: RanksPhase) -> Limit | None:
    """Where as many readers in fewer ranks, or on fewer nodes, get less."""
    alike = [each for each in phases if each.readers == most.readers and each is not most]
    fewer = min(alike, key=lambda each: (each.nodes, each.ranks), default=None)
    if fewer is None or most.bw_low < PROCESS * fewer.bw_high:
        return None
    return _limit(
        "process", clients=most.readers, ranks=most.ranks, nodes=most.nodes, bytes_per_s=most.bw_bytes,
        fewer_ranks=fewer.ranks, fewer_nodes=fewer.nodes, fewer_bytes_per_s=fewer.bw_bytes,
    )  # fmt: skip


def _shape(phases: Sequence[RanksPhase], most: RanksPhase) -> Limit:
    fewer = [each for each in phases if each.readers < most.readers]
    if not fewer:
        return _limit("one_step_of_ranks", clients=most.readers)
    early = [each for each in fewer if each.readers * TWO_DOUBLINGS <= most.readers]
    last = max(early, key=lambda each: each.readers, default=None)
    if last is not None and max(each.bw_bytes for each in phases) < RISING * last.bw_bytes:
        return _limit("plateau", bytes_per_s=most.bw_bytes, clients=last.readers, most_clients=most.readers)
    return _limit("rising", clients=most.readers, next=2 * most.readers)

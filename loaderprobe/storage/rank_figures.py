"""The figures of ranks that read at once, from what each reports after each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loaderprobe.records.rank_bandwidth import RankRead, RanksPhase
from loaderprobe.stats import half_width_in_time
from loaderprobe.storage.phase import BUSY_SHARE, SETTLED_AT, cache_label, latency

LEAST_SLICES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one rank reports of one run of reads."""

    rank: int
    """Among those that read; -1 for one that does not."""
    slices: list[tuple[float, float]]
    """(seconds, bytes) while all read; the same stretches on all ranks."""
    seconds: float
    io_bytes: int
    files: int
    storage_bytes: int | None
    """None where it is not counted."""
    piece_ns: list[int]
    """Times of files, or of every so many of them."""
    cpu_s: float
    unread: list[str]
    """Why files could not be read to their end."""
    trouble: str = ""
    """An error that ended the run."""


def phase_of(
    runs: Sequence[Sequence[Part]], places: Sequence[tuple[str, int]], readers: int, cores: float
) -> RanksPhase:
    """All runs of one step together; `places` are (host, node) by rank, `cores` those of one node."""
    parts = [part for run in runs for part in run]
    stretches = [
        (together[0][0], sum(size for _, size in together))
        for run in runs
        for together in zip(*(part.slices for part in run), strict=True)
    ]
    seconds = sum(length for length, _ in stretches)
    rate = sum(size for _, size in stretches) / seconds
    half = half_width_in_time([size / length for length, size in stretches])
    delivered = sum(part.io_bytes for part in parts)
    counted = [part.storage_bytes for part in parts if part.storage_bytes is not None]
    storage = sum(counted) if len(counted) == len(parts) else None
    runtime_s = sum(max(part.seconds for part in run) for run in runs)
    nodes = len({node for _, node in places})
    cpu_cores = sum(part.cpu_s for part in parts) / runtime_s
    return RanksPhase(
        ranks=len(places),
        nodes=nodes,
        readers=readers,
        runtime=1e3 * runtime_s,
        bw_bytes=rate,
        bw_low=max(0.0, rate - half),
        bw_high=rate + half,
        settled=len(stretches) >= LEAST_SLICES and half <= SETTLED_AT * rate,
        last_done_bw_bytes=delivered / runtime_s,
        files_per_s=rate * sum(part.files for part in parts) / delivered,
        file_ns=latency(np.array([each for part in parts for each in part.piece_ns], np.int64)),
        cold_fraction=None if storage is None else min(1.0, storage / delivered),
        cache=cache_label(storage, delivered),
        cpu_cores=cpu_cores,
        at_least=cpu_cores > BUSY_SHARE * cores * nodes,
        by_rank=tuple(_rank(rank, host, node, runs) for rank, (host, node) in enumerate(places)),
        unread=dict(Counter(reason for part in parts for reason in part.unread)),
    )


def _rank(rank: int, host: str, node: int, runs: Sequence[Sequence[Part]]) -> RankRead:
    own = [run[rank] for run in runs]
    counted = [part.storage_bytes for part in own if part.storage_bytes is not None]
    slices = [each for part in own for each in part.slices]
    return RankRead(
        rank=rank,
        node=node,
        host=host,
        bw_bytes=sum(size for _, size in slices) / sum(length for length, _ in slices),
        io_bytes=sum(part.io_bytes for part in own),
        seconds=sum(part.seconds for part in own),
        storage_bytes=sum(counted) if len(counted) == len(own) else None,
    )

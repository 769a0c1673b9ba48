"""The ranks of a measurement, ordered by how fast each is by itself."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.analyze.verdict.among_ranks import rates_alone
from loaderprobe.analyze.verdict.rates import NS
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.rank_seen import RankSeen
from loaderprobe.records.ranks_view import MOST_SHOWN, RankRow, RanksView, Role
from loaderprobe.records.verdict import WORTH, Verdict
from loaderprobe.stats import median


def ranks_view(measurement: Measurement, verdict: Verdict) -> RanksView | None:
    """None of one rank, and of those of a script."""
    if len(measurement.by_rank) < 2:
        return None
    base = base_mode(measurement)
    places = [
        place
        for place, each in enumerate(measurement.segments)
        if (each.mode, each.activity, each.without) == (base, "loader_only", None)
    ]
    alone = rates_alone(measurement)
    rows = [_row(each, places, alone.get(each.rank)) for each in measurement.by_rank]
    order = sorted(rows, key=lambda row: (row.alone_images_per_s or 0.0, -row.input_s))
    roles: dict[int, Role] = {order[len(order) // 2].rank: "median"}
    roles |= {order[-1].rank: "fastest", order[0].rank: "slowest"}
    named = [replace(row, role=roles.get(row.rank)) for row in order]
    others = [row for row in named if row.role is None][: MOST_SHOWN - len(roles)]
    chosen = {row.rank for row in named if row.role} | {row.rank for row in others}
    gains = (verdict.speedups.imbalance, verdict.speedups.straggler)
    return RanksView(
        rows=tuple(rows),
        shown=tuple(row for row in named if row.rank in chosen),
        uneven=any(each is not None and each.value > WORTH for each in gains),
    )


def _row(seen: RankSeen, places: list[int], alone: float | None) -> RankRow:
    return RankRow(
        rank=seen.rank,
        node=seen.node,
        host=seen.host,
        alone_images_per_s=alone,
        input_s=median([seen.input_ns[place] / NS for place in places]) if places else 0.0,
        waiting_s=median([seen.meet_ns[place] / NS for place in places]) if places else 0.0,
    )

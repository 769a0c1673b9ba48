"""What more ranks gain: the rate of training from the fewest ranks to the most, of one data set on one device."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loaderprobe.records.config import RunConfig
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Interval
from loaderprobe.render.groups import groups
from loaderprobe.render.recommend import best_rows
from loaderprobe.render.wording import counted, differing, interval, loading, option_words
from loaderprobe.units import join_words, significant

Line = tuple[str, str, str]
"""Device, cache state and data set."""


def scaling(report: Report) -> tuple[str, ...]:
    """`With 1 and 2 ranks, 500x375 trains at 205 ±6 and 390 ±9 images/s: with 2, 1.9 times as fast as with 1.`

    A gain within the noise band of both rates is none. Where their loaders differ, each is named.
    """
    return tuple(_sentence(line, rows) for line, rows in _lines(report).items() if len(rows) > 1)


def with_ranks(rows: Sequence[ConfigurationRow]) -> str:
    """`with 1 rank`, `with 1 and 2 ranks`, `with 1 rank and 4 ranks on 2 nodes`."""
    configs = {(row.config.ranks, row.config.nodes): row.config for row in rows}
    chosen = [configs[each] for each in sorted(configs)]
    if len(chosen) == 1 or any(config.nodes > 1 for config in chosen):
        return f"with {join_words([_ranks(config) for config in chosen])}"
    return f"with {join_words([str(config.ranks) for config in chosen])} ranks"


def _lines(report: Report) -> dict[Line, list[ConfigurationRow]]:
    """Of each number of ranks the row with the workers that are enough, from few ranks to many."""
    found: dict[Line, list[ConfigurationRow]] = {}
    for group in groups(report):
        for row in best_rows(report, group):
            found.setdefault((row.config.compute.name, row.config.cache, row.config.resolution), []).append(row)
    return {line: sorted(rows, key=lambda row: (row.config.ranks, row.config.nodes)) for line, rows in found.items()}


def _sentence(line: Line, rows: list[ConfigurationRow]) -> str:
    over_nodes = any(row.config.nodes > 1 for row in rows)
    names = [_ranks(row.config) if over_nodes else str(row.config.ranks) for row in rows]
    counts = join_words(names) + ("" if over_nodes else " ranks")
    rates = [f"{interval(row.images_per_s)}{_loader(row, rows)}" for row in rows]
    first, last = rows[0].images_per_s, rows[-1].images_per_s
    gain = f": {_gain(names, first, last)}" if first and last else ""
    return f"With {counts}, {line[-1]} trains at {join_words(rates)} images/s{gain}."


def _gain(names: Sequence[str], first: Interval, last: Interval) -> str:
    if not beyond_noise(first, last):
        return f"between {names[0]} and {names[-1]}, no difference beyond noise"
    return f"with {names[-1]}, {significant(last.value / first.value)} times as fast as with {names[0]}"


def beyond_noise(one: Interval, other: Interval) -> bool:
    """True where the rates differ by more than the 95 % band of their difference: both bands, in quadrature."""
    return abs(other.value - one.value) > math.hypot((one.high - one.low) / 2, (other.high - other.low) / 2)


def _loader(row: ConfigurationRow, rows: Sequence[ConfigurationRow]) -> str:
    """` (2 workers a rank)`; empty where all rows have the same loader."""
    said = [] if len({each.config.loader.workers for each in rows}) == 1 else [_workers(row)]
    said += [option_words(row.config, name) for name in differing(row, rows) if name not in ("ranks", "nodes")]
    return f" ({', '.join(said)})" if said else ""


def _workers(row: ConfigurationRow) -> str:
    return f"{loading(row)} a rank" if row.config.loader.workers and row.config.ranks > 1 else loading(row)


def _ranks(config: RunConfig) -> str:
    """`1 rank`, `4 ranks`, `4 ranks on 2 nodes`."""
    return f"{counted(config.ranks, 'rank')}{f' on {config.nodes} nodes' if config.nodes > 1 else ''}"

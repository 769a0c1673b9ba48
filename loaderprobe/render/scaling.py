"""What more ranks gain: the rate of training from the fewest ranks to the most, of one data set on one device."""

from __future__ import annotations

from loaderprobe.records.config import RunConfig
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.groups import groups
from loaderprobe.render.recommend import best_rows
from loaderprobe.render.wording import counted, rate
from loaderprobe.units import join_words, significant

Line = tuple[str, str, str]
"""Device, cache state and data set."""


def scaling(report: Report) -> tuple[str, ...]:
    """`500x375 trains at 205, 390 and 400 images/s with 1, 2 and 4 ranks: with 4, 1.95 times as fast as with 1.`"""
    return tuple(_sentence(line, rows) for line, rows in _lines(report).items() if len(rows) > 1)


def _lines(report: Report) -> dict[Line, list[ConfigurationRow]]:
    """Of each number of ranks the row with the workers that are enough, from few ranks to many."""
    found: dict[Line, list[ConfigurationRow]] = {}
    for group in groups(report):
        for row in best_rows(report, group):
            found.setdefault((row.config.compute.name, row.config.cache, row.config.resolution), []).append(row)
    return {line: sorted(rows, key=lambda row: (row.config.ranks, row.config.nodes)) for line, rows in found.items()}


def _sentence(line: Line, rows: list[ConfigurationRow]) -> str:
    rates = [row.images_per_s.value for row in rows if row.images_per_s]
    over_nodes = any(row.config.nodes > 1 for row in rows)
    names = [_ranks(row.config) if over_nodes else str(row.config.ranks) for row in rows]
    counts = join_words(names) + ("" if over_nodes else " ranks")
    gain = significant(rates[-1] / rates[0])
    last, first = names[-1], names[0]
    return (
        f"With {counts}, {line[-1]} trains at {join_words([rate(each) for each in rates])} images/s: with "
        f"{last}, {gain} times as fast as with {first}."
    )


def _ranks(config: RunConfig) -> str:
    """`1 rank`, `4 ranks`, `4 ranks on 2 nodes`."""
    return f"{counted(config.ranks, 'rank')}{f' on {config.nodes} nodes' if config.nodes > 1 else ''}"

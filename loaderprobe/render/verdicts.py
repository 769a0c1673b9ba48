"""Which verdicts count as an answer, and the nouns for what they name."""

from __future__ import annotations

from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.resources import RESOURCE, RESOURCES

NOUNS = {each.name: each.answer or each.noun for each in RESOURCES} | {"balanced": "several resources alike"}


def firm(row: ConfigurationRow) -> bool:
    """True for a verdict that names what limits."""
    return row.bound is not None and "inconclusive" not in (row.bound.side, row.bound.cause)


def families(row: ConfigurationRow) -> tuple[str, ...]:
    """What limits a row, as nouns of the answer; two where they cannot be separated."""
    if row.bound is None:
        return ()
    names = row.bound.candidates if row.bound.cause == "either" else (row.bound.cause,)
    return tuple(RESOURCE[name].part_of or name if name in RESOURCE else name for name in names)

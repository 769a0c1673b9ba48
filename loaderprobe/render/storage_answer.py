"""Whether storage limits training, in a sentence or two, and on how many ranks that rests."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.groups import groups, then_of
from loaderprobe.render.overview import joint_name
from loaderprobe.render.reads import best_ceiling, read_rate
from loaderprobe.render.recommend import best_rows
from loaderprobe.render.scaling import with_ranks
from loaderprobe.render.verdicts import NOUNS, families, firm
from loaderprobe.render.wording import counted, main_speedups, times_as_fast
from loaderprobe.units import format_rate, join_words, significant

_LITTLE = 1.25
"""A resource whose speed-up is larger is the next to look at."""
_NEAR = 0.5
"""From this share of the ceiling on, how many times more there is says little."""


def storage_answer(report: Report) -> str:
    """Whether storage limits, by the ablation first, and what it gives beside what was read.

    Where configurations differ in ranks, with which of them; and with which nothing is known. Needs a firm verdict.
    """
    firmly = [row for row in report.summary.configurations if firm(row)]
    rows = [row for row in firmly if row.config.compute.kind != "cpu"] or firmly
    cold = [row for row in rows if row.config.cache != "warm"]
    if not cold:
        return "All files were in memory, as asked: nothing follows for storage."
    every = [row for row in report.summary.configurations if row.config.cache != "warm"]
    on_cpu = cold[0].config.compute.kind == "cpu"
    asked = [row for row in every if (row.config.compute.kind == "cpu") == on_cpu]
    several = any(row.config.ranks > 1 for row in asked)
    # An accelerator that was asked for, and of which nothing is conclusive, is not answered for by a CPU.
    on = (" on this CPU" if len(asked) < len(every) and on_cpu else "") + (f" {with_ranks(cold)}" if several else "")
    limited = [row for row in cold if "storage" in families(row)]
    said = _limiting(report, cold, limited, on) if limited else _not_limiting(report, cold, on)
    return said + (_not_known(asked, cold) if several else "")


def _limiting(report: Report, cold: Sequence[ConfigurationRow], limited: Sequence[ConfigurationRow], on: str) -> str:
    sure = [row for row in limited if families(row) == ("storage",)]
    whole = counted(len(cold), "conclusive configuration")
    said = f"Storage limits {len(sure)} of {whole}" if sure else f"Storage may limit {len(limited)} of {whole}"
    more = f", and may limit {len(limited) - len(sure)} more" if sure and len(sure) < len(limited) else ""
    return f"{said}{on}{more}{_reserve(report, limited, limits=True)}."


def _not_limiting(report: Report, cold: Sequence[ConfigurationRow], on: str) -> str:
    gains = [row.verdict.speedups.storage.value for row in cold if row.verdict and row.verdict.speedups.storage]
    most = f": if it cost nothing, training would be {times_as_fast(max(gains), 'at most ')}" if gains else ""
    following = _following(report, cold)
    first = "the first limit" if following or (gains and max(gains) > _LITTLE) else "the limit"
    return f"Storage is not {first}{on}{most}{_reserve(report, cold, limits=False)}.{following}"


def _not_known(asked: Sequence[ConfigurationRow], cold: Sequence[ConfigurationRow]) -> str:
    """` Nothing is known of storage with 4 ranks: no configuration with them is conclusive.`"""
    known = {(row.config.ranks, row.config.nodes) for row in cold}
    rest = [row for row in asked if (row.config.ranks, row.config.nodes) not in known]
    if not rest:
        return ""
    return f" Nothing is known of storage {with_ranks(rest)}: no configuration there is conclusive."


def _following(report: Report, rows: Sequence[ConfigurationRow]) -> str:
    """` If JPEG decoding cost nothing, storage would limit 1024x768 next.`, as the table of the best has it."""
    best = {row.key for group in groups(report) for row in best_rows(report, group)}
    found: dict[str, list[str]] = {}
    for row in (row for row in rows if row.key in best):
        if "storage" in [then_of(report, row).get(name) for name, _ in main_speedups(row)]:
            noun = join_words([NOUNS.get(name, name) for name in families(row)], "or")
            found.setdefault(noun, []).append(row.config.resolution)
    return "".join(
        f" If {noun} cost nothing, storage would limit {joint_name(list(dict.fromkeys(names)), '', rows)} next."
        for noun, names in found.items()
    )


def _reserve(report: Report, rows: Sequence[ConfigurationRow], *, limits: bool) -> str:
    """`; alone it gave at least 415 MB/s, 14.9 times what training read`: of the row nearest to the ceiling.

    Of the rows in the table of the best, where there are any, so that the figures are found there. Where storage
    limits far below its ceiling, it is the time of a read that does.
    """
    best = {row.key for group in groups(report) for row in best_rows(report, group)}
    near = [
        (read / ceiling.read_bytes_per_s, read, ceiling)
        for row in [row for row in rows if row.key in best] or rows
        if (read := read_rate(row)) and (ceiling := best_ceiling(report, row))
    ]
    if not near:
        return ""
    share, read, ceiling = max(near, key=lambda each: each[0])
    most = f"{'at least ' if ceiling.at_least else ''}{format_rate(ceiling.read_bytes_per_s)}"
    if share > _NEAR:
        return f"; training read {format_rate(read)}, and the storage alone gave {most}"
    by = ": the time that a read takes, not bandwidth" if limits else ""
    return f"; alone it gave {most}, {significant(1 / share, 2)} times the {format_rate(read)} that training read{by}"

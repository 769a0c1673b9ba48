"""Which knees and which advice stand under the table of a group."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.forecast import Knee
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Advice
from loaderprobe.render.action_words import action_words
from loaderprobe.render.forecast_words import knee_kind, knee_words, worth_making
from loaderprobe.render.groups import Group
from loaderprobe.render.overview import joint_label, joint_name
from loaderprobe.render.wording import variation


def knees(report: Report, group: Group) -> list[tuple[str, str]]:
    """(what, sentence) for the knees of the group, one for each set of rows that differ in workers only.

    Knees that share all but their rate share a sentence.
    """
    rows = {row.key: row for row in group.rows}
    found: dict[tuple[object, ...], list[tuple[str, Knee]]] = {}
    for knee in report.summary.knees:
        row = next((rows[key] for key in reversed(knee.keys) if key in rows), None)
        if row:
            extra = variation(row, group.rows)
            found.setdefault((extra, *knee_kind(knee)), []).append((row.config.resolution, knee))
    return [
        (joint_name([name for name, _ in some], str(kind[0]), group.rows), knee_words([knee for _, knee in some]))
        for kind, some in found.items()
    ]


def best_rows(report: Report, group: Group) -> list[ConfigurationRow]:
    """Of each data set the row with the workers that are enough, where that was measured; else the fastest.

    A rate that is `too_noisy` ranks behind all others.
    """
    found: dict[str, ConfigurationRow] = {}
    for row in group.rows:
        best = found.get(row.config.resolution)
        if row.images_per_s and (best is None or _better(report, row) > _better(report, best)):
            found[row.config.resolution] = row
    return [found[name] for name in dict.fromkeys(row.config.resolution for row in group.rows) if name in found]


def _at_knee(report: Report, row: ConfigurationRow) -> bool:
    """True for the configuration that is the knee of those that differ from it in workers only."""
    return any(row.key in knee.keys and knee.workers == row.config.loader.workers for knee in report.summary.knees)


def too_noisy(row: ConfigurationRow) -> bool:
    """True for a rate whose band is as wide as itself: no measurement to rank by."""
    return row.images_per_s is not None and row.images_per_s.too_wide


def _better(report: Report, row: ConfigurationRow) -> tuple[bool, bool, float]:
    return not too_noisy(row), _at_knee(report, row), row.images_per_s.value if row.images_per_s else 0.0


def advised(
    report: Report, group: Group, rows: Sequence[ConfigurationRow] | None = None
) -> list[tuple[str, tuple[Advice, ...]]]:
    """(labels, advice) for the best row of each data set, two at most; the same action is given once for all.

    `rows` are asked instead of these.
    """
    best = best_rows(report, group) if rows is None else rows
    found: dict[tuple[object, ...], list[tuple[ConfigurationRow, Advice]]] = {}
    for wanted in (True, False):
        for row in best:
            some = [each for each in row.advice if worth_making(each) == wanted]
            for each in some[:2] if wanted else some:
                same = (wanted, action_words(each.action), each.command)
                found.setdefault(same, []).append((row, each))
    return [
        (joint_label([row for row, _ in some], group.rows), tuple(advice for _, advice in some))
        for some in found.values()
    ]

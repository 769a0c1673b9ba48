"""Which knees and which advice stand under the table of a group."""

from __future__ import annotations

from loaderprobe.records.forecast import Knee
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Advice
from loaderprobe.render.action_words import action_words
from loaderprobe.render.groups import Group
from loaderprobe.render.overview import joint_label, joint_name
from loaderprobe.render.wording import knee_kind, knee_words, variation, worth_making


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


def advised(group: Group) -> list[tuple[str, tuple[Advice, ...]]]:
    """(labels, advice) for the fastest row of each data set, two at most; the same action is given once for all."""
    fastest: dict[str, ConfigurationRow] = {}
    for row in group.rows:
        best = fastest.get(row.config.resolution)
        if row.images_per_s and (
            best is None or best.images_per_s is None or row.images_per_s.value > best.images_per_s.value
        ):
            fastest[row.config.resolution] = row
    found: dict[tuple[object, ...], list[tuple[ConfigurationRow, Advice]]] = {}
    for wanted in (True, False):
        for row in fastest.values():
            some = [each for each in row.advice if worth_making(each) == wanted]
            for each in some[:2] if wanted else some:
                same = (wanted, action_words(each.action), each.command)
                found.setdefault(same, []).append((row, each))
    return [
        (joint_label([row for row, _ in some], group.rows), tuple(advice for _, advice in some))
        for some in found.values()
    ]

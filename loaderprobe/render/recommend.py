"""Which knees and which advice stand under the table of a group."""

from __future__ import annotations

from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Advice
from loaderprobe.render.overview import Group, joint_label
from loaderprobe.render.wording import label, variation, worth_making


def knees(report: Report, group: Group) -> list[tuple[str, str]]:
    """(what, sentence) for the knee of each set of rows in the group that differ in workers only."""
    rows = {row.key: row for row in group.rows}
    found = []
    for knee in report.summary.knees:
        row = next((rows[key] for key in reversed(knee.keys) if key in rows), None)
        if row:
            extra = variation(row, group.rows)
            found.append((", ".join(part for part in (row.config.resolution, extra) if part), knee.sentence))
    return found


def advised(group: Group) -> list[tuple[str, Advice]]:
    """(label, advice) for the fastest row of each data set, two at most; what helps nothing is said once for all."""
    fastest: dict[str, ConfigurationRow] = {}
    for row in group.rows:
        best = fastest.get(row.config.resolution)
        if row.images_per_s and (
            best is None or best.images_per_s is None or row.images_per_s.value > best.images_per_s.value
        ):
            fastest[row.config.resolution] = row
    found = [
        (label(row, group.rows), advice)
        for row in fastest.values()
        for advice in [each for each in row.advice if worth_making(each)][:2]
    ]
    wasted: dict[str, list[tuple[ConfigurationRow, Advice]]] = {}
    for row in fastest.values():
        for advice in row.advice:
            if not worth_making(advice):
                wasted.setdefault(advice.action, []).append((row, advice))
    return found + [(joint_label([row for row, _ in some], group.rows), some[0][1]) for some in wasted.values()]

"""The report as one HTML file that works offline: no script, no request, charts as inline SVG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render import (
    figures,
    forecast_words,
    gpu,
    groups,
    limits,
    overview,
    panels,
    recommend,
    steps,
    timeline,
    verdict_words,
    wording,
)
from loaderprobe.render.ablation_words import ablation_words
from loaderprobe.render.document_page import templates
from loaderprobe.render.evidence_words import evidence_words
from loaderprobe.render.first_page import BEST_HEAD, BEST_RIGHT, first_page
from loaderprobe.render.remarks import remark_words
from loaderprobe.units import format_bytes, format_duration, significant

if TYPE_CHECKING:
    import jinja2

SECTIONS = (
    "first", "rates", "workers", "reads", "ranks", "epochs", "short_runs", "timelines", "plan", "evidence", "machine",
)  # fmt: skip
"""The order of the page; each is a template, `report_NAME.html.jinja`."""


def html_report(report: Report, plan: str = "") -> str:
    """A whole HTML document, for a browser from a phone's width to a printed page. All text from outside is escaped.

    `plan` is the section of the storage plan as HTML (`plan_page.plan_section`).
    """
    from markupsafe import Markup

    return _templates().get_template("report.html.jinja").render(_context(report), plan=Markup(plan))


@cache
def _templates() -> jinja2.Environment:
    units = {"bytes": format_bytes, "duration": format_duration, "number": significant}
    return templates(w=wording, figures=figures, units=units)


def _context(report: Report) -> dict[str, Any]:
    from markupsafe import Markup

    rows = report.summary.configurations
    found = groups.groups(report)
    return {
        "sections": SECTIONS,
        "report": report,
        "summary": report.summary,
        "first": first_page(report),
        "best_head": BEST_HEAD,
        "best_right": BEST_RIGHT,
        "counts": overview.counts(report),
        "not_complete": overview.not_complete(report),
        "why": _why,
        "evidence": evidence_words,
        "remark_words": remark_words,
        "then": lambda row: groups.then_of(report, row),
        "gain": lambda row: limits.gain_words(row, groups.then_of(report, row)),
        "ablations": ablation_words,
        "limit": forecast_words.LIMIT,
        "advice_words": forecast_words.advice_words,
        "refused": remark_words,
        "next_limit": limits.NEXT,
        "emulated": any(row.emulated for row in rows),
        "emulated_note": overview.EMULATED_NOTE,
        "estimated": any(speedup.how == "estimated" for row in rows for _, speedup in wording.main_speedups(row)),
        "groups": found,
        "knees": lambda group: recommend.knees(report, group),
        "advised": lambda group: recommend.advised(report, group),
        **_drawn(report, found),
        "details": {detail.key: detail for detail in report.details},
        "missing": overview.missing(report),
        "notes": overview.notes(report),
        "machine": overview.environment_facts(report),
        "how_to_read": overview.HOW_TO_READ,
        # The only text that is not escaped: SVG, in which its makers escaped what came from outside.
        "inline": lambda svg: Markup(_inlined(svg)),
    }


def _drawn(report: Report, found: Sequence[groups.Group]) -> dict[str, Any]:
    """The charts, and the colours of their legends."""
    return {
        "panels": {
            "rates": panels.rate_panels(report),
            "workers": panels.worker_panels(report),
            "reads": panels.read_panels(report),
            "ranks": panels.rank_panels(report),
            "epochs": panels.epoch_panels(report),
            "short_runs": panels.short_run_panels(report),
        },
        "short_run_sentences": panels.short_run_sentences(report),
        "parts": panels.PARTS,
        "windows": [(group, views) for group in found if (views := gpu.windows(report, group))],
        "step_lines": [each for group in found for each in steps.step_lines(report, group)],
        "kernels": timeline.KERNELS,
        "shades": timeline.SHADES,
    }


def _why(row: ConfigurationRow) -> str:
    return verdict_words.sentence([row.bound]) if row.bound else ""


def _inlined(svg: str) -> str:
    """SVG as part of an HTML page: without the namespaces that only a file of its own needs."""
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg, count=2)

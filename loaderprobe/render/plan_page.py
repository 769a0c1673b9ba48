"""The storage plan as HTML: a section of the report, and a page of its own. No script, no request, charts inline."""

from __future__ import annotations

from typing import Any

from loaderprobe.records.plan import PlanReport
from loaderprobe.records.remark import Remark
from loaderprobe.render import plan_words as words
from loaderprobe.render.document import Paragraph
from loaderprobe.render.document_page import rendered
from loaderprobe.render.plan import plan_document
from loaderprobe.render.plan_charts import exhibits
from loaderprobe.render.remarks import remark_words


def plan_section(plan: PlanReport | Remark, *, chosen: str = "", command: str = "") -> str:
    """The planner's half of a report, a section with a heading; or why there is no plan.

    `chosen` says what was planned for without being asked, `command` how to ask for something else.
    """
    return _rendered("plan_section.html.jinja", plan, chosen=chosen, command=command, heading=True)


def plan_page(plan: PlanReport) -> str:
    """A whole HTML document. All text from outside is escaped."""
    return _rendered("plan.html.jinja", plan, chosen="", command="", heading=False)


def chosen_words(plan: PlanReport) -> str:
    """What a plan that was not asked for is of."""
    images = next((entry.quantity for entry in plan.ledger if entry.name == "images"), None)
    many = ""
    if images is not None:
        why = "as in ImageNet, because the run's data set is generated" if images.label == "assumed" else "as found"
        many = f"; {images.value:,.0f} images, {why}"
    return (
        f"Chosen for this report: {plan.asked.accelerators} accelerators of the run's fastest kind, "
        f"{plan.asked.per_node} in a node{many}; the storage that the run measured, and no cache. "
        "To plan for something else:"
    )


def _rendered(template: str, plan: PlanReport | Remark, **given: Any) -> str:
    return rendered(template, **_context(plan), **given)


def _context(plan: PlanReport | Remark) -> dict[str, Any]:
    if isinstance(plan, Remark):
        then = " Name one to plan for it:" if plan.code == "only_a_cpu" else ""
        return {"title": "Storage plan", "reason": f"{remark_words(plan)}.{then}"}
    page = plan_document(plan)
    lead, *rest = words.answer(plan)
    return {
        "reason": "",
        "plan": plan,
        "title": page.title,
        "lead": lead,
        "answers": rest,
        "first": [part for part in page.sections[0].parts if not isinstance(part, Paragraph)],
        "sections": page.sections[1:],
        "exhibits": exhibits(plan),
    }

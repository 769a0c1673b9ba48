"""The storage plan as sections of a report's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loaderprobe.records.plan import PlanReport
from loaderprobe.records.remark import Remark
from loaderprobe.render.document import Command, Document, Paragraph, Part, Section
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.plan import plan_document
from loaderprobe.render.plan_charts import exhibits
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.sweep import EVIDENCE

_NAME = "plan"


def with_plan(
    document: Document, charts: Mapping[str, Sequence[Exhibit]], plan: PlanReport | Remark, command: str
) -> tuple[Document, dict[str, Sequence[Exhibit]]]:
    """A report and its charts with the planner's half: the plan, or why there is none.

    `command` asks for another plan.
    """
    place = next(number for number, section in enumerate(document.sections) if section.name == EVIDENCE)
    planned = _without(plan, command) if isinstance(plan, Remark) else _sections(plan, command)
    drawn = {} if isinstance(plan, Remark) else {_named(name): each for name, each in exhibits(plan).items()}
    sections = (*document.sections[:place], *planned, *document.sections[place:])
    return replace(document, sections=sections), {**charts, **drawn}


def _named(name: str) -> str:
    """Of a section of the plan: the report has some of the same name."""
    return f"{_NAME}_{name}" if name else ""


def _without(why: Remark, command: str) -> tuple[Section, ...]:
    then = " Name one to plan for it:" if why.code == "only_a_cpu" else ""
    words = Paragraph(text=f"No plan: {remark_words(why)}.{then}")
    return (Section(title="Storage plan", name=_NAME, parts=(words, Command(text=command))),)


def _sections(plan: PlanReport, command: str) -> tuple[Section, ...]:
    page = plan_document(plan)
    first, *rest = page.sections
    asked: tuple[Part, ...] = (Paragraph(text=_chosen_words(plan), tone="quiet"), Command(text=command))
    return (
        Section(title=page.title, name=_NAME, parts=(*first.parts, *asked)),
        *(replace(section, name=_named(section.name), under=True) for section in rest),
    )


def _chosen_words(plan: PlanReport) -> str:
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

"""The plan as HTML: the planner's half of a report, and a page of its own."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from loaderprobe.analyze.plan.plan import make_plan
from loaderprobe.records.remark import reported
from tests.examples.plan import (
    MADE,
    SOURCE,
    example_asked,
    example_plan,
    example_workload,
    whole_plan,
)
from tests.examples.reports import example_report
from tests.pages import plan_page, planned_report
from tests.render.test_html import EVIL, Page
from tests.said import quoted

ODD = {
    "one": whole_plan(accelerators=1),
    "ten million": whole_plan(accelerators=10**7, per_node=1),
    "enough": make_plan(example_workload(1.0), example_asked(2), [], SOURCE, MADE),
    "shards": whole_plan(images_per_file=1251),
    "no storage": make_plan(example_workload(storage=None, cpu_s=None, wait_s=None), example_asked(), [], SOURCE, MADE),
    "no images": example_plan(example_workload(images=None)),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_plans_are_pages_too(name: str) -> None:
    """What is not known is left out; what remains is drawn."""
    html = plan_page(ODD[name])
    assert not re.search(r"\b(None|nan|NaN|inf|Infinity)\b", Page(html).text)
    for label in ("Read bandwidth against accelerators", "Files opened against accelerators"):
        assert re.search(rf'aria-label="{label}">\s*<svg', html)


def test_text_from_outside_is_escaped() -> None:
    """A tag in a path, a storage's name or a reason is shown, not obeyed."""
    plan = whole_plan()
    supplies = (replace(plan.supplies[0], name=EVIL), *plan.supplies[1:])
    evil = replace(
        plan,
        source=replace(SOURCE, path=EVIL, data=f"{EVIL}\udcff"),
        supplies=supplies,
        notes=(quoted(EVIL),),
    )
    report = example_report()
    for html in (plan_page(evil), planned_report(report, evil, EVIL), planned_report(report, reported(EVIL))):
        assert "script" not in Page(html).tags and EVIL in Page(html).text
        html.encode()

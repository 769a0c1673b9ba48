"""The plan as HTML: the planner's half of a report, and a page of its own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.plan.plan import make_plan
from loaderprobe.analyze.plan.supply import given_offer
from loaderprobe.records.plan import PlanReport, RampStep
from loaderprobe.records.remark import Remark, reported
from tests.examples.plan import MADE, SOURCE, example_asked, example_plan, example_storage, example_workload
from tests.examples.reports import example_report
from tests.pages import plan_page, planned_report
from tests.render.test_html import EVIL, Page
from tests.said import quoted

RAMP = (
    RampStep(readers=1, files_per_s=1000.0, bytes_per_s=115e6, p50_s=0.001, p99_s=0.004),
    RampStep(readers=4, files_per_s=4000.0, bytes_per_s=460e6, p50_s=0.001, p99_s=0.005),
    RampStep(readers=16, files_per_s=8000.0, bytes_per_s=920e6, p50_s=0.0018, p99_s=0.02),
)


def whole_plan(**asked: Any) -> PlanReport:
    """With a ladder, a storage of three limits, and a ruler."""
    offer = given_offer("6GB/s,24kopens/s,2ms", {"bandwidth": 6e9, "opens": 24_000.0, "client": 50e9})
    ruler = given_offer("SuperPOD good", {"bandwidth": 15e9})
    workload = example_workload(storage=example_storage(ramp=RAMP))
    return make_plan(workload, example_asked(**asked), [offer], SOURCE, MADE, [ruler])


@pytest.fixture(scope="module")
def html() -> str:
    return plan_page(whole_plan())


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def drawn(html: str) -> dict[str, str]:
    """Charts by their labels."""
    return dict(
        re.findall(r'<figure class="chart" role="group" aria-label="([^"]*)">\s*(<svg.*?</svg>)', html, re.DOTALL)
    )


def test_page_is_whole_and_loads_nothing(html: str, page: Page) -> None:
    """One title and main heading, all tags closed, no script, nothing to fetch: it works offline."""
    assert page.tags.count("h1") == page.tags.count("title") == page.tags.count("main") == 1
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert "http" not in html and "@import" not in html and "url(" not in html
    assert not re.search(r"\b(None|nan|inf)\b", page.text)


def test_answer_stands_first(page: Page) -> None:
    """The need, what to buy, what limits it first, and the test, before any chart."""
    first = " ".join(page.text.split())[: " ".join(page.text.split()).index("What 64 accelerators need")]
    for words in (
        "need 11.8 GB/s",
        "opens/s from storage while caches are cold.",
        "feeds 3.98 of 64, limited by bandwidth.",
        "--ranks 8x8 --readers 5",
    ):
        assert words in first


def test_every_chart_has_its_figures_as_a_table(html: str) -> None:
    """Seven charts in five exhibits; the bars' figures are the section's own table."""
    assert list(drawn(html)) == [
        "Read bandwidth against accelerators", "Files opened against accelerators",
        "The need over what may be used of each limit", "Files/s against readers", "Time of a file against readers",
        "Cold reads by epoch", "Hits against the size of a cache",
    ]  # fmt: skip
    exhibits = re.findall(r'<div class="exhibit">.*?</figure>.*?\n</div>', html, re.DOTALL)
    assert [each.count("<table") for each in exhibits] == [1, 0, 1, 1, 1]
    text = " ".join(re.sub("<[^>]+>", " ", html).split())
    for line in (
        "64 11.8 GB/s 14.8 GB/s 103,000 129,000",
        "16 8,000 920 MB/s 1.80 ms 20.0 ms",
        "50 % 47 % 47 % to 49 % 50 %",
    ):
        assert line in text


def test_titles_say_the_finding(page: Page) -> None:
    """How far the need is from the measured storage, what gives out, where the ladder ends, what caches do."""
    text = " ".join(page.text.split())
    assert "64 accelerators ask for 16 times what the storage measured here can feed" in text
    assert "bandwidth of the storage measured here and opens/s of 6GB/s,24kopens/s,2ms" in text
    assert "16 readers got 8,000 files/s here; all nodes ask for 103,000 with 320 readers" in text
    assert "With 8 nodes, 88 % of epoch 2 is cold even if each node's cache holds the whole set" in text
    assert "Half of the set in the page cache answers 47 % to 49 % of the reads, pinned 50 %" in text


def test_lines_and_bars_are_named_in_the_charts(html: str) -> None:
    """By storage, limit and ruler: no colour has to be matched with a legend."""
    charts = drawn(html)
    for name in ("measured here 920 MB/s", "6GB/s,24kopens/s,2ms 6.00 GB/s", "SuperPOD good 15.0 GB/s", "to buy 14.8"):
        assert name in charts["Read bandwidth against accelerators"]
    assert "SuperPOD" not in charts["Files opened against accelerators"]
    shares = charts["The need over what may be used of each limit"]
    assert "feeds 3.98" in shares and "client" in shares
    assert (
        "not measured" in charts["Files/s against readers"]
        and "all nodes 103,000/s" in charts["Files/s against readers"]
    )
    assert "p99 20.0 ms" in charts["Time of a file against readers"]
    assert "LRU 47 %" in charts["Hits against the size of a cache"]


def test_charts_scale_and_share_no_names(html: str) -> None:
    """Every SVG has a view box, and none an id that could clash with another's."""
    for figure in drawn(html).values():
        assert "viewBox=" in figure and not re.search(r"\sid=", figure)


ODD = {
    "one": whole_plan(accelerators=1),
    "ten million": whole_plan(accelerators=10**7, per_node=1),
    "enough": make_plan(example_workload(1.0), example_asked(2), [], SOURCE, MADE),
    "shards": whole_plan(images_per_file=1251),
    "no storage": make_plan(example_workload(storage=None, cpu_s=None, wait_s=None), example_asked(), [], SOURCE, MADE),
    "no images": example_plan(example_workload(images=None, stalls=None)),
    "untimed": make_plan(
        example_workload(storage=example_storage(ramp=tuple(replace(s, p50_s=None, p99_s=None) for s in RAMP))),
        example_asked(), [], SOURCE, MADE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_plans_are_pages_too(name: str) -> None:
    """What is not known is left out; what remains is drawn."""
    html = plan_page(ODD[name])
    assert not re.search(r"\b(None|nan|NaN|inf|Infinity)\b", Page(html).text)
    charts = drawn(html)
    assert "Read bandwidth against accelerators" in charts and "Hits against the size of a cache" in charts
    assert ("The need over what may be used of each limit" in charts) == (name != "no storage")
    assert ("Files/s against readers" in charts) == (name in ("one", "ten million", "untimed"))
    assert ("Time of a file against readers" in charts) == (name in ("one", "ten million", "shards"))


def test_a_storage_that_is_enough_is_called_so() -> None:
    """In the title as in the answer."""
    assert "The storage measured here is enough for 2 accelerators" in Page(plan_page(ODD["enough"])).text


def test_a_section_says_what_was_chosen_or_why_there_is_no_plan() -> None:
    """With the command that plans for something else."""
    html = planned_report(example_report(), whole_plan(), "loaderprobe plan RUN -n 8")
    text = Page(html).text
    assert "Chosen for this report: 64 accelerators" in text and "loaderprobe plan RUN -n 8" in text
    assert html.index('id="plan"') < html.index('id="evidence"')
    reason = planned_report(example_report(), reported("the files are empty"), "loaderprobe plan RUN")
    assert "No plan: the files are empty." in Page(reason).text and "<svg" not in reason
    on_cpu = Page(planned_report(example_report(), Remark(code="only_a_cpu"), "loaderprobe plan RUN")).text
    assert "No plan: training ran on a CPU only, so no accelerator's rate is known. Name one to plan for it:" in on_cpu


def test_emulated_accelerators_are_marked() -> None:
    """Their rate was specified; a measured one has no mark."""
    real = make_plan(example_workload(compute=""), example_asked(), [], SOURCE, MADE)
    assert "specified, not measured" in plan_page(whole_plan()) and "Emulated" not in plan_page(real)


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

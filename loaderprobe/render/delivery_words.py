"""The test of a delivered storage in words: what to type where, and what it must reach."""

from __future__ import annotations

from loaderprobe.records.plan import PlanReport
from loaderprobe.render.plan_words import grouped
from loaderprobe.render.wording import counted
from loaderprobe.units import format_rate

LAUNCHER = "--rdzv-backend c10d --rdzv-endpoint HEAD:29500 --rdzv-id 7"
"""What starts processes on several nodes together (`explain ranks`)."""


def delivery_command(plan: PlanReport) -> str:
    """What to type on the node of the delivered system, or on each of them."""
    test = plan.acceptance
    if test.nodes == 1:
        return f"loaderprobe bandwidth PATH --readers {test.readers}"
    ranks = _ranks(plan)
    return (
        f"torchrun --nnodes {test.nodes} --nproc-per-node {ranks} {LAUNCHER} -m loaderprobe bandwidth PATH "
        f"--ranks {test.nodes}x{ranks} --readers {_readers(plan)}"
    )


def delivery_words(plan: PlanReport) -> str:
    """Where to type it, and what it must reach."""
    test = plan.acceptance
    if test.nodes == 1:
        return f"on the node, at least {_figures(test.bytes_per_s, test.files_per_s)}, cold"
    nodes = plan.asked.accelerators / min(plan.asked.per_node, plan.asked.accelerators)
    files = None if test.files_per_s is None else test.files_per_s * nodes
    figures = _figures(test.bytes_per_s * nodes, files)
    return f"started on each of {test.nodes:,} nodes, all together at least {figures}, cold"


def read_words(plan: PlanReport) -> str:
    """Where its readers come from, and what to read and to compare."""
    several = plan.acceptance.nodes > 1
    head = " HEAD: the name of the first node; all nodes mount PATH." if several else ""
    line = "the line of all ranks" if several else "the line with that number of readers"
    return (
        f"{_readers_words(plan)}. PATH: images of the planned size on the delivered storage, more than its caches hold."
        f"{head} Compare MB/s and files/s of {line}; its cache must be cold. These are bytes that readers get, without "
        "a, what storage reads besides."
    )


def _figures(bytes_per_s: float, files_per_s: float | None) -> str:
    files = "" if files_per_s is None else f" and {grouped(files_per_s)} files/s"
    return f"{format_rate(bytes_per_s)}{files}"


def _ranks(plan: PlanReport) -> int:
    """On each of several nodes, a rank for each accelerator; all nodes have as many."""
    return -(-plan.asked.accelerators // plan.acceptance.nodes)


def _readers(plan: PlanReport) -> int:
    """Of one of those ranks."""
    test = plan.acceptance
    return test.workers or -(-test.readers // min(plan.asked.per_node, plan.asked.accelerators))


def _readers_words(plan: PlanReport) -> str:
    test, per_node = plan.acceptance, min(plan.asked.per_node, plan.asked.accelerators)
    several = test.nodes > 1
    count = f"{counted(_readers(plan), 'reader')} a rank" if several else counted(test.readers, "reader")
    if test.readers_from == "assumed":
        return f"{count}: assumed; more may be needed"
    if test.readers_from == "reads_in_flight":
        return f"{count}: the reads in flight of one {'accelerator' if several else 'node'}"
    if several:
        return f"{count}: the workers of one accelerator"
    return f"{count}: {counted(test.workers or 1, 'worker')} for each of {counted(per_node, 'accelerator')}"

"""How many accelerators a storage feeds, in words: what `plan` says of the same result."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.bandwidth import Feed
from loaderprobe.render.plan_words import at_utilization, fed, in_use, limited_by
from loaderprobe.render.wording import rate
from loaderprobe.units import join_words

STANDARD = "mlperf-"
"""Accelerators of MLPerf Storage, by which storage is planned, are named first."""


def feeding(feeds: Sequence[Feed]) -> str:
    """How many accelerators that feeds, as `plan` says it of this result; empty where none are counted."""
    chosen = _main_feeds(feeds)
    if not chosen:
        return ""
    first = chosen[0]
    named = join_words([f"{fed(feed.count, feed.at_least)} {_name(feed)}s" for feed in chosen], "or")
    rates = join_words([rate(feed.images_per_s) for feed in chosen])
    terms = in_use(first.use)
    return (
        f"{terms[0].upper()}{terms[1:]} it feeds {named} {at_utilization(first.utilization)} "
        f"({rates} images/s, ResNet-50){'' if first.at_least else f', {limited_by(first.first_limit)}'}."
    )


def feeding_in_step(feeds: Sequence[Feed]) -> str:
    """`In step, at the rate of the slowest rank, 3.10 MLPerf A100s.`; empty where none are counted."""
    chosen = _main_feeds(feeds)
    named = join_words([f"{fed(feed.count, feed.at_least)} {_name(feed)}s" for feed in chosen], "or")
    return f"In step, at the rate of the slowest rank, it feeds {named}." if chosen else ""


def other_feeds(feeds: Sequence[Feed]) -> str:
    """Those that the answer leaves out: `2.20 x V100 AMP (1200 images/s)`."""
    rest = [feed for feed in feeds if feed not in _main_feeds(feeds)]
    return ", ".join(
        f"{fed(feed.count, feed.at_least)} x {_name(feed)} ({rate(feed.images_per_s)} images/s)" for feed in rest
    )


def _main_feeds(feeds: Sequence[Feed]) -> list[Feed]:
    return [feed for feed in feeds if feed.accelerator.startswith(STANDARD)] or list(feeds[:2])


def _name(feed: Feed) -> str:
    return feed.accelerator.replace("-", " ").upper().replace("MLPERF", "MLPerf")

"""What limits a configuration, in letters and short words, and what a speed-up gains: how the first page says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from loaderprobe.records.compare import ShortVerdict
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.resources import RESOURCE, RESOURCES
from loaderprobe.records.verdict import Bottleneck, Bound
from loaderprobe.render.wording import MISSING, factor, main_speedups, percent, rate, tone, verdict_tone

NEXT = {name: RESOURCE[name].short or name for name in get_args(Bottleneck) if name in RESOURCE}
NEXT["cores"] = RESOURCE["cpu"].noun
"""What limits next, in short."""
LETTERS = {
    each.name: (each.letter, each.legend or each.noun)
    for each in sorted(RESOURCES, key=lambda each: each.name != "compute")
    if each.is_cause
} | {"balanced": ("B", "balanced"), "inconclusive": ("?", "inconclusive"), "failed": ("x", "failed")}
"""By tone: the letter of a cell, and what it stands for."""
ABOUT_ALL = 1.1
"""Training cannot outrun compute alone: up to this share of it, more than all of it is noise."""


def limits_of(row: ConfigurationRow) -> tuple[str, ...]:
    """The tones of what limits a measured row; both of two that cannot be separated."""
    if row.bound is None:
        return (tone(row) if tone(row) in LETTERS else "inconclusive",)
    return limits_in(row.bound)


def limits_in(bound: Bound | ShortVerdict) -> tuple[str, ...]:
    """The same of a verdict alone."""
    names = bound.candidates if bound.cause == "either" else ()
    found = verdict_tone(bound)
    return names or (found if found in LETTERS else "inconclusive",)


def letters_of(row: ConfigurationRow) -> str:
    """`F`, or `S/C`."""
    return _letters(limits_of(row))


def letters_in(bound: Bound | ShortVerdict) -> str:
    """The same of a verdict alone."""
    return _letters(limits_in(bound))


def _letters(limits: tuple[str, ...]) -> str:
    return "/".join(LETTERS[name][0] for name in limits)


def used_words(row: ConfigurationRow, *, beside_rate: bool) -> str:
    """`39 %` of what compute alone does, or `98 % of 6.05`; `~100 %` where noise makes it more."""
    verdict = row.verdict
    if verdict is None or verdict.accelerator_utilization is None:
        return MISSING
    share = verdict.accelerator_utilization
    words = "~100 %" if 1.005 <= share <= ABOUT_ALL else percent(share)
    alone = verdict.rates_images_per_s.compute
    return f"{words} of {rate(alone)}" if beside_rate and alone else words


def gain_words(row: ConfigurationRow, then: Mapping[str, Bottleneck]) -> str:
    """`decoding 2.55x → compute`: the speed-ups that the verdict names, and what limits next."""
    none = "inconclusive" if row.bound and row.bound.cause == "inconclusive" else MISSING
    return (
        ", ".join(
            f"{RESOURCE[name].short or name} {factor(speedup)}{f' → {NEXT[then[name]]}' if name in then else ''}"
            for name, speedup in main_speedups(row)
        )
        or none
    )

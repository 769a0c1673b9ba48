"""How every renderer words one configuration and one figure."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.config import OPTIONS, REQUIRED, CacheState, RunConfig
from loaderprobe.records.options import label_of
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.resources import AMONG_RANKS, JUDGED, RESOURCE, WITHIN_COMPUTE
from loaderprobe.records.verdict import FilesWere, Interval, ShortVerdict, Speedup
from loaderprobe.units import join_words, significant

MISSING = "\N{EN DASH}"
"""Stands for a figure that does not exist; every renderer lists the reasons."""

NO_FASTER = 0.005
"""A factor nearer to 1 is shown as 1.00, which says nothing."""

COUNTED = ("ranks", "nodes")
"""Options of which there are so many: `1 rank`, `4 ranks`."""
STATED = ("resolution", "workers", "compute", "cache")
"""Options that a heading or a label's beginning states."""


def option_words(config: RunConfig, name: str) -> str:
    """`batch 64`, `fp16 precision`, `pageable memory`, `rounds 5`."""
    value = OPTIONS[name].of(config)
    if name in COUNTED:
        return counted(value, name.removesuffix("s"))
    if name == "batch_size" and config.ranks > 1:
        return f"batch {value} a rank"
    form = label_of(name)
    return form.format(value) if isinstance(form, str) else form[bool(value)]


def loading(row: ConfigurationRow) -> str:
    """`serial`, `1 worker`, `4 workers`."""
    return workers_words(row.config.loader.workers)


def workers_words(count: int) -> str:
    """The same of a number of workers."""
    return counted(count, "worker") if count else "serial"


def differing(row: ConfigurationRow, among: Sequence[ConfigurationRow]) -> list[str]:
    """The options, beyond the stated ones, of which the rows do not all have this row's value."""

    def differs(name: str) -> bool:
        compared = among
        if name == "prefetch_factor":
            compared = [other for other in among if other.config.loader.workers and row.config.loader.workers]
        if name == "data":
            compared = [other for other in among if other.config.resolution == row.config.resolution]
        return len({OPTIONS[name].of(other.config) for other in compared}) > 1

    return [name for name in OPTIONS if name not in STATED and differs(name)]


def unusual(row: ConfigurationRow) -> list[str]:
    """The options, beyond the stated ones, that do not have their default."""
    return [name for name, each in OPTIONS.items() if name not in (*STATED, *REQUIRED) and not each.usual(row.config)]


def variation(row: ConfigurationRow, among: Sequence[ConfigurationRow]) -> str:
    """What else sets a row apart when more than resolution and workers vary: `prefetch 4, batch 64`."""
    return ", ".join(option_words(row.config, name) for name in differing(row, among))


def label(row: ConfigurationRow, among: Sequence[ConfigurationRow], *, workers: bool = True) -> str:
    """`500x375, 2 workers`, and every option that sets the row apart or is not as usual."""
    named = {*differing(row, among), *unusual(row)}
    options = [option_words(row.config, name) for name in OPTIONS if name in named]
    return ", ".join((row.config.resolution, *([loading(row)] if workers else []), *options))


def bound_words(row: ConfigurationRow) -> str:
    """`compute`, `input: decoding, cores full`, `storage or compute`, `balanced`, `inconclusive`, `failed`."""
    if row.bound is None:
        return row.status if row.status != "measured" else MISSING
    return verdict_words(row.bound)


def verdict_words(bound: ShortVerdict) -> str:
    """The same of a verdict alone."""
    if bound.cause == "either":
        words = join_words(bound.candidates, "or") or "either"
        return f"input: {words}" if bound.side == "input" else words
    if bound.side in ("balanced", "inconclusive") or bound.cause == bound.side:
        return bound.side
    cell = RESOURCE[bound.cause].cell if bound.cause in RESOURCE else ""
    return f"{bound.side}: {cell or bound.cause}"


def tone(row: ConfigurationRow) -> str:
    """One word for the colour of a verdict: a cause, or a side, or a status without a verdict."""
    if row.bound is None:
        return row.status if row.status != "measured" else "inconclusive"
    return verdict_tone(row.bound)


def verdict_tone(bound: ShortVerdict) -> str:
    """The same of a verdict alone."""
    if bound.cause == "either":
        return "either"
    return bound.cause if bound.side == "input" or bound.cause in WITHIN_COMPUTE else bound.side


def resources_of(row: ConfigurationRow) -> tuple[str, ...]:
    """Whose speed-ups a row can have: with several ranks, also what they lose to each other."""
    if row.config.ranks > 1:
        return (*JUDGED, *(name for name in AMONG_RANKS if name not in JUDGED))
    return tuple(name for name in JUDGED if name not in AMONG_RANKS)


def factor(speedup: Speedup) -> str:
    """`2.81x`, with `est.` where it is estimated."""
    return f"{significant(speedup.value)}x{' est.' if speedup.how == 'estimated' else ''}"


def times_as_fast(speedup: float, most: str = "") -> str:
    """`2.81 times as fast`, with `most` before it; `no faster` where that rounds to 1."""
    return "no faster" if abs(speedup - 1) < NO_FASTER else f"{most}{significant(speedup)} times as fast"


def interval(value: Interval | None, gap: str = " ") -> str:
    """`205 ±6`: the value and half its 95 % interval, to the same decimal place; a single round has none."""
    if value is None:
        return MISSING
    shown, half = significant(value.value), (value.high - value.low) / 2
    if not half:
        return shown
    decimals = len(shown.partition(".")[2])
    spread = f"{half:.{decimals}f}"
    return f"{shown}{gap}±{spread if float(spread) else significant(half, 1)}"


def rate(images_per_s: float) -> str:
    """Images/s, whole from 1000 on: a specified rate is known to the last digit."""
    return f"{images_per_s:.0f}" if images_per_s >= 1000 else significant(images_per_s)


def speed(row: ConfigurationRow, gap: str = " ") -> str:
    """`205 ±6`, and ` warm` where cold files were asked for and the reads were not cold."""
    return interval(row.images_per_s, gap) + (
        state_word(row.config.cache, row.verdict.files_were) if row.verdict else ""
    )


def percent(fraction: float | None) -> str:
    """`62 %`; below 1 %, two figures."""
    if fraction is None:
        return MISSING
    return f"{_shown(fraction * 100, 2 if abs(fraction) < 0.995 else 3, 0.01)} %"


def megabytes_per_s(rate: float | None) -> str:
    """A bandwidth as a number of MB/s, without the unit."""
    return figure(None if rate is None else rate / 1e6)


def state_word(asked: CacheState, files_were: FilesWere | None) -> str:
    """` warm` or ` partly warm` where cold files were asked for and the reads were not cold; else empty.

    No rate of such a run is shown without it.
    """
    return f" {files_were}" if asked != "warm" and files_were in ("warm", "partly warm") else ""


def figure(value: float | None, figures: int = 3) -> str:
    """A number, or the sign for a missing one."""
    return MISSING if value is None else _shown(value, figures, 0.001)


def _shown(value: float, figures: int, least: float) -> str:
    """Nothing that is measured is known to 16 decimals: what is smaller than `least` is said to be."""
    return f"<{least:g}" if 0 < value < least else significant(value, figures)


def counted(count: int, noun: str) -> str:
    """`1 configuration`, `12 configurations`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def first_upper(words: str) -> str:
    """The same words at the begin of a sentence."""
    return words[:1].upper() + words[1:]


def named(accelerator: str, counts: str = "") -> str:
    """`one mlperf-h100`, `1, 8 and 64 x mlperf-h100`; of a rate `one accelerator of 500 images/s`."""
    if accelerator[:1].isdigit():
        return f"{f'{counts} accelerators' if counts else 'one accelerator'} of {accelerator} images/s"
    return f"{counts} x {accelerator}" if counts else f"one {accelerator}"


def visible(text: str) -> str:
    """`text` with control characters and undecodable bytes written out, so that no path can act on a reader."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )

"""How every renderer words one configuration and one figure."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.config import OPTIONS, REQUIRED, CacheState, RunConfig
from loaderprobe.records.measurement import NO_STEP
from loaderprobe.records.options import label_of
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.resources import AMONG_RANKS, JUDGED, RESOURCE, WITHIN_COMPUTE, ResourceName
from loaderprobe.records.verdict import FilesWere, SideAndCause
from loaderprobe.render.format import MISSING, counted, interval, workers_words
from loaderprobe.units import join_words

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


def label(
    row: ConfigurationRow, among: Sequence[ConfigurationRow], *, workers: bool = True, device: bool = False
) -> str:
    """`500x375, 2 workers`, and every option that sets the row apart or is not as usual.

    `device` is for a row out of its group: with device and state of the files, too.
    """
    apart = [name for name in ("compute", "cache") if len({OPTIONS[name].of(other.config) for other in among}) > 1]
    apart += [] if OPTIONS["cache"].usual(row.config) else ["cache"]
    named = {*differing(row, among), *unusual(row), *(apart if device else [])}
    options = [option_words(row.config, name) for name in OPTIONS if name in named]
    return ", ".join((row.config.resolution, *([loading(row)] if workers else []), *options))


def bound_words(row: ConfigurationRow) -> str:
    """`compute`, `input: decoding, cores full`, `storage or compute`, `balanced`, `inconclusive`, `failed`."""
    if row.bound is None:
        return row.status if row.status != "measured" else MISSING
    return verdict_words(row.bound)


def verdict_words(bound: SideAndCause) -> str:
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


def verdict_tone(bound: SideAndCause) -> str:
    """The same of a verdict alone."""
    if bound.cause == "either":
        return "either"
    return bound.cause if bound.side == "input" or bound.cause in WITHIN_COMPUTE else bound.side


def trains(row: ConfigurationRow) -> bool:
    """False where the loader was judged alone."""
    return row.config.compute.kind != NO_STEP


def resources_of(row: ConfigurationRow) -> tuple[ResourceName, ...]:
    """Whose speed-ups a row can have: with several ranks, also what they lose to each other."""
    if row.config.ranks > 1:
        return (*JUDGED, *(name for name in AMONG_RANKS if name not in JUDGED))
    return tuple(name for name in JUDGED if name not in AMONG_RANKS)


def speed(row: ConfigurationRow, gap: str = " ") -> str:
    """`205 ±6`, and ` warm` where cold files were asked for and the reads were not cold."""
    return interval(row.images_per_s, gap) + (
        state_word(row.config.cache, row.verdict.files_were) if row.verdict else ""
    )


def state_word(asked: CacheState, files_were: FilesWere | None) -> str:
    """` warm` or ` partly warm` where cold files were asked for and the reads were not cold; else empty.

    No rate of such a run is shown without it.
    """
    return f" {files_were}" if asked != "warm" and files_were in ("warm", "partly warm") else ""

"""How every renderer words one configuration and one figure."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.compare import ShortVerdict
from loaderprobe.records.config import CacheState, RunConfig
from loaderprobe.records.forecast import Forecast, Knee
from loaderprobe.records.options import OPTIONS, REQUIRED
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Advice, Bottleneck, Bound, FilesWere, How, Interval, Speedup
from loaderprobe.render.action_words import action_words
from loaderprobe.render.refusal_words import refusal_words
from loaderprobe.units import join_words, significant

MISSING = "\N{EN DASH}"
"""Stands for a figure that does not exist; every renderer lists the reasons."""

NO_FASTER = 0.005
"""A factor nearer to 1 is shown as 1.00, which says nothing."""
ROUGH = 0.25
"""Half of a forecast's range: most laws are within 0.2, and one that is not proved here is wider."""
RESOURCES = ("storage", "preprocessing", "transport", "network", "lock", "wait", "compute", "gradients")


LIMIT = {
    "storage": "storage is the limit",
    "preprocessing": "preprocessing is the limit",
    "cores": "CPU cores are the limit",
    "transport": "transport is the limit",
    "compute": "compute is the limit",
}
"""What limits training after a change."""


OPTION_WORDS: dict[str, str | tuple[str, str]] = {
    "batch_size": "batch {}",
    "prefetch_factor": "prefetch {}",
    "loader": "{}",
    "pipeline": "{}",
    "decoder": "{}",
    "tensor": "{}",
    "model": "{}",
    "precision": "{} precision",
    "memory_format": "{}",
    "compile": ("not compiled", "compiled"),
    "pin_memory": ("pageable memory", "pinned memory"),
    "side_stream": ("copies on the training stream", "copies on a side stream"),
    "gpu_decode": ("decoding on the CPU", "decoding on the GPU"),
}
"""What an option's value is called: a form to put it into, or what False and True mean; others are named."""
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
    form = OPTION_WORDS.get(name, f"{name.replace('_', ' ')} {{}}")
    return form.format(value) if isinstance(form, str) else form[bool(value)]


def loading(row: ConfigurationRow) -> str:
    """`serial`, `1 worker`, `4 workers`."""
    workers = row.config.loader.workers
    return "serial" if workers == 0 else f"{workers} worker{'s' if workers > 1 else ''}"


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


def label(row: ConfigurationRow, among: Sequence[ConfigurationRow]) -> str:
    """`500x375, 2 workers`, and every option that sets the row apart or is not as usual."""
    named = {*differing(row, among), *unusual(row)}
    options = [option_words(row.config, name) for name in OPTIONS if name in named]
    return ", ".join((row.config.resolution, loading(row), *options))


def bound_words(row: ConfigurationRow) -> str:
    """`compute`, `input: decoding, cores full`, `storage or compute`, `balanced`, `inconclusive`, `failed`."""
    if row.bound is None:
        return row.status if row.status != "measured" else MISSING
    return verdict_words(row.bound)


_IN_TABLES = {
    "cpu": "decoding, cores full", "preprocessing": "decoding, cores free", "imbalance": "one slow rank",
    "gradients": "exchanging gradients",
}  # fmt: skip


def verdict_words(bound: Bound | ShortVerdict) -> str:
    """The same of a verdict alone."""
    if bound.cause == "either":
        words = join_words(bound.candidates, "or") or "either"
        return f"input: {words}" if bound.side == "input" else words
    if bound.side in ("balanced", "inconclusive") or bound.cause == bound.side:
        return bound.side
    return f"{bound.side}: {_IN_TABLES.get(bound.cause, bound.cause)}"


def tone(row: ConfigurationRow) -> str:
    """One word for the colour of a verdict: a cause, or a side, or a status without a verdict."""
    if row.bound is None:
        return row.status if row.status != "measured" else "inconclusive"
    return verdict_tone(row.bound)


def verdict_tone(bound: Bound | ShortVerdict) -> str:
    """The same of a verdict alone."""
    if bound.cause == "either":
        return "either"
    return bound.cause if bound.side == "input" or bound.cause in ("host", "gradients") else bound.side


def speedup_of(row: ConfigurationRow, resource: str) -> Speedup | None:
    """The speed-up if `resource` were free; None where that is not known."""
    speedup: Speedup | None = getattr(row.verdict.speedups, resource) if row.verdict else None
    return speedup


def resources_of(row: ConfigurationRow) -> tuple[str, ...]:
    """Whose speed-ups a row can have: with several ranks, also what they lose to each other."""
    if row.config.ranks > 1:
        return (*RESOURCES, "imbalance", "straggler")
    return tuple(name for name in RESOURCES if name != "gradients")


def named_resources(row: ConfigurationRow) -> tuple[str, ...]:
    """What the verdict names; where all cores are busy, that is what keeps them busy."""
    if row.bound is None:
        return ()
    return row.bound.candidates or (("preprocessing",) if row.bound.cause == "cpu" else (row.bound.cause,))


def main_speedups(row: ConfigurationRow) -> tuple[tuple[str, Speedup], ...]:
    """The speed-ups that the verdict names: its cause's, both candidates' of `either`, none of `inconclusive`."""
    known = {resource: speedup for resource in RESOURCES if (speedup := speedup_of(row, resource))}
    named = named_resources(row)
    slow = speedup_of(row, "imbalance")
    if slow is not None and named == ("imbalance",):
        return (("imbalance", slow),)
    chosen = [resource for resource in named if resource in known]
    inconclusive = row.verdict is not None and row.verdict.bound.cause == "inconclusive"
    if not chosen and known and not inconclusive:
        chosen = [max(known, key=lambda resource: known[resource].value)]
    return tuple((resource, known[resource]) for resource in chosen)


def factor(speedup: Speedup) -> str:
    """`2.81x`, with `est.` where it is estimated."""
    return f"{significant(speedup.value)}x{' est.' if speedup.how == 'estimated' else ''}"


def times_as_fast(speedup: float, most: str = "") -> str:
    """`2.81 times as fast`, with `most` before it; `no faster` where that rounds to 1."""
    return "no faster" if abs(speedup - 1) < NO_FASTER else f"{most}{significant(speedup)} times as fast"


def worth_making(advice: Advice) -> bool:
    """False for a change that gains nothing, listed to save its cost."""
    return advice.speedup > 1


def advice_words(advice: Sequence[Advice]) -> str:
    """`use 4 workers: 205 → 391 images/s (352 to 430), 1.91x`; for several, the range of their speed-ups."""
    if not worth_making(advice[0]):
        return action_words(advice[0].action)
    return f"{action_words(advice[0].action)}: {forecast_words(advice)}"


def forecast_words(advice: Sequence[Advice], sample: str = "images") -> str:
    """`205 → 391 images/s (352 to 430), 1.91x; then CPU cores are the limit`; or `1.9x to 2.8x`.

    A law that can say little says so: `205 → about 391 images/s (211 to 530), 1x to 2.6x`.
    """
    first = advice[0]
    tried = ", measured" if all(each.how == "measured" for each in advice) else ""
    then = (
        f"; then {LIMIT[first.bottleneck]}"
        if first.bottleneck and len({each.bottleneck for each in advice}) == 1
        else ""
    )
    if len(advice) > 1:
        ends = [f"{significant(find(each.speedup for each in advice), 2)}x" for find in (min, max)]
        return f"{_doubt(advice)}{' to '.join(dict.fromkeys(ends))}{tried}{then}"
    after = f"{rate(first.after.low)} to {rate(first.after.high)}"
    about, speedup = "", f"{significant(first.speedup)}x"
    if _is_rough(first.after):
        least, most = (significant(end / first.before.value, 2) for end in (first.after.low, first.after.high))
        about, speedup = "about ", f"{least}x to {most}x"
    return (
        f"{_doubt(advice)}{rate(first.before.value)} → {about}{rate(first.after.value)} {sample}/s "
        f"({after}), {speedup}{tried}{then}"
    )


def _is_rough(forecast: Interval) -> bool:
    """True where the range leaves open how much a change gains."""
    return forecast.high - forecast.low > 2 * ROUGH * forecast.value


def _doubt(advice: Sequence[Advice]) -> str:
    """Where the range of a forecast includes that training gets slower, it says so first."""
    return "not certain, probably " if any(each.after.low < each.before.value for each in advice) else ""


def knee_words(knees: Sequence[Knee]) -> str:
    """`2 workers, 640 images/s; beyond it, CPU cores are the limit.`, or why there is no knee.

    Knees that share all but their rate share the words, with the range of the rates.
    """
    first = knees[0]
    workers, how, bottleneck, reason, more = knee_kind(first)
    if workers is None or first.images_per_s is None:
        return f"No knee: {reason or 'nothing was measured'}."
    rates = sorted(knee.images_per_s.value for knee in knees if knee.images_per_s)
    ends = dict.fromkeys(significant(each) for each in (rates[0], rates[-1]))
    loader = "serial loader" if workers == 0 else counted(workers, "worker")
    about = "about " if any(knee.images_per_s and _is_rough(knee.images_per_s) for knee in knees) else ""
    at = f"{loader}, {about}{' to '.join(ends)} images/s{' (forecast)' if how == 'estimated' else ''}"
    if reason:
        return f"{at}; no forecast for more workers: {reason}."
    if bottleneck == "preprocessing" or (bottleneck is None and more):
        return f"{at}; more workers gain nothing."
    if bottleneck is None:
        return f"{at}; the rate still rises at the most workers that can be judged here."
    return f"{at}; beyond it, {LIMIT[bottleneck]}."


def knee_kind(knee: Knee) -> tuple[int | None, How, Bottleneck | None, str, bool]:
    """(workers, how it is known, the limit beyond it, why nothing is known beyond it, whether more was judged)."""
    after = [each for each in knee.forecasts if knee.workers is None or _count(each) > knee.workers]
    reason = next((refusal_words(each.refused) for each in after if each.refused), "")
    return knee.workers, knee.how, knee.bottleneck, reason, bool(after)


def _count(forecast: Forecast) -> int:
    """The number of workers that a forecast of a knee is for."""
    return int(forecast.to)


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
    return f"{significant(fraction * 100, 2 if abs(fraction) < 0.995 else 3)} %"


def megabytes_per_s(rate: float | None) -> str:
    """A bandwidth as a number of MB/s, without the unit."""
    return MISSING if rate is None else significant(rate / 1e6)


def state_word(asked: CacheState, files_were: FilesWere | None) -> str:
    """` warm` or ` partly warm` where cold files were asked for and the reads were not cold; else empty.

    No rate of such a run is shown without it.
    """
    return f" {files_were}" if asked != "warm" and files_were in ("warm", "partly warm") else ""


def figure(value: float | None, figures: int = 3) -> str:
    """A number, or the sign for a missing one."""
    return MISSING if value is None else significant(value, figures)


def counted(count: int, noun: str) -> str:
    """`1 configuration`, `12 configurations`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def visible(text: str) -> str:
    """`text` with control characters and undecodable bytes written out, so that no path can act on a reader."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )

"""Forecasts, advice and knees in words."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.resources import BOTTLENECKS
from loaderprobe.records.verdict import Action, Advice, Bottleneck, Forecast, How, Interval, Knee
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import counted, rate
from loaderprobe.units import format_bytes, format_rate, significant

# What is advised, in words.

ACTIONS = {
    "all_in_page_cache": "keep all files in the page cache",
    "part_in_page_cache": (
        "leave {bytes} of memory to the page cache, which holds {share} % of the files and answers {hits_low} to "
        "{hits_high} % of the reads from epoch 2 on"
    ),
    "files_pinned": (
        "pin {share} % of the files in memory ({bytes}, by vmtouch -l or a copy in tmpfs), which answers {share} % of "
        "the reads"
    ),
    "prefetch": "prefetch {batches} batches in each worker",
    "faster_storage": "use storage {factor} times as fast{bytes_per_s}",
    "accelerator": "train on {ranks} of {images_per_s} {sample}s/s{name}",
    "decoder": "decode with {decoder}",
    "tensor": "deliver uint8 tensors and normalise on the device",
    "requests_in_flight": (
        "keep more requests{subject} in flight: num_workers={workers}, or asynchronous reads in the data set; "
        "larger objects or a local cache need fewer requests"
    ),
    "shorter_lock": "hold the lock{subject} for less time, or give each worker its own",
    "no_wait": "remove the wait{subject} from the data set, or overlap it with work",
    "slow_rank": "check the loader, cores and storage path of rank {rank}{host}: all ranks wait for its input",
    "slow_host": (
        "check the cores, the network and the storage path of host {slow_host}: all ranks wait for the {slow_ranks} "
        "there"
    ),
    "exchange": (
        "exchange gradients faster or less often: a faster link between ranks, gradient accumulation, compression; "
        "faster GPUs gain less"
    ),
    "own_shares": (
        "give each rank its own share of the data set: add DistributedSampler(dataset) to the DataLoader, or "
        "split_dataset_by_node to a stream"
    ),
    "one_thread": "load with torch on one thread: its threads spin between the small operations of a sample",
    "accelerator_gains_nothing": (
        "A faster accelerator gains nothing until the loader delivers more than {until_images_per_s} {sample}s/s."
    ),
    "input_gains_nothing": "A faster input gains nothing: training reaches {share} % of compute alone.",
}
# What stands for a fact that is not known.
_OPTIONAL = {"subject": "", "name": "", "bytes_per_s": "", "host": "", "ranks": "an accelerator"}
_LIBRARY = {"torchvision": "torchvision.io", "pillow": "Pillow"}


def action_words(action: Action, *, sample: str = "image") -> str:
    """`use 4 workers`; for a change that gains nothing, the whole sentence. `sample` is what is counted."""
    facts = action.facts
    if action.code == "workers":
        count = facts["workers"]
        return f"use {counted(int(count), 'worker')}" if count else "load in the training process"
    if action.code == "files_in_memory":
        code = "all_in_page_cache" if facts["share"] == 1 else "part_in_page_cache"
        return ACTIONS[code].format(**{name: _shown(name, value) for name, value in facts.items()})
    words = _OPTIONAL | {name: _shown(name, value) for name, value in facts.items()}
    return ACTIONS[action.code].format(**words, sample=sample)


_FORMS = {"subject": " ({})", "name": " ({}, specified)", "host": " on {}", "ranks": "{:.0f} accelerators, each"}


def _shown(name: str, value: float | str) -> str:
    match name:
        case "subject" | "name" | "host" | "ranks":
            return _FORMS[name].format(value)
        case "decoder":
            return _LIBRARY[str(value)]
        case "bytes_per_s":
            return f" ({format_rate(float(value))})"
        case "factor":
            return significant(float(value), 2)
        case "bytes":
            return format_bytes(float(value))
        case "share" | "hits_low" | "hits_high":
            return f"{100 * float(value):.0f}"
        case "images_per_s" | "until_images_per_s":
            return significant(float(value))
    return str(value)


ROUGH = 0.25
"""Half of a forecast's range: most models are within 0.2, and one that is not proved here is wider."""
LIMIT = {name: f"{each.noun} {'are' if name == 'cores' else 'is'} the limit" for name, each in BOTTLENECKS.items()}
"""What limits training after a change."""


_MOST_NAMED = 3
"""Configurations of a change that are named with their rates."""


def advice_words(advice: Sequence[Advice], names: Sequence[str] = ()) -> str:
    """`use 4 workers: 205 → 391 images/s (352 to 430), 1.91x`; for several, by name, or the span of their speed-ups."""
    action = action_words(advice[0].action)
    if not advice[0].is_worth_making:
        return action
    if 1 < len(advice) <= _MOST_NAMED and len(names) == len(advice):
        rates = [
            f"{name} {rate(each.before.value)} → {rate(each.after.value)} ({_range(each)}), "
            f"{significant(each.speedup)}x"
            for name, each in zip(names, advice, strict=True)
        ]
        return f"{action}: images/s of {'; '.join(rates)}{_how(advice)}{_then(advice)}"
    return f"{action}: {forecast_words(advice)}"


def _range(advice: Advice) -> str:
    return f"{rate(advice.after.low)} to {rate(advice.after.high)}"


def _how(advice: Sequence[Advice]) -> str:
    return ", measured" if all(each.how == "measured" for each in advice) else ", estimated"


def _then(advice: Sequence[Advice]) -> str:
    first = advice[0].bottleneck
    same = first is not None and len({each.bottleneck for each in advice}) == 1
    return f"; then {LIMIT[first]}" if first is not None and same else ""


def forecast_words(advice: Sequence[Advice], sample: str = "images") -> str:
    """`205 → 391 images/s (352 to 430), 1.91x; then CPU cores are the limit`; or `1.9x to 2.8x`.

    A model that can say little says so: `205 → about 391 images/s (211 to 530), 1x to 2.6x`.
    """
    first = advice[0]
    tried = _how(advice)
    then = _then(advice)
    if len(advice) > 1:
        ends = [f"{significant(find(each.speedup for each in advice), 2)}x" for find in (min, max)]
        return f"{_doubt(advice)}{' to '.join(dict.fromkeys(ends))}{tried}{then}"
    about, speedup = "", f"{significant(first.speedup)}x"
    if _is_rough(first.after):
        least, most = (significant(end / first.before.value, 2) for end in (first.after.low, first.after.high))
        about, speedup = "about ", f"{least}x to {most}x"
    return (
        f"{_doubt(advice)}{rate(first.before.value)} → {about}{rate(first.after.value)} {sample}/s "
        f"({_range(first)}), {speedup}{tried}{then}"
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
    after = [forecast for forecast in knee.forecasts if knee.workers is None or _count(forecast) > knee.workers]
    reason = next((remark_words(each.refused) for each in after if each.refused), "")
    return knee.workers, knee.how, knee.bottleneck, reason, bool(after)


def _count(forecast: Forecast) -> int:
    """The number of workers that a forecast of a knee is for."""
    return int(forecast.to)

"""The sentences of `tune workers`: which setting to use, what others would change, what limits; the line to paste."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loaderprobe.records.resources import RESOURCE, WAITED
from loaderprobe.records.tune_workers import WITHIN, WorkersReport, WorkersRow, WorkersSetting, WorkersVisit
from loaderprobe.render.wording import percent, rate
from loaderprobe.units import join_words, significant

WAIT_WORDS = {name: RESOURCE[name].wait or RESOURCE[name].noun for name in WAITED}

ENDED = ("budget", "interrupted")
"""Why a search ended that had more to measure."""


def words_of(setting: WorkersSetting) -> str:
    """`4 workers, prefetch factor 2`, or `Serial loader (num_workers=0)`."""
    if not setting.workers:
        return "Serial loader (num_workers=0)"
    return f"{_workers(setting.workers)}, prefetch factor {setting.prefetch_factor}"


def short_name(setting: WorkersSetting) -> str:
    """`4`, or `4 x 8` where the prefetch factor is not 2."""
    return (
        str(setting.workers) if setting.prefetch_factor in (0, 2) else f"{setting.workers} x {setting.prefetch_factor}"
    )


def tuning_line(found: WorkersReport) -> str:
    """`DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4, ...)`, with the loader's other options."""
    tuned = {"num_workers": str(found.chosen.workers)}
    if found.chosen.workers:
        tuned |= {"prefetch_factor": str(found.chosen.prefetch_factor), "persistent_workers": "True"}
    options = found.options if found.chosen.workers else _serial_options(found.options)
    given = ", ".join(f"{name}={value}" for name, value in (options | tuned).items())
    return f"{found.loader_class}(dataset, {given})"


def _serial_options(options: dict[str, str]) -> dict[str, str]:
    """Without what torch refuses, or ignores, where there are no workers."""
    return {name: value for name, value in options.items() if name not in ("timeout", "multiprocessing_context")}


def use_words(found: WorkersReport) -> str:
    """The setting, its rate, and that over the loader as it was given."""
    speed = f"{rate(found.images_per_s.value)} {found.sample}s/s"
    setting = words_of(found.chosen)
    setting = f"{setting[0].lower()}{setting[1:]}"
    use = f"Use {'the ' if not found.chosen.workers else ''}{setting}"
    if found.own == found.chosen:
        return f"Keep your setting, {setting}: {speed}."
    if found.speedup is None or found.own is None:
        return f"{use}: {speed}."
    yours = _yours(found.own, found.chosen)
    if found.speedup.value < 1 / WITHIN:
        return f"{use}: {speed}, as fast as {yours}."
    return f"{use}: {speed}, {significant(found.speedup.value, 2)} times as fast as {yours}."


def _yours(own: WorkersSetting, chosen: WorkersSetting) -> str:
    if not own.workers:
        return "your serial loader"
    if own.workers == chosen.workers:
        return f"with your prefetch factor {own.prefetch_factor}"
    return f"your {_workers(own.workers)}"


def other_words(found: WorkersReport) -> list[str]:
    """What larger and smaller settings would change, as far as that is known."""
    sentences = []
    late = [row.setting.workers for row in found.rows if row.closed in ENDED]
    if found.stop == "interrupted":
        before = f" before {join_words([str(count) for count in late])} workers could be measured" if late else ""
        sentences.append(f"The search was interrupted{before}: this is the best so far.")
    elif late:
        noun = "worker" if late == [1] else "workers"
        sentences.append(
            f"The time was up before {join_words([str(count) for count in late])} {noun} could be measured: a larger "
            "budget decides."
        )
    alike = [row for row in found.rows if row.state == "measured" and _unclear(row, found)]
    if alike:
        sentences.append(_alike(alike, found.chosen))
    if alike and found.stop == "budget" and not late:
        sentences.append("A larger budget narrows that.")
    more = [row for row in found.rows if row.setting.workers > found.chosen.workers]
    failed = [row.setting.workers for row in more if row.state == "failed"]
    if failed:
        sentences.append(f"{_workers(min(failed))} failed: the reason stands below.")
    elif more and not late and not alike:
        sentences.append("More workers would not be faster by more than 2 %.")
    return sentences


def _unclear(row: WorkersRow, found: WorkersReport) -> bool:
    """True where the spread leaves more than 2 % between a setting and the chosen one."""
    over = row.over_chosen
    if over is None or found.stop == "decided" or not (row.paired or found.stop in ENDED):
        return False
    return over.high > 1 / WITHIN if row.setting > found.chosen else over.high >= WITHIN


def _alike(rows: Sequence[WorkersRow], chosen: WorkersSetting) -> str:
    """`Between 2 and 3 workers no difference larger than 5 % was seen.`"""
    settings = sorted([chosen, *(row.setting for row in rows)])
    names = [short_name(each) for each in settings]
    ends = [end for row in rows if row.over_chosen for end in (row.over_chosen.low, row.over_chosen.high)]
    most = max(abs(end - 1) for end in ends)
    how = "so the smallest is chosen" if chosen == settings[0] else "and the middle of the turns decides"
    share = f"{math.ceil(most * 100 - 1e-6)} %"
    return f"Between {join_words(names)} workers no difference larger than {share} was seen, {how}."


def limit_words(found: WorkersReport) -> str:
    """What limits the chosen setting, with its figure; empty where that is not known."""
    visit = chosen_visit(found)
    workers = "workers and training" if found.device else "the workers"
    match found.limit:
        case "compute":
            alone = rate(visit.compute_images_per_s or 0.0)
            return f"Compute is the limit there: without loading, it trains {alone} {found.sample}s/s."
        case "cores":
            used, cores = significant(visit.cores_in_use or 0.0, 2), significant(found.cores_available, 2)
            return f"The CPU cores are the limit there: {workers} keep {used} of {cores} busy."
        case "transport":
            return (
                f"The training thread is the limit there: receiving batches takes {percent(visit.thread_share)} of its "
                "time."
            )
        case "workers":
            return (
                f"{_workers(found.chosen.workers)} are the most that were considered, and the rate may still rise: a "
                "larger limit (--most, or most=) shows it."
            )
        case waited if waited in WAITED:
            return f"There the workers wait {percent(visit.blocked_share)} of their time for {WAIT_WORDS[found.limit]}."
        case _:
            return ""


def chosen_visit(found: WorkersReport) -> WorkersVisit:
    """The first visit of the chosen setting, which measured what limits it."""
    return next(visit for visit in found.visits if visit.setting == found.chosen)


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"

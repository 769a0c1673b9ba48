"""What is true of a public script by the rates found by hand, and whether `loaderprobe run` said so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loaderprobe.stats import mean, median
from scripts.benches.harness import spread

UNSURE = ("either", "inconclusive", "balanced")
CLEAR = 1.15
"""A gain from which on, and a lead over the next, the truth is clear."""
NO_MORE = 1.10
"""One more worker that gains less: the cores are full."""


def gains(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """How many times as fast training gets without each, by hand."""
    middle = {way: median(list(values)) for way, values in rates.items() if values}
    training = middle["training"]
    middle = {"warm": training, "cached": middle["resident"], **middle}
    return {
        "compute": middle["loader"] / training,
        "storage": middle["warm"] / training,
        "preprocessing": middle["cached"] / max(middle["warm"], training),
    }


def truth(rates: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """The causes that are right; none where the truth is not clear."""
    if not all(rates.get(way) for way in ("training", "loader", "resident")):
        return ()
    found = gains(rates)
    first, second, *_ = sorted(found, key=lambda name: -found[name])
    if found[first] < CLEAR or found[first] < CLEAR * found[second]:
        return ()
    if first == "preprocessing":
        more = median(list(rates["more"])) / median(list(rates["training"])) if rates.get("more") else 0.0
        return ("preprocessing", "cpu") if more < NO_MORE else ("preprocessing",)
    return (first,)


def ending(part: Mapping[str, Any]) -> str:
    """In a word, or what is wrong."""
    if part["code"] is None:
        return "hung"
    return f"code {part['code']}" if part["code"] else "processes left" if part["left"] else "clean"


def wrong_of(kept: Mapping[str, Any]) -> list[str]:
    """What is wrong with a row; empty where nothing is."""
    wrong = []
    run, watch, saves = (kept.get(part) or {} for part in ("run", "watch", "saves"))
    causes = truth(kept.get("truth") or {})
    unseen = kept.get("unseen")
    if run and unseen:
        said = " ".join(run["says"])
        if run["found"] or run["left"] or unseen not in said:
            wrong.append(f"run: {said or ending(run)} instead of a word on {unseen}")
    elif run:
        cause = run["found"].get("cause", "no verdict")
        if ending(run) != "clean" or not run["found"]:
            wrong.append(f"run: {ending(run)}, {cause}")
        if causes and cause not in (*causes, *UNSURE):
            wrong.append(f"verdict {cause} instead of {'/'.join(causes)}")
    if watch and same(watch) != "same":
        wrong.append(f"watched: {same(watch)}")
    for said in {each.get("cause") for each in watch.get("with", ())} - {None, *UNSURE, *causes}:
        if causes and not kept.get("light"):
            wrong.append(f"watched: {said} instead of {'/'.join(causes)}")
    if saves and (saves.get("failed") or saves["changed"] or ending(saves) not in ("clean", "code 2")):
        wrong.append("saves: " + (saves.get("failed") or ", ".join(saves["changed"]) or ending(saves)))
    return wrong


def same(watch: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Whether losses, inputs and random state are those of a run that is not watched."""

    def seen(each: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(str(each.get(name)) for name in ("losses", "inputs", "random"))

    usual, found = {seen(each) for each in watch["without"]}, {seen(each) for each in watch["with"]}
    if not all(each.get("losses") and each["code"] == 0 for side in watch.values() for each in side):
        return "failed"
    if len(usual) > 1:
        return "differs by itself"
    return "same" if usual == found else "DIFFERENT"


def cost(watch: Mapping[str, Sequence[Mapping[str, Any]]], part: str) -> str:
    """CPU time of `--watch` a step, over pairs."""
    pairs = list(zip(watch["without"], watch["with"], strict=True))
    apart = [1e6 * (after[part] - before[part]) for before, after in pairs if before and after]
    usual = mean([1e3 * before[part] for before, _ in pairs if before])
    each = spread(apart, 0) if len(apart) > 1 else f"{apart[0]:.0f} in one pair"
    return f"{each} us a step of {usual:.1f} ms"


def table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line a script."""
    head = ("script", "version", "truth by hand", "verdict", "rate", "by hand", "error", "ended", "watched", "saved")
    lines = [head, *(_line(name, kept) for name, kept in rows.items())]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _line(name: str, kept: Mapping[str, Any]) -> tuple[str, ...]:
    if "missing" in kept:
        return (name, kept["missing"], *("",) * 8)
    rates, run, watch, saves = (kept.get(part) or {} for part in ("truth", "run", "watch", "saves"))
    found = run.get("found") or {}
    rate = (found.get("images_per_s") or {}).get("value")
    by_hand = median(list(rates["training"])) if rates.get("training") else None
    return (
        name,
        kept["version"],
        "/".join(truth(rates)) or "not clear" if rates else "",
        found.get("cause", "none") if run else "",
        f"{rate:.3g}" if rate else "",
        f"{by_hand:.3g}" if by_hand else "",
        f"{rate / by_hand - 1:+.0%}" if rate and by_hand else "",
        ending(run) if run else "",
        same(watch) if watch else "",
        _saves(saves),
    )


def _saves(saves: Mapping[str, Any]) -> str:
    if not saves:
        return ""
    if saves.get("failed"):
        return "failed"
    return f"{len(saves['changed'])} of {saves['files']} changed"


def details(name: str, kept: Mapping[str, Any]) -> list[str]:
    """All that was found by hand, and what watching costs."""
    lines, rates, watch = [f"{name}:"], kept.get("truth") or {}, kept.get("watch") or {}
    if rates:
        each_way = (f"{way} {'/'.join(f'{each:.3g}' for each in several)}" for way, several in rates.items())
        lines.append("  images/s: " + ", ".join(each_way))
    if truth(rates):
        lines.append("  times as fast: " + ", ".join(f"{way} {gain:.2f}" for way, gain in gains(rates).items()))
    if kept.get("run") and kept["run"]["found"]:
        lines.append(f"  run: {kept['run']['found']['sentence']}")
    if watch and same(watch) in ("same", "differs by itself"):
        lines += [f"  --watch, {what}: {cost(watch, part)}" for what, part in PARTS.items()]
    return lines


PARTS = {"training process": "own_cpu_s", "workers": "worker_cpu_s"}

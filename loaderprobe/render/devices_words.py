"""Sentences about devices: which is fastest, why another is not, what would help, and why one has no figures."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.devices import (
    LARGER,
    DeviceCause,
    ExperimentName,
    GainName,
    Placement,
    PlacementFailure,
    PlacementVerdict,
    WorkloadVerdict,
)
from loaderprobe.records.verdict import Interval
from loaderprobe.render.wording import percent
from loaderprobe.units import format_duration, join_words, significant

TOO_WIDE = 2.0
"""Where the ends of a range are so many times apart, its middle says nothing."""
DATA_WORDS = {"mnist": "MNIST-like images", "images": "CIFAR-like images", "sine": "sine waves"}
CAUSE_WORDS: dict[DeviceCause, str] = {
    "gradients": "gradient exchange",
    "input": "input",
    "batch": "batch too small",
    "compute": "the device itself",
    "either": "either",
    "inconclusive": "inconclusive",
}
EXPERIMENT_WORDS: dict[ExperimentName, str] = {
    "gradients": "no gradient exchange",
    "input": "resident batch",
    "batch": f"{LARGER}x batch, no exchange",
    "larger": f"{LARGER}x batch",
}
HELP: dict[GainName, str] = {
    "gradients": "exchange gradients less often: add up those of several batches before each step (no_sync of "
    "DistributedDataParallel), or use a larger batch where it is faster. Both change what is learned",
    "batch": f"use a larger batch, if the model still learns as well; {LARGER} times was tried",
    "input": "load batches in workers (num_workers of DataLoader), or keep the samples on the device",
}


def shown_name(placement: Placement) -> str:
    """`cpu`, `2 x cuda`."""
    return placement.device if placement.ranks == 1 else f"{placement.ranks} x {placement.device}"


def subject(placement: Placement) -> str:
    """What trains, within a sentence: `one process on the CPU`, `2 GPUs`."""
    if placement.device == "cuda":
        return "one GPU" if placement.ranks == 1 else f"{placement.ranks} GPUs"
    return "one process on the CPU" if placement.ranks == 1 else f"{placement.ranks} ranks on the CPU"


def answer(verdict: WorkloadVerdict) -> str:
    """Which placement is fastest, what the others take, and why several devices are not faster."""
    model = verdict.workload.model
    first = next((each for each in verdict.placements if each.placement == verdict.fastest), None)
    if first is None:
        return f"{model}: no placement could be measured."
    sentences = [f"{model}: {_fastest(verdict, first)}."]
    # Where several were asked for, the question is why these are not faster.
    asked = [each for each in verdict.placements if each.placement.ranks > 1] or [first]
    for each in verdict.placements:
        if each is not first and each.placement not in verdict.close:
            sentences.append(_slower(each, first))
        if each in asked:
            sentences.append(why(each))
    return " ".join(sentences)


def _fastest(verdict: WorkloadVerdict, first: PlacementVerdict) -> str:
    epoch, named = format_duration(first.epoch_s.value), subject(first.placement)
    if verdict.close:
        names = [named, *map(subject, verdict.close)]
        low, high = first.epoch_s.low, first.epoch_s.high
        if high >= TOO_WIDE * low:
            return (
                f"rounds differ too much to compare {join_words(names)}: epochs of {named} take from "
                f"{format_duration(low)} to {format_duration(high)}. Measure again on an idle machine"
            )
        return f"{join_words(names)} do not differ beyond noise, about {epoch} an epoch"
    if len(verdict.placements) == 1:
        return f"{named} {_verb(first, 'takes')} {epoch} an epoch"
    return f"{named} {_verb(first, 'is')} fastest, {epoch} an epoch"


def _slower(each: PlacementVerdict, first: PlacementVerdict) -> str:
    times = significant(first.epoch_s.value / each.epoch_s.value, 2)
    who, epoch = subject(each.placement), format_duration(each.epoch_s.value)
    shared = " share its cores and" if each.placement.device == "cpu" and each.placement.ranks > 1 else ""
    return f"{who[0].upper()}{who[1:]}{shared} {_verb(each, 'takes')} {epoch}, {times} times as fast."


def _verb(each: PlacementVerdict, of_one: str) -> str:
    """For the number of ranks."""
    return of_one if each.placement.ranks == 1 else {"is": "are", "takes": "take"}[of_one]


def why(each: PlacementVerdict) -> str:
    """Why a placement is not faster, with the figures of its experiments."""
    named = subject(each.placement)
    if each.cause == "gradients":
        share, larger = percent(each.parts.exchange / each.parts.whole), each.gain("larger")
        helps = larger is not None and larger.speedup.low > 1
        also = f" {LARGER} times the batch exchanges less often and is {_factor(each, 'larger')} as fast."
        return (
            f"Exchanging gradients takes {share} of a step; without it an epoch would take "
            f"{_epoch_without(each, 'gradients')}.{also if helps else ''}"
        )
    if each.cause == "input":
        share = percent(each.parts.input / each.parts.whole)
        return f"Input takes {share} of a step; without it an epoch would take {_epoch_without(each, 'input')}."
    if each.cause == "batch":
        faster = _factor(each, "larger") or _factor(each, "batch")
        return f"The batch is too small for {named}: {LARGER} times as large, samples pass {faster} as fast."
    if each.cause == "either":
        tried = [f"{EXPERIMENT_WORDS[name]} {_factor(each, name)}" for name in each.candidates]
        return f"What limits {named} has more than one answer: {join_words(tried)} as fast, alike within noise."
    if each.cause == "compute":
        return f"No experiment makes {named} faster: the device itself is the limit."
    return f"Why {named} {_verb(each, 'is')} not faster is inconclusive: no experiment stands out of the noise."


def _epoch_without(each: PlacementVerdict, name: ExperimentName) -> str:
    gain = each.gain(name)
    return format_duration(each.epoch_s.value / (gain.speedup.value if gain else 1.0))


def _factor(each: PlacementVerdict, name: ExperimentName) -> str:
    gain = each.gain(name)
    return f"{significant(gain.speedup.value, 2)} times" if gain else ""


def cause_words(each: PlacementVerdict) -> str:
    """`gradient exchange`; of `either`, both."""
    if each.cause == "either":
        return join_words([CAUSE_WORDS[name] for name in each.candidates], "or")
    return CAUSE_WORDS[each.cause]


def remedies(verdicts: Sequence[WorkloadVerdict]) -> tuple[tuple[str, str], ...]:
    """(the limit, what would help), once for each cause."""
    causes = {each.cause for verdict in verdicts for each in verdict.placements} | {
        name for verdict in verdicts for each in verdict.placements for name in each.candidates
    }
    return tuple((CAUSE_WORDS[name], f"{words}.") for name, words in HELP.items() if name in causes)


def gain_words(value: Interval) -> str:
    """`1.95 (1.90 to 2.00)`."""
    return f"{significant(value.value)} ({significant(value.low)} to {significant(value.high)})"


def failure_words(failure: PlacementFailure) -> str:
    """Which rank, what happened, how far it was, what to do."""
    rank = "a rank" if failure.rank is None else f"rank {failure.rank}"
    said = {
        "raised": f"{rank} raised {failure.reason}",
        "killed": f"{rank} was killed by {failure.signal}",
        "exited": f"{rank} ended by itself with exit code {failure.exit_code}",
        "hung": f"no rank got any further for {failure.waited_s:g} s"
        + (f"; {rank} is behind the others, which wait for it" if failure.rank is not None else ""),
        "launcher": "the launcher of the ranks failed",
    }[failure.kind]
    done = f" after {failure.segment} of {failure.segments} segments" if failure.segments else " while starting"
    hint = failure.hint or _HINTS.get(failure.kind, "")
    return f"{said},{done}." + (f" {hint[0].upper()}{hint[1:]}." if hint else "")


_HINTS = {
    "killed": "check dmesg for the out-of-memory killer, if it was not you",
    "hung": "raise --timeout if a step takes that long; below is where it is",
}

"""The reason of a verdict in words: one sentence for each configuration, or for several that share verdict and reason.

A figure that several configurations share a sentence about becomes a range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loaderprobe.records.resources import ABLATIONS, RESOURCE, RESOURCES
from loaderprobe.records.verdict import Bound, Judged, ReasonCode
from loaderprobe.render.remarks import because_words
from loaderprobe.render.wording import first_upper, percent
from loaderprobe.units import format_rate, join_words, significant

FREE = {name: f"free {RESOURCE[name].noun}" for name in ABLATIONS}
NOUN = {each.name: each.noun for each in RESOURCES}


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of verdicts that share a sentence; a figure that differs among them is shown as a range."""

    bounds: Sequence[Judged]
    sample: str = "image"
    """What is counted, in the singular."""

    def text(self, name: str) -> str:
        """A fact that is a word, the same in all verdicts; empty where there is none."""
        return str(self.bounds[0].reason.facts.get(name, ""))

    def has(self, name: str) -> bool:
        """True where the verdicts have this fact."""
        return name in self.bounds[0].reason.facts

    def number(self, name: str, shown: Callable[[float], str] | None = None) -> str:
        """`3.12`, or `3.1 to 15` for several verdicts."""
        values = sorted(float(bound.reason.facts[name]) for bound in self.bounds)
        figures = 3 if len(values) == 1 else 2
        ends = [shown(value) if shown else significant(value, figures) for value in (values[0], values[-1])]
        return " to ".join(dict.fromkeys(ends))

    def share(self, name: str) -> str:
        """`15 %`, or `15 to 33 %`."""
        return f"{self.number(name, _percentage)} %"

    def times(self, name: str, how: str) -> str:
        """`3.12 times as fast`, and whether that is estimated."""
        return f"{self.number(name)} times as fast{_ESTIMATED[self.how(how)]}"

    def how(self, name: str) -> str:
        """`measured`, `estimated`, or `both`."""
        found = {str(bound.reason.facts[name]) for bound in self.bounds}
        return found.pop() if len(found) == 1 else "both"

    @property
    def because(self) -> str:
        return because_words(*(bound.reason.facts for bound in self.bounds))

    @property
    def alone(self) -> bool:
        """True where the loader alone is judged, without a step."""
        return self.text("judged") == "loader"

    @property
    def device(self) -> str:
        """What training is compared with; an emulated device always says so."""
        if self.text("device") == "emulated":
            return "the emulated accelerator"
        return f"compute alone{_ESTIMATED['estimated' if self.has('compute_how') else 'measured']}"

    @property
    def runs(self) -> str:
        """`training reaches 15 to 33 % of compute alone`, or the rate where that is not known."""
        if self.alone:
            return f"the loader alone delivers {self.number('images_per_s')} {self.sample}s/s"
        if not self.has("utilization"):
            return f"training runs at {self.number('images_per_s')} {self.sample}s/s"
        return f"training reaches {self.share('utilization')} of {self.device}"


def sentence(bounds: Sequence[Judged], *, sample: str = "image", beside_table: bool = False) -> str:
    """Side, cause and reason of verdicts that share them; `beside_table` leaves out the figures of the table."""
    return f"{heading(bounds[0])}: {_reason(Facts(bounds, sample), beside_table=beside_table)}"


def explanation(bounds: Sequence[Judged], *, sample: str = "image") -> str:
    """The same without side and cause, for where these stand above it."""
    return first_upper(_reason(Facts(bounds, sample)))


def _reason(facts: Facts, *, beside_table: bool = False) -> str:
    disk = [] if beside_table else _beside_storage(facts)
    return " ".join([f"{REASONS[facts.bounds[0].reason.code](facts)}.", *disk, *_beside(facts)])


def kind_of(bound: Bound) -> tuple[object, ...]:
    """Equal for verdicts that can share a sentence: the same words, whatever the figures."""
    facts = sorted(
        (name, value if isinstance(value, str) and not name.endswith("how") else "")
        for name, value in bound.reason.facts.items()
    )
    return bound.side, bound.cause, bound.candidates, bound.reason.code, *facts


def heading(bound: Judged) -> str:
    """`Input-bound by storage`, `Compute-bound`, `Inconclusive`."""
    side = {"input": "Input-bound", "compute": "Compute-bound", "balanced": "Balanced"}.get(bound.side, "Inconclusive")
    if bound.cause == "either":
        names = [NOUN[name] for name in bound.candidates]
        return (
            f"{side} between {join_words(names)}"
            if bound.side == "inconclusive"
            else f"{side} by {join_words(names, 'or')}"
        )
    if bound.cause == "inconclusive":
        return side if bound.side == "inconclusive" else f"{side}, cause inconclusive"
    if bound.cause in (bound.side, "balanced"):
        return side
    if bound.cause == "imbalance":
        host = bound.reason.facts.get("host") if bound.reason.code == "slow_host" else None
        return f"{side} by {f'host {host}' if host else rank_named(bound.reason.facts)}"
    return f"{side} by {NOUN[bound.cause]}"


def rank_named(facts: Mapping[str, float | str]) -> str:
    """`rank 1 (node7)`, or `one rank` where it is not known."""
    if "rank" not in facts:
        return NOUN["imbalance"]
    host = facts.get("host")
    return f"rank {facts['rank']}{f' ({host})' if host else ''}"


_ESTIMATED = {"measured": "", "estimated": " (estimated)", "both": " (partly estimated)"}


def _percentage(share: float) -> str:
    return percent(share).removesuffix(" %")


def _beside(facts: Facts) -> list[str]:
    """What else must be known to read the verdict, each as a sentence."""
    said = []
    if facts.has("waiting_share"):
        subject = f" ({facts.text('subject')})" if facts.has("subject") else ""
        waits = "in such waits" if facts.text("resource") == "wait" else "waiting for it"
        said.append(f"Workers spend {facts.share('waiting_share')} of their time {waits}{subject}.")
    if facts.has("other_images_per_s"):
        slow, other = facts.number("slow_images_per_s"), facts.number("other_images_per_s")
        said.append(f"By itself, a rank there loads {slow} {facts.sample}s/s, the slowest rank elsewhere {other}.")
        said.append(f"{first_upper(facts.runs)}.")
    elif facts.has("slow_images_per_s"):
        slow, middle = facts.number("slow_images_per_s"), facts.number("middle_images_per_s")
        said.append(f"By itself, rank {facts.text('rank')} loads {slow} {facts.sample}s/s, another rank {middle}.")
        said.append(f"{first_upper(facts.runs)}.")
    if facts.has("straggler_speedup"):
        times = facts.number("straggler_speedup")
        said.append(f"Ranks also wait for each other's slow batches: by themselves they load {times} times as fast.")
    if facts.has("copies_from"):
        said.append(f"Most copies come from {facts.text('copies_from')}.")
    if facts.has("files_were"):
        said.append(f"The files were {facts.text('files_were')}, although cold files were asked for.")
    if facts.has("cold_reads_known_by"):
        said.append("This file system counts no bytes: only the workers' waiting shows which reads were cold.")
    return said


def _beside_storage(facts: Facts) -> list[str]:
    if not facts.has("ceiling_share"):
        return []
    rate, at = facts.number("read_bytes_per_s", format_rate), facts.number("concurrency", lambda n: f"{n:.0f}")
    return [f"The storage delivers {rate}: {facts.share('ceiling_share')} of its ceiling at concurrency {at}."]


def _slow_rank(facts: Facts) -> str:
    noun = NOUN[facts.text("resource")] if facts.has("resource") else "input"
    what = "the loader" if facts.alone else "training"
    return f"all wait for its {noun}; with a middle rank's input {what} would be {facts.times('speedup', 'how')}"


def _slow_host(facts: Facts) -> str:
    noun = NOUN[facts.text("resource")] if facts.has("resource") else "input"
    slow, there = facts.text("slow_ranks"), facts.text("host_ranks")
    which = f"all {there}" if slow == there else f"{slow} of the {there}"
    return (
        f"{which} ranks there are slow, and the others wait for their {noun}. With ranks like the slowest elsewhere, "
        f"{'the loader' if facts.alone else 'training'} would be up to {facts.times('speedup', 'how')}"
    )


def _beside_exchange(facts: Facts) -> str:
    device, without = f"{facts.number('compute_speedup')} times", f"{facts.number('gradients_speedup')} times"
    if facts.bounds[0].cause == "gradients":
        return f"without it training would be {without} as fast, with a free device {device}"
    return f"{facts.runs}. A free device would make it {device} as fast, no exchange of gradients {without}"


def _largest_speedup(facts: Facts) -> str:
    resource = facts.text("resource")
    if facts.has("gradients_speedup"):
        return _beside_exchange(facts)
    if resource != "compute":
        if resource not in FREE:
            return f"{facts.runs}. Without this wait it would be {facts.times('speedup', 'how')}"
        it = "it" if not facts.alone else "the loader"
        return f"{facts.runs}; {FREE[resource]} would make {it} {facts.times('speedup', 'how')}"
    if not facts.has("input"):
        times = f"{facts.number('speedup')} times as fast as training"
        return f"{facts.runs}; the loader alone is {times}{_ESTIMATED[facts.how('how')]}"
    device = f"A faster device would make it up to {facts.times('speedup', 'how')}"
    resource = facts.text("input")
    free = FREE.get(resource, f"no wait for {NOUN[resource]}")
    return f"{facts.runs}. {device}, {free} {facts.times('input_speedup', 'input_how')}"


def _all_cores_busy(facts: Facts) -> str:
    busy = "all cores are busy"
    if facts.has("run_delay_share"):
        own, cores = (facts.number(name, "{:.2g}".format) for name in ("own_cores", "cores"))
        waits = f"workers wait {facts.share('run_delay_share')} of their time for a core"
        busy = f"{waits}. All of this uses {own} of {cores}, other processes the rest"
    free = f"free preprocessing would make it {facts.times('speedup', 'how')}"
    return f"{busy}, so more workers do not help. {first_upper(facts.runs)}; {free}"


def _device_idle(facts: Facts) -> str:
    if facts.bounds[0].cause == "copy":
        return f"the device is idle {facts.share('copy_share')} of the time while batches are copied to it"
    if facts.bounds[0].cause == "communication":
        share = facts.share("communication_share")
        return f"the device does nothing but communicate with other GPUs, or wait for them, {share} of the time"
    return (
        "the host issues work late. The device is idle "
        f"{facts.share('launch_share')} of the time for launches and {facts.share('sync_share')} for synchronisation"
    )


def _rounds_disturbed(facts: Facts) -> str:
    rounds = facts.number("rounds", "{:.0f}".format)
    of = "one round, which" if rounds == "1" else f"{rounds} rounds, each of which"
    return f"{_speedup_if(facts)} ({facts.number('speedup')}) is from {of} other processes disturbed"


def _lead_within_spread(facts: Facts) -> str:
    lead, spread = facts.number("lead"), facts.share("spread")
    within = f"the largest speed-up leads by {lead}x, within the spread between rounds ({spread})"
    return f"{within}. If one were free, they are {_factors(facts)}"


def _limit_not_known(facts: Facts) -> str:
    first, second = facts.bounds[0].candidates[:2]
    most, other = facts.number(f"{first}_speedup"), facts.number(f"{second}_speedup")
    gain = f"if {NOUN[first]} were free, it would be {most}x at most (estimated)"
    held = f"{gain}, and 1x if {NOUN[second]} is at its limit, which is not known"
    return f"{held}. If {NOUN[second]} were free, {other}x{_ESTIMATED[facts.how(f'{second}_how')]}"


def _ranges_meet(facts: Facts) -> str:
    first, second = (NOUN[name] for name in facts.bounds[0].candidates[:2])
    least, most = facts.number("least"), facts.number("most")
    between = f"if {first} were free, it may be only {least}x, and if {second} were free as much as {most}x"
    return f"{between}, by the samples of what workers wait for. Their middle values are {_factors(facts)}"


def _slower_without(facts: Facts) -> str:
    what = "the loader" if facts.alone or facts.text("activity") == "loader_only" else "training"
    share = facts.share("rate_share")
    return (
        f"without {NOUN[facts.text('resource')]} {what} ran at {share} of its rate; something else disturbed the rounds"
    )


def _speedups_alike(facts: Facts) -> str:
    return f"the speed-ups if one were free are too close to tell apart. They are {_factors(facts)}"


def _factors(facts: Facts) -> str:
    factors = [
        f"{facts.number(f'{name}_speedup')}x{_ESTIMATED[facts.how(f'{name}_how')]}"
        for name in facts.bounds[0].candidates
    ]
    return join_words(factors)


def _no_speedup(facts: Facts) -> str:
    least = float(facts.bounds[0].reason.facts["least_speedup"])
    return f"{facts.runs}; no free resource would make it {100 * (least - 1):.0f} % faster"


def _of_prediction(facts: Facts) -> str:
    what = "the second measurement of the loader" if facts.alone else "training"
    return f"{what} ran at {facts.share('predicted_share')} of its prediction"


def _speedup_if(facts: Facts) -> str:
    return f"the speed-up if {NOUN[facts.text('resource')]} were free"


REASONS: dict[ReasonCode, Callable[[Facts], str]] = {
    "largest_speedup": _largest_speedup,
    "all_cores_busy": _all_cores_busy,
    "device_idle": _device_idle,
    "slow_rank": _slow_rank,
    "slow_host": _slow_host,
    "speedups_alike": _speedups_alike,
    "no_speedup": _no_speedup,
    "no_complete_round": lambda facts: "no round measured both the loader and training",
    "files_were_warm": lambda facts: facts.because,
    "above_ceiling": lambda facts: (
        f"samples came at {facts.number('samples_bytes_per_s', format_rate)}, but storage delivers "
        f"{facts.number('ceiling_bytes_per_s', format_rate)}. Memory served a part of them"
    ),
    "one_round_does_not_fit": lambda facts: (
        f"{_of_prediction(facts)} in the only round there was time for; a larger --budget gives more rounds"
    ),
    "outside_noise_band": lambda facts: (
        f"{_of_prediction(facts)}, outside the noise band: the model does not fit this run"
    ),
    "rounds_differ": lambda facts: (
        f"training over its prediction differs by {facts.share('spread')} between rounds, too much for a verdict"
    ),
    "ablation_missing": lambda facts: f"{_speedup_if(facts)} is not known. {first_upper(facts.because)}",
    "estimate_not_measured": lambda facts: (
        f"{_speedup_if(facts)} ({facts.number('speedup')}) is only estimated; there was no time to measure it"
    ),
    "estimate_too_small": lambda facts: (
        f"{_speedup_if(facts)} ({facts.number('speedup')}) is only estimated, and too small for a verdict"
    ),
    "within_noise": lambda facts: (
        f"{_speedup_if(facts)} ({facts.number('speedup')}) is within the spread between rounds"
    ),
    "slower_without": _slower_without,
    "interval_too_wide": lambda facts: (
        f"the rate is only known to lie between {facts.number('low_per_s')} and {facts.number('high_per_s')} "
        f"{facts.sample}s/s, too wide for a verdict"
    ),
    "lead_within_spread": _lead_within_spread,
    "limit_not_known": _limit_not_known,
    "ranges_meet": _ranges_meet,
    "cores_shared": lambda facts: (
        f"training keeps {facts.number('own_cores', '{:.2g}'.format)} of {facts.number('cores', '{:.2g}'.format)} "
        "cores busy. Workers may hold up its steps, so compute alone may be faster than it looks from training"
    ),
    "rounds_disturbed": _rounds_disturbed,
}

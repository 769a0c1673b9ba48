"""From two results of one kind to what changed between them: rows matched, judged slower, faster, the same, or unclear.

What one result means does not belong here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Literal, get_args

from loaderprobe.analyze.diagnosis import starts_workers
from loaderprobe.analyze.effects import interval
from loaderprobe.analyze.verdict.rates import segment_rate
from loaderprobe.analyze.verdict.validity import counted, disturbance_notes, pressing_share
from loaderprobe.errors import BadValue, NotComparable
from loaderprobe.records import by_key, thresholds, values
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport
from loaderprobe.records.compare import (
    Compared,
    CompareNote,
    Difference,
    Gate,
    GateName,
    Group,
    ResultKind,
    Subject,
    Unit,
    Word,
    WordReason,
)
from loaderprobe.records.config import OPTIONS, alike_but_for
from loaderprobe.records.environment import Environment, Origin, StorageLocation
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, segments_of
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Interval, SideAndCause
from loaderprobe.stats import Noise, mean, standard_error, student_quantile, student_tails
from loaderprobe.units import format_bytes, join_words

TRIED_ROUNDS = (3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMean:
    """The logarithm of a figure of one side, of how many times as fast B is as A, or of the mean of such ratios."""

    mean: float
    noise: Noise
    """Of the mean, as its rounds or runs show it."""
    of_rounds: float
    """Variance of a single round, of both sides together."""
    drift: float = 0.0
    """Variance between runs, which is known, and so has no degrees of freedom."""

    @property
    def error(self) -> float:
        """The standard error."""
        return math.sqrt(self.noise.variance + self.drift)

    @property
    def freedom(self) -> float:
        return (self.noise + Noise(variance=self.drift, freedom=math.inf)).freedom if self.noise.variance else math.inf

    @property
    def ratio(self) -> Interval:
        """With its 95 % interval."""
        half = self.half()
        return Interval(value=math.exp(self.mean), low=math.exp(self.mean - half), high=math.exp(self.mean + half))

    @property
    def p(self) -> float:
        """The probability of one as large by chance."""
        return student_tails(self.mean / self.error, self.freedom) if self.error else float(self.mean == 0)

    def half(self, alpha: float = thresholds.ALPHA) -> float:
        """Half the interval that holds it with probability 1 - `alpha`."""
        return student_quantile(alpha, self.freedom) * self.error

    def rounds_needed(self, smallest: float, alpha: float) -> int | None:
        """Rounds a side with which an effect of that size would be seen; None where the drift hides it."""
        for rounds in TRIED_ROUNDS:
            noise = Noise(variance=self.of_rounds / rounds, freedom=2 * (rounds - 1))
            if replace(self, noise=noise).half(alpha) <= smallest:
                return rounds
        return None


def weighted(terms: Sequence[tuple[float, LogMean]], *, drift: float) -> LogMean:
    """The sum of independent ones, each times its weight."""
    return LogMean(
        mean=math.fsum(weight * term.mean for weight, term in terms),
        noise=reduce(add, (replace(term.noise, variance=weight**2 * term.noise.variance) for weight, term in terms)),
        of_rounds=math.fsum(weight**2 * term.of_rounds for weight, term in terms),
        drift=drift,
    )


def unpaired(before: LogMean, after: LogMean, *, drift: float) -> LogMean:
    """How many times as fast B is, of two samples (Welch 1947), with the drift between runs."""
    return weighted([(-1, before), (1, after)], drift=drift)


def mean_effect(effects: Sequence[LogMean]) -> LogMean:
    """The geometric mean of the ratios of all rows. Drift is of the runs, so rows do not average it out."""
    share = 1 / len(effects)
    return weighted([(share, effect) for effect in effects], drift=max(effect.drift for effect in effects))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """What one run says of one row."""

    values: tuple[float, ...]
    """Of rounds."""
    figure: Interval
    """Their median, with its 95 % interval; it stands in where the rounds are too few, or show less than it holds."""
    rounds_show_all: bool = True
    """False where the start of workers makes the figure less than the median of the rounds, which do not have it."""
    taken: float | None = None
    """Share of the cores that others, and other machines, took in these rounds; None where that was not read."""
    pressed: float = 0.0
    """The same of rounds in which they left too few idle."""


def sample(readings: Sequence[RunReading]) -> LogMean | None:
    """One side: its runs where there are several, else its rounds, else the interval of its rate; None without one."""
    if len(readings) >= thresholds.ENOUGH_ROUNDS:
        return _of_values([reading.figure.value for reading in readings])
    if too_few_rounds(readings):
        return _of_figures([reading.figure for reading in readings])
    return _of_values([value for reading in readings for value in reading.values])


def too_few_rounds(readings: Sequence[RunReading]) -> bool:
    """True for a side of which neither runs nor rounds show how much they vary: the interval of its rate stands in."""
    if len(readings) < thresholds.ENOUGH_ROUNDS and not all(reading.rounds_show_all for reading in readings):
        return True
    return max(len(readings), sum(len(reading.values) for reading in readings)) < thresholds.ENOUGH_ROUNDS


def _of_values(values: Sequence[float]) -> LogMean | None:
    if min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    return _of_sample(mean(logs), standard_error(logs) ** 2, freedom=len(logs) - 1, count=len(logs))


def _of_figures(figures: Sequence[Interval]) -> LogMean | None:
    if any(not 0 <= figure.low < figure.value < figure.high for figure in figures):
        return None
    factor, count = student_quantile(thresholds.ALPHA, thresholds.OF_SLICES), len(figures)
    # The upper half: the lower one ends at 0.
    errors = [(figure.high - figure.value) / figure.value / factor for figure in figures]
    variance = math.fsum(error**2 for error in errors) / count**2
    logs = [math.log(figure.value) for figure in figures]
    return _of_sample(mean(logs), variance, freedom=thresholds.OF_SLICES * count, count=count)


def _of_sample(mean: float, variance: float, *, freedom: float, count: int) -> LogMean:
    return LogMean(mean=mean, noise=Noise(variance=variance, freedom=freedom), of_rounds=variance * count)


def holm(chances: Sequence[float]) -> list[float]:
    """The probabilities of several tests, adjusted so that a false alarm in any has the chance of one (Holm 1979)."""
    order = sorted(range(len(chances)), key=lambda index: chances[index])
    adjusted, largest = [0.0] * len(chances), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[index]))
        adjusted[index] = largest
    return adjusted


def drift_of(runs: tuple[int, int]) -> float:
    """The variance between runs that is added to a row; 0 where enough runs of each side have that row."""
    return 0.0 if min(runs) >= thresholds.ENOUGH_ROUNDS else (thresholds.REPEAT / thresholds.NORMAL) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRow:
    """One row of one side."""

    subject: Subject
    unit: Unit
    readings: tuple[RunReading, ...]
    """One a run."""
    verdict: SideAndCause | None = None

    @property
    def count(self) -> int:
        return sum(len(reading.values) for reading in self.readings)

    @property
    def taken(self) -> float | None:
        known = [reading.taken for reading in self.readings if reading.taken is not None]
        return mean(known) if known else None

    @property
    def left_idle(self) -> bool:
        """True where others left cores idle in nearly all rounds."""
        return mean([reading.pressed for reading in self.readings]) < thresholds.LIKE_CONDITIONS

    @property
    def figure(self) -> Interval:
        """Of the only run, or over several."""
        if len(self.readings) == 1:
            return self.readings[0].figure
        return interval([reading.figure.value for reading in self.readings])


Pair = tuple[SideRow, SideRow]


def _taken_gap(pair: Pair) -> tuple[bool, float]:
    """By how much others took more of the cores on one side; first, whether that matters."""
    before, after = (side.taken or 0.0 for side in pair)
    return not pair[after > before].left_idle, abs(before - after)


def compare_rows(pairs: Sequence[Pair], *, matters: float) -> tuple[tuple[Compared, ...], Compared | None]:
    """Every pair as a row, and the mean of the rows, of those of a ladder if any.

    `matters` is the size of a change that matters, as a share of the speed of A. A row that fewer runs have than there
    are on its side is compared as what it is: the drift between runs counts, unless its own runs show it.
    """
    effects = [_effect(pair) for pair in pairs]
    steps = [(before.subject.kind, before.subject.name) == ("phase", "files") for before, _ in pairs]
    of_ladder = [effect for effect, is_step in zip(effects, steps, strict=True) if is_step]
    averaged = [effect for effect in of_ladder or effects if effect is not None]
    whole = mean_effect(averaged) if len(averaged) > 1 else None
    known = [effect for effect in (*effects, whole) if effect is not None]
    adjusted = iter(holm([effect.p for effect in known]))
    # The first of Holm's steps: what is seen at that level is seen among any others.
    level = thresholds.ALPHA / max(1, len(known))
    # A logarithm: of 5 %, from 0.95 times to 1 / 0.95 times as fast.
    size = -math.log1p(-matters)
    rows = [
        replace(
            _judged(before.subject, effect, next(adjusted) if effect else None, size, level, (before, after)),
            unit=before.unit,
            before=before.figure,
            after=after.figure,
            rounds=(before.count, after.count),
            verdict_before=before.verdict,
            verdict_after=after.verdict,
        )
        for (before, after), effect in zip(pairs, effects, strict=True)
    ]
    if whole is None:
        return tuple(rows), None
    # No better known than the row whose sides are the least alike.
    return tuple(rows), _judged(Subject(kind="all"), whole, next(adjusted), size, level, max(pairs, key=_taken_gap))


def _effect(pair: Pair) -> LogMean | None:
    before, after = (sample(side.readings) for side in pair)
    drift = drift_of((len(pair[0].readings), len(pair[1].readings)))
    if before is None or after is None or drift + before.noise.variance + after.noise.variance == 0:
        return None
    return unpaired(before, after, drift=drift)


def _judged(
    subject: Subject, effect: LogMean | None, p: float | None, size: float, level: float, beside: Pair
) -> Compared:
    """With its words, and what would have been seen at this level."""
    word, reason = _word(effect, p, size)
    unclear = word == "unclear" and subject.kind != "all"
    compared = Compared(
        subject=subject,
        ratio=effect.ratio if effect else None,
        p=p,
        visible=-math.expm1(-effect.half(level)) if effect else None,
        rounds_needed=effect.rounds_needed(size, level) if effect and unclear else None,
        word=word,
        reason=reason,
        taken=(beside[0].taken, beside[1].taken),
        left_idle=(beside[0].left_idle, beside[1].left_idle),
    )
    # A side that others held up and that is ahead all the same is faster: they made that no larger.
    ahead = {"slower": "A", "faster": "B"}.get(word)
    if word == "unclear" or compared.held_up in (None, ahead):
        return compared
    return replace(compared, word="unclear", reason="others_took")


def _word(effect: LogMean | None, p: float | None, size: float) -> tuple[Word, WordReason]:
    if effect is None or p is None:
        return "unclear", "no_spread"
    change, half = abs(effect.mean), effect.half()
    if change >= size and p <= thresholds.ALPHA:
        return ("faster" if effect.mean > 0 else "slower"), "beyond_noise"
    if change + half <= size:
        return "same", "within_size"
    if change > half:
        return "unclear", "one_of_many" if change >= size else "near_size"
    return "unclear", "too_noisy"


WHOLE = -1
"""Stands for the mean of all rows."""


def judge_gates(
    names: Sequence[GateName], rows: Sequence[Compared], whole: Compared | None, *, matters: float, missing: int,
    kind: ResultKind, allow_unclear: bool = False,
) -> tuple[Gate, ...]:  # fmt: skip
    """Each gate with the rows that fail it. `missing` are rows of A that B lacks: they are unclear.

    A configuration that B lacks may have failed there: that is no speed that holds. Phases may be others. Where a row
    is too noisy to show a loss of `matters`, no speed is seen to hold either, unless `allow_unclear`. One that was
    measured fails whatever others took meanwhile.
    """
    numbered = [*enumerate(rows), *([(WHOLE, whole)] if whole else [])]
    # Such a loss would not have been seen, nor where nothing shows how much a row varies.
    unclear = [row for row in rows if row.word == "unclear"]
    unseen = [row for row in unclear if row.visible is None or row.visible > matters or row.reason == "others_took"]
    gates = []
    for name in names:
        failing = tuple(number for number, row in numbered if _fails(row, name, matters))
        blind = len(unseen) if name == "slower" else 0
        lacking = missing and (name == "unclear" or (name == "slower" and kind == "sweep"))
        holds = not failing and not lacking
        too_noisy = holds and blind > 0 and not allow_unclear
        gates.append(
            Gate(
                name=name, passed=holds and not too_noisy, rows=failing, blind=blind, missing=missing,
                too_noisy=too_noisy,
            )
        )  # fmt: skip
    return tuple(gates)


def _fails(row: Compared, name: GateName, matters: float) -> bool:
    if name == "verdict_changes":
        return row.verdict_changed
    lost = row.reason == "others_took" and row.ratio is not None and row.ratio.value <= 1 - matters
    return row.word == name or (name == "slower" and lost)


GROUPS: dict[str, Group] = {
    "cpu_model": "machine", "cores_available": "machine", "memory_bytes": "machine", "gpus": "machine",
    "loaderprobe": "software", "python": "software", "torch": "software", "torchvision": "software",
    "kernel": "software", "driver": "software",
    "storage": "storage", "data": "data", "files_were": "state",
    "judged": "options", "counted": "options",
    "engine": "options", "drop_caches": "options", "scratch": "options",
}  # fmt: skip
"""The group of each field; options of a configuration are `options`."""
FIELD_WORDS = {"judged": "what was measured", "counted": "what was counted"}
"""What a reader sees instead of a field's name."""
ALL = "all"

Facts = Mapping[str, str | float | None]
"""What a result was made with, by field; None where that is not known."""


def environment_facts(environment: Environment) -> dict[str, str | float | None]:
    """Of a result that has an environment."""
    gpus = environment.gpus
    return {
        **values(environment, "cpu_model", "cores_available"),
        "memory_bytes": float(environment.memory_bytes),
        "gpus": ", ".join(gpu.name for gpu in gpus) or "none",
        **values(environment, "loaderprobe", "python", "torch", "torchvision", "kernel"),
        "driver": ", ".join(dict.fromkeys(gpu.driver or "" for gpu in gpus)) or None,
        "storage": storage_fact(environment.storage),
    }


def storage_fact(locations: Iterable[StorageLocation]) -> str | None:
    """`ext4 on vda`, `nfs4 of server:/export`; None without any."""
    names = (
        f"{location.filesystem} on {', '.join(location.devices)}"
        if location.devices
        else f"{location.filesystem} of {location.source}"
        for location in locations
    )
    return join_words(sorted(set(names))) or None


def differences(before: Facts, after: Facts) -> list[Difference]:
    """The fields that both know and that differ, in the order of `before`."""
    return [
        Difference(field=field, group=GROUPS.get(field, "options"), before=_shown(mine), after=_shown(other))
        for field, mine in before.items()
        if (other := after.get(field)) is not None and mine is not None and not _alike(field, mine, other)
    ]


def _alike(field: str, mine: str | float, other: str | float) -> bool:
    if field == "memory_bytes" and isinstance(mine, float) and isinstance(other, float):
        return abs(mine - other) <= thresholds.SAME_MEMORY * max(mine, other)
    return mine == other


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}" if value < 1e6 else f"{value:.0f}"


def check_names(names: Iterable[str]) -> frozenset[str]:
    """Names of groups, fields and options. Raises BadValue for what is none of them."""
    known = {*get_args(Group), *GROUPS, *OPTIONS, ALL}
    wanted = frozenset(names)
    if unknown := sorted(wanted - known):
        groups = join_words([*get_args(Group), ALL], "or")
        raise BadValue(f"--differ {unknown[0]} names nothing that is compared", hint=f"use {groups}, or a field's name")
    return wanted


def refuse_others(differing: Sequence[Difference], names: frozenset[str]) -> None:
    """Raises NotComparable for fields that were not meant to differ, naming them and the option that allows them."""
    others = [row for row in differing if not {row.field, row.group, ALL} & names]
    if not others:
        return
    said = ", ".join(
        f"{FIELD_WORDS.get(row.field, row.field)} ({row.between[0]}: {row.before}; {row.between[1]}: {row.after})"
        for row in others
    )
    verb = "differ" if len(others) > 1 else "differs"
    options = ",".join(dict.fromkeys((*sorted(names), *(row.group for row in others))))
    raise NotComparable(
        f"A and B are not comparable: {said} {verb}",
        fields=tuple(row.field for row in others),
        hint=f"if that is what you changed, say so: --differ {options}",
    )


def bandwidth_facts(report: BandwidthReport) -> Facts:
    """What the probe ran on, and how."""
    engines = {"ranks" if phase.by_rank else phase.engine for phase in report.phases}
    environment = report.origin.environment
    return {
        **values(environment, "loaderprobe", "kernel", "cores_available"),
        "storage": storage_fact([report.location]),
        "data": f"{report.files_used} files of {format_bytes(report.mean_size_bytes)}",
        "scratch": str(report.scratch),
        "engine": join_words(sorted(engines - {"processes"})) or None,
        "drop_caches": str(report.drop_caches),
        "files_were": join_words(sorted({phase.cache for phase in report.ladder})) or None,
    }


def bandwidth_rows(runs: Sequence[BandwidthMeasurement]) -> dict[Subject, SideRow]:
    """Every phase and operation of a side, of all its runs."""
    by_subject = by_key([pair for run in runs for pair in _rates(run).items()], lambda pair: pair[0])
    return {
        subject: SideRow(
            subject=subject,
            unit="bytes/s" if subject.kind == "phase" else "1/s",
            readings=tuple(RunReading(values=(rate.value,), figure=rate) for _, rate in rates),
        )
        for subject, rates in by_subject.items()
    }


def _rates(run: BandwidthMeasurement) -> dict[Subject, Interval]:
    rates = {
        Subject(kind="phase", name=phase.name, readers=phase.readers): Interval(
            value=phase.bw_bytes, low=phase.bw_low, high=phase.bw_high
        )
        # Of ranks, the steps of the ladder stand for others with as many readers.
        for phase in (*run.phases, *run.ladder)
        # Reads with pauses say how the device treats idle time, not how fast it is.
        if phase.name != "paced" and phase.bw_bytes
    }
    return rates | {
        Subject(kind=phase.operation, readers=phase.readers): Interval(
            value=phase.ops_per_s, low=phase.ops_low, high=phase.ops_high
        )
        for phase in run.metadata
        if phase.metadata != "warm"  # names and inodes from memory say nothing of the storage
    }


def bandwidth_notes(side: Literal["A", "B"], runs: Sequence[BandwidthMeasurement]) -> tuple[CompareNote, ...]:
    """Steps that the probe itself limited: the storage may be faster."""
    limited = sum(phase.at_least for run in runs for phase in run.ladder)
    return (CompareNote(code="probe_limited", side=side, rows=limited),) if limited else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A measured configuration of a run, or a loader by itself."""

    row: ConfigurationRow
    measurement: Measurement
    files: FileSet | None = None
    """None of a loader by itself: which data it has is not known."""

    @property
    def reading(self) -> RunReading:
        """Images/s, or samples/s, of its rounds that count."""
        assert self.row.images_per_s is not None
        measurement = counted(self.measurement)
        segments = segments_of(measurement, measurement.config.mode, measurement.judged)
        shares = [pressing_share(measurement, s.others) + s.others.steal_share for s in segments if s.others]
        notes = disturbance_notes([replace(measurement, segments=tuple(segments))])
        rows = [note.facts for note in notes if "share" in note.facts]
        return RunReading(
            values=tuple(segment_rate(measurement, s) for s in segments),
            figure=self.row.images_per_s,
            rounds_show_all=not starts_workers(self.measurement),
            taken=mean(shares) if shares else None,
            pressed=math.fsum(float(row["share"]) * float(row["segments"]) / float(row["of"]) for row in rows),
        )

    @property
    def subject(self) -> Subject:
        if self.files is None:
            return Subject(kind="training" if self.trains else "loader")
        config = replace(self.row.config, data=self.files.content)
        return Subject(kind="configuration", name=config.key, config=config)

    @property
    def trains(self) -> bool:
        """False for a loader that was judged alone."""
        return self.measurement.judged == "training"


OF_A_SCRIPT = ("loaderprobe run", "loaderprobe.attached")
"""How a command begins that trains by the loop of a script; `diagnose` calls `step(batch)`."""


def loader_facts(measured: MeasuredRow, origin: Origin) -> Facts:
    """What a loader by itself was measured on, what trained, and its options."""
    config, verdict = measured.row.config, measured.row.verdict
    training = f"training by {'the script' if origin.command.startswith(OF_A_SCRIPT) else 'step(batch)'}"
    return {
        **environment_facts(origin.environment),
        **{name: OPTIONS[name].of(config) for name in ("ranks", "workers", "prefetch_factor", "batch_size", "cache")},
        "judged": training if measured.trains else "the loader alone",
        "counted": "images" if measured.measurement.images else "samples",
        "files_were": verdict.files_were if verdict else None,
    }


def side_row(runs: Sequence[MeasuredRow]) -> SideRow:
    """One configuration of a side, or a loader by itself, of all its runs; inconclusive where verdicts differ."""
    verdicts = {run.row.bound.short for run in runs if run.row.bound}
    unknown = SideAndCause(side="inconclusive", cause="inconclusive")
    return SideRow(
        subject=runs[0].subject,
        unit="images/s" if runs[0].measurement.images else "samples/s",
        readings=tuple(run.reading for run in runs),
        verdict=verdicts.pop() if len(verdicts) == 1 else unknown,
    )


BESIDE = ("data", "rounds")
"""Options in which the same configuration may differ: a fingerprint that holds the root, and how often it ran."""

Run = Sequence[MeasuredRow]
Rows = Mapping[Any, SideRow]
"""Of a side, by what makes rows of both sides the same thing."""
Matched = tuple[Rows, Rows, list[Difference], tuple[CompareNote, ...]]
"""(the rows of A, of B, in what those of both differ, notes)"""


def match_sweeps(before: Sequence[Run], after: Sequence[Run], names: frozenset[str]) -> Matched:
    """The configurations of all runs of A and of B; `names` are those of what may differ."""
    configs = [[row.row.config for run in side for row in run] for side in (before, after)]
    values = {
        name: [{option.of(config) for config in side} for side in configs]
        for name, option in OPTIONS.items()
        if name not in BESIDE
    }
    disjoint = [name for name, (mine, other) in values.items() if not mine & other]
    # With the whole group, all options that have other values in B than in A may differ.
    ignored = frozenset((names & set(OPTIONS)) | set(disjoint if names & {"options", ALL} else ()))
    mine, other = (_partners(side, ignored) for side in (before, after))
    common = [(mine[key], other[key]) for key in mine if key in other]
    differ = [name for name, (one, another) in values.items() if one != another]
    named = [name for name in differ if name in ignored]
    if not common:
        # What keeps all of A from having a partner in B.
        others = [name for name in differ if name not in ignored]
        named += [name for name in others if name in disjoint] or others
    options = [{name: join_words(sorted(map(str, values[name][index]))) for name in named} for index in (0, 1)]
    rows = ([row for pair in common for row in pair[index]] for index in (0, 1))
    facts = [
        {**shown, "data": _data(side), "files_were": _states(side)} for shown, side in zip(options, rows, strict=True)
    ]
    of_a, of_b = ({key: side_row(runs) for key, runs in side.items()} for side in (mine, other))
    return of_a, of_b, differences(*facts), _sweep_notes(common)


def _partners(side: Sequence[Run], ignored: frozenset[str]) -> dict[tuple[object, ...], list[MeasuredRow]]:
    """The measured configurations of a side, by what makes them the same; BadValue where a run has two.

    Where a run of the side lacks a configuration, the others speak for it.
    """
    partners: dict[tuple[object, ...], list[MeasuredRow]] = {}
    for run in side:
        for key, (row, *others) in by_key(run, lambda row: alike_but_for(row.row.config, *BESIDE, *ignored)).items():
            if others:
                titles = join_words([alike.row.config.title() for alike in (row, *others)])
                without = join_words(sorted(ignored)) or "their data"
                said = f"configurations of one run are the same without {without}: {titles}"
                raise BadValue(said, hint="let fewer options differ")
            partners.setdefault(key, []).append(row)
    return partners


def _data(side: Sequence[MeasuredRow]) -> str:
    """The file sets, with their fingerprints without the root."""
    sets = {row.files.content: row.files for row in side if row.files}.values()
    words = (
        f"{data.label}: {data.count} files of {format_bytes(data.mean_size_bytes)}, {data.content}" for data in sets
    )
    return join_words(sorted(words))


def _states(side: Sequence[MeasuredRow]) -> str | None:
    states = {row.row.verdict.files_were for row in side if row.row.verdict and row.row.verdict.files_were}
    return join_words(sorted(states)) or None


def _sweep_notes(common: Sequence[tuple[Run, Run]]) -> tuple[CompareNote, ...]:
    """Of each side, the configurations during which other processes read, and those with too few rounds.

    The latter only where the interval of their rates stands in; where there is none, their rows say so.
    """
    read = [[[row.reading for row in side] for side in pair] for pair in common]
    compared = [pair for pair in read if all(map(sample, pair))]
    sides: tuple[tuple[Literal["A", "B"], int], ...] = (("A", 0), ("B", 1))
    notes: list[CompareNote] = []
    for side, index in sides:
        disturbed = sum(any(map(_disturbed, pair[index])) for pair in common)
        few = sum(too_few_rounds(pair[index]) for pair in compared)
        notes.append(CompareNote(code="other_reads", side=side, rows=disturbed))
        notes.append(CompareNote(code="few_rounds", side=side, rows=few))
    return tuple(note for note in notes if note.rows)


def _disturbed(measured: MeasuredRow) -> bool:
    verdict = measured.row.verdict
    if verdict is None or verdict.other_read_bytes_per_s is None:
        return False
    return verdict.other_read_bytes_per_s > thresholds.OTHER_READS * (verdict.disk_read_bytes_per_s or 0.0)

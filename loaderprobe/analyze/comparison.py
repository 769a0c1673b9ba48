"""From two results of one kind to what changed between them: rows matched, judged slower, faster, the same, or unclear.

What one result means does not belong here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from loaderprobe.analyze.effects import interval
from loaderprobe.analyze.verdict.rates import rates_by_round
from loaderprobe.analyze.verdict.validity import counted
from loaderprobe.errors import BadValue, NotComparable
from loaderprobe.records import by_key, values
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
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.thresholds import (
    ALPHA,
    ENOUGH_ROUNDS,
    NORMAL,
    OF_SLICES,
    OTHER_READS,
    REPEAT,
    SAME_MEMORY,
)
from loaderprobe.records.verdict import Interval, SideAndCause
from loaderprobe.stats import mean, standard_error, student_quantile, student_tails
from loaderprobe.units import format_bytes, join_words

TRIED_ROUNDS = (3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """How many times as fast B is as A, of two samples; as a logarithm."""

    log: float
    """The mean."""
    error: float
    """Its standard error."""
    freedom: float
    of_rounds: float
    """Variance of a single round, of both sides together."""
    drift: float
    """Variance between runs."""

    @property
    def ratio(self) -> Interval:
        """With its 95 % interval."""
        half = self.half()
        return Interval(value=math.exp(self.log), low=math.exp(self.log - half), high=math.exp(self.log + half))

    @property
    def p(self) -> float:
        """The probability of one as large by chance."""
        return student_tails(self.log / self.error, self.freedom) if self.error else float(self.log == 0)

    def half(self, alpha: float = ALPHA) -> float:
        """Half the interval of the logarithm that holds it with probability 1 - `alpha`."""
        return student_quantile(alpha, self.freedom) * self.error

    def rounds_needed(self, smallest: float, alpha: float) -> int | None:
        """Rounds a side with which an effect of that size would be seen; None where the drift hides it."""
        for rounds in TRIED_ROUNDS:
            error = math.sqrt(self.of_rounds / rounds + self.drift)
            freedom = 2.0 * (rounds - 1)
            if self.drift:
                freedom = error**4 / ((self.of_rounds / rounds) ** 2 / freedom) if self.of_rounds else math.inf
            if student_quantile(alpha, freedom) * error <= smallest:
                return rounds
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """What one run says of one row."""

    values: tuple[float, ...]
    """Of rounds."""
    figure: Interval
    """Their median, with its 95 % interval; it stands in where the rounds are too few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSample:
    """The logarithm of a figure on one side."""

    mean: float
    variance: float
    """Of the mean."""
    freedom: float
    count: int


def sample(readings: Sequence[RunReading]) -> SideSample | None:
    """One side: its runs where there are several, else its rounds, else the interval of its rate; None without one."""
    if len(readings) >= ENOUGH_ROUNDS:
        return _of_values([reading.figure.value for reading in readings])
    if too_few_rounds(readings):
        return _of_figures([reading.figure for reading in readings])
    return _of_values([value for reading in readings for value in reading.values])


def too_few_rounds(readings: Sequence[RunReading]) -> bool:
    """True for a side of which neither runs nor rounds show how much they vary: the interval of its rate stands in."""
    return max(len(readings), sum(len(reading.values) for reading in readings)) < ENOUGH_ROUNDS


def _of_values(values: Sequence[float]) -> SideSample | None:
    if min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    return SideSample(mean=mean(logs), variance=standard_error(logs) ** 2, freedom=len(logs) - 1, count=len(logs))


def _of_figures(figures: Sequence[Interval]) -> SideSample | None:
    if any(not 0 <= figure.low < figure.value < figure.high for figure in figures):
        return None
    factor = student_quantile(ALPHA, OF_SLICES)
    # The upper half: the lower one ends at 0.
    errors = [(figure.high - figure.value) / figure.value / factor for figure in figures]
    return SideSample(
        mean=mean([math.log(figure.value) for figure in figures]),
        variance=math.fsum(error**2 for error in errors) / len(errors) ** 2,
        freedom=OF_SLICES * len(figures),
        count=len(figures),
    )


def unpaired(before: SideSample, after: SideSample, *, drift: float) -> Unpaired:
    """Welch (1947), with the drift between runs as a variance that is known."""
    variance = before.variance + after.variance
    error = math.sqrt(variance + drift)
    parts = math.fsum(each.variance**2 / each.freedom for each in (before, after))
    return Unpaired(
        log=after.mean - before.mean,
        error=error,
        freedom=error**4 / parts if parts else math.inf,
        of_rounds=before.variance * before.count + after.variance * after.count,
        drift=drift,
    )


def mean_effect(effects: Sequence[Unpaired]) -> Unpaired:
    """The geometric mean of the ratios of all rows. Drift is of the runs, so rows do not average it out."""
    count = len(effects)
    drift = max(effect.drift for effect in effects)
    variances = [(effect.error**2 - effect.drift) / count**2 for effect in effects]
    error = math.sqrt(math.fsum(variances) + drift)
    # Of a row, Welch's freedom belongs to its error with the drift: the drift adds none.
    parts = math.fsum(effect.error**4 / effect.freedom / count**4 for effect in effects)
    return Unpaired(
        log=mean([effect.log for effect in effects]),
        error=error,
        freedom=error**4 / parts if parts else math.inf,
        of_rounds=math.fsum(effect.of_rounds for effect in effects) / count**2,
        drift=drift,
    )


def holm(chances: Sequence[float]) -> list[float]:
    """The probabilities of several tests, adjusted so that a false alarm in any has the chance of one (Holm 1979)."""
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    adjusted, most = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        most = max(most, min(1.0, (len(chances) - rank) * chances[place]))
        adjusted[place] = most
    return adjusted


def drift_of(runs: tuple[int, int]) -> float:
    """The variance between runs that is added to a row; 0 where enough runs of each side have that row."""
    return 0.0 if min(runs) >= ENOUGH_ROUNDS else (REPEAT / NORMAL) ** 2


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
    def figure(self) -> Interval:
        """Of the only run, or over several."""
        if len(self.readings) == 1:
            return self.readings[0].figure
        return interval([reading.figure.value for reading in self.readings])


Pair = tuple[SideRow, SideRow]


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
    level = ALPHA / max(1, len(known))
    # A logarithm: of 5 %, from 0.95 times to 1 / 0.95 times as fast.
    size = -math.log1p(-matters)
    rows = [
        replace(
            _judged(before.subject, effect, next(adjusted) if effect else None, size, level),
            unit=before.unit,
            before=before.figure,
            after=after.figure,
            rounds=(before.count, after.count),
            verdict_before=before.verdict,
            verdict_after=after.verdict,
        )
        for (before, after), effect in zip(pairs, effects, strict=True)
    ]
    return tuple(rows), _judged(Subject(kind="all"), whole, next(adjusted), size, level) if whole else None


def _effect(pair: Pair) -> Unpaired | None:
    before, after = (sample(side.readings) for side in pair)
    drift = drift_of((len(pair[0].readings), len(pair[1].readings)))
    if before is None or after is None or drift + before.variance + after.variance == 0:
        return None
    return unpaired(before, after, drift=drift)


def _judged(subject: Subject, effect: Unpaired | None, p: float | None, size: float, level: float) -> Compared:
    """With its words, and what would have been seen at this level."""
    word, reason = _word(effect, p, size)
    return Compared(
        subject=subject,
        ratio=effect.ratio if effect else None,
        p=p,
        visible=-math.expm1(-effect.half(level)) if effect else None,
        rounds_needed=effect.rounds_needed(size, level)
        if effect and word == "unclear" and subject.kind != "all"
        else None,
        word=word,
        reason=reason,
    )


def _word(effect: Unpaired | None, p: float | None, size: float) -> tuple[Word, WordReason]:
    if effect is None or p is None:
        return "unclear", "no_spread"
    change, half = abs(effect.log), effect.half()
    if change >= size and p <= ALPHA:
        return ("faster" if effect.log > 0 else "slower"), "beyond_noise"
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
    is too noisy to show a loss of `matters`, no speed is seen to hold either, unless `allow_unclear`.
    """
    numbered = [*enumerate(rows), *([(WHOLE, whole)] if whole else [])]
    # Such a loss would not have been seen, nor where nothing shows how much a row varies.
    unseen = [row for row in rows if row.word == "unclear" and (row.visible is None or row.visible > matters)]
    gates = []
    for name in names:
        of_verdicts = name == "verdict_changes"
        failing = tuple(n for n, row in numbered if (row.verdict_changed if of_verdicts else row.word == name))
        blind = len(unseen) if name == "slower" else 0
        lacking = missing and (name == "unclear" or (name == "slower" and kind == "sweep"))
        held = not failing and not lacking
        too_noisy = held and blind > 0 and not allow_unclear
        gates.append(
            Gate(
                name=name, passed=held and not too_noisy, rows=failing, blind=blind, missing=missing,
                too_noisy=too_noisy,
            )
        )  # fmt: skip
    return tuple(gates)


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


def storage_fact(places: Iterable[StorageLocation]) -> str | None:
    """`ext4 on vda`, `nfs4 of server:/export`; None without any."""
    found = (
        f"{location.filesystem} on {', '.join(location.devices)}"
        if location.devices
        else f"{location.filesystem} of {location.source}"
        for location in places
    )
    return join_words(sorted(set(found))) or None


def differences(before: Facts, after: Facts) -> list[Difference]:
    """The fields that both know and that differ, in the order of `before`."""
    return [
        Difference(field=field, group=GROUPS.get(field, "options"), before=_shown(mine), after=_shown(other))
        for field, mine in before.items()
        if (other := after.get(field)) is not None and mine is not None and not _alike(field, mine, other)
    ]


def _alike(field: str, mine: str | float, other: str | float) -> bool:
    if field == "memory_bytes" and isinstance(mine, float) and isinstance(other, float):
        return abs(mine - other) <= SAME_MEMORY * max(mine, other)
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


def refuse_others(found: Sequence[Difference], names: frozenset[str]) -> None:
    """Raises NotComparable for fields that were not meant to differ, naming them and the option that allows them."""
    others = [each for each in found if not {each.field, each.group, ALL} & names]
    if not others:
        return
    said = ", ".join(
        f"{FIELD_WORDS.get(each.field, each.field)} ({each.between[0]}: {each.before}; {each.between[1]}: {each.after})"
        for each in others
    )
    verb = "differ" if len(others) > 1 else "differs"
    options = ",".join(dict.fromkeys((*sorted(names), *(other.group for other in others))))
    raise NotComparable(
        f"A and B are not comparable: {said} {verb}",
        fields=tuple(other.field for other in others),
        hint=f"if that is what you changed, say so: --differ {options}",
    )


def bandwidth_facts(found: BandwidthReport) -> Facts:
    """What the probe ran on, and how."""
    engines = {"ranks" if phase.by_rank else phase.engine for phase in found.phases}
    environment = found.origin.environment
    return {
        **values(environment, "loaderprobe", "kernel", "cores_available"),
        "storage": storage_fact([found.location]),
        "data": f"{found.files_used} files of {format_bytes(found.mean_size_bytes)}",
        "scratch": str(found.scratch),
        "engine": join_words(sorted(engines - {"processes"})) or None,
        "drop_caches": str(found.drop_caches),
        "files_were": join_words(sorted({phase.cache for phase in found.ladder})) or None,
    }


def bandwidth_rows(runs: Sequence[BandwidthMeasurement]) -> dict[Subject, SideRow]:
    """Every phase and operation of a side, of all its runs."""
    found = by_key([each for run in runs for each in _rates(run).items()], lambda each: each[0])
    return {
        subject: SideRow(
            subject=subject,
            unit="bytes/s" if subject.kind == "phase" else "1/s",
            readings=tuple(RunReading(values=(rate.value,), figure=rate) for _, rate in rates),
        )
        for subject, rates in found.items()
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
        Subject(kind=each.operation, readers=each.readers): Interval(
            value=each.ops_per_s, low=each.ops_low, high=each.ops_high
        )
        for each in run.metadata
        if each.metadata != "warm"  # names and inodes from memory say nothing of the storage
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
        found = counted(self.measurement)
        rates = rates_by_round(found, found.config.mode, found.judged)
        return RunReading(values=tuple(rates.values()), figure=self.row.images_per_s)

    @property
    def trains(self) -> bool:
        """False for a loader that was judged alone."""
        return self.measurement.judged == "training"


OF_A_SCRIPT = ("loaderprobe run", "loaderprobe.attached")
"""How a command begins that trains by the loop of a script; `diagnose` calls `step(batch)`."""


def loader_facts(found: MeasuredRow, origin: Origin) -> Facts:
    """What a loader by itself was measured on, what trained, and its options."""
    config, verdict = found.row.config, found.row.verdict
    training = f"training by {'the script' if origin.command.startswith(OF_A_SCRIPT) else 'step(batch)'}"
    return {
        **environment_facts(origin.environment),
        **{name: OPTIONS[name].of(config) for name in ("ranks", "workers", "prefetch_factor", "batch_size", "cache")},
        "judged": training if found.trains else "the loader alone",
        "counted": "images" if found.measurement.images else "samples",
        "files_were": verdict.files_were if verdict else None,
    }


def loader_row(runs: Sequence[MeasuredRow]) -> SideRow:
    """The loader by itself, of all runs of a side."""
    subject = Subject(kind="training" if runs[0].trains else "loader")
    return _side_row(runs, subject, "images/s" if runs[0].measurement.images else "samples/s")


def _side_row(runs: Sequence[MeasuredRow], subject: Subject, unit: Unit) -> SideRow:
    """Inconclusive where the verdicts of the runs do not agree."""
    verdicts = {run.row.bound.short for run in runs if run.row.bound}
    unknown = SideAndCause(side="inconclusive", cause="inconclusive")
    verdict = verdicts.pop() if len(verdicts) == 1 else unknown
    return SideRow(subject=subject, unit=unit, readings=tuple(run.reading for run in runs), verdict=verdict)


BESIDE = ("data", "rounds")
"""Options in which the same configuration may differ: a fingerprint that holds the root, and how often it ran."""

ConfigKey = tuple[object, ...]


Run = Sequence[MeasuredRow]


def option_differences(before: Sequence[Run], after: Sequence[Run], ignored: frozenset[str]) -> list[Difference]:
    """Those of the options to be ignored that differ; and what keeps all of A from having a partner in B, if so."""
    values = _values(before, after)
    differ = [name for name, (mine, other) in values.items() if mine != other]
    names = [name for name in differ if name in ignored]
    if not set(_by_key(before[0], ignored)) & set(_by_key(after[0], ignored)):
        others = [name for name in differ if name not in ignored]
        names += [name for name in others if not values[name][0] & values[name][1]] or others
    shown = {name: [join_words(sorted(map(str, side))) for side in values[name]] for name in names}
    return [Difference(field=name, group="options", before=mine, after=other) for name, (mine, other) in shown.items()]


def ignored_options(before: Sequence[Run], after: Sequence[Run], names: frozenset[str]) -> frozenset[str]:
    """The options that may differ: those named; with the whole group, all that have other values in B than in A."""
    whole = {name for name, (mine, other) in _values(before, after).items() if not mine & other}
    return frozenset((names & set(OPTIONS)) | (whole if names & {"options", ALL} else set()))


def _values(before: Sequence[Run], after: Sequence[Run]) -> dict[str, tuple[set[object], set[object]]]:
    """Of each option that is compared, those on either side."""
    mine, other = ([each.row.config for run in side for each in run] for side in (before, after))
    return {
        name: ({option.of(config) for config in mine}, {option.of(config) for config in other})
        for name, option in OPTIONS.items()
        if name not in BESIDE
    }


def partners(side: Sequence[Run], ignored: frozenset[str]) -> dict[ConfigKey, list[MeasuredRow]]:
    """The measured configurations of all runs of a side, by what makes them the same; BadValue where a run has two."""
    found: dict[ConfigKey, list[MeasuredRow]] = {}
    for run in side:
        for key, each in _by_key(run, ignored).items():
            found.setdefault(key, []).append(each)
    # Where a run of a side lacks a configuration, the others speak for it.
    return found


def _by_key(run: Run, ignored: frozenset[str]) -> dict[ConfigKey, MeasuredRow]:
    keys = [alike_but_for(each.row.config, *BESIDE, *ignored) for each in run]
    if several := [key for key, count in Counter(keys).items() if count > 1]:
        titles = [each.row.config.title() for each, key in zip(run, keys, strict=True) if key == several[0]]
        without = join_words(sorted(ignored)) or "their data"
        said = f"configurations of one run are the same without {without}: {join_words(titles)}"
        raise BadValue(said, hint="let fewer options differ")
    return dict(zip(keys, run, strict=True))


def side_row(found: Sequence[MeasuredRow]) -> SideRow:
    """One configuration of a side, of all its runs."""
    first = found[0]
    config = replace(first.row.config, data=first.files.content) if first.files else first.row.config
    return _side_row(found, Subject(kind="configuration", name=config.key, config=config), "images/s")


def row_differences(common: Mapping[ConfigKey, tuple[list[MeasuredRow], list[MeasuredRow]]]) -> list[Difference]:
    """Other files, and files in another state of the cache, among configurations that are otherwise the same."""
    mine, other = ([each for pair in common.values() for each in pair[place]] for place in (0, 1))
    sets = _sets(mine), _sets(other)
    apart = [label for label in sets[0] if sets[0][label].keys() != sets[1].get(label, {}).keys()]
    before, after = ([_described(side.get(label, {}).values()) for label in apart] for side in sets)
    if before == after:
        before, after = ([_named(side.get(label, {})) for label in apart] for side in sets)
    data = [Difference(field="data", group="data", before="; ".join(before), after="; ".join(after))] if apart else []
    return [*data, *differences({"files_were": _states(mine)}, {"files_were": _states(other)})]


def _sets(side: Sequence[MeasuredRow]) -> dict[str, dict[str, FileSet]]:
    """The file sets by their fingerprint without the root, by label."""
    by_label = by_key([each.files for each in side if each.files], lambda files: files.label)
    return {label: {files.content: files for files in sets} for label, sets in by_label.items()}


def _described(sets: Iterable[FileSet]) -> str:
    return join_words([f"{each.label}: {each.count} files of {format_bytes(each.mean_size_bytes)}" for each in sets])


def _named(sets: Mapping[str, FileSet]) -> str:
    """With the fingerprints, where nothing else sets them apart."""
    return join_words([f"{each.label}: files {key}" for key, each in sets.items()])


def _states(side: Sequence[MeasuredRow]) -> str | None:
    found = {each.row.verdict.files_were for each in side if each.row.verdict and each.row.verdict.files_were}
    return join_words(sorted(found)) or None


def sweep_notes(pairs: Sequence[tuple[Sequence[MeasuredRow], Sequence[MeasuredRow]]]) -> tuple[CompareNote, ...]:
    """Of each side, the configurations during which other processes read, and those with too few rounds.

    The latter only where the interval of their rates stands in; where there is none, their rows say so.
    """
    sides: tuple[tuple[Literal["A", "B"], int], ...] = (("A", 0), ("B", 1))
    read = [[tuple(each.reading for each in side) for side in pair] for pair in pairs]
    compared = [pair for pair in read if all(sample(side) for side in pair)]
    notes = [
        note
        for name, place in sides
        for note in (
            CompareNote(code="other_reads", side=name, rows=sum(any(map(_disturbed, pair[place])) for pair in pairs)),
            CompareNote(code="few_rounds", side=name, rows=sum(too_few_rounds(pair[place]) for pair in compared)),
        )
    ]
    return tuple(note for note in notes if note.rows)


def _disturbed(found: MeasuredRow) -> bool:
    verdict = found.row.verdict
    if verdict is None or verdict.other_read_bytes_per_s is None:
        return False
    return verdict.other_read_bytes_per_s > OTHER_READS * (verdict.disk_read_bytes_per_s or 0.0)

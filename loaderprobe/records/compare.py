"""Two results that hold rates with intervals, compared: what changed beyond noise, and what was too noisy to say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import SCHEMA_VERSION, Environment, Origin
from loaderprobe.records.thresholds import LIKE_CONDITIONS
from loaderprobe.records.verdict import Interval, SideAndCause

ResultKind = Literal["sweep", "bandwidth", "diagnosis"]
Word = Literal["slower", "faster", "same", "unclear"]
WordReason = Literal[
    "beyond_noise", "within_size", "too_noisy", "one_of_many", "near_size", "no_spread", "others_took"
]  # fmt: skip
"""beyond_noise: slower or faster. within_size: the same. Of what is unclear: too_noisy: the interval holds both no
change and one that matters. one_of_many: such a change is expected by chance among so many rows. near_size: there is
a change, but whether it matters is open. no_spread: nothing shows how much a side varies. others_took: other processes
took more of the cores on one side, which may be all of the change, or hide one."""
SubjectKind = Literal["configuration", "phase", "open", "stat", "training", "loader", "all"]
Unit = Literal["images/s", "samples/s", "bytes/s", "1/s", ""]
Group = Literal["machine", "software", "storage", "data", "options", "state"]
GateName = Literal["slower", "unclear", "verdict_changes"]
NoteCode = Literal["other_reads", "few_rounds", "probe_limited"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a row compares."""

    kind: SubjectKind
    name: str = ""
    """Of a configuration, its key without the data's root; of anything else, its name."""
    config: RunConfig | None = None
    """As A has it; `data` is the fingerprint of the files' content, without their root."""
    readers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One row: the same thing in A and in B."""

    subject: Subject
    unit: Unit = ""
    before: Interval | None = None
    """In A; None for the mean of all rows."""
    after: Interval | None = None
    rounds: tuple[int, int] = (0, 0)
    """Rounds of A and of B that the interval comes from."""
    ratio: Interval | None
    """The speed of B over that of A, with its 95 % interval; None where nothing shows how much a side varies."""
    p: float | None
    """The probability of such a ratio by chance alone, adjusted for the number of rows (Holm 1979)."""
    visible: float | None
    """The smallest change that would have been seen among so many rows, as a share of the speed of A."""
    rounds_needed: int | None
    """Rounds a side with which a change that matters would be seen; None where no number of them is enough."""
    word: Word
    reason: WordReason
    verdict_before: SideAndCause | None = None
    verdict_after: SideAndCause | None = None
    taken: tuple[float | None, float | None] = (0.0, 0.0)
    """Share of the cores that other processes and machines took in A and in B; None where that was not read."""
    left_idle: tuple[bool, bool] = (False, False)
    """True of a side where they left cores idle, so that their share does not matter. Earlier results have it as 0."""

    @property
    def held_up(self) -> Literal["A", "B"] | None:
        """The side of which others took clearly more of the cores, and left too few idle."""
        before, after = (share or 0.0 for share in self.taken)
        if abs(before - after) < LIKE_CONDITIONS or self.left_idle[after > before]:
            return None
        return "A" if before > after else "B"

    @property
    def others_matter(self) -> bool:
        """True where others took a good part of the cores of a side, and left too few idle."""
        sides = zip(self.taken, self.left_idle, strict=True)
        return any((share or 0.0) >= LIKE_CONDITIONS and not idle for share, idle in sides)

    @property
    def verdict_changed(self) -> bool:
        """True where both are firm and they differ."""
        before, after = self.verdict_before, self.verdict_after
        return bool(before and after and before.firm and after.firm and before != after)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """A or B: one result, or several of the same thing."""

    paths: tuple[str, ...]
    created_utc: tuple[str, ...]
    command: str
    """Of the first."""
    environment: Environment | None
    """Of the first; None for a bandwidth result, which has no more of it than the differences show."""
    roots: tuple[str, ...]
    """Where the data are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field in which the two sides differ, or two runs of A."""

    field: str
    group: Group
    before: str
    after: str
    between: tuple[str, str] = ("A", "B")
    """Whose values these are: of a side of several runs, which of them, like A1 and A3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What was asked to hold."""

    name: GateName
    passed: bool
    rows: tuple[int, ...]
    """The rows for which it does not hold; -1 is the mean of all."""
    blind: int = 0
    """Rows that were too noisy to show what is asked."""
    too_noisy: bool = False
    """Nothing else fails it, but it cannot see what it was asked to hold, and that was not allowed."""
    missing: int = 0
    """Rows of A that B lacks, or that failed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareNote:
    """Something that weakens the comparison."""

    code: NoteCode
    side: Literal["A", "B"]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """What changed from A to B."""

    origin: Origin
    kind: ResultKind
    matters: float
    """Share of the speed of A: a smaller change does not matter."""
    before: ComparedSide
    after: ComparedSide
    rows: tuple[Compared, ...]
    whole: Compared | None
    """The geometric mean of all rows; None for a single row."""
    only_before: tuple[Subject, ...]
    only_after: tuple[Subject, ...]
    differences: tuple[Difference, ...]
    """All of them were allowed."""
    gates: tuple[Gate, ...]
    allow_unclear: bool = False
    """Gates hold where rows are too noisy to show what is asked."""
    notes: tuple[CompareNote, ...]
    schema: str = "loaderprobe/compare"
    schema_version: int = SCHEMA_VERSION

    @property
    def passed(self) -> bool:
        return all(gate.passed for gate in self.gates)

    @property
    def same_results(self) -> bool:
        """True where both sides are the same results, or copies of them."""
        before, after = (replace(side, paths=()) for side in (self.before, self.after))
        return before == after and all(row.before == row.after for row in self.rows)

    def of_word(self, word: Word) -> tuple[Compared, ...]:
        return tuple(row for row in self.rows if row.word == word)

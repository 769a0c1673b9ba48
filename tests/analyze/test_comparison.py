"""Words of rows, by their interval, the size that matters, and the number of rows; gates; what weakens them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from loaderprobe.analyze.comparison import RunReading, SideRow, compare_rows, judge_gates
from loaderprobe.analyze.effects import interval
from loaderprobe.records.compare import Compared, Subject
from loaderprobe.records.verdict import ShortVerdict

QUIET = (99.0, 100.0, 101.0)
NOISY = (70.0, 100.0, 130.0)
STORAGE = ShortVerdict(side="input", cause="storage")
OPEN = ShortVerdict(side="inconclusive", cause="inconclusive")


def row(values: Sequence[float], *, factor: float = 1.0, verdict: ShortVerdict | None = None) -> SideRow:
    """Of one run, whose values are times `factor`."""
    scaled = tuple(value * factor for value in values)
    reading = RunReading(values=scaled, figure=interval(scaled))
    return SideRow(subject=Subject(kind="configuration"), unit="images/s", readings=(reading,), verdict=verdict)


def judged(*pairs: tuple[SideRow, SideRow]) -> tuple[Compared, ...]:
    return compare_rows(pairs, matters=0.05)[0]


@pytest.mark.parametrize(
    ("values", "factor", "word", "reason"),
    [
        (QUIET, 0.88, "slower", "beyond_noise"),
        (QUIET, 1.15, "faster", "beyond_noise"),
        (QUIET, 1.01, "same", "within_size"),
        (QUIET, 0.962, "unclear", "near_size"),
        (NOISY, 0.88, "unclear", "too_noisy"),
        ((100.0,), 0.88, "unclear", "no_spread"),
    ],
)
def test_a_word_heeds_both_the_noise_and_the_size(
    values: tuple[float, ...], factor: float, word: str, reason: str
) -> None:
    """Slower and faster are proved and matter; the same is proved, too; the rest is unclear, and why."""
    (found,) = judged((row(values), row(values, factor=factor)))
    assert (found.word, found.reason) == (word, reason)
    assert (found.ratio is None) == (reason == "no_spread")
    if found.ratio:
        assert found.ratio.low < found.ratio.value < found.ratio.high
        assert found.ratio.value == pytest.approx(factor, rel=0.01)


def test_among_many_rows_a_chance_change_is_none() -> None:
    """A loss that stands alone as proved is expected by chance in one of 40 rows; the whole is then the same."""
    loss = (row(QUIET), row((91.0, 93.0, 96.0)))
    assert judged(loss)[0].word == "slower"
    rows, whole = compare_rows([loss, *[(row(QUIET), row(QUIET))] * 39], matters=0.05)
    assert (rows[0].word, rows[0].reason) == ("unclear", "one_of_many")
    assert {each.word for each in rows[1:]} == {"same"}
    assert whole is not None and whole.word == "same" and whole.subject.kind == "all"
    assert (rows[0].visible or 0.0) > (judged(loss)[0].visible or 1.0)


def test_only_firm_verdicts_change() -> None:
    """To or from inconclusive, or between two of `either`, is no change."""
    compute = ShortVerdict(side="compute", cause="compute")
    either = ShortVerdict(side="input", cause="either", candidates=("storage", "preprocessing"))
    pairs = [(STORAGE, compute), (STORAGE, OPEN), (either, compute), (STORAGE, STORAGE)]
    rows = judged(*((row(QUIET, verdict=one), row(QUIET, verdict=other)) for one, other in pairs))
    assert [each.verdict_changed for each in rows] == [True, False, False, False]
    (gate,) = judge_gates(["verdict_changes"], rows, None, matters=0.05, missing=0, kind="sweep")
    assert (gate.passed, gate.rows) == (False, (0,))


def test_null_sweeps_rarely_fail_and_planted_losses_mostly_do() -> None:
    """Of 100 sweeps of six rows, five rounds and a spread of 2 %, drifting as runs do: at most 5 null ones fail the
    gate, and at least 90 of those that lost 10 % do. Rows may be too noisy for it."""
    draw = random.Random(11)

    def failed(factor: float) -> bool:
        shift = draw.lognormvariate(0, 0.0153)

        def side(factor: float) -> SideRow:
            return row([100 * factor * draw.lognormvariate(0, 0.02) for _ in range(5)])

        pairs = [(side(1.0), side(shift * factor)) for _ in range(6)]
        rows, whole = compare_rows(pairs, matters=0.05)
        (gate,) = judge_gates(["slower"], rows, whole, matters=0.05, missing=0, kind="sweep", allow_unclear=True)
        return not gate.passed

    assert sum(failed(1.0) for _ in range(100)) <= 5
    assert sum(failed(0.9) for _ in range(100)) >= 90

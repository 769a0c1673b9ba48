"""Is the verdict right? Real loaders on really slow disks, against measured speed-ups; as root.

Three kinds of slow disk are planted and verified, and a warm one beside them; `verdict_blocks` says what is
measured there, `verdict_score` what counts as right. With --keep the raw measurements stay, and --from judges those
again without measuring, so that a change of the rule shows in seconds. Ends with code 1 when a firm word was wrong,
under 85 % of the clear rows got the right firm word, or the mean regret is over 0.5 %.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path

from loaderprobe.records.measurement import Measurement
from loaderprobe.stats import mean
from loaderprobe.store.codec import decode
from scripts.benches.harness import (
    LATENCY_S,
    Plant,
    Progress,
    child,
    parser_of_kept,
    photographs,
    planted,
    ran,
    raw_results,
)
from scripts.benches.verdict_blocks import BLOCKS, Block, measure_block
from scripts.benches.verdict_score import RESOURCES, Row, judged, outcome, regret

IMAGES = 512
CHILD_LIMIT_S = 600
RIGHT_AT_LEAST = 0.85
REGRET_AT_MOST = 0.005
WORDS = (*RESOURCES, "balanced")


def disk_of(undo: ExitStack, kind: str, mb_per_s: float, source: Path, scratch: Path) -> Plant | None:
    """The photographs on such a disk; None where none can be planted."""
    if kind == "warm":
        return Plant(folder=source)
    name, limit = (f"{kind} {mb_per_s:g} MB/s", mb_per_s * 1e6) if mb_per_s else (f"{kind} 10 ms", LATENCY_S)
    fill = partial(shutil.copytree, source, dirs_exist_ok=True)
    return planted(undo, name, kind, limit, fill=fill, scratch=scratch, keep_cache=True)


def measure(blocks: Sequence[Block], out: Path, truth_rounds: int) -> bool:
    """Plant each disk in turn, and measure its blocks there, each in a process of its own; True when none failed."""
    progress, complete = Progress(len(blocks)), True
    with tempfile.TemporaryDirectory(prefix="loaderprobe-verdict-") as scratch:
        source = Path(scratch, "photographs")
        for resolution in sorted({block.resolution for block in blocks}):
            photographs(source, resolution, IMAGES)
        for (kind, mb_per_s), group in groupby(blocks, key=lambda block: (block.disk, block.mb_per_s)):
            with ExitStack() as undo:
                place = disk_of(undo, kind, mb_per_s, source, Path(scratch))
                if place is None:
                    continue
                for block in group:
                    own = ("--rounds", truth_rounds, "--child", block.name, place.folder / block.resolution, out)
                    complete &= ran(place.command(child("verdict", *own)), block.name, CHILD_LIMIT_S)
                    progress.done(block.name)
    return complete


def stored(folder: Path, only: str) -> list[Row]:
    """The rows of all measurements in a folder, judged now."""
    rows = []
    for own in sorted(folder.glob("*.verdict.json")):
        name = own.name.removesuffix(".verdict.json")
        if only not in name:
            continue
        pair = (own, own.with_name(f"{name}.truth.json"))
        rows.append(judged(name, *(decode("measurement", p.read_bytes(), Measurement, str(p)) for p in pair)))
    return rows


def show_row(row: Row) -> str:
    speedups = "  ".join(
        f"{name} {row.truth.speedups[name]:.2f}±{2 * row.truth.errors[name]:.2f}" for name in RESOURCES
    )
    own = [(name, getattr(row.verdict.speedups, name)) for name in RESOURCES]
    found = "  ".join(
        f"{name} {speedup.value:.2f} [{speedup.low:.2f}, {speedup.high:.2f}]" for name, speedup in own if speedup
    )
    bound = row.verdict.bound
    said = f"{bound.cause} {' or '.join(bound.candidates)}".strip()
    prediction_error = "-" if row.verdict.prediction_error is None else f"{row.verdict.prediction_error:+.2f}"
    return (
        f"{row.name}: truth {row.truth.word}{'' if row.truth.clear else ' (ambiguous)'}, said {said}, "
        f"regret {regret(row.truth, row.said['verdict']):.3f}\n"
        f"    truth   {row.truth.images_per_s:6.1f} images/s  {speedups}  {row.truth.trouble}\n"
        f"    verdict {row.verdict.images_per_s.value:6.1f} images/s  {found}  prediction_error {prediction_error}, "
        f"{row.rounds} rounds\n    {bound.reason.code} {bound.reason.facts}"
    )


def confusion(rows: Sequence[Row]) -> None:
    counts = Counter((_truth(row), _said(row)) for row in rows)
    columns = (*WORDS, "cpu", "either", "inconclusive")
    print(f"{'truth':12}" + "".join(f"{'said ' * (c == columns[0]) + c:>13}" for c in columns))
    for truth in (*WORDS, "ambiguous"):
        print(f"{truth:12}" + "".join(f"{counts[truth, column] or '.':>13}" for column in columns))


def _truth(row: Row) -> str:
    return row.truth.word if row.truth.clear else "ambiguous"


def _said(row: Row) -> str:
    return row.verdict.bound.cause


def regrets(rows: Sequence[Row], rule: str) -> list[float]:
    return [regret(row.truth, row.said[rule]) for row in rows]


def compare(rows: Sequence[Row]) -> None:
    """One line for each rule, on the same rows."""
    clear = [row for row in rows if row.truth.clear]
    print(
        f"{'':14}{'firm-right':>12}{'firm-wrong':>12}{'either':>8}{'inconclusive':>13}{'mean regret':>13}{'largest':>9}"
        f"{'mean of all rows':>18}"
    )
    for rule in rows[0].said:
        found = Counter(outcome(row.truth, row.said[rule]) for row in clear)
        lost = regrets(clear, rule) or [0.0]
        print(
            f"{rule:14}{found['right']:>6} of {len(clear):2}{found['wrong']:>12}{found['either']:>8}"
            f"{found['inconclusive']:>13}{mean(lost):>13.2%}{max(lost):>9.1%}{mean(regrets(rows, rule)):>18.2%}"
        )


def report(rows: Sequence[Row], everything: bool) -> bool:
    """Print it all; True when the verdict is as good as it has to be."""
    outcomes = {row.name: outcome(row.truth, row.said["verdict"]) for row in rows}
    for row in rows:
        if everything or outcomes[row.name] in ("wrong", "inconclusive", "either") or not row.said["verdict"]:
            print(f"{outcomes[row.name].upper()}: {show_row(row)}")
    found = Counter(outcomes.values())
    clear = [row for row in rows if row.truth.clear]
    print(
        f"\n{len(rows)} rows, {len(clear)} clear; a verdict took {mean([row.rounds for row in rows]):.1f} rounds and "
        f"{mean([row.seconds for row in rows]):.1f} s of timed segments\n"
    )
    confusion(rows)
    print()
    compare(rows)
    firm_right = found["right"] >= RIGHT_AT_LEAST * len(clear)
    return firm_right and not found["wrong"] and mean(regrets(clear, "verdict") or [0.0]) <= REGRET_AT_MOST


def options() -> argparse.Namespace:
    found = parser_of_kept(__doc__)
    found.add_argument("--only", default="", help="blocks whose name contains this: n0, n2, heavy, 500x375 ...")
    found.add_argument("--rounds", type=int, default=3, help="of the truth")
    found.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return found.parse_args()


def main() -> int:
    chosen = options()
    if chosen.child:
        name, folder, out = chosen.child
        block = next(block for block in BLOCKS if block.name == name)
        measure_block(block, Path(folder), Path(out), chosen.rounds)
        return 0
    blocks = [block for block in BLOCKS if chosen.only in block.name]
    with raw_results(chosen, lambda out: measure(blocks, out, chosen.rounds)) as (source, complete):
        rows = stored(source, chosen.only)
        if not rows:
            print("nothing was measured")
        return 0 if rows and report(rows, chosen.all) and complete else 1


if __name__ == "__main__":
    sys.exit(main())

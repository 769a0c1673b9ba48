"""Is the verdict right? Real loaders on really slow disks, against measured speed-ups; as root.

Three kinds of slow disk are planted and verified, and a warm one beside them; `verdict_blocks` says what is
measured there, `verdict_score` what counts as right. With --keep the raw measurements stay, and --from judges those
again without measuring, so that a change of the rule shows in seconds; --said lists the words that it changes.
Ends with code 1 when a firm word was wrong, under 85 % of the clear rows got the right firm word, or the mean regret
is over 0.5 %.

With --noise each block is measured several times beside a neighbour that comes and goes (`neighbours`), and that is
paused while the truth is measured, in the first of these. Then 70 % of the clear rows are enough, and regret does not
count. Three times take some 5 minutes a block.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby, product
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
from scripts.benches.neighbours import KINDS, neighbour
from scripts.benches.verdict_blocks import BLOCKS, Block, measure_block
from scripts.benches.verdict_score import RESOURCES, Row, judged, outcome, regret

IMAGES = 512
CHILD_LIMIT_S = 600
RIGHT_AT_LEAST, RIGHT_BESIDE_NOISE = 0.85, 0.7
REPEATS_BESIDE_NOISE = 3
REGRET_AT_MOST = 0.005
WORDS = (*RESOURCES, "balanced")


def disk_of(undo: ExitStack, kind: str, mb_per_s: float, source: Path, scratch: Path) -> Plant | None:
    """The photographs on such a disk; None where none can be planted."""
    if kind == "warm":
        return Plant(folder=source)
    name, limit = (f"{kind} {mb_per_s:g} MB/s", mb_per_s * 1e6) if mb_per_s else (f"{kind} 10 ms", LATENCY_S)
    fill = partial(shutil.copytree, source, dirs_exist_ok=True)
    return planted(undo, name, kind, limit, fill=fill, scratch=scratch, keep_cache=True)


def measure(blocks: Sequence[Block], out: Path, truth_rounds: int, repeats: int, kinds: Sequence[str]) -> bool:
    """Plant each disk in turn, and measure its blocks there, each in a process of its own; True when none failed.

    Each is measured so often, beside neighbours of these kinds if there are any; the truth only the first time.
    """
    progress, complete = Progress(len(blocks) * repeats), True
    with tempfile.TemporaryDirectory(prefix="loaderprobe-verdict-") as scratch:
        source = Path(scratch, "photographs")
        for resolution in sorted({block.resolution for block in blocks}):
            photographs(source, resolution, IMAGES)
        for (kind, mb_per_s), group in groupby(blocks, key=lambda block: (block.disk, block.mb_per_s)):
            with ExitStack() as undo:
                place = disk_of(undo, kind, mb_per_s, source, Path(scratch))
                if place is None:
                    continue
                for block, repeat in product(group, range(repeats)):
                    suffix = f"-{repeat}" if repeats > 1 else ""
                    folder = place.folder / block.resolution
                    with ExitStack() as beside:
                        seed = f"{block.name}{suffix}"
                        pid = beside.enter_context(neighbour(place, folder, seed, kinds)) if kinds else 0
                        own = (
                            "--rounds",
                            0 if repeat else truth_rounds,
                            "--child",
                            block.name,
                            folder,
                            out,
                            pid,
                            suffix,
                        )
                        complete &= ran(place.command(child("verdict", *own)), block.name, CHILD_LIMIT_S)
                    progress.done(block.name + suffix)
    return complete


def stored(folder: Path, only: str) -> list[Row]:
    """The rows of all measurements in a folder, judged now."""
    rows = []
    for own in sorted(folder.glob("*.verdict.json")):
        name = own.name.removesuffix(".verdict.json")
        if not any(part in name for part in only.split(",")):
            continue
        truth = own.with_name(f"{name}.truth.json")
        # Measured the first time only.
        truth = truth if truth.exists() else own.with_name(f"{name.rpartition('-')[0]}-0.truth.json")
        pair = (own, truth)
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


def changed(rows: Sequence[Row], file: Path) -> None:
    """Keep the words said in this file; or, where it is there, list those that are others now, and leave it."""
    said = {
        row.name: {"words": row.said["verdict"], "outcome": outcome(row.truth, row.said["verdict"])} for row in rows
    }
    now = json.loads(json.dumps(said))
    if not file.exists():
        file.write_text(json.dumps(said, indent=1))
        print(f"\nthe words of {len(said)} rows are in {file}")
        return
    before = json.loads(file.read_text())
    both = [name for name in now if name in before]
    others = [name for name in both if now[name]["words"] != before[name]["words"]]
    print(f"\n{len(others)} of {len(both)} words are others than in {file}")
    for name in others:
        old, new = (
            f"{' or '.join(each[name]['words']) or 'inconclusive'} ({each[name]['outcome']})" for each in (before, now)
        )
        print(f"    {name}: {old} -> {new}")


def report(rows: Sequence[Row], everything: bool, noise: bool) -> bool:
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
    firm_right = found["right"] >= (RIGHT_BESIDE_NOISE if noise else RIGHT_AT_LEAST) * len(clear)
    cheap = noise or mean(regrets(clear, "verdict") or [0.0]) <= REGRET_AT_MOST
    share = found["right"] / len(clear) if clear else 0.0
    print(f"\n{share:.0%} of clear rows firm-right, {found['wrong']} firm-wrong")
    return firm_right and not found["wrong"] and cheap


def options() -> argparse.Namespace:
    found = parser_of_kept(__doc__)
    found.add_argument("--only", default="", help="blocks whose name contains this, or one of these: n0,heavy,500x375")
    found.add_argument("--rounds", type=int, default=3, help="of the truth")
    found.add_argument("--noise", action="store_true", help="beside neighbours that come and go")
    found.add_argument("--neighbours", default=",".join(KINDS), help="which; without this: %(default)s")
    found.add_argument("--repeats", type=int, help="of each block; 3 beside neighbours, else 1")
    found.add_argument("--said", type=Path, help="keep the words in this file, or list what differs from those in it")
    found.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    return found.parse_args()


def main() -> int:
    chosen = options()
    if chosen.child:
        name, folder, out, pid, suffix = chosen.child
        block = next(block for block in BLOCKS if block.name == name)
        measure_block(block, Path(folder), Path(out), chosen.rounds, int(pid), suffix)
        return 0
    blocks = [block for block in BLOCKS if any(part in block.name for part in chosen.only.split(","))]
    repeats = chosen.repeats or (REPEATS_BESIDE_NOISE if chosen.noise else 1)
    kinds = chosen.neighbours.split(",") if chosen.noise else []

    def measured(out: Path) -> bool:
        return measure(blocks, out, chosen.rounds, repeats, kinds)

    with raw_results(chosen, measured) as (source, complete):
        rows = stored(source, chosen.only)
        if not rows:
            print("nothing was measured")
        good = bool(rows) and report(rows, chosen.all, chosen.noise)
        if chosen.said and rows:
            changed(rows, chosen.said)
        return 0 if good and complete else 1


if __name__ == "__main__":
    sys.exit(main())

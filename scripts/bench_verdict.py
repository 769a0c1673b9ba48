"""Is the verdict right? Real loaders on really slow disks, judged, and held against gains that were performed.

Three kinds of slow disk are planted and verified, and a warm one beside them; `verdict_blocks` says what is
measured there, `verdict_score` what counts as right. With --keep the raw measurements stay, and --from judges those
again without measuring, so that a change of the rule shows in seconds. Ends with code 1 when a firm word was wrong,
under 85 % of the clear rows got the right firm word, or the mean regret is over 0.5 %.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from loaderprobe.datasets.generate import generate
from loaderprobe.datasets.request import SetRequest
from loaderprobe.records.measurement import Measurement
from loaderprobe.stats import mean
from loaderprobe.store.codec import decode
from loaderprobe.system.cpu import cores_available
from loaderprobe.testing.slow_disk import CannotPlant, slow_disk
from loaderprobe.units import parse_resolution
from scripts.verdict_blocks import BLOCKS, Block, measure_block
from scripts.verdict_score import RESOURCES, Row, judged, outcome, regret

IMAGES = 512
LATENCY_S = 0.010
CHILD_LIMIT_S = 600
RIGHT_AT_LEAST = 0.85
REGRET_AT_MOST = 0.005
WORDS = (*RESOURCES, "balanced")


Wrap = Callable[[Sequence[str]], list[str]]


@contextmanager
def planted(kind: str, mb_per_s: float, photographs: Path, scratch: Path) -> Iterator[tuple[Path, Wrap]]:
    """A folder with the photographs on such a disk, and what wraps a command so that it meets the disk's limit."""
    if kind == "warm":
        yield photographs, list
        return
    fill = partial(shutil.copytree, photographs, dirs_exist_ok=True)
    limit = {"latency_s": LATENCY_S} if kind == "latency" else {"bytes_per_s": mb_per_s * 1e6}
    with slow_disk(kind=kind, fill=fill, scratch=scratch, keep_cache=True, **limit) as disk:  # type: ignore[arg-type]
        print(f"{kind} {f'{mb_per_s:g} MB/s' if mb_per_s else '10 ms'}: {disk.how}", flush=True)
        yield disk.folder, disk.command


def measure(blocks: Sequence[Block], out: Path, truth_rounds: int) -> bool:
    """Plant each disk in turn, and measure its blocks there, each in a process of its own; True when none failed."""
    progress = Progress(len(blocks))
    with tempfile.TemporaryDirectory(prefix="loaderprobe-verdict-") as scratch:
        photographs = Path(scratch, "photographs")
        for resolution in sorted({block.resolution for block in blocks}):
            request = SetRequest(resolution=parse_resolution(resolution), classes=4)
            generate(photographs, request, count=IMAGES, processes=2, progress=lambda *_: None)
        for (kind, mb_per_s), group in groupby(blocks, key=lambda block: (block.disk, block.mb_per_s)):
            try:
                with planted(kind, mb_per_s, photographs, Path(scratch)) as (folder, wrap):
                    for block in group:
                        child = [sys.executable, __file__, "--rounds", str(truth_rounds), "--child", block.name]
                        command = wrap([*child, str(folder / block.resolution), str(out)])
                        progress.ran(block, subprocess.run(command, check=False, timeout=CHILD_LIMIT_S).returncode)
            except CannotPlant as error:
                print(f"{kind}: left out: {error}")
    return progress.none_failed


class Progress:
    """Says on standard error how far it is."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._done = 0
        self.none_failed = True
        self._begin_s = self._last_s = time.monotonic()

    def ran(self, block: Block, code: int) -> None:
        now_s = time.monotonic()
        self._done += 1
        took = f"{now_s - self._last_s:.0f} s, {(now_s - self._begin_s) / 60:.1f} min in all"
        print(f"{self._done} of {self._blocks}: {block.name}, {took}", file=sys.stderr, flush=True)
        if code:
            self.none_failed = False
            print(f"{block.name}: left out: its process failed with code {code}")
        self._last_s = now_s


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
    gains = "  ".join(f"{name} {row.truth.gains[name]:.2f}±{2 * row.truth.errors[name]:.2f}" for name in RESOURCES)
    own = [(name, getattr(row.verdict.gains, name)) for name in RESOURCES]
    found = "  ".join(f"{name} {gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}]" for name, gain in own if gain)
    bound = row.verdict.bound
    said = f"{bound.cause} {' or '.join(bound.candidates)}".strip()
    prediction_error = "-" if row.verdict.prediction_error is None else f"{row.verdict.prediction_error:+.2f}"
    return (
        f"{row.name}: truth {row.truth.word}{'' if row.truth.clear else ' (ambiguous)'}, said {said}, "
        f"regret {regret(row.truth, row.said['verdict']):.3f}\n"
        f"    truth   {row.truth.images_per_s:6.1f} images/s  {gains}  {row.truth.trouble}\n"
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
        f"{'':14}{'firm-right':>12}{'firm-wrong':>12}{'either':>8}{'undecided':>11}{'mean regret':>13}{'largest':>9}"
        f"{'mean of all rows':>18}"
    )
    for rule in rows[0].said:
        found = Counter(outcome(row.truth, row.said[rule]) for row in clear)
        lost = regrets(clear, rule) or [0.0]
        print(
            f"{rule:14}{found['right']:>6} of {len(clear):2}{found['wrong']:>12}{found['either']:>8}"
            f"{found['undecided']:>11}{mean(lost):>13.2%}{max(lost):>9.1%}{mean(regrets(rows, rule)):>18.2%}"
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="blocks whose name contains this: serial, n2, heavy, 500x375 ...")
    parser.add_argument("--rounds", type=int, default=3, help="of the truth")
    parser.add_argument("--keep", type=Path, help="keep the raw measurements in this folder")
    parser.add_argument("--from", dest="source", type=Path, help="judge what was kept there, and measure nothing")
    parser.add_argument("--all", action="store_true", help="show every row, not only those that are not right")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    chosen = options()
    if chosen.child:
        name, folder, out = chosen.child
        block = next(block for block in BLOCKS if block.name == name)
        measure_block(block, Path(folder), Path(out), chosen.rounds)
        return 0
    # As Ctrl-C does: unwinding takes away disks and folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="loaderprobe-verdict-raw-") as scratch:
        source, complete = chosen.source or chosen.keep or Path(scratch), True
        if not chosen.source:
            source.mkdir(parents=True, exist_ok=True)
            begin_s = time.monotonic()
            complete = measure([block for block in BLOCKS if chosen.only in block.name], source, chosen.rounds)
            print(f"{cores_available():g} cores, {(time.monotonic() - begin_s) / 60:.1f} minutes")
        rows = stored(source, chosen.only)
        if not rows:
            print("nothing was measured")
        return 0 if rows and report(rows, chosen.all) and complete else 1


if __name__ == "__main__":
    sys.exit(main())

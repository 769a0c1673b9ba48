"""What benches share: photographs, planted disks, children, raw results, runs in turn, spreads, options.

`scripts/bench` runs a bench from the repository root; its children inherit that folder.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import loaderprobe
from loaderprobe.datasets.generate.generate import generate, set_asked_for
from loaderprobe.records.measurement import Measurement
from loaderprobe.stats import half_width, mean, quantile
from loaderprobe.system.limits import cores_available
from loaderprobe.units import parse_resolution
from tests.planted.slow_disk import CannotPlant, SlowDisk, slow_disk

LATENCY_S = 0.010
"""Of each request to a latency disk."""

T = TypeVar("T")


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Options of one bench; its docstring is the description."""
    name = Path(sys.argv[0]).stem
    return argparse.ArgumentParser(
        prog=f"scripts/bench {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def parser_of_kept(doc: str | None) -> argparse.ArgumentParser:
    """With the options of a bench that keeps raw results, for `raw_results`."""
    options = parser(doc)
    options.add_argument("--keep", type=Path, help="keep the raw results in this folder")
    options.add_argument("--from", dest="source", type=Path, help="judge what was kept there, and measure nothing")
    options.add_argument("--all", action="store_true", help="show all of every row")
    return options


def photographs(root: Path, resolution: str, count: int, layout: str = "files", **options: Any) -> Path:
    """A generated set, as `sweep` makes it, in a folder of `root` that is named after the resolution and the layout.

    `options` are those of `set_asked_for`.
    """
    spec = set_asked_for(parse_resolution(resolution), layout=layout, **options)
    return generate(root, spec, count=count, processes=2, progress=lambda *_: None)


def device_number(folder: Path) -> str:
    """Of the device under a folder, as /sys writes it."""
    device = folder.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def device_reads(folder: Path) -> tuple[int, int]:
    """(Read requests, bytes) that the device under a folder has served, by its own counters, for all processes."""
    fields = Path(f"/sys/dev/block/{device_number(folder)}/stat").read_text().split()
    return int(fields[0]), int(fields[2]) * 512


def photographs_in(folder: Path) -> list[Path]:
    """Those of all classes, by name."""
    return sorted(folder.rglob("*.JPEG"))


def own_disk(folder: Path) -> SlowDisk:
    """A folder on this machine's own storage, which has no limit."""
    return SlowDisk(folder=folder, how="own", members=None)


def planted(
    undo: ExitStack, name: str, kind: str, limit: float, *, fill: Path | Callable[[Path], None], **options: Any
) -> SlowDisk | None:
    """A slow disk that lasts as long as `undo`; None where none can be planted, and the reason is printed.

    `limit` is in bytes/s, in s a request for a latency disk, in requests/s for one of requests; `fill` may be a folder,
    which is copied; `options` are those of `slow_disk`.
    """
    filled = partial(shutil.copytree, fill, dirs_exist_ok=True) if isinstance(fill, Path) else fill
    try:
        disk = undo.enter_context(slow_disk(kind=kind, limit=limit, fill=filled, **options))  # type: ignore[arg-type]
    except CannotPlant as error:
        print(f"{name}: left out: {error}", flush=True)
        return None
    print(f"{name}: {disk.how}", flush=True)
    return disk


def child(function: Callable[..., object], *given: object) -> list[str]:
    """The command that calls a function of a bench in a process of its own, and prints what it returns as JSON.

    `given` is what JSON can hold; paths become text.
    """
    module = f"scripts.benches.{Path(inspect.getfile(function)).stem}"
    code = f"""
import json, sys
from {module} import {function.__name__} as run
returned = run(*json.loads(sys.argv[1]))
if returned is not None:
    print(json.dumps(returned), flush=True)
"""
    return [sys.executable, "-c", code, json.dumps(given, default=str)]


def program(*words: object) -> list[str]:
    """A command of loaderprobe, in a process of its own."""
    return [sys.executable, "-m", "loaderprobe", *map(str, words)]


def measurements(run: Path) -> Iterator[Measurement]:
    """Those of a stored run, in the order of its configurations."""
    directory = loaderprobe.load(run).directory
    for config in directory.record.spec.configs:
        outcome = directory.result(config.key)
        if isinstance(outcome, Measurement):
            yield outcome


def wanted(names: Sequence[str], only: str) -> list[str]:
    """Those that are named, with commas; a word that is no name stands for all that contain it."""
    words = only.split(",")
    return [name for name in names if name in words or any(word in name for word in {*words} - {*names})]


def ran(command: Sequence[str], name: str, limit_s: float, *, quiet: bool = False) -> bool:
    """Run it in a process group of its own, which does not outlive its limit; True when it came to its end."""
    output = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(command, start_new_session=True, stdout=output) as process:
        code = None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            print(f"{name}: left out: it took more than {limit_s:g} s")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if code:
        print(f"{name}: left out: its process failed with code {code}")
    return code == 0


def answer(command: Sequence[str], *, quiet: bool = False) -> Any:
    """The JSON that a process prints on standard output. Raises SystemExit where the process fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE if quiet else None, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with code {done.returncode}\n{(done.stderr or b'').decode()}")
    return json.loads(done.stdout)


class Progress:
    """Says on standard error how far a bench is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._begin_s = self._last_s = time.monotonic()

    def done(self, name: str) -> None:
        now_s = time.monotonic()
        self._done += 1
        took = f"{now_s - self._last_s:.0f} s, {(now_s - self._begin_s) / 60:.1f} min in all"
        print(f"{self._done} of {self._total}: {name}, {took}", file=sys.stderr, flush=True)
        self._last_s = now_s


@contextmanager
def raw_results(chosen: argparse.Namespace, measure: Callable[[Path], bool]) -> Iterator[tuple[Path, bool]]:
    """(The folder of raw results, whether all of them are there): that of `--from`, or measured now into `--keep`."""
    if chosen.source:
        yield chosen.source, True
        return
    # As Ctrl-C does: unwinding removes disks and folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="loaderprobe-bench-raw-") as scratch:
        folder = (chosen.keep or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        begin_s = time.monotonic()
        complete = measure(folder)
        print(f"{cores_available():g} cores, {(time.monotonic() - begin_s) / 60:.1f} minutes")
        yield folder, complete


def run_part(chosen: argparse.Namespace, part: ModuleType, report: Callable[[list[Any]], bool]) -> int:
    """The exit code of a family of `truth` or a kind of `forecast`.

    `part` is a module. Its `measure(chosen, folder)` is True when all was measured, `load(folder, chosen)` has the rows
    that were kept there. `report` is True for rows that are good.
    """
    with raw_results(chosen, partial(part.measure, chosen)) as (source, complete):
        rows = part.load(source, chosen)
        if not rows:
            print("nothing was measured")
        return 0 if rows and report(rows) and complete else 1


def alternated(runs: Mapping[str, Callable[[], T]], number: int) -> dict[str, T]:
    """What each gives, run in the order given in rounds of even number, and in the opposite one in odd rounds."""
    return {name: runs[name]() for name in (reversed(list(runs)) if number % 2 else runs)}


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Median, range and mean of one figure a round; ratios, mostly."""
    middle, low, high = (f"{quantile(values, share):.{digits}f}" for share in (0.5, 0.1, 0.9))
    return (
        f"median {middle}, 10 to 90 % of {len(values)} rounds {low} to {high} "
        f"(all {min(values):.{digits}f} to {max(values):.{digits}f}), "
        f"mean {mean(values):.{digits}f} +- {half_width(values):.{digits}f}"
    )


def cpu_ns(pids: Sequence[int]) -> int:
    """CPU time of all threads of these processes, as the scheduler counts it."""
    threads = [thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)

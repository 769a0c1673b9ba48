"""What is done with each public script: rates by hand, `loaderprobe run`, the same watched, and with checkpoints."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaderprobe.system.written_files import CHECKPOINTS
from scripts.benches.harness import alternated
from scripts.benches.scripts_data import Data
from scripts.benches.scripts_rows import Given, Row

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT_S = 400.0
"""Of any process: then it is killed, and has not ended cleanly."""
MOST_ENDING_S = 5.0
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Of the step, so that workers have cores of their own."""
SAYS = re.compile(r"loaderprobe: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the scripts are, the data, and a folder in which a script runs."""

    scripts: Path
    data: Data
    folder: Path
    around: Callable[[Sequence[str]], list[str]] = list
    """Wraps a command so that it meets the limit of a slow disk."""

    def script(self, row: Row, given: Given) -> list[str]:
        """Its command, without Python."""
        if row.script.startswith("-m "):
            return [*row.script.split(), *given(self.data, self.folder)]
        script = self.scripts / row.script
        if row.laid or row.inside:
            script = self.folder / row.script
            shutil.copytree(self.scripts / Path(row.script).parent, script.parent, dirs_exist_ok=True)
        for place, made in row.laid.items():
            if not (laid := self.folder / place / ".laid").exists():
                shutil.copytree(made(self.data), laid.parent, copy_function=os.link, dirs_exist_ok=True)
                laid.touch()
        return [str(script), *given(self.data, self.folder)]

    def inside(self, row: Row) -> Path:
        """Where it runs."""
        return (self.folder / row.script).parent if row.inside else self.folder


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended, and what it said."""

    code: int | None
    """None for one that was killed at its limit."""
    said: str
    left: bool
    """True where it left processes behind."""


def ended(words: Sequence[str], row: Row, place: Place) -> Ended:
    """Run to its end, in a process group of its own, in the folder of the place."""
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *row.paths)), **ONE_THREAD,
        **row.environment(place.data),
    }  # fmt: skip
    with (place.folder / "log").open("a+") as log:
        log.write(f"$ {' '.join(words)}\n")
        log.flush()
        begin = log.tell()
        process = subprocess.Popen(
            place.around(words),
            cwd=place.inside(row),
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        code = None
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(LIMIT_S)
        left = still_there(process.pid)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.seek(begin)
        return Ended(code, log.read(), left and code is not None)


def still_there(group: int) -> bool:
    """True where a process group is there after a while: some processes end a little after the one that began them."""
    end_s = time.monotonic() + MOST_ENDING_S
    while time.monotonic() < end_s:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True


def by_hand(row: Row, place: Place, ways: Sequence[str], seconds: float, repeats: int) -> dict[str, list[float]]:
    """Images/s in each way, in turn."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    for way in [*ways] * repeats:
        out = place.folder / "rate.json"
        out.unlink(missing_ok=True)
        kinds = (*(("--fastai",) if row.fastai else ()), *(("--endless",) if row.endless else ()))
        own = ("--way", way, "--out", str(out), "--seconds", str(seconds), "--folder", str(row.folder(place.data)),
               "--least", str(row.least), "--batch", str(row.batch))  # fmt: skip
        script = place.script(row, row.timed)
        done = ended([sys.executable, str(HERE / "scripts_truth.py"), *own, *kinds, "--", *script], row, place)
        if done.code or not out.exists():
            print(f"{row.name}: {way} failed: {done.said[-2000:]}", file=sys.stderr)
            continue
        found[way].append(json.loads(out.read_text())["images_per_s"])
    return found


def attached(row: Row, place: Place, given: Given, *options: str) -> tuple[Ended, dict[str, Any]]:
    """`loaderprobe run` on the script; its result as JSON, empty where there is none."""
    out = Path(tempfile.mkdtemp(dir=place.folder, prefix="found-"))
    words = ["-m", "loaderprobe", "run", *options, "--out", str(out), "--", sys.executable]
    done = ended([sys.executable, *words, *place.script(row, given)], row, place)
    result = out / "result.json"
    return done, json.loads(result.read_text()) if result.exists() else {}


def measured(row: Row, place: Place, budget_s: float) -> dict[str, Any]:
    """The verdict and its rate, and how the script ended."""
    done, found = attached(row, place, row.timed, "--budget", str(budget_s))
    kept = (
        "side", "cause", "candidates", "sentence", "images_per_s", "ceilings", "speedups", "notes", "rounds", "workers",
    )  # fmt: skip
    return {
        "code": done.code,
        "left": done.left,
        "says": SAYS.findall(done.said),
        "found": {name: found.get(name) for name in kept} if found else {},
    }


def watched(row: Row, place: Place, pairs: int) -> dict[str, list[dict[str, Any]]]:
    """Losses and CPU time without and with `--watch`, in turn."""
    found: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}

    def log(watch: bool) -> dict[str, Any]:
        out = place.folder / "losses.json"
        out.unlink(missing_ok=True)
        script = (sys.executable, str(HERE / "scripts_losses.py"), "--out", str(out), "--steps", str(row.steps), "--")
        kept = Path(tempfile.mkdtemp(dir=place.folder, prefix="watched-"))
        around = (sys.executable, "-m", "loaderprobe", "run", "--watch", "--out", str(kept), "--") if watch else ()
        done = ended([*around, *script, *place.script(row, row.light or row.timed)], row, place)
        if not out.exists():
            print(f"{row.name}: watched failed: {done.said[-2000:]}", file=sys.stderr)
            return {}
        result = kept / "result.json"
        bound = (json.loads(result.read_text()).get("bound") if result.exists() else None) or {}
        return {**json.loads(out.read_text()), "code": done.code, "kept": result.exists(), "cause": bound.get("cause")}

    for number in range(pairs):
        for name, each in alternated({"without": lambda: log(False), "with": lambda: log(True)}, number).items():
            found[name].append(each)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Of all trained models below a folder, and all that lies beside one."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "log"]
    beside = {path.parent for path in files if path.suffix in CHECKPOINTS}
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.parent in beside}


def saved(row: Row, place: Place) -> dict[str, Any]:
    """Train and save without loaderprobe; then attached, into the same folder. What changed of what was there.

    Logs may have become longer.
    """
    if row.saves is None or row.resumes is None:
        return {}
    done = ended([sys.executable, *place.script(row, row.saves)], row, place)
    before = contents(place.folder)
    if done.code or not before:
        return {"failed": done.said[-2000:]}
    again, found = attached(row, place, row.resumes, "--budget", "10")
    after = contents(place.folder)
    return {
        "files": len(before),
        "changed": [name for name, held in before.items() if not after.get(name, b"").startswith(held)],
        "code": again.code,
        "left": again.left,
        "says": SAYS.findall(again.said),
        "found": bool(found),
    }

"""Family `scripts`: public training scripts, unchanged, under `loaderprobe run`; the truth by hand; as root for disks.

The scripts are not part of this project: `--help` says under which names they are to be put into the folder of
--scripts. Each gets generated photographs, and small models without training where it would ask a hub. By hand, with
one change to its loop, it is measured as it is, with files in memory, with samples made before, with one batch over and
over, with one more worker, and its loader alone. Then come `loaderprobe run`; its losses and CPU time with and without
--watch, in turn; and checkpoints that were there. It is a fault where a script does not end cleanly, a loss differs or
a checkpoint has changed. Rows that cannot run say why.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaderprobe.stats import mean, median
from loaderprobe.system.written_files import CHECKPOINTS
from scripts.benches.by_hand import WAYS
from scripts.benches.harness import Progress, alternated, planted, spread, wanted
from scripts.benches.score import Marks, Said
from scripts.benches.score import Row as Judged
from scripts.benches.scripts_rows import ROWS, Data, Row

MARKS = Marks()
PARTS = ("truth", "run", "watch", "saves")
NO_MORE = 1.10
"""One more worker that gains less: the cores are full."""
BUDGET_S, REPEATS, SECONDS, PAIRS = 40.0, 2, 8.0, 4

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

    def script(self, row: Row, part: str) -> list[str]:
        """Its command, without Python."""
        if row.script.startswith("-m "):
            return [*row.script.split(), *row.words(part, self.data, self.folder)]
        script = self.scripts / row.script
        if row.laid or row.inside:
            script = self.folder / row.script
            shutil.copytree(self.scripts / Path(row.script).parent, script.parent, dirs_exist_ok=True)
        for place, made in row.laid.items():
            if not (laid := self.folder / place / ".laid").exists():
                shutil.copytree(row.made(made, self.data), laid.parent, copy_function=os.link, dirs_exist_ok=True)
                laid.touch()
        return [str(script), *row.words(part, self.data, self.folder)]

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
        **{name: row.made(value, place.data) for name, value in row.environment.items()},
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
        own = ("--way", way, "--out", str(out), "--seconds", str(seconds), "--folder", row.made(row.folder, place.data),
               "--least", str(row.least), "--batch", str(row.batch))  # fmt: skip
        script = place.script(row, "timed")
        done = ended([sys.executable, str(HERE / "by_hand.py"), *own, *kinds, "--", *script], row, place)
        if done.code or not out.exists():
            print(f"{row.name}: {way} failed: {done.said[-2000:]}", file=sys.stderr)
            continue
        found[way].append(json.loads(out.read_text())["images_per_s"])
    return found


def attached(row: Row, place: Place, part: str, *options: str) -> tuple[Ended, dict[str, Any]]:
    """`loaderprobe run` on the script; its result as JSON, empty where there is none."""
    out = Path(tempfile.mkdtemp(dir=place.folder, prefix="found-"))
    words = ["-m", "loaderprobe", "run", *options, "--out", str(out), "--", sys.executable]
    done = ended([sys.executable, *words, *place.script(row, part)], row, place)
    result = out / "result.json"
    return done, json.loads(result.read_text()) if result.exists() else {}


def measured(row: Row, place: Place, budget_s: float) -> dict[str, Any]:
    """The verdict and its rate, and how the script ended."""
    done, found = attached(row, place, "timed", "--budget", str(budget_s))
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
        own = ("--way", "losses", "--out", str(out), "--steps", str(row.steps), "--")
        script = (sys.executable, str(HERE / "by_hand.py"), *own)
        kept = Path(tempfile.mkdtemp(dir=place.folder, prefix="watched-"))
        around = (sys.executable, "-m", "loaderprobe", "run", "--watch", "--out", str(kept), "--") if watch else ()
        done = ended([*around, *script, *place.script(row, "timed" if row.light is None else "light")], row, place)
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
    done = ended([sys.executable, *place.script(row, "saves")], row, place)
    before = contents(place.folder)
    if done.code or not before:
        return {"failed": done.said[-2000:]}
    again, found = attached(row, place, "resumes", "--budget", "10")
    after = contents(place.folder)
    return {
        "files": len(before),
        "changed": [name for name, held in before.items() if not after.get(name, b"").startswith(held)],
        "code": again.code,
        "left": again.left,
        "says": SAYS.findall(again.said),
        "found": bool(found),
    }


def names() -> list[str]:
    return [row.name for row in ROWS]


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    """Each row into a file of `out`."""
    for name, known in (("parts", PARTS), ("ways", WAYS)):
        if unknown := set((getattr(chosen, name) or known[0]).split(",")) - set(known):
            raise SystemExit(f"--{name}: no {', '.join(unknown)}; there are {', '.join(known)}")
    if chosen.scripts is None:
        raise SystemExit("--scripts is needed: the folder with the scripts, which --help names")
    rows = [row for row in ROWS if row.name in wanted(names(), chosen.only)]
    progress = Progress(len(rows))
    with tempfile.TemporaryDirectory(prefix="loaderprobe-scripts-") as scratch:
        data = Data((chosen.data or Path(scratch)).resolve())
        data.root.mkdir(parents=True, exist_ok=True)
        for row in rows:
            file = out / f"{row.name}.json"
            before = json.loads(file.read_text()) if file.exists() else {}
            before.pop("missing", None)
            with ExitStack() as undo:
                file.write_text(json.dumps({**before, **measure_row(row, chosen, data, undo)}))
            progress.done(row.name)
    return bool(rows)


def measure_row(row: Row, chosen: argparse.Namespace, data: Data, undo: ExitStack) -> dict[str, Any]:
    """All parts that are asked for."""
    scripts, parts, ways = chosen.scripts.resolve(), chosen.parts or ",".join(PARTS), chosen.ways or ",".join(WAYS)
    if why := row.missing(scripts):
        return {"missing": why}
    found: dict[str, Any] = {"version": row.version(), "unseen": row.unseen, "light": row.light is not None}
    on: Data = data
    around: Callable[[Sequence[str]], list[str]] = list
    if row.slow:
        held = Path(row.made(row.folder, data)).parent
        disk = planted(
            undo, row.name, "token_bucket", row.slow, scratch=data.root,
            fill=lambda fill: _copied(held, fill / held.name),
        )  # fmt: skip
        if disk is None:
            return {"missing": "no slow disk can be planted here"}
        on, around = Data(disk.folder), disk.command

    def place() -> Place:
        folder = Path(tempfile.mkdtemp(dir=data.root, prefix=f"{row.name}-")) / "run"
        folder.mkdir()
        return Place(scripts=scripts, data=on, folder=folder, around=around)

    each: dict[str, Callable[[], Any]] = {
        "truth": lambda: by_hand(
            row, place(), [way for way in ways.split(",") if way in row.ways], chosen.seconds or SECONDS,
            chosen.repeats or REPEATS,
        ),
        "run": lambda: measured(row, place(), chosen.budget or BUDGET_S),
        "watch": lambda: watched(row, place(), chosen.pairs or PAIRS),
        "saves": lambda: saved(row, place()),
    }  # fmt: skip
    return {**found, **{part: each[part]() for part in PARTS if part in parts.split(",")}}


def _copied(folder: Path, to: Path) -> None:
    shutil.copytree(folder, to)


def load(folder: Path, chosen: argparse.Namespace) -> list[Judged]:
    """All rows that were kept there."""
    rows = []
    for name in wanted(names(), chosen.only):
        file = folder / f"{name}.json"
        kept = json.loads(file.read_text()) if file.exists() else None
        if kept and "missing" in kept:
            print(f"{name}: left out: {kept['missing']}")
        elif kept:
            rows.append(judged(name, kept))
    return rows


def judged(name: str, kept: Mapping[str, Any]) -> Judged:
    """The row, from what was stored of it."""
    rates, run, watch, saves = (kept.get(part) or {} for part in PARTS)
    more = median(rates["more"]) / median(rates["training"]) if rates.get("more") else 0.0
    said = {"run": _said(run["found"])} if run and not kept.get("unseen") else {}
    if not kept.get("light"):
        causes = sorted({each["cause"] for each in watch.get("with", ()) if each.get("cause")})
        said |= {f"watch {cause}" if number else "watch": Said(cause=cause) for number, cause in enumerate(causes)}
    ways = (f"{way} {'/'.join(f'{each:.3g}' for each in several)}" for way, several in rates.items())
    ends = [f"run ended {ending(run)}"] if run else []
    ends += [f"watched {same(watch)}"] if watch else []
    ends += [f"{len(saves['changed'])} of {saves['files']} changed"] if saves and not saves.get("failed") else []
    costs = PROCESSES.items() if watch and same(watch) in ("same", "differs by itself") else ()
    return Judged(
        name=name,
        logs=logs_of(rates),
        cpu="right" if more < NO_MORE else "wrong",
        images_per_s=median(rates["training"]) if rates.get("training") else None,
        said=said,
        details=(
            f"{kept['version']}; images/s by hand: {', '.join(ways)}",
            "; ".join(ends),
            *(f"--watch, {what}: {cost(watch, part)}" for what, part in costs),
        ),
        faults=tuple(faults_of(kept)),
    )


def _said(found: Mapping[str, Any]) -> Said | None:
    """What `loaderprobe run` said; one that has no verdict is its candidates alone."""
    return (
        Said(
            cause=found["cause"], candidates=tuple(found.get("candidates") or ()), side=found.get("side") or "",
            sentence=found["sentence"], images_per_s=(found["images_per_s"] or {}).get("value"),
        )
        if found and found.get("cause")
        else None
    )  # fmt: skip


def logs_of(rates: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """By resource, the logarithm of how many times as fast training gets without it, by hand; empty where not known."""
    if not all(rates.get(way) for way in ("training", "loader", "resident")):
        return {}
    training, loader, resident = (rates[way] for way in ("training", "loader", "resident"))
    warm = rates.get("warm") or training
    rounds = list(zip(training, loader, warm, rates.get("cached") or resident, strict=False))
    return {
        "compute": [math.log(alone / own) for own, alone, _, _ in rounds],
        "storage": [math.log(quick / own) for own, _, quick, _ in rounds],
        "preprocessing": [math.log(made / max(quick, own)) for own, _, quick, made in rounds],
    }


def faults_of(kept: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong beside the verdict."""
    run, watch, saves = (kept.get(part) or {} for part in PARTS[1:])
    if run and (unseen := kept.get("unseen")):
        said = " ".join(run["says"])
        if run["found"] or run["left"] or unseen not in said:
            yield f"run: {said or ending(run)} instead of a word on {unseen}"
    elif run and (ending(run) != "clean" or not run["found"]):
        yield f"run: {ending(run)}, {run['found'].get('cause', 'no verdict')}"
    if watch and same(watch) != "same":
        yield f"watched: {same(watch)}"
    if saves and (saves.get("failed") or saves["changed"] or ending(saves) not in ("clean", "code 2")):
        yield "saves: " + (saves.get("failed") or ", ".join(saves["changed"]) or ending(saves))


PROCESSES = {"training process": "own_cpu_s", "workers": "worker_cpu_s"}


def ending(part: Mapping[str, Any]) -> str:
    """In a word, or what is wrong."""
    if part["code"] is None:
        return "hung"
    return f"code {part['code']}" if part["code"] else "processes left" if part["left"] else "clean"


def same(watch: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Whether losses, inputs and random state are those of a run that is not watched."""

    def seen(each: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(str(each.get(name)) for name in ("losses", "inputs", "random"))

    usual, found = {seen(each) for each in watch["without"]}, {seen(each) for each in watch["with"]}
    if not all(each.get("losses") and each["code"] == 0 for side in watch.values() for each in side):
        return "failed"
    if len(usual) > 1:
        return "differs by itself"
    return "same" if usual == found else "DIFFERENT"


def cost(watch: Mapping[str, Sequence[Mapping[str, Any]]], part: str) -> str:
    """CPU time of `--watch` a step, over pairs."""
    pairs = list(zip(watch["without"], watch["with"], strict=True))
    apart = [1e6 * (after[part] - before[part]) for before, after in pairs if before and after]
    usual = mean([1e3 * before[part] for before, _ in pairs if before])
    each = spread(apart, 0) if len(apart) > 1 else f"{apart[0]:.0f} in one pair"
    return f"{each} us a step of {usual:.1f} ms"

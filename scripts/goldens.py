"""What every stored result looks like in every format, at 80 columns, byte for byte; and what is judged.

The results are in fixtures/runs, what they look like in fixtures/shown, one file a case and format. verdicts.json has
the verdict on each measurement in fixtures/measurements, sessions.json what scripted sessions measure on a fake clock,
words.txt the sentence of every code, example.* and pages.txt made-up results of kinds that no stored run has. Ends with
code 1 where anything differs. --accept keeps what is shown now: after each difference was looked at, with
`git diff fixtures/shown`.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from typer.testing import CliRunner

from loaderprobe.analyze.advice import recommend
from loaderprobe.analyze.forecast import Surroundings
from loaderprobe.analyze.verdict.judge import Judged, verdict
from loaderprobe.cli.commands import app
from loaderprobe.measure import pace
from loaderprobe.records.measurement import Measurement, Segment
from loaderprobe.testing import FakePageCache, Service, example_files
from scripts.golden_pages import EXAMPLES
from scripts.golden_words import words
from tests.measure.scripted import FEW_STEPS, measured_alone, ran, together

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUNS, SHOWN, MEASUREMENTS = FIXTURES / "runs", FIXTURES / "shown", FIXTURES / "measurements"
FORMATS = {"table": "txt", "md": "md", "csv": "csv", "json": "json", "html": "html"}
"""Of `report`, and the ending of its file."""
COMMANDS: Mapping[str, Sequence[str]] = {
    "plan.txt": ("plan", "storage", "--accelerators", "64"),
    "plan.md": ("plan", "storage", "--accelerators", "64", "--md"),
    "plan.json": ("plan", "storage", "--accelerators", "64", "--json"),
    "plan-bandwidth.txt": ("plan", "bandwidth", "--accelerators", "8", "--kind", "mlperf-h100"),
    "plan-one.txt": ("plan", "storage", "--accelerators", "1"),
    "plan-checkpoints.txt": (
        "plan", "storage", "--checkpoint", "2GB:1800", "--cache", "page:75GB", "--nic", "12.5GB/s", "--storage",
        "6GB/s,24kopens/s,2ms",
    ),
    "plan-trace.txt": ("plan", "trace"),
    "trace-amd.txt": ("trace", "../traces/tl_mi300_ddp_resnet18.json.gz"),
    "compare-runs.txt": ("compare", "cpu", "causes"),
    "compare-runs.md": ("compare", "cpu", "causes", "--md"),
    "compare-runs.json": ("compare", "cpu", "causes", "--json"),
}  # fmt: skip
"""Of what is made from stored results, by the file of what it prints."""
_LONG = 400
_LONG_FIGURE = re.compile(r"-?\d+\.\d{6,}(?:e[-+]?\d+)?")
"""Kept to nine digits: the last ones of a sum differ between versions of Python and machines."""
_PARTS = re.compile(r"(<(style|script)\b[^>]*>)(.*?)(</\2>)", re.DOTALL)
_CREATED = re.compile(r'^(  "created_utc": ")[^"]+', re.MULTILINE)
"""When a result of `COMMANDS` was made: other every time."""
MADE_AT = datetime(2026, 11, 23, 12, tzinfo=UTC)
"""When each plan of `COMMANDS` is made: on one day, whenever that is shown."""
_ENVIRONMENT = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}


def cases() -> dict[str, Sequence[str]]:
    """The command of each file in fixtures/shown; what is made here has none."""
    reports = {
        f"{run.name}.{ending}": ("report", run.name, "--format", form)
        for run in sorted(RUNS.iterdir())
        if run.is_dir()
        for form, ending in FORMATS.items()
    }
    return {**reports, **COMMANDS, **dict.fromkeys(MADE, ())}


def verdicts() -> str:
    """All figures, the cause, and the code of its reason, of each measurement; JSON."""
    by_file = {}
    for file in sorted(MEASUREMENTS.iterdir()):
        kept = msgspec.json.decode(gzip.decompress(file.read_bytes()))
        judged = Judged(measurement=msgspec.convert(kept["measurement"], Measurement))
        advised = replace(judged.verdict, advice=recommend(judged.experiments, Surroundings()).advice)
        by_file[file.name.removesuffix(".json.gz")] = _rounded(msgspec.to_builtins(advised))
    return json.dumps(by_file, indent=1)


def _rounded(value: Any) -> Any:
    """To six digits: the last ones of a sum differ between machines."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list | tuple) else value


def sessions() -> str:
    """Of each scripted session its segments in their order, its notes, and the verdict on it; JSON."""
    with patch.object(pace, "MOST_BATCHES", FEW_STEPS):
        measured = {name: made() for name, made in SESSIONS.items()}
    summaries = {}
    for name, session in measured.items():
        bound = verdict(session).bound
        summaries[name] = {
            "segments": [_segment(segment) for segment in session.segments],
            "notes": [note.code for note in session.notes],
            "verdict": [bound.side, bound.cause, *bound.candidates, bound.reason.code],
        }
    return json.dumps(summaries, indent=1)


def _segment(segment: Segment) -> str:
    took = segment.others and segment.others.cpu_ns / segment.others.span_ns / segment.others.cores
    beside = f", others took {took:.2f} of the cores" if took else ""
    without = "" if segment.without is None else f" without {segment.without}"
    seconds = (segment.closed_ns - segment.begin_ns[0]) / 1e9
    steps = f"{segment.steps} steps from {segment.first_batch}, {seconds:.6f} s"
    return f"{segment.round}: {segment.mode} {segment.activity}{without}, {steps}{beside}"


def _alone(service: Service, compute: str = "emulated:100000", **changes: Any) -> Callable[[], Measurement]:
    return lambda: measured_alone(service, compute=compute, **changes)


def _continued() -> Measurement:
    """One round, and what a second session adds to it."""
    service = Service(cpu_s=0.004, blocked_s=0.004)
    first = measured_alone(service, compute="emulated:100000", rounds=1)
    return measured_alone(service, session={"earlier": first}, compute="emulated:100000", rounds=3)


def _ranks() -> Measurement:
    return together(ran(Service(cpu_s=0.002), Service(cpu_s=0.006), compute="emulated:100000", rounds=1))


_DISK = Service(cpu_s=0.002, blocked_s=0.006)
SESSIONS: Mapping[str, Callable[[], Measurement]] = {
    "storage": _alone(_DISK),
    "preprocessing": _alone(Service(cpu_s=0.008, blocked_s=0.001)),
    "transport": _alone(Service(cpu_s=0.001, collate_s=0.0002, receive_s=0.1), workers=4),
    "compute": _alone(Service(cpu_s=0.001, blocked_s=0.001), "emulated:100"),
    "cores": _alone(Service(cpu_s=0.006, run_delay_s=0.003)),
    "serial": _alone(Service(cpu_s=0.005), "emulated-sync:200", workers=0),
    "warm": lambda: measured_alone(_DISK, files=example_files(512), compute="emulated:9999", cache="warm"),
    "never cold": lambda: measured_alone(
        _DISK, files=example_files(2048), session={"cache": FakePageCache(stubborn=True)}
    ),
    "thorough": _alone(_DISK, session={"thorough": True}),
    "short of time": _alone(Service(cpu_s=0.001, blocked_s=0.05), batch_size=8, session={"budget_s": 10.0}),
    "disturbed": _alone(_DISK, session={"others": [0.0, 0.5, 0.25]}),
    "continued": _continued,
    "two ranks": _ranks,
}


MADE: Mapping[str, Callable[[], str]] = {
    "verdicts.json": verdicts,
    "sessions.json": sessions,
    "words.txt": words,
    **EXAMPLES,
}
"""What no command shows, by its file."""


def shown(name: str) -> str:
    """What is kept under this name, as it is now."""
    return _PARTS.sub(_shortened, MADE[name]()) if name in MADE else _printed(cases()[name])


def _printed(command: Sequence[str]) -> str:
    """What it prints, in the folder of the results; with its exit code and its error where it is not 0."""
    at_a_moment = patch("loaderprobe.system.host.utc_now", return_value=MADE_AT)
    with chdir(RUNS), patch.dict(os.environ, _ENVIRONMENT), at_a_moment:
        done = CliRunner().invoke(app, list(command))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    text = _LONG_FIGURE.sub(lambda figure: f"{float(figure[0]):.9g}", _PARTS.sub(_shortened, done.stdout))
    if command[0] != "report":
        text = _CREATED.sub(r"\1now", text, count=1)
    return text if not done.exit_code else f"{text}exit code {done.exit_code}\n{done.stderr}"


def _shortened(part: re.Match[str]) -> str:
    """Style sheets and scripts of a page by their hash, where they are long: they are the same in all."""
    begin, _, body, end = part.groups()
    return f"{begin}{hashlib.sha256(body.encode()).hexdigest()[:16] if len(body) > _LONG else body}{end}"


def difference(name: str, now: str) -> Iterator[str]:
    """Lines of a unified diff from what is kept to what is shown now; none where they are the same."""
    file = SHOWN / name
    before = file.read_text() if file.exists() else ""
    return difflib.unified_diff(before.splitlines(), now.splitlines(), f"shown/{name}", "now", lineterm="", n=1)


def left_over() -> list[str]:
    """Files in fixtures/shown that belong to no case."""
    return sorted({path.name for path in SHOWN.iterdir()} - set(cases()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help="cases whose file begins with this; without one, all")
    parser.add_argument("--accept", action="store_true", help="keep what is shown now")
    chosen = parser.parse_args()
    different = 0
    for name in cases():
        if chosen.name and not name.startswith(tuple(chosen.name)):
            continue
        now = shown(name)
        lines = list(difference(name, now))
        if not lines and (SHOWN / name).exists():
            continue
        different += 1
        if chosen.accept:
            (SHOWN / name).write_text(now)
            print(f"accepted: {name}")
        else:
            print("\n".join([*lines[:40], *(["..."] if len(lines) > 40 else [])]))
    for name in left_over():
        different += 1
        print(f"{'removed' if chosen.accept else 'no case shows'}: {name}")
        if chosen.accept:
            (SHOWN / name).unlink()
    print(f"{different} of {len(cases())} differ" if different else f"all {len(cases())} the same")
    return 1 if different and not chosen.accept else 0


if __name__ == "__main__":
    sys.exit(main())

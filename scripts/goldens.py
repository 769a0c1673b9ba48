"""What every stored result looks like in every format, at 80 columns, byte for byte; and what is judged.

The results are in fixtures/runs, what they look like in fixtures/shown, one file a case and format. verdicts.json has
the verdict on each measurement in fixtures/measurements. Ends with code 1 where anything differs. --accept keeps what
is shown now: after each difference was looked at, with `git diff fixtures/shown`.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from typer.testing import CliRunner

from loaderprobe.analyze.judge import verdict
from loaderprobe.cli.app import app
from loaderprobe.records.measurement import Measurement

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUNS, SHOWN, MEASUREMENTS = FIXTURES / "runs", FIXTURES / "shown", FIXTURES / "measurements"
VERDICTS = "verdicts.json"
FORMATS = {"table": "txt", "md": "md", "csv": "csv", "json": "json", "html": "html"}
"""Of `report`, and the ending of its file."""
COMMANDS: Mapping[str, Sequence[str]] = {
    "plan.txt": ("plan", "storage", "--accelerators", "64"),
    "plan.md": ("plan", "storage", "--accelerators", "64", "--md"),
    "plan.json": ("plan", "storage", "--accelerators", "64", "--json"),
    "plan-bandwidth.txt": ("plan", "../bandwidth.json", "--accelerators", "8", "--kind", "mlperf-h100"),
    "trace-amd.txt": ("trace", "../traces/tl_mi300_ddp_resnet18.json.gz"),
    "compare-runs.txt": ("compare", "cpu", "causes"),
    "compare-runs.md": ("compare", "cpu", "causes", "--md"),
    "compare-runs.json": ("compare", "cpu", "causes", "--json"),
}
"""Of what is made from stored results, by the file of what it prints."""
_ENDING = ".json.gz"
_LONG = 400
_PARTS = re.compile(r"(<(style|script)\b[^>]*>)(.*?)(</\2>)", re.DOTALL)
_MADE = re.compile(r'^(  "created_utc": ")[^"]+', re.MULTILINE)
"""When a result of `COMMANDS` was made: other every time."""
_ENVIRONMENT = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}


def cases() -> dict[str, Sequence[str]]:
    """The command of each file in fixtures/shown; the verdicts have none."""
    found = {
        f"{run.name}.{ending}": ("report", run.name, "--format", form)
        for run in sorted(RUNS.iterdir())
        if run.is_dir()
        for form, ending in FORMATS.items()
    }
    return {**found, **COMMANDS, VERDICTS: ()}


def verdicts() -> str:
    """All figures, the cause, and the code of its reason, of each measurement; JSON."""
    return json.dumps(
        {file.name.removesuffix(_ENDING): _judged(file) for file in sorted(MEASUREMENTS.iterdir())}, indent=1
    )


def _judged(file: Path) -> dict[str, Any]:
    kept = msgspec.json.decode(gzip.decompress(file.read_bytes()))
    found = verdict(msgspec.convert(kept["measurement"], Measurement))
    told: dict[str, Any] = _rounded(msgspec.to_builtins(found))
    return told


def _rounded(value: Any) -> Any:
    """To six digits: the last ones of a sum differ between machines."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value


def shown(command: Sequence[str]) -> str:
    """What it prints, in the folder of the results; with its exit code and its error where it is not 0."""
    if not command:
        return verdicts()
    with chdir(RUNS), patch.dict(os.environ, _ENVIRONMENT):
        done = CliRunner().invoke(app, list(command))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    text = _PARTS.sub(_shortened, done.stdout)
    if command[0] != "report":
        text = _MADE.sub(r"\1now", text, count=1)
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
    return sorted({each.name for each in SHOWN.iterdir()} - set(cases()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help="cases whose file begins with this; without one, all")
    parser.add_argument("--accept", action="store_true", help="keep what is shown now")
    chosen = parser.parse_args()
    different = 0
    for name, command in cases().items():
        if chosen.name and not name.startswith(tuple(chosen.name)):
            continue
        now = shown(command)
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

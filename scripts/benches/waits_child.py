"""The process of one row of `waits`: two rounds of the truth, the diagnosis in a process of its own, the rest."""

from __future__ import annotations

import json
import subprocess
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from loaderprobe.store.codec import encode
from loaderprobe.system.limits import cores_available
from scripts.benches.harness import child
from scripts.benches.waits_loaders import make_loader, make_step, place_of
from scripts.benches.waits_rows import DISKS, ROWS, Row
from scripts.benches.waits_truth import counter_of, evict, files_of, measure_round, read_ahead_kb, sample_bytes

ROUNDS_BEFORE = 2
ROUNDS = 3
DIAGNOSIS_LIMIT_S = 120.0


def row_of(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


def quiet() -> None:
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant


def measure_row(row: Row, disk: Path, url: str, out: Path, unlimited: str, budget_s: float, truth: Path | None) -> None:
    """Measure one row; one or two files go to `out`. Without a budget the truth alone, one round of it.

    With `truth`, the plain loops of this row are not run again where they were kept in this folder.
    """
    quiet()
    before, after = (ROUNDS_BEFORE, ROUNDS) if budget_s else (1, 1)
    kept = truth / f"{row.name}.row.json" if truth else None
    rounds: list[dict[str, Any]] = json.loads(kept.read_text())["truth"] if kept and kept.exists() else []
    missing = not rounds
    diagnosis: dict[str, Any] = {"error": "not asked"}
    if missing:
        rounds += truths(row, disk, url, unlimited, range(before))
    with place_of(row, disk, url) as place:
        files, size = files_of(row, place), sample_bytes(row, place)
        counted, ahead = counter_of(row, place.folder) is not None, read_ahead_kb(place.folder)
    if budget_s:
        evict(files)
        diagnosis = diagnosed(row, [str(disk), url, str(out), unlimited], out, budget_s)
    if missing:
        rounds += truths(row, disk, url, unlimited, range(before, after))
    stored = {
        "name": row.name,
        "cores": cores_available(),
        "counted": counted,
        "read_ahead_kb": ahead,
        "disk_bytes_per_s": DISKS[row.disk].bytes_per_s or None,
        "sample_bytes": size or None,
        "samples": row.samples,
        "truth": rounds,
        "diagnosis": None,
        "error": "",
        "seconds": 0.0,
        **diagnosis,
    }
    (out / f"{row.name}.row.json").write_text(json.dumps(stored, indent=1))


def truths(row: Row, disk: Path, url: str, unlimited: str, rounds: range) -> list[dict[str, Any]]:
    """What the plain loops of the row deliver, in each of these rounds."""
    if not rounds:
        return []
    step = make_step(row)
    with place_of(row, disk, url) as place:
        return [measure_round(row, place, step, unlimited, number) for number in rounds]


def diagnosed(row: Row, place: list[str], out: Path, budget_s: float) -> dict[str, Any]:
    """What `diagnose` said, in a process of its own, so that nothing of it meets the plain loops."""
    program = child("waits", "--budget", budget_s, "--diagnose", row.name, *place)
    said = out / f"{row.name}.said.json"
    said.unlink(missing_ok=True)
    try:
        subprocess.run(program, check=False, timeout=DIAGNOSIS_LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {DIAGNOSIS_LIMIT_S:g} s"}
    if not said.exists():
        return {"error": "its process died"}
    found: dict[str, Any] = json.loads(said.read_text())
    said.unlink()
    return found


def diagnose_row(row: Row, disk: Path, url: str, out: Path, budget_s: float) -> None:
    """As a new user would: a loader, a step, one call."""
    import loaderprobe

    quiet()
    with place_of(row, disk, url) as place:
        loader, step = make_loader(row, place), make_step(row)
        begin_s = time.monotonic()
        found: dict[str, Any] = {}
        try:
            diagnosis = loaderprobe.diagnose(loader, step, budget_s=budget_s)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this row's result
            traceback.print_exc()
            found["error"] = f"{type(error).__name__}: {error}"
        else:
            found["diagnosis"] = diagnosis.to_dict()
            (out / f"{row.name}.measurement.json").write_bytes(encode("measurement", diagnosis.measurement))
        found["seconds"] = time.monotonic() - begin_s
    (out / f"{row.name}.said.json").write_text(json.dumps(found))

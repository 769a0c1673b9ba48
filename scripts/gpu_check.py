"""What only a GPU can tell: each section in a process of its own, results in OUT/results.json after each.

Writes OUT/results.json, OUT/pytest.log, OUT/trace.json.gz and two run directories: OUT/timelines (three
configurations with their profiler windows) and OUT/run (a sweep); with --pack, each as one .tar.gz.
Exit codes: 0 all as it must be, 3 no GPU or a part is missing, 4 some sections failed, or found what must not be.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from pathlib import Path
from typing import Any

MISSING, FAILED = 3, 4
NEEDED = ("torch", "torchvision", "numpy", "PIL", "msgspec", "filelock", "psutil", "xxhash", "pynvml")
PACKAGES = {"PIL": "pillow", "pynvml": "nvidia-ml-py"}
# Section: where its function is, and the most seconds it may take.
SECTIONS: dict[str, tuple[str, float]] = {
    "identity": ("gpu_check_facts:identity", 60),
    "gpm": ("gpu_check_facts:gpm", 60),
    "sessions": ("gpu_check_facts:sessions", 90),
    "tests": ("gpu_check:tests", 120),
    "planted-none": ("gpu_check_planted:none", 45),
    "planted-sleep": ("gpu_check_planted:sleep", 45),
    "planted-pageable": ("gpu_check_planted:pageable", 45),
    "planted-item": ("gpu_check_planted:item", 45),
    "planted-tiny": ("gpu_check_planted:tiny", 45),
    "ceilings": ("gpu_check_rates:ceilings", 90),
    "overhead": ("gpu_check_rates:overhead", 75),
    "trace": ("gpu_check_facts:trace", 45),
    "timelines": ("gpu_check_rates:timelines", 100),
    "sweep": ("gpu_check_rates:sweep", 600),
}
# What the last section leaves for writing down.
LEAVE_S = 10.0


def refuse(what: str, why: str, next_step: str) -> int:
    print(f"gpu_check: {what}: {why}; {next_step}", file=sys.stderr)
    return MISSING


def unpack(wheels: Path | None, place: Path) -> None:
    """A package that the machine lacks may be carried as a wheel: unpacked, it is a folder to import from."""
    if wheels is None:
        return
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(place)
    sys.path.insert(1, str(place))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))


def trouble() -> int:
    """0 where everything can run; else the exit code, and the reason is printed."""
    gone = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if gone:
        names = " ".join(PACKAGES.get(name, name) for name in gone)
        return refuse(
            f"{sys.executable} lacks {names}", "the product imports them",
            f"install them, or bring their wheels along (pip download --no-deps -d DIR {names}) and add --wheels DIR",
        )  # fmt: skip
    import torch

    if not torch.cuda.is_available():
        return refuse(
            "no GPU", f"torch {torch.__version__} sees no CUDA device",
            "run it where `nvidia-smi` shows a GPU, with a torch built for CUDA; everything else is in scripts/test",
        )  # fmt: skip
    return 0


def tests(out: Path, seconds: float) -> dict[str, Any]:
    """The tests marked gpu."""
    if importlib.util.find_spec("pytest") is None:
        return {"skipped": "this python3 has no pytest", "met": False}
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-v", "tests/compute"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    (out / "pytest.log").write_text(done.stdout + done.stderr)
    return {"exit_code": done.returncode, "last_lines": done.stdout.splitlines()[-8:]}


def run_section(name: str, out: Path, seconds: float, result: Path) -> int:
    """In the process of one section."""
    module, function = SECTIONS[name][0].split(":")
    try:
        found = getattr(importlib.import_module(module), function)(out, seconds)
    except Exception as error:  # noqa: BLE001  # what goes wrong in one section is a result, too
        traceback.print_exc()
        result.write_text(json.dumps({"failed": f"{type(error).__name__}: {error}"}))
        return 1
    result.write_text(json.dumps(found))
    return 0


def in_process(name: str, out: Path, seconds: float) -> dict[str, Any]:
    """One section in a process group of its own: its status, and what it found."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        result = Path(place) / "result.json"
        command = [sys.executable, __file__, "--out", str(out), "--section", name, "--result", str(result)]
        process = subprocess.Popen([*command, "--seconds", str(seconds)], start_new_session=True)
        status = "done"
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            status = "stopped"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found = json.loads(result.read_text()) if result.exists() else {"failed": f"exit code {process.returncode}"}
    if "failed" in found and status == "done":
        status = "failed"
    return {"status": status, "seconds": round(time.monotonic() - begin, 1), "found": found}


def machine() -> dict[str, Any]:
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpu": properties.name,
        "capability": [properties.major, properties.minor],
        "sm_count": properties.multi_processor_count,
        "cores": len(os.sched_getaffinity(0)),
        "user_id": os.geteuid(),
    }


def packed(run: Path) -> None:
    """The run directory as one file beside it."""
    if run.is_dir():
        with tarfile.open(run.with_suffix(".tar.gz"), "w:gz") as archive:
            archive.add(run, arcname=run.name)
        for path in sorted(run.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        run.rmdir()


def check(out: Path, seconds: float, wanted: list[str]) -> int:
    end = time.monotonic() + seconds
    results: dict[str, Any] = {"schema": "loaderprobe/gpu-check", "schema_version": 1, "machine": machine()}
    sections: dict[str, Any] = results.setdefault("sections", {})
    for name in wanted:
        left = end - time.monotonic() - LEAVE_S
        limit = min(SECTIONS[name][1], left)
        if limit < 10:
            sections[name] = {"status": "skipped", "reason": f"{max(left, 0):.0f} s were left"}
        else:
            print(f"gpu_check: {name}, {left:.0f} s left", file=sys.stderr, flush=True)
            sections[name] = in_process(name, out, limit)
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name:18} {sections[name]['status']:8} {json.dumps(sections[name].get('found'))[:300]}", flush=True)
    bad = [name for name, each in sections.items() if not as_it_must_be(each)]
    print(f"gpu_check: results in {out / 'results.json'}" + (f"; not as it must be: {', '.join(bad)}" if bad else ""))
    return FAILED if bad else 0


def as_it_must_be(section: dict[str, Any]) -> bool:
    """Done, and what it found is within its limit, where it has one."""
    found = section.get("found", {})
    return section["status"] == "done" and not found.get("exit_code") and found.get("met", True) is True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="where results are written")
    parser.add_argument("--seconds", type=float, default=520.0, help="for everything")
    parser.add_argument("--only", help="sections, with commas")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels of packages that this python3 lacks")
    parser.add_argument("--pack", action="store_true", help="the run directory as one file")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.section:
        return run_section(asked.section, asked.out, asked.seconds, asked.result)
    wanted = asked.only.split(",") if asked.only else list(SECTIONS)
    if unknown := [name for name in wanted if name not in SECTIONS]:
        parser.error(f"no such section: {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    with tempfile.TemporaryDirectory() as place:
        unpack(asked.wheels, Path(place))
        if code := trouble():
            return code
        out: Path = asked.out.absolute()
        out.mkdir(parents=True, exist_ok=True)
        code = check(out, asked.seconds, wanted)
        if asked.pack:
            packed(out / "run")
            packed(out / "timelines")
    return code


if __name__ == "__main__":
    sys.exit(main())

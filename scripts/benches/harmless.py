"""Does `run` leave a training as it would be? Public scripts, without it and with it, byte for byte.

Each script of scripts.toml runs twice without loaderprobe, which shows what of it repeats at all, and once under
`run --watch`: what it prints, each file that it writes and the state of its three random generators are compared.
Then `run` drives it in the folder of a finished run, of which no file may change. EXAMPLES is a clone of
github.com/pytorch/examples; MNIST and photographs are made up. Ends with code 1 where anything differs.
"""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import shlex
import struct
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np

from scripts.benches.harness import parser, photographs, program

ROWS = Path(__file__).with_name("scripts.toml")
REPOSITORY = Path(__file__).resolve().parents[2]
TIMES = re.compile(r"(Time|Data)\s+[\d.]+ \(\s*[\d.]+\)|\d+:\d\d(:\d\d)?|\d+\.\d+ ?(s|it/s|seconds)")
"""What a script prints of its own speed, which no two runs share."""
TRAINED, TESTED = 2000, 400

Files = dict[str, str]
Outcome = tuple[int, str, Files]
"""Exit code, what was printed, and the hash of each file."""


def seeded(script: str) -> None:
    """Runs a script with seeds, and prints the state of the random generators at its end: in a process of its own."""
    import pickle
    import random

    import torch

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        states = random.getstate(), np.random.get_state(), torch.get_rng_state().numpy().tobytes()
        print("states", *(hashlib.sha256(pickle.dumps(state)).hexdigest() for state in states))


def make_data(root: Path) -> None:
    """A made-up MNIST under data, and photographs in images/train and images/val."""
    raw = root / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    generator = np.random.default_rng(1)
    for part, count in (("train", TRAINED), ("t10k", TESTED)):
        pixels = generator.integers(0, 255, (count, 28, 28), dtype=np.uint8).tobytes()
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + pixels)
        digits = generator.integers(0, 10, count, dtype=np.uint8).tobytes()
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + digits)
    (root / "images").mkdir()
    for part, count in (("train", 128), ("val", 16)):
        photographs(root / part, "90x80", count).rename(root / "images" / part)


def written(folder: Path) -> Files:
    """The hash of each file in a folder, without loaderprobe's own and compiled ones."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if not {"found", "__pycache__"} & set(path.relative_to(folder).parts)
    }


def run(words: list[str], folder: Path, options: list[str] | None) -> Outcome:
    """The script in a folder, alone or under `run` with these options."""
    command = [sys.executable, "-m", "scripts.benches.harmless", "--seeded", *words]
    if options is not None:
        command = program("run", "--out", "found", *options, "--", *command)
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return ended.returncode, TIMES.sub("", ended.stdout), written(folder)


def differences(plain: Outcome, watched: Outcome) -> list[str]:
    """What differs; `run` may print its verdict after the script, and end with another code where it has none."""
    files = {name for name in plain[2].keys() | watched[2].keys() if plain[2].get(name) != watched[2].get(name)}
    return [*(["output"] if not watched[1].startswith(plain[1]) else []), *sorted(files)]


def changes_of(words: list[str], root: Path, budget: str) -> tuple[list[str], str]:
    """What `run` changed of one script, and what is shown of it."""
    folders = [root / name for name in ("plain", "again", "watched")]
    for folder in folders:
        for part in ("out", "results"):
            (folder / part).mkdir(parents=True)
        (folder / "data").symlink_to(root.parent / "data")
    (root / "data").symlink_to(root.parent / "data")
    plain, again = (run(words, folder, None) for folder in folders[:2])
    if plain[0]:
        return [f"the script ends with code {plain[0]} by itself"], ""
    random = differences(plain, again)
    watched = [name for name in differences(plain, run(words, folders[2], ["--watch"])) if name not in random]
    driven = differences((0, "", again[2]), run(words, folders[1], ["--budget", budget]))
    repeats = f"not repeated by itself: {', '.join(random)}" if random else "output and random states"
    return watched + driven, f"{len(plain[2])} files, {repeats}"


def main() -> int:
    options = parser(__doc__)
    options.add_argument("examples", type=Path, metavar="EXAMPLES", help="a clone of github.com/pytorch/examples")
    options.add_argument("--only", help="one row of scripts.toml")
    options.add_argument("--budget", default="3", help="seconds of the driver; 3")
    chosen = options.parse_args()
    rows = {name: row for name, row in tomllib.loads(ROWS.read_text()).items() if chosen.only in (None, name)}
    harmed = False
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        make_data(root)
        for name, row in rows.items():
            script, *words = shlex.split(row["script"].replace("IMAGES", str(root / "images")))
            changed, shown = changes_of([str((chosen.examples / script).resolve()), *words], root / name, chosen.budget)
            harmed |= bool(changed)
            print(f"{name:22} {'CHANGED: ' + ', '.join(changed) if changed else 'as without'}  {shown}", flush=True)
    return int(harmed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--seeded"]:
        sys.argv = sys.argv[2:]
        seeded(sys.argv[0])
    else:
        sys.exit(main())

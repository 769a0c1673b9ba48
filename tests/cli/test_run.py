"""`loaderprobe run -- COMMAND`: attached through the environment, to whatever Python the command starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def run(out: Path, *command: str, options: tuple[str, ...] = ("--budget", "0.5")) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own, below a shell script."""
    words = [sys.executable, "-m", "loaderprobe", "run", "--out", str(out / "found"), *options, "--", *command]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=out, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


def training(way: str, out: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.examples.training", way, str(out))


def test_a_script_is_measured_below_a_shell(tmp_path: Path) -> None:
    """The verdict is printed and kept; the script ends with code 0, and says what happens to it."""
    done = run(tmp_path, "sh", "-c", " ".join(training("plain", tmp_path)))
    assert done.returncode == 0, done.stderr
    assert "ended by itself" not in done.stdout
    assert "loader 0 (Costly, batch size 8, serial)" in done.stderr and "thrown away" in done.stderr
    assert "Report: found/report.html" in done.stdout
    result = json.loads((tmp_path / "found" / "result.json").read_text())
    assert result["schema"] == "loaderprobe/diagnosis" and result["batch_size"] == 8
    shown = subprocess.run(
        [sys.executable, "-m", "loaderprobe", "report", "found"], capture_output=True, text=True, check=True,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert shown.stdout.strip() and shown.stdout.strip() in done.stdout


def test_workers_that_are_spawned_import_nothing_of_it(tmp_path: Path) -> None:
    """They inherit the environment of the script, and are left alone."""
    script = tmp_path / "train.py"
    script.write_text(
        "from pathlib import Path\nfrom tests.examples.training import Training, plain\n"
        "if __name__ == '__main__':\n"
        "    plain(Training(Path('.'), num_workers=1, multiprocessing_context='spawn'))\n"
    )
    done = run(tmp_path, str(script))
    assert done.returncode == 0, done.stderr
    assert "measuring loader 0 (Costly, batch size 8, 1 worker)" in done.stderr and "Report:" in done.stdout


def test_a_script_that_raises_keeps_its_own_error(tmp_path: Path) -> None:
    """And its exit code; why there is no verdict stands beside it."""
    done = run(tmp_path, *training("raises", tmp_path))
    assert done.returncode == 1 and "KeyError: 'planted'" in done.stderr
    assert "no verdict: the script ended before a round was measured" in done.stderr


def test_a_command_without_a_loader_says_so(tmp_path: Path) -> None:
    """And one that cannot be started, or is missing."""
    done = run(tmp_path, "true")
    assert done.returncode == 2 and "no torch DataLoader was iterated" in done.stderr
    done = run(tmp_path, "no-such-command-here", options=("--budget", "1"))
    assert done.returncode == 5 and "not empty" in done.stderr


def test_ctrl_c_ends_the_script_and_the_command(tmp_path: Path) -> None:
    """As it would end without loaderprobe."""
    done = run(tmp_path, sys.executable, "-c", f"import os, signal; os.kill(os.getpid(), {int(signal.SIGINT)})")
    assert done.returncode in (130, 1), done.stderr

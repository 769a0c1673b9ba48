"""Options: where they stand in `--help`, and which are refused together."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from loaderprobe import __version__
from loaderprobe.cli import options as panels
from loaderprobe.cli.app import app
from loaderprobe.cli.bandwidth import bandwidth
from loaderprobe.cli.generate import generate
from loaderprobe.cli.sweep import BESIDE_RESUME, sweep

PANELS = [panels.DATA, panels.LOADER, panels.COMPUTE, panels.MEASURING, panels.OUTPUT]
BODIES: dict[str, Callable[..., Any]] = {"sweep": sweep, "bandwidth": bandwidth, "generate": generate}
IGNORED = {
    "--workers": "1", "--no-serial": None, "--resolutions": "64x48", "--compute": "cpu", "--cache": "warm",
    "--batch-size": "4", "--model": "mlp", "--prefetch-factor": "3", "--pipeline": "crop", "--decoder": "torchvision",
    "--tensor": "uint8", "--precision": "fp32", "--memory-format": "contiguous", "--compile": None,
    "--no-pin-memory": None, "--side-stream": None, "--gpu-decode": None, "--loader": "torch", "--rounds": "1",
    "--images": "99", "--epochs": "2", "--thorough": None, "--time-limit": "60",
    "--data-dir": "data", "--ranks": "1", "--out": "run", "--seed": "1", "--against": "run",
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_options_stand_in_panels(name: str) -> None:
    """Every option of a command with many of them has a panel; `--help` shows the panels in their order."""
    hints = get_type_hints(inspect.unwrap(BODIES[name]), include_extras=True)
    options = {
        key: extra
        for key, hint in hints.items()
        for extra in getattr(hint, "__metadata__", ())
        if type(extra) is typer.models.OptionInfo
    }
    found = {key: option.rich_help_panel for key, option in options.items()}
    assert found and set(found.values()) <= set(PANELS), found
    text = CliRunner().invoke(app, [name, "--help"]).stdout
    places = [text.index(f"─ {panel} ─") for panel in PANELS if panel in found.values()]
    assert places == sorted(places)


def test_every_option_that_resume_ignores_is_tried_below() -> None:
    """A new option of `sweep` is either of use beside `--resume`, or is refused there."""
    command = typer.main.get_command(app).commands["sweep"]  # type: ignore[attr-defined]  # the app is a group
    options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
    assert {each.opts[0] for each in options if each.name not in BESIDE_RESUME} == set(IGNORED)


@pytest.mark.parametrize("option", IGNORED)
def test_an_option_that_resume_would_ignore_is_refused(option: str, tmp_path: Path) -> None:
    """By name, with exit code 2, before the run is opened; also where it is given its default."""
    value = IGNORED[option]
    done = CliRunner().invoke(app, ["sweep", "--resume", str(tmp_path), option, *([value] if value else [])])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{option} would be ignored beside --resume" in " ".join(done.stderr.split())


def test_data_beside_resume_is_refused(tmp_path: Path) -> None:
    """The files of a run are those it began with."""
    done = CliRunner().invoke(app, ["sweep", str(tmp_path), "--resume", str(tmp_path)])
    assert done.exit_code == 2 and "DATA would be ignored" in " ".join(done.stderr.split())


def test_what_has_an_effect_on_a_resumed_run_is_taken(tmp_path: Path) -> None:
    """The output is the caller's: then only the run itself is looked at."""
    resume = ["sweep", "--resume", str(tmp_path)]
    done = CliRunner().invoke(app, [*resume, "--json", "--quiet", "--budget", "60"])
    assert done.exit_code == 2 and "is not a run" in " ".join(done.stderr.split())
    done = CliRunner().invoke(app, [*resume, "--budget", "0"])
    assert done.exit_code == 2 and "the budget must be a number of seconds above 0" in " ".join(done.stderr.split())


def test_the_package_runs_as_a_module() -> None:
    """`python -m loaderprobe` is the command, under its own name."""
    done = subprocess.run(
        [sys.executable, "-m", "loaderprobe", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"loaderprobe {__version__}\n")

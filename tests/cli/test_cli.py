"""The command line as a person meets it: help, exit codes, results on stdout, trouble on stderr."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loaderprobe.cli.app import RETIRED
from loaderprobe.compute.torch import ROCM
from loaderprobe.records.files import FileSet
from loaderprobe.system.environment import list_gpus
from tests.cli.invoke import invoke

COMMANDS = ("sweep", "bandwidth", "generate", "report", "doctor", "explain")
SHOW_HELP = """
import sys
from loaderprobe.cli import main
for command in sys.argv[1:]:
    sys.argv = ["loaderprobe", *command.split(), "--help"]
    code = main()
    heavy = {"torch", "pandas", "numpy", "pyarrow", "jinja2", "loaderprobe.api"} & set(sys.modules)
    if code or heavy:
        sys.exit(f"{command}: {code} {heavy}")
"""

WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = None
from tests.cli.invoke import invoke
done = [invoke(*arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([[each.exit_code, each.stderr] for each in done]))
"""


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    """`--help` of the program and of every command loads neither torch nor pandas."""
    command = [sys.executable, "-c", SHOW_HELP, "", *COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage") == 1 + len(COMMANDS)


@pytest.mark.parametrize("name", RETIRED)
def test_a_command_that_went_names_what_came_in_its_place(name: str) -> None:
    """Whatever is typed behind it; and where the guide lists what changed."""
    result = invoke(name, "--model", "mlp")
    said = " ".join(result.stderr.split())
    assert result.exit_code == 2 and f"'{name}' is no command any more" in said
    assert f"{RETIRED[name]}; see loaderprobe explain changes" in said


def test_mistakes_are_found_before_torch_is_imported(tmp_path: Path) -> None:
    """Names, values and paths: each is refused by a program that cannot import torch, and only the mistake is said."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    images = ["sweep", str(tmp_path / "other")]
    mistakes = {
        "no folder of images": ["sweep", "/nowhere/at/all"],
        "no run": [*images, "--out", str(tmp_path / "other")],
        "no file": ["layers", "/nowhere/at/all"],
        "no loader": [*images, "--loader", "dali"],
        "no compute": [*images, "--compute", "tpu"],
        "no accelerator": [*images, "--compute", "emulated:h100"],
        "no model": [*images, "--model", "resnet51"],
        "no layers": ["layers", "--model", "resnet51"],
        "no such option": [*images, "--compute", "emulated:100", "--precision", "fp16"],
    }
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, json.dumps(list(mistakes.values()))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    codes = {what: code for what, (code, _) in zip(mistakes, json.loads(done.stdout), strict=True)}
    assert codes == dict.fromkeys(mistakes, 2) | {"no run": 5}
    assert not any("training on the CPU" in said for _, said in json.loads(done.stdout))


def test_a_gpu_that_is_not_there_is_missed_before_any_data_are_made(tmp_path: Path) -> None:
    """Exit code 3, and not a file was written."""
    if list_gpus()[0] or ROCM.exists():
        pytest.skip("there is a GPU")
    done = invoke("sweep", "--compute", "cuda", "--data-dir", tmp_path / "data", "--out", tmp_path / "run")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "no GPU" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_doctor_takes_a_file_for_the_folder_around_it(tmp_path: Path) -> None:
    """As bandwidth does, a path on the storage in question may be a file."""
    (tmp_path / "file").write_text("x")
    assert invoke("doctor", tmp_path / "file").exit_code == 0


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, photographs: FileSet) -> None:
    """Neither data nor run goes where other files are."""
    (tmp_path / "precious").write_text("mine")
    done = invoke("sweep", photographs.root, "--compute", "emulated:9", "--workers", "1", "--out", tmp_path)
    assert done.exit_code == 5
    assert (tmp_path / "precious").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious"]


def test_doctor_gives_a_reason_for_everything_it_cannot_measure(tmp_path: Path) -> None:
    """Every line has a state and a why, at 80 columns, and nothing is left behind."""
    done = invoke("doctor", tmp_path)
    assert done.exit_code == 0
    assert "cold reads, proved" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert list(tmp_path.iterdir()) == []


def test_bandwidth_reads_cold_and_writes_nothing(photographs: FileSet) -> None:
    """Its JSON has a phase for each number of readers, and the folder is as it was."""
    before = sorted(Path(photographs.root).rglob("*"))
    done = invoke("bandwidth", photographs.root, "--readers", "1,2", "--seconds", 0.2, "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [phase["readers"] for phase in found["phases"] if phase["name"] == "files"] == [1, 2]
    assert found["images"] is True
    assert all(phase["clat_ns"]["min"] <= phase["clat_ns"]["percentile"]["99.000000"] for phase in found["phases"])
    assert sorted(Path(photographs.root).rglob("*")) == before


def test_explain_lists_its_pages_and_prints_one() -> None:
    """Every page that is listed can be read."""
    listed = invoke("explain").stdout.splitlines()
    assert listed
    for line in listed:
        assert len(invoke(*line.split()[1:3]).stdout) > 500

"""`loaderprobe report` in all its forms."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loaderprobe.cli.app import app
from tests.stored import plain_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored run of four configurations."""
    return plain_run(tmp_path_factory.mktemp("stored") / "run").path


def report(*arguments: object) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_parquet_is_written_and_piped_but_not_shown(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are those of a parquet file; a terminal is refused."""
    pytest.importorskip("pyarrow", reason="pip install 'loaderprobe[parquet]'")
    assert report(run, "-o", tmp_path / "run.parquet").exit_code == 0
    piped = report(run, "--format", "parquet").stdout_bytes
    for data in ((tmp_path / "run.parquet").read_bytes(), piped):
        assert data[:4] == data[-4:] == b"PAR1"


def test_parquet_without_pyarrow_is_a_missing_part(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, with the command that brings it, and nothing on standard output."""
    monkeypatch.setattr("loaderprobe.api.shown.find_spec", lambda name: None)
    done = report(run, "--format", "parquet")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "pyarrow" in done.stderr and "pip install pyarrow" in done.stderr


def test_a_stored_run_is_shown_without_what_measures() -> None:
    """None of the packages that measure is imported: judging needs the files and the records alone."""
    script = (
        "import sys; from loaderprobe.cli import main; "
        "sys.argv = ['loaderprobe', 'report', 'fixtures/runs/storage']; main(); "
        "measuring = {'measure', 'compute', 'loaders', 'samplers', 'storage', 'datasets', 'system'}; "
        "found = {name.split('.')[1] for name in sys.modules if name[:12] == 'loaderprobe.'}; "
        "sys.exit(', '.join(measuring & found) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_must_be_loaded_to_understand_one_command_does_not_grow() -> None:
    """Lines of all modules that `report RUN` imports: what a reader must load to understand one command.

    The limit is the figure of the day, rounded up to the next hundred. Lower it when the figure falls.
    """
    script = (
        "import sys; from pathlib import Path; from loaderprobe.cli import main; "
        "sys.argv = ['loaderprobe', 'report', 'fixtures/runs/storage']; main(); "
        "modules = [module for name, module in sys.modules.items() if name.split('.')[0] == 'loaderprobe']; "
        "files = {module.__file__ for module in modules if module.__file__}; "
        "print(sum(len(Path(file).read_text().splitlines()) for file in files), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    lines = int(done.stderr)
    sys.stdout.write(f"import closure of `report RUN`: {lines:,} lines\n")
    assert lines <= 24_000

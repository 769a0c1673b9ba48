"""The command line as a person meets it: help, exit codes, results on stdout, trouble on stderr."""

from __future__ import annotations

import csv
import io
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from loaderprobe import __version__
from loaderprobe.compute.torch import ROCM
from loaderprobe.records.files import FileSet
from loaderprobe.store.run_directory import RunDirectory, lock_directory
from loaderprobe.system.environment import list_gpus
from tests.conftest import Run

SMALL = ("--rounds", 1, "--batch-size", 4, "--budget", 60)
COMMANDS = ("sweep", "bandwidth", "generate", "report", "doctor", "explain")


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A real sweep over generated data: (run directory, its --json)."""
    place = tmp_path_factory.mktemp("sweep")
    command = [
        sys.executable, "-m", "loaderprobe", "sweep", "--workers", "1", "--resolutions", "64x48", "--json",
        "--compute", "emulated:100", "--data-dir", str(place / "data"), "--out", str(place / "run"), *map(str, SMALL),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return place / "run", json.loads(done.stdout)


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    """`--help` of the program and of every command loads neither torch nor pandas nor altair."""
    for arguments in ([], *([command] for command in COMMANDS)):
        script = (
            "import sys; from loaderprobe.cli import main; "
            f"sys.argv = ['loaderprobe', *{arguments}, '--help']; code = main(); "
            "heavy = {'torch', 'pandas', 'altair', 'numpy', 'pyarrow', 'jinja2', 'loaderprobe.api'}; "
            "sys.exit(code or ', '.join(heavy & set(sys.modules)) or 0)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage" in done.stdout


def test_the_version_is_printed(loaderprobe: Run) -> None:
    """`--version` names program and version."""
    assert loaderprobe("--version").stdout == f"loaderprobe {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("sweep", "--workers", "two"), 2, "not a whole number"),
        (("sweep", "--workers", "1", "--compute", "emulated:h100"), 2, "mlperf-h100"),
        (("sweep", "--workers", "1", "--compute", "tpu"), 2, "there is no compute named 'tpu'"),
        (("sweep", "--compute", "nowhere.at:All"), 3, "cannot be loaded"),
        (("sweep", "--resolutions", "500"), 2, "WIDTHxHEIGHT"),
        (("sweep", "--cache", "tepid"), 2, "cold,warm"),
        (("sweep", "--cache", "as-found"), 2, "cold,warm"),
        (("sweep", "--workers", "0", "--no-serial"), 2, "leaves nothing"),
        (("sweep", "/nowhere/at/all", "--compute", "emulated:1"), 2, "/nowhere/at/all"),
        (("sweep", "--resume", "/nowhere"), 2, "not a run"),
        (("sweep", "--batch-size", "0"), 2, "batch-size"),
        (("sweep", "--compute", "emulated:1", "--budget", "0"), 2, "above 0"),
        (("sweep", "--compute", "emulated:1", "--budget", "nan"), 2, "above 0"),
        (("sweep", "--compute", "emulated:100", "--precision", "fp16"), 2, "emulated:100: an emulated"),
        (("report", "/nowhere"), 2, "not a run"),
        (("report",), 2, "no run is given"),
        (("report", "--json", "--format", "csv"), 2, "exclude"),
        (("report", "--schema", "--json"), 2, "exclude"),
        (("report", "--format", "pdf"), 2, "parquet"),
        (("report", "run", "-o", "run.pdf"), 2, "ending of run.pdf"),
        (("bandwidth", "/nowhere"), 2, "/nowhere"),
        (("bandwidth", "/dev/null"), 2, "neither a file nor a folder"),
        (("doctor", "/nowhere"), 2, "does not exist"),
        (("explain", "magic"), 2, "verdict"),
        (("nonsense",), 2, "nonsense"),
    ],
)
def test_bad_input_is_refused_with_a_message_and_its_code(
    loaderprobe: Run, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    """Standard error says what is wrong; nothing goes to standard output."""
    done = loaderprobe(*arguments, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == code
    assert says in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_gpu_that_is_not_there_is_missed_before_any_data_are_made(loaderprobe: Run, tmp_path: Path) -> None:
    """Exit code 3, and not a file was written."""
    if list_gpus()[0] or ROCM.exists():
        pytest.skip("there is a GPU")
    done = loaderprobe("sweep", "--compute", "cuda", "--data-dir", tmp_path / "data", "--out", tmp_path / "run")
    assert (done.returncode, done.stdout) == (3, "")
    assert "no GPU" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_doctor_takes_a_file_for_the_folder_around_it(loaderprobe: Run, tmp_path: Path) -> None:
    """As bandwidth does, a path on the storage in question may be a file."""
    (tmp_path / "file").write_text("x")
    assert loaderprobe("doctor", tmp_path / "file").returncode == 0


def test_what_a_sweep_will_generate_is_said_before(loaderprobe: Run, tmp_path: Path) -> None:
    """How many bytes, and where; not for a folder of one's own."""
    options = ("--workers", 1, "--no-serial", "--resolutions", "64x48", "--compute", "emulated:100", *SMALL)
    done = loaderprobe("sweep", *options, "--budget", 5, "--data-dir", tmp_path / "data", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("Data: about ")


def test_json_is_the_summary_and_nothing_else(small_run: tuple[Path, dict[str, object]], loaderprobe: Run) -> None:
    """What `--json` prints fits the schema, equals the stored summary, and has the serial loader."""
    run, summary = small_run
    schema = json.loads(loaderprobe("report", "--schema").stdout)
    jsonschema.validate(summary, schema)
    assert summary == json.loads((run / "summary.json").read_text())
    rows = summary["configurations"]
    assert isinstance(rows, list)
    assert [row["workers"] for row in rows] == [0, 1]
    assert {row["status"] for row in rows} == {"measured"}
    assert all(row["emulated"] for row in rows)


def test_a_stored_run_is_shown_again_without_torch(small_run: tuple[Path, dict[str, object]]) -> None:
    """Every form of the report comes from the files alone."""
    run, _ = small_run
    script = (
        "import sys; sys.modules['torch'] = None; from loaderprobe.cli import main; "
        "sys.argv = ['loaderprobe', 'report', *sys.argv[1:]]; sys.exit(main())"
    )

    def shown(*options: object) -> str:
        command = [sys.executable, "-c", script, str(run), *map(str, options)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "emulated" in shown().lower()
    assert all(len(line) <= 80 for line in shown().splitlines())
    assert shown("--format", "md").startswith("#")
    assert len(list(csv.DictReader(io.StringIO(shown("--format", "csv"))))) == 2
    assert json.loads(shown("--json"))["schema"] == "loaderprobe/summary"
    page = run.parent / "page.html"
    shown("-o", page)
    assert "<svg" in page.read_text()


def test_resuming_a_complete_run_measures_nothing(small_run: tuple[Path, dict[str, object]], loaderprobe: Run) -> None:
    """The measurements stay as they are, to the byte."""
    run, summary = small_run
    before = {path: path.read_bytes() for path in (run / "measurements").iterdir()}
    done = loaderprobe("sweep", "--resume", run, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == summary
    assert {path: path.read_bytes() for path in (run / "measurements").iterdir()} == before


def test_a_second_sweep_on_the_same_run_is_refused(small_run: tuple[Path, dict[str, object]], loaderprobe: Run) -> None:
    """While one process holds the run, another gets exit code 5."""
    run, _ = small_run
    with lock_directory(run):
        done = loaderprobe("sweep", "--resume", run)
    assert done.returncode == 5
    assert "another loaderprobe" in done.stderr


def test_a_directory_of_somebody_else_is_refused(loaderprobe: Run, tmp_path: Path, photographs: FileSet) -> None:
    """Neither data nor run goes where other files are."""
    (tmp_path / "precious").write_text("mine")
    done = loaderprobe(
        "sweep", photographs.root, "--compute", "emulated:9", "--workers", "1", "--out", tmp_path, *SMALL
    )
    assert done.returncode == 5
    assert (tmp_path / "precious").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious"]


@pytest.mark.alone  # real steps within a budget
def test_ones_own_photographs_with_rubbish_among_them(loaderprobe: Run, tmp_path: Path, photographs: FileSet) -> None:
    """Real steps on the CPU over a folder of images; damaged and foreign files are counted and named."""
    data = tmp_path / "photos"
    for index, path in enumerate(photographs.absolute(0, 12)):
        target = data / f"class{index % 2}" / f"{index}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (data / "class0" / "damaged.jpg").write_bytes(photographs.absolute(0, 1)[0].read_bytes()[:5000])
    (data / "class1" / "notes.txt").write_text("not an image")
    options = ("--no-serial", "--workers", 1, "--compute", "cpu", *SMALL, "--budget", 20)
    done = loaderprobe("sweep", data, *options, "--out", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    (info,) = json.loads(done.stdout)["run"]["data"]
    assert (info["images_used"], info["skipped_count"], info["generated"]) == (12, 2, False)
    assert any("damaged.jpg: damaged" in text for text in info["skipped"])
    assert any("notes.txt: not an image" in text for text in info["skipped"])


def test_a_failing_configuration_is_reported_and_the_others_go_on(
    loaderprobe: Run, tmp_path: Path, photographs: FileSet
) -> None:
    """With a loader whose worker is killed, the serial row fails too or not, but each has a row; the code is 4."""
    done = loaderprobe(
        "sweep", photographs.root, "--workers", 1, "--no-serial", "--compute", "emulated:100,emulated:200", *SMALL,
        "--loader", "tests.planted.loaders:KilledWorker", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert done.returncode == 4
    rows = json.loads(done.stdout)["configurations"]
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert all("killed by SIGKILL" in row["reason"] for row in rows)


def start_hanging(tmp_path: Path, photographs: FileSet) -> tuple[subprocess.Popen[str], Path, int]:
    """A sweep that hangs in its first configuration: (process, run directory, pipe that closes when the child ends)."""
    data = tmp_path / "data"
    (data / "a").mkdir(parents=True)
    for index, path in enumerate(photographs.absolute(0, 8)):
        (data / "a" / f"{index}.jpg").write_bytes(path.read_bytes())
    os.mkfifo(tmp_path / "alive")
    command = [
        sys.executable, "-m", "loaderprobe", "sweep", str(data), "--workers", "1", "--compute", "emulated:100",
        "--loader", "tests.planted.loaders:Hanging", "--out", str(tmp_path / "run"), *map(str, SMALL),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pipe = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    assert select.select([pipe], [], [], 60)[0], "the child did not come up"
    assert os.read(pipe, 5) == b"alive"
    os.set_blocking(pipe, True)
    return process, tmp_path / "run", pipe


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path, photographs: FileSet) -> None:
    """Exit code 130, the child and its workers are gone, the summary is there."""
    process, run, pipe = start_hanging(tmp_path, photographs)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert os.read(pipe, 1) == b""
    os.close(pipe)
    assert process.returncode == 130
    assert "--resume" in stderr
    assert json.loads((run / "summary.json").read_text())["run"]["pending"] == 2


def test_killing_the_sweep_loses_only_the_configuration_at_work(tmp_path: Path, photographs: FileSet) -> None:
    """After SIGKILL the child dies with its parent, the run opens, and nothing holds it."""
    process, run, pipe = start_hanging(tmp_path, photographs)
    process.kill()
    process.communicate(timeout=60)
    assert os.read(pipe, 1) == b""
    os.close(pipe)
    with RunDirectory.open(run).lock():
        assert not list((run / "failures").iterdir())


def test_doctor_gives_a_reason_for_everything_it_cannot_measure(loaderprobe: Run, tmp_path: Path) -> None:
    """Every line has a state and a why, at 80 columns, and nothing is left behind."""
    done = loaderprobe("doctor", tmp_path)
    assert done.returncode == 0
    assert "cold reads, proved" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert list(tmp_path.iterdir()) == []


def test_bandwidth_reads_cold_and_writes_nothing(loaderprobe: Run, photographs: FileSet) -> None:
    """Its JSON has a phase for each number of readers, and the folder is as it was."""
    before = sorted(Path(photographs.root).rglob("*"))
    done = loaderprobe("bandwidth", photographs.root, "--readers", "1,2", "--seconds", 0.2, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert [phase["readers"] for phase in found["phases"] if phase["name"] == "files"] == [1, 2]
    assert found["images"] is True
    assert all(phase["clat_ns"]["min"] <= phase["clat_ns"]["percentile"]["99.000000"] for phase in found["phases"])
    assert sorted(Path(photographs.root).rglob("*")) == before


def test_explain_lists_its_pages_and_prints_one(loaderprobe: Run) -> None:
    """Every page that is listed can be read."""
    listed = loaderprobe("explain").stdout.splitlines()
    assert listed
    for line in listed:
        assert len(loaderprobe(*line.split()[1:]).stdout) > 500

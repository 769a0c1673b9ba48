"""The command line as a person meets it: help, light imports, progress, and the small commands, each really run."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest
from PIL import Image
from rich.console import Console

import loaderprobe
from loaderprobe.api import shown
from loaderprobe.api.bandwidth import Bandwidth
from loaderprobe.api.batch_size import BatchSize
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.cli import border, main, progress
from loaderprobe.cli.attached import _say
from loaderprobe.compute.batch_size import TorchProber
from loaderprobe.datasets.generate.manifest import read_manifest
from loaderprobe.errors import BadValue
from loaderprobe.records.batch_size import BatchSizeProbe
from loaderprobe.records.environment import Capability
from loaderprobe.records.files import FileSet
from loaderprobe.records.remark import Remark, reported
from tests.cli.invoke import invoke
from tests.examples.bandwidth import example_bandwidth
from tests.stored import RUNS

ROOT = Path(__file__).parents[2]
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
COUNTED = """
own = {name: module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "loaderprobe"}
lines = sum(len(Path(file).read_text().splitlines()) for file in set(own.values()) if file)
heavy = {"torch", "pandas"} & set(sys.modules)
print(code, lines, heavy, *own, file=sys.stderr)
"""
SHOWING = f"""
import sys
from pathlib import Path
from loaderprobe.cli import main
sys.argv[0] = "loaderprobe"
code = main()
{COUNTED}"""
SWEEPING = f"""
import sys
from pathlib import Path
import loaderprobe.api.sweep, loaderprobe.cli.ranks, loaderprobe.cli.sweep
import loaderprobe.render.sweep
code = 0
{COUNTED}"""


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    """`--help` of the program and of every command loads neither torch nor pandas."""
    done = run_python(SHOW_HELP, "", *COMMANDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage") == 1 + len(COMMANDS)


STORED = "fixtures/runs/storage"
MEASURING = ("measure", "compute", "loaders", "samplers", "storage", "datasets", "system")
IN_CHILDREN = ("measure.session", "measure.segments", "measure.user", "measure.attach", "measure.child", "samplers")


@pytest.mark.parametrize(
    ("script", "words", "most", "without"),
    [
        (SHOWING, ("report", STORED), 16_570, MEASURING), (SHOWING, ("plan", "--json", STORED), None, ()),
        (SHOWING, ("report", "--format", "csv", STORED), None, ()),
        (SHOWING, ("report", "--format", "html", STORED), None, ()), (SWEEPING, (), 26_050, IN_CHILDREN),
    ],
    ids=["report", "plan", "csv", "html", "the parent of a sweep"],
)  # fmt: skip
def test_a_command_loads_what_it_does_itself(
    script: str, words: tuple[str, ...], most: int | None, without: tuple[str, ...]
) -> None:
    """Judging needs the files and the records alone, pages and plans no torch or pandas, and the parent of a sweep not
    what runs in its children. Lines of all modules that are imported are what a reader must load to understand one
    command: the limit is the figure of the day, rounded up; lower it when that falls."""
    code, lines, heavy, *loaded = run_python(script, *words).stderr.split()
    sys.stdout.write(f"import closure: {int(lines):,} lines\n")
    assert code == "0" and (heavy == "set()" or script is SWEEPING) and int(lines) <= (most or sys.maxsize)
    assert not [name for name in loaded if without and name.removeprefix("loaderprobe.").startswith(without)]


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_terminal_of_another_encoding_is_written_to(monkeypatch: pytest.MonkeyPatch, errors: str) -> None:
    """What it cannot show is written out; so is a byte of a path that is no UTF-8. LC_ALL=C has other errors."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", errors=errors))
    border.show("\u2192 run\udcff")
    sys.stdout.flush()
    assert written.getvalue() == b"\\u2192 run\\udcff\n"


def without_reader() -> TextIO:
    """A pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


def full_disk() -> TextIO:
    return os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")


COMPARE = ("compare", *(str(RUNS / "cpu"),) * 2)
BANDWIDTH = ("bandwidth", "/data", "--quiet", "--json")


@pytest.mark.parametrize(
    ("words", "opened", "code", "says"),
    [
        (BANDWIDTH, without_reader, 130, ""), (BANDWIDTH, full_disk, 5, "no space left"),
        (BANDWIDTH, lambda: None, 130, ""), ((*COMPARE, "--html", "page.html"), full_disk, 5, "no space left"),
    ],
    ids=["without a reader", "full", "closed", "what is derived"],
)  # fmt: skip
def test_a_result_that_cannot_be_printed_is_kept(
    words: tuple[str, ...], opened: Callable[[], TextIO | None], code: int, says: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """As a result and as a page. The exit code is that of the command; only a full disk has one of its own."""
    found = Bandwidth.of(replace(example_bandwidth(), interrupted=True))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("loaderprobe.api.bandwidth.bandwidth", lambda *_, **__: found)
    monkeypatch.setattr("sys.argv", ["loaderprobe", *words, "--out", "found"])
    monkeypatch.setattr("sys.stdout", opened())
    assert main() == code
    if sys.stdout is not None:
        sys.stdout.close()
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said and Path("found/result.json").is_file()
    assert Path("page.html").is_file() == ("--html" in words)


def test_a_page_on_standard_output_is_all_that_is_printed(tmp_path: Path) -> None:
    """No text before it, nor after it or over its begin the line that says where the result is kept."""
    found = tmp_path / "found"
    done = invoke(*COMPARE, "--html", "/dev/stdout", "--out", found)
    assert done.stdout_bytes == (found / "report.html").read_bytes()


@pytest.mark.parametrize("opened", [without_reader, full_disk])
def test_a_reader_of_standard_error_may_leave(opened: Callable[[], TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of both, with `2>&1 | head`, and its disk may be full: the command has its own exit code."""
    monkeypatch.setattr("sys.argv", ["loaderprobe", "report", "/nowhere"])
    with opened() as stream:
        monkeypatch.setattr("sys.stderr", stream)
        assert main() == 2


@pytest.mark.parametrize(("code", "ends"), [("no data", "no data"), (7, None), (None, None)])
def test_what_ends_a_command_from_within_is_said(
    code: str | int | None, ends: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text is left to Python, which prints it and exits with code 1."""

    def leave(*_: object, **__: object) -> None:
        raise SystemExit(code)

    monkeypatch.setattr("loaderprobe.api.bandwidth.bandwidth", leave)
    monkeypatch.setattr("sys.argv", ["loaderprobe", "bandwidth", "/data", "--quiet"])
    with pytest.raises(SystemExit, match=ends) if ends else nullcontext():
        assert main() == (code or 0)


def test_mistakes_are_found_before_torch_is_imported(tmp_path: Path) -> None:
    """Names, values and paths: each is refused by a program that cannot import torch, and only the mistake is said."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    images = ["sweep", str(tmp_path / "other")]
    mistakes = (
        ["sweep", "/nowhere/at/all"], [*images, "--out", str(tmp_path / "other")], ["layers", "/nowhere/at/all"],
        [*images, "--loader", "ffcv"], [*images, "--compute", "tpu"], [*images, "--compute", "emulated:h100"],
        [*images, "--model", "resnet51"], ["layers", "--model", "resnet51"],
        [*images, "--compute", "emulated:100", "--precision", "fp16"],
    )  # fmt: skip
    done = json.loads(run_python(WITHOUT_TORCH, json.dumps(mistakes)).stdout)
    assert [code for code, _ in done] == [2, 5, 2, 2, 2, 2, 2, 2, 2]
    assert not any("training on the CPU" in said for _, said in done)


@pytest.mark.parametrize(
    ("number", "file", "code"),
    [
        (errno.EIO, "a.jpg", 3), (errno.EIO, None, 3), (errno.ESTALE, "a.jpg", 3), (errno.EREMOTEIO, "a.jpg", 3),
        (errno.ENOTCONN, "a.jpg", 3), (errno.ENOTCONN, None, 1), (errno.ETIMEDOUT, None, 1), (errno.ENXIO, "a.jpg", 1),
        (errno.ENODEV, "a.jpg", 1),
    ],
)  # fmt: skip
def test_a_disk_that_fails_is_no_bug(
    number: int, file: str | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is a file server that is gone: it says what failed, and where to look. A socket, which has no file, is."""

    def body() -> int:
        raise OSError(number, os.strerror(number), file)

    assert border.exit_code_of(body) == code
    said = " ".join(capsys.readouterr().err.split())
    assert os.strerror(number) in said
    if code == 3:
        assert f"error: {file or 'a file'} cannot be read: " in said and "try: check the disk, or the server" in said
    assert ("Traceback" in said) == (code == 1)


def test_the_version_and_each_page_that_explain_lists_are_printed() -> None:
    assert invoke("--version").stdout == f"loaderprobe {loaderprobe.__version__}\n"
    listed = invoke("explain").stdout.splitlines()
    assert listed and all(len(invoke(*line.split()[1:3]).stdout) > 500 for line in listed)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


BAR = "epoch 1:  42%|####"
STREAMS = [(Terminal, "xterm", f"{BAR}\r\x1b[K"), (Terminal, "dumb", BAR), (io.StringIO, "xterm", BAR)]


@pytest.mark.parametrize(("kind", "term", "shown"), STREAMS)
def test_a_line_takes_the_place_of_a_progress_bar(
    monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], term: str, shown: str
) -> None:
    """In a script that loaderprobe is attached to, in a terminal that can; a closed stream does not end training."""
    stream = kind()
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stderr", stream)
    stream.write(BAR)
    _say("script.round", {"round": "round 1"})
    assert stream.getvalue() == f"{shown}loaderprobe: round 1 …\n"
    stream.close()
    _say("script.round", {"round": "round 1"})
    monkeypatch.setattr("sys.stderr", None)
    _say("script.round", {"round": "round 1"})


@pytest.mark.parametrize(("term", "color"), [("xterm", True), ("dumb", False)])
def test_a_terminal_without_escapes_has_no_colour(monkeypatch: pytest.MonkeyPatch, term: str, *, color: bool) -> None:
    """TERM=dumb says so, as that of an editor."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert border.width_and_color()[1] is color


def test_progress_keeps_the_time_left_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long title is cut; what counts nothing prints nothing, not even a blank line before an error."""
    out = io.StringIO()
    monkeypatch.setattr(progress, "stderr", lambda: Console(file=out, width=80, force_terminal=True, color_system=None))
    call = border.Invocation(options=(), typed=())
    with pytest.raises(ValueError, match="wrong"), progress.counting(call):
        raise ValueError("wrong")
    assert out.getvalue() == ""
    with progress.counting(call) as update:
        update("12/48 1024x768, 16 workers, emulated:mlperf-h100-sync, cold, 4 ranks on 2 nodes", 3, 12)
    (*_, line) = [each for each in out.getvalue().splitlines() if "12/48 1024x768" in each]
    assert "3 of 12 0:00:0" in line and "…" in line
    monkeypatch.setattr(progress, "monotonic", itertools.count(0, 20).__next__)
    with progress.counting(call) as update:
        for text, done, total in (("1 reader", 0, 9), ("2 readers", 1, 9), ("opens", 2, 6), ("listing", 40, 80)):
            update(text, done, total)
    *_, first, second, third, fourth = [each for each in out.getvalue().splitlines() if " of " in each]
    # Bars that count on from each other have a common time; what does not begins with none.
    assert "0 of 9  " in first and "1 of 9, about 2 min 40 s left 0:00:0" in second
    assert "2 of 6, about 1 min 20 s left" in third and "40 of 80  " in fourth


@pytest.mark.parametrize(
    ("verb", "arguments", "says"),
    [
        ("bandwidth.bandwidth", ("bandwidth", "/data"), "reads for 3 s, up to five times that while its rate"),
        ("bandwidth.bandwidth", ("bandwidth", "/data"), "about 1 min 26 s in all. Ctrl-C ends with the phases so far."),
        ("bandwidth.bandwidth", ("bandwidth", "/data", "--readers", "1,4", "--seconds", 1), "about 18 s in all"),
        ("bandwidth.bandwidth", ("bandwidth", "/data", "--ranks", "1,2"), "once the processes of its ranks have"),
        ("batch_size.named_batch_size", ("batch-size",), "2 to 5 s, or of 5 steps where those take longer: the time"),
        ("layers.named_layers", ("layers",), "10 training steps without a profiler, and as many with: the time left"),
        ("generate.generate", ("generate", "data"), "the time left shows with the first. interrupted; the files"),
        ("diagnose.diagnose", ("diagnose", "x.py:f"), "about 30 s, 30 s more while the verdict is open; Ctrl-C ends"),
        ("diagnose.diagnose", ("diagnose", "x.py:f", "--budget", 20), "It measures for about 20 s; Ctrl-C ends with"),
        ("diagnose.diagnose", ("diagnose", "x.py:f", "--ranks", 2), "for about 1 min; Ctrl-C keeps nothing"),
    ],
)
def test_a_command_says_how_long_it_takes_and_ends_by_sigterm_as_by_ctrl_c(
    verb: str, arguments: tuple[Any, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it measures, and not with --quiet; without a traceback. Who calls it has its signals back."""

    def measure(*_: object, progress: Callable[[str, int, int], None], **__: object) -> None:
        progress("begun", 0, 2)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(f"loaderprobe.api.{verb}", measure)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCHLD)}
    try:
        for quiet in ((), ("--quiet",)):
            done = invoke(*arguments, *quiet)
            assert (done.exit_code, done.stdout, done.stderr.count("interrupted")) == (130, "", 1), done.stderr
            assert (says.partition(" interrupted")[0] in " ".join(done.stderr.split())) == (not quiet)
        assert {number: signal.getsignal(number) for number in before} == before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_time_left_includes_what_an_open_verdict_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the begin on, so that it is the most that a diagnosis takes."""
    seen: list[tuple[str, int, int]] = []

    def measure(_loader: object, _compute: object, _asked: object, on_stage: Callable[[str], None]) -> None:
        for stage in ("one", "two", "three"):
            on_stage(stage)
        raise KeyboardInterrupt

    monkeypatch.setattr("loaderprobe.api.diagnose.measure_loader", measure)
    monkeypatch.setattr("loaderprobe.api.diagnose.time.monotonic", iter((0.0, 4.0, 31.0, 65.0)).__next__)
    with pytest.raises(KeyboardInterrupt):
        loaderprobe.diagnose([1, 2], progress=lambda *now: seen.append(now))
    assert seen == [("one", 4, 60), ("two", 31, 60), ("three", 65, 65)]


def test_doctor_says_what_can_be_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With every reason, escaped in a notebook; for a file, of the folder around it, where nothing is left behind."""
    assert invoke("doctor", tmp_path).exit_code == 0 and list(tmp_path.iterdir()) == []
    asked: list[Path] = []
    made = (
        Capability(name="cold_reads", state="yes", why=(Remark(code="evicted"),)),
        Capability(name="gpu_sm_occupancy", state="no", why=(reported("<no GPU>"),), next_step="hopper_gpu"),
    )

    def capabilities(path: Path) -> tuple[Capability, ...]:
        asked.append(path)
        return made

    monkeypatch.setattr("loaderprobe.api.doctor.capabilities", capabilities)
    (tmp_path / "file").touch()
    found = loaderprobe.doctor(tmp_path / "file")
    assert (tuple(found), asked) == (made, [tmp_path])
    assert repr(found) == "<Capabilities: 1 of 2 can be measured in full>"
    assert "<no GPU>" in str(found) and "&lt;no GPU&gt;" in found._repr_html_()
    assert found[1].sentence == found[1].why[0].sentence == "<no GPU>"


def test_parquet_is_written_and_piped_where_pyarrow_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are those of a parquet file; without pyarrow it is a missing part, with the command that brings it."""
    run = RUNS / "cpu"
    with monkeypatch.context() as patched:
        patched.setattr("loaderprobe.api.shown.find_spec", lambda name: None)
        done = invoke("report", run, "--format", "parquet")
    assert (done.exit_code, done.stdout) == (3, "") and "pip install pyarrow" in done.stderr
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow", reason="pip install 'loaderprobe[parquet]'")
    assert invoke("report", run, "-o", tmp_path / "run.parquet").exit_code == 0
    piped = invoke("report", run, "--format", "parquet").stdout_bytes
    found, frame = pandas.read_parquet(io.BytesIO(piped)), loaderprobe.load(run).to_frame()
    assert piped[:4] == (tmp_path / "run.parquet").read_bytes()[:4] == b"PAR1"
    assert list(found.columns) == list(frame.columns) and list(found["key"]) == list(frame["key"])
    odd = shown.parquet(shown.frame({"reason": ["/data/\udcff.jpg is damaged", None], "rounds": [1, 2]}))
    assert pandas.read_parquet(io.BytesIO(odd)).loc[0, "reason"] == "/data/\\udcff.jpg is damaged"


def test_a_report_goes_into_a_pipe_and_through_a_link(tmp_path: Path) -> None:
    """Neither is replaced by a file, and a pipe takes nothing but the report; what is open here keeps what it held."""
    pipe, link, page, opened = (tmp_path / name for name in ("pipe", "link", "page.md", "all.txt"))
    os.mkfifo(pipe)
    link.symlink_to(page)
    words = ("report", RUNS / "bandwidth", "--format", "md")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert invoke(*words, "-o", pipe).stdout == ""
    assert invoke(*words, "-o", link).stdout == f"Report: {link}\n"
    assert os.read(reader, 1 << 16) == page.read_bytes() == invoke(*words).stdout_bytes
    os.close(reader)
    opened.write_text("before\n")
    with opened.open("ab") as stream:
        assert invoke(*words, "-o", f"/dev/fd/{stream.fileno()}").stdout == ""
    assert opened.read_bytes() == b"before\n" + page.read_bytes()
    assert pipe.is_fifo() and link.is_symlink() and len(list(tmp_path.iterdir())) == 4


LAYERS = ("layers", "--model", "lenet5", "--compute", "cpu", "--batch-size", 2, "--steps", 4)


def test_the_layers_of_a_named_model(tmp_path: Path, photographs: FileSet) -> None:
    """As JSON, in a directory with every layer as a row of a file; `report` shows it again. Loading is a part of the
    step where the images of a folder are trained on."""
    out = tmp_path / "found"
    done = invoke(*LAYERS, photographs.root, "--json", "--out", out)
    assert done.exit_code == 0 and "training steps" not in done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert json.loads((out / "result.json").read_text()) == found == json.loads(invoke("report", out, "--json").stdout)
    assert (found["model"], found["batch_size"], found["steps"]) == ("lenet5", 2, 4)
    assert found["parts"][0]["name"] == "load" and found["parts"][0]["ms"]["value"] > 0
    rows = list(csv.DictReader((out / "profile.csv").read_text().splitlines()))
    assert [row["layer"] for row in rows] == [layer["name"] for layer in found["layers"]]
    assert {"conv1", "fc3"} <= {row["layer"] for row in rows} and "<svg" in (out / "report.html").read_text()
    shown = invoke(*LAYERS, "--image-size", 32, "--out", tmp_path / "shown")
    assert "training steps" in shown.stderr and "11 of 11" in shown.stderr


def test_a_result_is_kept_where_the_command_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also when the user's code goes to another folder, as hydra does. What that prints is no result."""
    stored = Diagnosis.load(RUNS / "diagnose")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def goes_elsewhere(*_: object, **__: object) -> Diagnosis:
        os.chdir("elsewhere")
        os.write(1, b"epoch 1\n")  # as a process of the loader does
        return stored

    monkeypatch.setattr(sys.modules["loaderprobe.api.diagnose"], "diagnose", goes_elsewhere)
    done = invoke("diagnose", "train.py:make_loader", "--out", "found")
    assert done.exit_code == 0 and "Report: found/report.html" in done.stdout
    assert (tmp_path / "found" / "report.html").is_file()
    assert capfd.readouterr() == ("", "epoch 1\n")


BUFFERED = """
import ctypes, sys
from loaderprobe.api.diagnose import prints_to_stderr
with prints_to_stderr():
    sys.__stdout__.write("of Python\\n")
    ctypes.CDLL(None).puts(b"of C")
print("result")
"""


def test_what_is_buffered_of_user_code_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where standard output is a file or a pipe, which Python and C each have a buffer for."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    done = run_python(BUFFERED)
    assert (done.stdout, done.stderr) == ("result\n", "of Python\nof C\n")


SMALL = ("--resolutions", "64x48", "--count", 70, "--pool", 4)


def test_sets_are_generated_and_named(tmp_path: Path) -> None:
    """One directory for each resolution, and ImageNet's mixture beside them. Progress, and the command that measures
    from them, are not on standard output."""
    done = invoke("generate", tmp_path, "--resolutions", "64x48,imagenet", "--images", 8, "--pool", 2)
    assert (done.exit_code, done.stdout.split()) == (0, [str(tmp_path / "64x48"), str(tmp_path / "imagenet")])
    assert len(list(tmp_path.rglob("*.JPEG"))) == 16 and f"loaderprobe sweep {tmp_path}\n" in done.stderr
    options: dict[str, Any] = {"resolutions": ["64x48"], "count": 4, "classes": 2, "pool": 4, "mean_size": "3kB"}
    made = loaderprobe.generate(tmp_path / "python", **options)
    assert (manifest := read_manifest(made[0])) and manifest.spec.mean_bytes == 3000
    assert tuple(made) == (tmp_path / "python" / "64x48",) and len(list(made[0].rglob("*.JPEG"))) == 4
    assert str(made) == f"{made[0]}\n" and str(made[0]) in repr(made) and str(made[0]) in made._repr_html_()


def test_verify_says_what_is_damaged(tmp_path: Path) -> None:
    """A whole set ends with 0; a damaged one names the file, ends with 4 and can be repaired; no set is a bad path."""
    invoke("generate", tmp_path, *SMALL, "--oddities", "all")
    kinds = set()
    for path in tmp_path.rglob("*.JPEG"):
        with Image.open(path) as image:
            kinds.add((image.format, image.mode))
    assert kinds == {("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGB")}
    done = invoke("generate", tmp_path, "--verify")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / '64x48'}: every file is whole\n")
    victim = next(tmp_path.rglob("*.JPEG"))
    victim.write_bytes(b"")
    done = invoke("generate", tmp_path, "--verify")
    assert done.exit_code == 4 and victim.name in done.stdout and "repair" in done.stderr
    spec = (tmp_path / "64x48/spec.json").rename(tmp_path / "spec")
    (tmp_path / "64x48/spec.json").touch()
    assert invoke("generate", tmp_path, "--verify").stdout == done.stdout
    spec.replace(tmp_path / "64x48/spec.json")
    assert invoke("generate", tmp_path, *SMALL, "--oddities", "all").exit_code == 0
    assert invoke("generate", tmp_path, "--verify").exit_code == 0
    assert invoke("generate", tmp_path / "64x48" / "train", "--verify").exit_code == 2


PROBED = ("batch-size", "--model", "lenet5", "--compute", "cpu", "--image-size", 32, "--max", 8)
PROBED_BRIEFLY = (*PROBED, "--iterations", 2)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("strategy", "options", "says"),
    [
        ("throughput", (), "Up to 32 short trainings"),
        ("gpu-usage", ("--max", 14), "Up to 100 trainings (loops) of 2 steps"),
        ("epoch-time", ("--max", 14, "--quiet"), ""),
    ],
)
def test_a_directory_has_every_probe(strategy: str, options: tuple[Any, ...], says: str, tmp_path: Path) -> None:
    """As JSON, as rows, and as a chart of the rate and a table; `report` shows it again. A strategy of the paper shows
    its loops, in order, with usage and improvement, and why it ended."""
    out = tmp_path / "found"
    done = invoke(*PROBED_BRIEFLY, *options, "--strategy", strategy, "--out", out)
    said = " ".join(done.stderr.split())
    assert done.exit_code == 0 and says in said and bool(said) == bool(says), said
    found = json.loads((out / "result.json").read_text())
    assert [found[name] for name in ("schema", "strategy", "utilization_of")] == [
        "loaderprobe/batch-size", strategy, "cores",
    ]  # fmt: skip
    rows = csv.DictReader((out / "probes.csv").read_text().splitlines())
    probed = [each["batch_size"] for each in found["probes"]]
    assert [int(row["batch_size"]) for row in rows] == probed
    assert json.loads(invoke("report", out, "--json").stdout) == found
    page, stop = (out / "report.html").read_text(), found["stop"]
    assert page.count('<figure class="bars"') == 1 and "memory" in page
    assert invoke("report", out, "--format", "html").stdout == page
    if strategy != "throughput":
        assert probed[:2] == [10, 12] or stop["code"] != "at_maximum"
        assert f"{strategy} ends at batch {stop['chosen']}" in done.stdout
        assert "Loops, in order" in done.stdout and "improvement" in done.stdout


ENDED = "Ctrl-C came before it was judged"


@pytest.mark.parametrize(
    ("searching", "error", "code", "says"),
    [
        (False, BadValue("there was no time"), 0, "there was no time"), (False, KeyboardInterrupt(), 130, ENDED),
        (True, KeyboardInterrupt(), 130, ENDED), (True, signal.SIGTERM, 130, ENDED),
    ],
)  # fmt: skip
def test_batches_of_a_folder_are_judged(
    searching: bool, error: BaseException | signal.Signals, code: int, says: str, tmp_path: Path, photographs: FileSet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By `diagnose` at the chosen size. Where that finds nothing, or Ctrl-C comes then or after the first probe, the
    reason stands there: nothing more is measured, and the probes are kept. SIGTERM is as Ctrl-C."""
    probes, sizes = list[BatchSizeProbe](), list[int]()

    def fail() -> None:
        if isinstance(error, BaseException):
            raise error
        assert signal.getsignal(error) is border.as_ctrl_c
        signal.raise_signal(error)

    def probe(self: TorchProber, size: int) -> BatchSizeProbe:
        if searching and probes:
            fail()
        probes.append(probed(self, size))
        return probes[-1]

    def diagnosis(loader: Any, *_: object, **__: object) -> None:
        sizes.append(loader.batch_size)
        fail()

    probed = TorchProber.probe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(TorchProber, "probe", probe)
    monkeypatch.setattr("loaderprobe.api.batch_size.diagnose", diagnosis)
    small = [each for each in PROBED_BRIEFLY if each not in ("--image-size", 32)]
    done = invoke(*small, photographs.root, "--max", 2, "--out", tmp_path / "o", "--quiet")
    assert done.exit_code == code, done.stderr
    found = BatchSize.load(tmp_path / "o")
    assert (found.probes, found.data, found.limit != "compute") == (tuple(probes), str(photographs.root), True)
    assert sizes == ([] if searching else [found.stop.chosen]) and (found.stop.code == "interrupted") == searching
    says = f"What limits training at batch {found.stop.chosen} is not known: {says}."
    assert says in " ".join(done.stdout.split())

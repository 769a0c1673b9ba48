"""`loaderprobe run -- COMMAND`: attached through the environment, to whatever Python the command starts."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from loaderprobe.api.run import STARTUP, VARIABLE, Ran, Watch, keep, keep_seen
from loaderprobe.api.shown import usual_out
from loaderprobe.cli.attached import _sigterm_as_ctrl_c, with_error
from loaderprobe.errors import Refused
from loaderprobe.records.attached import Attached, AttachRequest
from loaderprobe.records.rank_processes import RankMeasurement
from loaderprobe.store.codec import decode
from tests.cli.invoke import invoke
from tests.examples import fastai_load

ROOT = Path(__file__).parent.parent.parent


IMPORTS = """
import multiprocessing, sys, time, torch
from pathlib import Path
from torch.utils.data import DataLoader
from tests.examples.iterated import Stateful, over
from tests.examples.training import Costly, Training
"""


def run(
    python: str, out: Path, *command: str, options: tuple[str, ...] = ("--budget", "0.5"), script: str = "",
    **variables: str,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """The command, measured by `python`; `script` is that of `train.py`, after IMPORTS."""
    if script:
        (out / "train.py").write_text(IMPORTS + script)
    words = [python, "-m", "loaderprobe", "run", "--out", str(out / "found"), *options, "--", *command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=out, env=environment)


def test_a_script_is_measured_below_a_shell(tmp_path: Path, python: str) -> None:
    """The verdict is printed and kept. Its loader has iterators of its own: nothing of torch's loader runs before."""
    script = "over(Stateful(Costly(), 8, shuffle=True))(Training(Path('.')))"
    done = run(python, tmp_path, "sh", "-c", f"{python} train.py", script=script)
    assert done.returncode == 0, done.stderr
    assert "measuring loader 0 (Costly, batch size 8, serial)" in done.stderr and "thrown away" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 100
    assert "Report: found/report.html" in done.stdout
    result = json.loads((tmp_path / "found" / "result.json").read_text())
    assert result["schema"] == "loaderprobe/diagnosis" and result["configuration"]["batch_size"] == 8
    shown = invoke("report", tmp_path / "found").stdout
    assert shown.splitlines()[0] in done.stdout


def test_spawned_workers_inherit_the_environment_and_are_left_alone(tmp_path: Path, python: str) -> None:
    """The script is watched, and only it speaks; so few steps give no verdict, as the exit code says."""
    script = (
        "if __name__ == '__main__':\n"
        "    training = Training(Path('.'))\n"
        "    for batch in DataLoader(Costly(), 8, num_workers=1, multiprocessing_context='spawn'):\n"
        "        training.step(batch)\n"
    )
    done = run(python, tmp_path, python, str(tmp_path / "train.py"), options=("--watch",), script=script)
    assert done.returncode == 2 and "too few training steps" in done.stdout, done.stderr
    assert json.loads((tmp_path / "found" / "result.json").read_text())["loader"] == "Costly"
    assert "no verdict" not in done.stderr


def as_fastai(folder: Path, text: str) -> None:
    """The module that loaderprobe attaches to, as a script beside it imports it."""
    (folder / "fastai" / "data").mkdir(parents=True)
    (folder / "fastai" / "data" / "load.py").write_text(text)


def test_a_learner_of_fastai_is_watched_and_draws_the_same_random_numbers(tmp_path: Path, python: str) -> None:
    """Its loader is no torch DataLoader; loaderprobe is attached by the first loop over it, in the middle of a run.
    Ctrl-C ends it as ever."""
    as_fastai(tmp_path, Path(fastai_load.__file__).read_text())
    script = (
        "import random\nfrom fastai.data.load import DataLoader\n"
        "training, loader = Training(Path('.')), DataLoader(Costly(), 8)\nrandom.seed(1)\n"
        "for batch in loader:\n    training.step(batch)\nprint('drawn', random.random())\nraise KeyboardInterrupt\n"
    )
    script = IMPORTS.replace("from torch.utils.data import DataLoader\n", "") + script
    (tmp_path / "train.py").write_text(script)
    done = run(python, tmp_path, sys.executable, "train.py", options=("--watch",))
    assert done.returncode == 130 and "too few training steps" in done.stdout, done.stderr
    assert json.loads((tmp_path / "found" / "result.json").read_text())["loader"] == "FastaiItems"
    assert f"drawn {random.Random(1).random()}\n" in done.stdout


def test_another_fastai_is_imported_as_ever(tmp_path: Path) -> None:
    """One that keeps its iterators under another name."""
    as_fastai(tmp_path, "held = 1\n")
    done = subprocess.run(
        [sys.executable, "-c", "import fastai.data.load as load; print(load.held, '_loaders' in vars(load))"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(STARTUP), str(tmp_path)]), VARIABLE: "{}"},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("1 False\n", "")


SECRETS = (
    "--hf-token", "planted1", "--db.password=planted2", "API_KEY=planted3", "s3://me:planted4@host/d?sig=planted5",
)  # fmt: skip


@pytest.mark.parametrize(("option", "steps", "code"), [("--watch", 60, 2), ("--budget=1", 2, 1)])
def test_secrets_are_in_no_file_and_in_no_output(
    option: str, steps: int, code: int, tmp_path: Path, python: str
) -> None:
    """Planted in the environment, on the command line and in the script's error; the command is stored without them."""
    script = (
        "training, data = Training(Path('.')), Costly()\n"
        f"for number, batch in zip(range({steps}), DataLoader(data, 8)):\n    training.step(batch)\n"
        f"sys.excepthook = lambda *_: None\nif {code == 1}: raise OSError('no ' + sys.argv[-1])\n"
    )
    done = run(python, tmp_path, python, "train.py", *SECRETS, options=(option,), script=script, HF_TOKEN="planted6")
    assert done.returncode == code, done.stderr
    kept = "".join(path.read_text() for path in (tmp_path / "found").glob("*"))
    assert "planted" not in done.stdout + done.stderr + kept
    said = " ".join(done.stderr.split())
    masked = "--hf-token '***' '--db.password=***' 'API_KEY=***' 's3://***@host/d?***'"
    error = "no verdict: the script ended with an error of its own: OSError: no s3://***@host/d?***"
    assert error in said if code == 1 else masked in kept
    assert "--loader" not in said


NO_LOADER = """
training = Training(Path("."))

def get_batch():
    end = time.thread_time() + 0.006
    while time.thread_time() < end:
        pass
    return torch.rand(8, 10), torch.zeros(8).long()

for step in range(260):
    if step % 150 == 0:
        with torch.no_grad():
            training.model(get_batch()[0])
    training.step(get_batch())
torch.save(training.model.state_dict(), "model.pt")
"""


def test_a_script_without_a_loader_is_seen_from_outside(tmp_path: Path, python: str) -> None:
    """As nanoGPT is, whose loop makes its batches. It trains on and saves; where its time goes is estimated."""
    done = run(python, tmp_path, python, "train.py", script=NO_LOADER)
    assert done.returncode == 2, done.stderr
    said = " ".join(done.stderr.split())
    assert "100 backward passes without a new batch of a torch DataLoader" in said
    assert "batches come otherwise. Try: loaderprobe.diagnose(loader, step)" in said
    assert re.search(r"estimated from \d+ steps of \S+ ms in which the loop's calls were timed:", said)
    assert re.search(r"\d+ % \(±\S+ %\) of a step is in get_batch \(train.py:\d+\)", said), said
    assert (tmp_path / "model.pt").exists()


OWN_BACKWARD = """
loader = DataLoader(torch.randn(64, 10), batch_size=8)
if sys.argv[1] == "attached first":
    next(iter(loader))
original, calls = torch.autograd.backward, []
def counted(*given, **named):
    calls.append(1)
    return original(*given, **named)
torch.autograd.backward = counted
model = torch.nn.Linear(10, 10)
for batch in loader:
    model(batch).sum().backward()
print("calls:", len(calls))
"""


@pytest.mark.parametrize("when", ["attached first", "replaced first"])
def test_what_a_script_puts_in_place_of_torch_stays(when: str, tmp_path: Path, python: str) -> None:
    """Its own backward is called once for each pass, before and after loaderprobe is attached."""
    done = run(python, tmp_path, python, "train.py", when, script=OWN_BACKWARD)
    assert "calls: 8" in done.stdout, done.stderr


def test_processes_that_train_without_a_group_are_not_measured(tmp_path: Path, python: str) -> None:
    """Each finds that the other trains, and goes on to its end."""
    script = (
        "def train(number, barrier):\n"
        "    training = Training(Path('.'))\n"
        "    for epoch in range(2):\n"
        "        for batch in training.loader:\n"
        "            training.step(batch)\n"
        "            if training.steps == 1:\n"
        "                barrier.wait()\n"
        "    Path(f'ended-{number}').touch()\n"
        "    barrier.wait()\n"
        "context = multiprocessing.get_context('fork')\n"
        "barrier = context.Barrier(2)\n"
        "all = [context.Process(target=train, args=(number, barrier)) for number in range(2)]\n"
        "[each.start() for each in all]\n"
        "[each.join() for each in all]\n"
    )
    done = run(python, tmp_path, python, "train.py", script=script)
    assert done.returncode == 2, done.stderr
    said = " ".join(done.stderr.split())
    assert said.count("2 processes train at the same time, not joined by torch.distributed") >= 2
    assert "measuring loader" not in done.stderr
    assert sorted(each.name for each in tmp_path.glob("ended-*")) == ["ended-0", "ended-1"]


ENDS: tuple[tuple[tuple[str, ...], set[int], str], ...] = (
    (("ends.py",), {7}, "no verdict"),
    (("true",), {2}, "no torch DataLoader was iterated"),
    ((sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(signal.SIGINT)})"), {130, 1}, "no verdict"),
    (("stopped.py",), {130}, "no verdict: interrupted before there was a verdict. Try: the same command again"),
)
STOPPED = """
training = Training(Path("."))
for batch in training.loader:
    training.step(batch)
    if training.steps == 15:
        raise KeyboardInterrupt
"""


@pytest.mark.parametrize(("command", "codes", "says"), ENDS)
def test_the_exit_code_is_that_of_the_command(
    command: tuple[str, ...], codes: set[int], says: str, tmp_path: Path, python: str
) -> None:
    """Where that is not 0; a script is a command, too. Ctrl-C ends it as it would without loaderprobe; while it is
    measured, without a traceback."""
    (tmp_path / "ends.py").write_text("raise SystemExit(7)\n")
    (tmp_path / "stopped.py").write_text(IMPORTS + STOPPED)
    done = run(python, tmp_path, *command)
    said = " ".join(done.stderr.split())
    assert done.returncode in codes and says in said and not (tmp_path / "found").exists()
    assert "measuring loader 0" not in said or "Traceback" not in said


def test_another_commands_result_is_neither_shown_nor_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one was kept in the same place meanwhile; usually two commands of one second have places of their own."""
    found = tmp_path / "found"
    others = f"mkdir {found} && cp {ROOT / 'fixtures/runs/run/result.json'} {found}"
    done = invoke("run", "--out", found, "--", "sh", "-c", others)
    assert (done.exit_code, done.stdout) == (2, "") and "no torch DataLoader was iterated" in done.stderr
    moments = (datetime(2026, 11, 27, 1, 30, 5, each) for each in (1, 2))
    monkeypatch.setattr("loaderprobe.system.host.local_now", lambda: next(moments))
    assert usual_out("run") != usual_out("run")


KEEPS = """
import os, sys
from contextlib import suppress
from pathlib import Path
from loaderprobe.api.load import load_any
from loaderprobe.api.run import VARIABLE, keep, requested
from loaderprobe.errors import LoaderprobeError
with suppress(LoaderprobeError):
    keep(load_any(Path(sys.argv[1])), requested(os.environ[VARIABLE]), raw="RAW" in os.environ)
os._exit(0)
"""


def keeping(name: str, before: str) -> tuple[str, ...]:
    """A command that keeps this stored result, as a script does, and ends as one that is killed then."""
    Path("keeps.py").write_text(KEEPS)
    return "sh", "-c", f"{before} && {sys.executable} keeps.py {ROOT}/fixtures/runs/{name}"


@pytest.mark.parametrize(
    ("meanwhile", "code", "says"),
    [
        ("true", 0, ""), ("touch found", 3, "found cannot be written"),
        ("mkdir -p found/.report.html.part; export RAW=1", 3, "found/report.html cannot be written"),
        (f"mkdir found && cp {ROOT}/fixtures/runs/watch/result.json found", 5, "found holds another result"),
    ],
)  # fmt: skip
def test_a_verdict_that_cannot_be_kept_is_shown(
    meanwhile: str, code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason; the result of another command in the same place stays."""
    monkeypatch.chdir(tmp_path)
    done = invoke("run", "--out", "found", "--", *keeping("run", meanwhile))
    assert done.exit_code == code and says in done.stderr, done.stderr
    assert invoke("report", ROOT / "fixtures/runs/run").stdout in done.stdout
    assert ("Report: found/report.html" in done.stdout) == Path("found/report.html").is_file() == (code == 0)
    if code == 5:
        assert Watch.load("found").loader


def test_a_training_that_outlives_the_command_goes_on_to_keep_its_result(tmp_path: Path) -> None:
    """In place of its own one, not of another's; the directory in which it left word for the command is gone."""
    request = AttachRequest(run=str(tmp_path / "found"), scratch=str(tmp_path / "gone"), command="", budget_s=None)
    found = Watch.load(ROOT / "fixtures/runs/watch")
    keep(found, request, raw=True)
    later = replace(found, overhead_s=9.0)
    keep(later, request)
    assert Watch.load(tmp_path / "found") == later and (tmp_path / "found" / "report.html").is_file()
    keep_seen(Attached(pid=1, loaders=(), why_not=None), request)
    with pytest.raises(Refused, match="another result"):
        keep(found, replace(request, scratch=str(tmp_path / "gone too")))


@pytest.mark.parametrize(("on_gpu", "code"), [(True, 0), (False, 2)])
def test_a_watched_training_on_a_gpu_has_no_verdict_and_is_done(
    on_gpu: bool, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates and waits are all that is asked for there."""
    found = replace(Watch.load(ROOT / "fixtures/runs/watch"), bound=None, on_gpu=on_gpu)
    ran = Ran(exit_code=0, result=found, processes=())
    monkeypatch.setattr("loaderprobe.api.run.run_command", lambda *_: ran)
    assert invoke("run", "--watch", "--out", tmp_path / "found", "--", "true").exit_code == code


@pytest.mark.parametrize("before", [[], ["--"]])
def test_what_stands_behind_a_command_is_its_own(before: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an option that `run` has, too, with `--` before the command and without."""
    asked = Mock(return_value=Ran(exit_code=0, result=None, processes=()))
    monkeypatch.setattr("loaderprobe.api.run.run_command", asked)
    command = ["python", "train.py", "--epochs", "3", "--budget", "7", "-o", "x"]
    typed = ["run", "--budget", "5", *before, *command]
    monkeypatch.setattr(sys, "argv", ["loaderprobe", *typed])
    assert invoke(*typed).exit_code == 2, "no verdict"
    words, request, _ = asked.call_args.args
    assert (words, request.budget_s) == (command, 5)
    assert request.command == f"loaderprobe run --budget 5 -- {' '.join(command)}"


def test_ctrl_c_is_no_error_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Attached(pid=1, loaders=(), why_not="ended_early")
    for error, why_not in ((KeyboardInterrupt(), "ended_early"), (KeyError(), "script_error")):
        monkeypatch.setattr(sys, "last_value", error, raising=False)
        assert with_error(seen).why_not == why_not


def test_sigterm_ends_a_measurement_once_and_is_given_back() -> None:
    """A group and its parent may both send it. A handler of the script stays, also once the measurement is over."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCHLD)}
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        give_back = _sigterm_as_ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        give_back()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _sigterm_as_ctrl_c()()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_what_a_script_has_kept_before_it_is_killed_is_a_whole_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With its page; of `--json` standard output has that alone, not what the script prints."""
    monkeypatch.chdir(tmp_path)
    done = invoke("run", "--watch", "--json", "--out", "found", "--", *keeping("watch", "echo epoch 1; export RAW=1"))
    assert json.loads(done.stdout)["schema"] == "loaderprobe/watch", done.stderr
    assert capfd.readouterr() == ("", "epoch 1\n")
    assert (tmp_path / "found" / "report.html").exists()


def test_two_ranks_are_measured_together(tmp_path: Path, python: str) -> None:
    """In the same steps. Rank 0 speaks, once, and both have ended."""
    launcher = (python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--no-python")
    done = run(python, tmp_path, *launcher, python, "-m", "tests.examples.ranks", "plain")
    stdout, stderr = done.stdout, done.stderr
    assert done.returncode == 0, stderr
    assert stderr.count("on 2 ranks together") == stderr.count("round 1") == 1
    assert "2 ranks, each serial, 8 a batch" in stdout
    assert "ended by itself" not in stdout
    found = json.loads((tmp_path / "found" / "result.json").read_text())
    assert (found["configuration"]["ranks"], found["configuration"]["batch_size"]) == (2, 8)
    assert [each["batch_size"] for each in found["measurement"]["segments"][:1]] == [16]
    files = sorted((tmp_path / "found" / "ranks").iterdir())
    ranks = [decode("rank-measurement", each.read_bytes(), RankMeasurement, each.name) for each in files]
    assert [each.rank for each in ranks] == [0, 1]
    first, second = ([(s.mode, s.activity, s.steps) for s in each.measurement.segments] for each in ranks)
    assert first == second and first

"""The run directory: results kept, resumed by content and locked; its files are whole, checked, or refused by name."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loaderprobe.api.load import load_any
from loaderprobe.errors import (
    BadValue,
    DamagedRun,
    ForeignDirectory,
    Locked,
    MissingPart,
    NoSpace,
    Refused,
)
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.config import SweepSpec
from loaderprobe.records.report import DamagedFile
from loaderprobe.render.json import result_json
from loaderprobe.store.codec import encode, file_to_write, write_atomically
from loaderprobe.store.results import check_out, read_result
from loaderprobe.store.run_directory import (
    RunDirectory,
    RunRecord,
    lock_directory,
)
from tests.analyze.runs import FILES, alike, rank_run
from tests.analyze.scripted import Truth, measured
from tests.conftest import AsUnprivileged
from tests.examples.bandwidth import example_bandwidth, example_operations
from tests.fakes import example_environment
from tests.stored import failure

MEASURED = measured(Truth(), 2)
CONFIG = MEASURED.config
FAILURE = failure(CONFIG, hint="repair it", signal="SIGKILL", log=("last words",))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of one configuration."""
    return RunDirectory.create(tmp_path / "run", _record(), [FILES])


def _record() -> RunRecord:
    return RunRecord(created_utc="now", spec=SweepSpec(configs=(CONFIG,)), environment=example_environment())


def test_ranks_have_files_of_their_own(run: RunDirectory) -> None:
    """They come back with the measurement, of which each takes at most 4 kB; damage of one is that of all, as is one of
    another measurement."""
    measured, longer = (rank_run(alike(rounds, baseline=100.0), ranks=3) for rounds in (3, 4))
    key = measured.config.key
    run.save(longer)
    files = sorted((run.path / "measurements" / key).iterdir())
    of_longer = files[2].read_bytes()
    run.save(measured)
    assert run.result(key) == measured
    assert [each.name for each in files] == ["rank-0.json", "rank-1.json", "rank-2.json"]
    assert max(each.stat().st_size for each in files) <= 4096

    def damage() -> DamagedFile:
        found = run.result(key)
        assert isinstance(found, DamagedFile) and not run.has_measurement(key)
        return found

    files[2].write_bytes(of_longer)
    assert "another measurement" in damage().reason
    files[2].write_bytes(files[1].read_bytes())
    assert "rank-2.json" in damage().file
    files[1].unlink()
    assert damage().reason == "is missing from the run"
    run.save(measured)
    assert run.has_measurement(key)


def test_further_rounds_that_are_cut_off_while_they_are_saved_cost_nothing(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its files is the last that is written, the run holds all rounds before, or all with the new."""
    earlier, longer = (rank_run(alike(rounds, baseline=100.0), ranks=3) for rounds in (3, 4))
    found = []
    for whole in range(5):
        run.save(earlier)
        left = iter(range(whole))

        def write(_: int, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(os, "fsync", write)
            run.save(longer)
        found.append(run.result(earlier.config.key))
    assert found == [earlier, *[longer] * 4]


def test_a_run_opens_with_what_was_asked_and_its_files(run: RunDirectory) -> None:
    """Spec, environment and file sets are those it was made with; another budget changes nothing else."""
    opened = RunDirectory.open(run.path)
    assert opened.record == run.record
    assert opened.files(CONFIG.data) == FILES
    assert opened.result(CONFIG.key) is None
    asked = run.record
    run.ask(replace(asked.spec, budget_s=77.0))
    found = RunDirectory.open(run.path).record
    assert found == run.record and found.spec.budget_s == 77.0
    assert replace(found, spec=replace(found.spec, budget_s=asked.spec.budget_s)) == asked


def test_what_is_not_a_run_is_refused(tmp_path: Path, run: RunDirectory) -> None:
    """Without a file set, a foreign directory, one that holds a run: nothing in them is changed."""
    with pytest.raises(BadValue, match="missing from the run"):
        run.files("0" * 16)
    (tmp_path / "precious").write_text("mine")
    before = (run.path / "run.json").read_bytes()
    with pytest.raises(ForeignDirectory):
        RunDirectory.create(tmp_path, run.record, [FILES])
    with pytest.raises(Refused, match="already holds a run") as caught:
        RunDirectory.create(run.path, run.record, [])
    assert "--resume" in caught.value.hint and (run.path / "run.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "run"]


def test_a_damaged_measurement_is_measured_again(run: RunDirectory) -> None:
    """It does not count as measured, its place is named, and a later failure says more than the damage."""
    run.save(MEASURED)
    assert run.has_measurement(CONFIG.key)
    path = run.path / "measurements" / f"{CONFIG.key}.json"
    path.write_bytes(path.read_bytes()[:-10])
    assert not run.has_measurement(CONFIG.key)
    found = run.result(CONFIG.key)
    assert isinstance(found, DamagedFile) and found.file == f"measurements/{CONFIG.key}.json"
    run.save(FAILURE)
    assert run.result(CONFIG.key) == FAILURE
    run.save(MEASURED)
    assert run.has_measurement(CONFIG.key)


@pytest.mark.parametrize("name", ["../../aside", "", "x", "0" * 17, "0" * 15 + "/", "0" * 16 + "\n"])
def test_only_a_key_names_a_file(run: RunDirectory, name: str) -> None:
    """Whatever stands in a stored record, no path outside the run is made of it."""
    for ask in (run.result, run.files, run.ceiling):
        with pytest.raises(BadValue, match="names no file of a run"):
            ask(name)


@pytest.mark.parametrize(
    "changes", [{"root": "here"}, {"paths": ("../secret",)}, {"paths": ("/etc/passwd",)}, {"paths": ("a\0b",)}]
)
def test_files_are_those_of_their_name_and_under_their_root(run: RunDirectory, changes: dict[str, object]) -> None:
    """A list whose content does not fit its name is refused, and so is one that leads out of its folder."""
    one = {"paths": ("a",), "classes": (0,), "size_bytes": (1,)}
    odd = replace(FILES, **(one | changes))  # type: ignore[arg-type]  # by name
    (run.path / "files" / f"{odd.fingerprint}.json").write_bytes(encode("files", odd))
    with pytest.raises(DamagedRun, match="is not under"):
        run.files(odd.fingerprint)
    (run.path / "files" / f"{CONFIG.data}.json").write_bytes(encode("files", odd))
    with pytest.raises(DamagedRun, match="other files than its name says"):
        run.files(CONFIG.data)


HOLD = (
    "import sys; from pathlib import Path; from loaderprobe.store.run_directory import lock_directory\n"
    "with lock_directory(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run of this folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


@pytest.mark.usefixtures("impatient")
def test_another_process_is_refused_until_the_holder_is_gone(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """The lock of a process that was killed is free: no user has to remove a file."""
    with pytest.raises(Locked) as caught, lock_directory(tmp_path):
        pytest.fail("both hold it")
    assert str(tmp_path) in caught.value.message and caught.value.hint
    holder.kill()
    holder.wait()
    with lock_directory(tmp_path):
        pass


def test_a_lock_is_free_once_the_workers_of_a_killed_process_are_gone(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers inherit the lock and die a moment later than the process that was killed."""

    def refused_once(*arguments: Any) -> None:
        try:
            flock(*arguments)
        except OSError:
            holder.kill()
            holder.wait()
            raise

    flock = fcntl.flock
    monkeypatch.setattr("fcntl.flock", refused_once)
    with lock_directory(tmp_path):
        assert holder.returncode


def test_of_two_that_begin_the_same_run_one_is_refused(
    tmp_path: Path, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has made it while this one waited for the lock."""

    @contextmanager
    def second(path: Path) -> Iterator[None]:
        monkeypatch.undo()
        RunDirectory.create(path, run.record, [FILES])
        with lock_directory(path):
            yield

    monkeypatch.setattr("loaderprobe.store.run_directory.lock_directory", second)
    with pytest.raises(Refused, match="already holds a run"):
        RunDirectory.create(tmp_path / "new", run.record, [])
    assert RunDirectory.open(tmp_path / "new").files(CONFIG.data) == FILES


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("ask", "error"), [(RunDirectory.check_new, MissingPart), (check_out, MissingPart), (load_any, DamagedRun)]
)
def test_what_is_in_a_folder_of_another_user_is_not_known(
    ask: Callable[[Path], Any], error: type[Exception], tmp_path: Path, open_path: Path, as_unprivileged: AsUnprivileged
) -> None:
    """Where it may not be entered, nothing can be kept there, and nothing is shown; nor can a run there be locked."""
    run = RunDirectory.create(open_path / "run", _record(), [])
    with as_unprivileged():
        with pytest.raises(error, match="Permission denied"):
            ask(tmp_path / "run")
        with pytest.raises(MissingPart, match="cannot be written"), run.lock():
            pytest.fail("the lock is not writable")


@pytest.mark.parametrize(
    ("ask", "place"),
    [
        (RunDirectory.check_new, "closed/new/run"), (check_out, "closed/new/run"),
        (partial(file_to_write, option="--html"), "closed/old.html"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_before_anything_is_made(
    ask: Callable[[Path], object], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest folder that is there decides, and that is no file: so nothing is measured in vain. Another file is
    made beside one that it replaces."""
    (tmp_path / "file").touch()
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "old.html").touch()
    with pytest.raises(BadValue, match="file is a file"):
        ask(tmp_path / "file" / "run")
    ask(tmp_path / place)
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path / "closed")
    with pytest.raises(MissingPart, match=r"closed\S* cannot be written: Permission denied"):
        ask(tmp_path / place)


def test_trouble_while_a_run_is_held_stays_as_it_is(run: RunDirectory) -> None:
    """An error of the work inside is not taken for an error of the lock, and the lock is given back."""
    with pytest.raises(FileNotFoundError), run.lock():
        raise FileNotFoundError
    with run.lock():
        pass


@pytest.mark.parametrize("late", ["os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (OSError(errno.ENOSPC, "full"), NoSpace), (OSError(errno.EDQUOT, "quota"), NoSpace),
        (OSError(errno.EROFS, "read-only"), MissingPart), (OSError(errno.EACCES, "no"), MissingPart),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)  # fmt: skip
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str, error: BaseException, becomes: type[BaseException]
) -> None:
    """However late the trouble comes, Ctrl-C too, the old file is whole and no half one stays."""
    path = tmp_path / "file.json"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(late, fail)
    with pytest.raises(becomes):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def _with(*path: str | int, value: Any) -> str:
    tree = json.loads(result_json(example_bandwidth()))
    place = tree
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(tree)


_OPENS = json.loads(msgspec.json.encode(example_operations({4: 1000.0})[0]))
BAD = {
    "empty": "",
    "another schema": '{"schema": "loaderprobe/summary", "schema_version": 1}',
    "another version": _with("schema_version", value=2),
    "a wrong type": _with("mean_size_bytes", value="big"),
    "a negative size": _with("mean_size_bytes", value=-1.0),
    "a number beyond all": _with("phases", 0, "bw_bytes", value=1e300),
    "a negative rate": _with("phases", 0, "bw_bytes", value=-5.0),
    "no readers": _with("phases", 0, "readers", value=0),
    # It is a number nowhere else, and all that is shown of durations goes by it.
    "another percentile": result_json(example_bandwidth()).replace("95.000000", "95/000000"),
    "a negative time": _with("phases", 0, "file_ns", "mean", value=-1.0),
    "opens without a rate": _with("metadata", value=[_OPENS | {"ops_per_s": 0.0}]),
    "opens of no readers": _with("metadata", value=[_OPENS | {"readers": 0}]),
    "opens that are neither cold nor warm": _with("metadata", value=[_OPENS | {"metadata": "cool"}]),
    "no amplification": _with("phases", 0, "amplification", value=0.0),
    "figures of too few ranks": _with("phases", 0, "ranks", value=2),
}


@pytest.mark.parametrize("case", BAD)
def test_anything_else_is_a_bad_value_that_names_the_file(case: str, tmp_path: Path) -> None:
    """With what to do."""
    file = tmp_path / "found.json"
    file.write_text(BAD[case])
    with pytest.raises(BadValue, match=r"found\.json") as caught:
        read_result(file, {"loaderprobe/bandwidth": BandwidthReport}.get)
    assert "measure it again" in caught.value.hint

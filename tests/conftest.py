"""Real data sets, small and made once; which tests run alone; what was skipped."""

from __future__ import annotations

import fcntl
import functools
import gc
import importlib
import multiprocessing
import multiprocessing.util
import os
import pickle
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from PIL import Image
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from loaderprobe.analyze.report import build_report
from loaderprobe.api import load
from loaderprobe.datasets.folder import generated_set
from loaderprobe.datasets.generate.generate import generate, set_asked_for
from loaderprobe.measure.runner import ForkServer, Order
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.report import Report
from loaderprobe.store import run_directory
from loaderprobe.system.device import locate
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import example_config
from tests.fakes import example_environment
from tests.warm import Warm

# Workers that come from a forkserver then need not import it each.
multiprocessing.set_forkserver_preload(["torch"])

HERE = Path(__file__).parent
TURN = pytest.StashKey[int]()
FIRST = ("libraries/", "api/", "cli/", "measure/", "test_installed.py")
"""They begin first: a long file that begins when all others have ended would leave a core idle."""

MeasureReal = Callable[..., Measurement | RunFailure]
UNPRIVILEGED = 65534
AsUnprivileged = Callable[[], AbstractContextManager[None]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """For whoever edits."""
    parser.addoption("--fast", action="store_true", help="leave out each test that starts a process")


def pytest_configure(config: pytest.Config) -> None:
    """No test of hypothesis measures how long it takes; 25 examples each, unless a test says otherwise.

    A shell lets what it starts in the background, and its children, ignore Ctrl-C, which tests send to theirs.
    """
    vars(load)["build_report"] = _built_once
    settings.register_profile("untimed", deadline=None, max_examples=25)
    settings.load_profile("untimed")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.fast:
        sys.addaudithook(_leave_out)
        # multiprocessing starts forkserver, tracker and spawned workers without an event of the interpreter.
        vars(multiprocessing.util)["spawnv_passfds"] = lambda *_: _leave_out("os.posix_spawn", None)
        # What a test had begun when it was left out is never closed.
        config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")


BUILT: dict[bytes, Report] = {}
"""By all that it is of."""


def _built_once(**given: Any) -> Report:
    """The report on a stored run, which many tests ask for in many forms."""
    content = pickle.dumps(given)
    if content not in BUILT:
        BUILT[content] = build_report(**given)
    return BUILT[content]


STARTS = {"subprocess.Popen", "os.fork", "os.posix_spawn"}
STARTERS = {"fork_server", "photographs", "plant_disk", "python"}
"""Fixtures that start processes."""
STARTED: list[str] = []
"""What the test that runs has tried to start."""
OF_PROCESSES = "this test starts a process"


def _leave_out(event: str, _: object) -> None:
    """With --fast, no test starts a process: it ends there, as skipped."""
    if event in STARTS and "PYTEST_CURRENT_TEST" in os.environ:
        STARTED.append(event)
        pytest.skip(OF_PROCESSES)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The marker is for those that would wait for a process of another thread, or do much before they start one."""
    STARTED.clear()
    if not item.config.option.fast:
        return
    if item.get_closest_marker("starts") or STARTERS & {*getattr(item, "fixturenames", ())}:
        pytest.skip(OF_PROCESSES)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Whatever caught it, and went on."""
    report = yield
    if STARTED and not report.skipped:
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: {OF_PROCESSES}")
    return report


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A planted disk keeps its rate, and a GPU its clock, only while nothing else runs: their files are the last."""
    for item in items:
        if "plant_disk" in getattr(item, "fixturenames", ()) or any(map(item.get_closest_marker, ("gpu", "alone"))):
            module = item.getparent(pytest.Module)
            assert module
            module.add_marker(pytest.mark.alone)  # by then others may run that nothing should run beside

    def rank(item: pytest.Item) -> tuple[bool, bool]:
        first = item.path.relative_to(HERE).as_posix().startswith(FIRST)
        return item.get_closest_marker("alone") is not None, not first

    items.sort(key=rank)
    config.stash[TURN] = os.open(HERE, os.O_RDONLY)
    fcntl.flock(config.stash[TURN], fcntl.LOCK_SH)


SERVERS = {"python": "python: str", "forkserver": "measure_real: |short_sweeps"}
"""What takes seconds to start, and how a file asks for it."""


class Scheduler(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """One process runs all tests of a file, and those of all files that need the same server."""

    def _split_scope(self, nodeid: str) -> str:
        return _asked_together(super()._split_scope(nodeid))


@functools.cache
def _asked_together(file: str) -> str:
    """One name for the files of a process."""
    text = (HERE.parent / file).read_text()
    shared = (server for server, asked in SERVERS.items() if re.search(asked, text))
    return file if "mark.alone" in text else next(shared, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    """In place of `--dist loadfile`."""
    return Scheduler(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Others need not wait for this process."""
    if turn := session.config.stash.get(TURN, None):
        fcntl.flock(turn, fcntl.LOCK_UN)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: each search for garbage in torch and all tests takes a third of a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        if "torch" in sys.modules:
            importlib.import_module("torch._dynamo")  # of hundreds of modules; the first optimizer imports it
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """SPDL looks for leaks when Python ends, and then finds none; without it, no search for garbage in torch."""
    if "spdl" in sys.modules:
        gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _made_once() -> Iterator[None]:
    """The command line, which many tests ask for, takes a fiftieth of a second to make."""
    import typer.main
    import typer.testing

    command_of = functools.cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", command_of)
        patch.setattr(typer.testing, "_get_command", command_of)
        yield


@pytest.fixture(scope="module", autouse=True)
def _alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Files of tests that are alone wait, one by one, until each process has run all its others.

    What a session makes once is made before: meanwhile others may run.
    """
    if request.node.get_closest_marker("alone") is None:
        yield
        return
    # No two can wait for each other: Linux gives up the shared lock before it waits for the exclusive one.
    fcntl.flock(request.config.stash[TURN], fcntl.LOCK_EX)
    yield
    fcntl.flock(request.config.stash[TURN], fcntl.LOCK_UN)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """torch computes in one thread: several wait for one another on busy cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is held is refused at once."""
    monkeypatch.setattr(run_directory, "LETTING_GO_S", 0.0)


@pytest.fixture
def same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up runs can be resumed here."""
    monkeypatch.setattr("loaderprobe.api.sweep.describe_environment", lambda _: example_environment())


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> FileSet:
    """256 generated images of 500x375 on the file system of the temporary directory."""
    root = tmp_path_factory.mktemp("photographs")
    spec = set_asked_for("500x375", classes=4, seed=1, base_images=4)
    made = generate(root, spec, count=256, processes=2, progress=lambda *_: None)
    return generated_set(made, sample=256, seed=0)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """One for all tests: it takes seconds to start."""
    with ForkServer() as started:
        yield started


@pytest.fixture
def short_sweeps(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep in this process has no forkserver of its own, and reads for a moment to find the storage's ceiling."""
    monkeypatch.setattr("loaderprobe.measure.ceilings.CEILING_S", 0.02)
    monkeypatch.setattr("loaderprobe.api.sweep.ForkServer", lambda: nullcontext(fork_server))


@pytest.fixture(scope="session")
def measure_real(fork_server: ForkServer) -> MeasureReal:
    """Measures a file set in a real child process, with short segments."""

    def measure(files: FileSet, **changes: object) -> Measurement | RunFailure:
        changes = {"batch_size": 4, "rounds": 1, "compute": "emulated:200", **changes}
        order = Order(
            config=example_config(data=files.fingerprint, **changes),
            files=files,
            budget_s=3.0,
            begin_ns=SystemClock().now_ns(),
        )
        found = fork_server.run(order, time_limit_s=120.0, on_stage=lambda *_: None)
        assert isinstance(found, Measurement | RunFailure)
        return found

    return measure


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Python that has imported torch; each command that it is given is a fork (tests/warm.py)."""
    with Warm(tmp_path_factory.mktemp("python")) as warm:
        yield str(warm.python)


def needs_cold_reads(folder: Path) -> None:
    """Skips a test where what is written to this folder stays in memory, or where reads of it are not counted."""
    location = locate(folder)
    if not location.counts_reads or (location.layers or (location.kind,))[0] != "block":
        pytest.skip("the temporary directory is not on a block device, whose pages can be dropped")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """An empty directory that any user may enter, unlike `tmp_path`; only its owner may write."""
    with tempfile.TemporaryDirectory(prefix="loaderprobe-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def as_unprivileged() -> AsUnprivileged:
    """A context without root's right to read and write everything; for other users it changes nothing."""
    # Pillow loads its formats on first use, from a place that may be unreadable.
    Image.init()

    @contextmanager
    def lowered() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(UNPRIVILEGED)
        try:
            yield
        finally:
            os.seteuid(0)

    return lowered

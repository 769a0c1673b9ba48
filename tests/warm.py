"""A Python that has imported torch, which takes seconds: a server forks for each command that this Python is given.

`Warm.python` is a program that takes the place of `python`: `-m MODULE`, `-c CODE` or a script, with arguments. It has
the server fork a child with its own files 0 to 2, folder, environment, umask and process group, and ends as the child
ends: by an exit code, or by a signal. SIGINT and SIGTERM are passed on; where the program is killed, so is the child.

The child is a child of the server, not of the program: what must die with its parent, hold another user's rights or be
in a cgroup of its own needs a real start.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from loaderprobe.system.process import die_with_parent

ROOT = Path(__file__).parent.parent
IMPORTED = (
    "torch", "torch.distributed", "torchvision", "loaderprobe", "loaderprobe.measure.child", "loaderprobe.cli.commands",
    "loaderprobe.cli.attached", "loaderprobe.compute.torch", "loaderprobe.loaders.torch",
)  # fmt: skip
PROGRAM = """#!/bin/sh
'''exec' "{python}" -IS "$0" "$@"
' '''
import json, os, signal, socket, struct, sys
link = socket.socket(socket.AF_UNIX)
link.connect("\\0{address}")
umask = os.umask(0)
os.umask(umask)
asked = {{"words": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ), "umask": umask,
    "group": os.getpgrp()}}
message = json.dumps(asked).encode()
socket.send_fds(link, [struct.pack("q", len(message))], [0, 1, 2])
link.sendall(message)
for number in (signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, lambda number, _: link.sendall(bytes([number])))
answer = link.recv(8, socket.MSG_WAITALL)
if len(answer) < 8:
    sys.exit("the server of tests/warm.py has ended")
code, = struct.unpack("q", answer)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
"""Of the standard library alone: it starts in a fiftieth of a second. A path with a blank cannot stand after `#!`."""


class Warm:
    """The server, and the program that asks it; leaving it ends the server."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "python"
        self._address = f"loaderprobe-tests-{os.getpid()}"

    def __enter__(self) -> Self:
        # The address is taken before the server has imported anything: who asks meanwhile waits.
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0{self._address}")
        listener.listen()
        with listener:
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.warm", str(listener.fileno()), str(os.getpid())],
                pass_fds=(listener.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        self.python.write_text(PROGRAM.format(python=sys.executable, address=self._address))
        self.python.chmod(0o755)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.wait()


def in_two_ranks(python: str, function: Callable[[int, Path], None], scratch: Path) -> None:
    """Call a function of a module with (rank, scratch) in two processes at once, which have to end well."""
    code = "import sys, pathlib, importlib; module, name, rank, scratch = sys.argv[1:]; "
    code += "getattr(importlib.import_module(module), name)(int(rank), pathlib.Path(scratch))"
    command = [python, "-c", code, function.__module__, function.__name__]
    ranks = [subprocess.Popen([*command, str(rank), str(scratch)]) for rank in range(2)]
    assert [rank.wait(60) for rank in ranks] == [0, 0]


@dataclass(frozen=True, slots=True)
class Asked:
    """A command that the server was given."""

    words: list[str]
    """Arguments of Python."""
    folder: str
    environment: dict[str, str]
    umask: int
    group: int


def serve(listener: socket.socket) -> tuple[Asked, list[int]]:
    """Fork a child for each that connects. Returns in the child: the command, and its files 0 to 2."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # of the processes that stand between
    while True:
        link, _ = listener.accept()
        asked, files = received(link)
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            stand_between(link, files)
            return asked, files
        link.close()
        for file in files:
            os.close(file)


def stand_between(link: socket.socket, files: list[int]) -> None:
    """Returns in the child; its parent passes signals of the program on, and sends it how the child ended."""
    pid = os.fork()
    if pid == 0:
        link.close()
        return
    for file in files:
        os.close(file)  # who reads what the child writes waits for their end
    ended = os.pidfd_open(pid)
    watched: list[Any] = [ended, link]
    while ended not in select.select(watched, [], [])[0]:
        sent = link.recv(1)
        os.kill(pid, sent[0] if sent else signal.SIGKILL)
        if not sent:
            break
    with suppress(BrokenPipeError, ConnectionResetError):
        link.sendall(struct.pack("q", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    os._exit(0)


def received(link: socket.socket) -> tuple[Asked, list[int]]:
    """What the program sent, and its files 0 to 2."""
    header, files, _, _ = socket.recv_fds(link, 8, 3)
    (length,) = struct.unpack("q", header)
    return Asked(**json.loads(link.recv(length, socket.MSG_WAITALL))), files


def become(asked: Asked, files: list[int]) -> None:
    """Take over what a process has from whoever starts it."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # That of the server is made for /dev/null, which can seek.
    sys.stdout = TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding="utf-8", errors=sys.stdout.errors)
    with suppress(PermissionError):  # a session of its own cannot be joined
        os.setpgid(0, asked.group)
    os.chdir(asked.folder)
    os.umask(asked.umask)
    os.environ.clear()
    os.environ.update(asked.environment)
    importlib.import_module("numpy").random.seed()


def run(words: list[str], own_path: list[str]) -> None:
    """As Python runs these arguments; `own_path` are the folders of modules that it finds by itself."""
    safe = words[0] == "-P"
    kind, *rest = words[safe:]
    if kind.startswith("-") and kind not in ("-m", "-c"):
        sys.exit(f"tests/warm.py does not know {kind}")
    first = {"-m": os.getcwd(), "-c": ""}.get(kind, os.path.dirname(os.path.abspath(kind)))
    given = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [*([] if safe else [first]), *given, *own_path]
    customized(given)
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    if kind == "-m":
        sys.argv[:] = rest
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]  # what Python calls
    elif kind == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        main.__file__, sys.argv[:] = kind, [kind, *rest]
        exec(compile(Path(kind).read_bytes(), kind, "exec"), vars(main))


def ended(error: BaseException | None) -> int:
    """The exit code that Python gives for this, after it has shown what it shows; the signal, negative, of Ctrl-C."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):
            sys.stderr.write(error.code + "\n")
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error.with_traceback(frames), frames
    sys.excepthook(type(error), error, frames)
    return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def customized(path: list[str]) -> None:
    """What `sitecustomize` does in a Python that begins; torch counts as imported right after it."""
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["sitecustomize"])
    patches: dict[str, Any] = next(
        (vars(finder)["patches"] for finder in sys.meta_path if hasattr(finder, "patches")), {}
    )
    for name in patches.keys() & sys.modules.keys():
        patches.pop(name)(sys.modules[name])


def main(listener: int, parent: int) -> None:
    """The server; in a child the command, which ends as Python ends."""
    die_with_parent(parent)
    own_path = [entry for entry in sys.path if entry != str(ROOT)]
    gc.disable()  # nothing of what is imported is garbage
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    asked, files = serve(socket.socket(fileno=listener))
    error = None
    try:
        become(asked, files)
        run(asked.words, own_path)
    except BaseException as raised:  # noqa: BLE001  # the border of the process
        error = raised
    code = ended(error)
    # As a child of multiprocessing ends: to take all of torch apart would take longer than most commands.
    threading._shutdown()  # type: ignore[attr-defined]  # what Python calls
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

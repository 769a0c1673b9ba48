"""The real kernel, asked in a process of its own: by another user, and about file systems mounted for it alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

NOT_PERMITTED = 77
PRELUDE = (
    f"NOT_PERMITTED = {NOT_PERMITTED}"
    + """
import json, os, sys
from pathlib import Path
from loaderprobe.render.json import worded
from loaderprobe.system.device import locate, read_sectors, reads_from_storage
from loaderprobe.system.pagecache import LinuxPageCache, why_unknown

cache = LinuxPageCache()

def as_json(answer):
    "A reason or a note as its sentence."
    return json.dumps(answer, default=lambda record: worded(record).sentence)

def as_nobody(ask):
    "What `ask` returns in a process of user 65534."
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
        except PermissionError:
            os._exit(NOT_PERMITTED)
        try:
            os.write(write, as_json(ask()).encode())
        finally:
            os._exit(0)
    os.close(write)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == NOT_PERMITTED:
        sys.exit(NOT_PERMITTED)
    with os.fdopen(read) as answer:
        return json.load(answer)

def tell(**answers):
    print(as_json(answers))

"""
)


def ask_kernel(script: str, *arguments: object, mounts: Sequence[str] = (), user_namespace: bool = False) -> Any:
    """The output of `script`, run by root after PRELUDE, inside mounts made for it by shell commands.

    The mounts, and the loop devices under them, are gone when it ends.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can become another user, or mount")
    command = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
    if mounts or user_namespace:
        if not shutil.which("unshare"):
            pytest.skip("without unshare nothing can be mounted for a test alone")
        flags = ["--mount", "--user", "--map-root-user"] if user_namespace else ["--mount"]
        prepare = f"{{ {' && '.join(['true', *mounts])}; }} >&2 || exit {NOT_PERMITTED}"
        command = ["unshare", *flags, "sh", "-c", f'{prepare}; exec "$@"', "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode == NOT_PERMITTED or done.stderr.startswith("unshare:"):
        pytest.skip(f"not permitted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

"""What fio gets from the same pieces in the same order.

fio replays a list of reads for each reader (`read_iolog`), the only way to make it read whole files of different sizes
in a given order. It runs read-only and may create no file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from loaderprobe.errors import LoaderprobeError, MissingPart
from loaderprobe.storage.files import Piece
from loaderprobe.storage.reader import ReadOrder

SAFE = ("--readonly", "--allow_file_create=0")
DIRECT_BYTES = 4096
"""Past the page cache fio treats a short read at the end of a file as an error, so the remainder is left out."""
PASSES = 20
"""How often the list is repeated: fio drops a file from the page cache whenever it opens it."""
MOST_READS = 400_000
LONGEST_NAME = 200
"""fio's lists hold names of up to 256 characters."""


def fio_version() -> str:
    """Such as `fio-3.33`. Raises MissingPart when it is not installed."""
    if shutil.which("fio") is None:
        raise MissingPart("fio is not installed", hint="apt-get install fio; or --only kinds")
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def fio_rate(pieces: Sequence[Piece], order: ReadOrder) -> float:
    """Bytes/s of one run by fio's psync engine, one thread a reader; fio keeps no time below 1 s.

    Raises LoaderprobeError when fio fails.
    """
    with tempfile.TemporaryDirectory(prefix="loaderprobe-fio-") as scratch:
        job = write_job(Path(scratch), pieces, order)
        command = ["fio", *SAFE, "--output-format=json", "--group_reporting", str(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoaderprobeError(f"fio ended with exit code {done.returncode}: {(done.stderr or done.stdout).strip()}")
    # A warning may come before the JSON.
    (found,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    return float(found["read"]["io_bytes"] / (found["read"]["runtime"] / 1000))


def write_job(scratch: Path, pieces: Sequence[Piece], order: ReadOrder) -> Path:
    """The job file of a run in a folder, with a list of reads beside it for each reader."""
    if order.direct:
        pieces = [piece for piece in pieces if piece.size_bytes >= DIRECT_BYTES]
    names: dict[Path, str] = {}
    passes = max(1, min(PASSES, MOST_READS // len(pieces)))
    sections = []
    for reader in range(min(order.readers, len(pieces))):
        mine = pieces[reader :: order.readers]
        known = dict.fromkeys(_name(piece.path, names, scratch) for piece in mine)
        lines = ["fio version 2 iolog", *(f"{name} add" for name in known)]
        for piece in [*mine] * passes:
            size = piece.size_bytes // DIRECT_BYTES * DIRECT_BYTES if order.direct else piece.size_bytes
            name = names[piece.path]
            lines += [f"{name} open", f"{name} read {piece.offset} {size}", f"{name} close"]
        log = scratch / f"reads-{reader}"
        log.write_text("\n".join(lines) + "\n")
        sections.append(f"[reader-{reader}]\nread_iolog={log}\n")
    job = scratch / "job.fio"
    job.write_text(
        "[global]\nioengine=psync\nthread=1\nreplay_no_stall=1\nfadvise_hint=0\ninvalidate=1\n"
        f"direct={int(order.direct)}\nruntime={round(1000 * order.seconds)}ms\n" + "".join(sections)
    )
    return job


def _name(path: Path, names: dict[Path, str], scratch: Path) -> str:
    """The name that fio gets: a link where its lists cannot hold the real name."""
    if path not in names:
        text = str(path.absolute())
        if len(text) > LONGEST_NAME or not text.isascii() or any(character.isspace() for character in text):
            link = scratch / f"file-{len(names)}"
            link.symlink_to(text)
            text = str(link)
        names[path] = text
    return names[path]

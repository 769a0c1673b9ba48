"""Epochs of a set that fits into memory, fits half and does not: rate and cold share, in a cgroup; as root.

Some 3 minutes. The process of `loaderprobe sweep --epochs` trains on photographs for three epochs, with an emulated
accelerator, in a memory cgroup that leaves all, half or a fifth of them beside the processes. It prints what the study
found, beside the share that stays cold with a cache that drops the least recently used files, and with one that pins a
part. Ends with code 1 where the fit is not the planted one, or the last epoch is colder or warmer than both by 0.15.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from loaderprobe.analyze.caches import lru_hits, pinned_hits
from loaderprobe.analyze.report import epochs_of
from loaderprobe.api.policy import JUDGING
from loaderprobe.datasets.folder import generated_set
from loaderprobe.measure.child import study
from loaderprobe.measure.runner import Order
from loaderprobe.measure.studies import pages_bytes
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.studies import EpochsMeasured
from loaderprobe.stats import median
from loaderprobe.store.codec import decode, encode
from loaderprobe.system.limits import MEMBERSHIP, ROOT, cgroup_directories
from scripts.benches.harness import child, parser, photographs

RESOLUTION = "500x375"
CASES = {"fits": (1.5, "fits"), "half fits": (0.5, "fits in part"), "does not fit": (0.2, "does not fit")}
"""Memory for files over the set, and what the study must call it."""
OFF = 0.15
LOOK_S = 0.2


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--images", type=int, default=5000, help="(%(default)s)")
    options.add_argument("--workers", type=int, default=2, help="(%(default)s)")
    options.add_argument("--epochs", type=int, default=3, help="(%(default)s)")
    options.add_argument("--child", nargs=2, metavar=("FOLDER", "RESULT"), help="measure, within a cgroup")
    chosen = options.parse_args()
    if chosen.child:
        folder, result = map(Path, chosen.child)
        Path(result).write_bytes(
            encode("epochs", measured(files_in(folder, chosen.images), chosen.workers, chosen.epochs))
        )
        return 0
    with tempfile.TemporaryDirectory(prefix="loaderprobe-epochs-") as scratch, ExitStack() as undo:
        folder = photographs(Path(scratch, "data"), RESOLUTION, chosen.images)
        os.sync()
        files = files_in(folder, chosen.images)
        group = undo.enter_context(memory_group())
        result = Path(scratch, "result.json")
        command = child("epochs", "--images", chosen.images, "--workers", chosen.workers, "--epochs", chosen.epochs)
        command += ["--child", str(folder), str(result)]
        processes, most = ran(group, command, None)
        print(f"{pages_bytes(files) / 1e6:.0f} MB of files, {processes / 1e6:.0f} MB of processes")
        print(f"{'case':13} {'of the set':>10}  epochs: images/s, from storage{'':25} expected at the end")
        wrong = 0
        for name, (share, fit) in CASES.items():
            # Less than they take at most would end them.
            ran(group, command, round(max(processes + share * pages_bytes(files), most)))
            found = decode("epochs", result.read_bytes(), EpochsMeasured, str(result))
            wrong |= show(name, found, files, fit)
    return wrong


def files_in(folder: Path, images: int) -> FileSet:
    return generated_set(folder, sample=images, seed=0)


def measured(files: FileSet, workers: int, epochs: int) -> EpochsMeasured:
    """What the child of a sweep does."""
    config = RunConfig(
        data=files.fingerprint,
        resolution=files.label,
        loader=LoaderSpec(workers=workers, prefetch_factor=2),
        compute=ComputeSpec(name="emulated:mlperf-h100", batch_size=32),
    )
    order = Order(config=config, files=files, budget_s=None, begin_ns=0, study="epochs", epochs=epochs)
    with tempfile.TemporaryDirectory(prefix="loaderprobe-epochs-") as scratch:
        found = study(order, Path(scratch), lambda *_: None, JUDGING)
    assert isinstance(found, EpochsMeasured)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A memory cgroup of either version."""

    path: Path

    def limit(self, size_bytes: int | None) -> None:
        """None: no limit."""
        if (self.path / "memory.max").exists():
            (self.path / "memory.max").write_text("max" if size_bytes is None else str(size_bytes))
        else:
            (self.path / "memory.limit_in_bytes").write_text(str(-1 if size_bytes is None else size_bytes))

    def used(self) -> int:
        """Bytes for anything but files."""
        usage = next(
            self.path / name for name in ("memory.current", "memory.usage_in_bytes") if (self.path / name).exists()
        )
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return int(usage.read_text()) - int(stat["active_file"]) - int(stat["inactive_file"])


@contextmanager
def memory_group() -> Iterator[Group]:
    """A new cgroup under this process's own, which is removed again."""
    homes = [each for each in cgroup_directories("memory", ROOT, MEMBERSHIP) if (each / "memory.stat").exists()]
    if not homes:
        raise SystemExit("no memory cgroup is mounted here")
    path = homes[0] / f"loaderprobe-epochs-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        raise SystemExit(f"no cgroup can be made here: {error}") from error
    try:
        yield Group(path=path)
    finally:
        for _ in range(50):
            for pid in (path / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            with suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.1)


def ran(group: Group, command: list[str], limit: int | None) -> tuple[float, float]:
    """Run it in the group with so much memory; bytes that its processes used beside files: in training, and at most."""
    group.limit(limit)
    inside = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group.path / "cgroup.procs"), *command]
    used: list[float] = []
    with subprocess.Popen(inside) as process:
        while process.poll() is None:
            used.append(group.used())
            time.sleep(LOOK_S)
    group.limit(None)
    if process.returncode:
        raise SystemExit(f"the study failed with code {process.returncode}")
    return median(used[len(used) // 2 :]), max(used)


def show(name: str, found: EpochsMeasured, files: FileSet, fit: str) -> int:
    """One line; 1 where it is not what was planted."""
    epochs = epochs_of(found, files)
    share = min(1.0, (found.memory_bytes or 0) / found.set_bytes)
    seen = ", ".join(f"{each.images_per_s:.0f} {100 * (each.cold_fraction or 0):.0f} %" for each in epochs.epochs)
    most, least = 1 - lru_hits(share, 1), 1 - pinned_hits(share)
    print(f"{name:13} {share:10.2f}  {seen:50} {100 * least:.0f} to {100 * most:.0f} %: {epochs.fit}")
    last = epochs.epochs[-1].cold_fraction
    return int(epochs.fit != fit or last is None or not least - OFF <= last <= most + OFF)


if __name__ == "__main__":
    sys.exit(main())

"""The rows of `waits`: which loader, on which disk, with which step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from scripts.benches.waits_formats import folder_of
from scripts.benches.waits_readers import READERS
from scripts.benches.waits_samples import PHOTOGRAPHS, TINY_FILES
from scripts.benches.waits_texts import TEXTS

READ_AHEAD_KB = (128, 2560, 8192)
"""Linux's default, that of a RAID of a few disks, and that of some cloud volumes and devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A token bucket, or another kind that its name says."""

    bytes_per_s: float = 0.0
    read_ahead_kb: int | None = None
    """None for what Linux reads ahead by default."""


DISKS = {
    "bucket6": Disk(bytes_per_s=6e6),
    "bucket16": Disk(bytes_per_s=16e6),
    "bucket20": Disk(bytes_per_s=20e6),
    "latency": Disk(),
    "fast": Disk(),
    **{f"bucket20ra{kb}": Disk(bytes_per_s=20e6, read_ahead_kb=kb) for kb in READ_AHEAD_KB},
}
SMALL_SAMPLES = 832
"""Of a set that read-ahead soon brings into memory: 90 MB."""
LARGE_SAMPLES = 8320
"""Of a copy in which samples can be drawn that nothing else's read-ahead serves: 900 MB."""

Start = Literal["fork", "spawn", "forkserver"]
Step = Literal["none", "sleep", "conv", "tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One loader on one disk with one step."""

    disk: str
    reader: str
    workers: int
    burn_ms: float = 0.0
    """CPU time a sample, beside decoding."""
    wait_ms: float = 0.0
    """Slept in each sample."""
    lock: str = ""
    """`flock` or `writer`: held by another process; `shared`: by the workers, while they sleep."""
    start: Start = "fork"
    step: Step = "none"
    step_ms: float = 0.0
    """Of a batch: slept, or times the first layer's width for `conv`."""
    order: Literal["shuffled", "replacement"] = "shuffled"
    texts: tuple[str, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        return "-".join((self.disk, self.reader, f"n{self.workers}", *self.texts))

    @property
    def format(self) -> str:
        return READERS[self.reader].format

    @property
    def samples(self) -> int:
        if self.reader == "text":
            return TEXTS
        if self.reader == "tiny":
            return TINY_FILES
        return SMALL_SAMPLES if DISKS[self.disk].read_ahead_kb else PHOTOGRAPHS

    @property
    def folder(self) -> str:
        return folder_of(self.format, self.samples)

    @property
    def large_folder(self) -> str:
        """With the larger copy that the truth is measured on; empty where read-ahead serves no other sample."""
        large = READERS[self.reader].access == "random" and self.disk != "fast"
        return folder_of(self.format, LARGE_SAMPLES) if large else ""

    @property
    def remote(self) -> bool:
        return READERS[self.reader].remote

    @property
    def resources(self) -> tuple[str, ...]:
        """What can be removed from it."""
        there = {
            "storage": not self.remote,
            "network": self.remote,
            "preprocessing": True,
            "lock": bool(self.lock),
            "wait": bool(self.wait_ms),
            "compute": self.step != "none",
        }
        return tuple(name for name, is_there in there.items() if is_there)


def _row(line: str) -> Row:
    disk, reader, workers, *texts = line.split()
    given: dict[str, object] = {}
    for text in texts:
        key, _, value = text.rpartition("=")
        if key in ("burn", "wait"):
            given[f"{key}_ms"] = float(value)
        elif key in ("sleep", "conv", "tokens"):
            given |= {"step": key, "step_ms": float(value)}
        elif key == "lock":
            given["lock"] = value
        else:
            given["order" if value == "replacement" else "start"] = value
    own = tuple(text.replace("=", "") for text in texts)
    return Row(disk=disk, reader=reader, workers=int(workers), texts=own, **given)  # type: ignore[arg-type]


_AS_LINUX_DOES = """\
bucket16 python     0
bucket16 python     1
bucket16 python     2
bucket16 python     4
bucket16 python     2 spawn
bucket16 python     2 forkserver
bucket16 python     2 replacement
bucket16 native     2
bucket16 cv2        2
bucket16 lazy       2
bucket16 mmap       2
bucket16 lmdb       2
bucket16 hdf5       2
bucket16 hdf5each   2
bucket16 arrow      2
bucket16 tar        2
bucket16 webdataset 2
bucket16 sqlite     2
bucket16 zarr       2
bucket16 cached     2
bucket16 python     2 sleep=20
bucket16 lmdb       2 sleep=150
bucket16 tar        2 sleep=150
bucket16 hdf5       2 sleep=20
bucket16 sqlite     2 sleep=20
bucket16 sqlite     2 conv=16
bucket16 python     0 burn=6
bucket6  native     0
bucket6  memmap     2
bucket6  lmdb       4
bucket6  arrow      1 sleep=20
bucket6  pool       1
bucket6  ahead      1
bucket6  python     0 sleep=50
bucket20 python     1 burn=25
bucket20 native     2 burn=25
bucket20 cv2        4 burn=25
bucket20 lmdb       2 burn=25
bucket20 arrow      1 burn=25
bucket20 tar        2 burn=25
bucket20 sqlite     0 burn=25
bucket20 ahead      1 burn=25
bucket20 python     2 sleep=43
latency  python     1
latency  native     2
latency  hdf5       2
latency  memmap     1
latency  python     2 burn=60
latency  python     2 burn=10
fast     python     0 burn=10
fast     cached     2 burn=20
fast     lazy       2 sleep=100
fast     python     0 sleep=100
fast     http       1
fast     http       2
fast     http       4
fast     http       2 burn=60
fast     httpfar    2
fast     httpfar    2 sleep=50
fast     httpfar    2 conv=16
fast     s3         2
fast     s3         0
fast     s3         2 sleep=150
fast     s3narrow   2
fast     locked     2 lock=flock
fast     locked     2 lock=writer
fast     python     2 wait=20
fast     native     0 wait=20
fast     python     4 wait=5 lock=shared
fast     text       2 tokens=40
fast     text       2 burn=20 tokens=10
fast     python     2 burn=30 conv=32
fast     memmap     2 conv=64
fast     native     2 burn=4 conv=16
fast     imagefolder 0
"""
_READ_AHEAD = """\
python    2
arrow     2
memmap    2
hdf5      2
sqlite    0
tar       2
webloader 2
parquet   2
tiny      2
"""
ROWS = (
    *(_row(line) for line in _AS_LINUX_DOES.splitlines()),
    *(_row(f"bucket20ra{kb} {line}") for kb in READ_AHEAD_KB for line in _READ_AHEAD.splitlines()),
)

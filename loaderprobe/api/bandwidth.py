"""`bandwidth`: what the storage under a path delivers to readers of whole files, what limits it, what it feeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from loaderprobe.analyze.bandwidth import judge_bandwidth
from loaderprobe.api.shown import ShownRecord
from loaderprobe.api.values import PathLike, counts, unheard
from loaderprobe.compute.emulated import ACCELERATORS
from loaderprobe.errors import BadValue
from loaderprobe.measure.session import OnStage
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.render.bandwidth import bandwidth_document, headline
from loaderprobe.render.document import Document
from loaderprobe.render.rows import phase_columns
from loaderprobe.storage.probe import ProbeRequest, probe_bandwidth
from loaderprobe.system.pagecache import LinuxPageCache, drop_all_caches
from loaderprobe.units import parse_bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Bandwidth(ShownRecord, BandwidthReport):
    """The report of a probe, its phases and what follows from them. Shows itself in terminals and notebooks."""

    def headline(self) -> str:
        """The path, and what the fastest step delivers."""
        return headline(self)

    def document(self) -> Document:
        """The answer first, then what each concurrency gets."""
        return bandwidth_document(self)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """One row a phase, opens and stats last."""
        return phase_columns(self.phases, self.metadata)


def bandwidth(
    path: PathLike,
    *,
    readers: str | int | Iterable[int] = "auto",
    seconds: float = 3.0,
    scratch: str | int | None = None,
    engine: Literal["loaderprobe", "fio"] = "loaderprobe",
    drop_caches: bool = False,
    seed: int = 0,
    progress: OnStage | None = None,
) -> Bandwidth:
    """Read files under `path` at random, cold, at higher and higher concurrency. Writes nothing there.

    `readers` are the concurrencies; `auto` doubles them until that gains nothing. A phase takes `seconds`, up to five
    times that until its rate is known. `scratch`, such as `"1GB"`, writes a file of this size, reads that, and
    removes it. `drop_caches` empties all caches of the machine before each reading, where this user may: only then are
    opens/s and stats/s those of cold names and inodes.
    `progress(stage, done, total)` hears what is being read. Ctrl-C ends it with what is there, `interrupted`.

    Raises BadValue for a path that cannot be probed and for values that cannot be; MissingPart for files that may
    not be read, caches that may not be dropped, and fio where it is not installed; NoSpace for too large a scratch.
    """
    if engine not in ("loaderprobe", "fio"):
        raise BadValue(f"'{engine}' is not an engine", hint="use loaderprobe or fio")
    request = ProbeRequest(
        path=Path(path),
        readers=None if isinstance(readers, str) and readers == "auto" else counts(readers, "--readers"),
        seconds=seconds,
        scratch_bytes=parse_bytes(str(scratch)) if scratch else None,
        seed=seed,
        fio=engine == "fio",
        drop_all=drop_all_caches if drop_caches else None,
        metadata=True,
    )
    measured = probe_bandwidth(request, cache=LinuxPageCache(), on_phase=progress or unheard)
    return Bandwidth.of(judge_bandwidth(measured, {name: each.images_per_s for name, each in ACCELERATORS.items()}))

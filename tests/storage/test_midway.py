from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.clock import SystemClock
from loaderprobe.protocols import PageCache
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthPhase
from loaderprobe.storage import probe as probe_module
from loaderprobe.storage.phase import PhaseSettings
from loaderprobe.storage.probe import ProbeRequest, probe_bandwidth
from loaderprobe.system.pagecache import LinuxPageCache
from tests.examples.bandwidth import example_phase
from tests.said import said


def _probe(path: Path, cache: PageCache | None = None, **changes: object) -> BandwidthMeasurement:
    options: dict[str, object] = {"path": path, "readers": (1, 2), "seconds": 0.1, **changes}
    request = ProbeRequest(**options)  # type: ignore[arg-type]  # options by name, for brevity
    return probe_bandwidth(request, cache=cache or LinuxPageCache(), on_phase=lambda *_: None, clock=SystemClock())


def test_ctrl_c_keeps_the_phases_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted probe has the phases that were complete, and says that it was interrupted."""

    def made(settings: PhaseSettings) -> BandwidthPhase:
        if settings.readers == 2:
            raise KeyboardInterrupt
        return example_phase(settings.readers, 1e8, name=settings.name)

    monkeypatch.setattr(probe_module, "run_phase", made)
    measured = _probe(folder)
    assert measured.interrupted and len(measured.phases) == 1
    with pytest.raises(KeyboardInterrupt):
        _probe(folder, readers=(2,))


def test_a_phase_that_fails_costs_only_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured before stays, and the failed phase is named with its reason."""

    def made(settings: PhaseSettings) -> BandwidthPhase:
        if settings.name == "paced":
            raise OSError("the server has gone")
        return example_phase(settings.readers, 1e8, name=settings.name)

    monkeypatch.setattr(probe_module, "run_phase", made)
    measured = _probe(folder)
    assert measured.failed == ("paced",) and len(measured.ladder) == 2
    assert any("the server has gone" in said(missing.reason) for missing in measured.missing)


class VanishingCache(LinuxPageCache):
    """Deletes files right after the first eviction, as a job that cleans up does."""

    def __init__(self, count: int) -> None:
        self._count = count

    def evict(self, paths: Sequence[Path]) -> None:
        super().evict([path for path in paths if path.exists()])
        for path in paths[: self._count]:
            path.unlink(missing_ok=True)


def test_a_vanished_file_does_not_end_the_ladder(folder: Path) -> None:
    """A file that vanishes between phases is counted, and the ladder goes on."""
    measured = _probe(folder, VanishingCache(1))
    assert len(measured.ladder) == 2 and measured.ladder[0].unread == {"vanished": 1}


def test_a_path_that_vanishes_is_a_bad_path(folder: Path) -> None:
    """When everything has gone there is nothing to measure, and no division by nothing."""
    with pytest.raises(BadValue, match="vanished"):
        _probe(folder, VanishingCache(20))


def test_lost_permission_is_a_missing_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing may be read any more the exit code is that of a missing permission."""

    def refused(*_: object) -> tuple[int, int, int, str]:
        return 0, 0, 0, "no read permission"

    monkeypatch.setattr("loaderprobe.storage.reader._read", refused)
    with pytest.raises(MissingPart):
        _probe(folder)

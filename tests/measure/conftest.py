"""Whole measurements on a fake clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.analyze.verdict.rounds import deciding, next_round
from loaderprobe.measure import segments
from loaderprobe.measure.assembly import make_compute
from loaderprobe.measure.session import Parts, Recorder, Session
from loaderprobe.protocols import Compute, Files
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement
from loaderprobe.system.device import locate
from loaderprobe.testing import (
    FakeClock,
    FakePageCache,
    PlantedDisturbance,
    ScriptedLoader,
    Service,
    example_config,
    example_files,
    example_location,
)

Measure = Callable[..., Measurement]


def scripted_parts(
    service: Service, clock: FakeClock, compute: Compute, config: RunConfig, files: Files, cache: FakePageCache,
    others: Sequence[float] = (),
) -> Parts:  # fmt: skip
    """The parts of a session on a scripted loader and a fake clock; `others` take these shares of the cores."""
    return Parts(
        loader=ScriptedLoader(config, files, clock, cache, service),
        compute=compute,
        clock=clock,
        cache=cache,
        location=example_location("/nowhere"),
        cores_available=64.0,
        read_devices=lambda: None,
        next_round=next_round,
        deciding=deciding,
        disturbance=PlantedDisturbance(clock, others),
    )


def scripted_session(
    service: Service, clock: FakeClock, compute: Compute, config: RunConfig, files: Files, cache: FakePageCache,
    **options: Any,
) -> Session:  # fmt: skip
    """A session of these parts; `options` are its own, `earlier` those of its recorder, `others` of its parts."""
    parts = scripted_parts(service, clock, compute, config, files, cache, options.pop("others", ()))
    recorder = Recorder(config, earlier=options.pop("earlier", None))
    return Session(recorder=recorder, files=files, parts=parts, on_stage=lambda *_: None, **options)


@pytest.fixture(autouse=True)
def _few_free_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What costs no time on a fake clock has this many steps in a segment, and not ten thousand."""
    monkeypatch.setattr(segments, "MOST_BATCHES", 500)


@pytest.fixture(scope="session")
def measure_fake() -> Measure:
    """Measures a scripted loader: `measure_fake(service, files=..., cache=..., **config changes)`."""

    def measure(
        service: Service,
        *,
        files: FileSet | None = None,
        page_cache: FakePageCache | None = None,
        thorough: bool = False,
        **changes: Any,
    ) -> Measurement:
        clock, cache, files = FakeClock(), page_cache or FakePageCache(), files or example_files()
        config = example_config(data=files.fingerprint, **changes)
        compute = make_compute(config, clock)
        session = scripted_session(service, clock, compute, config, files, cache, thorough=thorough)
        session.run()
        return session.measurement((), ())

    return measure


@pytest.fixture(scope="session")
def on_disk(photographs: FileSet) -> FileSet:
    """The photographs, where reads are counted."""
    location = locate(Path(photographs.root))
    if not location.counts_reads:
        pytest.skip(f"the temporary directory is on {location.filesystem}, whose reads are not counted")
    return photographs

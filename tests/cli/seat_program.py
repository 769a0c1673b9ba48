"""A process of a launcher whose sweep is real, with scripts as children: `seat_program RUN MEASURED [fails|slurm]`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from loaderprobe.api import child, sweep
from loaderprobe.api.load import judge_run
from loaderprobe.cli.seats import in_seat, launched_here
from loaderprobe.measure.ranks.crew import Lead
from loaderprobe.measure.runner import Child, Order
from loaderprobe.records.config import SweepSpec
from loaderprobe.records.measurement import Measurement
from loaderprobe.render.json import summary_json
from loaderprobe.store.codec import decode
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import example_environment
from tests.analyze.runs import FILES

RUN, MEASURED, *OPTIONS = sys.argv[1:]


class Scripted:
    """A forkserver whose children return MEASURED; where the sweep has three workers, that of rank 1 is killed."""

    def start(self, order: Path, result: Path, log: Path) -> Child:
        asked = decode("order", order.read_bytes(), Order, "order")
        assert asked.place is not None
        fails = asked.config.loader.workers == 3
        script = (
            "kill -9 $$" if fails and asked.place.rank else "exec sleep 1000" if fails else f"cp {MEASURED} {result}"
        )
        with log.open("wb") as log_file:
            return subprocess.Popen(
                ["/bin/sh", "-c", script], stdout=subprocess.PIPE, stderr=log_file, start_new_session=True, bufsize=0
            )


@contextmanager
def scripted() -> Iterator[Scripted]:
    """In place of the forkserver."""
    yield Scripted()


def run_of(lead: Lead) -> RunDirectory:
    """A configuration of two ranks on two nodes, and where asked one that fails."""
    config = decode("measurement", Path(MEASURED).read_bytes(), Measurement, MEASURED).config
    failing = replace(config, loader=replace(config.loader, workers=3))
    configs = (failing, config) if "fails" in OPTIONS else (config,)
    record = RunRecord(
        created_utc="2026-11-22T00:00:00+00:00", spec=SweepSpec(configs=configs), environment=example_environment()
    )
    lead.admit((config,), ())
    return RunDirectory.create(Path(RUN), record, [FILES])


def measured(lead: Lead) -> int:
    """Print the summary."""
    run = run_of(lead)
    sweep.measure(run, lambda _: None, lead)
    sys.stdout.write(json.dumps(json.loads(summary_json(judge_run(run)))) + "\n")
    return 4


def main() -> int:
    """The exit code of this process."""
    changed: Any = {"forkserver": scripted}
    vars(child).update(changed)
    vars(sweep).update(changed)
    here = launched_here("slurm" if "slurm" in OPTIONS else None, several=True)
    assert here is not None
    return in_seat(here, measured)


if __name__ == "__main__":
    sys.exit(main())

"""`report`: judges a stored run. Measures nothing and needs no torch."""

from __future__ import annotations

from loaderprobe.analyze.report import build_report
from loaderprobe.api.stored import beside_results, studies_of
from loaderprobe.compute.emulated import ACCELERATORS
from loaderprobe.errors import BadValue
from loaderprobe.records.report import Report
from loaderprobe.store.run_directory import RunDirectory


def judge_run(run: RunDirectory) -> Report:
    """The report of a stored run. Raises BadValue for a run without configurations."""
    spec = run.record.spec
    fingerprints = dict.fromkeys(config.data for config in spec.configs)
    if not fingerprints:
        raise BadValue(f"{run.path} holds no configuration")
    beside = beside_results(run, tuple(fingerprints))
    studies, unread = studies_of(run)
    return build_report(
        name=run.path.resolve().name,
        created_utc=run.record.created_utc,
        command=" ".join(spec.command),
        environment=run.record.environment,
        files=beside.files,
        results=[(config, run.result(config.key)) for config in spec.configs],
        ceilings=beside.ceilings,
        accelerators={name: each.images_per_s for name, each in ACCELERATORS.items()},
        damaged=(*beside.damaged, *unread),
        studies=studies,
    )

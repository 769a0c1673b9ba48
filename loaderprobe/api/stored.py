"""A stored run: what stands in it beside its results, and what measuring more of it would import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loaderprobe.analyze.report import Studies
from loaderprobe.errors import BadValue, DamagedRun
from loaderprobe.measure.studies import pending_studies, without
from loaderprobe.measure.sweep import pending
from loaderprobe.plugins import foreign_module
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.files import FileSet
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import DamagedFile
from loaderprobe.records.studies import EpochsMeasured, Prefilled
from loaderprobe.store.run_directory import STUDIES, RunDirectory

LEFT = Remark(code="study_left")


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideResults:
    """The file sets and ceilings of a run, as far as they can be read."""

    files: tuple[FileSet, ...]
    ceilings: dict[str, StorageCeiling]
    """By fingerprint of the files; one that cannot be read has no phase, and says why."""
    damaged: tuple[DamagedFile, ...]


def beside_results(run: RunDirectory, fingerprints: Sequence[str]) -> BesideResults:
    """Read the file sets of these fingerprints and the ceilings of the storage under them."""
    files: list[FileSet] = []
    ceilings: dict[str, StorageCeiling] = {}
    damaged: list[DamagedFile] = []
    for each in fingerprints:
        try:
            files.append(run.files(each))
        except DamagedRun as error:
            damaged.append(run.damaged(error))
        try:
            found = run.ceiling(each)
        except DamagedRun as error:
            damaged.append(run.damaged(error))
            found = damaged_ceiling(each, damaged[-1])
        if found is not None:
            ceilings[each] = found
    return BesideResults(files=tuple(files), ceilings=ceilings, damaged=tuple(damaged))


def damaged_ceiling(fingerprint: str, damaged: DamagedFile) -> StorageCeiling:
    """In place of one that cannot be read: it has no phase, and says why."""
    facts: dict[str, float | str] = {"file": damaged.file, "error": damaged.reason}
    return StorageCeiling(data=fingerprint, phases=(), missing=Remark(code="file_damaged", facts=facts))


def studies_of(run: RunDirectory) -> tuple[Studies, tuple[DamagedFile, ...]]:
    """(What was measured beside the verdicts, the files of it that cannot be read)."""
    found: list[Prefilled | EpochsMeasured] = []
    damaged: list[DamagedFile] = []
    for config, kind in ((config, kind) for config in run.record.spec.configs for kind in STUDIES):
        study = run.study(kind, config.key)
        if isinstance(study, DamagedFile):
            damaged.append(study)
        elif study is not None:
            found.append(study)
    for asked, config, files in pending_studies(run):
        if run.study(asked, config.key) is None:
            found.append(without(asked, config, files, LEFT))
    made = Studies(
        prefilled={each.config.key: each for each in found if isinstance(each, Prefilled)},
        epochs={each.config.key: each for each in found if isinstance(each, EpochsMeasured)},
    )
    return made, tuple(damaged)


def open_to_resume(path: Path) -> RunDirectory:
    """A run to be completed. Raises BadValue when `path` is none, or was measured in turn with another run."""
    in_turn = (path / "a" / "run.json").is_file()
    run = None if in_turn else RunDirectory.open(path)
    if run is None or run.record.spec.turns:
        both = path if run is None else path.parent
        said = "holds two runs that were" if run is None else "was"
        raise BadValue(
            f"{path} {said} measured in turn, and they go on together", hint=f"loaderprobe sweep --resume {both}"
        )
    return run


def file_sets(run: RunDirectory) -> tuple[FileSet, ...]:
    """Those of a run that can be read."""
    return beside_results(run, list(dict.fromkeys(config.data for config in run.record.spec.configs))).files


def foreign_modules(run: RunDirectory) -> tuple[str, ...]:
    """Modules outside loaderprobe that measuring the rest of a run imports: the run names them, not the command line.

    Imports nothing. Raises BadValue for a loader or a compute that is not known.
    """
    modules: dict[str, None] = {}
    for config in (*pending(run), *(config for _, config, _ in pending_studies(run))):
        for module in (
            foreign_module("loader", config.loader.name),
            foreign_module("compute", config.compute.kind),
            foreign_module("model", config.compute.model),
        ):
            if module is not None:
                modules[module] = None
    return tuple(modules)

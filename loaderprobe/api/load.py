"""`load`: a stored run, judged, or the stored result of another command; raw values as frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loaderprobe.analyze.report import Study, build_report
from loaderprobe.api.shown import Documented, Tabled, frame
from loaderprobe.api.values import PathLike
from loaderprobe.errors import BadValue, DamagedRun
from loaderprobe.records.config import asks_for
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.report import DamagedFile, Report
from loaderprobe.render.document import Document
from loaderprobe.render.sweep import counts, report_columns, sweep_document
from loaderprobe.store.results import RESULT, read_result
from loaderprobe.store.run_directory import STUDIES, RunDirectory

if TYPE_CHECKING:
    from pandas import DataFrame


def beside_results(
    run: RunDirectory, fingerprints: Iterable[str]
) -> tuple[list[FileSet], dict[str, StorageCeiling], list[DamagedFile]]:
    """(file sets of these fingerprints, by fingerprint the ceilings of the storage under them, what cannot be read).

    A ceiling that cannot be read has no phase, and says why.
    """
    files: list[FileSet] = []
    ceilings: dict[str, StorageCeiling] = {}
    damaged: list[DamagedFile] = []
    for fingerprint in fingerprints:
        try:
            files.append(run.files(fingerprint))
        except DamagedRun as error:
            damaged.append(run.damaged(error))
        try:
            ceiling = run.ceiling(fingerprint)
        except DamagedRun as error:
            damaged.append(run.damaged(error))
            facts: Facts = {"file": damaged[-1].file, "error": damaged[-1].reason}
            ceiling = StorageCeiling(data=fingerprint, phases=(), missing=Remark(code="file_damaged", facts=facts))
        if ceiling is not None:
            ceilings[fingerprint] = ceiling
    return files, ceilings, damaged


def studies_of(run: RunDirectory) -> tuple[list[Study], list[DamagedFile]]:
    """(What was measured beside the verdicts, the files of it that cannot be read)."""
    studies: list[Study] = []
    damaged: list[DamagedFile] = []
    for config, kind in ((config, kind) for config in run.record.spec.configs for kind in STUDIES):
        study = run.study(kind, config.key)
        if isinstance(study, DamagedFile):
            damaged.append(study)
        elif study is not None:
            studies.append(study)
    if asks_for(run.record.spec):
        from loaderprobe.measure.studies import pending_studies, without

        for kind, config, files in pending_studies(run):
            if run.study(kind, config.key) is None:
                studies.append(without(kind, config, files, Remark(code="study_left")))
    return studies, damaged


def judge_run(run: RunDirectory) -> Report:
    """The report of a stored run. Raises BadValue for a run without configurations."""
    spec = run.record.spec
    fingerprints = dict.fromkeys(config.data for config in spec.configs)
    if not fingerprints:
        raise BadValue(f"{run.path} holds no configuration")
    files, ceilings, damaged = beside_results(run, fingerprints)
    studies, unread = studies_of(run)
    return build_report(
        name=run.path.resolve().name,
        created_utc=run.record.created_utc,
        command=" ".join(spec.command),
        environment=run.record.environment,
        files=files,
        results=[(config, run.result(config.key)) for config in spec.configs],
        ceilings=ceilings,
        damaged=(*damaged, *unread),
        studies=studies,
    )


class Run(Tabled):
    """A run on disk. It is judged once; `load` it again to see what was measured since."""

    __slots__ = ("_document", "_report", "directory")

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self._report: Report | None = None
        self._document: Document | None = None

    @property
    def path(self) -> Path:
        return self.directory.path

    def report(self) -> Report:
        """The verdict on every configuration, with its figures and reasons: what every format shows."""
        if self._report is None:
            self._report = judge_run(self.directory)
        return self._report

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """One row a configuration, measured or not, flat, units in the names.

        A figure that could not be measured is None, in a frame NaN beside others; `unavailable` has the reasons.
        """
        return report_columns(self.report())

    def steps(self) -> DataFrame:
        """One row a step of every timed segment, as it was measured.

        Times are seconds, those that end in `_at_s` since the first segment of the configuration began.
        `key` is that of `to_frame`. NaN is what the device does not tell.
        """
        from loaderprobe.analyze.raw import STEP_COLUMNS, step_rows

        return self._raw(STEP_COLUMNS, step_rows)

    def batches(self) -> DataFrame:
        """One row a batch, as the worker that made it recorded it; its mode is that of the segment that it served.

        Times are seconds, `begin_at_s` as in `steps`. The training thread of the serial loader is worker 0. A batch
        that no timed segment took has no mode.
        """
        from loaderprobe.analyze.raw import BATCH_COLUMNS, batch_rows

        return self._raw(BATCH_COLUMNS, batch_rows)

    def _raw(self, columns: tuple[str, ...], rows: Callable[[Measurement], Iterator[tuple[Any, ...]]]) -> DataFrame:
        results = (self.directory.result(config.key) for config in self.directory.record.spec.configs)
        raw_rows = [row for result in results if isinstance(result, Measurement) for row in rows(result)]
        return frame({name: [row[index] for row in raw_rows] for index, name in enumerate(columns)})

    def headline(self) -> str:
        """The directory, and how many configurations ended where."""
        return f"{self.path}: {counts(self.report())}"

    def document(self) -> Document:
        """The report, its first page first."""
        if self._document is None:
            self._document = sweep_document(self.report())
        return self._document

    def made_by(self) -> str:
        """The version of the tool, and of the schema of `summary.json`."""
        report = self.report()
        return f"loaderprobe {report.environment.loaderprobe}, {report.schema} {report.schema_version}"

    def json(self) -> str:
        """All figures and reasons, with the schema's name and version first: `summary.json`."""
        from loaderprobe.render.json import summary_json

        return summary_json(self.report())


def load(run: PathLike) -> Run:
    """The run in a directory that a sweep wrote, complete or not. Raises BadValue when it is not one."""
    return Run(open_run(Path(run)))


def open_run(path: Path, made_by: str = "a sweep", *others: str) -> RunDirectory:
    """As `RunDirectory.open`; of a folder of runs, BadValue names the newest. `others` are files of other results."""
    with suppress(OSError):  # `open` says that it cannot be read
        files = (file for name in ("run.json", *others) for file in path.glob(f"*/{name}"))
        inside = sorted(files, key=lambda file: file.stat().st_mtime)
        if inside and not (path / "run.json").exists():
            raise BadValue(f"{path} is a folder of runs", hint=f"give one of them; the newest is {inside[-1].parent}")
    return RunDirectory.open(path, made_by=made_by)


RESULTS = {
    "loaderprobe/bandwidth": "bandwidth:Bandwidth",
    "loaderprobe/batch-size": "batch_size:BatchSize",
    "loaderprobe/compare": "compare:Comparison",
    "loaderprobe/diagnosis": "diagnose:Diagnosis",
    "loaderprobe/layers": "layers:Layers",
    "loaderprobe/trace": "trace:Trace",
    "loaderprobe/watch": "run:Watch",
}
"""module:class of each kind of result, by its schema."""


def load_any(path: Path) -> Run | Documented:
    """The run or the result in a directory, or the result in a file.

    Raises BadValue when there is neither, DamagedRun for one with figures that cannot be, which no page can show.
    """
    is_run = True
    with suppress(OSError):  # `open_run` says that it cannot be read
        is_run = not path.is_file() and not (path / RESULT).exists()
    loaded = Run(open_run(path, "sweep, run or diagnose", RESULT)) if is_run else read_result(path, type_of)
    try:
        loaded.document()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        hint = "restore it from a copy; if nothing has changed it since it was written, report this"
        raise DamagedRun(str(path), f"cannot be shown: {type(error).__name__}: {error}", hint=hint) from error
    return loaded


def type_of(schema: str) -> type[Documented] | None:
    """The class of the results with this schema; None for one that has none."""
    module, _, name = RESULTS.get(schema, "").partition(":")
    result_type: type[Documented] | None = getattr(import_module(f"loaderprobe.api.{module}"), name) if module else None
    return result_type

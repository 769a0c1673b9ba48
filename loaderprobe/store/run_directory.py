"""The directory of one run: what was asked, what was measured, what failed.

RUN/  run.json               sweep spec, environment
      files/FINGERPRINT.json exactly the files that each data set contributes
      ceilings/FINGERPRINT.json  what the storage under a data set delivers
      measurements/KEY.json  one a configuration: raw values only
      measurements/KEY/rank-N.json  what each of its ranks saw, where it has several
      failures/KEY.json
      prefilled/KEY.json     training from a full buffer, where it was measured
      epochs/KEY.json        whole epochs, where they were asked for
      summary.json           derived; rebuilt from the above at any time
      report.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import filelock

from loaderprobe.errors import MEASURE_AGAIN, BadValue, DamagedRun, Locked, Refused
from loaderprobe.records.config import SweepSpec
from loaderprobe.records.environment import Environment
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RankSeen, RunFailure
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.report import DamagedFile
from loaderprobe.records.studies import EpochsMeasured, Prefilled
from loaderprobe.store.codec import encode, stored, write_atomically, write_in_folder, writing
from loaderprobe.store.results import check_out, make_directory

R = TypeVar("R", bound=Measurement | RunFailure | Prefilled | EpochsMeasured)
PARTS = ("files", "ceilings", "measurements", "failures")
STUDIES: dict[str, type[Prefilled] | type[EpochsMeasured]] = {"prefilled": Prefilled, "epochs": EpochsMeasured}
"""What is measured beside the verdicts, by the folder that it is kept in; made when something is."""
LETTING_GO_S = 2.0
"""How long the workers of a process that was killed may take to let its lock go."""
_NAME = re.compile("[0-9a-f]{16}")
"""Keys and fingerprints, which name files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """`run.json`: what the sweep was asked, where, and when it began."""

    created_utc: str
    spec: SweepSpec
    environment: Environment


class RunDirectory:
    """One run on disk. Made by `create` or `open`; every file is written whole or not at all."""

    def __init__(self, path: Path, record: RunRecord) -> None:
        self.path = path
        self.record = record

    @classmethod
    def create(cls, path: Path, record: RunRecord, files: list[FileSet]) -> RunDirectory:
        """A new run. Raises Refused when `path` is not empty, Locked, MissingPart without permission."""
        cls.check_new(path)
        run = cls(path, record)
        with run.lock():
            # Another process may have made one meanwhile.
            cls.check_new(path)
            for part in PARTS:
                make_directory(path / part)
            for file_set in files:
                write_atomically(run._file("files", file_set.fingerprint), encode("files", file_set))
            write_atomically(path / "run.json", encode("run", record))
        return run

    @staticmethod
    def check_new(path: Path) -> None:
        """Raise what `create` would for `path`: BadValue for a file, Refused when it is not empty, MissingPart."""
        with writing(path):
            if (path / "run.json").exists():
                hint = f"choose another --out; for the rest of that run: loaderprobe sweep --resume {path}"
                raise Refused(f"{path} already holds a run", hint=hint)
        check_out(path, (".lock", *PARTS, *STUDIES))

    @classmethod
    def open(cls, path: Path, *, made_by: str = "a sweep") -> RunDirectory:
        """A run that was made before. Raises BadValue when `path` is not one; `made_by` is what could be given."""
        file = path / "run.json"
        try:
            record = stored("run", RunRecord, file)
            if record is None:
                lacks = "is not a run: it has neither run.json (of a sweep) nor result.json (of all others)"
                why = lacks if path.exists() else "does not exist"
                if (path / "result.json").exists():
                    why = "is not a sweep's run: it holds the result of another command"
                hint = f"give the directory that {made_by} wrote, such as loaderprobe-runs/DATE-TIME"
                raise BadValue(f"{path} {why}", hint=hint)
            for config in record.spec.configs:
                if not _NAME.fullmatch(config.data):
                    raise DamagedRun(str(file), f"is damaged: {config.data!r} is no fingerprint of files")
        except DamagedRun as error:
            if error.hint == MEASURE_AGAIN:
                error.hint = "restore it from a copy, or measure again into a new directory"
            raise
        return cls(path, record)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for writing. Raises Locked when another process does, MissingPart without permission."""
        with ExitStack() as locks:
            with writing(self.path):
                locks.enter_context(lock_directory(self.path))
            yield

    def ask(self, spec: SweepSpec) -> None:
        """Keep another spec: more to measure, a budget. For whoever holds the lock. Raises MissingPart, NoSpace."""
        record = replace(self.record, spec=spec)
        write_atomically(self.path / "run.json", encode("run", record))
        self.record = record

    def files(self, fingerprint: str) -> FileSet:
        """The file set with this fingerprint. Raises DamagedRun when it is not there or cannot be used."""
        path = self._file("files", fingerprint)
        file_set = stored("files", FileSet, path)
        if file_set is None:
            raise DamagedRun(str(path), "is missing from the run", hint="measure again into a new directory")
        if file_set.fingerprint != fingerprint:
            raise DamagedRun(str(path), "is damaged: it holds other files than its name says")
        _check_paths(file_set, path)
        return file_set

    def ceiling(self, fingerprint: str) -> StorageCeiling | None:
        """What is known of the storage under a file set; None when it was never measured. Raises DamagedRun."""
        path = self._file("ceilings", fingerprint)
        ceiling = stored("ceiling", StorageCeiling, path)
        if ceiling is not None and ceiling.data != fingerprint:
            raise DamagedRun(str(path), "is damaged: it is of other files than its name says")
        return ceiling

    def save_ceiling(self, ceiling: StorageCeiling) -> None:
        """Keep a ceiling; it replaces what was known of the same file set."""
        write_in_folder(self._file("ceilings", ceiling.data), encode("ceiling", ceiling))

    def save(self, result: Measurement | RunFailure) -> None:
        """Keep a result; a measurement replaces the failure of an earlier try."""
        if isinstance(result, Measurement):
            self._save_measurement(result)
            # One that stays has no say beside a measurement.
            with suppress(OSError):
                self._file("failures", result.config.key).unlink(missing_ok=True)
        else:
            write_atomically(self._file("failures", result.config.key), encode("failure", result))

    def study(self, kind: str, key: str) -> Prefilled | EpochsMeasured | DamagedFile | None:
        """A study of a configuration; None where there is none. `kind` is of STUDIES."""
        study: Prefilled | EpochsMeasured | DamagedFile | None = self._result(
            kind, STUDIES[kind], self._file(kind, key), key
        )
        return study

    def save_study(self, kind: str, study: Prefilled | EpochsMeasured) -> None:
        """Keep it; it replaces an earlier one."""
        write_in_folder(self._file(kind, study.config.key), encode(kind, study))

    def has_measurement(self, key: str) -> bool:
        """True when the configuration need not be measured again: a damaged measurement is none."""
        return isinstance(self.result(key), Measurement)

    def result(self, key: str) -> Measurement | RunFailure | DamagedFile | None:
        """What is known of a configuration; None when it was never tried.

        A damaged measurement has no say where a failure stands beside it: that is of a later try.
        """
        measured = self._measurement(key)
        if isinstance(measured, Measurement):
            return measured
        failed = self._result("failure", RunFailure, self._file("failures", key), key)
        return failed if isinstance(failed, RunFailure) else measured or failed

    def _save_measurement(self, measured: Measurement) -> None:
        """Ranks have files of their own; the measurement itself has what they saw until all of these are there."""
        path = self._file("measurements", measured.config.key)
        if measured.by_rank:
            write_atomically(path, encode("measurement", measured))
        for rank in measured.by_rank:
            write_in_folder(_of_rank(path, rank.rank), encode("rank", rank))
        write_atomically(path, encode("measurement", replace(measured, by_rank=())))

    def _measurement(self, key: str) -> Measurement | DamagedFile | None:
        path = self._file("measurements", key)
        measured = self._result("measurement", Measurement, path, key)
        if not isinstance(measured, Measurement) or measured.config.ranks == 1 or measured.by_rank:
            return measured
        try:
            return replace(measured, by_rank=tuple(_read_rank(path, rank, measured) for rank in range(measured.ranks)))
        except DamagedRun as error:
            return self.damaged(error)

    def damaged(self, error: DamagedRun) -> DamagedFile:
        """A file of this run that cannot be used, as a value."""
        return DamagedFile(file=str(Path(error.file).relative_to(self.path)), reason=error.reason)

    def _result(self, kind: str, type_: type[R], path: Path, key: str) -> R | DamagedFile | None:
        try:
            record = stored(kind, type_, path)
            if record is not None and record.config.key != key:
                raise DamagedRun(str(path), "is damaged: it is of another configuration than its name says")
        except DamagedRun as error:
            return self.damaged(error)
        return record

    def _file(self, folder: str, name: str) -> Path:
        """Of a file of the run. Raises BadValue for a name that is no key and no fingerprint: it may lead elsewhere."""
        if not _NAME.fullmatch(name):
            raise BadValue(f"{name!r} names no file of a run", hint="restore run.json from a copy")
        return self.path / folder / f"{name}.json"


@contextmanager
def lock_directory(path: Path) -> Iterator[None]:
    """Hold `path/.lock`; it is released when this process ends, however it ends. Raises Locked."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path / ".lock", timeout=LETTING_GO_S):
            yield
    except filelock.Timeout as error:
        raise Locked(f"another loaderprobe is writing {path}", hint="wait for it to end, or use --out") from error


def _check_paths(files: FileSet, source: Path) -> None:
    """Raises DamagedRun for a file that is not under the root of its set."""
    inside = (files.remote or Path(files.root).is_absolute()) and "\0" not in files.root
    for name in files.file_bytes:
        if not inside or "\0" in name or name.startswith("/") or (".." in name and ".." in name.split("/")):
            raise DamagedRun(str(source), f"is damaged: {name!r} is not under {files.root!r}")


def _read_rank(measurement: Path, rank: int, of: Measurement) -> RankSeen:
    """What a rank saw, in as many segments as the measurement has. Raises DamagedRun."""
    path = _of_rank(measurement, rank)
    rank_record = stored("rank", RankSeen, path)
    if rank_record is None:
        raise DamagedRun(str(path), "is missing from the run")
    if rank_record.rank != rank or len(rank_record.steps) != len(of.segments):
        raise DamagedRun(str(path), "is damaged: it is of another measurement")
    return rank_record


def _of_rank(measurement: Path, rank: int) -> Path:
    return measurement.with_suffix("") / f"rank-{rank}.json"

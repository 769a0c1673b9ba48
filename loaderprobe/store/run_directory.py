"""The directory of one run: what was asked, what was measured, what failed.

RUN/  run.json               sweep spec, environment
      files/FINGERPRINT.json exactly the files that each data set contributes
      ceilings/FINGERPRINT.json  what the storage under a data set delivers
      measurements/KEY.json  one a configuration: raw values only
      failures/KEY.json
      summary.json           derived; rebuilt from the above at any time
      report.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import filelock

from loaderprobe.errors import BadValue, ForeignDirectory, Locked, Refused
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.config import FileSet, SweepSpec
from loaderprobe.records.environment import Environment
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.store.codec import decode, encode, write_atomically, write_error

T = TypeVar("T")
PARTS = ("files", "ceilings", "measurements", "failures")


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
        """A new run. Raises Refused when `path` is not empty, MissingPart without permission."""
        if path.exists() and not path.is_dir():
            raise BadValue(f"{path} is a file", hint="name a directory for the run, with --out")
        if (path / "run.json").exists():
            raise Refused(
                f"{path} already holds a run", hint=f"complete it with --resume {path}, or choose another --out"
            )
        try:
            for part in PARTS:
                if path.is_dir() and _foreign(path):
                    raise ForeignDirectory(f"{path} is not empty and not a run", hint="choose another place with --out")
                (path / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, path) from error
        run = cls(path, record)
        for file_set in files:
            write_atomically(run._files_path(file_set.fingerprint), encode("files", file_set))
        write_atomically(path / "run.json", encode("run", record))
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """A run that was made before. Raises BadValue when `path` is not one."""
        file = path / "run.json"
        if not file.is_file():
            raise BadValue(f"{path} is not a run: it has no run.json", hint="give the directory that a sweep wrote")
        return cls(path, decode("run", file.read_bytes(), RunRecord, str(file)))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for writing. Raises Locked when another process does, MissingPart without permission."""
        with ExitStack() as held:
            try:
                held.enter_context(lock_directory(self.path))
            except OSError as error:
                raise write_error(error, self.path) from error
            yield

    def files(self, fingerprint: str) -> FileSet:
        """The file set with this fingerprint."""
        path = self._files_path(fingerprint)
        if not path.is_file():
            raise BadValue(f"{path} is missing from the run", hint="measure again into a new directory")
        return decode("files", path.read_bytes(), FileSet, str(path))

    def ceiling(self, fingerprint: str) -> StorageCeiling | None:
        """What is known of the storage under a file set; None when it was never measured."""
        path = self._ceiling_path(fingerprint)
        return decode("ceiling", path.read_bytes(), StorageCeiling, str(path)) if path.is_file() else None

    def save_ceiling(self, ceiling: StorageCeiling) -> None:
        """Keep a ceiling; it replaces what was known of the same file set."""
        path = self._ceiling_path(ceiling.data)
        # A run of an older version has no such folder.
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, encode("ceiling", ceiling))

    def save(self, result: Measurement | RunFailure) -> None:
        """Keep a result; a measurement replaces the failure of an earlier try."""
        if isinstance(result, Measurement):
            write_atomically(self._measurement_path(result.config.key), encode("measurement", result))
            self._failure_path(result.config.key).unlink(missing_ok=True)
        else:
            write_atomically(self._failure_path(result.config.key), encode("failure", result))

    def has_measurement(self, key: str) -> bool:
        """True when the configuration need not be measured again."""
        return self._measurement_path(key).is_file()

    def result(self, key: str) -> Measurement | RunFailure | None:
        """What is known of a configuration; None when it was never tried."""
        measured, failed = self._measurement_path(key), self._failure_path(key)
        if measured.is_file():
            return decode("measurement", measured.read_bytes(), Measurement, str(measured))
        if failed.is_file():
            return decode("failure", failed.read_bytes(), RunFailure, str(failed))
        return None

    def write(self, name: str, text: str) -> Path:
        """Write a derived file, such as `summary.json`, and return its path."""
        write_atomically(self.path / name, text.encode())
        return self.path / name

    def _files_path(self, fingerprint: str) -> Path:
        return self.path / "files" / f"{fingerprint}.json"

    def _ceiling_path(self, fingerprint: str) -> Path:
        return self.path / "ceilings" / f"{fingerprint}.json"

    def _measurement_path(self, key: str) -> Path:
        return self.path / "measurements" / f"{key}.json"

    def _failure_path(self, key: str) -> Path:
        return self.path / "failures" / f"{key}.json"


@contextmanager
def lock_directory(path: Path) -> Iterator[None]:
    """Hold `path/.lock`; it is released when this process ends, however it ends. Raises Locked."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path / ".lock", timeout=0):
            yield
    except filelock.Timeout as error:
        raise Locked(f"another loaderprobe is writing {path}", hint="wait for it to end, or use --out") from error


def _foreign(path: Path) -> bool:
    return any(entry.name not in (".lock", *PARTS) for entry in path.iterdir())

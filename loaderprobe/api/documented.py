"""What results that are one record have in common: text, Markdown, HTML, JSON, a frame and a directory of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from loaderprobe.api.frames import frame
from loaderprobe.api.shown import ShownRecord
from loaderprobe.api.values import PathLike
from loaderprobe.records.environment import Origin
from loaderprobe.render.document import Document, document_markdown, document_text
from loaderprobe.render.document_page import document_page
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.json import result_json
from loaderprobe.render.notebook import document_html
from loaderprobe.render.table import csv_text
from loaderprobe.store.results import REPORT, RESULT, create_result, read_result

if TYPE_CHECKING:
    from pandas import DataFrame


class Documented(ShownRecord):
    """A record that shows itself as a document."""

    __slots__ = ()
    table_name: ClassVar[str] = "table.csv"
    """Of its file in the directory."""
    origin: Origin

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """The result in a directory that `--out` named, or in a file of `--json`.

        Raises BadValue when there is none, DamagedRun when it is of another kind or version, or damaged.
        """
        return cls.of(read_result(Path(path), lambda schema: cls if schema == schema_of(cls) else None))

    @abstractmethod
    def document(self) -> Document:
        """What it says, the answer first."""

    @abstractmethod
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Its table: one list a column, units in the names."""

    def exhibits(self) -> Mapping[str, Sequence[Exhibit]]:
        """Charts of its page, by the name of the section of the document that they belong to."""
        return {}

    def headline(self) -> str:
        """The title of the document."""
        return self.document().title

    def text(self, *, width: int = 80, color: bool = False) -> str:
        """The answer first, then the figures."""
        return document_text(self.document(), width=width, color=color)

    def markdown(self) -> str:
        """The same as GitHub-flavoured Markdown."""
        return document_markdown(self.document())

    def html(self) -> str:
        """The same as one HTML file with charts, which works offline."""
        environment = self.origin.environment
        made_by = (
            f"{self.origin.command} · loaderprobe {environment.loaderprobe} · {self.origin.created_utc} · "
            f"{environment.cpu_model}, {environment.cores_available:g} cores"
        )
        return document_page(self.document(), self.exhibits(), made_by=made_by) + "\n"

    def json(self) -> str:
        """All of the record, with its schema's name and version first."""
        return result_json(self)

    def csv(self) -> str:
        """Its table as CSV."""
        return csv_text(self.columns())

    def to_frame(self) -> DataFrame:
        """Its table, units in the names of its columns. Raises MissingPart without pandas."""
        return frame(self.columns())

    def save(self, out: Path) -> Path:
        """Write `result.json`, its table as CSV and `report.html` into a new directory; returns the page's path.

        Raises Refused when `out` is not empty, MissingPart without permission, NoSpace on a full disk.
        """
        return create_result(out, self.files())

    def files(self) -> dict[str, str]:
        """The files of its directory, by name."""
        return {RESULT: self.json(), self.table_name: self.csv(), REPORT: self.html()}

    def _repr_html_(self) -> str:
        return document_html(self.document())


def schema_of(type_: type[Any]) -> str:
    """The name of the schema of a record's class."""
    return next(str(field.default) for field in fields(type_) if field.name == "schema")

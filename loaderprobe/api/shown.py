"""What results have in common: each shows itself, as a document, in a terminal, a notebook, Markdown and HTML.

One with a table has JSON, too, and one with an origin a directory of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rich.text import Text

from loaderprobe.api.values import PathLike
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.records import values
from loaderprobe.records.environment import Origin
from loaderprobe.render.document import Document
from loaderprobe.store.results import REPORT, RESULT, check_out, make_directory, read_result, write_result

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console, ConsoleOptions, RenderResult


def frame(columns: Mapping[str, Sequence[object]]) -> DataFrame:
    """A DataFrame of these columns, in their order; None becomes NaN among numbers. Raises MissingPart."""
    try:
        import pandas
    except ImportError as error:
        raise MissingPart(
            f"a frame needs pandas, which cannot be imported: {error}", hint="pip install 'pandas>=2.2'"
        ) from error
    return pandas.DataFrame({name: [_text(cell) for cell in column] for name, column in columns.items()})


def _text(cell: object) -> object:
    """Neither pyarrow nor the texts of pandas 3 take bytes of a path that are no UTF-8."""
    return cell.encode(errors="backslashreplace").decode() if isinstance(cell, str) else cell


def parquet(table: DataFrame) -> bytes:
    """The frame as a parquet file. Raises MissingPart without pyarrow."""
    if find_spec("pyarrow") is None:
        raise MissingPart(
            "parquet needs pyarrow, which is not installed; all other formats work without it",
            hint="install pyarrow beside loaderprobe: python -m pip install pyarrow",
        )
    data: bytes = table.to_parquet(engine="pyarrow", index=False)
    return data


class Shown(ABC):
    """`print` shows all of it, the prompt one line, a notebook the page."""

    __slots__ = ()

    @abstractmethod
    def document(self) -> Document:
        """What it says, the answer first."""

    def headline(self) -> str:
        """What was examined, and the answer, in one line."""
        document = self.document()
        return ": ".join(filter(None, [document.title, document.headline]))

    def made_by(self) -> str:
        """With what it was made, and when; the last line of its page."""
        return ""

    def text(self, *, width: int = 80, color: bool = False) -> str:
        """The answer first, in at most `width` columns, ending with a newline; ANSI colours only with `color`."""
        from loaderprobe.render.terminal import document_text

        return document_text(self.document(), width=width, color=color)

    def markdown(self) -> str:
        """The same as GitHub-flavoured Markdown."""
        from loaderprobe.render.pages import document_markdown

        return document_markdown(self.document())

    def html(self, *, inline: bool = False) -> str:
        """The same as one HTML file with charts, which works offline; `inline` one element of it, for a notebook."""
        from loaderprobe.render.pages import document_page

        return document_page(self.document(), made_by=self.made_by(), inline=inline)

    def svg(self) -> str:
        """The picture of its first screen, for a page that takes no HTML. Raises BadValue where it has none."""
        from loaderprobe.render.pages import document_picture

        picture = document_picture(self.document())
        if picture is None:
            raise BadValue("this result opens with a table, not with a picture", hint="use --format html")
        return picture

    def _repr_html_(self) -> str:
        return self.html(inline=True)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline()}>"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text(width=options.max_width, color=console.color_system is not None)
        yield Text.from_ansi(text.rstrip("\n"))


class Tabled(Shown):
    """A result with a table."""

    __slots__ = ()

    @abstractmethod
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Its table: one list a column, units in the names."""

    def json(self) -> str:
        """All of the record, with its schema's name and version first."""
        from loaderprobe.render.json import result_json

        return result_json(self)

    def csv(self) -> str:
        from loaderprobe.render.rows import csv_text

        return csv_text(self.columns())

    def to_frame(self) -> DataFrame:
        """Its table, units in the names of its columns. Raises MissingPart without pandas."""
        return frame(self.columns())


class Documented(Tabled):
    """A record with an origin, which is kept in a directory. Beside it, a subclass derives from the record's class."""

    __slots__ = ()
    table_name: ClassVar[str] = "table.csv"
    """Of its file in the directory."""
    origin: Origin

    @classmethod
    def of(cls, record: Any) -> Self:
        """The same record, showing itself."""
        return cls(**values(record))

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """The result in a directory that `--out` named, or in a file of `--json`.

        Raises BadValue when there is none, DamagedRun when it is of another kind or version, or damaged.
        """
        expected = next(field.default for field in fields(cls) if field.name == "schema")  # type: ignore[arg-type]  # with a record's class
        return cls.of(read_result(Path(path), lambda schema: cls if schema == expected else None))

    def made_by(self) -> str:
        """The command, the version, the time and the machine."""
        origin, machine = self.origin, self.origin.environment
        return f"{origin.command} · loaderprobe {machine.loaderprobe} · {origin.created_utc} · {machine.machine}"

    def save(self, out: Path) -> Path:
        """Write `result.json`, its table as CSV and `report.html` into a new directory; returns the page's path.

        Raises Refused when `out` is not empty, MissingPart without permission, NoSpace on a full disk.
        """
        check_out(out)
        make_directory(out)
        return write_result(out, self.files())

    def files(self) -> dict[str, str]:
        """The files of its directory, by name."""
        return {RESULT: self.json(), self.table_name: self.csv(), REPORT: self.html()}


def origin_now(command: str, *paths: Path) -> Origin:
    """This machine and this moment, with the storage under `paths`."""
    from loaderprobe.system.environment import describe_environment
    from loaderprobe.system.host import utc_timestamp

    return Origin(created_utc=utc_timestamp(), command=command, environment=describe_environment(paths))


def usual_out(kind: str = "") -> Path:
    """A new directory for a run, named by the time to the microsecond, and by its kind where it is no sweep."""
    from loaderprobe.system.host import local_now

    name = local_now().strftime("%Y%m%d-%H%M%S-%f")
    return Path("loaderprobe-runs") / (f"{name}-{kind}" if kind else name)

"""What every result has in common: it shows itself in a terminal, in a console of rich's, and in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class Shown(ABC):
    """`print` shows all of it, the prompt one line, a notebook a table."""

    __slots__ = ()

    @abstractmethod
    def headline(self) -> str:
        """The result in one line."""

    @abstractmethod
    def text(self, *, width: int = 80, color: bool = False) -> str:
        """The whole result in at most `width` columns, ending with a newline; ANSI colours only with `color`."""

    @abstractmethod
    def _repr_html_(self) -> str: ...

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline()}>"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text(width=options.max_width, color=console.color_system is not None)
        yield Text.from_ansi(text.rstrip("\n"))


class ShownRecord(Shown):
    """A record that shows itself. Beside it, a subclass derives from the record's class."""

    __slots__ = ()

    @classmethod
    def of(cls, record: Any) -> Self:
        """The same record, showing itself."""
        return cls(**{field.name: getattr(record, field.name) for field in fields(record)})

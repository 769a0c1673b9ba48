"""A page of text of a fixed width, with a hanging indent where a list needs one."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from loaderprobe.render.wording import visible


class Page:
    """Collects paragraphs, lists and tables; `text` gives them wrapped to `width` columns."""

    def __init__(self, *, width: int, color: bool) -> None:
        # An empty environment keeps COLUMNS, TERM and NO_COLOR of the caller out of the result.
        self._console = Console(
            file=StringIO(),
            width=width,
            height=100,
            color_system="standard" if color else None,
            force_terminal=color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},
        )

    @property
    def width(self) -> int:
        """Columns."""
        return self._console.width

    def gap(self) -> None:
        """An empty line."""
        self._console.print()

    def title(self, text: str) -> None:
        """The first line."""
        self._console.print(Text(visible(text), style="bold", overflow="fold"))

    def heading(self, text: str) -> None:
        """A line that begins a section, after a blank line."""
        self.gap()
        self._console.print(Text(visible(text), style="bold", overflow="fold"))

    def paragraph(self, text: str, *, style: str = "") -> None:
        """Wrapped text from the left edge."""
        self._console.print(Text(visible(text), style=style, overflow="fold"))

    def item(self, subject: str, text: str) -> None:
        """`subject: text`, wrapped, further lines indented."""
        line = Text(overflow="fold")
        line.append(f"{visible(subject)}: " if text else visible(subject), style="bold")
        line.append(visible(text))
        for number, part in enumerate(line.wrap(self._console, max(8, self._console.width - 4), overflow="fold")):
            self._console.print(Padding(part, (0, 0, 0, 4 if number else 2)))

    def command(self, text: str) -> None:
        """Something to type, under an item."""
        self._console.print(Padding(Text(visible(text), style="cyan", overflow="fold"), (0, 0, 0, 6)))

    def add(self, renderable: RenderableType, *, crop: bool = True) -> None:
        """Anything else that rich can draw; without `crop`, longer lines stay whole."""
        self._console.print(renderable, crop=crop)

    def text(self) -> str:
        """Everything so far, without trailing blanks."""
        file = self._console.file
        assert isinstance(file, StringIO)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"

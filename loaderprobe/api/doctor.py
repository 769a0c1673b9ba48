"""`doctor`: what can be measured on this machine, why not the rest, and how to get it."""

from __future__ import annotations

from pathlib import Path

from loaderprobe.api.shown import Shown
from loaderprobe.api.values import PathLike
from loaderprobe.errors import BadValue
from loaderprobe.measure.capabilities import capabilities
from loaderprobe.records.environment import Capability
from loaderprobe.render.doctor import capabilities_document
from loaderprobe.render.document import Document
from loaderprobe.render.json import worded


class Capabilities(Shown, tuple[Capability, ...]):
    """Everything that a sweep measures, and whether it can be measured here: a tuple that shows itself."""

    __slots__ = ()

    def document(self) -> Document:
        return capabilities_document(self)


def doctor(path: PathLike = ".") -> Capabilities:
    """What can be measured here, for data under `path`. Raises BadValue when there is no such path."""
    target = Path(path)
    if not target.exists():
        raise BadValue(f"{target} does not exist", hint="give a directory on the storage in question")
    return Capabilities(worded(capabilities(target if target.is_dir() else target.parent)))

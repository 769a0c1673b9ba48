"""Whatever a directory holds: a sweep's run, or the result of another command."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from loaderprobe.api.documented import Documented
from loaderprobe.api.load import Run, load
from loaderprobe.records.compare import COMPARE_SCHEMA
from loaderprobe.records.layers import LAYERS_SCHEMA
from loaderprobe.store.results import RESULT, read_result

RESULTS = {
    COMPARE_SCHEMA: "compare:Comparison",
    LAYERS_SCHEMA: "layers:Layers",
}
"""module:class of each kind of result, by its schema."""


def load_any(path: Path) -> Run | Documented:
    """The run or the result in a directory. Raises BadValue when there is neither."""
    if not (path / RESULT).exists():
        return load(path)
    found: Documented = read_result(path, type_of)
    return found


def type_of(schema: str) -> type[Documented] | None:
    """The class of the results with this schema; None for one that has none."""
    module, _, name = RESULTS.get(schema, "").partition(":")
    found: type[Documented] | None = getattr(import_module(f"loaderprobe.api.{module}"), name) if module else None
    return found

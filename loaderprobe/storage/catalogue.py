"""The catalogue of storage kinds: published limits that loaderprobe did not measure, and what plug-ins add.

A plug-in names a function without arguments under the entry point group `loaderprobe.catalogues`; it returns
`CatalogueEntry` records (`loaderprobe.records.plan`).
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files

import msgspec

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.records.plan import CatalogueEntry
from loaderprobe.units import join_words


def published() -> tuple[CatalogueEntry, ...]:
    """The entries that come with loaderprobe."""
    data = files("loaderprobe").joinpath("storage", "catalogue.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[CatalogueEntry, ...])


def catalogue() -> tuple[CatalogueEntry, ...]:
    """All entries. Raises MissingPart for a plug-in that cannot be used, BadValue for one that takes a name again."""
    entries = list(published())
    for plug_in in sorted(entry_points(group="loaderprobe.catalogues"), key=lambda point: point.name):
        added = _added(plug_in)
        taken = {name for entry in entries for name in (entry.name, *entry.names)}
        again = [name for entry in added for name in (entry.name, *entry.names) if name in taken]
        if again:
            raise BadValue(
                f"the plug-in '{plug_in.name}' adds {join_words(sorted(set(again)))}, which the catalogue has already",
                hint="give its entries other names",
            )
        entries += added
    return tuple(entries)


def entry_named(entries: tuple[CatalogueEntry, ...], name: str) -> CatalogueEntry:
    """The entry that `--storage NAME` means. Raises BadValue with the names there are."""
    for entry in entries:
        if name in entry.names:
            return entry
    near = [alias for entry in entries if name and entry.name.startswith(name.split("-")[0]) for alias in entry.names]
    known = join_words(near or [alias for entry in entries for alias in entry.names], "or")
    raise BadValue(
        f"the catalogue has no storage named '{name}'", hint=f"use {known}; or figures, like 5GB/s,60kopens/s,2ms"
    )


def _added(plug_in: EntryPoint) -> list[CatalogueEntry]:
    try:
        entries = list(plug_in.load()())
    except LoaderprobeError:
        raise
    except Exception as error:  # a plug-in may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise MissingPart(
            f"the catalogue '{plug_in.name}' cannot be read: {reason}", hint="remove or repair it"
        ) from error
    if not all(isinstance(entry, CatalogueEntry) for entry in entries):
        raise MissingPart(f"the catalogue '{plug_in.name}' holds what is no CatalogueEntry", hint="remove or repair it")
    return entries

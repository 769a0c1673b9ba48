"""The catalogue: at most 15 dated entries with sources, and what plug-ins add."""

from __future__ import annotations

from datetime import date
from importlib.metadata import EntryPoint

import pytest

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.records.catalogue import Amount, CatalogueEntry
from loaderprobe.storage import catalogue as module
from loaderprobe.storage.catalogue import catalogue, entry_named, published

OWN = CatalogueEntry(
    name="acme", family="file", unit="", read_bytes_per_s=Amount(base=1e9), read_on="2026-11-01", source="ACME sheet"
)


def own_entries() -> list[CatalogueEntry]:
    """A plug-in."""
    return [OWN]


def taken_entries() -> list[CatalogueEntry]:
    """A plug-in that would replace an entry."""
    return list(published()[:1])


def wrong_entries() -> list[object]:
    """A plug-in that returns something else."""
    return ["fast"]


def broken_entries() -> list[object]:
    """A plug-in that raises."""
    raise RuntimeError("no licence")


def install(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """As if a package named this function as its catalogue."""
    point = EntryPoint("acme", f"{__name__}:{function}", "loaderprobe.catalogues")
    monkeypatch.setattr(module, "entry_points", lambda group: [point] if group == point.group else [])


def test_it_is_short_dated_and_sourced() -> None:
    """At most 15 entries, each name once, none read in the future; each has a limit that can give out."""
    entries = published()
    names = [name for entry in entries for name in entry.names]
    assert 10 <= len(entries) <= 15
    assert len(names) == len(set(names))
    for entry in entries:
        assert date(2026, 1, 1) <= date.fromisoformat(entry.read_on) <= date(2027, 12, 31) and entry.source
        assert entry.tiers or entry.read_bytes_per_s or entry.opens_per_s or entry.requests_per_s, entry.name


def test_its_units_are_right() -> None:
    """GiB/s are 2^30, MB/s 10^6: as each vendor writes."""
    assert entry_named(published(), "efs-elastic").read_bytes_per_s == Amount(base=20 * 2.0**30)
    assert entry_named(published(), "gcp-filestore-zonal").read_bytes_per_s == Amount(per_unit=260 * 2.0**20)
    assert entry_named(published(), "gcp-parallelstore").read_bytes_per_s == Amount(per_unit=1.15 * 2.0**30)
    assert entry_named(published(), "fsx-lustre-250").tiers[1].read_bytes_per_s_per_unit == 250e6


@pytest.mark.parametrize(
    ("name", "listed", "not_listed"),
    [("fsx-lustre", ["fsx-lustre-250"], ["s3-standard"]), ("floppy", ["s3-standard", "5GB/s"], [])],
)
def test_an_unknown_name_lists_those_like_it(name: str, listed: list[str], not_listed: list[str]) -> None:
    """Or all, and the other way to give a storage."""
    with pytest.raises(BadValue) as caught:
        entry_named(published(), name)
    assert all(each in caught.value.hint for each in listed)
    assert not any(each in caught.value.hint for each in not_listed)


def test_a_plug_in_adds_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """After those that come with loaderprobe."""
    install(monkeypatch, "own_entries")
    assert catalogue() == (*published(), OWN)


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        ("taken_entries", BadValue, "'acme' adds fsx-lustre"),
        ("wrong_entries", MissingPart, "'acme'"),
        ("broken_entries", MissingPart, "'acme'"),
        ("none_such", MissingPart, "'acme'"),
    ],
)
def test_a_broken_plug_in_is_named(
    monkeypatch: pytest.MonkeyPatch, function: str, error: type[LoaderprobeError], says: str
) -> None:
    """It would replace an entry, returns something else, raises, or is not there."""
    install(monkeypatch, function)
    with pytest.raises(error, match=says):
        catalogue()

"""The catalogue: at most 15 dated entries with sources, and what plug-ins add."""

from __future__ import annotations

from datetime import date
from importlib.metadata import EntryPoint

import pytest

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.records.plan import Amount, CatalogueEntry
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
    point = EntryPoint("acme", f"tests.storage.test_catalogue:{function}", "loaderprobe.catalogues")
    monkeypatch.setattr(
        "loaderprobe.storage.catalogue.entry_points",
        lambda group: [point] if group == "loaderprobe.catalogues" else [],
    )


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


def test_an_unknown_name_lists_those_like_it() -> None:
    """Or all, and the other way to give a storage."""
    with pytest.raises(BadValue) as caught:
        entry_named(published(), "fsx-lustre")
    assert "fsx-lustre-250" in caught.value.hint and "s3-standard" not in caught.value.hint
    with pytest.raises(BadValue) as caught:
        entry_named(published(), "floppy")
    assert "s3-standard" in caught.value.hint and "5GB/s" in caught.value.hint


def test_a_plug_in_adds_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """After those that come with loaderprobe."""
    install(monkeypatch, "own_entries")
    assert catalogue() == (*published(), OWN)


def test_a_plug_in_replaces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is taken is refused."""
    install(monkeypatch, "taken_entries")
    with pytest.raises(BadValue, match="'acme' adds fsx-lustre"):
        catalogue()


@pytest.mark.parametrize("function", ["wrong_entries", "broken_entries", "none_such"])
def test_a_broken_plug_in_is_a_missing_part_with_its_name(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """It returns something else, it raises, or it is not there."""
    install(monkeypatch, function)
    with pytest.raises(MissingPart, match="'acme'"):
        catalogue()

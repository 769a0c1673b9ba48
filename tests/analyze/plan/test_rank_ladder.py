"""What ranks read in step as a storage: a ceiling only where more ranks got no more, and storage was the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.plan.plan import Offer, rank_offer
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import FilesWere
from tests.examples.reports import example_row


def row(
    ranks: int, images_per_s: float, *, fraction: float | None = 0.95, files: FilesWere = "cold"
) -> ConfigurationRow:
    """Of 100 kB an image."""
    found = example_row()
    assert found.verdict is not None
    verdict = replace(
        found.verdict, bytes_per_image=100_000.0, read_amplification=1.0, disk_ceiling_fraction=fraction,
        files_were=files, rates_images_per_s=replace(found.verdict.rates_images_per_s, loader=images_per_s),
        bound=replace(found.verdict.bound, cause="preprocessing"),
    )  # fmt: skip
    return replace(found, config=replace(found.config, ranks=ranks), verdict=verdict)


@pytest.mark.parametrize(
    ("rows", "at_least"),
    [
        ((row(1, 200), row(2, 204), row(4, 205)), False),
        ((row(1, 200), row(2, 204)), True),
        ((row(1, 200), row(2, 300), row(4, 310)), True),
    ],
)
def test_two_doublings_without_gain_are_a_ceiling(rows: tuple[ConfigurationRow, ...], at_least: bool) -> None:
    """Where storage limited; one doubling or a rise prove none."""
    offer = rank_offer(rows)
    assert isinstance(offer, Offer)
    (limit,) = offer.limits
    assert limit.at_least == at_least and bool(offer.notes) == at_least
    assert limit.quantity.value == pytest.approx((rows[-1].verdict.rates_images_per_s.loader or 0) * 1e5)  # type: ignore[union-attr]


@pytest.mark.parametrize(("known", "offered"), [(None, False), (372e6, False), (15e6, True)])
def test_what_decoding_limited_counts_only_above_what_is_known(known: float | None, offered: bool) -> None:
    """20.5 MB/s of busy cores: no supply, unless all that was measured else is less; then at least that."""
    found = rank_offer((row(1, 200), row(2, 204), row(4, 205, fraction=0.4)), known)
    if offered:
        assert isinstance(found, Offer) and found.limits[0].at_least
    else:
        assert isinstance(found, Remark) and found.code == "ranks_not_storage"
        assert found.facts == {"ranks": 4, "bytes_per_s": pytest.approx(20.5e6)}


def test_one_number_of_ranks_or_warm_files_offer_nothing() -> None:
    """There is no ladder."""
    assert rank_offer([row(4, 200)]) is None
    assert rank_offer([row(1, 200), row(4, 200, files="warm")]) is None

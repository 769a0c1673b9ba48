"""Whole epochs on a fake clock and a fake cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from loaderprobe.analyze.caches import lru_hits
from loaderprobe.analyze.report import epochs_of
from loaderprobe.measure.assembly import make_compute
from loaderprobe.measure.studies import EpochsStudy, in_epochs, pages_bytes, too_small
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Epochs
from loaderprobe.testing import FakeClock, FakePageCache, Service, example_config, example_files
from tests.measure.scripted import scripted_parts

FILES = example_files(1000)
CONFIG = example_config(data=FILES.fingerprint, compute="emulated:100000")
SERVICE = Service(cpu_s=0.002, blocked_s=0.006)


class Small(FakePageCache):
    """Drops the files that were used least recently."""

    def __init__(self, files: int) -> None:
        super().__init__()
        self._files = files
        self._used: dict[Path, None] = {}

    def warm(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._used.pop(path, None)
            self._used[path] = None
        while len(self._used) > self._files:
            del self._used[next(iter(self._used))]
        self.held = set(self._used)


def trained(cache: FakePageCache, share: float, epochs: int = 3) -> Epochs:
    clock = FakeClock()
    order = in_epochs(FILES, CONFIG, epochs)
    parts = scripted_parts(SERVICE, clock, make_compute(CONFIG, clock), CONFIG, order, cache)
    found = EpochsStudy(
        config=CONFIG, files=FILES, order=order, parts=parts, epochs=epochs, resident_before=0.0,
        memory=lambda: round(share * pages_bytes(FILES)), on_stage=lambda *_: None,
    ).run()  # fmt: skip
    return epochs_of(found, FILES)


def test_an_epoch_has_each_file_once_in_its_own_order() -> None:
    """What fills no batch is left out, of each epoch other files."""
    paths = in_epochs(FILES, CONFIG, 3).paths
    parts = [paths[number * 992 : (number + 1) * 992] for number in range(3)]
    assert len(paths) == 3 * 992 and all(len(set(part)) == 992 for part in parts)
    assert parts[0] != parts[1] != parts[2] and set(parts[0]) != set(parts[1])


def test_a_set_that_fits_is_cold_once() -> None:
    """Two workers with 8 ms an image, then with 2 ms."""
    found = trained(FakePageCache(), share=1.5)
    assert found.fit == "fits"
    # The eight images that the first epoch left out are cold in the second.
    assert [each.cold_fraction for each in found.epochs] == pytest.approx([1, 8 / 992, 0], abs=0.002)
    assert [each.images_per_s for each in found.epochs] == pytest.approx([250, 1000, 1000], rel=0.04)


def test_a_set_that_fits_half_is_hit_as_the_law_says() -> None:
    """A cache with the least recently used files dropped answers 15 % of random reads, not half of them."""
    found = trained(Small(500), share=0.5, epochs=4)
    assert found.fit == "fits in part"
    for each in found.epochs[1:]:
        assert each.cold_fraction == pytest.approx(1 - lru_hits(0.5), abs=0.05)


def test_a_set_that_does_not_fit_stays_cold() -> None:
    """With memory for a tenth of it."""
    found = trained(Small(100), share=0.1)
    assert found.fit == "does not fit"
    assert all(each.cold_fraction == pytest.approx(1, abs=0.02) for each in found.epochs)


def test_too_few_images_are_refused() -> None:
    """The number that is named is enough."""
    assert too_small(FILES, CONFIG) is None
    why = too_small(example_files(287), CONFIG)
    assert why == Remark(code="too_few_for_epoch", facts={"images": 287, "least": 288})
    assert too_small(example_files(288), CONFIG) is None

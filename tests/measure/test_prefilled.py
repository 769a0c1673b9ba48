"""Training from a full buffer on a fake clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.report import buffer_effect
from loaderprobe.measure.assembly import make_compute
from loaderprobe.measure.studies import PrefilledStudy, batches_read, images_for
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Prefilled
from loaderprobe.testing import FakeClock, FakePageCache, ScriptedLoader, Service, example_config, example_files
from tests.measure.conftest import Measure
from tests.measure.scripted import scripted_parts

SERVICE = Service(cpu_s=0.002, blocked_s=0.006)
"""With 4 workers: 500 images/s cold."""


class Filling(ScriptedLoader):
    """Workers that say when all that is requested has been made."""

    def still(self, taken: int) -> bool:
        now_ns = self.clock.now_ns()
        for number in list(self._asked_ns):
            if self._start_ns(number) <= now_ns:
                self._make(number)
        return not self._asked_ns and all(ready_ns <= now_ns for ready_ns, _ in self._ready_ns.values())


class Never(ScriptedLoader):
    """Workers that never stand still."""

    def still(self, taken: int) -> bool:
        return False


def studied(*, images: int = 8192, loader: type[ScriptedLoader] = Filling, **changes: Any) -> Prefilled:
    clock, files, cache = FakeClock(), example_files(images), FakePageCache()
    config = example_config(data=files.fingerprint, workers=4, **changes)
    parts = scripted_parts(SERVICE, clock, make_compute(config, clock), config, files, cache)
    parts = replace(parts, loader=loader(config, files, clock, cache, SERVICE))
    return PrefilledStudy(config, files, parts, lambda *_: None).run()


@pytest.mark.parametrize("factor", [1, 4])
def test_the_rate_falls_as_the_law_says(measure_fake: Measure, factor: int) -> None:
    """The free batches of the buffer are seen at every number of iterations, and no others."""
    study = studied(prefetch_factor=factor, compute="emulated:5000")
    measured = measure_fake(SERVICE, workers=4, prefetch_factor=factor, compute="emulated:5000")
    found = buffer_effect(measured, verdict(measured), study)
    assert found is not None and (found.how, found.batches) == ("measured", 4 * factor)
    assert study.prefilled is not None and study.prefilled.steps == 100
    assert study.prefilled.resident_before == 0 and found.most == pytest.approx(10, rel=0.03)
    for iterations in (50, 100):
        # Batches of 4 workers come in groups of 4.
        assert found.measured(iterations) == pytest.approx(found.predicted(iterations), rel=0.05)


def test_where_compute_is_the_limit_the_buffer_does_nothing(measure_fake: Measure) -> None:
    """The device is as fast with an empty buffer."""
    study = studied(compute="emulated:100")
    measured = measure_fake(SERVICE, workers=4, compute="emulated:100")
    found = buffer_effect(measured, verdict(measured), study)
    assert found is not None and found.enough == 1
    assert all(each.over_steady == pytest.approx(1, abs=0.01) for each in found.runs)


def test_a_set_that_is_too_small_is_refused_with_its_size() -> None:
    """The images that are named are enough, and one less is not."""
    config = example_config(workers=4, prefetch_factor=4)
    least = images_for(config, 2 * config.loader.batches_ahead)
    refused = studied(images=least - 1, prefetch_factor=4)
    assert refused.prefilled is None
    assert refused.reason == Remark(code="too_few_for_buffer", facts={"images": least - 1, "least": least})
    assert studied(images=least, prefetch_factor=4).prefilled is not None


def test_a_buffer_that_does_not_fill_is_given_up() -> None:
    """After a minute of the clock, with the reason."""
    assert studied(loader=Never).reason == Remark(code="buffer_not_filled", facts={"within_s": 60.0})


def test_a_sweep_needs_more_images_for_it() -> None:
    """The batches that stay in the loader, and those that are timed."""
    loader = example_config(workers=8, prefetch_factor=8).loader
    assert batches_read(loader) == 72 + 64 + 3 * 64

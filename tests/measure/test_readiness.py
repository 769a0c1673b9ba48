"""What a small data set means for cold segments."""

from __future__ import annotations

from loaderprobe.measure.pace import Pace
from loaderprobe.measure.readiness import Readiness
from loaderprobe.testing import FakeClock, FakePageCache, ScriptedLoader, Service, example_config, example_files


def test_too_few_samples_are_said_once_of_the_segment_that_needs_most() -> None:
    """Training takes a step that is not timed, so it needs a batch more than the loader alone."""
    config, files, cache = example_config(workers=1), example_files(10), FakePageCache()
    loader = ScriptedLoader(config, files, FakeClock(), cache, Service(cpu_s=0.001, blocked_s=0.0))
    ready = Readiness(config, files, "files", loader, cache, lambda count: None)
    for untimed in (3, 4, 3):
        ready.limit(Pace(), "baseline", untimed)
    (note,) = ready.notes
    ready.notes.clear()
    ready.limit(Pace(), "baseline", 4)
    assert [note] == ready.notes

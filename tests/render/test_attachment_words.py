"""What is said of a script that was not measured."""

from __future__ import annotations

from loaderprobe.records.diagnosis import Attached
from loaderprobe.render.attachment_words import not_measured


def test_a_script_that_was_stopped_before_a_checkpoint_did_not_end_by_itself() -> None:
    """What helps is another directory, not more training."""
    seen = Attached(pid=1, loaders=(), why_not="ended_early", endangered="/out/last.pt")
    said = not_measured(seen)
    assert "was stopped before it would write over or remove /out/last.pt" in said
    assert "Try: another, empty directory" in said and "longer" not in said


def test_a_script_that_ended_by_itself_trained_too_little() -> None:
    """Which more training changes."""
    said = not_measured(Attached(pid=1, loaders=(), why_not="ended_early"))
    assert said.endswith("Try: let it train for longer")

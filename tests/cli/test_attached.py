"""How loaderprobe speaks in a script that it is attached to."""

from __future__ import annotations

import io

import pytest

from loaderprobe.cli.attached import _say


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "term", "shown"),
    [
        (Terminal(), "xterm", "epoch 1:  42%|####\r\x1b[Kloaderprobe: round 1\n"),
        (Terminal(), "dumb", "epoch 1:  42%|####loaderprobe: round 1\n"),
        (io.StringIO(), "xterm", "epoch 1:  42%|####loaderprobe: round 1\n"),
    ],
)
def test_a_line_takes_the_place_of_a_progress_bar(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, term: str, shown: str
) -> None:
    """In a terminal that can; a file gets no control characters."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stderr", stream)
    stream.write("epoch 1:  42%|####")
    _say("round 1")
    assert stream.getvalue() == shown


def test_a_closed_stream_does_not_end_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be said is left unsaid."""
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    _say("round 1")

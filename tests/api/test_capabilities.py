from __future__ import annotations

import pytest

from loaderprobe.api import capabilities
from loaderprobe.records.unavailable import Unavailable, reported
from loaderprobe.render.capability_words import step_words, why_words


def test_what_workers_wait_for_is_tried() -> None:
    """Where a child may be looked at, its workers may; else there is the reason."""
    found = capabilities._waits()
    assert found.name == "waits"
    assert found.state == "yes" or (found.state == "limited" and "syscall" in why_words(found))


@pytest.mark.parametrize(("scope", "step"), [(0, "SYS_PTRACE"), (2, "ptrace_scope=1"), (3, "ptrace_scope=1")])
def test_refused_system_calls_are_a_limit(monkeypatch: pytest.MonkeyPatch, scope: int, step: str) -> None:
    """With the reason, and the step that brings the rest: the container's or the kernel's."""
    monkeypatch.setattr(capabilities, "_why_letters_only", lambda pid: Unavailable(code="trace_refused"))
    monkeypatch.setattr(capabilities, "yama_scope", lambda: scope)
    found = capabilities._waits()
    assert found.state == "limited" and "hardened" in why_words(found) and step in step_words(found)


def test_an_unknown_machine_has_no_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """No permission helps where the numbers of system calls are not known."""
    monkeypatch.setattr(capabilities, "_why_letters_only", lambda pid: reported("numbers not known"))
    found = capabilities._waits()
    assert (found.state, found.next_step) == ("limited", None)

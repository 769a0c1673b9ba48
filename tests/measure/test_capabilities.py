from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from loaderprobe.measure import capabilities
from loaderprobe.records.measurement import Missing, Others
from loaderprobe.records.remark import Remark, reported
from loaderprobe.render.capability_words import step_words, why_words
from loaderprobe.testing import example_location


def test_what_workers_wait_for_is_tried() -> None:
    """Where a child may be looked at, its workers may; else there is the reason."""
    found = capabilities._waits()
    assert found.name == "waits"
    assert found.state == "yes" or (found.state == "limited" and "syscall" in why_words(found))


@pytest.mark.parametrize(("scope", "step"), [(0, "SYS_PTRACE"), (2, "ptrace_scope=1"), (3, "ptrace_scope=1")])
def test_refused_system_calls_are_a_limit(monkeypatch: pytest.MonkeyPatch, scope: int, step: str) -> None:
    """With the reason, and the step that brings the rest: the container's or the kernel's."""
    monkeypatch.setattr(capabilities, "_why_letters_only", lambda pid: Remark(code="trace_refused"))
    monkeypatch.setattr(capabilities, "yama_scope", lambda: scope)
    found = capabilities._waits()
    assert found.state == "limited" and "hardened" in why_words(found) and step in step_words(found)


def test_an_unknown_machine_has_no_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """No permission helps where the numbers of system calls are not known."""
    monkeypatch.setattr(capabilities, "_why_letters_only", lambda pid: reported("numbers not known"))
    found = capabilities._waits()
    assert (found.state, found.next_step) == ("limited", None)


@pytest.mark.parametrize(("seen", "words"), [(True, "they take 19 % of 2 cores now"), (False, "counts no CPU time")])
def test_what_others_take_now_is_said(monkeypatch: pytest.MonkeyPatch, *, seen: bool, words: str) -> None:
    """Or why it cannot be seen."""
    taken = Others(span_ns=10**9, cores=2, cpu_ns=380_000_000, own_cpu_ns=0, steal_ns=0)
    why = Missing(name="others", reason=Remark(code="machine_uncounted"))
    meter = SimpleNamespace(begin=lambda: None, end=lambda: taken if seen else None, missing=lambda: (why,))
    monkeypatch.setattr(capabilities, "OthersMeter", lambda: meter)
    monkeypatch.setattr(capabilities, "LOOK_S", 0.0)
    found = capabilities._others()
    assert (found.state, words in why_words(found)) == ("yes" if seen else "no", True)


def test_the_row_of_the_storage_has_its_read_ahead() -> None:
    """As the kernel writes it."""
    place = example_location("/data")
    assert why_words(capabilities._storage(place)) == "ext4 on vdb"
    place = replace(place, read_ahead_bytes=2560 * 1024)
    assert why_words(capabilities._storage(place)) == "ext4 on vdb, read-ahead 2560 KiB"

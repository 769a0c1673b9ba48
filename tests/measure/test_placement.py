"""Ranks that measure, die, hang, raise: the parent says which it was, and leaves none behind."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks.placement import Programs, behind, failure_of, run_placement
from loaderprobe.records.devices import Placement, PlacementFailure, Workload
from loaderprobe.records.ranks import RankEnd, RankError, RankOrder
from loaderprobe.store.marks import Marks

FAKES = Programs(launcher="tests.measure.fake_launcher", rank="tests.measure.fake_rank")
NOWHERE = Path("/nowhere")


def order(way: str, timeout_s: float = 60.0) -> RankOrder:
    return RankOrder(
        workload=Workload(model=way, data="mnist", shape=(1, 28, 28), batch_size=8, samples=80),
        placement=Placement(device="cpu", ranks=2), threads=1, rounds=3, steps=2, seed=0, timeout_s=timeout_s,
        scratch="",
    )  # fmt: skip


def failure(way: str, timeout_s: float = 60.0) -> PlacementFailure:
    found = run_placement(order(way, timeout_s), FAKES, clock=SystemClock(), on_segments=lambda *_: None).failure
    assert found is not None
    return found


def test_segments_have_the_seconds_of_every_rank() -> None:
    """In the order of ranks."""
    found = run_placement(order("measures"), FAKES, clock=SystemClock(), on_segments=lambda *_: None)
    assert found.failure is None
    assert [each.seconds for each in found.segments] == [(1.0, 2.0)]
    assert (found.backend, found.gradient_bytes, found.threads) == ("gloo", 12, 1)


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("killed", {"kind": "killed", "signal": "SIGKILL"}),
        ("exits", {"kind": "exited", "exit_code": 7}),
        ("raises", {"kind": "raised", "reason": "ValueError: no way", "hint": "try another"}),
    ],
)
def test_the_rank_in_which_an_error_began_is_named(way: str, expected: dict[str, object]) -> None:
    """With its end, how far it was, and its last lines; the other failed because of it."""
    found = failure(way)
    assert {name: getattr(found, name) for name in expected} == expected
    assert (found.rank, found.segment, found.segments) == (1, 3, 8)
    assert found.log == ("rank 1 is about to end",)


def test_a_hang_names_the_rank_that_is_behind_and_its_line() -> None:
    """It wrote its stack when it was asked; the launcher and its ranks are gone afterwards."""
    found = failure("hangs", timeout_s=1.0)
    assert (found.kind, found.rank, found.waited_s) == ("hung", 1, 1.0)
    assert any("fake_rank.py" in line and "_ends" in line for line in found.log)


def test_what_is_wrong_everywhere_is_an_error() -> None:
    """It would fail on every placement."""
    with pytest.raises(BadValue, match="no way") as caught:
        failure("wrong")
    assert caught.value.hint == "try another"


def test_ctrl_c_leaves_no_rank() -> None:
    """Neither the launcher nor a rank runs on."""
    pids: list[int] = []

    def interrupt(done: int, total: int) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            if b"fake_launcher" in _read(path):
                folder = Path(_read(path).split(b"\0")[4].decode()).parent
                pids[:] = [int(path.parent.name), *(Marks.read(folder / f"rank-{each}-marks").pid for each in (0, 1))]
        if pids and all(pids):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_placement(order("hangs"), FAKES, clock=SystemClock(), on_segments=interrupt)
    assert len(pids) == 3 and not any(b"fake_" in _read(Path(f"/proc/{pid}/cmdline")) for pid in pids)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def end(rank: int, code: int) -> RankEnd:
    return RankEnd(rank=rank, exit_code=code, log="")


def error(rank: int, at_ns: int) -> RankError:
    return RankError(rank=rank, reason=f"of rank {rank}", hint="", exit_code=1, at_ns=at_ns)


@pytest.mark.parametrize(
    ("ends", "errors", "expected"),
    [
        ([end(0, 1), end(1, -9)], [error(0, 5)], ("killed", 1)),
        ([end(0, 1), end(1, 3)], [error(0, 5)], ("exited", 1)),
        ([end(0, 1), end(1, 1)], [error(0, 5), error(1, 4)], ("raised", 1)),
        ([end(0, 1), end(1, -signal.SIGTERM)], [error(0, 5)], ("raised", 0)),
        ([], [], ("launcher", None)),
    ],
)
def test_consequences_are_not_the_beginning(
    ends: list[RankEnd], errors: list[RankError], expected: tuple[str, int | None]
) -> None:
    """A rank that lost another raises, too; the launcher ends the rest by SIGTERM."""
    found = failure_of(ends, errors, NOWHERE)
    assert (found.kind, found.rank) == expected


@pytest.mark.parametrize(("counts", "rank"), [([5, 4], 1), ([4, 5, 5], 0), ([5, 5], None), ([4, 4, 5], None), ([3], 0)])
def test_the_rank_that_is_behind(counts: list[int], rank: int | None) -> None:
    """One alone; several that are equally far are not the one."""
    assert behind(counts) == rank


def test_an_order_knows_its_files(tmp_path: Path) -> None:
    """All of them are in its scratch directory."""
    made = replace(order("measures"), scratch=str(tmp_path))
    assert {path.parent for path in (made.result(0), made.error(0), made.marks(0), made.store)} == {tmp_path}
    assert Marks.read(made.marks(0)) == Marks()

"""Open files that a process may have: raised as far as needed, never above the hard limit, never lowered."""

from __future__ import annotations

import resource
import subprocess

import pytest

from loaderprobe.system.limits import allow_open_files, connections_of

UNLIMITED = resource.RLIM_INFINITY


class Limits:
    """The limits of one process, as the kernel keeps them."""

    def __init__(self, soft: int, hard: int) -> None:
        self.now = soft, hard

    def prlimit(self, pid: int, kind: int, limits: tuple[int, int] | None = None) -> tuple[int, int]:
        """As `resource.prlimit`."""
        assert (pid, kind) == (7, resource.RLIMIT_NOFILE)
        before = self.now
        self.now = limits or self.now
        return before


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "then"),
    [
        (1024, 4096, 2000, 2000),
        (1024, 1500, 1500, 1500),
        (4096, 4096, 4096, 4096),
        (1024, UNLIMITED, 2000, 2000),
        (UNLIMITED, UNLIMITED, None, UNLIMITED),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed(
    soft: int, hard: int, allowed: int | None, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most to the hard limit, which stays; a larger one stays as well."""
    limits = Limits(soft, hard)
    monkeypatch.setattr(resource, "prlimit", limits.prlimit)
    assert allow_open_files(2000, 7) == allowed
    assert limits.now == (then, hard)


def test_another_process_of_this_user_may_be_given_more() -> None:
    """As torchrun, which holds the store; of one that has gone nothing is known."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        assert allow_open_files(100, child.pid) == 100
        child.communicate()
    assert allow_open_files(100, child.pid) is None


def test_each_rank_has_up_to_seven_connections() -> None:
    """Six of a sweep, of which the usual 1,024 ended at 170 ranks; a user's own group is one more."""
    assert connections_of(132) <= 1024 < connections_of(133)
    assert connections_of(1000) >= 7000

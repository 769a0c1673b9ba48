"""The tables of system calls and kernel functions that threads wait in."""

from __future__ import annotations

from loaderprobe.system.waits import calls_of, kind_of_channel


def test_kernel_functions_seen() -> None:
    """Names met on real kernels."""
    seen = {
        "folio_wait_bit_common": "storage", "request_wait_answer": "storage", "rpc_wait_bit_killable": "storage",
        "futex_wait_queue": "lock", "locks_lock_inode_wait": "lock", "hrtimer_nanosleep": "sleep",
        "anon_pipe_read": "pipe", "wait_woken": "network", "shrink_lruvec": "memory", "do_poll": None,
    }  # fmt: skip
    assert {channel: kind_of_channel(channel) for channel in seen} == seen


def test_both_machines_have_what_loaders_wait_in() -> None:
    """A call that is missing on one machine has a newer name there."""
    for machine in ("x86_64", "aarch64"):
        calls = calls_of(machine)
        assert calls is not None
        groups = {call.group for call in calls.values()}
        assert groups == {"descriptor", "second", "path", "futex", "lock", "fcntl", "sleep", "poll", "select"} | {
            "epoll", "ring", "child"
        }  # fmt: skip

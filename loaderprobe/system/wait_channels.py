"""The kernel function in which a thread sleeps (`/proc/PID/wchan`), as a kind of waiting.

Names differ between kernels; the parts used here are the same on Linux 5.4 to 6.18.
"""

from __future__ import annotations

from loaderprobe.records.waits import WaitKind

# The first part that occurs in the name decides, so that memory reclaim inside a read is not storage.
_PARTS: tuple[tuple[WaitKind, tuple[str, ...]], ...] = (
    ("memory", ("shrink_", "balance_", "mem_cgroup_", "reclaim", "congestion", "compact")),
    ("lock", ("futex", "locks_lock", "flock_lock", "posix_lock", "rwsem_", "mutex_lock", "__down")),
    ("sleep", ("nanosleep", "nsleep")),
    ("pipe", ("pipe_", "wait_for_partner", "unix_stream", "unix_dgram", "do_wait")),
    ("network", ("sk_wait", "wait_woken", "inet_", "tcp_", "udp_", "skb_wait", "skb_recv")),
    (
        "storage",
        ("folio_", "page_bit", "lock_page", "io_schedule", "bit_wait_io", "wait_on_buffer", "submit_bio", "blk_",
         "blkdev", "dio", "iomap", "filemap", "xfs_buf", "io_cqring", "read_events"),
    ),
)  # fmt: skip
# Requests to the server of a file system: FUSE, NFS, SMB, 9p, Ceph, Lustre. The thread sleeps in S, not in D.
_REQUESTS = ("request_wait_answer", "fuse", "rpc", "nfs", "wait_for_response", "cifs", "smb", "p9_", "ceph", "cl_sync")


def kind_of_channel(channel: str) -> WaitKind | None:
    """The kind of wait in this kernel function; None where the name gives no kind."""
    for kind, parts in _PARTS:
        if any(part in channel for part in parts):
            return kind
    return "storage" if any(part in channel for part in _REQUESTS) else None

"""In which of several ranks an error began, and its record: the others lost that rank, or waited for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from loaderprobe.measure.order import Order
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.seats import SeatEnd
from loaderprobe.units import join_words

LOST = (
    "another rank has gone",
    "failed to pass monitoredBarrier",
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "Broken pipe",
    "Timed out waiting",
    "Socket closed",
    "remote process exited",
    "communicator was aborted",
)
"""In the words of gloo, NCCL and ourselves: a rank that fails so has lost another."""
OF_NCCL = ("Watchdog caught collective operation timeout", "ncclRemoteError")
"""Its watchdog ends the process of a rank that waits too long, by SIGABRT."""
OF_DATA = ("the data set raised", "OSError", "ConnectionResetError", "BrokenPipeError", "TimeoutError")
"""What a storage on a network says in the same words."""
_MISSING = re.compile(
    r"[Rr]anks? (\d[\d, and]*) failed to pass monitoredBarrier|does not answer: ranks? (\d[\d, and]*) \("
)


def is_consequence(reason: str, log: Sequence[str] = ()) -> bool:
    """True where an error, or the last lines of a process that NCCL ended, say only that another rank was lost."""
    if any(words in line for line in log for words in OF_NCCL):
        return True
    return not reason.startswith(OF_DATA) and any(words in reason for words in LOST)


def failure_of(order: Order, ends: Sequence[SeatEnd], *, started_utc: str, wall_s: float) -> RunFailure:
    """One record of how all ranks ended, of which one at least did not end well."""
    origin = origin_of(ends)
    first = next((each for each in ends if each.first), ends[0])
    shown = origin or first
    reason, hint = _reason(shown, first, ends, known=origin is not None)
    by_itself = shown.kind in ("failed", "timeout")
    return RunFailure(
        config=order.config,
        stage=shown.stage or first.stage,
        reason=reason,
        hint=hint,
        exit_code=shown.exit_code if by_itself else None,
        signal=shown.signal if by_itself else None,
        log=shown.log or first.log,
        started_utc=started_utc,
        wall_s=wall_s,
        rank=None if origin is None else origin.rank,
        host="" if origin is None else origin.host,
    )


def origin_of(ends: Sequence[SeatEnd]) -> SeatEnd | None:
    """The rank in which it began; None where nothing shows it.

    In this order: a rank that others name as missing, one that died or raised by itself, one whose process gave no
    word, and the only one that was ended without a word, or that was behind all others.
    """
    open_ = [each for each in ends if each.kind != "done"]
    missing = _missing(ends)
    named = [each for each in open_ if each.rank in missing]
    own = [each for each in open_ if each.kind == "failed" and not each.consequence]
    gone = [each for each in open_ if each.kind == "lost"]
    if len(named) == 1:
        return next((each for each in own if each in named), named[0])
    if own:
        return next((each for each in own if each.first), own[0])
    if len(gone) == 1:
        return gone[0]
    silent = [each for each in open_ if each.kind == "ended"]
    if len(silent) == 1 and not any(each.kind == "timeout" for each in ends):
        return silent[0]
    return _behind(silent, ends)


def _behind(silent: Sequence[SeatEnd], ends: Sequence[SeatEnd]) -> SeatEnd | None:
    """The rank that reported least; None when no single one is behind the others."""
    least = min(each.events for each in ends if each.kind != "lost")
    found = [each for each in silent if each.events == least]
    return found[0] if len(found) == 1 and sum(each.events == least for each in ends) == 1 else None


def _missing(ends: Sequence[SeatEnd]) -> set[int]:
    """Ranks that did not come to a meeting, by the words of those that waited there."""
    texts = [text for each in ends for text in (each.reason, *each.log)]
    found = [match[1] or match[2] for text in texts for match in _MISSING.finditer(text)]
    return {int(rank) for ranks in found for rank in re.findall(r"\d+", ranks)}


def _reason(shown: SeatEnd, first: SeatEnd, ends: Sequence[SeatEnd], *, known: bool) -> tuple[str, str]:
    """(reason, hint). A signal that we sent is no reason."""
    if shown.kind == "lost":
        return "its process, or its node, does not answer", "see the log of the launcher on that node"
    if shown.kind == "ended" and first.kind == "timeout":
        return f"{first.reason}; it was behind the other ranks", first.hint
    if known and shown.consequence:
        return f"did not come in time: {first.reason}", first.hint
    if shown.kind == "ended":
        went = f"rank {first.rank} could not go on"
        where = f" (at: {first.stage})" if first.stage and first.rank != shown.rank else ""
        return f"did not answer, ended because {went}{where}", "look for a hang on that host: storage, memory, GPU"
    silent = [str(each.rank) for each in ends if each.kind in ("ended", "lost")]
    if not known and silent and shown.kind == "failed":
        ranks = f"rank{'s' if len(silent) > 1 else ''} {join_words(silent)}"
        return f"{shown.reason}; {ranks} did not answer", shown.hint
    return shown.reason, shown.hint

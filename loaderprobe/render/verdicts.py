"""Which verdicts count as an answer, and the nouns for what they name."""

from __future__ import annotations

from loaderprobe.records.report import ConfigurationRow

NOUNS = {
    "compute": "compute",
    "storage": "storage",
    "decoding": "JPEG decoding",
    "transport": "transport to the training process",
    "network": "the network",
    "lock": "a lock",
    "wait": "other waits",
    "copy": "copies to the device",
    "host": "the host",
    "imbalance": "slow ranks",
    "gradients": "the exchange of gradients",
    "communication": "communication between GPUs",
    "balanced": "several resources alike",
}


def firm(row: ConfigurationRow) -> bool:
    """True for a verdict that names what limits."""
    return row.bound is not None and "inconclusive" not in (row.bound.side, row.bound.cause)


def families(row: ConfigurationRow) -> tuple[str, ...]:
    """What limits a row, as nouns of the answer; two where they cannot be separated."""
    if row.bound is None:
        return ()
    names = row.bound.candidates if row.bound.cause == "either" else (row.bound.cause,)
    return tuple("decoding" if name in ("preprocessing", "cpu") else name for name in names)

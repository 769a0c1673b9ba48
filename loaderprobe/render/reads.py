"""What a configuration reads from storage, beside the most that the storage gave in the same run."""

from __future__ import annotations

from loaderprobe.records.report import ConfigurationRow, Report, StorageSupply
from loaderprobe.render.wording import MISSING, megabytes_per_s


def read_rate(row: ConfigurationRow) -> float | None:
    """Bytes/s from storage while training."""
    return row.verdict.disk_read_bytes_per_s if row.verdict else None


def best_ceiling(report: Report, row: ConfigurationRow) -> StorageSupply | None:
    """The most that the storage gave over the files of this row, at any concurrency; None where that is not known."""
    if row.config.cache == "warm":
        return None
    return next((each.supply for each in report.outlooks if each.data == row.config.resolution and each.supply), None)


def read_words(report: Report, row: ConfigurationRow) -> str:
    """`51.3 of 713`: MB/s, and the most that the storage alone gave; or the first alone."""
    read, ceiling = read_rate(row), best_ceiling(report, row)
    if read is None:
        return MISSING
    if ceiling is None:
        return megabytes_per_s(read)
    return f"{megabytes_per_s(read)} of {megabytes_per_s(ceiling.read_bytes_per_s)}"

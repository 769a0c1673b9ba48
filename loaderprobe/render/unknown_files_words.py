"""Why the files that a loader reads are not known, in words."""

from __future__ import annotations

from loaderprobe.records.files import UnknownFilesCode

UNKNOWN_FILES: dict[UnknownFilesCode, str] = {
    "none_seen": "no file that the data set opens was seen",
    "none_read": "samples read no files",
    "opened_below_python": "the data set opens files below Python, so the files of a batch are unknown",
    "read_in_parts": "the data set reads only parts of the files that it opens",
    "read_beside": "the data set reads more than the files that it opens in Python",
}
"""A clause without a full stop."""

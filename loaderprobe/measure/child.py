"""A child process: measures one configuration, and writes its measurement or why there is none.

Standard output carries events, one JSON object a line; what libraries print goes to standard error.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from loaderprobe.errors import LoaderprobeError, LostRank
from loaderprobe.measure.order import Event, Order
from loaderprobe.measure.session import OnStage
from loaderprobe.measure.trouble import explain_error
from loaderprobe.store.codec import decode, encode, write_atomically
from loaderprobe.system.process import die_with_parent

Measure = Callable[[Order, Path, OnStage], Any]
"""Measures an order, with a directory for temporary files: the record that it asks for, usually a `Measurement`."""


def live(measure: Measure, order_path: Path, result_path: Path, parent: int) -> int:
    """Measure, write the result, and return the exit code; an error becomes the last event."""
    order = decode("order", order_path.read_bytes(), Order, str(order_path))
    die_with_parent(parent)
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    stage = "start"

    def on_stage(name: str, done: int, total: int) -> None:
        nonlocal stage
        stage = name
        events.write(msgspec.json.encode(Event(stage=name, done=done, total=total)).decode() + "\n")

    try:
        result = measure(order, result_path.parent, on_stage)
        write_atomically(result_path, encode(order.result, result))
    except Exception as error:  # noqa: BLE001  # the border of the process: everything becomes a record
        reason, hint = explain_error(error)
        traceback.print_exc()
        last = Event(stage=stage, failure=reason, hint=hint, lost=isinstance(error, LostRank))
        events.write(msgspec.json.encode(last).decode() + "\n")
        return error.exit_code if isinstance(error, LoaderprobeError) else LoaderprobeError.exit_code
    return 0

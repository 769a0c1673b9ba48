"""A bell that rings in another process."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

from loaderprobe.loaders.worker_probe import Bells


def _worker(bells: Bells, ready: object, heard: object) -> None:
    bells.answer(0, heard.release)  # type: ignore[attr-defined]
    ready.release()  # type: ignore[attr-defined]
    threading.Event().wait()


def test_a_worker_hears_it_whatever_it_is_doing(tmp_path: Path) -> None:
    """As often as it is rung, from a thread of its own."""
    context = multiprocessing.get_context("fork")
    bells = Bells.create(tmp_path, 1)
    assert bells is not None
    ready, heard = context.Semaphore(0), context.Semaphore(0)
    worker = context.Process(target=_worker, args=(bells, ready, heard), daemon=True)
    worker.start()
    try:
        assert ready.acquire(timeout=30)
        for _ in range(2):
            bells.ring()
            assert heard.acquire(timeout=30)
    finally:
        worker.kill()
        worker.join()


def test_a_listener_is_optional(tmp_path: Path) -> None:
    """A worker may have ended."""
    bells = Bells.create(tmp_path, 2)
    assert bells is not None
    bells.ring()

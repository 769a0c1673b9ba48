"""`run`: a training script as it is, measured from inside with its own loop as the step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from loaderprobe.api.diagnose import Diagnosis, diagnosis
from loaderprobe.api.load import load_any
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.errors import EXIT_INTERRUPTED, BadValue, LoaderprobeError, MissingPart, Refused
from loaderprobe.measure.attach.attachment import Attachment, Finished
from loaderprobe.measure.attach.watcher import Watcher
from loaderprobe.protocols import Say
from loaderprobe.records.attached import Attached, AttachRequest, WatchReport
from loaderprobe.records.config import CacheState
from loaderprobe.records.files import from_json, to_json
from loaderprobe.render.watch import watch_columns, watch_document
from loaderprobe.store.codec import decode, encode, write_atomically
from loaderprobe.store.results import REPORT, RESULT, check_out, make_directory, write_result
from loaderprobe.system.scratch import scratch_directory

VARIABLE = "LOADERPROBE_RUN"
STARTUP = Path(__file__).parent.parent / "startup"
KEPT = "kept"
"""A file in the scratch directory of a command, once one of its processes has kept a result."""
LEFT = "left"
"""Another: a result that could not be kept."""
ENDED_BEFORE = ("too_few_steps", "ended_early")
"""Why there is no verdict on a script that ended before there was one: by itself, or by Ctrl-C."""
_kept_for: set[str] = set()
"""Scratch directories of commands for which this process has kept a result: it may outlive them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended, and what was found in the processes that it started."""

    exit_code: int
    """Of the command; of one that a signal ended, 128 and its number."""
    result: Diagnosis | Watch | None
    not_kept: LoaderprobeError | None = None
    """Why what was found is not in the directory of the run."""
    processes: tuple[Attached, ...]
    """Those that iterated a DataLoader, or made a backward pass, and ended by themselves."""
    imported_torch: bool = False
    """True where a process that could be measured imported torch."""

    @property
    def is_done(self) -> bool:
        """True with a verdict; a training on a GPU that is watched has none, as was to be."""
        result = self.result
        return result is not None and (result.bound is not None or (isinstance(result, Watch) and result.on_gpu))


def run_command(command: Sequence[str], request: AttachRequest, environment: Mapping[str, str]) -> Ran:
    """Run a command with loaderprobe attached to every Python that it starts; this Python runs a script.

    Raises BadValue for an empty command, Refused when the directory of the result is not empty, MissingPart for a
    command that cannot be started.
    """
    if not command:
        raise BadValue("no command is given", hint="loaderprobe run -- python train.py ARGS")
    command = [sys.executable, *command] if command[0].endswith(".py") else command
    run = Path(request.run)
    check_out(run)
    path = os.pathsep.join([str(STARTUP), *filter(None, [environment.get("PYTHONPATH")])])
    with scratch_directory() as scratch:
        request = replace(request, scratch=str(scratch))
        variables = {"PYTHONPATH": path, VARIABLE: to_json(request).decode()}
        try:
            process = subprocess.Popen([*command], env={**environment, **variables})
        except OSError as error:
            raise MissingPart(f"{command[0]} cannot be started: {error.strerror}", hint="check the command") from error
        with _signals_left_to(process) as signals:
            code = process.wait()
        exit_code = code if code >= 0 else 128 - code
        imported_torch = any(scratch.glob("*.torch"))
        left, not_kept = scratch / LEFT, None
        result = load_any(left) if left.exists() else load_any(run) if (scratch / KEPT).exists() else None
        assert result is None or isinstance(result, Diagnosis | Watch)
        try:
            # A process that is killed has kept no page.
            if result is not None and (left.exists() or not (run / REPORT).exists()):
                keep(result, request)
        except LoaderprobeError as error:
            not_kept = error
        processes = [
            decode("attached", file.read_bytes(), Attached, str(file)) for file in sorted(scratch.glob("*.json"))
        ]
    if signals or exit_code == EXIT_INTERRUPTED:
        processes = [
            replace(entry, why_not="interrupted") if entry.why_not in ENDED_BEFORE and not entry.endangered else entry
            for entry in processes or [Attached(pid=process.pid, loaders=(), why_not="ended_early")]
        ]
    return Ran(
        exit_code=exit_code, result=result, not_kept=not_kept, processes=tuple(processes), imported_torch=imported_torch
    )


@contextmanager
def _signals_left_to(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Ctrl-C reaches the command by itself; SIGTERM is passed on. Both leave this process to show what was found.

    Those that it got are listed.
    """
    signals: list[int] = []

    def leave(number: int, frame: object) -> None:
        signals.append(number)
        if number == signal.SIGTERM:
            process.send_signal(number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def attachment_of(
    request: AttachRequest, say: Say, keep: Callable[[Diagnosis], None], launched: int = 1,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Attachment:  # fmt: skip
    """What measures a script: `say(code, facts)` is how it speaks, `keep(diagnosis)` is called with the verdict.

    `launched` is how many processes a launcher has started to train together; `clock` gives ns.
    """
    return Attachment(request, say, lambda measured: keep(diagnosis(measured, request.command)), launched, clock)


def requested(text: str) -> AttachRequest:
    """The request in the environment of a process that `run_command` started."""
    request: AttachRequest = from_json(text.encode(), AttachRequest)
    return request


def keep(result: Documented, request: AttachRequest, *, raw: bool = False) -> None:
    """Write the result into the directory of the run; `raw` only `result.json`, from which `report` makes the rest.

    Where that cannot be, it is left in the scratch directory for the command. Raises NoSpace, MissingPart, and Refused
    where another command has kept its result there meanwhile.
    """
    run, scratch = Path(request.run), Path(request.scratch)
    try:
        if (run / RESULT).exists() and request.scratch not in _kept_for and not (scratch / KEPT).exists():
            raise Refused(f"{run} holds another result meanwhile", hint="choose another place with --out")
        make_directory(run)
        write_result(run, {RESULT: result.json()})
        _kept_for.add(request.scratch)
        with suppress(OSError):  # the command has gone
            (scratch / KEPT).touch()
            (scratch / LEFT).unlink(missing_ok=True)
        if not raw:
            write_result(run, result.files())
    except LoaderprobeError:
        with suppress(LoaderprobeError):
            write_result(scratch, {LEFT: result.json()})
        raise


def keep_seen(record: Attached, request: AttachRequest) -> None:
    """Write what this process saw, for the command, while that is there. Raises NoSpace."""
    if (scratch := Path(request.scratch)).is_dir():
        write_atomically(scratch / f"{record.pid}.json", encode("attached", record))


@dataclass(slots=True)
class AttachedBlock:
    """What `attached` found in its block."""

    diagnosis: Diagnosis | None = None
    """None until the block has ended, and where nothing was found."""
    reason: str = ""
    """Why there is no diagnosis."""


@contextmanager
def attached(
    *, budget_s: float | None = None, cache: CacheState = "cold", after_steps: int = 8
) -> Iterator[AttachedBlock]:
    """Measure the training in this block, whatever trains: `with loaderprobe.attached() as block: trainer.fit(model)`.

    Once a DataLoader has trained for `after_steps` steps, a copy of it is measured with the loop as the step, for
    `budget_s` seconds (without it, 60 or more, by the length of a step, and as much again while the verdict is open, or
    in ranks). Then the block ends, at the place where the loop asks for its next batch, and `block.diagnosis` is set.
    The training in the block is thrown away: the model has trained on the same batches over and over.

    Raises BadValue for a budget that is too small, and what the block raises.
    """
    from loaderprobe.loaders.attached import attach
    from loaderprobe.render.watch import not_measured

    block = AttachedBlock()

    def keep_result(diagnosis: Diagnosis) -> None:
        block.diagnosis = diagnosis

    with scratch_directory() as scratch:
        request = AttachRequest(
            run=str(scratch), scratch=str(scratch), command="loaderprobe.attached()", budget_s=budget_s, cache=cache,
            after_steps=after_steps,
        )  # fmt: skip
        attachment = attachment_of(request, lambda code, facts: None, keep_result)
        detach = attach(attachment)
        try:
            yield block
        except Finished:
            pass
        finally:
            detach()
            attachment.end()
            attachment.close()
            if block.diagnosis is None:
                block.reason = not_measured(attachment.record())


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Watch(Documented, WatchReport):
    """A watched training. Shows itself."""

    document = watch_document
    columns = watch_columns


def watcher_of(request: AttachRequest, say: Say, keep: Callable[[Watch], None] = lambda watch: None) -> Watcher:
    """What looks on; `say(code, facts)` is called once an interval, and `keep(watch)` with all so far."""
    return Watcher(request, say, lambda watch: keep(Watch.of(watch)), origin_now)

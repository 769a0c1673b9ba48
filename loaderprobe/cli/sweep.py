"""What `loaderprobe sweep` does and says: the main job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loaderprobe
from loaderprobe.api.sweep import Listener
from loaderprobe.cli.border import Invocation, command_line, ended, say, show
from loaderprobe.errors import EXIT_INTERRUPTED, BadValue, NoSpace
from loaderprobe.units import format_bytes, parse_list

if TYPE_CHECKING:
    from loaderprobe.measure.ranks.launch import Coordinator
    from loaderprobe.records.config import SweepSpec
    from loaderprobe.records.remark import Coded

BESIDE_RESUME = frozenset({"resume", "budget_s", "join", "json", "quiet"})
"""Options that have an effect on a resumed run; all others were fixed when it began."""


def swept(call: Invocation, *, coordinator: Coordinator | None, resume: Path | None, **values: Any) -> int:
    """Measure what is asked, or what is left of `resume`; returns the exit code."""
    from loaderprobe.render.format import counted

    for option in call.options if resume is not None else ():
        if option.name in call.typed and option.name not in BESIDE_RESUME:
            raise BadValue(
                f"{option.said} would be ignored beside --resume: a resumed run keeps its own settings",
                hint=f"leave {option.said} out, or begin a new run without --resume",
            )
    printer = Printer(call, values, resume)
    with printer.bars:
        try:
            if resume is None:
                run = loaderprobe.sweep(**values, command=command_line(), coordinator=coordinator, listener=printer)
            else:
                run = loaderprobe.resume(resume, budget_s=values["budget_s"], coordinator=coordinator, listener=printer)
        except KeyboardInterrupt:
            if printer.run is None:
                raise
            kept = "the finished configurations are kept" if printer.shown else "nothing was measured yet"
            _say_resume(f"interrupted; {kept}", printer.run)
            return EXIT_INTERRUPTED
        except NoSpace:
            if printer.run is not None and printer.run.report().run.pending:
                _say_resume("what was measured is kept", printer.run)
            raise
    report = run.report()
    if pending := report.run.pending:
        _say_resume(f"{counted(pending, 'configuration')} not measured yet", run)
    failed = any(row.status == "failed" for row in report.configurations)
    return ended(interrupted=False, failed=failed or bool(report.run.damaged))


def _say_resume(said: str, run: loaderprobe.Run) -> None:
    say(f"{said}. Resume with: {shlex.join(['loaderprobe', 'sweep', '--resume', str(run.path)])}", soft_wrap=True)


class Printer(Listener):
    """The `Listener` that prints: what a sweep says of itself, how far it is, and its report."""

    def __init__(self, call: Invocation, values: Mapping[str, Any], resume: Path | None) -> None:
        self.run: loaderprobe.Run | None = None
        """Once it is judged."""
        self.shown = False
        """Of a run without any result there is no page to show."""
        self.bars = ExitStack()
        self._call, self._values, self._resume = call, values, resume
        super().__init__()

    def checked(self, spec: SweepSpec, made_bytes: float) -> None:
        from loaderprobe.cli.progress import counting

        any_device = "auto" in parse_list(self._values["compute"], str)
        if any_device and not any(config.compute.name == "cuda" for config in spec.configs):
            say(
                "no NVIDIA GPU: training on the CPU. --compute emulated:mlperf-h100 shows what that GPU would need.",
                style="yellow",
            )
        if made_bytes and not self._call.silent:
            folder = self._values["data_dir"]
            say(f"Data: about {format_bytes(made_bytes)} of images will be generated under {folder} and kept.")
        self.progress = self.bars.enter_context(counting(self._call))

    def planned(self, plan: Sequence[Coded], foreign: Sequence[str]) -> None:
        """Say what is measured, and what is imported for it; --quiet, too, for the user did not type that."""
        from loaderprobe.cli.progress import timed
        from loaderprobe.render.words import sweep_plan_words

        self.bars.close()
        for module in foreign:
            say(f"{self._resume} names a part outside loaderprobe: its module {module} is going to be imported.")
        for sentence in () if self._call.silent else sweep_plan_words(plan):
            say(sentence)
        self.progress = self.bars.enter_context(timed(self._call, left="about", ends=""))

    def judged(self, run: loaderprobe.Run) -> None:
        self.bars.close()
        self.run = run
        rows = run.report().configurations
        self.shown = any(row.status != "skipped" for row in rows)
        if self.shown or self._call.json:
            self._call.show(run)

    def saved(self, page: Path) -> None:
        if self.shown and not self._call.json:
            show(f"\nReport: {page}")

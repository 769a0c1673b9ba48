"""`loaderprobe sweep --against RUN`: A as RUN was, B with the options that the command line changes, in turn."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from loaderprobe.cli.border import show, stderr
from loaderprobe.cli.progress import sweeping
from loaderprobe.cli.results import show_result, typed
from loaderprobe.cli.sweep_run import say_imports
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED, BadValue

if TYPE_CHECKING:
    from loaderprobe.api.against import Sides
    from loaderprobe.api.against_request import AgainstRequest

OWN = frozenset({"against", "data", "rounds", "thorough", "budget", "time_limit", "out", "json", "quiet"})
"""Options that say how both sides are measured; all others are what B has instead."""
FLAGS = {"no_pin_memory": ("pin_memory", False), "compiled": ("compile", True)}


def sweep_against(given: Mapping[str, Any], *, as_json: bool, quiet: bool) -> int:
    """Measure both sides, show the comparison, and keep it with both runs; `given` are the options that were typed."""
    from loaderprobe.api.against_request import PAIRS, against_request, start_against

    changes: dict[str, Any] = dict(FLAGS.get(name, (name, value)) for name, value in given.items() if name not in OWN)
    request = against_request(
        given["against"], given.get("data"), rounds=given.get("rounds", PAIRS), budget_s=given.get("budget"),
        time_limit_s=given.get("time_limit", 600.0), thorough=given.get("thorough", False), out=given.get("out"),
        changes=changes, command=(typed(),),
    )  # fmt: skip
    if not quiet:
        _say(request)
    return resume_against(start_against(request), as_json=as_json, quiet=quiet)


def resume_against(sides: Sides, *, as_json: bool, quiet: bool) -> int:
    """Measure the pairs that are left, and show what both runs then say."""
    from loaderprobe.api.against import compared, failures, keep, plan_sides
    from loaderprobe.api.stored import foreign_modules
    from loaderprobe.render.wording import counted

    say_imports(sides[0].path.parent, dict.fromkeys(module for side in sides for module in foreign_modules(side)))
    interrupted = not _measured(sides, quiet=quiet)
    failed = failures(sides)
    for name, failure in failed:
        text = f"{name} failed: {failure.config.title()}: {failure.reason}"
        stderr().print(text, highlight=False, markup=False, style="red")
    found = None
    with suppress(BadValue):  # a side without a measured configuration: why is said above
        found = compared(sides, " ".join(sides[0].record.spec.command))
    if found is not None:
        # Shown before it is saved: a full disk must not hide what was measured.
        show_result(found, json=as_json)
        page = keep(sides, found)
        if not as_json:
            show(f"\nReport: {page}")
            show(f"Gates: loaderprobe compare {sides[0].path} {sides[1].path} --fail-if-slower 5%")
    left = plan_sides(sides).pairs
    if interrupted or left:
        said = "interrupted; the finished pairs are kept" if interrupted else f"{counted(left, 'pair')} of rounds left"
        resume = f"loaderprobe sweep --resume {sides[0].path.parent}"
        stderr().print(f"{said}. Resume with: {resume}", highlight=False, markup=False)
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_SOME_FAILED if failed or found is None else EXIT_DONE


def _measured(sides: Sides, *, quiet: bool) -> bool:
    """Say what is measured, and measure it; False when it was interrupted."""
    from loaderprobe.api.against import measure_sides, plan_sides
    from loaderprobe.render.sweep_plan_words import in_turn_words

    if not quiet:
        for sentence in in_turn_words(plan_sides(sides)):
            stderr().print(sentence, highlight=False)
    try:
        with sweeping(quiet) as on_progress:
            measure_sides(sides, on_progress)
    except KeyboardInterrupt:
        return False
    return True


def _say(request: AgainstRequest) -> None:
    """What A and B are, and what is not in the comparison."""
    from loaderprobe.render.against_words import against_words

    sentences = against_words(
        str(request.against.path), request.pairs, request.changes,
        roots=[files.root for files in request.files], moved=request.moved, left_out=request.left_out,
        since=request.since(),
    )  # fmt: skip
    for sentence in sentences:
        stderr().print(sentence, highlight=False, markup=False)


def given_options(context: Any) -> dict[str, Any]:
    """The options that were typed, by the names of their parameters. Raises BadValue for one without effect here."""
    from loaderprobe.records.options import OPTIONS

    given = {}
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        option = FLAGS.get(name, (name, value))[0]
        if name not in OWN and (option not in OPTIONS or option in ("seed", "data")):
            written = f"--{name.replace('_', '-')}"
            raise BadValue(
                f"{written} has no effect beside --against: A is measured as RUN was",
                hint=f"leave {written} out; B differs in options of loader and device, or in DATA, a copy",
            )
        given[name] = value
    return given

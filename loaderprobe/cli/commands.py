"""The commands: of each the rows of its options, the verb that it calls, and how its result is shown."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import chdir, nullcontext
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import loaderprobe
from loaderprobe.cli.border import (
    Invocation,
    as_ctrl_c,
    command,
    command_line,
    ended,
    say,
    show,
    stderr,
    width_and_color,
    write_file,
)
from loaderprobe.errors import EXIT_DONE, EXIT_GATE_FAILED, EXIT_INTERRUPTED, EXIT_SOME_FAILED, BadValue
from loaderprobe.records import options
from loaderprobe.units import format_bytes, join_words

if TYPE_CHECKING:
    from loaderprobe.api.shown import Tabled


@command(options.SWEEP)
def sweep(call: Invocation, **values: Any) -> int:
    """Measure whether training is compute-bound or input-bound, and which part of the input limits it.

    Trains a model on generated data sets, or on DATA, with the serial loader and with each number of workers.
    Each verdict comes from an experiment.
    """
    from loaderprobe.cli.sweep import swept

    return swept(call, **values)


@command(options.RUN)
def run(call: Invocation, *, words: list[str] | None, **values: Any) -> int:
    """Find out what limits a training script, without changing it: loaderprobe run -- python train.py ARGS

    Once a DataLoader has trained for some steps, a copy of it is measured with the script's own loop as the step.
    Then the script ends. What it trains meanwhile is thrown away; checkpoints that exist are not touched.
    A script without a DataLoader trains on and saves as ever, and an estimate is printed at its end.
    """
    from loaderprobe.api.diagnose import prints_to_stderr
    from loaderprobe.api.run import run_command
    from loaderprobe.api.shown import usual_out
    from loaderprobe.records.attached import AttachRequest
    from loaderprobe.render.watch import without_verdict

    if values["watch"] and not {"budget_s", "cache", "loader"}.isdisjoint(call.typed):
        raise BadValue("--watch measures nothing: --budget, --cache and --loader have no effect", hint="leave them out")
    folder = (call.out or usual_out("run")).absolute()
    request = AttachRequest(run=str(folder), scratch="", command=command_line(words or ()), **values)
    with prints_to_stderr() if call.json else nullcontext():
        ran = run_command(words or [], request, os.environ)
    if ran.result is not None:
        call.show(ran.result)
        if ran.not_kept is not None:
            raise ran.not_kept
        if not call.json:
            shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
            show(f"\nReport: {shown}/report.html")
        return ran.exit_code or (EXIT_DONE if ran.is_done else BadValue.exit_code)
    for line in without_verdict(ran.processes, ran.exit_code, imported_torch=ran.imported_torch):
        say(line)
    elsewhere = ran.processes and all(process.why_not == "follows" for process in ran.processes)
    return ran.exit_code if elsewhere else ran.exit_code or BadValue.exit_code


@command(options.DIAGNOSE)
def diagnose(call: Invocation, **values: Any) -> int:
    """Find out what limits your own DataLoader, and your training step: loaderprobe diagnose train.py:make_loader

    FUNCTION is called without arguments, in each rank. The step really trains.
    In Python: loaderprobe.diagnose(loader, step).
    """
    from loaderprobe.api.diagnose import prints_to_stderr
    from loaderprobe.cli.progress import diagnose_plan, timed

    call = call.kept("diagnose")
    # The user's code may go to another folder.
    with chdir("."), prints_to_stderr(), timed(call, diagnose_plan(values)) as progress:
        diagnosis = loaderprobe.diagnose(**values, command=command_line(), progress=progress)
    call.show_then_keep(diagnosis)
    return ended(interrupted=diagnosis.interrupted)


@command(options.TRACE)
def trace(call: Invocation, *, files: list[Path], **values: Any) -> int:
    """Estimate what limits a training that torch.profiler recorded: input, the host, communication or compute.

    Measures nothing, and needs neither a GPU nor the machine that trained. Several files are the ranks of one training.
    """  # fmt: skip
    from loaderprobe.cli.progress import counting

    call.check()
    megabyte = 1_000_000
    with counting(call) as on_count:

        def progress(name: str, done: int, size: int) -> None:
            on_count(f"{name}, {format_bytes(size)}", -(-done // megabyte), -(-size // megabyte))

        estimate = loaderprobe.trace(files, **values, command=command_line(), progress=progress)
    page = "Trace" if call.out else f"{estimate.document().title}\nTrace"
    call.show_then_keep(estimate, page, beside=call.out is not None)
    return ended(interrupted=False, failed=bool(estimate.unread))


@command(options.BANDWIDTH)
def bandwidth(call: Invocation, **values: Any) -> int:
    """Measure what the storage under PATH delivers to a loader: MB/s, opens/s, stats/s.

    Reads files in random order, cold, with rising concurrency. Writes nothing under PATH unless --scratch is given.
    File names and inodes stay in memory, so opens/s are labelled warm, unless --drop-caches is given.
    """
    from loaderprobe.cli.progress import bandwidth_plan, counting

    # Finished phases are kept, and a scratch file is removed.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, as_ctrl_c)

    call.check()
    with counting(call, bandwidth_plan(values)) as on_count:
        measured = loaderprobe.bandwidth(**values, command=command_line(), progress=on_count)
    call.show_then_keep(measured)
    return ended(interrupted=measured.interrupted, failed=bool(measured.failed))


NAMED = 20


@command(options.GENERATE)
def generate(call: Invocation, *, directory: Path, verify: bool, **values: Any) -> int:
    """Generate ImageNet-like JPEG data sets, as fast as the disk writes.

    Sizes, qualities and content match ImageNet's for storage and decoders.
    Every block of every file is different. The same seed gives the same files.
    """
    from loaderprobe.cli.progress import GENERATE_PLAN, counting
    from loaderprobe.datasets.generate.generate import GO_ON

    if verify:
        return _verify(call, directory)
    try:
        with counting(call, GENERATE_PLAN) as on_data:
            made = loaderprobe.generate(directory, **values, progress=on_data)
    except KeyboardInterrupt:
        stderr().print(f"interrupted; the files written so far are kept. To resume: {GO_ON}")
        return EXIT_INTERRUPTED
    show(made.text())
    if not call.quiet:
        data_set = made[0] if len(made) == 1 else directory
        say(f"To measure training from it: {shlex.join(['loaderprobe', 'sweep', str(data_set)])}", soft_wrap=True)
    return EXIT_DONE


def _verify(call: Invocation, directory: Path) -> int:
    from loaderprobe.api.generate import verify
    from loaderprobe.cli.progress import counting
    from loaderprobe.datasets.generate.generate import GO_ON
    from loaderprobe.datasets.generate.manifest import MANIFEST

    with counting(call) as on_data:
        by_set = verify(directory, on_data)
    for path, damages in by_set.items():
        show(f"{path}: {f'{len(damages)} damaged or missing' if damages else 'every file is whole'}")
        for name, trouble in [*damages.items()][:NAMED]:
            show(f"  {name}: {trouble}")
        if len(damages) > NAMED:
            show(f"  and {len(damages) - NAMED} more")
    if any(MANIFEST in damages for damages in by_set.values()):
        stderr().print(f"The set is incomplete: {GO_ON}")
    elif any(by_set.values()):
        stderr().print("To repair the set, remove the damaged files and generate it again with the same settings.")
    return EXIT_SOME_FAILED if any(by_set.values()) else EXIT_DONE


@command(options.REPORT)
def report(call: Invocation, *, run: Path | None, form: str | None, output: Path | None, schema: bool) -> int:
    """Show a stored run: verdicts are computed again from its raw values. Needs no GPU; measures nothing.

    A damaged file costs only its own row: the others are shown, with exit code 4.
    """
    if call.json and form not in (None, "json"):
        raise BadValue(f"--json and --format {form} exclude each other", hint="use one of them")
    if schema and (call.json or form):
        raise BadValue("--schema excludes --format and --json", hint="use one of them")
    if run is None and not schema:
        raise BadValue("no run is given", hint="loaderprobe report loaderprobe-runs/DATE-TIME")
    chosen = "json" if schema or call.json else form or _by_ending(output)
    if chosen == "parquet" and output is None and sys.stdout.isatty():
        raise BadValue("parquet cannot be printed on a terminal", hint="give a file: -o run.parquet")
    from loaderprobe.api.load import load_any
    from loaderprobe.api.shown import Documented

    result = None if run is None else load_any(run)
    if schema or result is None:
        from loaderprobe.render.json import result_schema, summary_schema

        _put((result_schema(type(result)) if isinstance(result, Documented) else summary_schema()).encode(), output)
        return EXIT_DONE
    _put(_rendered(result, chosen, to_file=output is not None), output, text=chosen != "parquet")
    damaged = not isinstance(result, Documented) and result.report().run.damaged
    return EXIT_SOME_FAILED if damaged else EXIT_DONE


def _put(data: bytes, output: Path | None, *, text: bool = True) -> None:
    """Write the file, or print: text in the encoding of the terminal."""
    if output is None:
        show(data.decode() if text else data)
    else:
        write_file(output, data, "-o", "Report")


def _by_ending(output: Path | None) -> str:
    """The format by the ending of the file name; a table if there is none. Raises BadValue for an unknown ending."""
    ending = "" if output is None else output.suffix.lower().removeprefix(".")
    if output is None or ending in ("", "txt"):
        return "table"
    if ending not in options.FORMATS or ending == "table":
        raise BadValue(
            f"the ending of {output.name} matches no format", hint=f"add --format {join_words(options.FORMATS, 'or')}"
        )
    return ending


def _rendered(result: Tabled, form: str, *, to_file: bool) -> bytes:
    if form == "parquet":
        from loaderprobe.api.shown import parquet

        return parquet(result.to_frame())
    if form == "table":
        width, color = width_and_color()
        return result.text(width=width, color=color and not to_file).encode()
    make: Callable[[], str] = getattr(result, "markdown" if form == "md" else form)
    return make().encode()


@command(options.PLAN)
def plan(call: Invocation, *, run: Path | None, catalogue: bool, schema: bool, **values: Any) -> int:
    """Plan storage from a stored run: what the accelerators need, what limits it first, what to test on delivery.

    Computes from the run, your options and published limits, and labels each figure.
    Measures nothing and needs no GPU.
    """
    call.check()
    if schema and (call.md or call.json or call.html or catalogue):
        raise BadValue("--schema excludes --md, --json, --html and --catalogue", hint="use one of them")
    if catalogue and call.html:
        raise BadValue("--catalogue is no page", hint="use --md or --json")
    if run is not None and (schema or catalogue):
        raise BadValue("--schema and --catalogue need no run", hint="leave the run out")
    if schema:
        from loaderprobe.records.plan import PlanReport
        from loaderprobe.render.json import result_schema

        show(result_schema(PlanReport))
    elif catalogue:
        show(_catalogue(call))
    elif run is None:
        raise BadValue("no run is given", hint="loaderprobe plan loaderprobe-runs/DATE-TIME")
    else:
        storage_plan = loaderprobe.plan(run, **values)
        if call.html is not None:
            write_file(call.html, storage_plan.html().encode(), "--html", "Plan")
        else:
            call.show(storage_plan)
    return EXIT_DONE


def _catalogue(call: Invocation) -> str:
    from loaderprobe.render.json import indented
    from loaderprobe.render.pages import document_markdown
    from loaderprobe.render.plan import catalogue_document
    from loaderprobe.render.terminal import document_text
    from loaderprobe.storage.catalogue import catalogue
    from loaderprobe.system.host import utc_now

    entries = catalogue()
    if call.json:
        return indented(entries)
    page = catalogue_document(entries, utc_now().date())
    width, color = width_and_color()
    return document_markdown(page) if call.md else document_text(page, width=width, color=color)


@command(options.COMPARE)
def compare(call: Invocation, *, results: list[Path], others: list[Path], **values: Any) -> int:
    """Compare two stored results: what changed beyond noise, verdicts first. Measures nothing.

    A and B must agree in machine, software, storage and data; --differ names what was meant to differ.
    """
    before, after = (results, others) if others else (results[:1], results[1:])
    if not others and len(results) != 2:
        several = "for several a side: A1 A2 --with B1 --with B2"
        raise BadValue(f"A and B are two results, not {len(results)}", hint=several)
    call.check()
    comparison = loaderprobe.compare(before, after, **values, command=command_line())
    call.show_then_keep(comparison, "Comparison")
    return EXIT_DONE if comparison.passed else EXIT_GATE_FAILED


@command(options.LAYERS)
def layers(call: Invocation, **values: Any) -> int:
    """Time each layer of a model in training: forward and backward, in the order in which they run.

    Trains on one batch of random images in memory, or on DATA: then loading is a part of the step.
    """
    _check_data(values)
    call = call.kept("layers")
    # torch's profiler prints lines of its own, even where nothing is wrong.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from loaderprobe.api.layers import named_layers
    from loaderprobe.cli.progress import counting, layers_plan

    with counting(call, layers_plan(values)) as progress:
        layer_times = named_layers(**values, progress=progress, command=command_line())
    call.show_then_keep(layer_times)
    return EXIT_DONE


def _check_data(values: dict[str, Any]) -> None:
    """Raises BadValue for workers without DATA to load, and for images of another size than DATA are cropped to."""
    if values["data"] is None and values["workers"]:
        raise BadValue("--workers needs DATA to load", hint="name a folder of images, or leave --workers out")
    if values["data"] is not None and values["image_size"] != options.IMAGE_SIZE.default:
        size = options.IMAGE_SIZE.default
        raise BadValue(f"images of DATA are cropped to {size} pixels", hint="leave --image-size out")


@command(options.BATCH_SIZES)
def batch_size(call: Invocation, **values: Any) -> int:
    """Find the batch size with which a model trains fastest, within memory.

    Trains a copy, with random images in memory or with DATA: then it says, too, what limits the loading.
    """
    _check_data(values)
    call = call.kept("batch-size")
    from loaderprobe.cli.progress import batch_size_plan, counting

    with counting(call, batch_size_plan(values)) as progress:
        from loaderprobe.api.batch_size import named_batch_size

        search = named_batch_size(**values, progress=progress, command=command_line())
    call.show_then_keep(search)
    return ended(interrupted=search.interrupted)


@command(options.DOCTOR)
def doctor(call: Invocation, *, path: Path) -> int:
    """Report what can and cannot be measured on this machine, why, and how to get the rest."""
    width, color = width_and_color()
    show(loaderprobe.doctor(path).text(width=width, color=color))
    return EXIT_DONE


@command(options.EXPLAIN)
def explain(call: Invocation, *, topic: str | None) -> int:
    """Print a page of the guide: how loaderprobe measures and how it finds a verdict."""
    pages = {
        page.name.removesuffix(".md"): page.read_text(encoding="utf-8")
        for page in resources("loaderprobe").joinpath("guide").iterdir()
        if page.name.endswith(".md")
    }
    names = sorted(pages)
    if topic is None:
        width = max(map(len, names))
        titles = {name: pages[name].partition("\n")[0].removeprefix("# ") for name in names}
        show("\n".join(f"loaderprobe explain {name:{width}}  {title}" for name, title in titles.items()))
        return EXIT_DONE
    if topic not in pages:
        raise BadValue(f"the guide has no topic '{topic}'", hint=f"choose {join_words(names, 'or')}")
    from loaderprobe.render.guide import guide_text, threshold_tables

    width, color = width_and_color()
    page = pages[topic] + (threshold_tables() if topic == "thresholds" else "")
    show(guide_text(page, width=width, color=color))
    return EXIT_DONE


app = typer.Typer(
    epilog="Your own DataLoader: loaderprobe explain diagnose.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (
    sweep, run, diagnose, trace, bandwidth, generate, report, plan, compare, batch_size, layers, doctor, explain,
):  # fmt: skip
    # What stands behind a command belongs to it, also without --.
    app.command(context_settings={"allow_interspersed_args": verb is not run})(verb)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loaderprobe {loaderprobe.__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Is this training compute-bound or input-bound, which part of the input limits it, and what would change that?"""

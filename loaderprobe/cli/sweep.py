"""`loaderprobe sweep`: the main job."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from loaderprobe.cli import options
from loaderprobe.cli.border import command, counting, report_error, show, show_result, stderr, sweeping, typed
from loaderprobe.cli.options import COMPUTE, DATA, LOADER, MEASURING, OUTPUT
from loaderprobe.cli.seats import in_ranks, launched_here
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED, BadValue, LostRank
from loaderprobe.units import format_bytes, parse_list

if TYPE_CHECKING:
    from loaderprobe.api.against import AgainstRequest, Sides
    from loaderprobe.api.sweep_request import SweepRequest
    from loaderprobe.measure.ranks.launch import Lead
    from loaderprobe.store.run_directory import RunDirectory


# A sweep from its request to its report: begun or resumed, measured, shown and kept.


def open_sweep(resume: Path, lead: Lead | None, budget_s: float | None) -> RunDirectory:
    """A run to be completed, once the processes of a launcher are enough for it; with another budget, if given."""
    from loaderprobe.api.load import file_sets, foreign_modules, open_to_resume

    run = open_to_resume(resume)
    if lead:
        lead.admit(run.record.spec.configs, file_sets(run))
    if budget_s is not None:
        run.set_budget(budget_s)
    say_imports(resume, foreign_modules(run))
    return run


def say_imports(run: Path, modules: Iterable[str]) -> None:
    """Name the modules outside loaderprobe that a stored run imports; --quiet too, for the user did not type them."""
    for module in modules:
        text = f"{run} names a part outside loaderprobe: its module {module} is going to be imported."
        stderr().print(text, highlight=False, markup=False)


def begin_sweep(request: SweepRequest, lead: Lead | None, *, quiet: bool, auto: bool) -> RunDirectory:
    """Check the request, say what is going to be trained and generated, and prepare it; `auto` was asked for."""
    from loaderprobe.api.sweep_request import check_request, data_to_make, start_sweep
    from loaderprobe.system.limits import cores_available

    check_request(request, lead.nodes if lead else None)
    if auto and not any(compute.name == "cuda" for compute in request.computes):
        stderr().print(
            "no NVIDIA GPU: training on the CPU. --compute emulated:mlperf-h100 shows what that GPU would need.",
            style="yellow",
        )
    size = data_to_make(request)
    if size and not quiet:
        text = f"Data: about {format_bytes(size)} of images will be generated under {request.data_dir} and kept."
        stderr().print(text, highlight=False, markup=False)
    with counting(quiet) as on_data:
        return start_sweep(request, processes=max(1, round(cores_available())), on_data=on_data, lead=lead)


def _say_resume(said: str, run: RunDirectory) -> None:
    command = shlex.join(["loaderprobe", "sweep", "--resume", str(run.path)])
    stderr().print(f"{said}. Resume with: {command}", highlight=False, markup=False, soft_wrap=True)


def measure_and_show(run: RunDirectory, lead: Lead | None, *, as_json: bool, quiet: bool) -> int:
    """Measure what is pending, print the report and write its page; returns the exit code."""
    from loaderprobe.api.load import Run, judge_run
    from loaderprobe.api.page import save_report
    from loaderprobe.api.sweep import measure, plan
    from loaderprobe.render.sweep_plan_words import sweep_plan_words
    from loaderprobe.render.wording import counted

    interrupted, lost = False, None
    if not quiet:
        for sentence in sweep_plan_words(plan(run)):
            stderr().print(sentence, highlight=False)
    try:
        with sweeping(quiet) as on_progress:
            measure(run, on_progress, *([lead] if lead else []))
    except KeyboardInterrupt:
        interrupted = True
    except LostRank as error:
        lost = error
    shown = judge_run(run)
    # Shown before it is saved: a full disk must not hide what was measured.
    show_result(Run(run, shown), json=as_json)
    page = save_report(run, shown)
    if not as_json:
        show(f"\nReport: {page}")
    if interrupted:
        _say_resume("interrupted; the finished configurations are kept", run)
        return EXIT_INTERRUPTED
    if lost:
        return report_error(lost)
    if pending := shown.summary.run.pending:
        _say_resume(f"{counted(pending, 'configuration')} not measured yet", run)
    failed = any(row.status == "failed" for row in shown.summary.configurations)
    return EXIT_SOME_FAILED if failed or shown.summary.run.damaged else EXIT_DONE


# `loaderprobe sweep --against RUN`: A as RUN was, B with the options that the command line changes, in turn.

OWN = frozenset({"against", "data", "rounds", "thorough", "budget", "time_limit", "out", "json", "quiet"})
"""Options that say how both sides are measured; all others are what B has instead."""
FLAGS = {"no_pin_memory": ("pin_memory", False), "compiled": ("compile", True)}


def sweep_against(given: Mapping[str, Any], *, as_json: bool, quiet: bool) -> int:
    """Measure both sides, show the comparison, and keep it with both runs; `given` are the options that were typed."""
    from loaderprobe.api.against import PAIRS, against_request, start_against

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
    from loaderprobe.api.load import foreign_modules
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
    from loaderprobe.render.sweep_plan_words import against_words

    sentences = against_words(
        str(request.against.path), request.pairs, request.changes,
        roots=[files.root for files in request.files], moved=request.moved, left_out=request.left_out,
        since=request.since(),
    )  # fmt: skip
    for sentence in sentences:
        stderr().print(sentence, highlight=False, markup=False)


def given_options(context: Any) -> dict[str, Any]:
    """The options that were typed, by the names of their parameters. Raises BadValue for one without effect here."""
    from loaderprobe.records.config import OPTIONS

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


RESOLUTIONS = "256x256,500x375,1024x768"
BESIDE_RESUME = frozenset({"resume", "budget", "join", "json", "quiet"})
"""Options that have an effect on a resumed run; all others were fixed when it began."""


@command
def sweep(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of images, one sub-folder per class. Without it, data sets are generated.", show_default=False
        ),
    ] = None,
    resolutions: Annotated[
        str,
        typer.Option(
            help="Resolutions of the generated data sets. imagenet: ImageNet's mixture.", rich_help_panel=DATA
        ),
    ] = RESOLUTIONS,
    data_dir: Annotated[Path, typer.Option(help="Directory of the generated data sets.", rich_help_panel=DATA)] = Path(
        "loaderprobe-data"
    ),
    images: Annotated[
        int | None,
        typer.Option(
            min=1, help="Images of each data set.", show_default="as many as the sweep reads", rich_help_panel=DATA
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the generated data and of the order of measuring.", rich_help_panel=DATA)
    ] = 0,
    workers: Annotated[
        str, typer.Option(help="Numbers of workers to measure, separated by commas.", rich_help_panel=LOADER)
    ] = "1,2,4,8",
    no_serial: Annotated[
        bool, typer.Option("--no-serial", help="Do not measure the serial loader.", rich_help_panel=LOADER)
    ] = False,
    loader: Annotated[
        str,
        typer.Option(
            help="torch, a plug-in, or package.module:Class (see loaderprobe explain plug-ins).", rich_help_panel=LOADER
        ),
    ] = "torch",
    prefetch_factor: Annotated[
        str,
        typer.Option(
            help="Batches that each worker loads ahead. Several, separated by commas, also measure the error "
            "of short benchmarks.",
            rich_help_panel=LOADER,
        ),
    ] = "2",
    pipeline: Annotated[
        Literal["imagenet", "crop"],
        typer.Option(help="imagenet: random resized crop and flip. crop: random crop.", rich_help_panel=LOADER),
    ] = "imagenet",
    decoder: Annotated[
        Literal["pillow", "torchvision"], typer.Option(help="JPEG decoder.", rich_help_panel=LOADER)
    ] = "pillow",
    tensor: Annotated[
        Literal["float32", "uint8"],
        typer.Option(help="Type that workers send; uint8 is normalised on the device.", rich_help_panel=LOADER),
    ] = "float32",
    compute: Annotated[
        str,
        typer.Option(
            help="auto (cuda if present, else cpu), cuda, cpu, emulated:NAME or emulated:IMAGES_PER_S; several, "
            "separated by commas.",
            rich_help_panel=COMPUTE,
        ),
    ] = "auto",
    batch_size: options.AnyBatchSize = None,
    model: options.Model = "resnet50",
    precision: Annotated[
        Literal["auto", "bf16", "fp16", "fp32", "tf32"],
        typer.Option(
            metavar="NAME",
            help="Precision of training: bf16, fp16, fp32, tf32, or auto (bf16 on CUDA, else fp32).",
            rich_help_panel=COMPUTE,
        ),
    ] = "auto",
    memory_format: Annotated[
        Literal["channels_last", "contiguous"],
        typer.Option(
            metavar="NAME",
            help="Memory format of model and images: channels_last or contiguous.",
            rich_help_panel=COMPUTE,
        ),
    ] = "channels_last",
    compiled: Annotated[
        bool, typer.Option("--compile", help="Train with torch.compile.", rich_help_panel=COMPUTE)
    ] = False,
    no_pin_memory: Annotated[
        bool,
        typer.Option(
            "--no-pin-memory",
            help="Do not pin batches in memory before they are copied to the GPU.",
            rich_help_panel=COMPUTE,
        ),
    ] = False,
    side_stream: Annotated[
        bool, typer.Option("--side-stream", help="Copy to the GPU on a separate CUDA stream.", rich_help_panel=COMPUTE)
    ] = False,
    gpu_decode: Annotated[
        bool,
        typer.Option(
            "--gpu-decode", help="Workers send whole files; the GPU decodes and crops them.", rich_help_panel=COMPUTE
        ),
    ] = False,
    cache: Annotated[
        str,
        typer.Option(
            help="Files from storage (cold), from memory (warm), or both: cold,warm.", rich_help_panel=MEASURING
        ),
    ] = "cold",
    ranks: options.Ranks = None,
    join: options.Join = None,
    rounds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Rounds of a configuration; fewer where one is enough, up to twice as many where the "
            "verdict stays unclear or the rate is known to no better than 10 %. With --against: pairs of rounds, 8 by "
            "default.",
            rich_help_panel=MEASURING,
        ),
    ] = 3,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="Measure every ablation everywhere, also where the verdict is already clear.",
            rich_help_panel=MEASURING,
        ),
    ] = False,
    epochs: Annotated[
        int,
        typer.Option(
            min=0,
            help="Also train this many whole epochs, the first one cold: rate of each, and share read from storage.",
            rich_help_panel=MEASURING,
        ),
    ] = 0,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Measure RUN again, in turn with the same configurations changed by the other options, and "
            "compare both.",
            show_default=False,
            rich_help_panel=MEASURING,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Seconds for the whole sweep. What has not begun by then is left for --resume, which takes a new "
            "--budget.",
            show_default="17 a configuration, 40 with a GPU",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(help="Timeout of one configuration, in seconds.", rich_help_panel=MEASURING)
    ] = 600.0,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory of the run.", show_default="loaderprobe-runs/DATE-TIME", rich_help_panel=OUTPUT),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Directory of a run that is not complete: measure what is missing, with the settings of that run. "
            "Only --budget may be new.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print summary.json and nothing else.", rich_help_panel=OUTPUT)
    ] = False,
    quiet: options.Quiet = False,
) -> int:
    """Measure whether training is compute-bound or input-bound, and which part of the input limits it.

    Trains a model on generated data sets, or on DATA, with the serial loader and with each number of workers.
    Each verdict comes from an experiment.
    """
    from loaderprobe.api.against import sides_in
    from loaderprobe.api.sweep_request import check_seconds, request_of

    silent, here = quiet or json, launched_here(join, several=ranks is not None)
    if resume is not None:
        _refuse_ignored(context)
        check_seconds("budget", budget)
        if here is None and (sides := sides_in(resume)):
            if budget is not None:
                for side in sides:
                    side.set_budget(budget)
            return resume_against(sides, as_json=json, quiet=silent)
    elif against is not None:
        if here:
            raise BadValue("--against measures in one process", hint="start it without a launcher")
        return sweep_against(given_options(context), as_json=json, quiet=silent)
    asked = partial(
        request_of,
        data=data,
        data_dir=data_dir,
        out=out,
        resolutions=resolutions,
        images=images,
        workers=workers,
        serial=not no_serial,
        loader=loader,
        prefetch_factor=prefetch_factor,
        pipeline=pipeline,
        decoder=decoder,
        tensor=tensor,
        pin_memory=not no_pin_memory,
        gpu_decode=gpu_decode,
        compute=compute,
        batch_size=batch_size,
        model=model,
        precision=precision,
        memory_format=memory_format,
        compile=compiled,
        side_stream=side_stream,
        cache=cache,
        ranks=ranks,
        thorough=thorough,
        epochs=epochs,
        rounds=rounds,
        seed=seed,
        budget_s=budget,
        time_limit_s=time_limit,
        command=("loaderprobe", *map(shlex.quote, sys.argv[1:])),
    )
    auto = "auto" in parse_list(compute, str)

    def run_of(lead: Lead | None) -> RunDirectory:
        if resume is not None:
            return open_sweep(resume, lead, budget)
        return begin_sweep(asked(nodes=lead.nodes if lead else None), lead, quiet=silent, auto=auto)

    return in_ranks(here, lambda lead: measure_and_show(run_of(lead), lead, as_json=json, quiet=silent))


def _refuse_ignored(context: typer.Context) -> None:
    """Raises BadValue for an option that a resumed run would ignore, since it keeps its own settings."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in BESIDE_RESUME:
            written = parameter.opts[0] if parameter.param_type_name == "option" else name.upper()
            raise BadValue(
                f"{written} would be ignored beside --resume: a resumed run keeps its own settings",
                hint=f"leave {written} out, or begin a new run without --resume",
            )

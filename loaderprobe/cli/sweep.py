"""`loaderprobe sweep`: the main job."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from loaderprobe.cli import options
from loaderprobe.cli.against import given_options, resume_against, sweep_against
from loaderprobe.cli.border import command
from loaderprobe.cli.panels import COMPUTE, DATA, LOADER, MEASURING, OUTPUT
from loaderprobe.cli.seats import in_ranks, launched_here, shown_as
from loaderprobe.cli.sweep_run import begin_sweep, measure_and_show, open_sweep
from loaderprobe.errors import BadValue
from loaderprobe.units import parse_list

if TYPE_CHECKING:
    from loaderprobe.measure.lead import Lead
    from loaderprobe.store.run_directory import RunDirectory

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
    from loaderprobe.api.against_request import sides_in
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

    def measured(run: RunDirectory, lead: Lead | None) -> int:
        return measure_and_show(run, lead, as_json=json, quiet=silent)

    return in_ranks(here, run_of, measured, options=shown_as(json=json, quiet=quiet))


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

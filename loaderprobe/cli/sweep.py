"""`loaderprobe sweep`: the main job."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from loaderprobe.cli.border import command, show, stderr, width_and_color
from loaderprobe.cli.progress import counting, sweeping
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED, BadValue
from loaderprobe.units import format_bytes, parse_count, parse_list, parse_resolution

if TYPE_CHECKING:
    from loaderprobe.api import SweepRequest
    from loaderprobe.store.run_directory import RunDirectory

RESOLUTIONS = "256x256,500x375,1024x768"


@command
def sweep(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of images, one sub-folder per class. Without it, data sets are generated.", show_default=False
        ),
    ] = None,
    workers: Annotated[str, typer.Option(help="Numbers of workers, with commas.")] = "1,2,4,8",
    no_serial: Annotated[bool, typer.Option("--no-serial", help="Do not measure the serial loader.")] = False,
    resolutions: Annotated[
        str, typer.Option(help="Resolutions of the generated data sets. imagenet: ImageNet's mixture.")
    ] = RESOLUTIONS,
    compute: Annotated[
        str,
        typer.Option(
            help="auto (cuda if present, else cpu), cuda, cpu, emulated:NAME or emulated:IMAGES_PER_S; with commas."
        ),
    ] = "auto",
    cache: Annotated[str, typer.Option(help="State of the page cache: cold, warm, or cold,warm.")] = "cold",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per batch.", show_default="256 on CUDA, 4 on the CPU, else 32")
    ] = None,
    prefetch_factor: Annotated[int, typer.Option(min=1, help="Batches loaded ahead by each worker.")] = 2,
    pipeline: Annotated[
        Literal["imagenet", "crop"], typer.Option(help="imagenet: random resized crop and flip. crop: random crop.")
    ] = "imagenet",
    decoder: Annotated[Literal["pillow", "torchvision"], typer.Option(help="JPEG decoder.")] = "pillow",
    tensor: Annotated[
        Literal["float32", "uint8"], typer.Option(help="Type that workers send; uint8 is normalised on the device.")
    ] = "float32",
    precision: Annotated[
        Literal["auto", "bf16", "fp16", "fp32", "tf32"],
        typer.Option(help="Precision of training. auto: bf16 on CUDA, else fp32."),
    ] = "auto",
    memory_format: Annotated[
        Literal["channels_last", "contiguous"], typer.Option(help="Memory format of model and images.")
    ] = "channels_last",
    compiled: Annotated[bool, typer.Option("--compile", help="Train with torch.compile.")] = False,
    no_pin_memory: Annotated[
        bool, typer.Option("--no-pin-memory", help="Copy to the GPU from pageable memory.")
    ] = False,
    side_stream: Annotated[bool, typer.Option("--side-stream", help="Copy to the GPU on a separate stream.")] = False,
    gpu_decode: Annotated[
        bool, typer.Option("--gpu-decode", help="Workers send whole files; the GPU decodes and crops them.")
    ] = False,
    loader: Annotated[str, typer.Option(help="torch, or a class of your own as package.module:Class.")] = "torch",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which every mode is measured.")] = 3,
    thorough: Annotated[
        bool,
        typer.Option("--thorough", help="Measure every ablation everywhere, also where the verdict is already clear."),
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(help="Seconds for the whole sweep. The rest is left for --resume.", show_default="none"),
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Timeout of one configuration, in seconds.")] = 600.0,
    data_dir: Annotated[Path, typer.Option(help="Directory of the generated data sets.")] = Path("loaderprobe-data"),
    out: Annotated[
        Path | None, typer.Option(help="Directory of the run.", show_default="loaderprobe-runs/DATE-TIME")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Run to complete, with its own settings; measures only what is missing.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the data and for the order of the segments.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print summary.json and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> int:
    """Measure whether training is compute-bound or input-bound, and which part of the input limits it.

    Trains ResNet-50 on generated data sets, or on DATA, with the serial loader and with each number of workers.
    Each verdict comes from an experiment.
    """
    from loaderprobe import api
    from loaderprobe.records.config import ComputeSpec, LoaderSpec
    from loaderprobe.store.run_directory import RunDirectory

    if resume is not None:
        run = RunDirectory.open(resume)
        for module in api.foreign_modules(run):
            # Also with --quiet: the run names this code, not the command line.
            text = f"{resume} names a part outside loaderprobe: its module {module} is going to be imported."
            stderr().print(text, highlight=False, markup=False)
    else:
        request = api.SweepRequest(
            data=data,
            data_dir=data_dir,
            out=out or Path("loaderprobe-runs") / datetime.now().strftime("%Y%m%d-%H%M%S"),
            resolutions=parse_list(resolutions, parse_resolution),
            loaders=tuple(
                LoaderSpec(
                    name=loader,
                    workers=count,
                    prefetch_factor=prefetch_factor if count else 0,
                    pipeline=pipeline,
                    decoder=decoder,
                    tensor=tensor,
                    pin_memory=not no_pin_memory,
                    gpu_decode=gpu_decode,
                )
                for count in _with_serial(parse_list(workers, parse_count), no_serial)
            ),
            computes=tuple(
                ComputeSpec(
                    name=name,
                    batch_size=batch_size or api.usual_batch_size(name),
                    precision=precision,
                    memory_format=memory_format,
                    compile=compiled,
                    side_stream=side_stream,
                )
                for name in _computes(compute)
            ),
            caches=parse_list(cache, _cache_state),
            thorough=thorough,
            rounds=rounds,
            seed=seed,
            budget_s=budget,
            time_limit_s=time_limit,
            command=("loaderprobe", *map(shlex.quote, sys.argv[1:])),
        )
        run = _start(request, quiet or json)
    return _measure_and_show(run, as_json=json, quiet=quiet or json)


def _start(request: SweepRequest, quiet: bool) -> RunDirectory:
    from loaderprobe import api
    from loaderprobe.system.cpu import cores_available

    size = api.data_to_make(request)
    if size and not quiet:
        text = f"Data: about {format_bytes(size)} of images will be generated under {request.data_dir} and kept."
        stderr().print(text, highlight=False, markup=False)
    with counting(quiet) as on_data:
        return api.start_sweep(request, processes=max(1, round(cores_available())), on_data=on_data)


def _measure_and_show(run: RunDirectory, *, as_json: bool, quiet: bool) -> int:
    from loaderprobe import api

    interrupted = False
    if not quiet:
        for sentence in api.plan(run).sentences():
            stderr().print(sentence, highlight=False)
    try:
        with sweeping(quiet) as on_progress:
            api.sweep(run, on_progress)
    except KeyboardInterrupt:
        interrupted = True
    shown = api.report(run)
    # Shown before it is saved: a full disk must not hide what was measured.
    _print(shown, as_json)
    page = api.save_report(run, shown)
    if not as_json:
        show(f"\nReport: {page}")
    if interrupted:
        stderr().print(
            f"interrupted; the finished configurations are kept. Resume with: loaderprobe sweep --resume {run.path}"
        )
        return EXIT_INTERRUPTED
    failed = any(row.status == "failed" for row in shown.summary.configurations)
    return EXIT_SOME_FAILED if failed or shown.summary.run.damaged else EXIT_DONE


def _print(shown: Any, as_json: bool) -> None:
    from loaderprobe.render.json import summary_json
    from loaderprobe.render.terminal import TerminalReport

    if as_json:
        show(summary_json(shown))
        return
    width, color = width_and_color()
    show(TerminalReport().render(shown, width=width, color=color))


def _with_serial(workers: tuple[int, ...], no_serial: bool) -> tuple[int, ...]:
    if no_serial:
        chosen = tuple(count for count in workers if count)
        if not chosen:
            raise BadValue(
                "--no-serial leaves nothing to measure", hint="give at least one worker count, or leave out --no-serial"
            )
        return chosen
    return (0, *(count for count in workers if count))


def _computes(text: str) -> tuple[str, ...]:
    """`auto` is CUDA if there is a GPU, else real steps on the CPU, with a note."""
    from loaderprobe.system.environment import list_gpus

    names = parse_list(text, str)
    if "auto" not in names:
        return names
    gpus, _ = list_gpus()
    if not gpus:
        stderr().print(
            "no NVIDIA GPU: training on the CPU. --compute emulated:mlperf-h100 shows what that GPU would need.",
            style="yellow",
        )
    return tuple(dict.fromkeys(("cuda" if gpus else "cpu") if name == "auto" else name for name in names))


def _cache_state(text: str) -> Any:
    if text not in ("cold", "warm"):
        raise BadValue(f"'{text}' is not a state of the cache", hint="use cold, warm, or cold,warm")
    return text

"""`loaderprobe plan`: what N accelerators need of storage, what limits it first, what to test on delivery."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli.border import command, refuse_several, show, show_result, width_and_color, write_page
from loaderprobe.cli.options import COMPUTE, DATA, OUTPUT, STORAGE, Json, Markdown, Page
from loaderprobe.errors import EXIT_DONE, BadValue

ONE_NODE = 8


@command
def plan(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="Directory of a sweep, of run, trace or bandwidth --ranks, or a file with the JSON of bandwidth.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Data set of the run, such as 500x375.",
            show_default="the one nearest to ImageNet's file size",
            rich_help_panel=DATA,
        ),
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(
            help="Images in the set, such as 1.28M.", show_default="as found by the run", rich_help_panel=DATA
        ),
    ] = None,
    mean_size: Annotated[
        str | None,
        typer.Option(help="Mean size of a file, such as 115kB.", show_default="as measured", rich_help_panel=DATA),
    ] = None,
    layout: Annotated[
        str, typer.Option(help="folder: one image in a file. shards:1251: 1251 images in a file.", rich_help_panel=DATA)
    ] = "folder",
    epochs: Annotated[int, typer.Option(help="Epochs that a training takes.", rich_help_panel=DATA)] = 90,
    accelerators: Annotated[
        int, typer.Option("--accelerators", "-n", help="Accelerators to feed.", rich_help_panel=COMPUTE)
    ] = ONE_NODE,
    kind: Annotated[
        str | None,
        typer.Option(
            help="measured (in the run), a name such as mlperf-h100, or images/s of one accelerator.",
            show_default="the run's fastest",
            rich_help_panel=COMPUTE,
        ),
    ] = None,
    utilization: Annotated[
        str | None,
        typer.Option(
            help="Share of their rate that the accelerators should reach.",
            show_default="90%, the bar of MLPerf Storage",
            rich_help_panel=COMPUTE,
        ),
    ] = None,
    per_node: Annotated[int, typer.Option(help="Accelerators in a node.", rich_help_panel=COMPUTE)] = ONE_NODE,
    growth: Annotated[
        float, typer.Option(help="Factor by which the number of accelerators will grow.", rich_help_panel=COMPUTE)
    ] = 1.0,
    simulate_ranks: Annotated[
        int | None,
        typer.Option(
            help="Replay the run's batches for this many ranks that take each step together: what waiting for the "
            "slowest costs, by prefetch factor.",
            show_default="as many as accelerators, where the run has ranks",
            rich_help_panel=COMPUTE,
        ),
    ] = None,
    storage: Annotated[
        list[str] | None,
        typer.Option(
            help="A storage to compare: a name of the catalogue with its size (fsx-lustre-250:24TiB), or figures "
            "(5GB/s,60kopens/s,2ms,1.5GB/s/client). May be repeated.",
            show_default="what the run measured",
            rich_help_panel=STORAGE,
        ),
    ] = None,
    use: Annotated[
        str | None,
        typer.Option(
            help="Share of a storage's limits to be used; the rest is headroom.",
            show_default="80%, an assumption",
            rich_help_panel=STORAGE,
        ),
    ] = None,
    nic: Annotated[
        str | None,
        typer.Option(
            help="Network of a node: 12.5GB/s (bytes) or 100Gb/s (bits).", show_default=False, rich_help_panel=STORAGE
        ),
    ] = None,
    cache: Annotated[
        str,
        typer.Option(
            help="Cache for files on each node: page:1TB (the kernel's page cache), pinned:1TB (a fixed part of the "
            "files), or none.",
            rich_help_panel=STORAGE,
        ),
    ] = "none",
    catalogue: Annotated[
        bool, typer.Option("--catalogue", help="List the storage kinds with sources.", rich_help_panel=STORAGE)
    ] = False,
    md: Markdown = False,
    json: Json = False,
    html: Page = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of --json.", rich_help_panel=OUTPUT)
    ] = False,
) -> int:
    """Plan storage from a stored run: what the accelerators need, what limits it first, what to test on delivery.

    Computes from the run, your options and published limits, and labels each figure.
    Measures nothing and needs no GPU.
    """
    refuse_several(md=md, json=json, html=html)
    _check(run, md=md, json=json, html=html is not None, schema=schema, catalogue=catalogue)
    if schema:
        from loaderprobe.records.plan import PlanReport
        from loaderprobe.render.json import result_schema

        show(result_schema(PlanReport))
        return EXIT_DONE
    if catalogue:
        show(_catalogue(md=md, json=json))
        return EXIT_DONE
    from loaderprobe.api import plan as verb

    assert run is not None
    found = verb.plan(
        run, accelerators=accelerators, kind=kind, utilization=utilization, per_node=per_node, nic=nic,
        storage=storage or (), use=use, cache=cache, layout=layout, data=data, images=images, mean_size=mean_size,
        epochs=epochs, growth=growth, simulate_ranks=simulate_ranks,
    )  # fmt: skip
    if html is not None:
        write_page(found, html, "Plan")
    else:
        show_result(found, json=json, markdown=md)
    return EXIT_DONE


def _check(run: Path | None, *, md: bool, json: bool, html: bool, schema: bool, catalogue: bool) -> None:
    """Raises BadValue for options that exclude each other, and without anything to plan from."""
    if schema and (md or json or html or catalogue):
        raise BadValue("--schema excludes --md, --json, --html and --catalogue", hint="use one of them")
    if catalogue and html:
        raise BadValue("--catalogue is no page", hint="use --md or --json")
    if run is None and not (schema or catalogue):
        raise BadValue("no run is given", hint="loaderprobe plan loaderprobe-runs/DATE-TIME")
    if run is not None and (schema or catalogue):
        raise BadValue("--schema and --catalogue need no run", hint="leave the run out")


def _catalogue(*, md: bool, json: bool) -> str:
    from loaderprobe.render.plan import catalogue_document, catalogue_json
    from loaderprobe.render.writers import document_markdown, document_text
    from loaderprobe.storage.catalogue import catalogue

    entries = catalogue()
    if json:
        return catalogue_json(entries)
    page = catalogue_document(entries, datetime.now(UTC).date())
    width, color = width_and_color()
    return document_markdown(page) if md else document_text(page, width=width, color=color)

"""`loaderprobe trace`: what limits the training in recordings of torch.profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli import options
from loaderprobe.cli.border import check_place, command, counting, refuse_several, show, show_result, typed, write_page
from loaderprobe.cli.options import COMPUTE, DATA, OUTPUT
from loaderprobe.errors import EXIT_DONE, EXIT_SOME_FAILED
from loaderprobe.units import format_bytes

MEGABYTE = 1_000_000


@command
def trace(
    files: Annotated[
        list[Path],
        typer.Argument(help="Recordings (.json, .json.gz), or folders of them; several are ranks.", show_default=False),
    ],
    annotation: Annotated[
        str,
        typer.Option(
            help="Name of the span around asking for a batch.",
            show_default="that of torch's DataLoader",
            rich_help_panel=DATA,
        ),
    ] = "",
    device: Annotated[
        int | None,
        typer.Option(
            min=0, help="Index of the GPU.", show_default="the one with most kernels", rich_help_panel=COMPUTE
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Images per batch.", show_default="by the shapes on record", rich_help_panel=COMPUTE),
    ] = None,
    html: options.Page = None,
    out: Annotated[
        Path | None,
        typer.Option(help="New directory for result.json and report.html.", show_default=False, rich_help_panel=OUTPUT),
    ] = None,
    md: options.Markdown = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Estimate what limits a training that torch.profiler recorded: input, the host, communication or compute.

    Measures nothing, and needs neither a GPU nor the machine that trained. Several files are the ranks of one training.
    """  # fmt: skip
    refuse_several(md=md, json=json, html=html)
    check_place(html, "--html")
    if out is not None:
        from loaderprobe.store.results import check_out

        check_place(out, "--out")
        check_out(out)
    from loaderprobe.api.trace import trace as verb

    with counting(quiet) as on_count:
        found = verb(
            files, annotation=annotation, device=device, batch_size=batch_size, command=typed(),
            progress=lambda name, done, size: on_count(
                f"{name}, {format_bytes(size)}", -(-done // MEGABYTE), -(-size // MEGABYTE)
            ),
        )  # fmt: skip
    if html is not None and out is None:
        show(found.document().title)
    else:
        show_result(found, json=json, markdown=md)
    if html is not None:
        write_page(found, html, "Trace")
    if out is not None:
        page = found.save(out)
        if not (md or json):
            show(f"\nReport: {page}")
    return EXIT_SOME_FAILED if found.unread else EXIT_DONE

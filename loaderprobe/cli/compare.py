"""`loaderprobe compare`: what changed between two stored results beyond noise, and gates for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli.border import command, refuse_several, show, show_result, typed, write_page
from loaderprobe.cli.options import OUTPUT, Json, Markdown, Page
from loaderprobe.errors import EXIT_DONE, EXIT_GATE_FAILED, BadValue

GATES = "Gates"
SIDES = "Sides"


@command
def compare(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B",
            help="Two runs of sweep, two files of bandwidth --json, or two results of layers, run or trace.",
            show_default=False,
        ),
    ],
    others: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="B",
            help="A run of side B, where a side has several: A1 A2 A3 --with B1 --with B2 --with B3.",
            show_default=False,
            rich_help_panel=SIDES,
        ),
    ] = None,
    differ: Annotated[
        str,
        typer.Option(
            help="What was meant to differ, separated by commas: machine, software, storage, data, options, state, "
            "all, or a field such as torch.",
            show_default="nothing",
            rich_help_panel=SIDES,
        ),
    ] = "",
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Exit with 6 where B is slower by this share or more, in a row or in all rows together. Also "
            "where a row is too noisy to show that. It is the least change that is called slower or faster.",
            show_default="no gate; 5% is called slower",
            rich_help_panel=GATES,
        ),
    ] = None,
    fail_if_unclear: Annotated[
        bool,
        typer.Option("--fail-if-unclear", help="Exit with 6 where a row is too noisy to say.", rich_help_panel=GATES),
    ] = False,
    fail_if_verdict_changes: Annotated[
        bool,
        typer.Option(
            "--fail-if-verdict-changes", help="Exit with 6 where something else limits B.", rich_help_panel=GATES
        ),
    ] = False,
    allow_unclear: Annotated[
        bool,
        typer.Option(
            "--allow-unclear",
            help="Let --fail-if-slower hold where rows are too noisy to show such a loss.",
            rich_help_panel=GATES,
        ),
    ] = False,
    html: Page = None,
    out: Annotated[
        Path | None,
        typer.Option(help="New directory for result.json and report.html.", show_default=False, rich_help_panel=OUTPUT),
    ] = None,
    md: Markdown = False,
    json: Json = False,
) -> int:
    """Compare two stored results: what changed beyond noise, verdicts first. Measures nothing.

    A and B must agree in machine, software, storage and data; --differ names what was meant to differ.
    """
    before, after = _sides(results, others)
    refuse_several(md=md, json=json, html=html)
    from loaderprobe.api import compare as verb

    if out is not None:
        from loaderprobe.store.results import check_out

        check_out(out)
    found = verb.compare(
        before, after, differ=differ, fail_if_slower=fail_if_slower, fail_if_unclear=fail_if_unclear,
        fail_if_verdict_changes=fail_if_verdict_changes, allow_unclear=allow_unclear, command=typed(),
    )  # fmt: skip
    if html is not None:
        write_page(found, html, "Comparison")
    else:
        show_result(found, json=json, markdown=md)
    if out is not None:
        page = found.save(out)
        if not (md or json):
            show(f"\nReport: {page}")
    return EXIT_DONE if found.passed else EXIT_GATE_FAILED


def _sides(results: list[Path], others: list[Path] | None) -> tuple[list[Path], list[Path]]:
    """A and B. Raises BadValue for anything but two results, or several of A with those of B in `--with`."""
    if others:
        return results, others
    if len(results) != 2:
        several = "for several a side: A1 A2 --with B1 --with B2"
        raise BadValue(f"A and B are two results, but {len(results)} are given", hint=several)
    return results[:1], results[1:]

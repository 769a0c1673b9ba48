"""Options: each is one row, which the command line, Python, requests and labels follow; which are refused together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields
from inspect import Parameter
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import loaderprobe
from loaderprobe.api import batch_size, layers
from loaderprobe.cli.sweep import BESIDE_RESUME
from loaderprobe.datasets.generate.generate import BASE_IMAGES, MIXTURE_BASE_IMAGES
from loaderprobe.datasets.layouts import NAMES
from loaderprobe.errors import BadValue
from loaderprobe.measure import sweep
from loaderprobe.records import options
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig, SweepSpec
from loaderprobe.records.options import ARGUMENT, REQUIRED, Option, of_python
from tests.cli.invoke import invoke

VERBS: dict[str, tuple[Callable[..., Any], Sequence[Option]]] = {
    "sweep": (loaderprobe.sweep, options.SWEEP),
    "trace": (loaderprobe.trace, options.TRACE),
    "bandwidth": (loaderprobe.bandwidth, options.BANDWIDTH),
    "diagnose": (loaderprobe.diagnose, options.DIAGNOSE),
    "generate": (loaderprobe.generate, options.GENERATE),
    "plan": (loaderprobe.plan, options.PLAN),
    "compare": (loaderprobe.compare, options.COMPARE),
    "doctor": (loaderprobe.doctor, options.DOCTOR),
    "layers": (layers.named_layers, options.LAYERS),
    "batch-size": (batch_size.named_batch_size, options.BATCH_SIZES),
}
UNTYPED = {"diagnose": ["step"], "plan": ["now"]}
"""Arguments of verbs that no command has."""
USUAL_TIMES = (
    f"{sweep.USUAL_SECONDS:g} a configuration, {sweep.USUAL_SECONDS_ON_GPU:g} with a GPU; {sweep.RANKS_SECONDS:g} more "
    f"with ranks, {sweep.COMPILE_SECONDS:g} with --compile; more from --rounds {sweep.USUAL_ROUNDS + 1} on"
)
IGNORED = [row for row in options.SWEEP if row.panel != ARGUMENT and row.name not in BESIDE_RESUME]
"""An option of `sweep` is either of use beside `--resume`, or is refused there."""


def kinds(annotation: Any) -> set[Any]:
    """The members of a union, which may be one."""
    union = get_origin(annotation) in (Union, UnionType)
    return {kind for each in get_args(annotation) for kind in kinds(each)} if union else {annotation}


def takes(row: Option, annotation: Any) -> bool:
    """Whether an argument takes what its row says, and None where that is the default."""
    found = kinds(annotation)
    if row.several or get_origin(row.type) is list:
        fits = str in found and any(get_origin(each) is Iterable for each in found)
    else:
        fits = bool(found & {row.type, *([str] if row.type is Path or get_origin(row.type) is Literal else [])})
    return fits and (row.default is not None or type(None) in found)


def unlike(verb: Callable[..., Any], rows: Sequence[Option]) -> list[str]:
    """The names of options that a verb lacks, has with another default or type, or has beside the rows."""
    arguments, hints = inspect.signature(verb).parameters, get_type_hints(verb)
    wanted = {each.name: each for each in of_python(rows)}
    found = [
        name
        for name in wanted.keys() ^ arguments.keys()
        if name not in ("progress", "command", "coordinator", "listener", "a", "b")
    ]
    for name in wanted.keys() & arguments.keys():
        default, usual = arguments[name].default, wanted[name].default
        same = default is Parameter.empty if usual is REQUIRED else str(default) == str(usual) or default == usual
        given = name in ("model", "run", "loader") and default is Parameter.empty
        if not (same or given) or not (takes(wanted[name], hints[name]) or given):
            found.append(name)
    return sorted(found)


@pytest.mark.parametrize("name", VERBS)
def test_the_arguments_of_a_verb_are_the_rows_of_its_command(name: str) -> None:
    """The same names, defaults and types; a verb may be sure of a model or a run that its command need not be given."""
    assert unlike(*VERBS[name]) == UNTYPED.get(name, [])


def test_what_a_row_fills_has_its_default_and_type() -> None:
    """A field of a configuration, or of a sweep, is as usual unless its option is given."""
    records = (LoaderSpec, ComputeSpec, RunConfig, SweepSpec)
    hints = {name: kind for record in records for name, kind in get_type_hints(record).items()}
    filled = {each.name: each for record in records for each in fields(record) if each.default is not MISSING}
    rows = [each for each in options.SWEEP if each.name in filled and not each.several]
    assert len(rows) > 10
    assert [row.name for row in rows if row.default != filled[row.name].default] == []
    assert [row.name for row in rows if row.type not in kinds(hints[row.name])] == []


@pytest.mark.parametrize(
    ("verb", "name", "value", "says"),
    [
        ("sweep", "pipeline", "centre", "'centre' is not one of 'imagenet', 'crop'"),
        ("sweep", "tensor", "float", "'float' is not one of 'float32', 'uint8'; did you mean 'float32'?"),
        ("sweep", "batch_size", 0, "0 is less than 1"),
        ("sweep", "rounds", 1.5, "1.5 is not a whole number"),
        ("sweep", "budget_s", "ten", "'ten' is not a number"),
        ("sweep", "time_limit_s", True, "True is not a number"),
        ("sweep", "compile", "no", "'no' is neither True nor False"),
        *((verb, "seed", "x", "'x' is not a whole number") for verb in ("bandwidth", "generate")),
        ("trace", "device", "x", "'x' is not a whole number"),
        ("diagnose", "cache", "hot", "'hot' is not one of 'cold', 'warm'"),
    ],
)
def test_python_refuses_what_the_command_line_does(verb: str, name: str, value: Any, says: str, tmp_path: Path) -> None:
    """By the name of the option; before it looks at anything else."""
    (row,) = (each for each in VERBS[verb][1] if each.name == name)
    with pytest.raises(BadValue) as caught:
        VERBS[verb][0](tmp_path, **{name: value})
    assert caught.value.message == f"{row.flags[0]}: {says}" and "--help explains" in caught.value.hint
    done = invoke(verb, tmp_path, row.flags[0], value)
    said = f"error: {row.flags[0]}: {says}\n" if get_args(row.type) else row.flags[0]
    assert (done.exit_code == 2 and said in done.stderr) or row.type is bool
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "name", "said"),
    [
        (options.SWEEP, "budget_s", USUAL_TIMES),
        (options.SWEEP, "budget_s", f"up to {sweep.GRACE_S:g} s later"),
        (options.GENERATE, "pool", f"{BASE_IMAGES}; imagenet: {MIXTURE_BASE_IMAGES}"),
        *((options.GENERATE, "layout", f"{name}{mark}") for name, mark in zip(NAMES, ",,,,,.", strict=True)),
    ],
)
def test_help_has_the_figures_and_names_that_count(rows: Sequence[Option], name: str, said: str) -> None:
    """Those of the code, which are written out there."""
    (row,) = (each for each in rows if each.name == name)
    assert said in f"{row.help} {row.usual}"


@pytest.mark.parametrize("row", IGNORED, ids=lambda row: row.name)
def test_an_option_that_resume_would_ignore_is_refused(row: Option, tmp_path: Path) -> None:
    """By name, with exit code 2, before the run is opened; also where it is given its default."""
    value = [] if row.type is bool else [str((*get_args(row.type), "1")[0])]
    done = invoke("sweep", "--resume", tmp_path, row.flags[0], *value)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{row.flags[0]} would be ignored beside --resume" in " ".join(done.stderr.split())

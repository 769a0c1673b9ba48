"""`sweep --against`: each configuration of a run measured again, in turn with itself changed, and both compared."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from loaderprobe.analyze.comparison import differences, environment_facts
from loaderprobe.api.child import forkserver
from loaderprobe.api.compare import Comparison, compare
from loaderprobe.api.load import Run, load
from loaderprobe.api.plan import save_report
from loaderprobe.api.policy import JUDGING
from loaderprobe.api.shown import usual_out
from loaderprobe.api.sweep_request import compute_names, parse_cache
from loaderprobe.api.values import PathLike, heard_as, listed, unheard
from loaderprobe.errors import BadValue
from loaderprobe.measure.assembly import check_names, check_parts
from loaderprobe.measure.ceilings import Ceilings
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.image_data import PREFETCH_FACTOR
from loaderprobe.measure.in_turn import measure_in_turn, plan_in_turn
from loaderprobe.measure.runner import Order, run_configuration
from loaderprobe.measure.session import OnStage
from loaderprobe.measure.sweep import OnProgress
from loaderprobe.records.compare import Difference
from loaderprobe.records.config import OPTIONS, PlanInTurn, RunConfig, SweepSpec, Turns, with_options
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.store.results import write_result
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.system.environment import describe_environment
from loaderprobe.system.host import utc_timestamp
from loaderprobe.units import join_words

# What a sweep against a run is asked for, and the two runs that are made of it: A as the run was, B with changes.

PAIRS = 8
"""Of rounds, unless asked: half an interval is 0.84 of what pairs vary by; with three it is 2.5 of that."""
FIXED = ("data", "resolution", "rounds", "seed", "ranks", "nodes")
"""Options of a configuration that are no change: the data are, by their path."""
Pairs = Sequence[tuple[RunConfig, RunConfig]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstRequest:
    """Both sides, before they have a directory."""

    against: Run
    out: Path
    pairs: Pairs
    """Each configuration as A and as B."""
    files: tuple[FileSet, ...]
    """Of both sides."""
    changes: tuple[str, ...]
    """The options that differ in any of the pairs."""
    moved: bool
    """True where B reads a copy of the data."""
    left_out: int
    """Configurations that the changes leave as they are."""
    budget_s: float | None
    time_limit_s: float
    thorough: bool
    command: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, seconds in (("budget", self.budget_s), ("time limit", self.time_limit_s)):
            if seconds is not None and not 0 < seconds < math.inf:
                raise BadValue(f"the {name} must be a number of seconds above 0, not {seconds:g}")

    def since(self) -> list[Difference]:
        """What differs between the machine and the software of the run, and those of now."""
        roots = [Path(files.root) for files in self.files[:1]]
        before, now = self.against.directory.record.environment, describe_environment(roots)
        found = differences(environment_facts(before), environment_facts(now))
        return [each for each in found if each.group in ("machine", "software")]


def against_request(
    run: Run | PathLike, data: PathLike | None, *, rounds: int, budget_s: float | None, time_limit_s: float,
    thorough: bool, out: PathLike | None, changes: Mapping[str, Any], command: tuple[str, ...],
) -> AgainstRequest:  # fmt: skip
    """The request for a run, a copy of its data for B, and the options that B has others of.

    Raises BadValue for what cannot be changed, where the copy is none, or where nothing is left to compare;
    MissingPart for a device or a plug-in that is not there.
    """
    found = run if isinstance(run, Run) else load(run)
    wanted = {name: as_value(name, value) for name, value in changes.items()}
    measured = _measured(found)
    sets = {name: found.directory.files(name) for name in dict.fromkeys(each.data for each in measured)}
    copies = sets if data is None else {name: moved(files, Path(data)) for name, files in sets.items()}
    both = [
        (a, replace(changed(a, wanted), data=copies[a.data].fingerprint))
        for a in (replace(config, rounds=rounds) for config in measured)
    ]
    pairs = [pair for pair in both if pair[0] != pair[1]] if wanted or copies != sets else both
    if not pairs:
        raise BadValue(
            f"{found.path} has {_against_request_written(wanted)} already", hint="name an option with another value"
        )
    _check_distinct(found, [other for _, other in pairs], wanted)
    request = AgainstRequest(
        against=found, out=usual_out("against") if out is None else Path(out), pairs=tuple(pairs),
        files=(*sets.values(), *(each for each in copies.values() if each not in sets.values())),
        changes=tuple(name for name in OPTIONS if name != "data" and _differ(name, pairs)), moved=copies != sets,
        left_out=len(both) - len(pairs), budget_s=budget_s, time_limit_s=time_limit_s, thorough=thorough,
        command=command,
    )  # fmt: skip
    _check(request, list(sets.values()))
    return request


def _check(request: AgainstRequest, files: Sequence[FileSet]) -> None:
    """Raise what is wrong with it; what can be known without torch before torch is imported."""
    parts = dict.fromkeys((config.loader, config.compute) for pair in request.pairs for config in pair)
    for loader, compute in parts:
        check_names(loader, compute)
    if not (request.changes or request.moved) and (since := request.since()):
        said = ", ".join(f"{each.field} {each.before}, now {each.after}" for each in since)
        raise BadValue(
            f"A is measured again as it is now, not as it was in {request.against.path} ({said})",
            hint="measure a new run with sweep, then: loaderprobe compare RUN NEW --differ machine,software",
        )
    check_files(files)
    RunDirectory.check_new(request.out)
    for loader, compute in parts:
        check_parts(loader, compute)


def _measured(run: Run) -> list[RunConfig]:
    directory = run.directory
    configs = directory.record.spec.configs
    found = [each for each in configs if isinstance(directory.result(each.key), Measurement)]
    if not found:
        raise BadValue(f"{run.path} holds no measured configuration", hint=f"loaderprobe sweep --resume {run.path}")
    if several := next((each for each in found if each.ranks > 1), None):
        raise BadValue(
            f"{run.path} has {several.title()}, and several ranks are not measured in turn",
            hint="measure a new run with sweep, then: loaderprobe compare RUN NEW",
        )
    return found


def as_value(name: str, value: Any) -> Any:
    """The value of an option that B has, checked; a name of a device may be `auto`. Raises BadValue."""
    if name not in OPTIONS or name in FIXED:
        options = join_words([each for each in OPTIONS if each not in FIXED], "or")
        raise BadValue(f"{name} is no option in which B can differ", hint=f"change {options}, or copy the data")
    option = f"--{name.replace('_', '-')}"
    several = listed(value, str) if isinstance(value, str | list | tuple) else (value,)
    if len(several) != 1:
        raise BadValue(f"{option} names {len(several)} values, but B has one", hint=f"give {option} one value")
    single = several[0]
    if name == "compute":
        return compute_names(single)[0]
    if name == "cache":
        return parse_cache(single)
    try:
        return msgspec.convert(single, OPTIONS[name].type, strict=False)
    except msgspec.ValidationError as error:
        raise BadValue(f"{option} {single}: {error}", hint=f"loaderprobe sweep --help explains {option}") from error


def changed(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """The configuration as B has it. The serial loader has no batches ahead, whatever is asked. Raises BadValue."""
    ahead = changes.get("prefetch_factor", config.loader.prefetch_factor or PREFETCH_FACTOR)
    workers = changes.get("workers", config.loader.workers)
    return with_options(config, **{**changes, "prefetch_factor": ahead if workers else 0})


def moved(files: FileSet, data: Path) -> FileSet:
    """The same files below `data`: the data set itself, or a folder that holds it. Raises BadValue where it differs."""
    root = Path(files.root)
    places = [data.absolute().joinpath(*root.parts[len(root.parts) - depth :]) for depth in range(len(root.parts))]
    found = next((place for place in places if (place / files.paths[0]).is_file()), None)
    if found is None:
        raise BadValue(
            f"{data} is no copy of {root}: it has no {files.paths[0]}",
            hint="copy the data there; other data compare with: loaderprobe compare A B --differ data",
        )
    copy = replace(files, root=str(found))
    check_files([copy])
    return copy


def check_files(sets: Iterable[FileSet]) -> None:
    """Raises BadValue for a file that is not there, or has another size."""
    for files in sets:
        for name, size in zip(files.paths, files.size_bytes, strict=True):
            try:
                now = (files.folder / name).stat().st_size
            except OSError as error:
                raise BadValue(
                    f"{files.folder / name} cannot be read: {error.strerror}",
                    hint="put the data back, or measure a new run with sweep",
                ) from error
            if now != size:
                raise BadValue(
                    f"{files.folder / name} has {now} bytes, and had {size} when the run was measured",
                    hint="restore the data, or measure a new run with sweep",
                )


def _differ(name: str, pairs: Pairs) -> bool:
    return any(OPTIONS[name].of(one) != OPTIONS[name].of(other) for one, other in pairs)


def _against_request_written(changes: Mapping[str, Any]) -> str:
    return join_words([f"{name} {value}" for name, value in changes.items()]) or "these data"


def _check_distinct(run: Run, configs: Sequence[RunConfig], changes: Mapping[str, Any]) -> None:
    """Raises BadValue where B would have one configuration twice."""
    most, count = Counter(configs).most_common(1)[0]
    if count > 1:
        raise BadValue(
            f"with {_against_request_written(changes)}, {count} configurations of {run.path} are one: {most.title()}",
            hint="measure a run with one value of each option that is changed, and name that",
        )


def start_against(request: AgainstRequest) -> tuple[RunDirectory, RunDirectory]:
    """The directories of A and B, `a` and `b` in that of the request."""
    pair = secrets.token_hex(8)

    def side(name: Literal["A", "B"], place: int) -> RunDirectory:
        configs = tuple(each[place] for each in request.pairs)
        files = [each for each in request.files if each.fingerprint in {config.data for config in configs}]
        spec = SweepSpec(
            configs=configs, budget_s=request.budget_s, time_limit_s=request.time_limit_s, thorough=request.thorough,
            command=request.command,
            turns=Turns(pair=pair, side=name, changes=request.changes, against=str(request.against.path)),
        )  # fmt: skip
        record = RunRecord(
            created_utc=utc_timestamp(), spec=spec,
            environment=describe_environment([Path(each.root) for each in files]),
        )  # fmt: skip
        return RunDirectory.create(request.out / name.lower(), record, files)

    return side("A", 0), side("B", 1)


def sides_in(out: Path) -> tuple[RunDirectory, RunDirectory] | None:
    """Both runs of a directory that a sweep against a run wrote; None where it holds something else."""
    if not all((out / name / "run.json").is_file() for name in ("a", "b")):
        return None
    a, b = (RunDirectory.open(out / name) for name in ("a", "b"))
    one, other = a.record.spec.turns, b.record.spec.turns
    return (a, b) if one and other and one.pair == other.pair else None


Sides = tuple[RunDirectory, RunDirectory]


def sweep_against(
    run: Run | PathLike,
    data: PathLike | None = None,
    *,
    rounds: int = PAIRS,
    thorough: bool = False,
    budget_s: float | None = None,
    time_limit_s: float = 600.0,
    out: PathLike | None = None,
    progress: OnStage | None = None,
    **changes: Any,
) -> Comparison:
    """Measure each configuration of a run again, in turn as it was and with `changes`, and compare the two.

    `changes` are options of `sweep`, such as `decoder="torchvision"`; `data` is a copy of the run's data, for B. Both
    sides are measured now, with the software of now, round by round: A B, then B A. They are kept as runs in `out`,
    as `a` and `b`, beside the comparison. `progress(stage, done, total)` hears what is done.

    KeyboardInterrupt keeps what is done, for `loaderprobe sweep --resume`. Raises BadValue for values that cannot be,
    and where nothing could be measured on both sides; MissingPart for a device or plug-in that is not there.
    """
    command = f"loaderprobe.sweep_against({_written(run, data, changes)})"
    request = against_request(
        run, data, rounds=rounds, budget_s=budget_s, time_limit_s=time_limit_s, thorough=thorough, out=out,
        changes=changes, command=(command,),
    )  # fmt: skip
    sides = start_against(request)
    try:
        measure_sides(sides, heard_as(progress or unheard))
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"what was measured is kept; go on with: loaderprobe sweep --resume {request.out}")
        raise
    found = compared(sides, command)
    keep(sides, found)
    return found


def _written(run: Run | PathLike, data: PathLike | None, changes: Mapping[str, Any]) -> str:
    path = run.path if isinstance(run, Run) else run
    named = [f"{name}={value!r}" for name, value in changes.items()]
    return ", ".join([repr(str(path)), *([repr(str(data))] if data is not None else []), *named])


def plan_sides(sides: Sides) -> PlanInTurn:
    """What is still to be measured, and how long that takes."""
    return plan_in_turn(*sides)


def measure_sides(sides: Sides, on_progress: OnProgress) -> None:
    """Measure the pairs that are left. KeyboardInterrupt keeps what is done. Raises Locked."""
    ceilings = {side.path: Ceilings(run=side, judging=JUDGING) for side in sides}

    def on_kept(run: RunDirectory, order: Order, measured: Measurement) -> None:
        if order.earlier is None:
            ceilings[run.path].after(order, measured)

    a, b = sides
    with a.lock(), b.lock(), forkserver() as server:

        def run_one(order: Order, **options: Any) -> Measurement | RunFailure:
            return run_configuration(order, start=server.start, **options)

        measure_in_turn(a, b, clock=SystemClock(), on_progress=on_progress, run_one=run_one, on_kept=on_kept)


def compared(sides: Sides, command: str) -> Comparison:
    """A and B, as far as they are measured. Raises BadValue where a side has no measured configuration."""
    a, b = sides
    return compare(Run(a), Run(b), command=command)


def keep(sides: Sides, found: Comparison) -> Path:
    """Write the comparison, and the reports of both runs; returns the page of the comparison."""
    for side in sides:
        run = Run(side)
        save_report(side, run.report())
    return write_result(sides[0].path.parent, found.files())


def failures(sides: Sides) -> list[tuple[str, RunFailure]]:
    """(A or B, what failed there), of configurations that have no measurement."""
    named = zip(("A", "B"), sides, strict=True)
    results = ((name, side.result(config.key)) for name, side in named for config in side.record.spec.configs)
    return [(name, result) for name, result in results if isinstance(result, RunFailure)]

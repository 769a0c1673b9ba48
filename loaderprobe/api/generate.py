"""`generate`: ImageNet-like data sets, and whether one is still as it was written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from loaderprobe.api.shown import Shown
from loaderprobe.api.values import PathLike, listed, no_progress
from loaderprobe.datasets.generate.generate import generate as generate_set
from loaderprobe.datasets.generate.generate import set_asked_for, verify_set
from loaderprobe.datasets.generate.manifest import SPEC, SetSpec
from loaderprobe.datasets.generate.oddities import parse_oddities
from loaderprobe.datasets.layouts import FILES, check_layout
from loaderprobe.errors import BadValue
from loaderprobe.protocols import OnStage
from loaderprobe.records.options import GENERATE, RESOLUTIONS, check
from loaderprobe.render.document import Command, Document, Section
from loaderprobe.system.limits import cores_available
from loaderprobe.units import parse_bytes, parse_resolution


class DataSets(Shown, tuple[Path, ...]):
    """The directories of generated data sets, in the order of their resolutions: a tuple that shows itself."""

    __slots__ = ()

    def document(self) -> Document:
        paths = tuple(Command(text=str(path)) for path in self)
        return Document(title=", ".join(map(str, self)), sections=(Section(parts=paths),))

    def text(self, *, width: int = 80, color: bool = False) -> str:
        """One a line; a path is never broken."""
        return "".join(f"{path}\n" for path in self)


def generate(
    directory: PathLike,
    *,
    resolutions: str | Iterable[str] = RESOLUTIONS,
    count: int = 1000,
    mean_size: str | int | None = None,
    classes: int = 10,
    seed: int = 0,
    layout: str | Iterable[str] = (FILES,),
    shard_images: int | None = None,
    oddities: str | Iterable[str] = (),
    pool: int | None = None,
    progress: OnStage | None = None,
) -> DataSets:
    """Make ImageNet-like JPEG data sets of `count` images under `directory`, one for each of `resolutions`.

    A resolution is `WIDTHxHEIGHT` in pixels, or `imagenet` for its real mixture. `mean_size` is the mean size of a
    file, as `"110kB"` or in bytes; without it, as in ImageNet. Each `layout` is a set of its own, of the same images:
    `files`, `tar`, `parquet`, `lmdb`, `mds`; `oddities` are odd files among them, by name; `pool` is the number of base
    images that the files are varied from. An earlier set of the same settings is completed.
    `progress(stage, done, total)` hears what is being done.

    Raises BadValue for values that cannot be, MissingPart without the library of a layout, and Refused and its kin
    rather than mix sets.
    """
    check(GENERATE, locals())
    specs = [
        set_asked_for(
            resolution,
            classes=classes,
            seed=seed,
            mean_bytes=None if mean_size is None else parse_bytes(str(mean_size)),
            oddities=parse_oddities(oddities if isinstance(oddities, str) else ",".join(oddities)),
            layout=layout_name,
            shard_images=shard_images,
            base_images=pool,
        )
        for resolution in listed(resolutions, parse_resolution)
        for layout_name in listed(layout, check_layout)
    ]
    return DataSets(make_sets(Path(directory), specs, count=count, progress=progress or no_progress))


def make_sets(root: Path, specs: Sequence[SetSpec], *, count: int, progress: OnStage) -> tuple[Path, ...]:
    """Make, complete or enlarge the data sets under `root`. Raises Refused and its kin rather than mix sets."""
    processes = max(1, round(cores_available()))

    def make(spec: SetSpec) -> Path:
        label = spec.directory(root).name
        generating, painting = partial(progress, f"generating {label}"), partial(progress, f"painting {label}")
        return generate_set(root, spec, count=count, processes=processes, progress=generating, on_base_image=painting)

    return tuple(make(spec) for spec in specs)


def verify(root: Path, progress: OnStage) -> dict[Path, dict[str, str]]:
    """What is wrong with the files of each generated set in or directly under `root`. Raises BadValue for none."""
    sets = [path for path in (root, *sorted(root.glob("*"))) if os.path.isfile(path / SPEC)]  # noqa: PTH113  # a directory that may not be entered is none of ours, and no error
    if not sets:
        raise BadValue(f"{root} holds no generated data set", hint="give the directory that `generate` was given")
    return {path: verify_set(path, partial(progress, f"verifying {path.name}")) for path in sets}

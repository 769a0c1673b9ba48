"""A folder of images, or a generated data set, as a DataLoader that trains on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from loaderprobe.datasets.folder import generated_set, layout_in, scan_folder, scan_layout, scan_url
from loaderprobe.datasets.generate.manifest import sets_in
from loaderprobe.datasets.layouts import FILES, LAYOUTS
from loaderprobe.errors import BadValue
from loaderprobe.protocols import OnStage
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet, is_url
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.units import format_bytes, join_words

PREFETCH_FACTOR = 2


def image_files(data: Path, *, sample: int, progress: OnStage = lambda *_: None) -> FileSet:
    """At most `sample` images of a folder or of a generated set, in random order. Raises BadValue, MissingPart."""
    sets = sets_in(data)
    if len(sets) > 1:
        names = join_words([str(path) for path in sets], "or")
        raise BadValue(f"{data} holds {len(sets)} generated data sets", hint=f"give one of them: {names}")
    return image_sets(data, sample=sample, progress=progress)[0]


def image_sets(
    data: Path | str,
    *,
    sample: int,
    seed: int = 0,
    progress: OnStage = lambda *_: None,
    layouts: Sequence[str] | None = None,
) -> list[FileSet]:
    """The same; of a folder of generated sets, as `generate` makes it, each set by itself, the smallest files first.

    Only those in one of these `layouts`, unless they are None. `data` may be a URL. Raises BadValue, MissingPart.
    """
    if is_url(data):
        listing = partial(progress, "listing the images")
        return [scan_url(str(data), sample=sample, seed=seed, progress=listing)]
    data = Path(data)
    sets = [generated_set(path, sample=sample, seed=seed) for path in sets_in(data)]
    if not sets:
        layout = layout_in(data)
        checking = partial(progress, "checking the images")
        if layout == FILES:
            sets = [scan_folder(data, sample=sample, seed=seed, progress=checking)]
        else:
            sets = [scan_layout(data, layout, sample=sample, seed=seed, progress=checking)]
    there = sorted({files.layout for files in sets})
    if missing := [name for name in layouts or () if name not in there]:
        hint = f"leave {missing[0]} out of --layout{', or add --convert-to DIR' if FILES in there else ''}"
        raise BadValue(f"{data} holds {join_words(there)}, not {missing[0]}", hint=hint)
    return sorted(
        (files for files in sets if layouts is None or files.layout in layouts), key=lambda files: files.mean_size_bytes
    )


def converted(sets: Sequence[FileSet], layouts: Sequence[str], root: Path, progress: OnStage) -> list[FileSet]:
    """The sets of these layouts: those there are, else files written again under `root`. Raises what `convert` raises,
    and BadValue where there are no files of the images."""
    from loaderprobe.datasets.convert import convert

    chosen = [files for files in sets if files.layout in layouts]
    for files in sets:
        there = {other.layout for other in sets if other.label.removesuffix(f" {other.layout}") == files.label}
        for layout in layouts if files.layout == FILES else ():
            if layout not in there:
                size = format_bytes(sum(files.size_bytes))
                stage = f"writing {files.label} as {LAYOUTS[layout].noun}, {size}"
                chosen.append(convert(files, layout, root, partial(progress, stage)))
    if missing := next((name for name in layouts if name not in {files.layout for files in chosen}), None):
        raise BadValue(f"there are no image files to write as {missing}", hint="give a folder of images as DATA")
    return chosen


def with_copies(sets: Sequence[FileSet], root: Path, progress: OnStage) -> list[FileSet]:
    """Each set, and after it a copy under `root`. Raises what `stage` raises."""
    from loaderprobe.datasets.convert import stage

    all_sets: list[FileSet] = []
    for files in sets:
        said = f"copying {files.label} to {root}, {format_bytes(sum(files.file_bytes.values()))}"
        all_sets += [files, stage(files, root, LinuxPageCache(), partial(progress, said))]
    return all_sets


def loader_of_images(files: FileSet, *, batch_size: int, workers: int, device: str) -> Any:
    """A `torch.utils.data.DataLoader`: (images N x 3 x 224 x 224, labels) round and round, without end."""
    from loaderprobe.loaders.torch import image_loader

    config = RunConfig(
        data=files.fingerprint,
        resolution=files.label,
        loader=LoaderSpec(workers=workers, prefetch_factor=PREFETCH_FACTOR if workers else 0),
        compute=ComputeSpec(name=device, batch_size=batch_size),
    )
    return image_loader(config, files)

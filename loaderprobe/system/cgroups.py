"""The control groups that this process is in, version 1 and 2, from its own group up to the topmost one visible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from loaderprobe.system.mounts import PROC, Mount, mounts


def _memberships(controller: str, proc: Path) -> Iterator[tuple[str, str]]:
    """(`cgroup2` or `cgroup`, path of the group) for the hierarchies that may limit `controller`."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return  # no control groups here, so none that limits
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield "cgroup2", path
        elif controller in controllers.split(","):
            yield "cgroup", path


def _directory(mount: Mount, group: str) -> Path:
    """Where `group` is under `mount`: a container often sees only its own group, mounted as if it were the root."""
    path = PurePosixPath(group)
    inside = path.relative_to(mount.root) if path.is_relative_to(mount.root) else PurePosixPath(".")
    directory = Path(mount.point) / str(inside).lstrip("/")
    return directory if directory.is_dir() else Path(mount.point)


def group_directories(controller: str, proc: Path = PROC) -> tuple[Path, ...]:
    """The directories whose files may limit `controller`, each group followed by the groups that contain it."""
    found: list[Path] = []
    all_mounts = mounts(proc)
    for filesystem, group in _memberships(controller, proc):
        for mount in all_mounts:
            if mount.filesystem != filesystem or (filesystem == "cgroup" and controller not in mount.options):
                continue
            directory, top = _directory(mount, group), Path(mount.point)
            found.append(directory)
            if directory != top:
                found += [above for above in directory.parents if above == top or top in above.parents]
    return tuple(dict.fromkeys(found))


def read_words(path: Path) -> tuple[str, ...]:
    """The words of a small file; empty when it is not there or may not be read."""
    try:
        return tuple(path.read_text().split())
    except OSError:
        return ()  # a group without this file does not limit

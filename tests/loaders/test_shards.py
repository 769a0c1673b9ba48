"""What holds for loaders that deal out whole shards, where their libraries are not installed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from loaderprobe.errors import BadValue
from loaderprobe.loaders.libraries import Stream, linked
from loaderprobe.records.files import FileSet, SkippedFile
from loaderprobe.system.scratch import MARK
from loaderprobe.testing import example_config


def shards(root: Path, *names: str) -> FileSet:
    """One image a shard of 5 bytes, and the index of those directly in `root`."""
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"image")
    own = [{"raw_data": {"basename": path.name, "bytes": 5}} for path in sorted(root.glob("*.mds"))]
    (root / "index.json").write_text(json.dumps({"shards": own}))
    count = len(names)
    return FileSet(
        label="own mds", root=str(root), generated=False, paths=names, classes=(0,) * count, size_bytes=(5,) * count,
        images_found=count, layout="mds", places=((0, 0),) * count, whole_bytes=dict.fromkeys(names, 5),
    )  # fmt: skip


def name_and_size(entry: Any) -> tuple[str, int]:
    return entry["raw_data"]["basename"], entry["raw_data"]["bytes"]


def test_shards_in_several_directories_are_refused(tmp_path: Path) -> None:
    """With what to do: those libraries know one directory with one index."""
    files = shards(tmp_path, "a.mds", "more/b.mds")
    with pytest.raises(BadValue, match="reads shards of one directory") as error:
        linked(example_config(), files, tmp_path, "shards", name_and_size)
    assert "put them in one" in error.value.hint and "--loader torch" in error.value.hint


@pytest.mark.parametrize("skipped", [0, 1])
def test_an_image_that_torch_leaves_out_is_named(tmp_path: Path, skipped: int) -> None:
    """A library reads whole shards, so also what was seen to be damaged: torch does not, and so would name nothing."""
    files = shards(tmp_path, "a.mds")
    files = replace(files, skipped=(SkippedFile(path="a.mds, sample 7", reason="damaged"),) * skipped)
    config = example_config(workers=1)
    with pytest.raises(BadValue, match="cannot be decoded by pillow") as error:
        next(iter(Stream(config, files, lambda: iter([(b"no image", 0)]))))
    assert ("(a.mds, sample 7); write" in error.value.hint) == bool(skipped)
    assert ("names its file" in error.value.hint) != bool(skipped)


def test_links_to_shards_are_removed_after_a_killed_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie in a scratch directory, which the next process removes."""
    streaming, base, shared = (ModuleType(name) for name in ("streaming", "base", "shared"))
    marked: list[bool] = []

    def opened(local: str, **_: object) -> None:
        marked.append((Path(local).parent / MARK).exists())
        raise InterruptedError

    vars(streaming)["StreamingDataset"], vars(shared)["SharedMemory"] = opened, object
    for name, module in (("streaming", streaming), ("streaming.base", base), ("streaming.base.shared", shared)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "loaderprobe.loaders.libraries.mds", base)
    del sys.modules["loaderprobe.loaders.libraries.mds"]
    mds = import_module("loaderprobe.loaders.libraries.mds")
    with pytest.raises(InterruptedError):
        next(mds.MdsLoader.make(example_config(workers=1, batch_size=1), shards(tmp_path, "a.mds")))
    assert marked == [True]

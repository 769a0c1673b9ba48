"""Stored results that were changed by hand, by a broken disk or by someone who means harm."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.api.load import load_any
from loaderprobe.errors import LoaderprobeError

RUNS = sorted(path for path in Path("fixtures/runs").iterdir() if path.is_dir())
STRANGE: tuple[Any, ...] = (
    None, -1, 0, 1e308, 1e-308, float("inf"), float("nan"), "", "\x1b[31m", "<script>", "=cmd()", [], {}, True, 2**63,
)  # fmt: skip


def places(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        yield (*above, name)
        yield from places(value, (*above, name))


def change(tree: Any, random: Random) -> None:
    """One value is another, or gone."""
    *above, last = random.choice(list(places(tree)))
    for name in above:
        tree = tree[name]
    old = tree[last]
    if random.random() < 0.2:
        del tree[last]
    elif isinstance(old, int | float) and random.random() < 0.7:
        tree[last] = random.choice((-old, 0, 1e6 * old, 1e-6 * old, 1e300))
    elif isinstance(old, list) and random.random() < 0.5:
        tree[last] = random.choice((old[:-1], old[::-1], 2 * old))
    else:
        tree[last] = random.choice(STRANGE)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(RUNS), st.integers(0, 2**32))
def test_a_changed_result_is_shown_or_refused(run: Path, seed: int) -> None:
    """In every format, or with an error that says what is wrong; nothing in it reaches a terminal or a page raw."""
    random = Random(seed)
    with TemporaryDirectory() as folder:
        copy = shutil.copytree(run, Path(folder, run.name))
        file = random.choice(sorted(path for path in copy.rglob("*.json") if path.name != "summary.json"))
        try:
            tree = json.loads(file.read_text())
        except ValueError:
            return  # it is damaged already
        for _ in range(random.choice((1, 1, 3))):
            change(tree, random)
        file.write_text(json.dumps(tree))
        try:
            found = load_any(copy)
        except LoaderprobeError as error:
            assert error.message and error.hint
            return
        assert "\x1b" not in found.text() + found.markdown()
        assert "<script>" not in found.html()
        assert found.json() and found.csv()

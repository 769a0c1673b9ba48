"""What belongs to one node, and not to all ranks: cores, and the ceiling of its storage."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from loaderprobe.api.ceilings import Ceilings
from loaderprobe.api.rank_child import cores_of
from loaderprobe.system.cpu import cores_available
from loaderprobe.testing import FakeCrew, example_config


@pytest.mark.parametrize(("node_of", "sharing"), [(lambda _: 0, 4), (lambda rank: rank // 2, 2)])
def test_ranks_of_one_node_share_its_cores(node_of: Callable[[int], int], sharing: int) -> None:
    """Evenly; containers on two nodes may have the same host name."""
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda crew: cores_of(crew, node_of(crew.rank)), FakeCrew.of(4)))
    assert found == [cores_available() / sharing] * 4


def test_one_node_measures_no_ceiling_of_several() -> None:
    """What it gets alone is less than all get together."""
    run: Any = None
    order: Any = SimpleNamespace(config=replace(example_config(), ranks=4, nodes=2))
    Ceilings(run=run).after(order, order)

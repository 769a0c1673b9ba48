"""The process group that code of the user's finds joined."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist

from loaderprobe.loaders import ranks
from loaderprobe.records.ranks import Place

PLACE = Place(
    rank=3, size=4, node=1, local_rank=1, local_size=2, address="head", port=4000, prefix="loaderprobe/0/turn/1/ranks"
)


@pytest.mark.parametrize(("set_", "count"), [({}, "0"), ({"TORCHELASTIC_RESTART_COUNT": "2"}, "2")])
def test_code_may_read_the_variables_of_torchrun(
    set_: dict[str, str], count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of the rank, and all of its numbers are numbers."""
    joined: list[dict[str, Any]] = []
    for module in (dist, dist.distributed_c10d):
        monkeypatch.setattr(module, "init_process_group", lambda *_, **given: joined.append(given))
    monkeypatch.setattr(ranks, "store_at", lambda place, name: (place, name))
    variables = {**set_, "RANK": "0", "LOCAL_RANK": "0"}
    ranks.join_group(PLACE, variables)
    assert variables["TORCHELASTIC_RESTART_COUNT"] == count
    numbers = {name: int(value) for name, value in variables.items() if name.endswith(("RANK", "SIZE", "COUNT"))}
    assert (numbers["RANK"], numbers["LOCAL_RANK"], numbers["GROUP_RANK"], numbers["GROUP_WORLD_SIZE"]) == (3, 1, 1, 2)
    assert joined == [{"store": (PLACE, "own"), "rank": 3, "world_size": 4}]

"""Whether two results may be compared: the fields in which they differ, beyond those that were meant to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from loaderprobe.errors import BadValue, NotComparable
from loaderprobe.records.compare import Difference, Group
from loaderprobe.records.config import OPTIONS
from loaderprobe.records.environment import Environment, StorageLocation
from loaderprobe.units import join_words

GROUPS: dict[str, Group] = {
    "cpu_model": "machine", "cores_available": "machine", "memory_bytes": "machine", "gpus": "machine",
    "loaderprobe": "software", "python": "software", "torch": "software", "torchvision": "software",
    "kernel": "software", "driver": "software",
    "storage": "storage", "data": "data", "files_were": "state",
    "judged": "options", "counted": "options",
    "device": "options", "engine": "options", "drop_caches": "options", "scratch": "options",
}  # fmt: skip
"""The group of each field; options of a configuration are `options`."""
ALL = "all"
_ALIKE = 0.02
"""Memory of the same machine differs by what its kernel keeps."""

Facts = Mapping[str, str | float | None]
"""What a result was made with, by field; None where that is not known."""


def environment_facts(environment: Environment) -> dict[str, str | float | None]:
    """Of a result that has an environment."""
    gpus = environment.gpus
    return {
        "cpu_model": environment.cpu_model,
        "cores_available": environment.cores_available,
        "memory_bytes": float(environment.memory_bytes),
        "gpus": ", ".join(gpu.name for gpu in gpus) or "none",
        "loaderprobe": environment.loaderprobe,
        "python": environment.python,
        "torch": environment.torch,
        "torchvision": environment.torchvision,
        "kernel": environment.kernel,
        "driver": ", ".join(dict.fromkeys(gpu.driver or "" for gpu in gpus)) or None,
        "storage": storage_fact(environment.storage),
    }


def storage_fact(places: Iterable[StorageLocation]) -> str | None:
    """`ext4 on vda`, `nfs4 of server:/export`; None without any."""
    found = (
        f"{each.filesystem} on {', '.join(each.devices)}" if each.devices else f"{each.filesystem} of {each.source}"
        for each in places
    )  # fmt: skip
    return join_words(sorted(set(found))) or None


def differences(before: Facts, after: Facts) -> list[Difference]:
    """The fields that both know and that differ, in the order of `before`."""
    return [
        Difference(field=field, group=GROUPS.get(field, "options"), before=_shown(mine), after=_shown(other))
        for field, mine in before.items()
        if (other := after.get(field)) is not None and mine is not None and not _alike(field, mine, other)
    ]


def _alike(field: str, mine: str | float, other: str | float) -> bool:
    if field == "memory_bytes" and isinstance(mine, float) and isinstance(other, float):
        return abs(mine - other) <= _ALIKE * max(mine, other)
    return mine == other


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}" if value < 1e6 else f"{value:.0f}"


def check_names(names: Iterable[str]) -> frozenset[str]:
    """Names of groups, fields and options. Raises BadValue for what is none of them."""
    known = {*get_args(Group), *GROUPS, *OPTIONS, ALL}
    wanted = frozenset(names)
    if unknown := sorted(wanted - known):
        groups = join_words([*get_args(Group), ALL], "or")
        raise BadValue(f"--differ {unknown[0]} names nothing that is compared", hint=f"use {groups}, or a field's name")
    return wanted


def allowed(difference: Difference, names: frozenset[str]) -> bool:
    """True where it was said that this field, or its group, may differ."""
    return bool({difference.field, difference.group, ALL} & names)


def refuse_others(found: Sequence[Difference], names: frozenset[str]) -> None:
    """Raises NotComparable for fields that were not meant to differ, naming them and the option that allows them."""
    others = [each for each in found if not allowed(each, names)]
    if not others:
        return
    said = ", ".join(
        f"{each.field} ({each.between[0]}: {each.before}; {each.between[1]}: {each.after})" for each in others
    )
    verb = "differ" if len(others) > 1 else "differs"
    options = ",".join(dict.fromkeys((*sorted(names), *(each.group for each in others))))
    raise NotComparable(
        f"A and B are not comparable: {said} {verb}",
        fields=tuple(each.field for each in others),
        hint=f"if that is what you changed, say so: --differ {options}",
    )

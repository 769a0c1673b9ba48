"""Errors, units, plug-ins, statistics, and the values that sweeps are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe import errors, plugins, stats, units
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.records.config import ComputeSpec, with_options
from loaderprobe.records.files import FileSet, content_hash
from loaderprobe.testing import example_config, example_files
from tests.other_options import PATHS, with_another


def test_every_error_has_the_exit_code_of_the_contract() -> None:
    """Bugs 1, bad values 2, missing parts 3, refusals 5; and the tree in the docstring is complete."""
    codes = {
        "LoaderprobeError": 1, "DeadWorker": 1, "LostRank": 1, "BadValue": 2, "MissingPart": 3, "Refused": 5,
        "ForeignDirectory": 5, "NoSpace": 5, "Locked": 5, "DamagedRun": 2,
        "NotComparable": 2,
    }  # fmt: skip
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    found = {name: kind.exit_code for name, kind in kinds.items() if issubclass(kind, LoaderprobeError)}
    assert found == codes
    assert all(name in (errors.__doc__ or "") for name in codes)
    assert issubclass(errors.NoSpace, LoaderprobeError)


@given(st.floats(1e-3, 1e9))
def test_three_significant_figures_are_within_half_a_percent(value: float) -> None:
    """Rounding for people never misleads, and never uses an exponent."""
    text = units.significant(value)
    assert float(text) == pytest.approx(value, rel=0.00501)
    assert "e" not in text or value < 1e-4


@pytest.mark.parametrize(
    ("text", "count"),
    [("110kB", 110_000), ("1.5 GiB", 3 * 2**29), ("64MB", 64 * 10**6), ("4096", 4096), ("1 mib", 2**20)],
)
def test_sizes_are_read_with_their_unit(text: str, count: int) -> None:
    """MB is 10^6 and MiB is 2^20."""
    assert units.parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "MB", "3 apples", "-1MB"])
def test_other_sizes_are_refused(text: str) -> None:
    """With the forms that are understood."""
    with pytest.raises(BadValue) as caught:
        units.parse_bytes(text)
    assert "64MB" in caught.value.hint


def test_quantities_are_written_as_people_write_them() -> None:
    """Bytes, rates, durations, lists."""
    assert [units.format_bytes(n) for n in (12, 114_660, 1_150_000, 3.2e9)] == ["12 B", "115 kB", "1.15 MB", "3.20 GB"]
    assert units.format_rate(20_100_000) == "20.1 MB/s"
    assert [units.format_duration(s) for s in (0.00034, 0.0012, 4.5, 200, 7500)] == [
        "340 us", "1.20 ms", "4.5 s", "3 min 20 s", "2 h 5 min",
    ]  # fmt: skip
    assert units.join_words(["a", "b", "c"], "or") == "a, b or c"
    assert units.parse_list("1, 2,2", units.parse_count) == (1, 2)
    assert units.parse_resolution(units.format_resolution((500, 375))) == (500, 375)


@pytest.mark.parametrize("text", ["500", "500x", "8x8", "99999x5", "axb"])
def test_other_resolutions_are_refused(text: str) -> None:
    """Width and height, both within reason."""
    with pytest.raises(BadValue, match="not a resolution"):
        units.parse_resolution(text)


def test_names_become_classes() -> None:
    """Built in, or by module; an argument follows the colon."""
    from loaderprobe.compute.emulated import EmulatedCompute

    assert plugins.resolve("compute", "emulated") is EmulatedCompute
    assert plugins.resolve("loader", "tests.planted.loaders:Hanging").__name__ == "Hanging"
    named = [ComputeSpec(name=name, batch_size=1) for name in ("emulated:1786.5", "package.module:Class", "cpu")]
    assert [(spec.kind, spec.argument) for spec in named] == [
        ("emulated", "1786.5"),
        ("package.module:Class", ""),
        ("cpu", ""),
    ]


def test_what_is_built_in_is_imported_only_to_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch is not installed; a plug-in is always imported."""

    def imported(name: str) -> None:
        raise ModuleNotFoundError(f"No module named 'torchvision', which {name} imports")

    monkeypatch.setattr(plugins, "import_module", imported)
    plugins.check_installed("loader", "torch")
    with pytest.raises(BadValue, match="no loader named 'dali'"):
        plugins.check_installed("loader", "dali")
    with pytest.raises(MissingPart, match=r"which tests\.planted\.loaders imports"):
        plugins.check_installed("loader", "tests.planted.loaders:Plain")
    monkeypatch.setattr(plugins, "find_spec", {"torch": "there"}.get)
    with pytest.raises(MissingPart, match="No module named 'torchvision'"):
        plugins.check_installed("loader", "torch")


def test_unknown_and_missing_parts_differ() -> None:
    """The name is unknown: a bad value. It cannot be imported: a missing part."""
    with pytest.raises(BadValue, match="no loader named 'dali'"):
        plugins.resolve("loader", "dali")
    with pytest.raises(MissingPart):
        plugins.resolve("loader", "no.such.module:Class")
    with pytest.raises(MissingPart):
        plugins.resolve("loader", "collections:NoSuchClass")
    with pytest.raises(BadValue, match="is not a class"):
        plugins.resolve("loader", "os.path:sep")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0, 1))
def test_quantiles_lie_between_the_extremes(values: list[float], share: float) -> None:
    """And rise with the share."""
    assert min(values) <= stats.quantile(values, share) <= max(values)
    assert stats.quantile(values, 0) == min(values)
    assert stats.quantile(values, 1) == max(values)


def test_intervals_come_from_the_spread_between_rounds() -> None:
    """Three rounds of 9, 10 and 11 have a standard error of 0.577 and a half width of 2.48."""
    assert stats.standard_error([9, 10, 11]) == pytest.approx(0.57735)
    assert stats.half_width([9, 10, 11]) == pytest.approx(4.303 * 0.57735, rel=1e-3)
    assert stats.half_width([5]) == 0
    with pytest.raises(ValueError, match="nothing"):
        stats.mean([])


def test_a_key_changes_with_every_option_and_with_nothing_else() -> None:
    """Resuming by content rests on it."""
    keys = {with_another(example_config(), path, kind).key for path, kind in PATHS}
    assert len(keys) == len(PATHS)
    assert example_config().key not in keys
    assert example_config(rounds=3, cache="cold").key == example_config().key


def test_a_key_depends_on_what_is_not_as_usual_only() -> None:
    """An option that is new tomorrow does not change what was measured today."""
    usual = {"data": "0" * 16, "resolution": "500x375", "loader": {"workers": 2, "prefetch_factor": 2},
             "compute": {"name": "emulated:1000", "batch_size": 16}}  # fmt: skip
    assert example_config().key == content_hash(usual)
    changed = usual | {"compute": {"name": "emulated:1000", "batch_size": 16, "compile": True}}
    assert example_config(compile=True).key == content_hash(changed)


def test_an_option_that_does_not_exist_is_refused() -> None:
    """By its name."""
    with pytest.raises(BadValue, match="no option 'colour'"):
        with_options(example_config(), colour="red")


@pytest.mark.parametrize(
    "changes", [{"workers": -1}, {"batch_size": 0}, {"rounds": 0}, {"prefetch_factor": 0}]
)  # fmt: skip
def test_impossible_configurations_cannot_be_made(changes: dict[str, int]) -> None:
    """A config is checked when it is made."""
    with pytest.raises(BadValue):
        example_config(**changes)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(0, 40), st.integers(0, 40))
def test_delivered_bytes_are_the_sizes_of_the_files_in_turn(sizes: list[int], first: int, count: int) -> None:
    """Going round the set as often as it takes."""
    files = replace(
        example_files(len(sizes)), size_bytes=tuple(sizes)
    )  # fmt: skip
    expected = sum(sizes[k % len(sizes)] for k in range(first, first + count))
    assert files.delivered_bytes(first, count) == expected


def test_a_file_set_is_read_round_and_round() -> None:
    """Image k is file k modulo the number of files."""
    files = example_files(3)
    assert files.absolute(2, 3) == [Path("/nowhere/2.JPEG"), Path("/nowhere/0.JPEG"), Path("/nowhere/1.JPEG")]
    with pytest.raises(BadValue):
        FileSet(label="x", root="/", generated=True, paths=("a",), classes=(), size_bytes=(), images_found=1)

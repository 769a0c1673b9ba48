"""`loaderprobe generate` as a person meets it."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from tests.cli.invoke import invoke

SMALL = ("--resolutions", "64x48", "--count", 70, "--pool", 4)


def test_sets_are_made_and_named(tmp_path: Path) -> None:
    """One directory for each resolution, and ImageNet's mixture beside them; progress is not on standard output."""
    done = invoke("generate", tmp_path, "--resolutions", "64x48,imagenet", "--count", 8, "--pool", 2)
    assert done.exit_code == 0
    assert done.stdout.split() == [str(tmp_path / "64x48"), str(tmp_path / "imagenet")]
    assert len(list(tmp_path.rglob("*.JPEG"))) == 16


def test_the_mean_size_is_that_which_is_asked(tmp_path: Path) -> None:
    """Within 1 % over 200 files; one that cannot be had is a bad value that says what can."""
    done = invoke("generate", tmp_path, *SMALL, "--count", 200, "--mean-size", "3kB")
    assert done.exit_code == 0
    sizes = [path.stat().st_size for path in tmp_path.rglob("*.JPEG")]
    assert abs(sum(sizes) / len(sizes) / 3000 - 1) < 0.01
    done = invoke("generate", tmp_path / "other", *SMALL, "--mean-size", "1MB")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "they have" in done.stderr


def test_verify_says_what_is_damaged(tmp_path: Path) -> None:
    """A whole set ends with 0; a damaged one names the file, ends with 4 and can be repaired; no set is a bad path."""
    invoke("generate", tmp_path, *SMALL)
    done = invoke("generate", tmp_path, "--verify")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / '64x48'}: every file is whole\n")
    victim = next(tmp_path.rglob("*.JPEG"))
    victim.write_bytes(b"")
    done = invoke("generate", tmp_path, "--verify")
    assert done.exit_code == 4
    assert victim.name in done.stdout
    assert "repair" in done.stderr
    assert invoke("generate", tmp_path, *SMALL).exit_code == 0
    assert invoke("generate", tmp_path, "--verify").exit_code == 0
    assert invoke("generate", tmp_path / "64x48" / "train", "--verify").exit_code == 2


def test_odd_files_are_made_by_name(tmp_path: Path) -> None:
    """All kinds at once, each named .JPEG; an unknown kind is a bad value."""
    done = invoke("generate", tmp_path, *SMALL, "--oddities", "all")
    assert done.exit_code == 0
    modes = set()
    for path in tmp_path.rglob("*.JPEG"):
        with Image.open(path) as image:
            modes.add((image.format, image.mode))
    assert modes == {("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGB")}
    assert invoke("generate", tmp_path, *SMALL, "--oddities", "webp").exit_code == 2


def test_a_sweep_does_not_take_shards(tmp_path: Path) -> None:
    """Its loaders read folders, and it says so before anything is measured."""
    invoke("generate", tmp_path, *SMALL, "--layout", "shards")
    done = invoke("sweep", tmp_path / "64x48", "--out", tmp_path / "run", "--compute", "emulated:100")
    assert done.exit_code == 2
    assert "tar shards" in done.stderr

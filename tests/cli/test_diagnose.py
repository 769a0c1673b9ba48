"""`loaderprobe diagnose`: what is wrong with a name or a number of ranks is said before anything starts."""

from __future__ import annotations

import pytest

from tests.cli.invoke import invoke


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["make_loader"], "names no function"),
        (["nowhere.py:make_loader"], "there is no file"),
        (["a.module:make", "--ranks", "1,2"], "names several numbers"),
        (["a.module:make", "--ranks", "2x2"], "on this one only"),
        (["a.module:make", "--join", "slurm"], "srun did not start"),
        (["no_such_module_at_all:make"], "cannot be loaded"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the next step."""
    for name in ("RANK", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    found = invoke("diagnose", *arguments)
    assert found.exit_code == (3 if "no_such" in arguments[0] else 2), found.output
    assert said in found.stderr and "try:" in found.stderr

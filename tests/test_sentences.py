"""Records, judgements and what measures hold codes and facts: the words that people read are made in render/."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from loaderprobe import errors

ROOT = Path(__file__).parent.parent / "loaderprobe"
COVERED = ("records", "analyze", "samplers", "measure", "api")
LEAST_WORDS = 4

# (file, begin of the string): why it stays.
KEPT = {
    ("analyze/outlook.py", "MLPerf Storage v1.0"): "where a rate was published",
    ("analyze/compare/sweeps.py", "configurations of one run"): "the message of an error",
    ("analyze/report.py", "a figure is infinite"): "the message of an error, of a file that cannot be judged",
    ("analyze/forecast/advice.py", "n = torch.get_num_threads()"): "what to type",
    ("analyze/plan/demand.py", ""): "formulas, and where quantities come from",
    ("analyze/plan/plan.py", ""): "formulas, and where quantities come from",
    ("analyze/plan/supply.py", ""): "formulas, and where quantities come from",
    ("analyze/plan/storage.py", ""): "where quantities come from",
    ("analyze/plan/rank_ladder.py", ""): "where quantities come from",
    ("analyze/plan/workload.py", ""): "where quantities come from",
    ("analyze/plan/from_sweep.py", ""): "where quantities come from",
    ("analyze/plan/from_run.py", ""): "where quantities come from, and the message of an error",
    ("analyze/plan/from_trace.py", ""): "where quantities come from",
    ("analyze/plan/from_bandwidth.py", ""): "where quantities come from",
    ("api/against.py", "what was measured is kept"): "added to an interrupt, as errors have a hint",
    ("api/batch_size.py", ""): "an error and its hint",
    ("api/compare_source.py", ""): "of errors",
    ("api/devices.py", "write cpu, 2xcpu"): "the hint of errors",
    ("api/own_child.py", "joining the process group"): "a stage of the progress bar",
    ("api/own_loader.py", ""): "hints of errors, and messages of libraries, by which an error is known",
    ("api/plan_source.py", "as in ImageNet"): "where a quantity comes from",
    ("api/rank_child.py", "waiting for the other ranks"): "a stage of the progress bar",
    ("api/rank_diagnosis.py", "look for a hang"): "the hint of an error",
    ("api/seats.py", "torchrun on the node"): "of an error",
    ("api/stored.py", "holds two runs"): "of an error",
    ("api/study_child.py", "making the files cold"): "a stage of the progress bar",
    ("api/sweep.py", "what was measured is kept"): "added to an interrupt, as errors have a hint",
    ("api/trace.py", ""): "an error and its hint",
    ("api/tune_workers.py", ""): "messages of libraries, by which an error is known",
    ("api/user_loader.py", ""): "an error, and stages of the progress bar",
    ("measure/forkserver.py", "the forkserver"): "the message of an error",
    ("measure/in_step.py", "rank {} was busy"): "why steps do not count",
    ("measure/lead.py", ""): "stages and the messages of errors",
    ("measure/observed.py", "the script's own steps"): "where a rate comes from",
    ("measure/runner.py", ""): "the message of a failure, and its hint",
    ("measure/seat.py", ""): "the messages of errors",
    ("measure/seat_trouble.py", ""): "messages of failures, their hints, and the messages of libraries that name ranks",
    ("measure/seating.py", "--ranks takes numbers"): "the hint of errors",
    ("measure/session.py", "warming up the device"): "a stage of the progress bar",
    ("measure/sweep.py", "measure its data again"): "the hint of a failure",
    ("measure/trouble.py", ""): "messages of failures, their hints, and the messages of libraries that name them",
    ("samplers/cores.py", ""): "where readings come from",
    ("samplers/gpm.py", ""): "where readings come from",
    ("samplers/nvml.py", ""): "where readings come from",
}


def _plain(node: ast.AST) -> str:
    """A string, with {} for what is put into it; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_plain(each) or "{}" for each in node.values)
    return ""


def _is_error(made: ast.expr) -> bool:
    return isinstance(made, ast.Name) and isinstance(getattr(errors, made.id, None), type)


def sentences(path: Path) -> Iterator[str]:
    """The strings of several words that are neither docstrings nor those of errors."""
    tree = ast.parse(path.read_text())
    passed: set[ast.AST] = {each.value for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Raise) or (isinstance(each, ast.Call) and _is_error(each.func)):
            passed |= set(ast.walk(each))
        elif isinstance(each, ast.JoinedStr):
            passed |= set(each.values)
    for node in ast.walk(tree):
        text = _plain(node)
        if node not in passed and sum(each[:1].isalpha() for each in text.split()) >= LEAST_WORDS:
            yield text


def test_records_and_judgements_hold_no_sentence() -> None:
    """Each exception has its reason, and one that is no longer needed goes from the list."""
    found = {
        (str(path.relative_to(ROOT)), text)
        for package in COVERED
        for path in (ROOT / package).rglob("*.py")
        for text in sentences(path)
    }
    kept = {(file, text) for file, text in found for place, begin in KEPT if file == place and text.startswith(begin)}
    assert found - kept == set()
    assert {place for place in KEPT if not any(f == place[0] and t.startswith(place[1]) for f, t in kept)} == set()


def test_what_is_raised_or_explained_is_no_sentence(tmp_path: Path) -> None:
    """The walk passes over docstrings and errors, and finds what a record would keep, with what is put into it."""
    module = tmp_path / "module.py"
    module.write_text(
        '"""A docstring of many words."""\n'
        "def why(count):\n"
        "    if not count:\n"
        "        raise ValueError('no step of it was measured')\n"
        "    if count < 0:\n"
        "        return BadValue('there are fewer than none of them')\n"
        "    return f'only {count} of them were measured'\n"
    )
    assert list(sentences(module)) == ["only {} of them were measured"]

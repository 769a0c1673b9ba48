"""The catalogue of remarks: every code that the package says has words, and every fact in them is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import loaderprobe
from loaderprobe.records.remark import Remark, each_once, reported
from loaderprobe.render.remarks import PHRASES, WORDS, remark_words

ROOT = Path(loaderprobe.__file__).parent
CATALOGUE = ROOT / "render" / "remarks.py"
# Facts that no text quotes: what a remark follows from, and figures for whoever reads the JSON.
BESIDE = {"because", "mount", "needed", "rank", "host", "hint", "ended_after_s"}


def _made() -> Iterator[tuple[str, int, str, set[str] | None]]:
    """File, line, code and facts of every remark that is made with a code in place; no facts where some are joined."""
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "Remark"):
                continue
            given = {each.arg: each.value for each in node.keywords}
            code, facts = given.get("code"), given.get("facts")
            if isinstance(code, ast.Constant):
                names: set[str] | None = set()
                if isinstance(facts, ast.Dict) and all(isinstance(each, ast.Constant) for each in facts.keys):
                    names = {str(each.value) for each in facts.keys if isinstance(each, ast.Constant)}
                elif facts is not None:
                    names = None
                yield file.relative_to(ROOT).as_posix(), node.lineno, str(code.value), names


def _quoted(code: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(WORDS[code]) if field}


def test_every_code_has_words_and_every_fact_is_quoted() -> None:
    """A code without words, or a fact that is missing, would fail only in a user's report."""
    wrong = []
    for file, line, code, facts in _made():
        if code not in WORDS:
            wrong.append(f"{file}:{line}: {code} has no words")
        elif facts is not None and code not in PHRASES:
            if missing := _quoted(code) - facts:
                wrong.append(f"{file}:{line}: {code} lacks {missing}")
            if unused := facts - _quoted(code) - BESIDE:
                wrong.append(f"{file}:{line}: {code} never says {unused}")
    assert not wrong, "\n".join(wrong)


def test_no_words_are_left_over() -> None:
    """Words of a code that the package never says are a promise that no run keeps."""
    said = {
        str(node.value)
        for file in ROOT.rglob("*.py")
        if file != CATALOGUE
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not WORDS.keys() - said


def test_words_are_clauses() -> None:
    """They stand in a line with others: no full stop at the end."""
    assert not [code for code, text in WORDS.items() if not text or text.endswith(".")]


def _said(code: str, **facts: float | str) -> str:
    return remark_words(Remark(code=code, facts=facts))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (_said("workers_without_data", idle=1.0, workers=3.0, busy=2.0),
         "1 of 3 workers gets no data: measured with 2 workers"),
        (_said("workers_without_data", idle=2.0, workers=3.0, busy=1.0),
         "2 of 3 workers get no data: measured with 1 worker"),
        (_said("samples_kept", first_per_s=80.0, unit="images/s", later_per_s=200.0, judged="later"),
         "delivers 80.0 images/s, in later ones 200; the verdict is on the later epochs"),
        (_said("samples_kept", first_per_s=80.0, unit="images/s", judged="first"),
         "80.0 images/s; the verdict is on the first epoch"),
        (_said("loop_file", device="loop3", file="/a.img", filesystem="cifs", under="vda", cache="in_memory"),
         "loop3 is the file /a.img on cifs (vda), in memory: its reads look cold"),
        (_said("cache_unknown", because="on_fuse", path="/data"), "unknown: /data is on FUSE"),
        (_said("not_published", limits="bandwidth opens_at_size"), "not published: bandwidth and opens at this size"),
        (_said("probe_busy", cores=15.51, cores_available=16.0), "kept 15.5 of 16 cores busy"),
        (_said("no_time", budget_s=60.0, rounds=3.0), "for another round; a budget of 60 s would allow 3 rounds"),
        (_said("cut_short"), "there was no time left for all of the last round"),
        (_said("ranks_together", ranks=16.0, hosts=2.0), "16 ranks on 2 hosts, measured together"),
        (_said("storage_alone", least="at least ", alone_bytes_per_s=612e6, readers=1.0, read_bytes_per_s=26e6,
               share=0.04), "at least 612 MB/s to 1 reader; 26.0 MB/s are read here, 4% of that"),
        (_said("read_ahead", sample_bytes=108e3, read_bytes=2.5e6, amplification=23.1, low_per_s=1.0, high_per_s=2.0,
               unit="images/s"), "for each 108 kB of samples the storage reads 2.50 MB, 23 times as much"),
        (_said("ranks_meet", meeting_s=0.004, share=0.08), "takes 4.00 ms: about 8% of a training step"),
        (_said("few_steps", steps=1.0), "only 1 step is on record"),
        (_said("records_rejected", records=600.0, because="too_early"), "left out: began before it was launched"),
        (_said("waits_alike", cold_s=0.0021, warm_s=0.002), "(2.10 ms an image) from warm ones (2.00 ms)"),
        (_said("launches_lost", exact_share=0.0154, most=0.01), "1.5% of the launches left no record"),
        (_said("clock_moved", clock_s=67e-6, most_s=66e-6), "moved by 67 µs while the profiler ran, refused above 66"),
        (_said("nvml", status=15.0, ended_after_s=3.04),
         "the GPU has been lost; its readings end 3.0 s after sampling began"),
        (_said("failed", error="it broke", stage="round 1", hint="repair it", rank="1", host="node7"),
         "it broke (at: round 1, rank 1 on node7); repair it"),
        (_said("epochs_too_long", epochs=2.0, images=99.0, take_s=823.0, timeout_s=600.0),
         "2 epochs of 99 images take about 13 min 43 s, more than --time-limit: 10 min"),
        (_said("too_few_steps", steps=12.0, least=30), "12 measured steps are too few: 30 are needed"),
        (_said("outside_noise_band", predicted_share=0.5), "training ran at 50% of its prediction"),
        (_said("storage_missing", because="reported", reason="it rained"), "it rained"),
        (_said("on_storage", filesystem="ext4", devices="vda", read_ahead_bytes=131072.0),
         "ext4 on vda, read-ahead 128 KiB"),
        (_said("gpu_not_read", gpu="T4", because="no_gpm"), "T4: this GPU has no GPM"),
    ],
)  # fmt: skip
def test_facts_are_quoted_with_units(said: str, words: str) -> None:
    """Rates, sizes, times and shares in their units; one and several in their own form."""
    assert words in said


def test_several_with_one_code_share_a_clause() -> None:
    """Figures that differ become a range, in their order as numbers."""
    shares = (0.15, 0.09, 0.33)
    words = remark_words(*(Remark(code="wait_unexplained", facts={"share": share}) for share in shares))
    assert words == "workers wait 9% to 33% of their time, and nothing shows that it is for storage"


def test_each_remark_stands_once() -> None:
    """In the order in which it came first; of those that differ in what is needed, the one with the most."""
    twice = [reported("it rained"), Remark(code="one_round"), reported("it rained")]
    assert each_once(twice) == tuple(twice[:2])
    needed = [Remark(code="no_time", facts={"needed": needed}) for needed in (2.0, 5.0, 3.0)]
    assert each_once(needed) == (needed[1],)

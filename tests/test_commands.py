"""Commands over stored results: what is refused with which code and reason; every kind of result in every format."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import jsonschema
import pytest

import loaderprobe
from loaderprobe.api.generate import generate
from loaderprobe.errors import BadValue
from loaderprobe.system.environment import ROCM, list_gpus
from scripts.goldens import FORMATS
from tests.cli.invoke import invoke
from tests.examples.traces import event, training, written
from tests.stored import RUNS

EMULATED = ("sweep", "--compute", "emulated:1")
SIZES = ("batch-size", "--model", "lenet5", "--image-size", "32", "--max", "8", "--quiet", "--out", "never")
IS_RECORDING = "loaderprobe trace FILE --out DIR"
SET, TAR, LONG = "sets/64x48", "sets/64x48-tar", "x" * 300
GPU_DECODES, OTHER = ("sweep", SET, "--compute", "cuda", "--gpu-decode"), "loaderprobe.compute.step:NoCompute"
DO_NOT_COMPARE = "two runs of sweep, two results of bandwidth, or two of run or diagnose"
NEITHER = "neither run.json (of a sweep) nor result.json (of all others)"
THE_NEWEST = "several is a folder of runs try: give one of them; the newest is several/new"
REFUSED: list[tuple[tuple[str, ...], int, str]] = [
    (("sweep", "--workers", "two"), 2, "--workers: 'two' is not a whole number"),
    (("sweep", "--workers", "1,x"), 2, "--workers takes numbers with commas"),
    (("sweep", "--workers", ""), 2, "--workers: the list is empty"),
    (("sweep", "--workers", "1", "--compute", "emulated:h100"), 2, "mlperf-h100"),
    (("sweep", "--workers", "1", "--compute", "tpu"), 2, "there is no compute named 'tpu'"),
    (("sweep", "--compute", "nowhere.at:All"), 3, "cannot be loaded"),
    (("sweep", "--resolutions", "500"), 2, "WIDTHxHEIGHT"),
    (("sweep", "--cache", "tepid"), 2, "cold,warm"),
    (("sweep", "--cache", "as-found"), 2, "cold,warm"),
    (("sweep", "--workers", "0", "--no-serial"), 2, "leaves nothing"),
    (("sweep", "--workers", "0", "--loader", "spdl"), 2, "have no serial loader"),
    ((*EMULATED, "https://host/x", "--layout", "tar"), 2, "torch's loader reads an image an object"),
    (("sweep", "--resume", "/nowhere"), 2, "/nowhere does not exist try: give the directory that a sweep wrote"),
    (("sweep", "storage", "--resume", "storage"), 2, "DATA would be ignored"),
    (("sweep", "--resume", "empty", "--json", "--quiet", "--budget", "60"), 2, "is not a run"),
    (("sweep", "--resume", "empty", "--budget", "0"), 2, "the budget must be a number of seconds above 0"),
    (("sweep", "--compute", "cuda", "--data-dir", "data", "--out", "new"), 3, "no GPU"),
    ((*EMULATED, "storage", "--workers", "1", "--out", "storage"), 5, "already holds a run"),
    ((*EMULATED, "/nowhere/at/all"), 2, "/nowhere/at/all"),
    *(((*EMULATED, name), 2, f"it is a result: loaderprobe report {name} shows it") for name in ("storage", "run")),
    ((*EMULATED, "--budget", "0"), 2, "above 0"),
    ((*EMULATED, "--budget", "nan"), 2, "above 0"),
    ((*EMULATED, SET, "--precision", "bf16"), 2, "precision does not apply to emulated:1: an emulated"),
    ((*EMULATED, SET, "--compile", "--no-pin-memory"), 2, "compile and pin_memory do not apply to emulated:1"),
    (("sweep", SET, "--compute", OTHER, "--compile"), 2, f"compile does not apply to {OTHER}: it takes none"),
    (("sweep", SET, "--compute", "cpu", "--side-stream"), 2, "side_stream needs a GPU"),
    (("sweep", SET, "--compute", "cpu", "--gpu-decode", "--no-pin-memory"), 2, "pin_memory and gpu_decode need a GPU"),
    (("sweep", SET, "--compute", "cpu", "--precision", "tf32"), 2, "precision tf32 needs a GPU"),
    ((*GPU_DECODES, "--side-stream"), 2, "leave out side_stream"),
    ((*GPU_DECODES, "--decoder", "torchvision"), 2, "but with gpu_decode the GPU does"),
    ((*GPU_DECODES, "--pipeline", "crop"), 2, "with gpu_decode the GPU crops"),
    ((*GPU_DECODES, "--ranks", "1,2"), 2, "one rank alone decodes on its GPU: --gpu-decode and --ranks 2"),
    (("sweep", SET, "--compute", "cuda:first"), 2, "'first' is not the number of a GPU"),
    (("sweep", SET, "--compute", "emulated:h200"), 2, "'h200' is neither a known accelerator nor a rate"),
    ((*EMULATED, SET, "--ranks", "1,2", "--epochs", "2"), 2, "whole epochs are trained by one rank"),
    (("sweep", SET, "--compute", OTHER, "--ranks", "1,2"), 2, "does not train in step"),
    ((*EMULATED, SET, "--ranks", "2x2"), 2, "on this one only"),
    ((*EMULATED, SET, "--prefetch-factor", "0,2"), 2, "a prefetch factor is 1 or more"),
    ((*EMULATED, SET, "--workers", "auto", "--prefetch-factor", "1,4"), 2, "with one prefetch factor"),
    ((*EMULATED, SET, "--epochs", "2", "--cache", "warm"), 2, "the first of whole epochs is cold"),
    ((*EMULATED, "s3://photos", "--epochs", "2"), 2, "the first of whole epochs is cold try: leave --epochs out"),
    ((*EMULATED, "s3://photos", "--cache", "warm"), 2, "no page cache holds what is behind a URL"),
    ((*EMULATED, "https://user:SECRET@127.0.0.1:9/a/"), 2, "https://***@127.0.0.1:9/a/ has a part that may be a cred"),
    *(
        ((verb, name), 2, f"{name} {why} try: give the directory that sweep, run or diagnose wrote")
        for verb in ("report", "plan")
        for name, why in (("/nowhere", "does not exist"), ("empty", f"is not a run: it has {NEITHER}"))
    ),
    (("report",), 2, "no run is given"),
    (("report", "--json", "--format", "csv"), 2, "exclude"),
    (("report", "--schema", "--json"), 2, "exclude"),
    (("report", "--format", "pdf"), 2, "parquet"),
    (("report", "run", "-o", "run.pdf"), 2, "ending of run.pdf"),
    (("report", "storage", "-o", "nowhere/run.md"), 3, "choose another path for -o"),
    (("report", "storage", "-o", "."), 2, ". is a directory"),
    (("bandwidth", "/nowhere"), 2, "/nowhere"),
    (("bandwidth", "/dev/null"), 2, "neither a file nor a folder"),
    *(
        (("bandwidth", f"odd/{kind}", "--json"), 2, says)
        for kind, says in (
            ("pipe", "is a pipe"),
            ("socket", "is a socket"),
            ("loop", "symbolic links"),
            ("void", "is empty try:"),
            ("void/x", "Not a directory"),
            ("nothing", "No such file"),
            ("none", "it is empty"),
            ("things", "1 a broken link"),
        )
    ),
    (("bandwidth", "/dev/zero", "--json"), 2, "is a device"),
    (("bandwidth", "/dev", "--readers", "1,x"), 2, "--readers takes numbers with commas"),
    (("bandwidth", "empty", "--readers", "0,1"), 2, "concurrency must be 1 or more"),
    (("bandwidth", "empty", "--readers", ""), 2, "--readers: the list is empty"),
    (("bandwidth", "empty", "--seconds", "0"), 2, "--seconds"),
    (("bandwidth", "empty", "--seconds", "inf"), 2, "--seconds"),
    (("bandwidth", "empty", "--scratch", "big"), 2, "big"),
    (("bandwidth", "empty", "--scratch", "1kB"), 2, "at least 128 KiB"),
    (("bandwidth", "empty", "--ranks", "1,2x2"), 2, "this one only"),
    (("bandwidth", "empty", "--ranks", "2", "--readers", "1,2"), 2, "one number of readers each"),
    (("bandwidth", "empty", "--ranks", "2", "--scratch", "1GB"), 2, "--scratch is of one process only"),
    (("bandwidth", "empty", "--ranks", "1,2", "--drop-caches"), 2, "--drop-caches is of one process only"),
    (("bandwidth", "empty", "--out", "storage"), 5, "is not empty"),
    (("bandwidth", "empty", "--ranks", "2", "--out", "storage"), 5, "is not empty"),
    (("bandwidth", "empty", "--ranks", "2", "--md", "--json"), 2, "exclude each other"),
    (("run",), 2, "no command is given"),
    (("run", "--watch", "--budget", "5", "--", "train.py"), 2, "--watch measures nothing"),
    (("run", "--", "/nowhere/python"), 3, "cannot be started: No such file"),
    (("doctor", "/nowhere"), 2, "does not exist"),
    (("generate", "new", "--resolutions", "64x48", "--count", "70", "--mean-size", "1MB"), 2, "they have"),
    (("explain", "magic"), 2, "verdict"),
    (("nonsense",), 2, "nonsense"),
    *(
        (("diagnose", name), 2, "names no function in a module try: name a function: train.py:make_loader")
        for name in ("make", "train.py", "a b:make", "module:", ":make", "a-b:make")
    ),
    (("diagnose", "nowhere.py:make_loader"), 2, "there is no file"),
    (("diagnose", "own_loaders.py:wrong"), 2, "returned (list, list)"),
    (("diagnose", "own_loaders.py:nothing"), 2, "returned nothing"),
    (("diagnose", "own_loaders.py:value"), 2, "is a int, not a function"),
    (("diagnose", "own_loaders.py:missing"), 3, "cannot be loaded: own_loaders has no missing"),
    (("diagnose", "own_loaders.py:raises"), 1, "raised KeyError: 'x'"),
    (("diagnose", "own_loaders.py:parses"), 1, "raised SystemExit: 2"),
    *((("diagnose", f"own_loaders.py:{name}"), 1, "add --ranks 2, or start it") for name in ("in_group", "joins")),
    (("diagnose", "glob.py:make"), 2, "glob.py has the name of another module, "),
    *(
        (("diagnose", f"{module}:make", "--ranks", "2"), 3, f"there is no module {module}")
        for module in ("nowhere_at_all", "nowhere_at_all.data", "own_loaders.other", "__main__")
    ),
    (("diagnose", "a.module:make", "--join", "slurm"), 2, "srun did not start"),
    (("diagnose", "no_such_module_at_all:make"), 3, "cannot be loaded"),
    (("layers", "--model", "nope", "--compute", "cpu"), 2, "no model named 'nope'"),
    (("layers", "--model", "no.such.module:net", "--compute", "cpu"), 3, "no.such.module"),
    (("layers", "--model", "lenet5", "--compute", "cpu", "--md", "--json"), 2, "exclude each other"),
    (("layers", "--model", "lenet5", "--compute", "cuda"), 3, "no CUDA device"),
    (("layers", "--model", "lenet5", "--compute", "cpu", "--out", "storage"), 5, "not empty"),
    (("layers", "sets", "--model", "lenet5", "--compute", "cpu"), 2, "holds 2 generated data sets"),
    (("layers", "sets", "--image-size", "32"), 2, "cropped to 224 pixels"),
    (("batch-size", "--model", "nope", "--compute", "cpu"), 2, "no model named 'nope'"),
    (("batch-size", "--model", "no.such.module:net", "--compute", "cpu"), 3, "no.such.module"),
    ((*SIZES, "--compute", "cuda"), 3, "no CUDA device"),
    ((*SIZES, "--compute", "cpu", "--workers", "2"), 2, "--workers needs DATA"),
    ((*SIZES, "--compute", "cpu", "--memory", "1kB"), 2, "not even a batch of 1 fits into 1.00 kB"),
    ((*SIZES, "--compute", "cpu", "--strategy", "gpu-usage"), 3, "1,000 updates each, which take days without a GPU"),
    (("trace", "none.json"), 2, "does not exist"),
    (("trace", "cpu.json"), 2, "only the CPU was recorded"),
    (("trace", "mtia.json"), 2, "MTIA"),
    (("trace", "empty"), 2, "no file in it ends with .json"),
    (("trace", "trace/result.json"), 2, "loaderprobe report"),
    *(((verb, file), 2, IS_RECORDING) for verb in ("report", "plan") for file in ("t.json", "t.json.gz")),
    (("compare", "t.json", "t.json.gz"), 2, IS_RECORDING),
    (("trace", "t.json", "--device", "9"), 2, "no kernel of GPU 9"),
    (("trace", "t.json", "--annotation", "x"), 2, "no span named 'x'"),
    (("trace", "t.json", "--md", "--json"), 2, "exclude each other"),
    (("trace", "t.json", "--out", "."), 5, "not empty"),
    (("trace", "t.json", "another_gpu.json"), 2, "their GPU differs (Test GPU, Another) try: give each to"),
    (("trace", "rank_0.json", "of_eight.json"), 2, "number of ranks differs (2, 8)"),
    (("trace", "rank_0.json", "another_loader.json"), 2, "loader differs"),
    (("trace", "rank_0.json", "rank_0_again.json"), 2, "both are of rank 0"),
    (("trace", "none.json", "--html", "nowhere/t.html"), 3, "choose another path for --html"),
    (("trace", "none.json", "--out", "text/found"), 2, "choose another path for --out"),
    (("compare", "cpu"), 2, "A and B are two results, not 1"),
    (("compare", "cpu", "cpu", "cpu"), 2, "--with"),
    (("compare", "cpu", "nowhere"), 2, "nowhere does not exist"),
    (("compare", "cpu", "again", "--with", "causes"), 2, "again is cpu again, or a copy of it"),
    (("compare", "cpu", "cpu", "--json", "--md"), 2, "exclude each other"),
    (("compare", "cpu", "cpu", "--out", "cpu"), 5, "not empty"),
    (("compare", "cpu", "cpu", "--fail-if-unclear", "--allow-unclear"), 2, "give one of the two"),
    (("compare", "cpu", "cpu", "--differ", "device"), 2, "names nothing"),
    (("compare", "cpu", "cpu", "--fail-if-slower", "80%"), 2, "half as fast"),
    (("compare", "cpu", "cpu", "--fail-if-slower", "much"), 2, "much"),
    (("compare", "cpu", "run"), 2, "is a result of run or diagnose"),
    (("compare", "layers", "layers"), 2, DO_NOT_COMPARE),
    (("compare", "trace", "trace"), 2, DO_NOT_COMPARE),
    (("compare", "rank-bandwidth", "rank-bandwidth", "--fail-if-verdict-changes"), 2, "have no verdicts"),
    ((*EMULATED, SET, "--convert-to", "new"), 2, "needs a folder as DATA, and --layout"),
    ((*EMULATED, TAR, "--layout", "files", "--convert-to", "new"), 2, "to write as files"),
    ((*EMULATED, TAR, "--layout", "files"), 2, "holds tar, not files"),
    ((*EMULATED, SET, "--layout", "tar"), 2, "add --convert-to DIR"),
    *(((command, LONG), 2, "File name too long") for command in ("report", "doctor", "bandwidth", "plan", "trace")),
    (("plan",), 2, "no run is given"),
    *(((verb, "several"), 2, THE_NEWEST) for verb in ("report", "plan")),
    (("sweep", "--resume", "several"), 2, f"{THE_NEWEST.removesuffix('new')}old"),  # which is a sweep's
    *(((verb, "text"), 2, "text is no result of loaderprobe try: of a script") for verb in ("report", "plan")),
    (("plan", "storage", "--data", "\x1b[31m"), 2, "no measured data set"),
    (("plan", "storage", "--storage", "fsx-lustre"), 2, "or fsx-lustre-1000; or figures, like 5GB/s,60kopens/s,2ms"),
    (("plan", "storage", "--storage", "floppy"), 2, "no storage named 'floppy' try: use fsx-lustre-125, "),
    (("plan", "storage", "--catalogue"), 2, ""),
    (("plan", "storage", "--schema"), 2, ""),
    (("plan", "--catalogue", "--html", "x.html"), 2, "is no page"),
    (("plan", "storage", "--md", "--json"), 2, "exclude"),
    (("plan", "storage", "--html", "x.html", "--json"), 2, ""),
    (("plan", "storage", "--html", "x.html", "--md"), 2, ""),
    (("plan", "storage", "--html", "x.html", "--schema"), 2, ""),
]
"""What is typed in the folder of `place`, the exit code, and what standard error says."""
LOADERS = """
value = 1
def wrong(): return [1], [2]
def nothing(): pass
def raises(): raise KeyError("x")
def in_group():
    import torch.distributed
    torch.distributed.get_rank()
def joins():
    import torch.distributed
    torch.distributed.init_process_group("gloo")
def parses():
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.parse_args()
"""
KINDS = (
    "bandwidth", "batch-size", "damaged", "diagnose", "layers", "rank-bandwidth", "run", "storage", "trace", "watch",
)  # fmt: skip
"""A stored result of each schema; of some, another that has other parts."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stored results, recordings, and files that are no result."""
    folder = tmp_path_factory.mktemp("place")
    for run in RUNS.iterdir():
        (folder / run.name).symlink_to(run)
    for name in ("t.json", "t.json.gz"):
        written(folder / name, training())
    written(folder / "another_gpu.json", deviceProperties=[{"id": 0, "name": "Another"}])
    for name, rank, size in (("rank_0", 0, 2), ("rank_0_again", 0, 2), ("of_eight", 1, 8)):
        written(folder / f"{name}.json", distributedInfo={"rank": rank, "world_size": size})
    events = training(loader="train_dataloader_next")
    written(folder / "another_loader.json", events, distributedInfo={"rank": 1, "world_size": 2})
    written(folder / "cpu.json", [event("cpu_op", "aten::add", 1, 1)])
    written(folder / "mtia.json", [event("mtia_ccp_events", "add", 1, 1), event("kernel", "add", 2, 1, device=0)])
    (folder / "again").symlink_to(RUNS / "cpu")
    (folder / "empty").mkdir()
    (folder / "odd" / "none").mkdir(parents=True)
    (folder / "odd" / "things").mkdir()
    for pipe in ("pipe", "things/pipe"):
        os.mkfifo(folder / "odd" / pipe)
    for link, there in (("loop", "loop"), ("things/broken.jpg", "none"), ("things/again", folder / "odd" / "things")):
        (folder / "odd" / link).symlink_to(there)
    (folder / "odd" / "void").touch()
    with socket.socket(socket.AF_UNIX) as bound, chdir(folder / "odd"):  # the path of a socket may not be long
        bound.bind("socket")
    for name, kept in (("new", "result.json"), ("old", "run.json")):
        (folder / "several" / name).mkdir(parents=True)
        (folder / "several" / name / kept).touch()
    os.utime(folder / "several" / "old" / "run.json", (0, 0))
    for layout in ("files", "tar"):
        generate(folder / "sets", resolutions=["64x48"], count=8, classes=2, pool=2, layout=layout)
    for name, text in (("text", "hello"), ("own_loaders.py", LOADERS), ("glob.py", LOADERS)):
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(("typed", "code", "says"), REFUSED, ids=[" ".join(typed) for typed, _, _ in REFUSED])
def test_what_cannot_be_is_refused_with_its_code_and_reason(
    place: Path, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...], code: int, says: str
) -> None:
    """2 for what is typed, 3 for what is missing, 5 for what would be written over, 1 for what a user's
    function raises. Nothing is printed or written, and no error is a traceback."""
    if code == 3 and "cuda" in typed and (list_gpus()[0] or ROCM.exists()):
        pytest.skip("there is a GPU")
    for name in ("RANK", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a user's function is called with its folder in it
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = sorted(place.iterdir())
    done = invoke(*typed)
    said = " ".join(done.stderr.split())
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    assert says in said and "rror" in said and "Traceback" not in said and "\x1b[31m" not in said
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize("call", [loaderprobe.load, loaderprobe.resume])
def test_a_folder_of_runs_names_the_newest(place: Path, call: Callable[[Path], object]) -> None:
    """Of those that can be given."""
    with pytest.raises(BadValue, match="several is a folder of runs") as refused:
        call(place / "several")
    assert refused.value.hint.endswith("several/old")


@pytest.mark.parametrize("name", KINDS)
def test_a_file_holds_what_is_printed(name: str, tmp_path: Path) -> None:
    """In the format of its ending, or of the option; a table is the default, and JSON fits its schema.

    What is printed in each format is kept in fixtures/shown."""
    code = 4 if name == "damaged" else 0
    for form, ending in FORMATS.items() if name == "run" else [("table", "txt"), ("json", "json")]:
        file, other = tmp_path / f"shown.{ending}", tmp_path / "shown.xyz"
        printed = invoke("report", RUNS / name, "--format", form)
        assert (printed.exit_code, printed.stdout != "") == (code, True)
        assert invoke("report", RUNS / name, "-o", file).stdout == f"Report: {file}\n"
        assert file.read_text() == printed.stdout
    assert invoke("report", RUNS / name, "--format", form, "--output", other).exit_code == code
    assert other.read_text() == printed.stdout
    kept = RUNS / name / "result.json"
    for stored in (RUNS / name, kept) if kept.exists() else (RUNS / name,):
        assert invoke("report", stored).stdout == (tmp_path / "shown.txt").read_text()
    found = invoke("report", RUNS / name, "--json").stdout
    assert found == (tmp_path / "shown.json").read_text()
    jsonschema.validate(json.loads(found), json.loads(invoke("report", RUNS / name, "--schema").stdout))

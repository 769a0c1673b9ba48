"""Every option, declared once: the command line, the check of Python's arguments, specs and labels come from here.

A row has the name of an argument of a verb in `loaderprobe.api`. The command of that verb is made from its rows; a test
holds the verb's own signature against them, and `check` what it is called with. A sweep fills the fields of its spec
and of its configurations by these names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from loaderprobe.errors import BadValue
from loaderprobe.records.config import LIBRARIES, Decoder, MemoryFormat, Pipeline, Precision, TensorType

REQUIRED: Any = ...
"""In place of a default, where there is none."""
Launcher = Literal["slurm", "mpi"]
"""That has to be named: processes of torchrun are recognised."""

# The panels that options stand in, in the order of `--help`; an argument has a place instead of a name.

ARGUMENT = "Arguments"
NO_PANEL = ""
DATA = "Data"
LOADER = "Loader"
COMPUTE = "Compute"
STORAGE = "Storage"
MEASURING = "Measuring"
SIDES = "Sides"
GATES = "Gates"
OUTPUT = "Output"


@dataclass(frozen=True, slots=True)
class Option:
    """One option or argument of a command, and of the verb that it calls."""

    name: str
    """In Python."""
    type: Any
    """Of its value; with `several`, of each of them."""
    default: Any
    """`REQUIRED`, or the value without it."""
    panel: str
    help: str
    several: bool = field(default=False, kw_only=True)
    """Values separated by commas; in Python also one value, or a list of them."""
    typed: str = field(default="", kw_only=True)
    """As it is typed, where that is not `--` and its name; several are separated by a space."""
    usual: str = field(default="", kw_only=True)
    """What `--help` says in place of the default."""
    metavar: str = field(default="", kw_only=True)
    least: float | None = field(default=None, kw_only=True)
    most: float | None = field(default=None, kw_only=True)
    label: str | tuple[str, str] = field(default="", kw_only=True)
    """What its value is called in tables: a form to put it into, or what False and True mean. Others are named."""
    typed_only: bool = field(default=False, kw_only=True)
    """The command takes it, and no verb does."""

    @property
    def flags(self) -> tuple[str, ...]:
        """`--batch-size`; `--output`, `-o`."""
        return tuple(self.typed.split()) or (f"--{self.name.replace('_', '-')}",)

    @property
    def said(self) -> str:
        """As messages name it: `--batch-size`; of an argument `DATA`."""
        return self.name.upper() if self.panel == ARGUMENT else self.flags[0]

    def check(self, value: Any) -> None:
        """Raises BadValue for what the command line would not take. Texts and lists are read by the verb itself."""
        if not (self.several or (value is None and self.default is None)) and (why := self._not(value)):
            raise BadValue(f"{self.said}: {value!r} is {why}", hint=f"--help explains {self.said}: {self.help}")

    def _not(self, value: Any) -> str:
        """What is wrong with a value; empty where nothing is."""
        if get_origin(self.type) is Literal and value not in get_args(self.type):
            near = get_close_matches(str(value), get_args(self.type), 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            return f"not one of {', '.join(map(repr, get_args(self.type)))}{meant}"
        if self.type is bool and not isinstance(value, bool):
            return "neither True nor False"
        if self.type in (int, float):
            number = isinstance(value, Integral if self.type is int else Real) and not isinstance(value, bool)
            if not number:
                return "not a whole number" if self.type is int else "not a number"
            if self.least is not None and not value >= self.least:
                return f"less than {self.least}"
            if self.most is not None and not value <= self.most:
                return f"more than {self.most}"
        return ""


def check(options: Sequence[Option], given: Mapping[str, Any]) -> None:
    """Raises BadValue for the first of the values in `given` that its option cannot have."""
    for option in options:
        if option.name in given:
            option.check(given[option.name])


def of_python(options: Sequence[Option]) -> tuple[Option, ...]:
    """Those that are arguments of the verb, too."""
    return tuple(option for option in options if not option.typed_only)


def label_of(name: str) -> str | tuple[str, str]:
    """What the value of an option of a configuration is called in tables."""
    label = next((option.label for option in SWEEP if option.name == name), "")
    return label or f"{name.replace('_', ' ')} {{}}"


RESOLUTIONS = ("256x256", "500x375", "1024x768")
MODELS = (
    "mlp, convnet (LeNet-5), resnet18, resnet50, resnet152, vgg16, or package.module:factory (see explain plug-ins)"
)
USUAL_BATCH = "256 on CUDA, 4 on the CPU"

LOADED_IMAGES = Option("data", Path, None, ARGUMENT, "Folder of images to load. Without it, images in memory.")
LOADING_WORKERS = Option(
    "workers", int, 0, DATA, "Workers that load DATA; 0 is the serial loader.", least=0, most=4096
)  # fmt: skip
MODEL = Option("model", str, "resnet50", COMPUTE, f"{MODELS}.", label="{}")
DEVICE = Option(
    "device", Literal["auto", "cuda", "cpu"], "auto", COMPUTE, "auto: cuda if present, else cpu.", typed="--compute"
)
BATCH_SIZE = Option("batch_size", int, None, COMPUTE, "Images per batch.", least=1, usual=USUAL_BATCH)
IMAGE_SIZE = Option("image_size", int, 224, COMPUTE, "Pixels a side of the images.", least=1, most=4096)
PRECISION = Option("precision", Literal["auto", "fp32", "bf16"], "auto", COMPUTE, "auto: bf16 on CUDA, else fp32.")
CACHE = Option(
    "cache", Literal["cold", "warm"], "cold", MEASURING, "Files from storage (cold) or from memory (warm)."
)  # fmt: skip
RANKS = Option(
    "ranks", str, None, MEASURING, usual="1; under torchrun, all that it started", several=True,
    help="Processes that train in step: 1,2,4 measures each. 4x8: on 4 nodes, 8 on each (see explain ranks).",
)  # fmt: skip
JOIN = Option(
    "join", Launcher, None, MEASURING, typed_only=True,
    help="Whether srun or mpirun started these processes. Those of torchrun are recognised without it.",
)  # fmt: skip
OUT = Option(
    "out", Path, None, OUTPUT, "New directory for result.json and report.html.", typed_only=True,
    usual="loaderprobe-runs/DATE-TIME-COMMAND",
)  # fmt: skip
MAY_KEEP = replace(OUT, usual="")
MD = Option("md", bool, False, OUTPUT, "Print Markdown.", typed_only=True)
HTML = Option(
    "html", Path, None, OUTPUT, "Write a page with charts, which works offline.", metavar="FILE", typed_only=True
)  # fmt: skip
JSON = Option("json", bool, False, OUTPUT, "Print JSON and nothing else.", typed_only=True)
SCHEMA = Option("schema", bool, False, OUTPUT, "Print the JSON Schema of --json.", typed_only=True)
QUIET = Option("quiet", bool, False, OUTPUT, "Show no progress.", typed_only=True)
KEPT = (OUT, MD, JSON, QUIET)
SHOWN = (HTML, MAY_KEEP, MD, JSON)


# The commands in the order of `--help`.

SWEEP = (
    Option(
        "data", str, None, ARGUMENT,
        "Folder of images, one sub-folder per class, or the URL of one. Without it, data sets are generated.",
    ),
    Option(
        "resolutions", str, RESOLUTIONS, DATA, "Resolutions of the generated data sets. imagenet: ImageNet's mixture.",
        several=True,
    ),
    Option(
        "layout", str, None, DATA, several=True, usual="files, or that of DATA", label="{}",
        help="How the same images lie on storage: files, or large ones: tar, parquet, lmdb, mds, litdata (explain "
        "layouts).",
    ),
    Option("data_dir", Path, Path("loaderprobe-data"), DATA, "Directory of the generated data sets."),
    Option(
        "convert_to", Path, None, DATA,
        help="With DATA and --layout: write the images that are read again under DIR, in layouts that DATA lacks.",
    ),
    Option(
        "stage", Path, None, DATA,
        help="Also measure from a copy of the images that are read, which is made under DIR: what it gains, and when.",
    ),
    Option("images", int, None, DATA, "Images of each data set.", least=1, usual="as many as the sweep reads"),
    Option("seed", int, 0, DATA, "Seed of the generated data and of the order of measuring.", least=0),
    Option(
        "workers", int, (1, 2, 4, 8), LOADER, several=True,
        help="Numbers of workers to measure, separated by commas. auto: as many as it takes to know the fewest that "
        "are enough.",
    ),
    Option("serial", bool, True, LOADER, "Do not measure the serial loader.", typed="--no-serial"),
    Option(
        "loader", str, "torch", LOADER, several=True, label="{}",
        help=f"torch, {', '.join(LIBRARIES)} (see explain loaders), a plug-in or package.module:Class "
        "(see explain plug-ins); several, separated by commas.",
    ),
    Option(
        "prefetch_factor", int, (2,), LOADER, several=True, label="prefetch {}",
        help="Batches that each worker loads ahead. Several, separated by commas, also measure the error of short "
        "benchmarks. auto: 2, 4 and 8 while it gains, with the workers that are enough.",
    ),
    Option(
        "pipeline", Pipeline, "imagenet", LOADER, "imagenet: random resized crop and flip. crop: random crop.",
        label="{}",
    ),
    Option(
        "decoder", Decoder, "pillow", LOADER, label="{}",
        help="JPEG decoder: pillow, torchvision or, where installed, simplejpeg, opencv, torchcodec.",
    ),
    Option(
        "tensor", TensorType, "float32", LOADER, "Type that workers send; uint8 is normalised on the device.",
        label="{}",
    ),
    Option(
        "compute", str, "auto", COMPUTE, several=True, label="{}",
        help="auto (cuda if present, else cpu), cuda, cpu, emulated:NAME (explain accelerators lists them) or "
        "emulated:IMAGES_PER_S; several, separated by commas.",
    ),
    replace(BATCH_SIZE, usual=f"{USUAL_BATCH}, else 32", label="batch {}"),
    replace(MODEL, help=f"{MODELS}; several, separated by commas.", several=True),
    Option(
        "precision", Precision, "auto", COMPUTE, label="{} precision",
        help="Precision of training: bf16, fp16, fp32, tf32, or auto (bf16 on CUDA, else fp32).",
    ),
    Option(
        "memory_format", MemoryFormat, "channels_last", COMPUTE, label="{}",
        help="Memory format of model and images: channels_last or contiguous.",
    ),
    Option("compile", bool, False, COMPUTE, "Train with torch.compile.", label=("not compiled", "compiled")),
    Option(
        "pin_memory", bool, True, COMPUTE, "Do not pin batches in memory before they are copied to the GPU.",
        typed="--no-pin-memory", label=("pageable memory", "pinned memory"),
    ),
    Option(
        "side_stream", bool, False, COMPUTE, "Copy to the GPU on a separate CUDA stream.",
        label=("copies on the training stream", "copies on a side stream"),
    ),
    Option(
        "gpu_decode", bool, False, COMPUTE, "Workers send whole files; the GPU decodes and crops them.",
        label=("decoding on the CPU", "decoding on the GPU"),
    ),
    Option(
        "cache", str, "cold", MEASURING, "Files from storage (cold), from memory (warm), or both: cold,warm.",
        several=True, label="{} files",
    ),
    RANKS,
    JOIN,
    Option(
        "rounds", int, 3, MEASURING, least=1,
        help="Rounds of a configuration; fewer where one is enough, up to twice as many where the verdict stays "
        "unclear or the rate is known to no better than 10 %.",
    ),
    Option(
        "thorough", bool, False, MEASURING,
        "Measure every ablation everywhere, also where the verdict is already clear.",
    ),
    Option(
        "epochs", int, 0, MEASURING, least=0,
        help="Also train this many whole epochs, the first one cold: rate of each, and share read from storage.",
    ),
    Option(
        "budget_s", float, None, MEASURING, typed="--budget",
        usual="17 a configuration, 60 with a GPU; 60 more with ranks, 180 with --compile; more from --rounds 4 on; the "
        "total is said before it begins",
        help="Seconds of measuring, once the data are there. A first round that has begun is ended, up to 30 s later; "
        "what has not begun, or is still open, is left for --resume, which takes a new --budget.",
    ),
    Option("time_limit_s", float, 600.0, MEASURING, "Timeout of one configuration, in seconds.", typed="--time-limit"),
    replace(OUT, help="Directory of the run.", usual="loaderprobe-runs/DATE-TIME", typed_only=False),
    Option(
        "resume", Path, None, OUTPUT, typed_only=True, metavar="RUN",
        help="Measure what is missing in a run and, with a new --budget, more rounds of what is still open. All else "
        "is as in that run: RUN is the path of its directory, as --out named it, else loaderprobe-runs/DATE-TIME.",
    ),
    replace(JSON, help="Print summary.json and nothing else."),
    QUIET,
)  # fmt: skip
RUN = (
    Option("words", list[str], None, ARGUMENT, "The command that starts the training.", metavar="-- COMMAND"),
    Option(
        "watch", bool, False, MEASURING,
        "Change nothing: training goes on, and the verdict is estimated; on a GPU rates and waits, no verdict.",
    ),
    Option(
        "budget_s", float, None, MEASURING, "Time to measure.", typed="--budget",
        usual="60, or 60 steps if these take longer; as much again while the verdict is open, and with ranks",
    ),
    CACHE,
    Option(
        "loader", int, None, MEASURING, "Number of the loader to measure. A run without a verdict lists them.",
        least=0, usual="the one that trains",
    ),
    OUT, JSON,
)  # fmt: skip

DIAGNOSE = (
    Option(
        "loader", str, REQUIRED, ARGUMENT, metavar="FUNCTION",
        help="Function that returns a DataLoader, or a DataLoader and a step: train.py:make_loader, or "
        "package.module:make_loader.",
    ),
    Option(
        "budget_s", float, None, MEASURING, "Seconds to measure, once the loader is made.", typed="--budget", least=1,
        usual="30, and as much again while the verdict is open; with ranks 60",
    ),
    CACHE,
    replace(
        RANKS,
        help="Processes that train in step, each of which calls FUNCTION; 4x8: on 4 nodes, 8 on each (explain ranks).",
    ),
    JOIN,
    *KEPT,
)  # fmt: skip

TRACE = (
    Option(
        "files", list[Path], REQUIRED, ARGUMENT,
        "Recordings (.json, .json.gz), or folders of them; several are ranks.",
    ),
    Option(
        "annotation", str, "", DATA, "Name of the span around asking for a batch.",
        usual="that of torch's DataLoader",
    ),
    Option("device", int, None, COMPUTE, "Index of the GPU.", least=0, usual="the one with most kernels"),
    replace(BATCH_SIZE, usual="by the shapes on record"),
    *SHOWN, QUIET,
)  # fmt: skip

BANDWIDTH = (
    Option("path", str, REQUIRED, ARGUMENT, "A folder of files, or a file; or a URL: s3://, gs://, az://, https://."),
    Option(
        "scratch", str, None, DATA, "Write a file of this size under PATH, such as 1GB, read it and remove it.",
        usual="never",
    ),
    Option("seed", int, 0, DATA, "Seed for the choice and order of the files."),
    replace(
        RANKS, usual="1; under torchrun, up to all that it started",
        help="Processes that read at once, each its own share, with commas; 4x8: on 4 nodes, 8 on each (explain "
        "ranks).",
    ),
    JOIN,
    Option(
        "readers", int, "auto", MEASURING, several=True,
        help="Concurrencies, such as 1,2,4. auto: double until the rate stops rising; with ranks, 4 each.",
    ),
    Option(
        "seconds", float, 3.0, MEASURING, least=0.1, most=3600,
        help="Seconds of each phase; up to five times that until its rate is known within 5 %.",
    ),
    Option(
        "drop_caches", bool, False, MEASURING,
        "Empty all caches of the machine before each pass (root), also those of others. Only then are opens/s cold.",
    ),
    replace(MAY_KEEP, help="New directory for result.json, phases.csv and report.html."),
    MD,
    replace(JSON, help="Print JSON (fio's names and units) and nothing else."),
    QUIET,
)  # fmt: skip

GENERATE = (
    Option(
        "directory", Path, REQUIRED, ARGUMENT,
        "Target directory, with one folder per resolution. A set with the same settings is completed.",
    ),
    Option(
        "resolutions", str, RESOLUTIONS, DATA, several=True,
        help="One data set each. imagenet: ImageNet's mixture of sizes and qualities.",
    ),
    Option(
        "count", int, 1000, DATA, "Images of each resolution. A higher count enlarges an existing set.", least=1,
        typed="--images --count",
    ),
    Option("mean_size", str, None, DATA, "Mean size of a file, such as 110kB.", usual="as in ImageNet"),
    Option("classes", int, 10, DATA, "Number of class directories.", least=1),
    Option("seed", int, 0, DATA, "The same seed gives the same files.", least=0),
    Option(
        "layout", str, ("files",), DATA, several=True,
        help="How the images lie on storage, one set each: files, in a folder a class, or many in large files: tar, "
        "parquet, lmdb, mds, litdata.",
    ),
    Option("shard_images", int, None, DATA, "Images in a large file.", least=1, usual="a 32nd of them, at most 1000"),
    Option(
        "oddities", str, (), DATA, several=True, usual="none",
        help="Odd files to add, as rare as in ImageNet: grey, cmyk, png, exif, icc, or all.",
    ),
    Option("pool", int, None, DATA, "Base images that the files are derived from.", least=1, usual="20; imagenet: 256"),
    Option(
        "verify", bool, False, OUTPUT, typed_only=True,
        help="Write nothing: read every file of DIRECTORY and compare it with the manifest.",
    ),
    QUIET,
)  # fmt: skip

Form = Literal["table", "md", "csv", "parquet", "json", "html", "svg"]
FORMATS: tuple[str, ...] = get_args(Form)
REPORT = (
    Option("run", Path, None, ARGUMENT, "Directory of a run, or of another result."),
    Option(
        "form", Form, None, NO_PANEL,
        "table, md, csv, parquet, json, html, or svg: the picture alone.", typed="--format", metavar="FORMAT",
        usual="by the ending of FILE, else table",
    ),
    Option("output", Path, None, NO_PANEL, "Write this file instead of printing.", typed="--output -o", metavar="FILE"),
    replace(JSON, panel=NO_PANEL, help="The same as --format json."),
    replace(SCHEMA, panel=NO_PANEL, help="Print the JSON Schema of --format json: of RUN, else of a sweep."),
)  # fmt: skip

PLAN = (
    Option(
        "run", Path, None, ARGUMENT,
        "Directory of a sweep, of run, trace or bandwidth, or a file with the JSON of one.",
    ),
    Option(
        "data", str, None, DATA, "Data set of the run, such as 500x375.",
        usual="the one nearest to ImageNet's file size",
    ),
    Option("images", str, None, DATA, "Images in the set, such as 1.28M.", usual="as found by the run"),
    Option("mean_size", str, None, DATA, "Mean size of a file, such as 115kB.", usual="as measured"),
    Option("layout", str, None, DATA, "folder: an image a file. shards:1251: 1251 images a file.", usual="as the run"),
    Option("accelerators", int, 8, COMPUTE, "Accelerators to feed.", typed="--accelerators -n"),
    Option(
        "kind", str, None, COMPUTE, usual="the run's fastest",
        help="measured (in the run), a name such as mlperf-h100, or images/s of one accelerator.",
    ),
    Option(
        "utilization", str, None, COMPUTE, "Share of their rate that the accelerators should reach.",
        usual="90%, the bar of MLPerf Storage",
    ),
    Option("per_node", int, None, COMPUTE, "Accelerators in a node.", usual="8; 1 where a CPU trains"),
    Option("growth", float, 1.0, COMPUTE, "Factor by which the number of accelerators will grow.", metavar="FACTOR"),
    Option(
        "storage", list[str], (), STORAGE, usual="what the run measured",
        help="A storage to compare: a name of the catalogue with its size (fsx-lustre-250:24TiB), or figures "
        "(5GB/s,60kopens/s,2ms,1.5GB/s/client). May be repeated.",
    ),
    Option(
        "use", str, None, STORAGE, "Share of a storage's limits to be used; the rest is headroom.",
        usual="80%, an assumption",
    ),
    Option("nic", str, None, STORAGE, "Network of a node: 12.5GB/s (bytes) or 100Gb/s (bits)."),
    Option(
        "cache", str, "none", STORAGE,
        "Cache for files on each node: page:1TB (the kernel's page cache), pinned:1TB (a fixed part of the files), or "
        "none.",
    ),
    Option(
        "checkpoint", str, None, STORAGE, usual="not planned for",
        help="What training writes, and each how many seconds: 205MB:600. It stands still for 1 % of them.",
    ),
    Option("catalogue", bool, False, STORAGE, "List the storage kinds with sources.", typed_only=True),
    MD, JSON, HTML, SCHEMA,
)  # fmt: skip

COMPARE = (
    Option(
        "results", list[Path], REQUIRED, ARGUMENT, metavar="A B", typed_only=True,
        help="Two runs of sweep, two results of bandwidth, or two of run or diagnose.",
    ),
    Option(
        "others", list[Path], (), SIDES, typed="--with", metavar="B", typed_only=True,
        help="A run of side B, where a side has several: A1 A2 A3 --with B1 --with B2 --with B3.",
    ),
    Option(
        "differ", str, (), SIDES, several=True, usual="nothing",
        help="What was meant to differ, separated by commas: machine, software, storage, data, options, state, all, or "
        "a field such as torch.",
    ),
    Option(
        "fail_if_slower", str, None, GATES, metavar="SHARE", usual="no gate; 5% is called slower",
        help="Exit with 6 where B is slower by this share or more, in a row or in all rows together. Also where a row "
        "is too noisy to show that. It is the least change that is called slower or faster.",
    ),
    Option("fail_if_unclear", bool, False, GATES, "Exit with 6 where a row is too noisy to say."),
    Option("fail_if_verdict_changes", bool, False, GATES, "Exit with 6 where something else limits B."),
    Option(
        "allow_unclear", bool, False, GATES,
        "Let --fail-if-slower hold where rows are too noisy to show such a loss.",
    ),
    *SHOWN,
)  # fmt: skip

LAYERS = (
    LOADED_IMAGES,
    LOADING_WORKERS,
    MODEL,
    DEVICE,
    BATCH_SIZE,
    IMAGE_SIZE,
    PRECISION,
    Option("steps", int, 10, MEASURING, "Steps without a profiler, and with.", least=4, most=1000),
    Option("drill", bool, False, MEASURING, "Go on to the slowest operator and its source line."),
    *KEPT,
)

DOCTOR = (Option("path", Path, Path(), ARGUMENT, "A directory on the storage of the data."),)
EXPLAIN = (Option("topic", str, None, ARGUMENT, "A topic of the guide. Without it, the topics are listed."),)

BATCH_SIZES = (
    LOADED_IMAGES, LOADING_WORKERS, MODEL, DEVICE, IMAGE_SIZE, PRECISION,
    Option(
        "memory", str, None, COMPUTE, "Most that training may take, like 8GiB.",
        usual="all of a GPU, 70 % of what is available to the CPU",
    ),
    Option(
        "strategy", Literal["throughput", "gpu-usage", "epoch-time"], "throughput", MEASURING,
        "throughput: most images/s. The others are those of the paper, in fp32.",
    ),
    Option(
        "most", int, None, MEASURING, "Largest batch size to try.", typed="--max", least=1,
        usual="1024; 256 as the paper",
    ),
    Option(
        "iterations", int, None, MEASURING, "Steps of each probe.", least=1,
        usual="as many as take 2 s; 1000 as the paper",
    ),
    *KEPT,
)  # fmt: skip

"""Public training scripts: where each is found, what it is given, and what it needs; the data they ask for, generated.

Photographs are in the layouts that they expect, and small models where they would ask a hub for trained ones.
"""

from __future__ import annotations

import io
import os
import pickle
import shlex
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from scripts.benches.by_hand import WAYS
from scripts.benches.harness import photographs

PHOTOGRAPHS, FOR_VALIDATION, CLASSES = 1200, 48, 10
FEW = 96
"""Photographs where epochs are to be short."""
SLOW = 240
"""Photographs that a slow disk holds."""
DIGITS = {"train": 60_000, "t10k": 10_000}
"""Images of MNIST in each of its parts."""
METRIC = """
import datasets
import evaluate
import numpy

class Accuracy(evaluate.Metric):
    def _info(self):
        kinds = {"predictions": datasets.Value("int32"), "references": datasets.Value("int32")}
        return evaluate.MetricInfo(description="", citation="", features=datasets.Features(kinds))

    def _compute(self, predictions, references):
        return {"accuracy": float(numpy.mean(numpy.asarray(predictions) == numpy.asarray(references)))}
"""
VIT = """
import sys
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor
size = {"height": 64, "width": 64}
config = ViTConfig(image_size=64, patch_size=16, hidden_size=48, num_hidden_layers=2, num_attention_heads=2,
                   intermediate_size=96, num_labels=10)
ViTForImageClassification(config).save_pretrained(sys.argv[1])
ViTImageProcessor(size=size).save_pretrained(sys.argv[1])
"""
UNET = """{
"_class_name": "UNet2DModel", "sample_size": 32, "in_channels": 3, "out_channels": 3, "layers_per_block": 1,
"block_out_channels": [32, 32], "down_block_types": ["DownBlock2D", "DownBlock2D"],
"up_block_types": ["UpBlock2D", "UpBlock2D"], "norm_num_groups": 8
}"""
HUB = """
import sys
from pathlib import Path
from safetensors.torch import save_file
from timm import create_model
model = create_model(sys.argv[1], pretrained=False)
place = Path(sys.argv[2], "hub", "models--" + model.pretrained_cfg["hf_hub_id"].replace("/", "--"))
for folder in ("refs", "snapshots/made"):
    (place / folder).mkdir(parents=True, exist_ok=True)
(place / "refs" / "main").write_text("made")
save_file(model.state_dict(), place / "snapshots" / "made" / "model.safetensors")
"""
"""A model without training, where timm looks for a trained one."""


@dataclass(frozen=True, slots=True)
class Data:
    """Folders under `root`, each made when it is first asked for."""

    root: Path

    def classes(self, count: int = PHOTOGRAPHS) -> Path:
        """`train/CLASS/FILE` with so many photographs, and `val/CLASS/FILE`."""
        made = self.root / f"classes-{count}"
        if not made.exists():
            found = sorted(
                (photographs(self.root / "photographs", "500x375", PHOTOGRAPHS, CLASSES) / "train").rglob("*.JPEG")
            )
            step = len(found) // count
            for part, chosen in (("train", found[::step][:count]), ("val", found[::25][:FOR_VALIDATION])):
                for file in chosen:
                    _link(file, made / part / file.parent.name / f"{file.stem}.jpg")
        return made

    def flat(self, count: int = PHOTOGRAPHS) -> Path:
        """`CLASS_NUMBER.jpg`, as the Pets data set has them."""
        made = self.root / f"flat-{count}"
        if not made.exists():
            for number, file in enumerate(sorted((self.classes(count) / "train").rglob("*.jpg"))):
                _link(file, made / f"{file.parent.name}_{number}.jpg")
        return made

    def imagenette(self, count: int = PHOTOGRAPHS) -> Path:
        """A home of fastai, in which imagenette is there already."""
        home = self.root / f"fastai-{count}"
        made = home / "data" / "imagenette2-320"
        if not made.exists():
            lines = ["path,noisy_labels_0,is_valid"]
            for file in sorted(self.classes(count).rglob("*.jpg")):
                path = file.relative_to(self.classes(count))
                _link(file, made / path)
                lines.append(f"{path},{path.parts[1]},{path.parts[0] == 'val'}")
            (home / "config.ini").write_text(
                "[DEFAULT]\ndata = data\narchive = archive\nstorage = tmp\nmodel = models\n"
            )
            (made / "noisy_imagenette.csv").write_text("\n".join(lines))
        return home

    def digits(self) -> Path:
        """Noise of 28 x 28, as MNIST has its digits."""
        made = self.root / "digits"
        raw, random = made / "MNIST" / "raw", np.random.default_rng(0)
        if not made.exists():
            raw.mkdir(parents=True)
            for part, count in DIGITS.items():
                _idx(raw / f"{part}-images-idx3-ubyte", random.integers(0, 256, (count, 28, 28), np.uint8))
                _idx(raw / f"{part}-labels-idx1-ubyte", random.integers(0, CLASSES, count, np.uint8))
        return made

    def bsds(self) -> Path:
        """`train` and `test` with photographs, flat."""
        made = self.root / "bsds"
        if not made.exists():
            for part, of in (("train", "train"), ("test", "val")):
                for number, file in enumerate(sorted((self.classes() / of).rglob("*.jpg"))):
                    _link(file, made / part / f"{number}.jpg")
        return made

    def boxes(self, count: int = PHOTOGRAPHS) -> Path:
        """What describes photographs with a box in each, in the form of YOLO."""
        made = self.root / f"boxes-{count}"
        described = made / "boxes.yaml"
        if not made.exists():
            for file in self.classes(count).rglob("*.jpg"):
                part, kind = file.relative_to(self.root).parts[1:3]
                _link(file, made / "images" / part / f"{kind}-{file.name}")
                label = made / "labels" / part / f"{kind}-{file.stem}.txt"
                label.parent.mkdir(parents=True, exist_ok=True)
                label.write_text("0 0.5 0.5 0.4 0.4\n")
            described.write_text(f"path: {made}\ntrain: images/train\nval: images/val\nnames:\n  0: thing\n")
        return described

    def fonts(self) -> Path:
        """A folder of settings that holds the fonts which would be downloaded."""
        made = self.root / "fonts"
        for name in ("Arial.ttf", "Ultralytics/Arial.ttf"):
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).touch()
        return made

    def shards(self) -> Path:
        """Four shards of photographs with a caption each."""
        made = self.root / "shards"
        if not made.exists():
            files = sorted((self.classes() / "train").rglob("*.jpg"))
            made.mkdir()
            for number in range(4):
                with tarfile.open(made / f"shard-{number:06}.tar", "w") as shard:
                    for place, file in enumerate(files[number::4]):
                        shard.add(file, f"{place:06}.jpg")
                        words = f"photograph {place} of {file.parent.name}".encode()
                        entry = tarfile.TarInfo(f"{place:06}.txt")
                        entry.size = len(words)
                        shard.addfile(entry, io.BytesIO(words))
        return made

    def graphs(self) -> Path:
        """Rings of 18 nodes, as MUTAG has its molecules."""
        made, count, nodes = self.root / "graphs", 1000, 18
        if not made.exists():
            made.mkdir()
            ring = [(node, (node + 1) % nodes) for node in range(nodes)]
            edges = [(graph * nodes + 1 + a, graph * nodes + 1 + b) for graph in range(count) for a, b in ring]
            both = [f"{a}, {b}" for pair in edges for a, b in (pair, pair[::-1])]
            for name, lines in {
                "A": both,
                "edge_labels": [str(number % 4) for number in range(len(both))],
                "graph_indicator": [str(node // nodes + 1) for node in range(count * nodes)],
                "graph_labels": [str(graph % 2 * 2 - 1) for graph in range(count)],
                "node_labels": [str(node % 7) for node in range(count * nodes)],
            }.items():
                (made / f"MUTAG_{name}.txt").write_text("\n".join(lines) + "\n")
        return made

    def text(self) -> Path:
        """`input.txt` with a million letters."""
        made = self.root / "text"
        if not made.exists():
            made.mkdir()
            (made / "input.txt").write_text("O God, O God! What letters are these? " * 26_000)
        return made

    def letters(self) -> Path:
        """The same as numbers of two bytes, to be mapped."""
        made = self.root / "letters"
        if not made.exists():
            made.mkdir()
            text = np.frombuffer((self.text() / "input.txt").read_bytes(), np.uint8).astype(np.uint16)
            for part, values in (("train", text), ("val", text[:100_000])):
                (made / f"{part}.bin").write_bytes(values.tobytes())
            (made / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 256}))
        return made

    def unet(self, folder: Path) -> Path:
        """The configuration of a small UNet of diffusers, in this folder."""
        made = folder / "unet.json"
        made.write_text(UNET)
        return made

    def vit(self) -> Path:
        """A vision transformer of two layers, for images of 64 x 64, with its image processor."""
        made = self.root / "vit"
        if not made.exists():
            _python(VIT, str(made))
        return made

    def hub(self, model: str) -> Path:
        """A home of the hub that holds one of timm's models."""
        home = self.root / "hub"
        if not (home / model).exists():
            _python(HUB, model, str(home))
            (home / model).touch()
        return home

    def metric(self) -> Path:
        """The folder of a metric."""
        made = self.root / "metric"
        if not made.exists():
            made.mkdir()
            (made / "accuracy.py").write_text(METRIC)
        return made


def _idx(file: Path, values: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    """The format of MNIST: two zeros, the type, the number of dimensions, the length of each, the values."""
    lengths = np.array(values.shape, ">i4")
    file.write_bytes(bytes((0, 0, 8, values.ndim)) + lengths.tobytes() + values.tobytes())


def _link(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    os.link(file, to)


def _python(text: str, *given: str) -> None:
    subprocess.run([sys.executable, "-c", text, *given], check=True)


class _Made:
    """What stands in braces: made when it is asked for, `{hub:NAME}` with that name."""

    def __init__(self, make: Callable[..., object]) -> None:
        self._make = make

    def __format__(self, spec: str) -> str:
        return str(self._make(spec) if spec else self._make())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One script of scripts.toml. In its words, paths and variables, names in braces stand for what `Data` makes."""

    name: str
    source: str
    """The repository and the file in it."""
    script: str
    """Below the folder of scripts; `-m MODULE` or the path of a command for one that its package installs."""
    packages: tuple[str, ...]
    """The first gives the version."""
    base: str = ""
    """Words of each call; those of the part come after them."""
    timed: str = ""
    """Of steps that are long enough, without saving."""
    light: str | None = None
    """Of short steps, for losses and CPU time; None for those that are timed."""
    saves: str | None = None
    """Short epochs over few photographs, with checkpoints in the folder `out`."""
    resumes: str | None = None
    """The same once these are there."""
    count: int = PHOTOGRAPHS
    """Of photographs."""
    folder: str = "{classes}/train"
    """Of the files that it reads."""
    laid: Mapping[str, str] = field(default_factory=dict)
    """Where it looks for files and no option says where, in its working folder: linked there, and itself copied."""
    inside: bool = False
    """Runs in its own folder, which is copied."""
    cached: bool = True
    """No samples are made before where there is no data set to ask for one."""
    endless: bool = False
    """Its loader keeps one iterator for all epochs."""
    batch: int = 0
    """Of the loader that trains, where others have as many samples."""
    slow: float = 0.0
    """Bytes/s of a disk on which its photographs are, planted; 0 for this machine's own."""
    unseen: str = ""
    """What has to be said of a script that cannot be measured, which then trains to its end."""
    least: int = 500
    """Samples of the loader that trains, where others have fewer."""
    steps: int = 200
    """Of which losses and CPU time are compared."""
    environment: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    """Of packages in versions that only this script asks for."""
    fastai: bool = False

    @property
    def ways(self) -> tuple[str, ...]:
        """Of the truth."""
        return tuple(way for way in WAYS if not self.unseen and (self.cached or way != "cached"))

    @property
    def installed(self) -> bool:
        """Whether its package brings it."""
        return self.script.startswith(("-m ", "/"))

    def made(self, text: str, data: Data, folder: Path = Path(), count: int = 0) -> str:
        """With what stands in braces, for a run in this folder."""
        photographs = count or self.count
        names: dict[str, Callable[..., object]] = {
            "classes": lambda: data.classes(photographs), "boxes": lambda: data.boxes(photographs),
            "unet": lambda: data.unet(folder), "folder": lambda: folder, "out": lambda: folder / "out",
            "root": lambda: data.root,
            **{name: getattr(data, name) for name in MADE},
        }  # fmt: skip
        return text.format_map({name: _Made(make) for name, make in names.items()})

    def words(self, part: str, data: Data, folder: Path) -> list[str]:
        """Those of one of its parts."""
        count = FEW if part in ("saves", "resumes") else 0
        own = getattr(self, part)
        return [self.made(word, data, folder, count) for word in shlex.split(f"{self.base} {own or ''}")]

    def missing(self, scripts: Path) -> str:
        """Why it cannot run; empty where it can."""
        for package in self.packages:
            try:
                version(package)
            except PackageNotFoundError:
                return f"{package} is not installed"
        if not self.installed and not (scripts / self.script).is_file():
            return f"no file {self.script} in the folder of --scripts"
        return ""

    def version(self) -> str:
        """Of its library."""
        return f"{self.packages[0]} {version(self.packages[0])}"


MADE = ("flat", "imagenette", "digits", "bsds", "fonts", "shards", "graphs", "text", "letters", "vit", "hub", "metric")


def _row(name: str, table: Mapping[str, Any]) -> Row:
    given = {**table.get(table[name].get("like", ""), {}), **table[name], "name": name}
    given.pop("like", None)
    given["script"] = given["script"].replace("{bin}", str(Path(sys.executable).parent))
    given["paths"] = tuple(path.replace("{prefix}", sys.prefix) for path in given.get("paths", ()))
    return Row(**{**given, "packages": tuple(given["packages"])})


_TABLE = tomllib.loads(Path(__file__).with_name("scripts.toml").read_text())
ROWS = tuple(_row(name, _TABLE) for name in _TABLE)


def sources() -> str:
    """For `--help`: a line a script."""
    found = {row.script: row.source for row in ROWS if not row.installed}
    return "\n".join(f"  {script:42} {source}" for script, source in found.items())

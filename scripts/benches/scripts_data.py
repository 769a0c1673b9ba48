"""What public scripts ask for: generated photographs in their layouts, and small models where they expect a hub's."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scripts.benches.harness import photographs

PHOTOGRAPHS, FOR_VALIDATION, CLASSES = 1200, 48, 10
FEW = 96
"""Photographs where epochs are to be short."""
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

    def metric(self, folder: Path) -> None:
        """The metric `accuracy`, below the folder in which a script runs."""
        (folder / "accuracy").mkdir(exist_ok=True)
        (folder / "accuracy" / "accuracy.py").write_text(METRIC)


def _idx(file: Path, values: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    """The format of MNIST: two zeros, the type, the number of dimensions, the length of each, the values."""
    lengths = np.array(values.shape, ">i4")
    file.write_bytes(bytes((0, 0, 8, values.ndim)) + lengths.tobytes() + values.tobytes())


def _link(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    os.link(file, to)


def _python(text: str, *given: str) -> None:
    subprocess.run([sys.executable, "-c", text, *given], check=True)

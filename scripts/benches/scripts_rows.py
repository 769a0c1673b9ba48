"""Public training scripts: where each is found, what it is given, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from scripts.benches.scripts_data import FEW, Data

Given = Callable[[Data, Path], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One script. Its words are made of the data and the folder in which it runs."""

    name: str
    source: str
    """The repository and the file in it."""
    script: str
    """Below the folder of scripts."""
    packages: tuple[str, ...]
    """The first gives the version."""
    timed: Given
    """Of steps that are long enough, without saving."""
    light: Given
    """Of short steps, for losses and CPU time."""
    saves: Given | None = None
    """Short epochs, with checkpoints in the folder `out`."""
    resumes: Given | None = None
    """The same once these are there."""
    folder: Callable[[Data], Path] = lambda data: data.classes() / "train"
    """Of the files that it reads."""
    least: int = 500
    """Samples of the loader that trains, where others have fewer."""
    steps: int = 200
    """Of which losses and CPU time are compared."""
    digits: tuple[str, ...] = ()
    """Where it looks for MNIST; the script itself is copied to where it then runs."""
    environment: Callable[[Data], Mapping[str, str]] = field(default=lambda data: {})
    fastai: bool = False

    def missing(self, scripts: Path) -> str:
        """Why it cannot run; empty where it can."""
        if not (scripts / self.script).is_file():
            return f"no file {self.script} in the folder of --scripts"
        for package in self.packages:
            try:
                version(package)
            except PackageNotFoundError:
                return f"{package} is not installed"
        return ""

    def version(self) -> str:
        """Of its library."""
        return f"{self.packages[0]} {version(self.packages[0])}"


def _imagenet(model: str, batch: int, *more: str) -> Given:
    words = ("-a", model, "-b", str(batch), "-j", "2", "--epochs", "400", "--no-accel", *more)
    return lambda data, folder: (*words, str(data.classes()))


def _timm(model: str, side: int, batch: int, workers: int, count: int = 0, *more: str) -> Given:
    def words(data: Data, folder: Path) -> Sequence[str]:
        classes = data.classes(count) if count else data.classes()
        return (
            str(classes), "--model", model, "--num-classes", "10", "--img-size", str(side), "-b", str(batch),
            "-j", str(workers), "--device", "cpu", "--epochs", "400", "--output", str(folder / "out"), *more,
        )  # fmt: skip

    return words


def _lightning(arch: str, batch: int, workers: int, *more: str, count: int = 0) -> Given:
    def words(data: Data, folder: Path) -> Sequence[str]:
        classes = data.classes(count) if count else data.classes()
        return (
            "fit", f"--model.data_path={classes}", f"--model.arch={arch}", f"--model.batch_size={batch}",
            f"--model.workers={workers}", "--trainer.accelerator=cpu", "--trainer.max_epochs=400", *more,
        )  # fmt: skip

    return words


def _transformers(batch: int, *more: str, count: int = 0) -> Given:
    def words(data: Data, folder: Path) -> Sequence[str]:
        data.metric(folder)
        classes = data.classes(count) if count else data.classes()
        return (
            "--model_name_or_path", str(data.vit()), "--train_dir", str(classes / "train"),
            "--validation_dir", str(classes / "val"), "--output_dir", str(folder / "out"), "--do_train",
            "--remove_unused_columns", "False", "--per_device_train_batch_size", str(batch), "--use_cpu",
            "--num_train_epochs", "400", "--dataloader_num_workers", "1", "--report_to", "none",
            "--label_column_name", "label", "--cache_dir", str(data.root / "cache"), "--disable_tqdm", "True",
            "--ignore_mismatched_sizes", *more,
        )  # fmt: skip

    return words


def _torchvision(model: str, side: int, batch: int, workers: int, *more: str, count: int = 0) -> Given:
    def words(data: Data, folder: Path) -> Sequence[str]:
        classes = data.classes(count) if count else data.classes()
        return (
            "--data-path", str(classes), "--model", model, "--device", "cpu", "-b", str(batch), "-j", str(workers),
            "--train-crop-size", str(side), "--val-crop-size", str(side), "--val-resize-size", str(side),
            "--epochs", "400", "--print-freq", "1000", "--output-dir", "", *more,
        )  # fmt: skip

    return words


def _accelerate(*more: str) -> Given:
    return lambda data, folder: ("--cpu", "--data_dir", str(data.flat()), *more)


def _fastai(side: int, batch: int) -> Given:
    words = ("--size", str(side), "--bs", str(batch), "--arch", "xresnet18", "--workers", "1", "--epochs", "400")
    return lambda data, folder: words


def _words(*words: str) -> Given:
    return lambda data, folder: words


def _into_out(given: Given, option: str) -> Given:
    return lambda data, folder: (*given(data, folder), option, str(folder / "out"))


def _offline(data: Data) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "1", "HF_HOME": str(data.root / "hub"), "DO_NOT_TRACK": "1"}


def _imagenet_saves(*more: str) -> Given:
    def words(data: Data, folder: Path) -> Sequence[str]:
        given = ("-a", "shufflenet_v2_x0_5", "-b", "8", "-j", "1", "--no-accel", *more)
        return (*given, str(data.classes(FEW)))

    return words


_TIMM_SAVES = ("test_efficientnet", 64, 8, 1, FEW, "--experiment", "kept")
ROWS = (
    Row(
        name="imagenet",
        source="pytorch/examples, imagenet/main.py",
        script="imagenet/main.py",
        packages=("torch",),
        timed=_imagenet("mobilenet_v3_small", 16, "-p", "1000"),
        light=_imagenet("mobilenet_v3_small", 2, "-p", "1000"),
        saves=_imagenet_saves("--epochs", "1"),
        resumes=_imagenet_saves("--epochs", "400"),
    ),
    Row(
        name="timm",
        source="huggingface/pytorch-image-models, train.py",
        script="timm/train.py",
        packages=("timm",),
        timed=_timm("test_efficientnet", 64, 32, 1),
        light=_timm("test_efficientnet", 64, 4, 1),
        saves=_timm(*_TIMM_SAVES, "--epochs", "1", "--cooldown-epochs", "0"),
        resumes=_timm(*_TIMM_SAVES),
    ),
    Row(
        name="lightning",
        source="Lightning-AI/pytorch-lightning, examples/pytorch/domain_templates/imagenet.py",
        script="lightning/imagenet.py",
        packages=("lightning", "jsonargparse"),
        timed=_lightning("mobilenet_v3_small", 16, 1),
        light=_lightning("mobilenet_v3_small", 2, 1),
        saves=_lightning("shufflenet_v2_x0_5", 8, 1, "--trainer.max_epochs=1", count=FEW),
        resumes=_lightning("shufflenet_v2_x0_5", 8, 1, count=FEW),
    ),
    Row(
        name="lightning-cli",
        source="Lightning-AI/pytorch-lightning, the same path",
        script="examples/pytorch/basics/backbone_image_classifier.py",
        packages=("lightning", "jsonargparse"),
        timed=_words("--trainer.accelerator=cpu", "--trainer.max_epochs=400"),
        light=_words("--trainer.accelerator=cpu", "--trainer.max_epochs=400"),
        folder=lambda data: data.digits(),
        least=20_000,
        digits=("data", "examples/Datasets"),
    ),
    Row(
        name="fabric",
        source="Lightning-AI/pytorch-lightning, the same path",
        script="examples/fabric/image_classifier/train_fabric.py",
        packages=("lightning", "torchmetrics"),
        timed=_words("--epochs", "400", "--log-interval", "1000"),
        light=_words("--epochs", "400", "--log-interval", "1000", "--batch-size", "4"),
        folder=lambda data: data.digits(),
        least=20_000,
        digits=("Datasets",),
    ),
    Row(
        name="transformers",
        source="huggingface/transformers, examples/pytorch/image-classification/run_image_classification.py",
        script="transformers/run_image_classification.py",
        packages=("transformers", "datasets", "evaluate"),
        timed=_transformers(16, "--save_strategy", "no", "--logging_steps", "1000"),
        light=_transformers(4, "--save_strategy", "no", "--logging_steps", "50"),
        saves=_transformers(8, "--save_steps", "12", "--max_steps", "24", count=FEW),
        resumes=_transformers(8, "--save_steps", "12", "--overwrite_output_dir", count=FEW),
        environment=_offline,
    ),
    Row(
        name="accelerate",
        source="huggingface/accelerate, examples/cv_example.py",
        script="accelerate/cv_example.py",
        packages=("accelerate", "timm"),
        timed=_accelerate("--mixed_precision", "bf16"),
        light=_accelerate("--mixed_precision", "bf16"),
        steps=12,
        folder=lambda data: data.flat(),
        environment=lambda data: {**_offline(data), "HF_HOME": str(data.hub("resnet50d"))},
    ),
    Row(
        name="torchvision",
        source="pytorch/vision, references/classification/train.py, with its utils.py, presets.py, sampler.py, "
        "transforms.py",
        script="torchvision/train.py",
        packages=("torchvision",),
        timed=_torchvision("shufflenet_v2_x0_5", 64, 32, 1, "--auto-augment", "augmix"),
        light=_torchvision("squeezenet1_1", 64, 4, 1),
        saves=_into_out(_torchvision("squeezenet1_1", 64, 8, 1, "--epochs", "1", count=FEW), "--output-dir"),
        resumes=_into_out(_torchvision("squeezenet1_1", 64, 8, 1, count=FEW), "--output-dir"),
    ),
    Row(
        name="fastai",
        source="fastai/fastai, nbs/examples/train_imagenette.py",
        script="fastai/train_imagenette.py",
        packages=("fastai",),
        timed=_fastai(64, 16),
        light=_fastai(32, 4),
        folder=lambda data: data.imagenette() / "data" / "imagenette2-320" / "train",
        environment=lambda data: {"FASTAI_HOME": str(data.imagenette())},
        fastai=True,
    ),
)


def sources() -> str:
    """For `--help`: a line a script."""
    return "\n".join(f"  {row.script:42} {row.source}" for row in ROWS)

"""Public training scripts: where each is found, what it is given, and what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from scripts.benches.scripts_data import FEW, SLOW, Data
from scripts.benches.scripts_truth import WAYS

Given = Callable[[Data, Path], Sequence[str]]
NOT_CACHED = tuple(way for way in WAYS if way != "cached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One script. Its words are made of the data and the folder in which it runs."""

    name: str
    source: str
    """The repository and the file in it."""
    script: str
    """Below the folder of scripts; `-m MODULE` or the path of a command for one that its package installs."""
    packages: tuple[str, ...]
    """The first gives the version."""
    timed: Given
    """Of steps that are long enough, without saving."""
    light: Given | None = None
    """Of short steps, for losses and CPU time; None for those that are timed."""
    saves: Given | None = None
    """Short epochs, with checkpoints in the folder `out`."""
    resumes: Given | None = None
    """The same once these are there."""
    folder: Callable[[Data], Path] = lambda data: data.classes() / "train"
    """Of the files that it reads."""
    laid: Mapping[str, Callable[[Data], Path]] = field(default_factory=dict)
    """Where it looks for files and no option says where, in its working folder: linked there, and itself copied."""
    inside: bool = False
    """Runs in its own folder, which is copied."""
    ways: tuple[str, ...] = WAYS
    """Of the truth; no samples are made before where there is no data set to ask for one."""
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
    environment: Callable[[Data], Mapping[str, str]] = field(default=lambda data: {})
    paths: tuple[str, ...] = ()
    """Of packages in versions that only this script asks for."""
    fastai: bool = False

    @property
    def installed(self) -> bool:
        """Whether its package brings it."""
        return self.script.startswith(("-m ", "/"))

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


def _command(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _ultralytics(*words: str, count: int = 0) -> Given:
    return lambda data, folder: (
        "detect", "train", f"data={data.boxes(count)}", "model=yolo11n.yaml", "imgsz=64", "device=cpu", "workers=1",
        "plots=False", "val=False", "amp=False", "epochs=400", f"project={folder / 'out'}", *words,
    )  # fmt: skip


def _yolov5(*words: str) -> Given:
    return lambda data, folder: (
        "--data", str(data.boxes()), "--weights", "", "--cfg", "yolov5n.yaml", "--img", "64", "--device", "cpu",
        "--workers", "1", "--noplots", "--noval", "--epochs", "400", "--project", str(folder / "out"), *words,
    )  # fmt: skip


def _dcgan(*words: str, count: int = 0) -> Given:
    return lambda data, folder: (
        "--dataset", "folder", "--dataroot", str((data.classes(count) if count else data.classes()) / "train"),
        "--niter", "400", "--ngf", "16", "--ndf", "16", "--workers", "1", "--imageSize", "64", *words,
    )  # fmt: skip


def _diffusers(*words: str) -> Given:
    return lambda data, folder: (
        "--train_data_dir", str(data.classes(SLOW) / "train"), "--model_config_name_or_path", str(data.unet(folder)),
        "--resolution", "32", "--train_batch_size", "16", "--num_epochs", "400", "--ddpm_num_inference_steps", "2",
        "--eval_batch_size", "1", "--save_images_epochs", "1000", "--save_model_epochs", "1000",
        "--cache_dir", str(folder / "cache"), "--output_dir", str(folder / "out"), *words,
    )  # fmt: skip


def _open_clip(batch: int, *words: str) -> Given:
    return lambda data, folder: (
        "--train-data", f"{data.shards()}/shard-{{000000..000003}}.tar", "--train-num-samples", "1200",
        "--dataset-type", "webdataset", "--model", "ViT-S-32-alt", "--batch-size", str(batch), "--workers", "2",
        "--device", "cpu", "--precision", "fp32", "--epochs", "400", "--logs", str(folder / "out"), *words,
    )  # fmt: skip


def _lightly(*words: str) -> Given:
    return lambda data, folder: (
        f"input_dir={data.classes() / 'train'}", "pre_trained=False", "model.name=resnet-9", "model.width=0.125",
        "loader.num_workers=1", "trainer.max_epochs=400", *words,
    )  # fmt: skip


def _nanogpt(*words: str) -> Given:
    return _words(
        "--dataset=letters", "--device=cpu", "--compile=False", "--eval_iters=2", "--eval_interval=500",
        "--block_size=64", "--batch_size=12", "--n_layer=2", "--n_head=2", "--n_embd=64", "--dropout=0.0",
        "--gradient_accumulation_steps=1", "--log_interval=100", *words,
    )  # fmt: skip


def _words(*words: str) -> Given:
    return lambda data, folder: words


def _into_out(given: Given, option: str) -> Given:
    return lambda data, folder: (*given(data, folder), option, str(folder / "out"))


def _offline(data: Data) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "1", "HF_HOME": str(data.root / "hub"), "DO_NOT_TRACK": "1"}


def _fonts(data: Data) -> dict[str, str]:
    return {"YOLO_CONFIG_DIR": str(data.fonts()), "YOLO_OFFLINE": "true"}


def _imagenet_saves(*more: str) -> Given:
    def words(data: Data, folder: Path) -> Sequence[str]:
        given = ("-a", "shufflenet_v2_x0_5", "-b", "8", "-j", "1", "--no-accel", *more)
        return (*given, str(data.classes(FEW)))

    return words


_TIMM_SAVES = _timm(
    "test_efficientnet", 64, 8, 1, FEW, "--experiment", "kept", "--epochs", "1", "--cooldown-epochs", "0"
)
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
        saves=_TIMM_SAVES,
        resumes=_TIMM_SAVES,
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
        laid={"data": Data.digits, "examples/Datasets": Data.digits},
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
        laid={"Datasets": Data.digits},
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
    Row(
        name="ultralytics",
        source="ultralytics, its command yolo",
        script=_command("yolo"),
        packages=("ultralytics",),
        timed=_ultralytics("batch=8", "save=False"),
        saves=_ultralytics("batch=8", "epochs=1", "name=kept", "exist_ok=True", count=FEW),
        resumes=_ultralytics("batch=8", "name=kept", "exist_ok=True", count=FEW),
        environment=_fonts,
        ways=NOT_CACHED,
        endless=True,
        steps=60,
    ),
    Row(
        name="yolov5",
        source="ultralytics/yolov5, train.py, with its models, utils and data",
        script="yolov5/train.py",
        packages=("ultralytics", "seaborn", "gitpython"),
        timed=_yolov5("--batch-size", "8", "--nosave"),
        environment=lambda data: {**_fonts(data), "YOLOV5_CONFIG_DIR": str(data.fonts()), "YOLO_AUTOINSTALL": "false"},
        ways=NOT_CACHED,
        endless=True,
        steps=60,
    ),
    Row(
        name="open-clip",
        source="open_clip_train, as installed",
        script="-m open_clip_train.main",
        packages=("open_clip_torch", "webdataset"),
        paths=(str(Path(sys.prefix) / "for-open-clip"),),
        timed=_open_clip(8, "--save-frequency", "0"),
        folder=Data.shards,
        ways=NOT_CACHED,
        steps=60,
    ),
    Row(
        name="keras",
        source="keras-team/keras, examples/demo_functional.py",
        script="keras/demo_functional.py",
        packages=("keras",),
        timed=_words(),
        folder=Data.text,
        least=20_000,
        ways=NOT_CACHED,
        environment=lambda data: {"KERAS_BACKEND": "torch", "KERAS_HOME": str(data.root / "keras")},
    ),
    Row(
        name="ignite",
        source="pytorch/ignite, examples/mnist/mnist.py",
        script="ignite/mnist.py",
        packages=("pytorch-ignite", "tqdm"),
        timed=_words("--batch_size", "512", "--epochs", "400"),
        folder=Data.digits,
        least=20_000,
        laid={"MNIST": lambda data: data.digits() / "MNIST"},
        steps=150,
    ),
    Row(
        name="pyg",
        source="pyg-team/pytorch_geometric, examples/mutag_gin.py",
        script="pyg/mutag_gin.py",
        packages=("torch_geometric",),
        timed=_words("--epochs", "100000"),
        folder=Data.graphs,
        ways=NOT_CACHED,
        laid={"data/TU/MUTAG/raw": Data.graphs},
    ),
    Row(
        name="monai",
        source="Project-MONAI/tutorials, 2d_segmentation/torch/unet_training_dict.py",
        script="monai/unet_training_dict.py",
        packages=("monai", "tensorboard", "matplotlib"),
        timed=_words(),
        saves=_words(),
        resumes=_words(),
        folder=Data.text,
        least=20,
        batch=2,
        steps=60,
        ways=NOT_CACHED,
    ),
    Row(
        name="mingpt",
        source="karpathy/minGPT, projects/chargpt/chargpt.py, with its folder mingpt beside it",
        script="minGPT/chargpt.py",
        packages=("torch",),
        timed=_words("--model.model_type=gpt-nano", "--trainer.batch_size=16", "--trainer.num_workers=1"),
        folder=Data.text,
        laid={"": Data.text},
    ),
    Row(
        name="nanogpt",
        source="karpathy/nanoGPT, train.py, with its model.py and configurator.py",
        script="nanoGPT/train.py",
        packages=("torch",),
        timed=_nanogpt("--max_iters=2000"),
        laid={"nanoGPT/data/letters": Data.letters},
        inside=True,
        ways=(),
        unseen="DataLoader",
    ),
    Row(
        name="dcgan",
        source="pytorch/examples, dcgan/main.py",
        script="dcgan/main.py",
        packages=("torchvision",),
        timed=_dcgan("--batchSize", "32"),
        steps=80,
    ),
    Row(
        name="dcgan-slow",
        source="pytorch/examples, dcgan/main.py",
        script="dcgan/main.py",
        packages=("torchvision",),
        timed=_dcgan("--batchSize", "8", count=SLOW),
        folder=lambda data: data.classes(SLOW) / "train",
        least=SLOW,
        slow=4e6,
        steps=120,
    ),
    Row(
        name="super-resolution",
        source="pytorch/examples, super_resolution/main.py, with its data.py, dataset.py, model.py",
        script="super_resolution/main.py",
        packages=("torchvision",),
        timed=_words("--upscale_factor", "3", "--batchSize", "4", "--threads", "2", "--nEpochs", "400"),
        folder=Data.bsds,
        laid={"dataset/BSDS300/images": Data.bsds},
        steps=80,
    ),
    Row(
        name="mnist-hogwild",
        source="pytorch/examples, mnist_hogwild/main.py, with its train.py",
        script="mnist_hogwild/main.py",
        packages=("torchvision",),
        timed=_words("--epochs", "1", "--log-interval", "1000"),
        folder=Data.digits,
        laid={"../data": Data.digits},
        ways=(),
        unseen="2 processes of the command train",
    ),
    Row(
        name="vae",
        source="pytorch/examples, vae/main.py, with its folder results",
        script="vae/main.py",
        packages=("torchvision",),
        timed=_words("--epochs", "400", "--log-interval", "1000"),
        folder=Data.digits,
        least=20_000,
        laid={"data": Data.digits},
        inside=True,
    ),
    Row(
        name="siamese",
        source="pytorch/examples, siamese_network/main.py",
        script="siamese_network/main.py",
        packages=("torchvision",),
        timed=_words("--batch-size", "32", "--epochs", "400", "--log-interval", "1000"),
        folder=Data.digits,
        least=20_000,
        laid={"../data": Data.digits},
        steps=60,
    ),
    Row(
        name="diffusers",
        source="huggingface/diffusers, examples/unconditional_image_generation/train_unconditional.py",
        script="diffusers/train_unconditional.py",
        packages=("diffusers", "accelerate", "datasets", "tensorboard"),
        timed=_diffusers(),
        environment=_offline,
        folder=lambda data: data.classes(SLOW) / "train",
        least=SLOW,
    ),
    Row(
        name="diffusers-slow",
        source="huggingface/diffusers, examples/unconditional_image_generation/train_unconditional.py",
        script="diffusers/train_unconditional.py",
        packages=("diffusers", "accelerate", "datasets", "tensorboard"),
        timed=_diffusers(),
        environment=_offline,
        folder=lambda data: data.classes(SLOW) / "train",
        least=SLOW,
        slow=2e6,
    ),
    Row(
        name="lightly",
        source="lightly, its command lightly-ssl-train",
        script=_command("lightly-ssl-train"),
        packages=("lightly", "hydra-core"),
        timed=_lightly("loader.batch_size=16"),
        steps=60,
    ),
)


def sources() -> str:
    """For `--help`: a line a script."""
    found = {row.script: row.source for row in ROWS if not row.installed}
    return "\n".join(f"  {script:42} {source}" for script, source in found.items())

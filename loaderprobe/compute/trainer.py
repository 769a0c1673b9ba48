"""A classifier on one device: forward, backward, SGD with momentum, with the options of a real trainer."""

from __future__ import annotations

import copy
import platform
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from loaderprobe.batches import parts_of
from loaderprobe.compute.profile import thread_numbers
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.protocols import MakeModel
from loaderprobe.records.config import CHANNEL_DEVIATION, CHANNEL_MEAN, ComputeSpec, Precision

LEARNING_RATE = 0.1
MOMENTUM = 0.9
CLASSES = 1000

AUTOCAST: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
GUIDE = "`loaderprobe explain plug-ins` shows what a model must do"
MODEL_NAMES = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "resnet152": "ResNet-152", "vgg16": "VGG16"}
FORMATS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}


def checked_model(name: str, make_model: MakeModel) -> Any:
    """A classifier. Raises BadValue for what cannot train."""
    model = make_model(num_classes=CLASSES)
    if not isinstance(model, torch.nn.Module):
        raise BadValue(f"the model '{name}' is {type(model).__name__}, not a torch.nn.Module", hint=GUIDE)
    trainable(model)
    return model


def autocast_on(device: torch.device, dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    """Autocast to a type; none without one."""
    return torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def train_step(
    forward: Callable[[], Any], loss_of: Callable[[Any], Any], optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler, autocast: AbstractContextManager[Any],
    part: Callable[[Any], AbstractContextManager[None]] = lambda name: nullcontext(),
    in_backward: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:  # fmt: skip
    """One step; `part` is around each part of it, by its name. A scaler that is not enabled changes nothing."""
    with part("zero_grad"):
        optimizer.zero_grad(set_to_none=True)
    with autocast:
        with part("forward"):
            given = forward()
        with part("loss"):
            loss = loss_of(given)
    with part("backward"), in_backward():
        scaler.scale(loss).backward()
    with part("optimizer"):
        scaler.step(optimizer)
        scaler.update()


class Trainer:
    """A model, its optimizer and its loss on one device. Raises BadValue for a model that cannot train."""

    def __init__(
        self, device: torch.device, spec: ComputeSpec, make_model: MakeModel | None = None,
        among_ranks: Callable[[Any], Any] = lambda model: model,
    ) -> None:  # fmt: skip
        """`among_ranks` wraps the model of one of several ranks."""
        self.device = device
        usual: Precision = "bf16" if device.type == "cuda" else "fp32"
        self.precision = usual if spec.precision == "auto" else spec.precision
        self.memory_format = FORMATS[spec.memory_format]
        self.spec = spec
        self.backward_threads: frozenset[int] = frozenset()
        """The ids of autograd's thread in profilers; empty before the first step."""
        if device.type == "cuda" and self.precision in ("fp32", "tf32"):
            # torch allows TF32 for convolutions by default.
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
        if make_model is None:
            # Ranks with another model do without torchvision, which takes 2 s in each of them.
            from torchvision.models import resnet50

            make_model = resnet50
        model = checked_model(spec.model, make_model)
        model = model.to(device, memory_format=self.memory_format).train()
        wrapped = among_ranks(model)
        self._model: Any = torch.compile(wrapped) if spec.compile else wrapped
        # A scaled loss is looked at before each step, which waits for the GPU, unless the optimizer itself looks.
        fused = {"fused": True} if self.precision == "fp16" and device.type == "cuda" else {}
        self._optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, **fused)
        self._scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "fp16")
        self._loss = torch.nn.CrossEntropyLoss()
        self._mean, self._deviation = (
            torch.tensor(values, device=device).reshape(1, 3, 1, 1) for values in (CHANNEL_MEAN, CHANNEL_DEVIATION)
        )

    def copy(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (N x 3 x 224 x 224) and labels on the device; asynchronous from pinned memory.

        Bytes are normalised there, as floats are in the workers.
        """
        images, labels = batch
        images = images.to(self.device, non_blocking=True, memory_format=self.memory_format)
        return self.normalised(images), labels.to(self.device, non_blocking=True)

    def normalised(self, images: torch.Tensor) -> torch.Tensor:
        """Floats unchanged; bytes as floats, normalised by ImageNet's means and deviations."""
        return images if images.is_floating_point() else (images.float() / 255 - self._mean) / self._deviation

    def train_step(self, batch: Any) -> None:
        """One step, of classes modulo 1000. The loss stays on the device: reading it would wait for the GPU."""
        images, labels = batch
        train_step(
            lambda: self._logits(images), lambda logits: self._noted(self._loss(logits, labels % CLASSES)),
            self._optimizer, self._scaler, autocast_on(self.device, AUTOCAST.get(self.precision)),
        )  # fmt: skip

    def _logits(self, images: torch.Tensor) -> torch.Tensor:
        """What the model gives for images, N x 1000. Raises BadValue for anything else."""
        given = self._model(images)
        if not isinstance(given, torch.Tensor) or given.shape != (len(images), CLASSES):
            what = tuple(given.shape) if isinstance(given, torch.Tensor) else f"a {type(given).__name__}"
            raise BadValue(
                f"the model '{self.spec.model}' gives {what} for {len(images)} images, "
                f"not a tensor of {len(images)} x {CLASSES}",
                hint=GUIDE,
            )
        return given

    def words(self) -> str:
        how = {"bf16": "bf16 autocast", "fp16": "fp16 autocast with a scaled loss", "tf32": "TF32", "fp32": "float32"}
        layout = self.spec.memory_format
        compiled = ", torch.compile" if self.spec.compile else ""
        model = MODEL_NAMES.get(self.spec.model, self.spec.model)
        return f"{model} training steps, {how[self.precision]}, {layout}{compiled}, SGD with momentum"

    def _noted(self, loss: Any) -> Any:
        if not self.backward_threads:
            loss.register_hook(self._note_thread)
        return loss

    def _note_thread(self, gradient: torch.Tensor) -> None:
        self.backward_threads = thread_numbers()


def is_loader(batch: Any) -> bool:
    """True for what gives batches one after the other; tensors, tuples, lists and dicts are batches."""
    return isinstance(batch, Iterable) and not isinstance(batch, torch.Tensor | Mapping | tuple | list)


def epochs(loader: Iterable[Any]) -> Generator[Any, None, None]:
    """Its batches, from the beginning again after the last. Raises BadValue for a loader without any."""
    while True:
        number = -1
        for number, batch in enumerate(loader):  # noqa: B007  # counted after the loop
            yield batch
        if number < 0:
            raise BadValue("the loader yields no batch", hint="iterate it yourself; is its data set empty?")


def called(model: torch.nn.Module, batch: Any) -> Any:
    """What the model gives for a batch: of (inputs, targets), for the inputs; a dict is given by name."""
    inputs = batch[0] if isinstance(batch, tuple | list) and len(batch) == 2 else batch
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def changed(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The batch with each of its tensors as `change` gives it, in tuples, named or not, lists and dicts."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {name: changed(value, change) for name, value in batch.items()}
    if not isinstance(batch, tuple | list):
        return batch
    parts = [changed(value, change) for value in batch]
    return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)


def moved(batch: Any, device: torch.device) -> Any:
    """The batch with all its tensors on the device."""
    return changed(batch, lambda tensor: tensor.to(device, non_blocking=True))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in tuples, lists and dicts."""
    return (part for part in parts_of(value) if isinstance(part, torch.Tensor))


NO_MEMORY = ("can't allocate memory", "out of memory", "_alloc_failed", "_allocation_failed")
"""In errors without a class of their own, in lower case: of the CPU's allocator, of CUDA, cuBLAS and cuDNN."""
NO_WORKSPACE = ("cudnn_status_not_supported", "unable to find a valid cudnn algorithm", "unable to find an engine")
"""What cuDNN says without memory for a convolution (pytorch/pytorch#4107), and of one that it cannot do at all."""


def out_of_memory(error: Exception, batch_size: int) -> bool:
    """True when there was no memory, of the GPU or of the CPU.

    Of several images that is also what it means where cuDNN finds no way to do a convolution: one image shows others.
    """
    texts = NO_MEMORY + NO_WORKSPACE if batch_size > 1 else NO_MEMORY
    said = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(text in said for text in texts)


def usual_loss(given: Any, batch: Any) -> Any:
    """The `loss` of what the model gave, else the cross entropy of it and the targets. Raises BadValue without."""
    loss = getattr(given, "loss", None)
    if loss is not None:
        return loss
    if isinstance(given, torch.Tensor) and isinstance(batch, tuple | list) and len(batch) == 2:
        return torch.nn.functional.cross_entropy(given, batch[1])
    raise BadValue(
        f"there is no usual loss for a {type(given).__name__} and such a batch",
        hint="give loss=function(what the model gives, batch)",
    )


def trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The weights that training changes. Raises BadValue for a model without any."""
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not weights:
        raise BadValue("the model has no parameters to train", hint="give a model with weights that need gradients")
    return weights


def uuid_of(device: torch.device) -> str:
    """Of a GPU, in NVML's form."""
    name = str(torch.cuda.get_device_properties(device).uuid)
    return name if name.startswith(("GPU-", "MIG-")) else f"GPU-{name}"


def device_words(device: torch.device) -> str:
    """The name of a GPU, or the kind of CPU and torch's threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({platform.machine()}), {(count := torch.get_num_threads())} thread{'s' * (count > 1)}"


class ModelCopy:
    """A copy of a user's model that trains on batches of any form, part after part of the step.

    Raises BadValue for a model without weights.
    """

    def __init__(
        self, model: torch.nn.Module, loss: Callable[[Any, Any], Any], learning_rate: float, *, precision: str = "fp32"
    ) -> None:
        """`loss` is of (what the model gives, the batch). `precision` auto is bf16 on a GPU."""
        self.device = trainable(model)[0].device
        self.model = copy.deepcopy(model).train()
        self.optimizer = torch.optim.SGD(trainable(self.model), lr=learning_rate, momentum=MOMENTUM)
        bf16 = precision == "bf16" or (precision == "auto" and self.device.type == "cuda")
        self._loss, self._dtype = loss, torch.bfloat16 if bf16 else None
        of_weights = str(self._dtype or trainable(model)[0].dtype).removeprefix("torch.")
        self.precision = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(of_weights, of_weights)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=False)

    def step(
        self, batch: Any, part: Callable[[Any], AbstractContextManager[None]],
        in_backward: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:  # fmt: skip
        """One step on a batch that is on the device; `part` is around each part of it, by its name."""
        train_step(
            lambda: called(self.model, batch), lambda given: self._loss(given, batch), self.optimizer, self._scaler,
            autocast_on(self.device, self._dtype), part, in_backward,
        )  # fmt: skip

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class NoMemory(BadValue):
    """A batch does not fit."""


@contextmanager
def part_of_step(name: str, batch_size: int, *, among: bool = False) -> Iterator[None]:
    """Around a part of a step: raises NoMemory where memory ends in it, BadValue for whatever else its code raises.

    `among` where other sizes are tried, too.
    """
    try:
        yield
    except BadValue:
        raise
    except Exception as error:  # the model's own code may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if out_of_memory(error, batch_size if among else 1):
            said = f"a batch of {batch_size} does not fit into memory: {reason}"
            raise NoMemory(said, hint="use a smaller batch") from error
        raise BadValue(
            f"the model fails in {name} with a batch of {batch_size}: {reason}",
            hint=f"check that it trains on a batch of {batch_size} without loaderprobe",
        ) from error


def model_on(device: str, name: str, make_model: MakeModel) -> torch.nn.Module:
    """A classifier on its device. Raises BadValue, or MissingPart without a GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise MissingPart("torch finds no CUDA device", hint="run `loaderprobe doctor`; or use --compute cpu")
    model: torch.nn.Module = checked_model(name, make_model).to(device)
    return model


def random_images(batch_size: int, image_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(images N x 3 x S x S, labels N) in memory."""
    return torch.randn(batch_size, 3, image_size, image_size), torch.randint(CLASSES, (batch_size,))

"""`layers`: the time of each layer of a model in training, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.api.sweep_spec import compute_names, usual_batch
from loaderprobe.api.values import no_progress
from loaderprobe.measure.image_data import image_files, loader_of_images
from loaderprobe.plugins import check_name, resolve
from loaderprobe.protocols import OnStage
from loaderprobe.records.layers import LayersReport
from loaderprobe.records.options import LAYERS, check
from loaderprobe.render.json import result_json
from loaderprobe.render.layers import layer_columns, layers_document
from loaderprobe.system.host import SystemClock


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Layers(Documented, LayersReport):
    """The parts of a step, and the layers in the order in which they run. Shows itself."""

    table_name = "profile.csv"
    document = layers_document
    columns = layer_columns

    def json(self) -> str:
        """With the share of the whole that the layers add up to."""
        return result_json(self, layers_over_whole=self.over_whole)


def layers(
    model: Any,
    batch: Any,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    steps: int = 10,
    drill: bool = False,
    precision: str = "fp32",
    progress: OnStage = no_progress,
    name: str = "",
    command: str = "loaderprobe.layers(...)",
) -> Layers:
    """Time every layer of `model`, a `torch.nn.Module`, in training on `batch`, on the device of its weights.

    A copy is trained: the weights stay as they are. `batch` is (inputs, targets), or inputs alone; inputs that are a
    dict are given by name. It may be a loader, too: then loading its batches is a part of the step. `loss(given,
    batch)` returns the loss of what the model gave; without it, the `loss` of what the model gave, else the cross
    entropy of it and the targets. `steps` are timed without a profiler, and as many with it. `drill` goes on to the
    slowest operator and its source line. `precision` bf16 trains under autocast, as auto does on a GPU.
    `progress(stage, done, total)` hears of each step. `name` and `command` are for the report.

    Raises BadValue for what cannot be trained, saying in which part of the step it fails.
    """
    check(LAYERS, {"steps": steps, "precision": precision})
    from loaderprobe.compute.layers import measure_layers
    from loaderprobe.compute.trainer import usual_loss

    measured = measure_layers(
        model, batch, loss=loss or usual_loss, steps=steps, clock=SystemClock(), name=name or type(model).__name__,
        origin=origin_now(command), drill=drill, precision=precision, progress=progress,
    )  # fmt: skip
    return Layers.of(measured)


def named_layers(
    model: str, data: Path | None = None, *, workers: int = 0, device: str = "auto", batch_size: int | None = None,
    image_size: int = 224, steps: int = 10, drill: bool = False, precision: str = "auto",
    progress: OnStage = no_progress, command: str = "",
) -> Layers:  # fmt: skip
    """The layers of a model by name, on images of `data`, else on one batch of random ones in memory.

    Raises BadValue for an unknown name or a model that cannot be trained, MissingPart for one that cannot be imported
    or a GPU that is not there.
    """
    check_name("model", model)
    (chosen,) = compute_names(device)
    size = batch_size or usual_batch(chosen)
    files = None if data is None else image_files(data, sample=(steps * 2 + BEYOND) * size, progress=progress)
    # After all that can be wrong without torch, which takes seconds to import.
    from loaderprobe.compute.trainer import model_on, random_images

    made = model_on(chosen, model, resolve("model", model))
    batch: Any = random_images(size, image_size)
    if files is not None:
        batch = loader_of_images(files, batch_size=size, workers=workers, device=chosen)
    return layers(
        made, batch, steps=steps, drill=drill, precision=precision, progress=progress, name=model, command=command
    )


BEYOND = 6
"""Batches for warming up and for the drill."""

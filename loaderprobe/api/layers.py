"""`layers`: the time of each layer of a model in training, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from loaderprobe import __version__
from loaderprobe.api.frames import frame
from loaderprobe.api.shown import Shown
from loaderprobe.errors import BadValue
from loaderprobe.measure.clock import SystemClock
from loaderprobe.records.layers import LayersReport
from loaderprobe.render.document import document_html, document_markdown, document_text
from loaderprobe.render.layers import layer_columns, layers_document

if TYPE_CHECKING:
    from pandas import DataFrame

FEWEST_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Layers(Shown, LayersReport):
    """The parts of a step, and the layers in the order in which they run. Shows itself."""

    @classmethod
    def of(cls, found: LayersReport) -> Layers:
        """The same report, showing itself."""
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})

    def headline(self) -> str:
        """Model, time of a step, device."""
        return layers_document(self).title

    def text(self, *, width: int = 80, color: bool = False) -> str:
        """The slowest layer first, then the parts of a step and the layers."""
        return document_text(layers_document(self), width=width, color=color)

    def markdown(self) -> str:
        """The same as GitHub-flavoured Markdown."""
        return document_markdown(layers_document(self))

    def to_frame(self) -> DataFrame:
        """One row a call of a layer, units in the names. Raises MissingPart without pandas."""
        return frame(layer_columns(self))

    def _repr_html_(self) -> str:
        return document_html(layers_document(self))


def layers(
    model: Any,
    batch: Any,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    steps: int = 10,
    drill: bool = False,
    name: str = "",
) -> Layers:
    """Time every layer of `model`, a `torch.nn.Module`, in training on `batch`, on the device of its weights.

    A copy is trained: the weights stay as they are. `batch` is (inputs, targets), or inputs alone; inputs that are a
    dict are given by name. `loss(given, batch)` returns the loss of what the model gave; without it, the `loss` of
    what the model gave, else the cross entropy of it and the targets. `steps` are timed without a profiler, and as
    many with it. `drill` goes on to the slowest operator and its source line.

    Raises BadValue for what cannot be trained, saying in which part of the step it fails.
    """
    if steps < FEWEST_STEPS:
        raise BadValue(f"{steps} steps are too few", hint=f"use {FEWEST_STEPS} or more")
    from loaderprobe.compute.layers import measure_layers
    from loaderprobe.compute.model_batches import usual_loss

    found = measure_layers(
        model, batch, loss=loss or usual_loss, steps=steps, clock=SystemClock(), name=name or type(model).__name__,
        version=__version__, drill=drill,
    )  # fmt: skip
    return Layers.of(found)


def named_layers(
    model: str, *, batch_size: int, image_size: int, device: str, steps: int = 10, drill: bool = False
) -> Layers:
    """The layers of a model by name, on one batch of random images in memory.

    Raises BadValue for an unknown name or a model that cannot be trained, MissingPart for one that cannot be imported
    or a GPU that is not there.
    """
    from loaderprobe.compute.model_batches import random_images
    from loaderprobe.plugins import resolve

    make_model = resolve("model", model)
    made, batch = random_images(make_model, model, batch_size=batch_size, image_size=image_size, device=device)
    return layers(made, batch, steps=steps, drill=drill, name=model)

"""The requested settings of a generated set."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.datasets.generate.manifest import Layout, SetSpec
from loaderprobe.datasets.generate.oddities import OddityName
from loaderprobe.datasets.generate.pool import PoolRequest
from loaderprobe.errors import BadValue
from loaderprobe.units import Resolution, format_resolution

SHARD_IMAGES = 1000
# Painting those of all three usual resolutions takes some 10 s on two cores.
BASE_IMAGES = 20
MIXTURE_BASE_IMAGES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRequest:
    """A requested set. Raises BadValue for impossible numbers."""

    resolution: Resolution
    classes: int = 10
    seed: int = 0
    mean_bytes: int | None = None
    oddities: tuple[OddityName, ...] = ()
    layout: Layout = "folder"
    shard_images: int = SHARD_IMAGES
    base_images: int | None = None
    """Base images in the pool; None for the default."""

    def __post_init__(self) -> None:
        if (
            min(self.classes, self.shard_images, 1 if self.base_images is None else self.base_images) < 1
            or self.seed < 0
        ):
            raise BadValue("classes, images per shard and base images must be 1 or more, and the seed 0 or more")
        if self.mean_bytes is not None and self.mean_bytes < 1:
            raise BadValue("the mean size of a file must be 1 byte or more")

    def spec(self) -> SetSpec:
        """The settings that the files depend on, without the pool's digest."""
        usual = MIXTURE_BASE_IMAGES if isinstance(self.resolution, str) else BASE_IMAGES
        return SetSpec(
            resolution=format_resolution(self.resolution),
            classes=self.classes,
            seed=self.seed,
            base_images=self.base_images or usual,
            mean_bytes=self.mean_bytes,
            oddities=self.oddities,
            layout=self.layout,
            shard_images=self.shard_images if self.layout == "shards" else 1,
        )

    def pool(self) -> PoolRequest:
        """The pool that it needs."""
        return PoolRequest(
            resolution=None if isinstance(self.resolution, str) else self.resolution,
            seed=self.seed,
            base_images=self.spec().base_images,
            mean_bytes=self.mean_bytes,
            oddities=self.oddities,
        )

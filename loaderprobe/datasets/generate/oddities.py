"""Properties of a few of ImageNet's files that break loaders; off by default.

Each kind has fixed places: at `first`, and then every `every` images, as often as in the training set. So any set of
64 images or more has each requested kind at least once.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from PIL import Image, ImageCms

from loaderprobe.datasets.generate.jpeg import segment
from loaderprobe.errors import BadValue
from loaderprobe.units import join_words

OddityName = Literal["grey", "cmyk", "png", "exif", "icc"]
NAMES: tuple[OddityName, ...] = get_args(OddityName)
APP1, APP2 = 0xE1, 0xE2
ORIENTATION = 0x0112
# Bytes 24 to 35 of a profile say when it was made (ICC.1:2010, 7.2.8).
PROFILE_DATE = slice(24, 36)


MOST_IMAGES = 1 << 62
# Shares: of 1,000 files measured 23 were grey, 57 had EXIF and 286 a colour profile; of the whole training set, 22
# are CMYK and one is a PNG named .JPEG.
ODDITIES: dict[OddityName, range] = {
    "grey": range(7, MOST_IMAGES, 43),
    "cmyk": range(11, MOST_IMAGES, 58_235),
    "png": range(23, MOST_IMAGES, 1_281_167),
    "exif": range(3, MOST_IMAGES, 18),
    "icc": range(2, MOST_IMAGES, 7),
}
"""The images of each kind."""


def parse_oddities(text: str) -> tuple[OddityName, ...]:
    """The names of a comma-separated list, in their own order; `all` is all. Raises BadValue."""
    names = {item.strip() for item in text.split(",") if item.strip()}
    if unknown := sorted(names - {*NAMES, "all"}):
        raise BadValue(f"'{unknown[0]}' is not an oddity", hint=f"use {join_words(list(NAMES))}, or all")
    return NAMES if "all" in names else tuple(name for name in NAMES if name in names)


def content_at(index: int, oddities: Sequence[OddityName]) -> OddityName | None:
    """The odd content that image `index` has, if any: png before cmyk before grey."""
    return next((name for name in ("png", "cmyk", "grey") if name in oddities and index in ODDITIES[name]), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Application segments, made once: another version of a library may write different ones."""

    exif: tuple[bytes, ...] = ()
    """One for each of the eight orientations, used in turn."""
    icc: bytes = b""

    @classmethod
    def made(cls, oddities: Sequence[OddityName]) -> Segments:
        return cls(
            exif=tuple(map(_exif, range(1, 9))) if "exif" in oddities else (),
            icc=_profile() if "icc" in oddities else b"",
        )

    def at(self, index: int, oddities: Sequence[OddityName]) -> bytes:
        """The extra segments of image `index`."""
        extra = b""
        if "exif" in oddities and index in ODDITIES["exif"]:
            extra += self.exif[index // ODDITIES["exif"].step % len(self.exif)]
        if "icc" in oddities and index in ODDITIES["icc"]:
            extra += self.icc
        return extra


def _exif(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return segment(APP1, exif.tobytes())


def _profile() -> bytes:
    """sRGB, dated the same whenever it is made."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    profile[PROFILE_DATE] = b"\x07\xce\0\1\0\1\0\0\0\0\0\0"
    return segment(APP2, b"ICC_PROFILE\0\1\1" + bytes(profile))


def png_file(rng: np.random.Generator, width: int, height: int) -> bytes:
    """A PNG of a smooth image, to be named .JPEG like one file of ImageNet."""
    ramp = np.add.outer(np.arange(height), np.arange(width))
    pixels = (ramp[..., None] * rng.uniform(0.2, 1, 3)).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()

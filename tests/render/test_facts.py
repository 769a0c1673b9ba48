"""Facts as sentences quote them."""

from __future__ import annotations

import pytest

from loaderprobe.render.remarks import fact


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("files", "cold", "cold"),
        ("steps", 12.0, "12"),
        ("ranks", 1e6, "1000000"),
        ("share", 0.154, "15%"),
        ("predicted_share", 0.8, "80%"),
        ("exact_share", 0.0154, "1.5%"),
        ("first_bytes_per_s", 20.3e6, "20.3 MB/s"),
        ("least_images_per_s", 462.3, "462"),
        ("size_bytes", 467e6, "467 MB"),
        ("cold_s", 0.0021, "2.10"),
        ("clock_s", 67e-6, "67"),
        ("ended_after_s", 3.04, "3.0"),
        ("needed_s", 62.4, "62"),
        ("file_s", 0.0057, "5.70 ms"),
        ("cores", 15.51, "15.5"),
        ("status", 15.0, "the GPU has been lost"),
    ],
)
def test_a_fact_has_the_unit_of_its_name(name: str, value: float | str, words: str) -> None:
    """The longest end of a name that fits decides: a rate of bytes is no rate of images, a time of a clock no time."""
    assert fact(name, value) == words

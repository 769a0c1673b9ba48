"""pandas DataFrames and parquet, from columns; pandas is imported here and only when a frame is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from loaderprobe.errors import MissingPart

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(columns: Mapping[str, Sequence[object]]) -> DataFrame:
    """A DataFrame of these columns, in their order; None becomes NaN among numbers. Raises MissingPart."""
    try:
        import pandas
    except ImportError as error:
        raise MissingPart(
            f"a frame needs pandas, which cannot be imported: {error}", hint="pip install 'pandas>=2.2'"
        ) from error
    return pandas.DataFrame(dict(columns))


def parquet(table: DataFrame) -> bytes:
    """The frame as a parquet file. Raises MissingPart without pyarrow."""
    if find_spec("pyarrow") is None:
        raise MissingPart(
            "parquet needs pyarrow, which is not installed; all other formats work without it",
            hint="install pyarrow beside loaderprobe: python -m pip install pyarrow",
        )
    data: bytes = table.to_parquet(engine="pyarrow", index=False)
    return data

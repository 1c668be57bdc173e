"""Results of queries: Arrow tables, pandas and polars frames on request, and pictures with matplotlib.

Neither pandas nor polars nor matplotlib (the extra "plot") is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hushgram.errors import MissingPackage, ParameterError, naming_extras

if TYPE_CHECKING:
    from hushgram.sketch.reader import Sketch

__all__ = ["ResultTable", "Tabular", "plot_counts"]

_SHOWN_ROWS = 20
_LENGTH = 48  # characters of a key in a picture


class Tabular:
    """A result with an Arrow table, ``table``, which pandas and polars take over."""

    __slots__ = ()

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame."""
        _installed("pandas")
        return self._rows().to_pandas()

    def to_polars(self) -> Any:
        """Return the rows as a polars DataFrame."""
        return _installed("polars").from_arrow(self._rows())

    def _rows(self) -> pa.Table:
        return self.table  # type: ignore[attr-defined]

    def _repr_html_(self) -> str:
        """Render the first rows, for notebooks."""
        table = self._rows()
        head = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row.values()) + "</tr>"
            for row in table.slice(0, _SHOWN_ROWS).to_pylist()
        )
        more = f"<p>{table.num_rows - _SHOWN_ROWS:,} more rows</p>" if table.num_rows > _SHOWN_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


class ResultTable(Tabular):
    """An Arrow table that also becomes a pandas or polars frame. It has all that ``table``, the Arrow table, has.

    Where a library wants an Arrow table itself, give it ``table``; what takes the Arrow PyCapsule interface
    (``pa.table(result)``, ``polars.DataFrame(result)``, DuckDB) takes the result.
    """

    __slots__ = ("table",)

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def equals(self, other: Any) -> bool:
        """Return whether all columns and values are the same."""
        return bool(self.table.equals(getattr(other, "table", other)))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __getattr__(self, name: str) -> Any:
        if name == "table":  # of an object that is not made yet
            raise AttributeError(name)
        return getattr(self.table, name)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResultTable | pa.Table) and self.equals(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return str(self.table)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _installed(package: str) -> Any:
    """Return a package that a person may or may not have installed."""
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise MissingPackage(
            f"to_{package} needs the package {package}, which is not installed; pip install {package}"
        ) from None


def plot_counts(
    sketch: Sketch,
    keys: Any = None,
    *,
    top: int = 20,
    truth: Mapping[Any, float] | None = None,
    level: float = 0.95,
    ax: Any = None,
) -> Any:
    """Draw one row per key: its estimate, its interval and, where given, its true count. See `Sketch.plot`."""
    with naming_extras():
        from matplotlib import pyplot
    if keys is None:
        table = sketch.heavy(level=level).sort_by([("value", "descending"), ("fingerprint", "ascending")])
        table = table.slice(0, top)
        names = table["key" if "key" in table.column_names else "fingerprint"].to_pylist()
        middle = table["value"].to_numpy().astype(float)
    else:
        table = sketch.estimate(keys, level=level).slice(0, top)
        names = table["key"].to_pylist()
        middle = table["estimate"].to_numpy(zero_copy_only=False).astype(float)
    if not names:
        raise ParameterError("plot: there is nothing to draw: this release names no key; give keys")
    low, high = (table[name].to_numpy().astype(float) for name in ("low", "high"))
    rows, resolved = np.arange(len(names)), ~np.isnan(middle)
    if ax is None:
        _, ax = pyplot.subplots(figsize=(7.0, 1.0 + 0.28 * len(names)), layout="constrained")
    ax.hlines(
        rows, np.maximum(low, 0.0), high, color="C0", alpha=0.35, linewidth=6, label=f"{level:.0%} interval"
    )
    ax.plot(middle[resolved], rows[resolved], "o", color="C0", markersize=5, label="estimate")
    if truth is not None:
        known = [truth.get(name, np.nan) for name in names]
        ax.plot(
            known, rows, "|", color="C3", markersize=12, markeredgewidth=2, label="true count", clip_on=False
        )
    ax.set_yticks(rows, [_label(name) for name in names])
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set_xlabel(f"{sketch.measure} after bounding")
    ax.grid(axis="x", alpha=0.3)
    ax.legend(loc="lower right")
    return ax


def _label(name: Any) -> str:
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
    text = text.replace("$", r"\$")  # which begins a formula
    return text if len(text) <= _LENGTH else text[: _LENGTH - 1] + "…"

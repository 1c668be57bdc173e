"""A released table of randomized responses: a directory of Parquet parts, and the questions it answers.

    table/
      manifest.json           last: parameters, guarantee, columns, parts with sizes and SHA-256
      part-00000.parquet …    public columns as they are, secret bits flipped, in an order that tells nothing (`rows`)

Everything here is public and reading it costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hushgram.accounting import Event, Guarantee
from hushgram.contributions.keys import is_text
from hushgram.errors import FormatError, InputError, ParameterError
from hushgram.inputs.conditions import bind, kinds_together, numbers_in, parse
from hushgram.mechanisms.randomized_response.mechanism import (
    RandomizedResponseParams,
    ResponseEstimate,
    estimate,
)
from hushgram.numbers import Number, show

__all__ = ["ResponseTable", "guarantee", "manifest_text"]

_FORMAT = "hushgram responses"
_VERSION = 1


def _booleans(column: Any) -> NDArray[np.bool_]:
    filled = pc.fill_null(column, False)
    return np.asarray(
        filled.combine_chunks() if isinstance(filled, pa.ChunkedArray) else filled, dtype=np.bool_
    )


def guarantee(params: RandomizedResponseParams) -> Guarantee:
    """Return the guarantee of a table: for the bits of each record, in the local model."""
    parts = (Event("rr", params.bit_epsilon, relation="secret bit"),) * params.secrets
    return Guarantee(parts, unit="record", relation="secret bits changed", subject="The table is")


def manifest_text(
    params: RandomizedResponseParams,
    *,
    secrets: Sequence[str],
    public: Sequence[str],
    parts: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return the manifest of a table, from {part: {bytes, sha256}}."""
    manifest = {
        "format": _FORMAT,
        "version": _VERSION,
        "epsilon": show(params.epsilon),
        "secrets": list(secrets),
        "public": list(public),
        "guarantee": guarantee(params).sentence(),
        "parts": {name: dict(parts[name]) for name in sorted(parts)},
    }
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"


class ResponseTable:
    """A released table, read part by part."""

    def __init__(self, directory: Path, manifest: dict[str, Any]) -> None:
        self.directory = directory
        self.secrets: tuple[str, ...] = tuple(manifest["secrets"])
        self.public: tuple[str, ...] = tuple(manifest["public"])
        self.guarantee: str = manifest["guarantee"]
        self.params = RandomizedResponseParams(manifest["epsilon"], secrets=max(len(self.secrets), 1))
        self._parts: dict[str, dict[str, Any]] = manifest["parts"]

    @classmethod
    def open(cls, path: str | Path) -> ResponseTable:
        """Open a released table; every part must be present at its size."""
        directory = Path(path)
        try:
            manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        except OSError:
            raise InputError(f"table: {directory} has no manifest.json; it is not a released table") from None
        except ValueError:
            raise FormatError(f"table: {directory}/manifest.json is not JSON") from None
        if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
            raise FormatError(f"table: {directory}/manifest.json is not of a table of randomized responses")
        if manifest.get("version") != _VERSION:
            raise FormatError(
                f"table: version {manifest.get('version')!r} is not known; this reads {_VERSION}"
            )
        try:
            table = cls(directory, manifest)
            table._check_parts()
        except (KeyError, TypeError, AttributeError):
            raise FormatError(f"table: {directory}/manifest.json lacks a field") from None
        return table

    def _check_parts(self) -> None:
        for name, about in self._parts.items():
            path = self.directory / name
            if Path(name).name != name or not path.is_file():
                raise FormatError(f"table: part {name} is missing")
            if path.stat().st_size != about["bytes"]:
                raise FormatError(
                    f"table: part {name} has {path.stat().st_size} bytes, stated {about['bytes']}"
                )

    def ask(
        self,
        secret: str,
        *,
        where: Sequence[str] = (),
        weight: str | None = None,
        confidence: Number = "0.95",
        queries: int = 1,
    ) -> ResponseEstimate:
        """Estimate how many records that satisfy ``where`` have this secret bit, each times its weight.

        The estimate is unbiased; the interval is Hoeffding's.

        Args:
            secret: name of a secret bit.
            where: conditions on public columns (`hushgram.inputs.conditions`), all of which must be true. Text is read
                as the numbers or booleans that it is compared with, as in files; what cannot be read is missing.
            weight: a public column of numbers from 0 to 1; without it every record has 1.
            confidence: probability that the interval holds.
            queries: for how many queries it holds at once.
        """
        conditions = [parse(text, bare=True) for text in where]
        columns = [
            *(name for condition in conditions for name in condition.columns),
            *([weight] if weight else []),
        ]
        self._check_names(secret, columns)
        kinds = kinds_together(condition.kinds for condition in conditions)
        whole = squares = lit = 0.0
        for part in self._tables([secret, *columns]):
            keep = np.ones(part.num_rows, dtype=np.bool_)
            tested = _as_compared(part, kinds)
            for condition in conditions:
                keep &= bind(condition, tested.schema).matches(tested)
            weights = _weights(part.column(weight), weight) if weight else np.ones(part.num_rows)
            kept = weights[keep]
            whole, squares = whole + float(kept.sum()), squares + float((kept * kept).sum())
            lit += float(weights[keep & _booleans(part.column(secret))].sum())
        return estimate(whole, squares, lit, self.params, confidence=confidence, queries=queries)

    def ask_all(self, secrets: Iterable[str] = (), **how: Any) -> pa.Table:
        """Ask for several secret bits (all by default), with the arguments of `ask`; return one row for each."""
        names = list(secrets or self.secrets)
        told = [self.ask(name, **how) for name in names]
        columns = {field: [getattr(one, field) for one in told] for field in ("estimate", "low", "high")}
        return pa.table({"secret": names, **columns})

    def _check_names(self, secret: str, columns: Sequence[str]) -> None:
        if secret not in self.secrets:
            raise ParameterError(
                f"secret: no secret column {secret!r}; the table has {', '.join(self.secrets)}"
            )
        for column in columns:
            if column not in self.public:
                known = ", ".join(self.public) or "none"
                raise ParameterError(f"column {column!r} is not a public column of the table; it has {known}")

    def _tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        for name in self._parts:
            try:
                yield pq.read_table(
                    self.directory / name, columns=list(dict.fromkeys(columns)), partitioning=None
                )
            except (pa.ArrowException, OSError, KeyError) as error:
                raise FormatError(
                    f"table: part {name} cannot be read: {str(error).splitlines()[0]}"
                ) from None


def _as_compared(part: pa.Table, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the part with its texts in the kinds that conditions compare them with."""
    for at, (name, column) in enumerate(zip(part.column_names, part.columns, strict=True)):
        kind = kinds.get(name, pa.string())
        if is_text(column.type) and not is_text(kind):
            made = numbers_in(column) if pa.types.is_floating(kind) else _truth(column)
            part = part.set_column(at, name, made)
    return part


def _truth(column: pa.ChunkedArray) -> Any:
    words = pc.utf8_lower(column.cast(pa.large_string()))
    return pc.if_else(
        pc.is_in(words, pa.array(["true", "false"], pa.large_string())), pc.equal(words, "true"), None
    )


def _weights(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    numbers = numbers_in(column)
    if numbers.null_count > column.null_count:
        raise ParameterError(f"weight: column {name} holds {column.type}, not numbers")
    values = np.asarray(pc.fill_null(numbers, 0.0))
    if not ((values >= 0) & (values <= 1)).all():
        raise ParameterError(f"weight: column {name} has values outside 0 to 1")
    return values

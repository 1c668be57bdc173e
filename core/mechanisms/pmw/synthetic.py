"""Released linear answers on disk: the answers, and the hypothesis, which can be asked again for free.

    answers/
      manifest.json        last: guarantee, parameters, domain, what was released, files with sizes and SHA-256
      answers.jsonl        id, answer, its interval and where it came from: measured, hypothesis, or hypothesis alone
      hypothesis.parquet   the synthetic histogram: label, fingerprint where there is one, units

Everything in it is public.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hushgram.accounting import Guarantee
from hushgram.errors import FormatError, InputError, ParameterError, is_unicode
from hushgram.mechanisms.domains import BucketDomain, FiniteDomain, KeyDomain, RangeDomain
from hushgram.mechanisms.pmw.mechanism import (
    FROM_HYPOTHESIS,
    HALTED,
    MEASURED,
    OfflineParams,
    OfflinePMW,
    OnlinePMW,
    PmwAnswers,
    PmwParams,
    PrivateWeights,
)
from hushgram.mechanisms.pmw.workload import GRID, Workload
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.laws import LaplaceLaw
from hushgram.sensitivity import ExactVector, PrivacyUnit

__all__ = [
    "ANSWERS", "HYPOTHESIS", "MANIFEST", "LinearQuery", "ReleasedAnswers", "SyntheticHistogram", "answer_fixed",
    "read_queries", "workloads",
]  # fmt: skip

ANSWERS, HYPOTHESIS, MANIFEST = "answers.jsonl", "hypothesis.parquet", "manifest.json"
_FORMAT, _VERSION = "hushgram answers", 1
_ORIGINS = {FROM_HYPOTHESIS: "hypothesis", MEASURED: "measured", HALTED: "hypothesis alone"}
# Level of the intervals of answers.
_LEVEL = 0.95
# Queries become rows of weights in batches of about this many weights.
_BATCH = 1 << 24


@dataclass(frozen=True)
class LinearQuery:
    """One query as it was written, with its name for the output."""

    id: str
    fields: Mapping[str, Any]


def read_queries(lines: Iterable[str | bytes], source: str) -> list[LinearQuery]:
    """Return the queries of JSON lines such as {"id": "docs", "keys": ["/a", "/b"]} or {"weights": {"/a": 0.5}}."""
    out: list[LinearQuery] = []
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except ValueError:
            raise InputError(f"{source}, line {number}: not JSON; write one object per line") from None
        if not isinstance(fields, dict):
            raise InputError(f'{source}, line {number}: must be an object such as {{"keys": ["/a"]}}')
        if not is_unicode(json.dumps(fields, ensure_ascii=False)):
            raise InputError(f"{source}, line {number}: is not Unicode text: it has half a surrogate pair")
        name = str(fields.get("id", len(out)))
        if name in seen:
            raise InputError(f"{source}, line {number}: id {name!r} occurs twice")
        seen.add(name)
        out.append(LinearQuery(name, fields))
    if not out:
        raise InputError(f"{source}: holds no query; write one JSON object per line")
    return out


def workloads(queries: Sequence[LinearQuery], domain: FiniteDomain) -> Iterator[Workload]:
    """Yield batches of query rows: a function of the queries and the domain alone."""
    step = max(1, _BATCH // len(domain))
    for start in range(0, len(queries), step):
        part = queries[start : start + step]
        yield Workload(np.stack([domain.row(query.fields, f"query {query.id}") for query in part]))


@dataclass(frozen=True, eq=False)
class ReleasedAnswers:
    """Released answers to all queries, and the hypothesis."""

    answers: PmwAnswers
    units: NDArray[np.int64]
    shift: int
    total: int
    updates: int

    @classmethod
    def of(cls, pmw: OnlinePMW | OfflinePMW, parts: Sequence[PmwAnswers]) -> ReleasedAnswers:
        """Return what a run released, after its last query."""
        hypothesis = pmw.finish()
        scaled, origin = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("scaled", "origin")
        )
        return cls(
            PmwAnswers(scaled, origin), hypothesis.units, hypothesis.shift, hypothesis.total, pmw.updates
        )

    def files(
        self,
        queries: Sequence[LinearQuery],
        domain: FiniteDomain,
        params: PmwParams | OfflineParams,
        name: str,
        guarantee: Guarantee,
    ) -> dict[str, bytes]:
        """Return the files of the directory; the manifest comes last."""
        out = {ANSWERS: self._answer_lines(queries, domain, params), HYPOTHESIS: self._histogram(domain)}
        manifest = {
            "format": _FORMAT,
            "version": _VERSION,
            "name": name,
            "guarantee": {**guarantee.as_json(), "max_contributions": params.max_contributions},
            **params.describe(len(queries)),
            "domain": _domain_fields(domain),
            "total": self.total,
            "shift": self.shift,
            "updates": self.updates,
            "answers": {words: int((self.answers.origin == code).sum()) for code, words in _ORIGINS.items()},
            "files": {
                file: {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
                for file, body in out.items()
            },
        }
        out[MANIFEST] = (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode()
        return out

    def _answer_lines(
        self, queries: Sequence[LinearQuery], domain: FiniteDomain, params: PmwParams | OfflineParams
    ) -> bytes:
        """Return the answers with intervals, of the noise or of the comparison; what nothing bounds has none."""
        widths = {
            MEASURED: LaplaceLaw(float(params.scale)).radius(_LEVEL) / GRID,
            FROM_HYPOTHESIS: params.describe(len(queries))["accuracy"]["hypothesis"],
        }
        asked = (_row_digest(row) for work in workloads(queries, domain) for row in work.grid)
        rows = zip(queries, asked, self.answers.values.tolist(), self.answers.origin.tolist(), strict=True)
        lines = []
        for query, row, value, origin in rows:
            width = widths.get(origin)
            low, high = (None, None) if width is None else (max(value - width, 0.0), max(value + width, 0.0))
            shown = {
                name: None if one is None else round(one, 4) for name, one in (("low", low), ("high", high))
            }
            line = {"id": query.id, "answer": round(value, 4), **shown, "from": _ORIGINS[origin], "row": row}
            lines.append(json.dumps(line) + "\n")
        return "".join(lines).encode()

    def _histogram(self, domain: FiniteDomain) -> bytes:
        columns: dict[str, Any] = {"label": pa.array(domain.labels, pa.string()), "units": self.units}
        if isinstance(domain, KeyDomain):
            columns["fingerprint"] = pa.array(domain.prints, pa.uint64())
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink)
        return sink.getvalue()


def _row_digest(row: NDArray[np.uint16]) -> str:
    """Return a short name of the weights of a query: equal queries have the same."""
    return hashlib.sha256(np.ascontiguousarray(row).tobytes()).hexdigest()[:16]


def _domain_fields(domain: FiniteDomain) -> dict[str, Any]:
    if isinstance(domain, KeyDomain):
        return {"kind": "keys", "bits": domain.bits, "hashed": domain.hashed, "cells": len(domain)}
    if isinstance(domain, RangeDomain):
        return {"kind": "edges", "edges": domain.edges, "cells": len(domain)}
    return {"kind": "buckets", "cells": len(domain)}


def _read_domain(fields: Mapping[str, Any], table: pa.Table) -> FiniteDomain:
    if fields["kind"] == "keys":
        labels, prints = table.column("label").to_pylist(), table.column("fingerprint").to_numpy()
        return KeyDomain(labels, prints, int(fields["bits"]), hashed=bool(fields["hashed"]))
    return RangeDomain(fields["edges"]) if fields["kind"] == "edges" else BucketDomain(int(fields["cells"]))


class SyntheticHistogram:
    """A released hypothesis, ready for any number of further queries at no cost.

    Its answers carry no error bound of their own: where it was not corrected by an update, it is as good as
    what it learned. Answers "measured" in the same directory are better for the queries that were asked.
    """

    def __init__(
        self,
        domain: FiniteDomain,
        units: NDArray[np.int64],
        shift: int,
        manifest: Mapping[str, Any],
        lines: bytes,
    ) -> None:
        self.domain, self.units, self.shift, self.manifest = domain, units, shift, manifest
        self._lines = lines

    @classmethod
    def open(cls, path: str | Path) -> SyntheticHistogram:
        """Open a released directory; sizes and digests are checked."""
        directory = Path(path)
        try:
            manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        except OSError:
            raise InputError(
                f"answers: {directory} has no {MANIFEST}; it is not a released directory"
            ) from None
        except ValueError:
            raise FormatError(f"answers: {directory / MANIFEST} is not JSON") from None
        if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
            raise FormatError(f"answers: {directory / MANIFEST} is not of released answers")
        if manifest.get("version") != _VERSION:
            raise FormatError(
                f"answers: version {manifest.get('version')!r} is not supported; this program reads version {_VERSION}"
            )
        try:
            return cls._read(directory, manifest)
        except (KeyError, TypeError, AttributeError, ParameterError):
            raise FormatError(f"answers: {directory / MANIFEST} lacks a field or has a wrong one") from None

    @classmethod
    def _read(cls, directory: Path, manifest: Mapping[str, Any]) -> SyntheticHistogram:
        bodies = {}
        for name in (HYPOTHESIS, ANSWERS):
            stated, path = manifest["files"][name], directory / name
            try:
                bodies[name] = path.read_bytes()
            except OSError:
                raise FormatError(f"answers: {path} is missing") from None
            found = len(bodies[name]), hashlib.sha256(bodies[name]).hexdigest()
            if found != (stated["bytes"], stated["sha256"]):
                raise FormatError(f"answers: {path} differs from what the manifest states")
        table = pq.read_table(io.BytesIO(bodies[HYPOTHESIS]))
        domain = _read_domain(manifest["domain"], table)
        units = table.column("units").to_numpy()
        return cls(domain, units, int(manifest["shift"]), manifest, bodies[ANSWERS])

    def answer(self, queries: Sequence[LinearQuery]) -> NDArray[np.float64]:
        """Return the answers, in counts."""
        parts = [
            work.exact(self.units) / float(GRID << self.shift) for work in workloads(queries, self.domain)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def lookup(self, queries: Sequence[LinearQuery]) -> pa.Table:
        """Return answers with intervals at 95 % and where they came from.

        A query that the release answered has its released answer. Any other has that of the hypothesis, which nothing
        bounds: its interval is null.
        """
        told = {line.get("row"): line for line in map(json.loads, self._lines.splitlines())}
        rows = [_row_digest(row) for work in workloads(queries, self.domain) for row in work.grid]
        out = []
        for query, row, estimate in zip(queries, rows, self.answer(queries).tolist(), strict=True):
            line = told.get(row) or {"answer": estimate, "from": _ORIGINS[HALTED]}
            out.append(
                {"id": query.id, **{name: line.get(name) for name in ("answer", "low", "high", "from")}}
            )
        numbers = [(name, pa.float64()) for name in ("answer", "low", "high")]
        return pa.Table.from_pylist(out, pa.schema([("id", pa.string()), *numbers, ("from", pa.string())]))

    def histogram(self) -> pa.Table:
        """Return label and count of every cell."""
        return pa.table(
            {"label": self.domain.labels, "count": np.ldexp(self.units.astype(float), -self.shift)}
        )


class _FixedStream(OnlinePMW):
    """A stream that is asked what was fixed beforehand, and nothing else."""

    _take = PrivateWeights._take


def answer_fixed(
    counts: ExactVector,
    params: PmwParams | OfflineParams,
    key: ReleaseKey,
    batches: Iterable[Workload],
    *,
    prior: NDArray[np.int64] | None = None,
    unit: PrivacyUnit = "user",
) -> ReleasedAnswers:
    """Answer queries that are all fixed beforehand, online (in their order) or offline.

    The queries are parameters of the release, as in any batch release. Retry: the same key, counts, prior and batches
    give the same answers.
    """
    if isinstance(params, OfflineParams):
        offline = OfflinePMW(counts, params, key, prior=prior, unit=unit)
        whole = Workload(np.concatenate([work.grid for work in batches]))
        return ReleasedAnswers.of(offline, [offline.answer(whole)])
    stream = _FixedStream(counts, params, key, prior=prior, unit=unit)
    return ReleasedAnswers.of(stream, [stream.answer(work) for work in batches])

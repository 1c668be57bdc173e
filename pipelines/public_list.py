"""A release over a public list of keys: Laplace noise on every listed key, also those that nobody has.

    listed = read_list("countries.txt")
    run_public(params, plan, listed, user="user_id", key="country", path="out/countries.sketch")

Where the possible keys are known beforehand (countries, products, status codes), nothing need be hidden about
which of them occur: all of ε goes to the counts (Wang, lecture 3, §3.5), and with probability 1 − β no count is
further from the truth than ln(k/β)·C/ε. Records of other keys are left out before users are bounded, so they
use up nothing of a user's contributions. For one release key the sketch has the bytes of
``hushgram.release_public``.
"""

from __future__ import annotations

import os
import time
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from hushgram.entropy import ReleaseKey
from hushgram.errors import InputError
from hushgram.histogram import Histogram, KeyTable
from hushgram.inputs import InputPlan
from hushgram.mechanisms.threshold import Heavy
from hushgram.numbers import show
from hushgram.params import ReleaseParams
from hushgram.pipelines.progress import read_counters, run_pipeline
from hushgram.pipelines.release import ReleaseResult
from hushgram.pipelines.runners import new_pipeline, pipeline_options
from hushgram.plan import Plan, make_public_plan
from hushgram.reference import bind, list_table, listed_only, public_part
from hushgram.transforms.blocks import BlockBits
from hushgram.transforms.bounding import BoundContributions, CountRecords
from hushgram.transforms.histogram import MergeHistograms
from hushgram.transforms.records import ReadRecords, WriteBadRecords
from hushgram.transforms.sharding import shards_for
from hushgram.transforms.sketch_sink import Target, WriteSketch, discard_work

__all__ = ["ReleasePublicList", "read_list", "run_public"]

# A list is held by every worker; a longer one is no list of known keys but a key space: release a sketch of it.
_MOST_BYTES = 1 << 30


def read_list(path: str) -> list[bytes]:
    """The keys of a file with one key a line, each once; through Beam's file systems."""
    where = f"privacy.domain.public_keys {path}"
    try:
        with FileSystems.open(path) as file:
            content: bytes = file.read(_MOST_BYTES + 1)
    except (BeamIOError, OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem).splitlines()[0]
        raise InputError(f"{where}: cannot be read: {reason}") from None
    if len(content) > _MOST_BYTES:
        raise InputError(
            f"{where}: is larger than 1 GiB; leave the list out and release a sketch of all keys"
        )
    lines = [line.removesuffix(b"\r") for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    keys = [line for line in lines if line]
    if not keys:
        raise InputError(f"{where}: holds no keys; write one key a line")
    if len(set(keys)) != len(keys):
        seen: set[bytes] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InputError(
            f"{where}: lists {twice.decode('utf-8', 'replace')[:80]!r} twice; list each key once"
        )
    return keys


class ReleasePublicList(beam.PTransform):
    """Arrow batches → a sketch of noisy counts of ``listed`` keys at ``path``.

    Sensitivity: a user changes the counts by at most max_contributions in L1. The sketch is
    (epsilon, 0)-differentially private; ``listed`` must be known without looking at the data.
    """

    def __init__(
        self,
        params: ReleaseParams,
        listed: Any,
        *,
        key: str,
        path: str | os.PathLike[str],
        user: str | None = None,
        name: str = "",
        secret: ReleaseKey | None = None,
        shards: int = 16,
    ) -> None:
        super().__init__()
        self._params, self._user, self._key, self._name, self._shards = params, user, key, name, shards
        self._table = list_table(listed)
        self._plan = make_public_plan(params, len(self._table.texts))
        self._secret = bind(secret or ReleaseKey.generate(), params)
        self.target = Target.of(os.fspath(path), self._secret)

    def expand(self, batches: Any) -> Any:
        listed = batches | "KeepListed" >> beam.Map(_keep, self._table, self._user, self._key)
        listed.element_type = pa.RecordBatch
        parts = listed | "Bound" >> self._bounding()  # Histogram
        whole = parts | "MergeHistogram" >> MergeHistograms(1, texts=True)  # (0, Histogram)
        noise = beam.Map(_add_noise, self._table, self._plan, self._secret)
        released = {
            "heavy": whole | "AddNoise" >> noise.with_output_types(tuple[int, Heavy]),
            "blocks": batches.pipeline | "NoBits" >> beam.Create([]).with_output_types(BlockBits),
            "plan": batches.pipeline | "Plan" >> beam.Create([self._plan]),
        }
        return released | "WriteSketch" >> WriteSketch(self.target, self._secret, self._name)

    def _bounding(self) -> beam.PTransform:
        if self._user is None:
            return CountRecords(self._key, texts=True)
        return BoundContributions(
            self._user,
            self._key,
            self._secret,
            most=self._params.max_contributions,
            most_per_key=self._params.max_per_key,
            texts=True,
            shards=self._shards,
        )

    def display_data(self) -> dict[str, Any]:
        return {
            "epsilon": show(self._params.epsilon),
            "max_contributions": self._params.max_contributions,
            "listed keys": len(self._table.texts),
            "path": self.target.path,
        }


def _keep(batch: pa.RecordBatch, table: KeyTable, user: str | None, key: str) -> pa.RecordBatch:
    """The rows of listed keys, the key as canonical bytes. Looks at one row at a time."""
    users = None if user is None else batch.column(user)
    keys, owners = listed_only(batch.column(key), users, table)
    columns = {key: keys} if user is None or owners is None else {user: owners, key: keys}
    return pa.RecordBatch.from_pydict(columns)


def _add_noise(
    group: tuple[int, Histogram], table: KeyTable, plan: Plan, secret: ReleaseKey
) -> tuple[int, Heavy]:
    return group[0], public_part(group[1], table, plan, secret)


def run_public(
    params: ReleaseParams,
    source: InputPlan,
    listed: Any,
    *,
    key: str,
    path: str | os.PathLike[str],
    user: str | None = None,
    name: str = "",
    secret: ReleaseKey | None = None,
    options: Any = None,
    shards: int | None = None,
    bad_records: str | None = None,
    quiet: bool = True,
) -> ReleaseResult:
    """Run one release over a public list and wait for it; arguments as for `run_release`."""
    options = pipeline_options() if options is None else options
    groups = shards_for(source.bytes, shards).users
    release = ReleasePublicList(
        params, listed, key=key, path=path, user=user, name=name, secret=secret, shards=groups
    )
    started = time.monotonic()
    try:
        pipeline = new_pipeline(options)
        read = pipeline | "Read" >> ReadRecords(source)
        if source.source.keep_bad:
            if bad_records is not None:
                read.bad | "SetAside" >> WriteBadRecords(bad_records)
            read = read.records
        read | "Release" >> release
        result = run_pipeline(
            pipeline, options, title=name or "release", total_bytes=source.bytes, quiet=quiet
        )
    finally:
        discard_work(release.target)
    return ReleaseResult(release.target.path, time.monotonic() - started, read_counters(result))

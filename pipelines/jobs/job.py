"""A job: a config, what it costs, what it builds, what it tells. The runner does everything else.

    class Average(Job[AverageConfig]):
        Config = AverageConfig                     # a JobConfig whose NAME field names the run
        subject = "The average is"                 # the guarantee's sentence goes on from here

        def events(self): ...                      # what the ledger charges
        def build(self, pipeline, path, release_key, local): ...   # stages, from `self.records(pipeline)` to `path`
        def check_lines(self): ...                 # what to expect, for --check
        def released(self, path): ...              # what was released, as rows

Everything that can be wrong with a config shows before any budget is spent: with the config when it is loaded, with
files that it names (queries, key lists) in `resolve`, with the input's columns in `check_schema`. Beam is imported when
a pipeline is built.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.accounting import Event, Guarantee
from hushgram.errors import InputError, ParameterError
from hushgram.inputs import InputPlan, check_first_blocks
from hushgram.inputs.source import read_text_keys
from hushgram.numbers import counted, show
from hushgram.pipelines.config.models import JobConfig
from hushgram.pipelines.terminal import EXACT
from hushgram.sensitivity import PrivacyUnit

if TYPE_CHECKING:
    from apache_beam import Pipeline, PTransform

    from hushgram.mechanisms.domains import FiniteDomain, KeyDomain
    from hushgram.noise.entropy import ReleaseKey
    from hushgram.pipelines.run.outputs import Shape
    from hushgram.transforms.shuffle.combining import LocalResources
else:  # for annotations alone: Beam is not loaded before a job is built
    Pipeline = PTransform = LocalResources = None

__all__ = [
    "NEUTRAL", "Job", "Line", "LocalResources", "Pipeline", "heavy_domain", "read_bytes", "read_key_list", "read_lines",
    "read_text",
    "write_bytes", "write_lines",
]  # fmt: skip

#: Fields without effect on any byte of the output, in the form of pydantic's ``exclude``: all others are compared
#: when a run is attempted again.
NEUTRAL: dict[str, Any] = {
    "dataset": True,
    "ledger": True,
    "output": True,
    "workers": True,
    "shards": True,
    "input": {"path", "rejected_records", "max_rejected_share", "min_rows"},
}

C = TypeVar("C", bound=JobConfig)
Line = tuple[str, str]


class Job(ABC, Generic[C]):
    """A config made exact: nothing about it can fail any more except reading the data."""

    Config: ClassVar[type[JobConfig]]
    subject: ClassVar[str]
    shape: ClassVar[Shape] = "file"
    #: whether a user counts with C records, whatever their keys are; then ``max_per_key`` has no effect
    by_record = False

    def __init__(self, config: C) -> None:
        self.config = config
        self._opened = False
        self.resolve()

    # To be stated by a job

    def resolve(self) -> None:
        """Read and check the files that the config names beside the input; every mistake is one line."""

    def columns(self) -> Iterable[str]:
        """Return the columns that are read beside those of `InputConfig.columns`."""
        return ()

    def values(self) -> Iterable[str]:
        """Return the columns of numbers that are summed."""
        return ()

    def record_bounds(self) -> tuple[int, int]:
        """Return how many keys of one record count, and how often one of them, where there are no users."""
        return self.config.privacy.contributions, self.config.privacy.max_per_key

    def secret_columns(self) -> Iterable[str]:
        """Return those of `columns` whose values must decide nothing about their records (`Source.secrets`)."""
        return ()

    def column_types(self) -> dict[str, pa.DataType]:
        """Return types of columns of text files, from their use: from first lines, one record could decide."""
        return {}

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse columns of a type that the job cannot use."""

    @abstractmethod
    def events(self) -> list[Event]:
        """Return what the ledger charges."""

    def resolved(self) -> dict[str, Any]:
        """Return what followed from the config: defaults of the library, and digests of files that the config names."""
        return {}

    @abstractmethod
    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        """Build the stages, from `records` to the file or directory ``path``."""

    def check_lines(self) -> Iterator[Line]:
        """Yield (name, text) of what to expect, from public numbers alone."""
        yield from ()

    def measure(self, options: Any) -> Mapping[str, int]:
        """Return exact figures that ``--check`` tells the operator about the data; none by default."""
        return {}

    def exact_lines(self, exact: Mapping[str, int]) -> Iterator[Line]:
        """Yield (name, text) of exact figures of a run, for the operator alone: the records that bounding kept."""
        offered, kept = exact.get("offered"), exact.get("records")
        if not offered or kept is None:
            return
        bounds = "max_contributions" if self.by_record else "max_contributions or max_per_key"
        more = f"; raise {bounds} to keep more, with more noise" if kept < offered else ""
        yield (
            "kept",
            f"{kept:,} of {counted(offered, 'record')} ({kept / offered:.1%}) after bounding ({EXACT}){more}",
        )

    def closing_lines(self, path: str) -> Iterator[Line]:
        """Yield (name, text) of what was released."""
        yield from ()

    def closing_table(self, path: str) -> pa.Table | None:
        """Return the released rows that people look for first, to be shown after `closing_lines`."""
        return None

    def released(self, path: str) -> pa.Table:
        """Return what was released, as rows; by default path, size, guarantee and digest (as in the ledger)."""
        return pa.Table.from_pylist([self.released_row(path)])

    def released_row(self, path: str) -> dict[str, Any]:
        """Return path, size, guarantee and digest of a released file or directory."""
        from hushgram.pipelines.run.outputs import digest_of, size_of

        loss = self.guarantee()
        return {
            "release": self.name, "path": path, "bytes": size_of(path), "epsilon": show(loss.epsilon),
            "delta": show(loss.delta), "digest": digest_of(path),
        }  # fmt: skip

    # Stages that jobs begin with

    def records(self, pipeline: Pipeline, *, keep_rejected: bool = True, tallies: bool = False) -> Any:
        """Return the records of the input (of its part of the users, where it has one), as Arrow batches.

        Rejected records go where the config says, if they are kept. With ``tallies`` it is what `ReadRecords` returns.
        """
        from hushgram.transforms.count_domain import KeepPartition
        from hushgram.transforms.read_records import ReadRecords, read_records

        config, part = self.config.input, self.config.user_part
        rejected = config.rejected_records if keep_rejected else None
        reader = ReadRecords(self.source, config.limits, tallies=tallies, counters=True)
        read = read_records(pipeline, reader, rejected)
        if part is None or config.user is None:
            return read
        keep = KeepPartition(part, config.user)
        if isinstance(read, dict):
            return {**read, "records": read["records"] | "OfPart" >> keep}
        return read | "OfPart" >> keep

    def bounding(
        self,
        column: str,
        release_key: ReleaseKey,
        local: LocalResources,
        *,
        texts: bool,
        by_record: bool | None = None,
    ) -> PTransform:
        """Return the stages from batches to parts of the bounded histogram of ``column``; ``by_record`` as of the job.

        Where a user may count more than once for one key, every record up to that bound has the same chance to count.
        """
        from hushgram.contributions.bounding import BoundingSpec, Bounds
        from hushgram.transforms.bound_contributions import BoundContributions, CountBounded
        from hushgram.transforms.shuffle.combining import shards_for

        privacy, user = self.config.privacy, self.config.input.user
        most, per_key = privacy.contributions, privacy.max_per_key
        drawn = self.by_record if by_record is None else by_record
        bounds = Bounds.of_records(most) if drawn else Bounds(most, per_key, evenly=per_key > 1)
        spec = BoundingSpec(user, column, release_key, (bounds,), texts)
        shards = shards_for(self.source.bytes, self.config.shards)
        return BoundContributions(spec, shards.users, local, counters=True) | CountBounded()

    def bounded_cells(
        self, pipeline: Pipeline, cells: FiniteDomain, release_key: ReleaseKey, local: LocalResources
    ) -> Any:
        """Return parts of the bounded histogram of a finite domain; records outside of it are left out first."""
        from hushgram.transforms.count_domain import KeepDomain

        key = self.config.input.key
        return (
            self.records(pipeline)
            | "KeepDomain" >> KeepDomain(cells, key)
            | "Bound" >> self.bounding(key, release_key, local, texts=cells.texts)
        )

    # What follows from the config

    @property
    def kind(self) -> str:
        """Return the name of the job at the command line and in the ledger."""
        return self.config.NAME.replace("_", "-")

    @property
    def unit(self) -> PrivacyUnit:
        """Return the privacy unit."""
        return "record" if self.config.input.user is None else "user"

    @property
    def name(self) -> str:
        """Return the name of this run."""
        return self.config.job_name

    @cached_property
    def source(self) -> InputPlan:
        """Return all input files, found, opened and checked; an `InputError` says what is wrong with them."""
        from hushgram.transforms.read_records import plan_records

        config = self.config.input
        source = config.source(
            (name for name in self.columns() if name not in config.columns),
            types=self.column_types(),
            values=tuple(self.values()),
            secrets=tuple(self.secret_columns()),
            record=self.record_bounds() if config.user is None else None,
        )
        plan = plan_records(config.path, source)
        self.check_schema(plan.schema)
        self._check_rejected_records([file.path for file in plan.files])
        return plan

    def open_inputs(self) -> InputPlan:
        """Return `source`, whose first blocks were parsed: what cannot be meant is refused before it is charged."""
        from hushgram.transforms.files import open_file

        if not self._opened:
            check_first_blocks(self.source, self.config.input.limits, open_file)
            self._opened = True
        return self.source

    def _check_rejected_records(self, inputs: Iterable[str]) -> None:
        """Refuse a place for rejected records that cannot be written: they are written when all else is done."""
        from hushgram.pipelines.run.outputs import output_at

        path = self.config.input.rejected_records
        if path is None:
            return
        if os.path.realpath(path) in map(os.path.realpath, inputs) or os.path.isdir(path):
            raise ParameterError(
                f"input.rejected_records {path} is part of the input; give a file of its own"
            )
        output_at(path, "rejected records", "file").check_writable()

    def guarantee(self) -> Guarantee:
        """Return the guarantee: every sentence about it comes from here."""
        privacy = self.config.privacy
        return Guarantee.of(
            self.events(),
            max_contributions=privacy.contributions,
            max_per_key=None if self.by_record else privacy.per_key,
            subject=self.subject,
        )

    def parameters(self) -> dict[str, Any]:
        """Return all public choices that can change the output: what a second attempt at this run must have in common.

        That is the whole config except what has no effect on a byte of the output; so a new option is compared unless
        it is declared neutral.
        """
        chosen = self.config.model_dump(exclude=NEUTRAL | {self.config.NAME: True})
        return {**chosen, "resolved": self.resolved()}


# --- files beside the input: lists and queries that a config names, and results that stages write ---------------------


def read_bytes(path: str, field: str) -> bytes:
    """Return the content of a file that a config names in ``field``; through Beam's file systems."""
    from hushgram.transforms.files import open_file

    try:
        with open_file(path) as file:
            content: bytes = file.read()
    except InputError as problem:
        raise InputError(f"{field}: {problem}") from None
    except OSError as problem:
        raise InputError(f"{field}: {path} cannot be read: {problem.strerror or problem}") from None
    return content


def read_text(path: str, field: str) -> str:
    """Return the content of a file as text."""
    try:
        return read_bytes(path, field).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{field}: {path} is not UTF-8 text") from None


def read_key_list(path: str, field: str) -> list[str]:
    """Return the keys of a file with one key per line, each once; through Beam's file systems."""
    from hushgram.transforms.files import open_file

    return read_text_keys(path, field, open_file)


def write_bytes(path: str, content: bytes) -> str:
    """Write a file of a result, on any of Beam's file systems; return its path."""
    from hushgram.transforms.files import create_file

    with create_file(path) as sink:
        sink.write(content)
    return path


def write_lines(path: str, lines: Iterable[Mapping[str, Any]]) -> str:
    """Write JSON lines; return their path."""
    return write_bytes(
        path, b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
    )


def read_lines(path: str) -> list[dict[str, Any]]:
    """Return the JSON lines of a local file."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def heavy_domain(path: str, field: str) -> tuple[KeyDomain, NDArray[np.int64]]:
    """Return the heavy keys of a released sketch as a domain, and their released values: public, so free."""
    from hushgram.mechanisms.domains import KeyDomain
    from hushgram.sketch.reader import Sketch

    sketch = Sketch.open(path)
    heavy = sketch.heavy()
    if not heavy.num_rows:
        raise InputError(f"{field}: {path} has no heavy keys")
    values: NDArray[np.int64] = heavy.column("value").to_numpy()
    if "key" in heavy.column_names:
        return KeyDomain.of([str(key) for key in heavy.column("key").to_pylist()]), values
    prints = np.array([int(text, 16) for text in heavy.column("fingerprint").to_pylist()], np.uint64)
    bits, top = sketch.plan.domain_bits or 64, sketch.plan.top
    if top is not None and top.domain_bits is not None:  # sub-cells count for their cells
        of_top = values >= top.threshold * sketch.per_count
        prints = np.where(of_top, prints >> np.uint64(top.domain_bits - bits), prints)
        prints, place = np.unique(prints, return_inverse=True)
        values = np.bincount(place, values).astype(np.int64)
    return KeyDomain.of_heavy(prints, bits), values

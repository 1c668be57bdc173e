"""What a job is: a config, what it costs, what it builds, what it tells. The runner does everything else.

    class Average(Job[AverageConfig]):
        Config = AverageConfig                     # a JobConfig whose NAME field names the run
        subject = "The average is"                 # the guarantee's sentence goes on from here

        def events(self): ...                      # what the ledger charges
        def build(self, pipeline, path, release_key, local): ...   # stages, from `self.source` to `path`
        def check_lines(self): ...                 # what to expect, for --check
        def released(self, path): ...              # what was released, as rows

Everything that can be wrong with a config shows before any budget is spent: with the config when it is loaded, with
files that it names (queries, key lists) in `resolve`, with the input's columns in `check_schema`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from hushgram.accounting import Event, Guarantee
from hushgram.errors import ParameterError
from hushgram.inputs import InputPlan, check_first_blocks
from hushgram.pipelines.config import JobConfig
from hushgram.sensitivity import Unit

if TYPE_CHECKING:
    from apache_beam import Pipeline

    from hushgram.noise.entropy import ReleaseKey
    from hushgram.pipelines.output_places import Shape
    from hushgram.transforms.shuffle.batching import LocalResources
else:  # for annotations alone: Beam is not loaded before a job is built
    Pipeline = LocalResources = None

__all__ = ["NEUTRAL", "Job", "Line", "LocalResources", "Pipeline"]

#: Fields without effect on any byte of the output, in the form of pydantic's ``exclude``: all others are compared
#: when a run is attempted again.
NEUTRAL: dict[str, Any] = {
    "dataset": True,
    "ledger": True,
    "output": True,
    "workers": True,
    "shards": True,
    "input": {"path", "bad_records", "max_bad_share", "min_rows"},
}

C = TypeVar("C", bound=JobConfig)
Line = tuple[str, str]


class Job(ABC, Generic[C]):
    """A config made exact: nothing about it can fail any more but the reading of the data."""

    Config: ClassVar[type[JobConfig]]
    subject: ClassVar[str]
    shape: ClassVar[Shape] = "file"

    def __init__(self, config: C) -> None:
        self.config = config
        self._opened = False
        self.resolve()

    # What a job says

    def resolve(self) -> None:
        """Reads and checks the files that the config names beside the input; every mistake is one line."""

    def columns(self) -> Iterable[str]:
        """The columns that are read beside those of `InputConfig.columns`."""
        return ()

    def values(self) -> Iterable[str]:
        """The columns of numbers that are added up."""
        return ()

    def record_bounds(self) -> tuple[int, int]:
        """Without users: how many keys of one record count, and how often one of them."""
        return self.config.privacy.contributions, self.config.privacy.max_per_key

    def secret_columns(self) -> Iterable[str]:
        """Those of `columns` whose values must decide nothing about their records (`Source.secrets`)."""
        return ()

    def column_types(self) -> dict[str, pa.DataType]:
        """Types of columns of text files, from their use: not from first lines, where one record could decide."""
        return {}

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuses columns of a type that the job cannot use."""

    @abstractmethod
    def events(self) -> list[Event]:
        """What the ledger charges."""

    def resolved(self) -> dict[str, Any]:
        """What followed from the config: defaults of the library, and digests of files that the config names."""
        return {}

    @abstractmethod
    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        """The stages, from the records of `self.source` to the file or directory `path`."""

    def check_lines(self) -> Iterator[Line]:
        """(name, text) of what to expect, from public numbers alone."""
        yield from ()

    def closing_lines(self, path: str) -> Iterator[Line]:
        """(name, text) of what was released."""
        yield from ()

    def released(self, path: str) -> pa.Table:
        """What was released, as rows."""
        return pa.table({"path": [path]})

    # What follows from it

    @property
    def kind(self) -> str:
        """The name of the job at the command line and in the ledger."""
        return self.config.NAME.replace("_", "-")

    @property
    def unit(self) -> Unit:
        """The privacy unit."""
        return "record" if self.config.input.user is None else "user"

    @property
    def name(self) -> str:
        """The name of this run."""
        return self.config.job_name

    @cached_property
    def source(self) -> InputPlan:
        """All input files, found, opened and checked; an `InputError` says what is wrong with them."""
        from hushgram.pipelines.plan_input import plan_config

        config = self.config.input
        columns = [name for name in self.columns() if name not in config.columns]
        plan = plan_config(
            config,
            columns,
            types=self.column_types(),
            values=tuple(self.values()),
            secrets=tuple(self.secret_columns()),
            record=self.record_bounds() if config.user is None else None,
        )
        self.check_schema(plan.schema)
        self._check_bad_records([file.path for file in plan.files])
        return plan

    def open_inputs(self) -> InputPlan:
        """`source`, whose first blocks were looked at: what cannot be meant is refused before it is charged."""
        from hushgram.transforms.files import open_file

        if not self._opened:
            check_first_blocks(self.source, self.config.input.limits, open_file)
            self._opened = True
        return self.source

    def _check_bad_records(self, inputs: Iterable[str]) -> None:
        """Records set aside are written when all else is done: what cannot be written shows now."""
        from hushgram.pipelines.output_places import place_for

        path = self.config.input.bad_records
        if path is None:
            return
        if os.path.realpath(path) in map(os.path.realpath, inputs) or os.path.isdir(path):
            raise ParameterError(f"input.bad_records {path} is part of the input; give a file of its own")
        place_for(path, "bad records", "file").rehearse()

    def guarantee(self) -> Guarantee:
        """What is promised, to whom: every sentence about it comes from here."""
        privacy = self.config.privacy
        return Guarantee.of(
            self.events(),
            max_contributions=privacy.contributions,
            max_per_key=privacy.per_key,
            subject=self.subject,
        )

    def parameters(self) -> dict[str, Any]:
        """All public choices that can change the output: what a second attempt at this run must have in common.

        The whole config, but for what has no effect on a byte of the output; so a new option is compared unless
        it is declared neutral.
        """
        chosen = self.config.model_dump(exclude=NEUTRAL | {self.config.NAME: True})
        return {**chosen, "resolved": self.resolved()}

"""``hushgram bounds``: how many keys, records per key and values users have, to choose a release's bounds by.

read ─► BoundContributions (keep) ─► ReleaseFigures ─► urls.bounds.json (a header, noisy numbers of users)

It takes the config of a release, whether or not that has bounds yet, and a small ε of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Self

import pyarrow as pa
from pydantic import model_validator

from hushgram.accounting import Event, Guarantee
from hushgram.contributions.histogram import KeyTable
from hushgram.contributions.keys import encode
from hushgram.mechanisms.user_quantiles import ADVISED, FIGURES, QUANTILES, QuantileParams, UserFigures
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.pipelines.config.models import refuse
from hushgram.pipelines.jobs.job import Job, Line, LocalResources, Pipeline, write_bytes
from hushgram.pipelines.jobs.release import ReleaseConfig

__all__ = ["JOB", "BoundsConfig", "BoundsJob"]

VERSION = 1
_SUFFIX = ".bounds.json"


class BoundsConfig(ReleaseConfig):
    """The config of a release; bounds and everything about its mechanisms have no effect."""

    @model_validator(mode="before")
    @classmethod
    def _beside_the_sketch(cls, data: Any) -> Any:
        """Name the result after the sketch that the config will release."""
        output = data.get("output") if isinstance(data, dict) else None
        path = output.get("path") if isinstance(output, dict) else None
        if not isinstance(output, dict) or not isinstance(path, str) or not path or path.endswith(_SUFFIX):
            return data
        return {**data, "output": {**output, "path": f"{path.rstrip('/').removesuffix('.sketch')}{_SUFFIX}"}}

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.input.user is None:
            raise refuse(
                ("input", "user"),
                "is missing; bounds are about how much one user contributes (for values of records: hushgram clip)",
            )
        return self

    @model_validator(mode="after")
    def _public(self) -> Self:
        return self

    @model_validator(mode="after")
    def _checked(self) -> Self:
        self.quantiles()
        return self

    def quantiles(self) -> QuantileParams:
        """Return the mechanism's parameters."""
        return QuantileParams(self.privacy.epsilon, summed=self.input.value is not None)

    @property
    def job_name(self) -> str:
        """Another name than the release has: both may be in one ledger."""
        return f"{self.release}-bounds"


class BoundsJob(Job[BoundsConfig]):
    """Quantiles over users, and the bounds that they suggest."""

    Config = BoundsConfig
    subject = "All quantiles together are"

    @property
    def kind(self) -> str:
        return "bounds"

    def resolve(self) -> None:
        self.params = self.config.quantiles()
        self.public_keys: KeyTable | None = None
        if self.config.privacy.domain is not None:
            from hushgram.inputs.source import read_key_list
            from hushgram.transforms.files import open_file

            path = self.config.privacy.domain.public_keys
            listed = read_key_list(path, "privacy.domain.public_keys", open_file)
            self.public_keys = KeyTable.build(encode(listed, "public keys").values)[0]

    def values(self) -> tuple[str, ...]:
        return () if self.config.input.value is None else (self.config.input.value,)

    def events(self) -> list[Event]:
        return [Event("contributions", self.params.epsilon, relation=self.unit)]

    def guarantee(self) -> Guarantee:
        return Guarantee.of(self.events(), subject=self.subject)

    def resolved(self) -> dict[str, Any]:
        table = self.public_keys
        return {"public_keys": None if table is None else digest(*table.texts.to_pylist()).hex()}

    def parameters(self) -> dict[str, Any]:
        """Return all choices that can change the output; bounds of the release are none of them."""
        chosen = super().parameters()
        kept = {name: chosen[name] for name in ("input", "user_partition", "resolved")}
        return {**kept, "privacy": {"epsilon": chosen["privacy"]["epsilon"]}}

    def build(self, pipeline: Pipeline, path: str, release_key: ReleaseKey, local: LocalResources) -> None:
        import apache_beam as beam

        from hushgram.transforms.bound_contributions import BoundContributions
        from hushgram.transforms.files import SharedKeys
        from hushgram.transforms.plan_release import ReleaseFigures
        from hushgram.transforms.shuffle.combining import shards_for

        config = self.config.input
        assert config.user is not None
        keys = self.public_keys
        if keys is not None:
            keys = SharedKeys.write(keys, os.path.dirname(path) or ".")
        spec = self.params.bounding(config.user, config.key, release_key, config.value, keys)
        shards = shards_for(self.source.bytes, self.config.shards)
        _ = (
            self.records(pipeline)
            | "Bound" >> BoundContributions(spec, shards.users, local, keep=True)  # (shard, Contributions)
            | "ReleaseFigures" >> ReleaseFigures(self.params, release_key)  # UserFigures
            | "Write" >> beam.Map(_write, path, self._header())
        )

    def _header(self) -> dict[str, Any]:
        """Return the public description that the output begins with."""
        return {
            "hushgram": self.kind,
            "version": VERSION,
            "name": self.name,
            "guarantee": self.guarantee().as_json(),
        }

    def check_lines(self) -> Iterator[Line]:
        from hushgram.noise.laws import LaplaceLaw

        scale = self.params.scale
        spread = LaplaceLaw(float(scale)).interval(0.95, len(self.params.ends[0]))
        yield (
            "noise",
            f"scale {float(scale):,.4g} on every number of users; the number of all users is off by at most"
            f" {spread:,.0f} with probability 95 %: have many times as many users, or raise --epsilon",
        )

    def closing_lines(self, path: str) -> Iterator[Line]:
        figures = self._figures(path)
        users, spread = figures.number_of_users()
        if users <= spread:
            yield "users", f"fewer than {users + spread:,.0f}"
            yield (
                "warning",
                "the noise hides so few users: raise --epsilon, or choose the bounds by public knowledge",
            )
            return
        yield "users", f"{users:,.0f} ± {spread:,.0f}"
        if unclear := [figures.name(each) for each in FIGURES if not figures.quantile(each, ADVISED).clear]:
            yield "warning", f"noise leaves the 95 % quantile open: {', '.join(unclear)}; raise --epsilon"
        for number, fields in enumerate(figures.advice()):
            lines = ", ".join(f"{name}: {value:.15g}" for name, value in fields.items())
            yield "" if number else "config", f"privacy: {{{lines}}}{_why(fields, number)}"
        yield "next", "write one of these into the config, then: hushgram release CONFIG --check"

    def closing_table(self, path: str) -> pa.Table:
        figures = self._figures(path)
        columns = {"at most": [figures.name(figure) for figure in FIGURES]}
        for q in QUANTILES:
            columns[f"{q:.0%} of users"] = [figures.quantile(figure, q).in_words() for figure in FIGURES]
        return pa.table(columns)

    def released(self, path: str) -> pa.Table:
        return pa.Table.from_pylist(self._figures(path).rows(), _SCHEMA)

    def _figures(self, path: str) -> UserFigures:
        with open(path, encoding="utf-8") as file:
            return UserFigures.from_dict(json.load(file)["result"], self.params)


_SCHEMA = pa.schema(
    {
        "figure": pa.string(), "quantile": pa.float64(), "at_most": pa.float64(), "low": pa.float64(),
        "high": pa.float64(), "suggests": pa.string(),
    }
)  # fmt: skip


def _why(fields: dict[str, float], number: int) -> str:
    if "max_value" in fields:
        return "   # 95 % of users stay as they are"
    return f"   # or up to {fields['max_per_key']:g} per key" if number else "   # once per key and user"


def _write(figures: UserFigures, path: str, header: dict[str, Any]) -> str:
    text = json.dumps({**header, "result": figures.to_dict()}, indent=2, ensure_ascii=False)
    return write_bytes(path, text.encode() + b"\n")


JOB = BoundsJob

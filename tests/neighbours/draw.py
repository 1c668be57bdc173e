"""Random configs, drawn from the config models themselves.

A config begins with what its job must have and grows by one field at a time, as long as it stays valid: so every field
of every model is tried, beside every other. `CHOICES` holds values where a type alone says too little; a field of
another kind that is not there is an error, so that a new field cannot be left out.
"""

from __future__ import annotations

import datetime
import random
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from hushgram.errors import HushgramError
from hushgram.pipelines import terminal
from hushgram.pipelines.jobs import JOBS, job_class
from hushgram.pipelines.jobs.job import Job
from hushgram.pipelines.jobs.release import ReleasePrivacy
from hushgram.sparse_histogram.params import ReleaseParams, Threshold, Weights
from tests.neighbours.data import TIMES
from tests.neighbours.eager import replaced

__all__ = ["NEVER", "Drawn", "draw_job", "fields_of"]

_KEYS = (
    "url", "url", "url", "url | lower", "url | strip_query", "url | host", "url | path 1", "[status, url]",
    "[user, url | host]", "text | words", "text | words", "text | ngrams 2", "[status, text | words]",
    "[url, text | words]", "[text | ngrams 3, url, user]", "time | truncate day",
    "text | substring 0 2", "status", "user",
)  # fmt: skip
_CONDITIONS = (
    "status = 200",
    "status >= 300 or status is null",
    "amount > 1",
    "url like '%a%'",
    "user = 'ann'",
    "not (status = 200)",
    "text is not null",
    "status in (200, 404)",
)
_TIMES = (
    "time >= '2026-11-16 12:00:00'",
    "time < '2026-11-16T12:30:00'", "time between '2026-11-16 10:00:00' and '2026-11-17'",
)  # fmt: skip
_QUERIES = (
    [{"key": "a"}],
    [{"key": "a"}, {"key": "B"}, {"key": "https://x.org/a?b=1"}, {"prefix": ""}],
    [{"prefix": "h"}, {"key": "a"}, {"prefix": "/"}, {"prefix": "["}],
    [{"column": "status", "between": [100, 300]}, {"column": "amount", "between": [0, 5]}],
    [{"where": "status = 200"}, {"where": "amount > 1 and url = 'a'"}],
    [{"prefix": ""}, {"where": "status is null"}, {"key": "b"}],
)
_LINEAR = ([{"all": True}], [{"cells": [0]}, {"cells": [1]}], [{"all": True}, {"cells": [0, 1]}])
_EPSILONS, _SHARES = (Fraction(1, 2), 1, 3), (Fraction(1, 4), Fraction(1, 2))
_SMALL = (1, 1, 2, 3, 4, 8)

# How keys are selected, which programs state and configs do not.
_SELECTIONS = (
    None, None, None, Threshold(), Weights(), Weights(rounds=1), Weights(rounds=2), Weights(rounds=3),
    Weights(max_keys=1), Weights(max_keys=2), Weights(max_keys=3, rounds=3),
)  # fmt: skip

#: fields that need others
_TOGETHER: dict[str, dict[str, Any]] = {
    "user_partition": {"dataset": "people"},
    "rounds": {"mode": "offline"},
    "stop": {"mode": "offline"},
    "alpha": {"total": 10**7},
}

#: fields that no valid config has, each with its reason
NEVER = {
    "ResponseInput.key": "in the local model no column is counted",
    "ResponseInput.user": "in the local model a record is protected by itself",
    "ResponseInput.rejected_records": "in the local model no record leaves its reader as it is",
    "ResponseConfig.user_partition": "there is no user column",
}

#: values by the name of the field, or of model and field; callables get the drawing
CHOICES: dict[str, Any] = {
    "path": lambda d: d.paths["pattern"],
    "StreamConfig.path": lambda d: d.paths["stream"],
    "QueriesConfig.path": lambda d: d.paths["linear"],
    "OutputConfig.path": lambda d: d.paths["output"],
    "format": lambda d: d.rng.choice(("auto", d.format)),
    "key": _KEYS,
    "ClipInput.key": ("amount", "amount", "status"),
    "ResponseInput.key": ("url",),
    "user": ("user", "user", "user", "user | lower", "[user, status]"),
    "where": lambda d: d.rng.choice(_TIMES if d.rng.random() < (0.7 if d.mixed else 0.2) else _CONDITIONS),
    "SecretConfig.where": ("amount > 1", "status = 200 or smokes = true"),
    "rejected_records": lambda d: d.paths["rejected"],
    "max_rejected_share": (1, 1, Fraction(9, 10)),
    "min_rows": (0,),
    "delimiter": (",",),  # the data say which one they have
    "quote": ('"',),
    "header": (True,),
    "newlines_in_values": (False, False, True),
    "preset": (),  # the data say how their log is written
    "ReleasePrivacy.preset": ("paper",),
    "pattern": (),
    "value": ("amount",),
    "epsilon": _EPSILONS,
    "delta": (0, 0, Fraction(1, 10**6), Fraction(1, 100)),
    "max_contributions": lambda d: d.rng.choice((*_SMALL, "auto") if d.job == "release" else _SMALL),
    "max_per_key": (1, 1, 2, 3),
    "bits_per_key": (4, 8),
    "max_value": (1, 4, 100),
    "granularity": (Fraction(1, 4), 1, 4),
    "ClipPrivacy.split": ({"bound": Fraction(1, 2), "sum": Fraction(1, 4), "count": Fraction(1, 4)},),
    "public_keys": lambda d: d.paths["keys"],
    "carry": lambda d: d.paths["keys"],
    "dataset": ("people",),
    "ledger": ("sqlite:///ledger.db",),
    "modulo": (2, 3),
    "part": (0, 1),
    "workers": (1, 2),
    "shards": (1, 2, 4, 16),
    "records": (10, 1000),
    "keys": (5, 100),
    "AnswerDomain.keys": lambda d: d.paths["keys"],
    "TopConfig.keys": lambda d: d.paths["keys"],
    "sketch": lambda d: d.rng.choice(d.sketches),
    "buckets": (1, 4, 32),
    "edges": ([0, 200, 300, 500], [-5, 0, 5]),
    "each": lambda d: d.metrics(),
    "share": _SHARES,
    "stream": lambda d: d.model_named("StreamConfig"),
    "streams": lambda d: d.streams(),
    "queries": lambda d: d.queries(),
    "QueriesConfig.queries": _LINEAR,
    "AnswerConfig.queries": lambda d: d.model_named("QueriesConfig"),
    "name": ("one",),
    "threshold": (0, 1, 5),
    "PmwConfig.threshold": (1, 10),
    "cutoff": (1, 2, 5),
    "margin": (0, 7),
    "method": ("auto", "sparse-vector", "histogram", "histogram"),
    "value_share": (Fraction(1, 3), Fraction(1, 2)),
    "beta": (Fraction(1, 20), Fraction(1, 5)),
    "start": (1, 2),
    "stop": (100, 5000),
    "PmwConfig.stop": (1, 5),
    "ratio": (Fraction(3, 2), 2),
    "step": (10, 50),
    "lower": (0, -5),
    "rounds": (1, 2, 3),
    "max_updates": (1, 3),
    "total": (10, 1000),
    "replay": (0, 1, 2),
    "eta": (Fraction(1, 20),),
    "PmwConfig.alpha": (Fraction(1, 2), Fraction(9, 10)),
    "prior": lambda d: d.sketches[0],
    "count": (1, 2),
    "secrets": lambda d: d.secrets(),
    "column": ("smokes",),
    "equals": ("200", "true"),
    "at_least": (1, 200),
    "public": (["url"], ["url", "status"]),
    **{job.replace("-", "_"): ("drawn",) for job in JOBS},
    **{f"{group}.{name}": () for group in ("ClipSplit",) for name in ("bound", "sum", "count")},
}


@dataclass
class Drawn:
    """A valid config, and the job made of it."""

    job: Job[Any]
    fields: dict[str, Any]
    used: set[str] = field(default_factory=set)


def fields_of(model: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str]]:
    """All fields of a model and of the models in them."""
    for name, info in model.model_fields.items():
        yield model, name
        for inner in _models_in(info.annotation):
            yield from fields_of(inner)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


@cache
def _model_named(config: type[BaseModel], name: str) -> type[BaseModel]:
    return next(model for model, _ in fields_of(config) if model.__name__ == name)


def draw_job(name: str, rng: random.Random, world: Any, seen: Counter[str]) -> Drawn:
    """A random job of this name over the files of ``world``; ``seen`` counts the fields of valid configs."""
    return _Drawing(name, rng, world).draw(seen)


class _Drawing:
    def __init__(self, job: str, rng: random.Random, world: Any) -> None:
        self.job, self.rng = job, rng
        self.paths, self.sketches = world.paths, world.sketches
        self.format, self.input, self.clock = world.format, world.input, world.clock
        self.mixed = world.format == "auto"
        self.config = job_class(job).Config
        self.selection = rng.choice(_SELECTIONS)

    def draw(self, seen: Counter[str]) -> Drawn:
        """Grow a config: required fields first, then one optional field after another."""
        for _ in range(50):
            fields, used = self._required(self.config)
            self.fields = fields
            for name, value in self._start().items():
                fields[name] = value
                used.update(_named(self.config, name, value))
            fields["input"] |= _copied(self.input)
            if self.job == "bounds":
                fields["input"]["user"] = self._value(_model_named(self.config, "ReleaseInput"), "user")
            used.update(_named(self.config, "input", fields["input"]))
            for model, owner, name, into in self._optional(self.config, fields):
                if self.rng.random() < self._chance(name):
                    self._grow(model, owner, name, into, fields, used)
            try:
                job = self._job(fields)
            except (HushgramError, ValueError):
                continue
            seen.update(used)
            return Drawn(job, fields | {"selection": self.selection}, used)
        raise LookupError(f"{self.job}: no valid config in 50 draws, the last was {fields}")

    def _start(self) -> dict[str, Any]:
        """What a job needs one way or another."""
        ways: list[dict[str, Any]] = [{}]
        if self.job == "top":
            few = {"count": self._value(self.config, "count")}  # no more than there are candidates
            ways = [few | {"keys": self.paths["keys"]}, few | {"sketch": self.rng.choice(self.sketches)}]
        if self.job == "sparse-vector":
            svt = {"svt": {"threshold": 1, "cutoff": 2}}
            ways = [svt | {"stream": self.model_named("StreamConfig")}, svt | {"streams": self.streams()}]
        if self.job == "answer":
            kinds = ("keys", "sketch", "buckets", "edges")
            model = _model_named(self.config, "AnswerDomain")
            ways = [{"domain": {kind: self._value(model, kind)}} for kind in kinds]
        return self.rng.choice(ways)

    def _chance(self, name: str) -> float:
        """Fields that change which records count are drawn most often."""
        often = {
            "carry": 0.6,
            "user": 0.8,
            "max_contributions": 0.9,
            "max_rejected_share": 1.0,
            "min_rows": 1.0,
            "where": 0.8 if self.mixed else 0.2,
        }
        return often.get(name, {"value": 0.6, "delta": 0.4}.get(name, 0.2))

    def _grow(
        self,
        model: type[BaseModel],
        owner: str,
        name: str,
        into: dict[str, Any],
        fields: dict[str, Any],
        used: set[str],
    ) -> None:
        value = self._value(model, name)
        if value is _SKIP:
            return
        before = dict(into)
        into[name] = value
        into |= {
            other: given for other, given in _TOGETHER.get(name, {}).items() if other in model.model_fields
        }
        bound = fields["privacy"].get("max_contributions")
        if name in ("user", "key") and bound is None:
            fields["privacy"]["max_contributions"] = self.rng.choice(_SMALL)
        if name == "value":
            into_privacy = fields["privacy"]
            into_privacy |= {
                "max_value": self.rng.choice((1, 4)),
                "granularity": self.rng.choice((Fraction(1, 4), 1, 1)),
            }
        try:
            self._job(fields)
        except (HushgramError, ValueError):
            into.clear()
            into.update(before)
            if bound is None:
                fields["privacy"].pop("max_contributions", None)
            if name == "value":
                for extra in ("max_value", "granularity"):
                    fields["privacy"].pop(extra, None)
            return
        used.update(_named(model, name, value))

    def _job(self, fields: dict[str, Any]) -> Job[Any]:
        stated = ReleasePrivacy.params

        def params(privacy: ReleasePrivacy, sizes: Any = None) -> ReleaseParams:
            out = stated(privacy, sizes)
            selects = out.delta and out.preset is None and privacy.domain is None
            return out.changed(selection=self.selection) if selects else out

        # Lists of keys are odd on purpose.
        with replaced({(terminal, "odd_keys"): lambda _: [], (ReleasePrivacy, "params"): params}):
            return job_class(self.job)(self.config.model_validate(_copied(fields)))

    def _required(self, model: type[BaseModel]) -> tuple[dict[str, Any], set[str]]:
        out: dict[str, Any] = {}
        used: set[str] = set()
        if model.__name__ in ("StreamConfig", "QueriesConfig"):
            name = self.rng.choice(("path", "queries"))
            return {name: self._value(model, name)}, {f"{model.__name__}.{name}"}
        for name, info in model.model_fields.items():
            inner = next(_models_in(info.annotation), None)
            if not info.is_required() and name not in ("input", "privacy", "pmw", "grid", "csv"):
                continue
            if f"{model.__name__}.{name}" in CHOICES or inner is None or name in CHOICES:
                out[name] = self._value(model, name)
                used.update(_named(model, name, out[name]))
            else:
                out[name], more = self._required(inner)
                used |= {f"{model.__name__}.{name}", *more}
        return out, used

    def _optional(
        self, model: type[BaseModel], fields: dict[str, Any]
    ) -> list[tuple[type[BaseModel], str, str, dict[str, Any]]]:
        """(model, owner, field, where its value goes) of all fields that may be added, in random order."""
        found = []
        for name, info in model.model_fields.items():
            inner = next(_models_in(info.annotation), None)
            if isinstance(fields.get(name), dict) and inner is not None and name not in ("each", "secrets"):
                found += self._optional(inner, fields[name])
            elif name not in fields:
                found.append((model, model.__name__, name, fields))
        self.rng.shuffle(found)
        return found

    def _value(self, model: type[BaseModel], name: str) -> Any:
        choices = CHOICES.get(f"{model.__name__}.{name}", CHOICES.get(name))
        if choices is None:
            return self._of_type(model, name, model.model_fields[name].annotation)
        if isinstance(choices, Callable):  # type: ignore[arg-type]
            return choices(self)
        return self.rng.choice(choices) if choices else _SKIP

    def _of_type(self, model: type[BaseModel], name: str, annotation: Any) -> Any:
        origin = get_origin(annotation)
        if annotation is bool:
            return self.rng.random() < 0.5
        if origin is Literal:
            return self.rng.choice(get_args(annotation))
        if origin in (Union, types.UnionType):
            inner = [part for part in get_args(annotation) if part is not type(None)]
            return self._of_type(model, name, inner[0])
        if origin is Annotated:
            return self._of_type(model, name, get_args(annotation)[0])
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return self.model_named(annotation.__name__)
        raise LookupError(f"{model.__name__}.{name}: {annotation} has no CHOICES in tests/neighbours/draw.py")

    def model_named(self, name: str) -> Any:
        """A value of a model: what it must have, and some of what it may."""
        model = _model_named(self.config, name)
        fields, _ = self._required(model)
        for inner, _, field_name, into in self._optional(model, fields):
            if self.rng.random() < 0.4:
                value = self._value(inner, field_name)
                if value is not _SKIP:
                    into[field_name] = value
        return fields

    def metrics(self) -> dict[str, Any]:
        """One or more metrics, counts beside sums."""
        out = {}
        for name in self.rng.sample(("visits", "bytes", "more"), self.rng.choice((1, 2, 2, 3))):
            out[name] = {}
            if self.rng.random() < 0.5:
                out[name] = {
                    "value": "amount",
                    "max_value": self.rng.choice((1, 4)),
                    "granularity": self.rng.choice((Fraction(1, 4), 1)),
                }
            for extra, values in (
                ("max_contributions", _SMALL), ("max_per_key", (1, 2)), ("share", (Fraction(1, 2),)),
                ("sizes", ({"records": 100, "keys": 10},)),
            ):  # fmt: skip
                if self.rng.random() < 0.2:
                    out[name][extra] = self.rng.choice(values)
        return out

    def streams(self) -> list[Any]:
        """Two streams by name."""
        return [self.model_named("StreamConfig") | {"name": name} for name in ("one", "two")]

    def queries(self) -> list[dict[str, Any]]:
        """A stream of queries; at times of ranges of time, their ends in the order of their text or of their time."""
        if self.format != "parquet" or self.rng.random() < 0.5:
            return self.rng.choice(_QUERIES)
        as_text = self.rng.random() < 0.6
        ranges = [self._range_of_time(as_text) for _ in range(self.rng.choice((1, 2, 3, 4)))]
        some = {"where": f"at >= '{self._spelled(self.rng.choice(TIMES))}'"}
        return [*ranges, some] if self.rng.random() < 0.2 else ranges

    def _range_of_time(self, as_text: bool) -> dict[str, Any]:
        ends = [self._spelled(end) for end in sorted(self.rng.choices(TIMES, k=2))]
        return {"column": "at", "between": sorted(ends) if as_text else ends}

    def _spelled(self, moment: datetime.datetime) -> str:
        """A literal of a time, with a blank or a T, in one time zone or another, short or in full."""
        if self.clock == "day":
            return moment.strftime(self.rng.choice(("%H:%M:%S", "%H:%M", "%H%M", "T%H:%M")))
        hours = self.rng.choice((0, 12, -5)) if self.clock == "instant" else 0
        local = moment + datetime.timedelta(hours=hours)
        zone = "" if self.clock == "local" else f"{hours:+03}:00" if hours else "Z"
        return local.strftime(f"%Y-%m-%d{self.rng.choice('T ')}%H:%M:%S{zone}")

    def secrets(self) -> dict[str, Any]:
        """One or two secret bits of a record."""
        pool: dict[str, dict[str, Any]] = {
            "smokes": {}, "rich": {"column": "amount", "at_least": 1}, "ok": {"column": "status", "equals": "200"},
            "both": {"where": "amount > 1"},
        }  # fmt: skip
        return {name: pool[name] for name in self.rng.sample(sorted(pool), self.rng.choice((1, 2)))}


_SKIP = object()


def _named(model: type[BaseModel], name: str, value: Any) -> Iterator[str]:
    """The fields that a value fills, with those of the models in it."""
    yield f"{model.__name__}.{name}"
    for inner in _models_in(model.model_fields[name].annotation):
        held = value if isinstance(value, list) else [value]
        if name in ("each", "secrets") and isinstance(value, dict):
            held = list(value.values())
        for one in held:
            if isinstance(one, dict):
                for key, deeper in one.items():
                    if key in inner.model_fields:
                        yield from _named(inner, key, deeper)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value

"""The specification of a release: one frozen object from the config or the Python call to the last stage.

    ReleaseParams, columns, public keys, name, key ─► ReleaseSpec ─► bound ─► merge ─► plan ─► select ─► encode ─► write

Several metrics of the same records have a `ReleaseSpec` each and one `BoundingSpec` for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hushgram.contributions.bounding import BoundingSpec, Bounds, KeyClasses
from hushgram.contributions.histogram import KeyTable
from hushgram.contributions.keys import draw_seeds, encode
from hushgram.errors import InputError, ParameterError, check_name
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.sensitivity import PrivacyUnit
from hushgram.sparse_histogram.params import MAX_CONTRIBUTIONS, Params, ReleaseParams, Weights
from hushgram.sparse_histogram.split import SharedSelection
from hushgram.sparse_histogram.users import MAX_CHOICE

__all__ = [
    "METRIC_NAME", "Metric", "ReleaseSpec", "check_metrics", "checked_params", "metric_specs", "share_selection",
]  # fmt: skip

#: what a metric may be called: its name is that of a file
METRIC_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
# Sums without users are kept in grains: 2^39 records of one key fit 64 bits.
_MAX_PER_RECORD = 1 << 12


@dataclass(frozen=True, eq=False)
class ReleaseSpec:
    """One release: columns, parameters, public keys, name and key; made by `ReleaseSpec.of`.

    Attributes:
        params: the parameters.
        key: the column of keys.
        user: the column of users; None where a record is the privacy unit.
        value: the column whose values are summed; None where records are counted.
        public_keys: keys that are known without the data, or None for any keys.
        name: the name of the release, in its manifest.
        key_expression: how the key was derived from other columns, in its manifest.
        release_key: the key of all of its randomness. A secret.
        carried: keys that an earlier release named, which are counted without being selected; None for none.
    """

    params: Params
    key: str
    user: str | None
    value: str | None
    public_keys: KeyTable | None
    name: str
    key_expression: str
    release_key: ReleaseKey
    carried: KeyTable | None = None

    @classmethod
    def of(
        cls,
        stated: ReleaseParams,
        *,
        key: str = "key",
        user: str | None = None,
        value: str | None = None,
        public_keys: Any = None,
        name: str = "",
        key_expression: str = "",
        release_key: ReleaseKey | None = None,
        carry: Any = None,
        weights: bool = True,
        caller: str = "ReleaseSpec",
    ) -> ReleaseSpec:
        """Return the specification, checked; without ``release_key`` its key is fresh.

        Raises a ParameterError that begins with ``caller`` where arguments do not go together. Without ``weights``
        contributions were bounded before, so that users are not known.
        """
        unit: PrivacyUnit = "record" if user is None else "user"
        params = checked_params(stated, caller).resolve(
            unit, public=public_keys is not None, weights=weights, caller=caller
        )
        if public_keys is not None or unit == "record" or not weights:
            params.check()
        if value is not None and user is None and params.max_per_key > _MAX_PER_RECORD:
            raise ParameterError(
                f"{caller}: without users max_value must be at most {_MAX_PER_RECORD:,} times granularity;"
                " raise granularity"
            )
        if (params.granularity is None) != (value is None):
            missing = "params with max_value and granularity" if value is not None else "a column of values"
            raise ParameterError(f"{caller}: summing values needs {missing}")
        table = None if public_keys is None else _public_key_table(public_keys)
        carried = None if carry is None or not len(carry) else _public_key_table(carry)
        if carried is not None and not params.weighted:
            raise ParameterError(
                f"{caller}: carry needs delta above 0, users with max_contributions above 1, and any keys"
            )
        if release_key is not None and not isinstance(release_key, ReleaseKey):
            raise ParameterError(
                f"{caller}: release_key must be hg.ReleaseKey(secret), got {type(release_key).__name__}"
            )
        derived = _derived(release_key or ReleaseKey.generate(), params, carried)
        check_name(name, "the name of a release")
        return cls(params, key, user, value, table, name, key_expression, derived, carried)

    def with_key(self, release_key: ReleaseKey) -> ReleaseSpec:
        """Return the same under this release key."""
        return replace(self, release_key=_derived(release_key, self.params, self.carried))

    def with_public_keys(self, keys: Any) -> ReleaseSpec:
        """Return the same for other public keys."""
        return replace(self, public_keys=_public_key_table(keys))

    def sharing_keys(self, share: Callable[[KeyTable], KeyTable]) -> ReleaseSpec:
        """Return the same with ``share`` of its public or carried keys; there are never both."""
        if self.public_keys is not None:
            return replace(self, public_keys=share(self.public_keys))
        return self if self.carried is None else replace(self, carried=share(self.carried))

    @property
    def public_key_noise(self) -> ReleaseKey:
        """Return the key of the noise on counts of public keys: under one release key, two lists share no noise."""
        assert self.public_keys is not None
        return self.release_key.for_parameters("public keys", {"keys": self.public_keys.digest().hex()})

    def stated(self) -> dict[str, Any]:
        """Return all public choices that can change the output, for the ledger to compare."""
        listed = None if self.public_keys is None else _digest(self.public_keys)
        names = ("key", "user", "value", "key_expression")
        return {
            **{name: getattr(self, name) for name in names},
            "params": self.params.to_dict(),
            "public_keys": listed,
            "carried": None if self.carried is None else _digest(self.carried),
        }

    @property
    def unit(self) -> PrivacyUnit:
        """Return the privacy unit."""
        return self.params.unit

    @property
    def texts(self) -> bool:
        """Return whether keys are identified by their text."""
        return self.params.delta != 0 or self.public_keys is not None

    @property
    def loose_bounds(self) -> Bounds:
        """Return the most that is looked at of a user, before C and the classes of keys are known."""
        params, most = self.params, self.params.max_contributions
        if params.weighted:
            most = MAX_CONTRIBUTIONS
        elif params.counts_users:
            most = max(most, params.user_ends[-1])
        return Bounds(most, params.max_per_key, weighted=params.granularity is not None)

    def bounds(self, params: Params | None = None) -> Bounds:
        """Return the bounds of a user, by the classes of keys where the noise needs them.

        ``params`` are those with a chosen C; left out, the stated ones.
        """
        params = params or self.params
        count = 0 if params.choose_contributions else params.sensitivity.classes
        key_classes = KeyClasses(draw_seeds(self.release_key, 1)[0], count) if count else None
        most = params.max_contributions
        return replace(self.loose_bounds, max_contributions=most, key_classes=key_classes)

    @property
    def bounding(self) -> BoundingSpec:
        """Return what contribution bounding needs; where keys are selected first, users are bounded later."""
        grid = self.params.grid
        weights = None if self.value is None or grid is None else (self.value, grid)
        return BoundingSpec(
            self.user,
            self.key,
            self.release_key,
            (self.loose_bounds if self.params.counts_users else self.bounds(),),
            self.texts,
            (weights,),
            self.public_keys,
        )


class Metric(NamedTuple):
    """One of several metrics: how often keys occur, or with ``value`` the sum of that column."""

    params: ReleaseParams
    value: str | None = None


def metric_specs(
    metrics: Mapping[str, Metric],
    *,
    key: str = "key",
    user: str | None = None,
    name: str = "",
    key_expression: str = "",
    release_key: ReleaseKey | None = None,
) -> tuple[BoundingSpec, dict[str, ReleaseSpec]]:
    """Return the bounding of users that all metrics share, and the specification of each metric by name."""
    check_metrics(metrics)
    unit: PrivacyUnit = "record" if user is None else "user"
    asked = {each: [metric.value, metric.params.to_dict()] for each, metric in metrics.items()}
    base = (release_key or ReleaseKey.generate()).for_parameters("metrics", asked)
    resolved = share_selection(
        {name: metric.params.resolve(unit, caller=f"metrics: {name}") for name, metric in metrics.items()}
    )
    specs = {}
    for each, metric in metrics.items():
        spec = ReleaseSpec.of(
            metric.params,
            key=key,
            user=user,
            value=metric.value,
            name=f"{name}/{each}" if name else each,
            key_expression=key_expression,
            caller=f"metrics: {each}",
        )
        own = base.for_parameters("metric", {"name": each})
        specs[each] = replace(spec, params=resolved[each]).with_key(own)
    all_of_them = tuple(specs.values())
    shared = replace(
        all_of_them[0].bounding,
        release_key=base,
        bounds=tuple(spec.loose_bounds for spec in all_of_them),
        values=tuple(spec.bounding.values[0] for spec in all_of_them),
        texts=any(spec.texts for spec in all_of_them),
    )
    return shared, specs


def share_selection(specs: Mapping[str, Params]) -> dict[str, Params]:
    """Return the parameters of metrics with one key selection for all that select by weights; others select for
    themselves."""
    weighted = {name: params for name, params in specs.items() if params.weighted}
    if len(weighted) < 2:
        return dict(specs)
    if len({params.max_keys for params in weighted.values()}) > 1:
        raise ParameterError("metrics: selection.max_keys must be the same for all: keys are selected once")
    if not all(params.choose_rounds for params in weighted.values()):  # one of them states the number
        rounds = max(params.rounds for params in weighted.values())
        weighted = {name: _stating(params, rounds) for name, params in weighted.items()}
    parts = tuple((name, params.metric_shares) for name, params in weighted.items())
    shared = {name: params.sharing(SharedSelection(name, parts)) for name, params in weighted.items()}
    return {name: shared.get(name, params) for name, params in specs.items()}


def _stating(params: Params, rounds: int) -> Params:
    """Return the same with so many rounds, whatever the data."""
    stated = params.stated.changed(selection=Weights(params.max_keys, rounds))
    return replace(params, stated=stated, chosen_rounds=rounds if params.rounds != rounds else None)


def check_metrics(metrics: Mapping[str, Metric]) -> None:
    """Raise a ParameterError where names or parameters of metrics do not go together."""
    if not metrics:
        raise ParameterError("metrics: name at least one")
    for name, metric in metrics.items():
        if not isinstance(name, str) or not METRIC_NAME.fullmatch(name):
            raise ParameterError(
                f"metrics: a name must be lower-case letters, digits, - and _, at most 40 of them, got {name!r}"
            )
        if not isinstance(metric, Metric):
            raise ParameterError(f"metrics: {name} must be hg.Metric(params), got {type(metric).__name__}")
        checked_params(metric.params, f"metrics: {name}")
    if len({metric.params.delta == 0 for metric in metrics.values()}) > 1:
        raise ParameterError("metrics: delta must be 0 for all of them or for none: users are bounded once")
    most = max(metric.params.max_contributions or MAX_CHOICE for metric in metrics.values())
    if most > MAX_CHOICE and any(metric.params.max_contributions is None for metric in metrics.values()):
        raise ParameterError(
            f"metrics: max_contributions auto goes with at most {MAX_CHOICE:,} times granularity per user in the"
            " others; raise granularity"
        )


def checked_params(params: object, caller: str) -> ReleaseParams:
    """Return the parameters; raise a ParameterError where they are something else."""
    if not isinstance(params, ReleaseParams):
        raise ParameterError(
            f'{caller}: params must be ReleaseParams, such as hg.ReleaseParams(epsilon="1", max_contributions=8), got'
            f" {type(params).__name__.strip('_').lower()}"
        )
    return params


def _public_key_table(keys: Any) -> KeyTable:
    """Return distinct public keys in canonical order."""
    encoded = encode(keys, "public keys")
    if not len(encoded.values):
        raise InputError("public keys: the list is empty; name at least one key")
    if len(encoded.values) != len(encoded.codes):
        raise InputError("public keys: a key is listed twice; list each key once")
    return KeyTable.build(encoded.values)[0]


def _digest(table: KeyTable) -> str:
    return digest(*table.texts.to_pylist()).hex()


def _derived(key: ReleaseKey, params: Params, carried: KeyTable | None) -> ReleaseKey:
    """Return the key for these public choices: under one key, noise of two of them has nothing in common."""
    derived = key.for_parameters("release", params.to_dict())
    return derived if carried is None else derived.for_parameters("carry", {"keys": _digest(carried)})

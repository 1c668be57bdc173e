"""From what was asked and what sizes are known to every number of the release, before any further data are touched.

A `Plan` is public: it follows from the parameters and from released (or guessed) sizes alone. All of its arithmetic
is on integers and fractions, so that every worker on every machine computes the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from hushgram.accounting import Event, Guarantee
from hushgram.encodings import Demand, Encoding, Space, encoding_named, encoding_of
from hushgram.errors import ParameterError
from hushgram.noise.noises import Noise, noise_of
from hushgram.numbers import integer, rational, show
from hushgram.sensitivity import UNITS, Sensitivity, Unit
from hushgram.sparse_histogram import sizing, threshold
from hushgram.sparse_histogram.contributions import GRID, MOST, UserTotals, privacy
from hushgram.sparse_histogram.kinds import LEAST_KEYS, PUBLIC, PURE, TEXT, Kind, kind_of
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.sizing import PROFILE_GRID, Sizes

__all__ = [
    "Plan", "check_params", "expected_sizes", "listed_variance", "make_plan", "make_public_plan", "release_events",
]  # fmt: skip

# A release of so many false keys takes minutes; there is room for as many keys as the noise of their number.
_MOST_FALSE_KEYS = 1 << 24
_MOST_SIZE_NOISE = 1 << 28
# No threshold is further out than so many scales: the tail there is below 10^-80 for either noise.
_MOST_SCALES = 200


@dataclass(frozen=True)
class Plan:
    """Every public number of a release."""

    params: ReleaseParams
    sizes: Sizes
    #: how many keys there is room for
    keys: int
    kind: Kind
    domain_bits: int | None
    #: from this noisy count on a key is heavy
    threshold: int
    scale: Fraction
    #: the word of the noise
    noise_word: str
    #: of the encoded counts; None where a public list is all that is released
    space: Space | None
    #: who is protected
    unit: Unit = "user"
    #: from which C was chosen; None where it was stated
    totals: UserTotals | None = None

    @property
    def noise(self) -> Noise:
        """The noise on the counts of heavy keys."""
        return noise_of(self.noise_word)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one privacy unit moves the counts, which all noise is calibrated for."""
        return replace(self.params.sensitivity, unit=self.unit)

    @property
    def listed_sensitivity(self) -> Sensitivity:
        """The same for what the threshold tells apart."""
        return self.kind.told_apart(replace(self.sensitivity, classes=0))

    @property
    def demand(self) -> Demand:
        """What the space was planned for."""
        scale = self.space.noise_scale if self.space else None
        return _demand(self.params, self.sizes, self.keys, self.threshold, scale)

    @property
    def bits(self) -> int:
        """Bits of the encoded counts."""
        return 0 if self.space is None else self.space.bits

    def guarantee(self) -> Guarantee:
        """The guarantee of the parts, once each is confirmed by its privacy map; raises if a map exceeds its share."""
        if self.space is None:
            _check_public(self)
        else:
            _check_parts(self, self.space)
        return Guarantee.of(
            self.events(),
            max_contributions=self.params.max_contributions * self.params.per_count,
            max_per_key=self.params.max_per_key * self.params.per_count,
            subject="The sketch is",
            unit=self.unit,
        )

    def events(self) -> list[Event]:
        """What the release is charged for."""
        return release_events(self.params, self.unit, public=self.space is None)

    def as_text(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "unit": self.unit,
            "params": self.params.as_text(),
            "sizes": self.sizes.as_text(),
            "keys": self.keys,
            "kind": self.kind.word,
            "domain_bits": self.domain_bits,
            "threshold": self.threshold,
            "noise": self.noise_word,
            "scale": show(self.scale),
            "encoding": None if self.space is None else self.space.encoding,
            "space": None if self.space is None else self.space.as_text(),
            **({} if self.totals is None else {"user_totals": self.totals.as_text()}),
        }

    @classmethod
    def from_text(cls, text: Mapping[str, Any]) -> Plan:
        """The plan that `as_text` wrote; ParameterError where a number is out of range."""
        kind, unit = kind_of(text["kind"]), text["unit"]
        if unit not in UNITS:
            raise ParameterError(f"Plan: unit must be one of {', '.join(UNITS)}, got {str(unit)[:40]!r}")
        params = ReleaseParams.from_text(text["params"])
        scale = rational(text["scale"], "scale", "Plan")
        noise, part = noise_of(text["noise"]), params.split.threshold if kind.sparse else params.epsilon
        if not noise.plausible(scale, part, params.sensitivity):
            raise ParameterError(
                f"Plan: scale {show(scale)[:60]} is not that of {noise.id} noise for epsilon and max_contributions"
            )
        highest = int(_MOST_SCALES * scale) + params.max_contributions + 100
        return cls(
            params=params,
            sizes=Sizes.from_text(text["sizes"]),
            keys=integer(text["keys"], "keys", "Plan", low=1, high=1 << 62),
            kind=kind,
            domain_bits=kind.checked_domain(text["domain_bits"]),
            threshold=integer(
                text["threshold"],
                "threshold",
                "Plan",
                low=int(kind.sparse),
                high=highest if kind.sparse else 0,
            ),
            scale=scale,
            noise_word=noise.id,
            space=encoding_of(text["encoding"]).read_space(text["space"]) if kind.sparse else None,
            unit=unit,
            totals=UserTotals.from_text(text["user_totals"]) if "user_totals" in text else None,
        )


def expected_sizes(params: ReleaseParams) -> Sizes | None:
    """Sizes that the user stated, or None where they must be released from the data."""
    if params.expected_keys is None or params.expected_records is None:
        return None
    return Sizes(params.expected_records, params.expected_keys, (), Fraction(0))


def make_plan(params: ReleaseParams, sizes: Sizes, unit: Unit = "user") -> Plan:
    """Domain, threshold and space of the encoding for these parameters and sizes."""
    # A noisy number of keys below its own noise says nothing: room for that many keys does no harm.
    keys = max(sizes.keys, -(-sizes.scale // 1), LEAST_KEYS)
    if params.fit_split:
        return _fitted(params, sizes, unit)
    kind = _kind(params)
    scale, of_space = _scales(params)
    domain_bits, heavy_from = kind.threshold(params, keys, noise_of(params.noise), scale)
    space = _encoding(params).plan(_demand(params, sizes, keys, heavy_from, of_space))
    return Plan(params, sizes, keys, kind, domain_bits, heavy_from, scale, params.noise, space, unit)


def _fitted(params: ReleaseParams, sizes: Sizes, unit: Unit) -> Plan:
    """The plan with the least error among those that the noise can divide ε for. Sizes are public: this is free."""

    def error(plan: Plan) -> Fraction:
        assert plan.space is not None
        return _encoding(params).squared_error(plan.space, plan.demand)

    shares = noise_of(params.noise).shares
    return min((make_plan(params.with_threshold_share(share), sizes, unit) for share in shares), key=error)


def make_public_plan(params: ReleaseParams, keys: int, unit: Unit = "user") -> Plan:
    """For a public list of keys: all of ε goes to noise on every one of them; nothing is encoded, δ = 0."""
    if params.delta != 0:
        raise ParameterError("ReleaseParams: a public list of keys needs no delta; set delta to 0")
    sizes = Sizes(0, keys, (), Fraction(0))
    (scale,) = noise_of(params.noise).scales((params.epsilon,), Fraction(0), params.sensitivity)
    return Plan(params, sizes, keys, PUBLIC, None, 0, scale, params.noise, None, unit)


def check_params(params: ReleaseParams) -> None:
    """Refuse parameters with which no release could end, whatever the sizes turn out to be."""
    if params.choose_contributions:  # as below: what holds at both ends holds between them
        for chosen in (max(GRID[0], params.max_per_key), MOST):
            params.with_contributions(chosen)
        return
    if params.fit_split:  # any of these may be chosen, when nothing may be refused any more
        for share in noise_of(params.noise).shares:
            params.with_threshold_share(share)
    noise, (scale, of_space) = noise_of(params.noise), _scales(params)
    worst = _kind(params).highest_threshold(params, noise, scale)
    _encoding(params).check(_demand(params, Sizes(1, 1, (), Fraction(0)), LEAST_KEYS, worst, of_space))
    stated = params.false_keys if params.false_keys >= 1 else params.false_keys * (params.expected_keys or 0)
    if params.delta == 0 and stated > _MOST_FALSE_KEYS:
        raise ParameterError(
            f"ReleaseParams: false_keys must let in at most {_MOST_FALSE_KEYS:,} false keys, got about"
            f" {int(stated):,}; lower false_keys"
        )
    if params.split.size and sizing.of_sizes(params.sensitivity).l1 / params.split.size > _MOST_SIZE_NOISE:
        raise ParameterError(
            f"ReleaseParams: the number of keys would have noise above {_MOST_SIZE_NOISE:,}, and room for so many;"
            " state expected_keys and expected_records, lower max_contributions or raise epsilon"
        )


def _kind(params: ReleaseParams) -> Kind:
    return PURE if params.delta == 0 else TEXT


def _encoding(params: ReleaseParams) -> Encoding:
    return encoding_named(params.encoding)


def _scales(params: ReleaseParams) -> tuple[Fraction, Fraction | None]:
    """Scales of the noise of the list, and of the cells of an encoding that has the same noise."""
    noise = noise_of(params.noise)
    of_noise, _ = noise.split_delta(params.delta)
    listed, *encoded = noise.scales(params.noisy_parts, of_noise, params.sensitivity)
    return listed, encoded[0] if encoded else None


def listed_variance(params: ReleaseParams) -> Fraction:
    """Variance of the noise on a listed count."""
    return noise_of(params.noise).variance(_scales(params)[0])


def _demand(
    params: ReleaseParams, sizes: Sizes, keys: int, heavy_from: int, scale: Fraction | None = None
) -> Demand:
    return Demand(
        epsilon=params.split.encoding,
        delta=Fraction(0),
        max_contributions=params.max_contributions,
        max_per_key=params.max_per_key,
        noise=params.noise,
        scale=scale,
        threshold=heavy_from,
        keys=keys,
        records=sizes.records,
        profile_at=PROFILE_GRID if sizes.profile else (),
        profile=sizes.profile,
        options=params.options,
    )


def release_events(params: ReleaseParams, unit: Unit, *, public: bool = False) -> list[Event]:
    """Return the mechanisms of a release and what each may cost; they compose by addition, also where one is planned
    by the output of another. ``public`` is for a public list of keys, on which all of ε is spent.
    """
    split, noisy = params.split, params.noisy_parts
    if public:
        parts = [Event("laplace", params.epsilon, relation=unit)]
    elif len(noisy) == 2:  # list and encoding have one noise: the mechanism on both vectors
        parts = [Event(params.noise, sum(noisy, Fraction(0)), params.delta, relation=unit)]
    else:
        listed = "threshold" if params.noise == "laplace" else params.noise
        parts = [
            Event(listed, split.threshold, params.delta, relation=unit),
            Event(params.encoding, split.encoding, relation=unit),
        ]
    if public:
        return parts
    before = (
        Event("contributions", split.contributions, relation=unit),
        Event("sizing", split.size, relation=unit),
    )
    return [event for event in (*before, *parts) if event.epsilon or event.delta]


def _check_public(plan: Plan) -> None:
    if not plan.noise.holds((plan.scale,), (plan.params.epsilon,), Fraction(0), plan.sensitivity):
        raise ParameterError("Plan: noise is smaller than epsilon allows")


def _check_parts(plan: Plan, space: Space) -> None:
    """Raise where the privacy map of a mechanism exceeds its share of ε or δ."""
    params, split = plan.params, plan.params.split
    size = sizing.privacy(plan.sizes.scale, plan.sensitivity) if plan.sizes.scale else Fraction(0)
    of_noise, of_threshold = plan.noise.split_delta(params.delta)
    if plan.kind is TEXT:
        found = threshold.delta_of(plan.threshold, plan.noise, plan.scale, plan.listed_sensitivity)
        if found > of_threshold:
            raise ParameterError(
                f"Plan: threshold {plan.threshold} is too low for delta {show(of_threshold)}"
            )
    space.check_loss(plan.demand)
    scales = (plan.scale,) if space.noise_scale is None else (plan.scale, space.noise_scale)
    if plan.totals is None and split.contributions:
        raise ParameterError("Plan: max_contributions was chosen from the data, and from what is not said")
    if plan.totals is not None and privacy(plan.totals.scale) > split.contributions:
        raise ParameterError("Plan: noise of user_totals is smaller than the split of epsilon allows")
    if size > split.size or not plan.noise.holds(scales, params.noisy_parts, of_noise, params.sensitivity):
        raise ParameterError("Plan: noise is smaller than the split of epsilon allows")

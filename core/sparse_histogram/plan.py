"""The plan of a release: every public number of it, before any further data are touched.

A `Plan` is public: it follows from the parameters and from released (or guessed) sizes alone. All of its arithmetic
is on integers and fractions, so that every worker on every machine computes the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from hushgram.accounting import Event, Guarantee
from hushgram.encodings import Encoding, Layout, LayoutSpec, encoding_named, encoding_of
from hushgram.errors import ParameterError
from hushgram.key_selection import threshold
from hushgram.key_selection.rounds import SelectionPlan
from hushgram.key_selection.threshold import MAX_TOP_SCALE, TOP_SHARE, TopList
from hushgram.key_selection.weighted import new_key_delta
from hushgram.noise.gdp import OneOf
from hushgram.noise.laplace import NOISE as LAPLACE
from hushgram.noise.noises import Noise, noise_of
from hushgram.numbers import integer, rational, show
from hushgram.sensitivity import PRIVACY_UNITS, PrivacyUnit, Sensitivity
from hushgram.sparse_histogram import contribution_bounds, kept_share, sizing
from hushgram.sparse_histogram.contribution_bounds import GRID, MAX_CHOICE, UserTotals
from hushgram.sparse_histogram.kept_share import KeptShare
from hushgram.sparse_histogram.list_choice import LEAST_BITS, MAX_TOP_BITS, ListChoice, choose_list
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.selection import (
    CELLS_PER_KEY,
    FINGERPRINTS,
    MIN_KEYS,
    PUBLIC_KEYS,
    TEXTS,
    WEIGHTS,
    KeySelection,
    selection_of,
)
from hushgram.sparse_histogram.sizing import PROFILE_GRID, Sizes

__all__ = [
    "Plan", "check_params", "expected_sizes", "kept_note", "listed_variance", "make_plan", "make_public_plan",
    "metrics_events", "metrics_steps", "release_events", "release_steps",
]  # fmt: skip

# A release of so many false keys takes minutes; there is room for as many keys as the noise of their number.
_MAX_FALSE_KEYS = 1 << 24
_MAX_SIZE_NOISE = 1 << 28
# No threshold is further out than so many scales: the tail there is below 10^-80 for either noise.
_MAX_SCALES = 200
_MAX_CAP = 1 << 40
_WEIGHTED = "weighted-selection"


@dataclass(frozen=True)
class Plan:
    """Every public number of a release."""

    params: ReleaseParams
    sizes: Sizes
    #: how many keys there is room for
    keys: int
    selection: KeySelection
    domain_bits: int | None
    #: from this noisy count on a key is listed
    threshold: int
    scale: Fraction
    #: the name of the noise
    noise_name: str
    #: of the encoded counts; None where selected or public keys are all that is released
    layout: Layout | None
    #: who is protected
    unit: PrivacyUnit = "user"
    #: from which C was chosen; None where it was stated
    totals: UserTotals | None = None
    #: of keys that are selected by weights
    rounds: SelectionPlan | None = None
    #: numbers of users by keys, from which the number of rounds was chosen; None where it was stated
    users: UserTotals | None = None
    #: what users have before and after bounding; None where that was not asked for
    kept: KeptShare | None = None
    #: of large counts over a larger domain; None where there is one list
    top: TopList | None = None

    @property
    def noise(self) -> Noise:
        """Return the noise on the counts of listed keys."""
        return noise_of(self.noise_name, self.params.delta)

    @property
    def sensitivity(self) -> Sensitivity:
        """Return how far one privacy unit moves the counts, which all noise is calibrated for."""
        return replace(self.params.sensitivity, unit=self.unit)

    @property
    def listed_sensitivity(self) -> Sensitivity:
        """Return the same for keys as the selection identifies them."""
        return self.selection.sensitivity(replace(self.sensitivity, classes=0))

    @property
    def heavy_from(self) -> int:
        """Return the noisy count from which on a key is named, or listed where keys have no texts."""
        return self.threshold if self.top is None or self.sub_cells else self.top.threshold

    @property
    def sub_cells(self) -> bool:
        """Return whether a list of sub-cells comes first, so that two lists are in one."""
        return self.top is not None and self.top.domain_bits is not None

    @property
    def cells_noise(self) -> Noise:
        """Return the noise on the counts of listed cells."""
        return self.noise if self.domain_bits is None else LAPLACE

    @property
    def layout_spec(self) -> LayoutSpec:
        """Return what the layout was planned for."""
        scale = self.layout.noise_scale if self.layout else None
        return _layout_spec(self.params, self.sizes, self.keys, self.threshold, scale)

    @property
    def bits(self) -> int:
        """Return the bits of the encoded counts."""
        return 0 if self.layout is None else self.layout.bits

    def guarantee(self) -> Guarantee:
        """Return the guarantee of the parts, each confirmed by its privacy map; raise where a map exceeds its share."""
        _check_parts(self) if self.selection.selects else _check_public(self)
        return Guarantee.of(
            self.events(),
            max_contributions=self.params.max_contributions * self.params.per_count,
            max_per_key=self.params.max_per_key * self.params.per_count,
            subject="The sketch is",
            unit=self.unit,
            steps=release_steps(self.params),
            note=kept_note(self.params),
        )

    def events(self) -> list[Event]:
        """Return what the release is charged for."""
        return release_events(self.params, self.unit, public=not self.selection.selects)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {
            "unit": self.unit,
            "params": self.params.to_dict(),
            "sizes": self.sizes.to_dict(),
            "keys": self.keys,
            "kind": self.selection.name,
            "domain_bits": self.domain_bits,
            "threshold": self.threshold,
            "noise": self.noise_name,
            "scale": show(self.scale),
            "encoding": None if self.layout is None else self.layout.encoding,
            "layout": None if self.layout is None else self.layout.to_dict(),
            **({} if self.totals is None else {"user_totals": self.totals.to_dict()}),
            **({} if self.users is None else {"keys_per_user": self.users.to_dict()}),
            **({} if self.kept is None else {"kept_share": self.kept.to_dict()}),
            **({} if self.top is None else {"top": vars(self.top)}),
            **({} if self.rounds is None else {"weighted_selection": self.rounds.to_dict()}),
        }

    @classmethod
    def from_dict(cls, text: Mapping[str, Any]) -> Plan:
        """Return the plan that `to_dict` wrote; raise a ParameterError where a number is out of range."""
        selection, unit = selection_of(text["kind"]), text["unit"]
        if unit not in PRIVACY_UNITS:
            raise ParameterError(
                f"Plan: unit must be one of {', '.join(PRIVACY_UNITS)}, got {str(unit)[:40]!r}"
            )
        params = ReleaseParams.from_dict(text["params"])
        scale = rational(text["scale"], "scale", "Plan")
        noise = noise_of(text["noise"], params.delta)
        part = params.split.threshold if selection.selects else params.epsilon
        if "top" in text:
            part *= 1 - TOP_SHARE
            if noise.name == "gaussian" or scale > MAX_TOP_SCALE:
                raise ParameterError(f"Plan: top is for Laplace noise of a scale up to {MAX_TOP_SCALE:,}")
        plausible = (
            noise.in_range(scale)
            if selection is WEIGHTS
            else noise.plausible(scale, part, params.sensitivity)
        )
        if not plausible:
            raise ParameterError(
                f"Plan: scale {show(scale)[:60]} is not that of {noise.name} noise for epsilon and max_contributions"
            )
        encoded = selection.selects and params.encodes
        if encoded != (text["encoding"] is not None):
            raise ParameterError("Plan: encoding must be that of the parameters")
        highest = int(_MAX_SCALES * scale) + params.max_contributions + 100
        # keys that are not named may be listed by fingerprint too
        listed = FINGERPRINTS if "top" in text and selection is TEXTS else selection
        domain_bits = listed.checked_domain(text["domain_bits"])
        if selection is WEIGHTS:
            highest = _MAX_CAP
        return cls(
            params=params,
            sizes=Sizes.from_dict(text["sizes"]),
            keys=integer(text["keys"], "keys", "Plan", low=1, high=1 << 62),
            selection=selection,
            domain_bits=domain_bits,
            threshold=integer(
                text["threshold"],
                "threshold",
                "Plan",
                low=int(selection.selects),
                high=highest if selection.selects else 0,
            ),
            scale=scale,
            noise_name=noise.name,
            layout=encoding_of(text["encoding"]).read_layout(text["layout"]) if encoded else None,
            unit=unit,
            totals=UserTotals.from_dict(text["user_totals"]) if "user_totals" in text else None,
            rounds=SelectionPlan.from_dict(text["weighted_selection"]) if selection is WEIGHTS else None,
            users=UserTotals.from_dict(text["keys_per_user"]) if "keys_per_user" in text else None,
            kept=KeptShare.from_dict(text["kept_share"]) if "kept_share" in text else None,
            top=_read_top(text, selection, domain_bits, highest) if "top" in text else None,
        )


def _read_top(
    plan: Mapping[str, Any], selection: KeySelection, domain_bits: int | None, highest: int
) -> TopList:
    text, threshold = plan["top"], plan["threshold"]
    named = selection is TEXTS and text["domain_bits"] is None
    if domain_bits is None or selection not in (FINGERPRINTS, TEXTS) or named != (selection is TEXTS):
        raise ParameterError(
            "Plan: top is for lists of fingerprints, and has domain_bits unless it has texts"
        )
    within = domain_bits if named else text["domain_bits"]
    bits = integer(within, "top.domain_bits", "Plan", low=domain_bits, high=MAX_TOP_BITS)
    high = integer(text["threshold"], "top.threshold", "Plan", low=threshold + 2, high=highest)
    return TopList(None if named else bits, high)


def expected_sizes(params: ReleaseParams) -> Sizes | None:
    """Return the sizes that the user stated, or None where they must be released from the data."""
    if params.expected_keys is None or params.expected_records is None:
        return None
    return Sizes(params.expected_records, params.expected_keys, (), Fraction(0))


def make_plan(params: ReleaseParams, sizes: Sizes, unit: PrivacyUnit = "user") -> Plan:
    """Return the plan for these parameters and sizes: domain, threshold, and layout of the encoding.

    With `split: auto`, that is the plan with the least error among the splits that may be. Sizes are public: this is
    free. Where keys are selected by weights, the noise on their counts has a part in it, and the product of both mean
    square errors is the least: neither is worth more than the other, and only what sizes say of the encoding counts.
    """

    def error(plan: Plan) -> Fraction:
        assert plan.layout is not None
        encoded = _encoding(params).squared_error(plan.layout, plan.layout_spec)
        return encoded * plan.noise.variance(plan.scale) if params.weighted else encoded

    plans = [_planned(each, sizes, unit) for each in params.fitted]
    return plans[0] if len(plans) == 1 else min(plans, key=error)


def _planned(params: ReleaseParams, sizes: Sizes, unit: PrivacyUnit) -> Plan:
    # A noisy number of keys below its own noise says nothing: room for that many keys does no harm.
    keys = max(sizes.keys, -(-sizes.scale // 1), MIN_KEYS)
    selection = _selection(params)
    scale, of_layout = _scales(params)
    top, domain_bits = None, params.domain_bits
    choice = _fitted_list(params, sizes, keys, scale) if params.fits_list else None
    if choice is not None and choice.error.is_finite():
        domain_bits, heavy_from, top = choice.domain_bits, choice.threshold, choice.top
        scale = choice.scale
    else:
        domain_bits, heavy_from = selection.threshold(
            params, keys, noise_of(params.noise, params.delta), scale
        )
    spec = _layout_spec(params, sizes, keys, heavy_from, of_layout)
    layout = _encoding(params).plan(spec) if params.encodes else None
    rounds = params.gaussian.selection if params.weighted else None
    return Plan(
        params,
        sizes,
        keys,
        selection,
        domain_bits,
        heavy_from,
        scale,
        params.noise,
        layout,
        unit,
        rounds=rounds,
        top=top,
    )


def _fitted_list(params: ReleaseParams, sizes: Sizes, keys: int, scale: Fraction) -> ListChoice | None:
    """Return domains and thresholds with the least predicted error; None where names leave none. Sizes are public:
    this is free."""
    names = None
    if params.delta:
        noise, part = noise_of(params.noise, params.delta), params.split.threshold
        (scale,), high = threshold.calibrate(
            noise, (part * (1 - TOP_SHARE),), params.delta, params.sensitivity
        )
        names = TopList(None, high)
        if not threshold.top_holds(names, noise, scale, part, params.sensitivity):
            return None
    return choose_list(
        names=names,
        scale=scale,
        epsilon=params.split.threshold,
        sensitivity=FINGERPRINTS.sensitivity(params.sensitivity),
        keys=keys,
        records=sizes.records,
        profile_at=PROFILE_GRID if sizes.profile else (),
        profile=sizes.profile,
        noise=sizes.scale,
        bits=max(params.list_bits * keys, LEAST_BITS),
        least_false=params.false_keys if params.false_keys >= 1 else params.false_keys * keys,
        domain_bits=params.domain_bits,
        most_cells=CELLS_PER_KEY,
    )


def make_public_plan(params: ReleaseParams, keys: int, unit: PrivacyUnit = "user") -> Plan:
    """Return the plan for public keys: all of ε and δ goes to noise on every one of them; nothing is encoded."""
    params = params.for_public_keys("ReleaseParams")
    sizes = Sizes(0, keys, (), Fraction(0))
    (scale,) = noise_of(params.noise, params.delta).scales(
        (params.epsilon,), params.delta, params.sensitivity
    )
    return Plan(params, sizes, keys, PUBLIC_KEYS, None, 0, scale, params.noise, None, unit)


def check_params(params: ReleaseParams) -> None:
    """Refuse parameters with which no release could end, whatever the sizes turn out to be."""
    if params.choose_contributions:  # as below: what holds at both ends holds between them
        for chosen in (max(GRID[0], params.max_per_key), MAX_CHOICE):
            params.with_contributions(chosen).check()
        return
    if params.choose_rounds:
        for each in (*params.branches(1), *params.branches(2)):
            each.check()
        return
    noise = noise_of(params.noise, params.delta)
    for each in params.fitted:  # any of these may be chosen, when nothing may be refused any more
        if not params.weighted and params.fit_split:
            each.check()
        scale, of_layout = _scales(each)
        worst = _selection(each).highest_threshold(each, noise, scale)
        _encoding(each).check(_layout_spec(each, Sizes(1, 1, (), Fraction(0)), MIN_KEYS, worst, of_layout))
    stated = params.false_keys if params.false_keys >= 1 else params.false_keys * (params.expected_keys or 0)
    if params.delta == 0 and stated > _MAX_FALSE_KEYS:
        raise ParameterError(
            f"ReleaseParams: false_keys must let in at most {_MAX_FALSE_KEYS:,} false keys, got about"
            f" {int(stated):,}; lower false_keys"
        )
    if params.split.size and sizing.of_sizes(params.sensitivity).l1 / params.split.size > _MAX_SIZE_NOISE:
        raise ParameterError(
            f"ReleaseParams: the number of keys would have noise above {_MAX_SIZE_NOISE:,}, and room for so many;"
            " state expected_keys and expected_records, lower max_contributions or raise epsilon"
        )


def _selection(params: ReleaseParams) -> KeySelection:
    if params.weighted:
        return WEIGHTS
    return FINGERPRINTS if params.delta == 0 else TEXTS


def _encoding(params: ReleaseParams) -> Encoding:
    return encoding_named(params.encoding)


def _scales(params: ReleaseParams) -> tuple[Fraction, Fraction | None]:
    """Return the scales of the noise of listed keys, and of the cells of an encoding that has the same noise."""
    if params.weighted:
        return params.gaussian.counts_scale, params.gaussian.encoding_scale
    noise = noise_of(params.noise, params.delta)
    if params.delta:
        (listed, *encoded), _ = threshold.calibrate(
            noise, params.noisy_parts, params.delta, params.sensitivity
        )
    else:
        listed, *encoded = noise.scales(params.noisy_parts, params.delta, params.sensitivity)
    return listed, encoded[0] if encoded else None


def listed_variance(params: ReleaseParams) -> Fraction:
    """Return the variance of the noise on a listed count."""
    return noise_of(params.noise, params.delta).variance(_scales(params)[0])


def _layout_spec(
    params: ReleaseParams, sizes: Sizes, keys: int, heavy_from: int, scale: Fraction | None = None
) -> LayoutSpec:
    return LayoutSpec(
        epsilon=params.split.encoding,
        delta=Fraction(0),
        max_contributions=params.max_contributions,
        max_per_key=params.max_per_key,
        noise=params.cells_noise,
        scale=scale,
        threshold=heavy_from,
        keys=keys,
        records=sizes.records,
        profile_at=PROFILE_GRID if sizes.profile else (),
        profile=sizes.profile,
        options=params.options,
    )


def release_events(
    params: ReleaseParams, unit: PrivacyUnit, *, public: bool = False, charged: bool = False
) -> list[Event]:
    """Return the mechanisms of a release and what each may cost; they compose by addition, also where one is planned
    by the output of another. ``public`` is for public keys, on which all of ε is spent, and of δ where noise needs it.
    ``charged`` adds what the ledger composes by: ρ of noisy counts, from their exact scales, which take a while to
    find.
    """
    split, noisy = params.split, params.noisy_parts
    found = _concentration(params, public) if charged else None

    def noisy_event(kind: str, epsilon: Fraction, delta: Fraction) -> Event:
        if found is None:
            return Event(kind, epsilon, delta, relation=unit)
        rho, rho_delta = found
        return Event.concentrated(
            kind, epsilon, delta, rho=rho, rho_delta=min(rho_delta, delta), relation=unit
        )

    if public:
        spent = Fraction(0) if params.noise == "laplace" else params.delta
        parts = [noisy_event(params.noise, params.epsilon, spent)]
    elif (
        params.weighted
    ):  # weights, counts and cells with the same noise: one mechanism on all of these vectors
        pure = Fraction(0) if encoding_named(params.encoding).noisy else split.encoding
        parts = [
            noisy_event(_WEIGHTED, *params.gaussian_budget),
            Event(params.encoding, pure, relation=unit),
        ]
    elif len(noisy) == 2:  # list and encoding have one noise: the mechanism on both vectors
        parts = [noisy_event(params.noise, sum(noisy, Fraction(0)), params.delta)]
    else:
        listed = "threshold" if params.noise == "laplace" else params.noise
        parts = [
            noisy_event(listed, split.threshold, params.delta),
            Event(params.encoding, split.encoding, relation=unit),
        ]
    if public:
        return parts
    before = (
        Event("contributions", split.users, relation=unit),
        Event("contributions", split.contributions, relation=unit),
        Event("sizing", split.size, relation=unit),
        Event("kept", split.kept, relation=unit),
    )
    return [event for event in (*before, *parts) if event.epsilon or event.delta]


def _concentration(params: ReleaseParams, public: bool) -> tuple[Fraction, Fraction] | None:
    """Return ρ and δ_ρ of the noisy counts of a release and its thresholds (`Event.concentrated`); None where noise
    scales follow from released sizes, keys are told apart by fingerprints, where all of C may meet in one count, or
    the noise is another one: bounded noise has no ρ.

    A vector with discrete Gaussian noise has ρ = Δ²/2σ². So has one with discrete Laplace noise of scale σ: a part x of
    the shift has pure loss x/σ, hence ρ = x²/2σ², and parts are independent. Let π be the chance that a new key, which
    one user alone has, is named. Without that user it never is: δ_ρ = π. The other way round, the outcome given that
    no new key is named is that of the noisy vectors on the other keys (given the noise of the new ones, and so on
    average: x ↦ x^(1 − α) is convex), so Rényi divergence grows by ln 1/(1 − π) ≤ π/(1 − π), which is added to ρ.
    """
    if params.noise not in ("laplace", "gaussian"):
        return None
    noise, sensitivity = noise_of(params.noise), params.sensitivity
    if public:
        return _rho(sensitivity, *noise.scales((params.epsilon,), params.delta, sensitivity)), Fraction(0)
    if params.choose_rounds:  # any of them may be chosen
        both = [_concentration(each, public) for each in (*params.branches(1), *params.branches(2))]
        rhos, deltas = zip(*(each for each in both if each is not None), strict=True)
        return max(rhos), max(deltas)
    if params.weighted:
        plan = params.gaussian
        rounds = plan.selection.rounds
        delta = (new_key_delta(each.threshold, each.scale, plan.selection.max_keys) for each in rounds)
        new = sum(delta, Fraction(0))
        of_weights = _rho(plan.selection.sensitivity, *(each.scale for each in rounds))
        of_counts = sum((_largest_rho(each) for each in plan.vectors), Fraction(0))
        return of_weights + of_counts + new / (1 - new), new
    if not params.delta or params.choose_contributions or params.fit_split or params.lists_cells:
        return None
    scales, heavy_from = threshold.calibrate(noise, params.noisy_parts, params.delta, sensitivity)
    rho = _rho(sensitivity, *scales)
    if noise.name == "laplace":  # keys of a user may meet in a cell of the encoding
        rho = _rho(sensitivity, scales[0]) + _rho(sensitivity.added_up(), *scales[1:])
    new = threshold.privacy_map(heavy_from, noise, scales[0], sensitivity)
    return rho + new / (1 - new), new


def _rho(sensitivity: Sensitivity, *scales: Fraction) -> Fraction:
    """Return Σ Δ²/2σ² over vectors of one sensitivity."""
    return sum((Fraction(sensitivity.l2_squared) / (2 * scale * scale) for scale in scales), Fraction(0))


def _largest_rho(vectors: OneOf) -> Fraction:
    """Return the largest Σ Δ²/2σ² of the choices."""
    return max(
        sum((Fraction(each.l2_squared) / (2 * each.scale**2) for each in choice), Fraction(0))
        for choice in vectors.choices
    )


def metrics_events(
    metrics: Iterable[ReleaseParams], unit: PrivacyUnit, *, charged: bool = False
) -> list[Event]:
    """Return the same for several metrics of a pass: a selection that they share is charged once."""
    out: list[Event] = []
    for params in metrics:
        again = params.shared is not None and any(event.kind == _WEIGHTED for event in out)
        events = release_events(params, unit, charged=charged)
        out += [event for event in events if not (again and event.kind == _WEIGHTED)]
    return out


def metrics_steps(metrics: Iterable[ReleaseParams]) -> str:
    """Describe the selection that several metrics of a pass share; empty where there is none."""
    first = next((params for params in metrics if params.shared is not None), None)
    if first is None or first.shared is None:
        return ""
    *names, last = (name for name, _ in first.shared.metrics)
    words = f"{', '.join(names)} and {last}"
    return f"Keys are selected once for {words}, {_selected(first)}; the noise of these metrics is one mechanism."


def kept_note(params: ReleaseParams) -> str:
    """Describe the part that has bounds of its own: what users have before bounding; empty where there is none."""
    if not params.split.kept:
        return ""
    return f"Of this {show(params.split.kept)} is for sums of what users have before bounding, by how much they have."


def _selected(params: ReleaseParams) -> str:
    rounds = "one round" if params.selection_rounds == 1 else "two rounds"
    if params.split.users:
        rounds = (
            f"{'one or two rounds' if params.choose_rounds else rounds}, as numbers of keys per user suggest"
        )
    keys = "key" if params.max_keys_selection == 1 else "keys"
    return f"by weights in {rounds} (at most {params.max_keys_selection} {keys} per user)"


def release_steps(params: ReleaseParams) -> str:
    """Describe the parts of a release with weighted key selection, with the bounds of each; empty for any other.

    Users are bounded anew for each part, so that no one bound holds for all of them.
    """
    if not params.weighted:
        return ""
    per = params.per_count
    most = f"at most {show(params.max_contributions * per)} per user"
    if params.choose_contributions:
        most = "at most max_contributions per user"
    per_key = f"{most}, {show(params.max_per_key * per)} per key"
    divided = ", by which noise is divided between selection and the rest" if params.choose_split else ""
    steps = [f"releases noisy numbers of users by keys{divided}"] if params.split.users else []
    steps.append(f"selects keys {_selected(params)}")
    if params.split.contributions:
        steps.append("chooses max_contributions from noisy numbers of users")
    steps.append(f"counts the selected keys ({per_key})")
    if params.split.size:
        divided = ", by which noise is divided between these and counts" if params.fit_split else ""
        steps.append(f"releases sizes of the other keys{divided}")
    if params.encodes:
        steps.append(f"encodes counts of the other keys by {params.encoding} ({per_key})")
    else:
        steps.append("releases nothing about other keys")
    text = f"It {', '.join(steps[:-1])}, and {steps[-1]}."
    if params.shared is None:
        return text
    epsilon, delta = params.gaussian_budget
    others = " and ".join(params.shared.others)
    return (
        f"{text} Keys are selected together with {others}: ({show(epsilon)}, {show(delta)}) is spent once, on the"
        " selection and on the noise of all of these metrics."
    )


def _check_public(plan: Plan) -> None:
    allowed = sum((event.delta for event in plan.events()), Fraction(0))
    if plan.noise.privacy_map((plan.scale,), plan.params.epsilon, plan.sensitivity) > allowed:
        raise ParameterError("Plan: noise is smaller than epsilon allows")


def _check_parts(plan: Plan) -> None:
    """Raise where the privacy map of a mechanism exceeds its share of ε or δ."""
    params, split, layout = plan.params, plan.params.split, plan.layout
    if plan.sizes.scale and sizing.privacy_map(plan.sizes.scale, plan.sensitivity) > split.size:
        raise ParameterError("Plan: noise is smaller than the split of epsilon allows")
    if plan.totals is None and split.contributions:
        raise ParameterError("Plan: max_contributions was chosen from the data, but user_totals are missing")
    if plan.totals is not None and contribution_bounds.privacy_map(plan.totals.scale) > split.contributions:
        raise ParameterError("Plan: noise of user_totals is smaller than the split of epsilon allows")
    if (plan.users is None) == bool(split.users):
        raise ParameterError("Plan: keys_per_user must be there where split has users, and only there")
    if plan.users is not None and (
        contribution_bounds.privacy_map(plan.users.scale) > params.users_epsilon
        or plan.users.rounds() != params.selection_rounds
    ):
        raise ParameterError("Plan: keys_per_user do not fit the split of epsilon, or selection_rounds")
    if (plan.kept is None) != (split.kept == 0):
        raise ParameterError("Plan: kept_share must be there if and only if split has a part for it")
    if plan.kept is not None and kept_share.privacy_map(plan.kept.scale) > split.kept:
        raise ParameterError("Plan: noise of kept_share is smaller than the split of epsilon allows")
    if layout is not None:
        layout.check_privacy(plan.layout_spec)
    of_cells = None if layout is None else layout.noise_scale
    if plan.rounds is not None:
        budget = params.gaussian_budget
        if not plan.rounds.privacy_map(plan.scale, of_cells, *budget, params.sensitivity):
            raise ParameterError(
                "Plan: noise or thresholds are smaller than the split of epsilon and delta allow"
            )
        return
    if plan.top is not None and not threshold.top_holds(
        plan.top, plan.noise, plan.scale, split.threshold, plan.listed_sensitivity
    ):
        raise ParameterError(
            "Plan: noise of the two lists is too small for their share of epsilon, or top.threshold"
        )
    scales = (plan.scale,) if of_cells is None else (plan.scale, of_cells)
    epsilon = sum(params.noisy_parts, Fraction(0))
    if plan.selection is TEXTS and threshold.joint_holds(
        plan.heavy_from, plan.noise, scales, epsilon, params.delta, params.sensitivity
    ):
        return
    of_noise, of_threshold = plan.noise.split_delta(params.delta)
    if plan.selection is TEXTS:
        found = threshold.privacy_map(plan.heavy_from, plan.noise, plan.scale, plan.listed_sensitivity)
        if found > of_threshold:
            raise ParameterError(
                f"Plan: threshold {plan.heavy_from} is too low for delta {show(of_threshold)}"
            )
    if plan.noise.privacy_map(scales, epsilon, params.sensitivity) > of_noise:
        raise ParameterError("Plan: noise is smaller than the split of epsilon allows")

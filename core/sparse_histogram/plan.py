"""The plan of a release: every public number of it, before any further data are touched.

A `Plan` is public: it follows from the parameters and from released (or guessed) sizes alone. All of its arithmetic
is on integers and fractions, so that every worker on every machine computes the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.accounting import Event, Guarantee
from hushgram.contributions.histogram import Histogram
from hushgram.encodings import Layout, LayoutSpec, encoding_named, encoding_of
from hushgram.errors import ParameterError
from hushgram.key_selection import threshold
from hushgram.key_selection.rounds import MAX_ROUNDS, SelectionPlan
from hushgram.key_selection.threshold import Remainder, TopList
from hushgram.key_selection.weighted import new_key_delta
from hushgram.noise.gdp import OneOf
from hushgram.noise.laplace import NOISE as LAPLACE
from hushgram.noise.laplace import LaplaceNoise
from hushgram.noise.noises import Noise, noise_of
from hushgram.numbers import integer, rational, show
from hushgram.sensitivity import PrivacyUnit, Sensitivity
from hushgram.sparse_histogram import sizing
from hushgram.sparse_histogram.list_choice import LEAST_BITS, MAX_TOP_BITS, ListChoice, choose_list
from hushgram.sparse_histogram.params import Params
from hushgram.sparse_histogram.selection import (
    CELLS_PER_KEY,
    FALSE_KEYS,
    FINGERPRINTS,
    MIN_KEYS,
    PUBLIC_KEYS,
    SELECTIONS,
    TEXTS,
    WEIGHTS,
    KeySelection,
)
from hushgram.sparse_histogram.sizing import PROFILE_GRID, Sizes
from hushgram.sparse_histogram.users import MAX_CHOICE, UserHistogram
from hushgram.sparse_histogram.users import privacy_map as users_map

__all__ = [
    "Plan", "check_params", "expected_sizes", "listed_variance", "make_plan", "make_public_plan",
    "metrics_events", "metrics_steps", "release_events", "release_steps",
]  # fmt: skip

# There is room for as many keys as the noise of their number.
_MAX_SIZE_NOISE = 1 << 28
# No threshold is further out than so many scales: the tail there is below 10^-80 for either noise.
_MAX_SCALES = 200
_MAX_CAP = 1 << 40
_WEIGHTED = "weighted-selection"


@dataclass(frozen=True)
class Plan:
    """Every public number of a release."""

    params: Params
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
    #: of keys that are selected by weights
    rounds: SelectionPlan | None = None
    #: of large counts over a larger domain; None where there is one list
    top: TopList | None = None

    @property
    def unit(self) -> PrivacyUnit:
        """Return who is protected."""
        return self.params.unit

    @property
    def users(self) -> UserHistogram | None:
        """Return how many users have how much, where that was released."""
        return self.params.users

    @property
    def noise(self) -> Noise:
        """Return the noise on the counts of listed keys."""
        return noise_of(self.noise_name, self.params.delta)

    @property
    def sensitivity(self) -> Sensitivity:
        """Return how far one privacy unit moves the counts, which all noise is calibrated for."""
        return self.params.sensitivity

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
    def chained(self) -> bool:
        """Return whether the encoding counts what the list passes on."""
        return self.params.chained

    @property
    def remainder(self) -> Remainder:
        """Return what the list passes on, or the last of two lists."""
        return _remainder(self.params, self.domain_bits, self.threshold, self.scale)

    @property
    def top_remainder(self) -> Remainder:
        """Return what the top list passes on."""
        assert self.top is not None
        assert isinstance(self.noise, LaplaceNoise)
        return threshold.remainder(self.top.threshold, self.noise, self.scale, texts=not self.sub_cells)

    def encoded_cells(self, part: Histogram) -> Histogram:
        """Return what is encoded of the complete histogram, or of what passes on: keys as the encoding knows them."""
        if not self.chained:
            return self.selection.cells(part.admit(self.sensitivity), self.domain_bits)
        part.admit(self.sensitivity if self.domain_bits is None else self.sensitivity.added_up())
        return part if self.domain_bits is None else part.reduced(self.domain_bits)

    def encoded_places(self, fingerprints: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the numbers by which the encoding knows keys."""
        found = FINGERPRINTS if self.chained and self.domain_bits is not None else self.selection
        return found.place(fingerprints, self.domain_bits)

    @property
    def cells_noise(self) -> Noise:
        """Return the noise on the counts of listed cells."""
        return self.noise if self.domain_bits is None else LAPLACE

    @property
    def layout_spec(self) -> LayoutSpec:
        """Return what the layout was planned for."""
        scale = self.layout.noise_scale if self.layout else None
        cap = self.remainder.most if self.chained else self.threshold
        return _layout_spec(self.params, self.sizes, self.keys, cap, scale)

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
        )

    def events(self) -> list[Event]:
        """Return what the release is charged for."""
        return release_events(self.params)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {
            "params": self.params.to_dict(),
            "sizes": self.sizes.to_dict(),
            "keys": self.keys,
            "domain_bits": self.domain_bits,
            "threshold": self.threshold,
            "noise": self.noise_name,
            "scale": show(self.scale),
            "encoding": None if self.layout is None else self.layout.encoding,
            "layout": None if self.layout is None else self.layout.to_dict(),
            **({} if self.top is None else {"top": vars(self.top)}),
            **({} if self.rounds is None else {"weighted_selection": self.rounds.to_dict()}),
        }

    @classmethod
    def from_dict(cls, text: Mapping[str, Any]) -> Plan:
        """Return the plan that `to_dict` wrote; raise a ParameterError where a number is out of range."""
        params = Params.from_dict(text["params"])
        selection = _selection(params)
        scale = rational(text["scale"], "scale", "Plan")
        noise = noise_of(text["noise"], params.delta)
        part = params.split.threshold if selection.selects else params.epsilon
        if "top" in text and noise.name == "gaussian":
            raise ParameterError("Plan: top is for Laplace noise")
        plausible = (
            noise.in_range(scale)
            if selection is WEIGHTS
            else noise.plausible(scale, part, params.sensitivity)
        )
        if not plausible:
            raise ParameterError(
                f"Plan: scale {show(scale)[:60]} is not that of {noise.name} noise for epsilon and max_contributions"
            )
        if text["noise"] != params.noise:
            raise ParameterError(f"Plan: noise must be {params.noise}, got {str(text['noise'])[:40]!r}")
        encoded = params.encodes
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
            rounds=SelectionPlan.from_dict(text["weighted_selection"]) if selection is WEIGHTS else None,
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


def expected_sizes(params: Params) -> Sizes | None:
    """Return the sizes that the user stated, or None where they must be released from the data."""
    return None if params.sizes is None else Sizes(*params.sizes, (), Fraction(0))


def make_plan(params: Params, sizes: Sizes) -> Plan:
    """Return the plan for these parameters and sizes: domain, threshold, and layout of the encoding.

    Sizes are public: this is free.
    """
    # A noisy number of keys below its own noise says nothing: room for that many keys does no harm.
    keys = max(sizes.keys, -(-sizes.scale // 1), MIN_KEYS)
    selection = _selection(params)
    scale, of_layout = _scales(params)
    top, domain_bits = None, None
    choice = _fitted_list(params, sizes, keys, scale) if params.chained else None
    if choice is not None and choice.error.is_finite():
        domain_bits, heavy_from, top = choice.domain_bits, choice.threshold, choice.top
    else:
        domain_bits, heavy_from = selection.threshold(
            params, keys, noise_of(params.noise, params.delta), scale
        )
    cap = _remainder(params, domain_bits, heavy_from, scale).most if params.chained else heavy_from
    spec = _layout_spec(params, sizes, keys, cap, of_layout)
    layout = encoding_named(params.encoding).plan(spec)
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
        rounds=rounds,
        top=top,
    )


def _fitted_list(params: Params, sizes: Sizes, keys: int, scale: Fraction) -> ListChoice | None:
    """Return domains and thresholds with the least predicted error; None where names leave none. Sizes are public:
    this is free."""
    names = None
    if params.delta:
        noise = noise_of(params.noise, params.delta)
        names = TopList(None, threshold.text_threshold(params.delta, noise, scale, params.sensitivity))
    return choose_list(
        names=names,
        scale=scale,
        keys=keys,
        records=sizes.records,
        profile_at=PROFILE_GRID if sizes.profile else (),
        profile=sizes.profile,
        noise=sizes.scale,
        bits=max(params.list_bits * keys, LEAST_BITS),
        least_false=FALSE_KEYS * keys,
        most_cells=CELLS_PER_KEY,
    )


def make_public_plan(params: Params, keys: int) -> Plan:
    """Return the plan for public keys: all of ε and δ goes to noise on every one of them; nothing is encoded."""
    sizes = Sizes(0, keys, (), Fraction(0))
    (scale,) = noise_of(params.noise, params.delta).scales(
        (params.epsilon,), params.delta, params.sensitivity
    )
    return Plan(params, sizes, keys, PUBLIC_KEYS, None, 0, scale, params.noise, None)


def check_params(params: Params) -> None:
    """Refuse parameters with which no release could end, whatever the sizes turn out to be."""
    if params.choose_contributions:  # what holds at both ends holds between them
        for chosen in (params.max_per_key, MAX_CHOICE):
            params.with_contributions(chosen).check()
    if params.paper:
        scale, _ = _scales(params)
        worst = _selection(params).highest_threshold(params, noise_of(params.noise, params.delta), scale)
        spec = _layout_spec(params, Sizes(1, 1, (), Fraction(0)), MIN_KEYS, worst, None)
        encoding_named(params.encoding).check(spec)
    if params.split.size and sizing.of_sizes(params.sensitivity).l1 / params.split.size > _MAX_SIZE_NOISE:
        raise ParameterError(
            f"ReleaseParams: epsilon {show(params.epsilon)} is too small for max_contributions"
            f" {params.max_contributions}: the number of keys would have noise above {_MAX_SIZE_NOISE:,}, and room for"
            " so many; state sizes, lower max_contributions or raise epsilon"
        )


def _selection(params: Params) -> KeySelection:
    return SELECTIONS[params.selection]


def _scales(params: Params) -> tuple[Fraction, Fraction | None]:
    """Return the scales of the noise of listed keys, and of the cells of an encoding that has the same noise."""
    if params.weighted:
        return (params.gaussian.scale,) * 2
    return params.sensitivity.l1 / params.split.threshold, None


def listed_variance(params: Params) -> Fraction:
    """Return the variance of the noise on a listed count."""
    return noise_of(params.noise, params.delta).variance(_scales(params)[0])


def _layout_spec(
    params: Params, sizes: Sizes, keys: int, heavy_from: int, scale: Fraction | None = None
) -> LayoutSpec:
    return LayoutSpec(
        epsilon=params.split.threshold if params.chained else params.split.encoding,
        delta=Fraction(0),
        max_contributions=params.max_contributions,
        max_per_key=params.max_per_key,
        scale=scale,
        threshold=heavy_from,
        keys=keys,
        records=sizes.records,
        profile_at=PROFILE_GRID if sizes.profile else (),
        profile=sizes.profile,
        bits_per_key=params.column_bits,
        way="paper" if params.paper else "remainder" if params.chained else "",
    )


def _remainder(params: Params, domain_bits: int | None, heavy_from: int, scale: Fraction) -> Remainder:
    """Return what the list that comes last passes on."""
    noise = noise_of(params.noise, params.delta) if domain_bits is None else LAPLACE
    assert isinstance(noise, LaplaceNoise)
    return threshold.remainder(heavy_from, noise, scale, texts=domain_bits is None)


def release_events(params: Params, *, charged: bool = False) -> list[Event]:
    """Return the mechanisms of a release and what each may cost; they compose by addition, also where one is planned
    by the output of another.

    ``charged`` adds what the ledger composes by: ρ of noisy counts, from their exact scales, which take a while to
    find.
    """
    split, unit = params.split, params.unit
    found = _concentration(params) if charged else None

    def noisy_event(kind: str, epsilon: Fraction, delta: Fraction) -> Event:
        if found is None:
            return Event(kind, epsilon, delta, relation=unit)
        rho, rho_delta = found
        return Event.concentrated(
            kind, epsilon, delta, rho=rho, rho_delta=min(rho_delta, delta), relation=unit
        )

    if params.selection == "public":
        spent = Fraction(0) if params.noise == "laplace" else params.delta
        return [noisy_event(params.noise, params.epsilon, spent)]
    if (
        params.weighted
    ):  # weights, counts and cells with the same noise: one mechanism on all of these vectors
        parts = [noisy_event(_WEIGHTED, *params.gaussian_budget)]
    else:
        listed = "threshold" if params.noise == "laplace" else params.noise
        parts = [
            noisy_event(listed, split.threshold, params.delta),
            Event(params.encoding, split.encoding, relation=unit),
        ]
    before = (
        Event("contributions", split.users, relation=unit),
        Event("sizing", split.size, relation=unit),
    )
    return [event for event in (*before, *parts) if event.epsilon or event.delta]


def _concentration(params: Params) -> tuple[Fraction, Fraction] | None:
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
    if params.selection == "public":
        return _rho(sensitivity, *noise.scales((params.epsilon,), params.delta, sensitivity)), Fraction(0)
    if params.choose_rounds:  # any of them may be chosen
        both = [_concentration(params.with_rounds(number)) for number in range(1, MAX_ROUNDS + 1)]
        rhos, deltas = zip(*(each for each in both if each is not None), strict=True)
        return max(rhos), max(deltas)
    if (
        not params.weighted
    ):  # keys of a unit may meet in a cell: what passes on is no vector of independent parts
        return None
    plan = params.gaussian
    rounds = plan.selection.rounds
    delta = (new_key_delta(each.threshold, each.scale, plan.selection.max_keys) for each in rounds)
    new = sum(delta, Fraction(0))
    of_weights = _rho(plan.selection.sensitivity, *(each.scale for each in rounds))
    of_counts = sum((_largest_rho(each) for each in plan.vectors), Fraction(0))
    return of_weights + of_counts + new / (1 - new), new


def _rho(sensitivity: Sensitivity, *scales: Fraction) -> Fraction:
    """Return Σ Δ²/2σ² over vectors of one sensitivity."""
    return sum((Fraction(sensitivity.l2_squared) / (2 * scale * scale) for scale in scales), Fraction(0))


def _largest_rho(vectors: OneOf) -> Fraction:
    """Return the largest Σ Δ²/2σ² of the choices."""
    return max(
        sum((Fraction(each.l2_squared) / (2 * each.scale**2) for each in choice), Fraction(0))
        for choice in vectors.choices
    )


def metrics_events(metrics: Iterable[Params], *, charged: bool = False) -> list[Event]:
    """Return the same for several metrics of a pass: a selection that they share is charged once."""
    out: list[Event] = []
    for params in metrics:
        again = params.shared is not None and any(event.kind == _WEIGHTED for event in out)
        events = release_events(params, charged=charged)
        out += [event for event in events if not (again and event.kind == _WEIGHTED)]
    return out


def metrics_steps(metrics: Iterable[Params]) -> str:
    """Describe the selection that several metrics of a pass share; empty where there is none."""
    first = next((params for params in metrics if params.shared is not None), None)
    if first is None or first.shared is None:
        return ""
    *names, last = (name for name, _ in first.shared.metrics)
    words = f"{', '.join(names)} and {last}"
    return f"Keys are selected once for {words}, {_selected(first)}; the noise of these metrics is one mechanism."


_ROUNDS = {1: "one round", 2: "two rounds", 3: "three rounds"}


def _selected(params: Params) -> str:
    rounds = _ROUNDS[params.rounds]
    if params.choose_rounds or params.chosen_rounds is not None:
        rounds = f"{'one to three rounds' if params.choose_rounds else rounds}, as the histogram over users suggests"
    keys = "key" if params.max_keys == 1 else "keys"
    return f"by weights in {rounds} (at most {params.max_keys} {keys} per user)"


def release_steps(params: Params) -> str:
    """Describe the parts of a release with selection by weights, with the bounds of each; empty for any other.

    Users are bounded anew for each part, so that no one bound holds for all of them.
    """
    if not params.weighted:
        return ""
    per = params.per_count
    most = f"at most {show(params.max_contributions * per)} per user"
    if params.choose_contributions:
        most = "at most max_contributions per user"
    per_key = f"{most}, {show(params.max_per_key * per)} per key"
    steps = ["releases a noisy histogram over users"] if params.split.users else []
    if params.stated.max_contributions is None:
        steps.append("chooses max_contributions from it")
    steps.append(f"selects keys {_selected(params)}")
    if params.split.size:
        steps.append("releases sizes of the other keys")
    steps.append(f"releases counts of the selected keys and {params.encoding} of all others ({per_key})")
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
    if (params.users is None) == bool(split.users):
        raise ParameterError("Plan: users must be there where the split has a part for them, and only there")
    if params.users is not None and users_map(params.users.scale) > split.users:
        raise ParameterError("Plan: noise of users is smaller than the split of epsilon allows")
    if params.leads and params.users is not None and params.users.rounds() != params.rounds:
        raise ParameterError("Plan: rounds are not those that users suggest")
    if layout is not None:
        layout.check_privacy(plan.layout_spec)
    of_cells = None if layout is None else layout.noise_scale
    if plan.rounds is not None:
        budget = params.gaussian_budget
        if of_cells != plan.scale or not plan.rounds.privacy_map(plan.scale, *budget, params.sensitivity):
            raise ParameterError(
                "Plan: noise or thresholds are smaller than the split of epsilon and delta allow"
            )
        return
    if (plan.top is not None or plan.chained) and not threshold.chain_holds(
        plan.noise, plan.scale, split.threshold, params.sensitivity
    ):
        raise ParameterError("Plan: noise of the lists is too small for their share of epsilon")
    if plan.selection is TEXTS:
        found = threshold.privacy_map(plan.heavy_from, plan.noise, plan.scale, plan.listed_sensitivity)
        if found > params.delta:
            raise ParameterError(
                f"Plan: threshold {plan.heavy_from} is too low for delta {show(params.delta)}"
            )
    if plan.noise.privacy_map((plan.scale,), split.threshold, params.sensitivity) > params.delta:
        raise ParameterError("Plan: noise is smaller than the split of epsilon allows")

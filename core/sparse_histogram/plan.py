"""From what was asked and what sizes are known to every number of the release, before any further data are touched.

A `Plan` is public: it follows from the parameters and from released (or guessed) sizes alone. All of its arithmetic
is on integers and fractions, so that every worker on every machine computes the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import isqrt
from typing import Any

from hushgram.encodings import alp
from hushgram.errors import ParameterError
from hushgram.numbers import rational, show
from hushgram.sparse_histogram import sizing, threshold
from hushgram.sparse_histogram.params import ReleaseParams
from hushgram.sparse_histogram.sizing import PROFILE_GRID, Sizes

__all__ = ["Guarantee", "Plan", "check_levels", "expected_sizes", "make_plan", "make_public_plan"]

#: One key in this many shares its cell with another one.
CELLS_PER_KEY = 10_000
_LEAST_KEYS = 16
_LEAST_DOMAIN_BITS = 16
_WORD = 64
_LARGEST_COLUMN = 1 << 32
#: Columns that a decoder reads; `check_levels` refuses parameters that could need more, before data are touched.
MOST_LEVELS = 62


@dataclass(frozen=True)
class Guarantee:
    """What the release costs, added up from the privacy maps of its mechanisms."""

    epsilon: Fraction
    delta: Fraction
    parts: tuple[tuple[str, Fraction, Fraction], ...]

    def sentence(self, params: ReleaseParams) -> str:
        """The guarantee in words."""
        loss = f"({show(self.epsilon)}, {show(self.delta)})" if self.delta else show(self.epsilon)
        return (
            f"{loss}-differentially private for one user added or removed, where each user counts at most"
            f" {params.max_contributions} in all and {params.max_per_key} for one key."
        )


@dataclass(frozen=True)
class Plan:
    """Every public number of a release."""

    params: ReleaseParams
    sizes: Sizes
    keys: int
    domain_bits: int | None
    bound: int
    scale: Fraction
    width: Fraction
    column_sizes: tuple[int, ...]
    #: "pure" (δ = 0, fingerprints), "text" (δ > 0, key texts), "public" (a list of keys known beforehand)
    kind: str = "pure"

    def __post_init__(self) -> None:
        if self.kind not in ("pure", "text", "public"):
            raise ParameterError(f"Plan: kind must be pure, text or public, got {self.kind!r}")

    @property
    def levels(self) -> int:
        """m, the number of columns."""
        return len(self.column_sizes)

    @property
    def flip(self) -> Fraction:
        """p, the probability that a bit is flipped."""
        return alp.flip_probability(self.params.alpha)

    @cached_property
    def blocks(self) -> list[alp.Block]:
        """The blocks of all columns in file order."""
        return alp.blocks_of(self.column_sizes)

    @property
    def bits(self) -> int:
        """Bits of all columns."""
        return sum(self.column_sizes)

    @property
    def texts(self) -> bool:
        """Whether keys are identified by, and released with, their text (δ > 0)."""
        return self.kind == "text"

    def guarantee(self) -> Guarantee:
        """ε and δ from the privacy maps, not from the request; raises if a map exceeds its share."""
        return _guarantee(self)

    def as_text(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "params": self.params.as_text(),
            "sizes": self.sizes.as_text(),
            "keys": self.keys,
            "domain_bits": self.domain_bits,
            "bound": self.bound,
            "scale": show(self.scale),
            "width": show(self.width),
            "column_sizes": list(self.column_sizes),
            "kind": self.kind,
        }

    @classmethod
    def from_text(cls, text: Mapping[str, Any]) -> Plan:
        """The plan that `as_text` wrote."""
        sizes = text["sizes"]
        bits = text["domain_bits"]
        whole = [
            text["keys"],
            text["bound"],
            sizes["records"],
            sizes["keys"],
            *sizes["profile"],
            *text["column_sizes"],
            bits or 0,
        ]
        if not all(type(number) is int for number in whole):
            raise ParameterError("Plan: keys, bound, sizes and column_sizes must be whole numbers")
        return cls(
            params=ReleaseParams.from_text(text["params"]),
            sizes=Sizes(
                sizes["records"],
                sizes["keys"],
                tuple(sizes["profile"]),
                rational(sizes["scale"], "scale", "Sizes"),
            ),
            keys=text["keys"],
            domain_bits=text["domain_bits"],
            bound=text["bound"],
            scale=rational(text["scale"], "scale", "Plan"),
            width=rational(text["width"], "width", "Plan"),
            column_sizes=tuple(text["column_sizes"]),
            kind=text["kind"],
        )


def expected_sizes(params: ReleaseParams) -> Sizes | None:
    """Sizes that the user stated, or None where they must be released from the data."""
    if params.expected_keys is None or params.expected_records is None:
        return None
    return Sizes(params.expected_records, params.expected_keys, (), Fraction(0))


def make_plan(params: ReleaseParams, sizes: Sizes) -> Plan:
    """Domain, bound, levels and columns for these parameters and sizes."""
    scale = threshold.noise_scale(params.split.threshold, params.max_contributions)
    # A noisy number of keys below its own noise says nothing: columns for that many keys do no harm.
    keys = max(sizes.keys, _ceil(sizes.scale), _LEAST_KEYS)
    domain_bits, bound = _bound(params, keys)
    width = _width(params)
    levels = min(_ceil(bound / width), MOST_LEVELS)
    columns = _column_sizes(params, sizes, keys, width, levels)
    kind = "pure" if params.delta == 0 else "text"
    return Plan(params, sizes, keys, domain_bits, bound, scale, width, columns, kind)


def make_public_plan(params: ReleaseParams, listed: int) -> Plan:
    """For a public list of keys: all of ε goes to Laplace noise on every one of them; no columns, δ = 0."""
    if params.delta != 0:
        raise ParameterError("ReleaseParams: a public list of keys needs no delta; set delta to 0")
    scale = threshold.noise_scale(params.epsilon, params.max_contributions)
    return Plan(params, Sizes(0, listed, (), Fraction(0)), listed, 64, 0, scale, Fraction(1), (), "public")


def check_levels(params: ReleaseParams) -> None:
    """Refuse parameters that could need more than `MOST_LEVELS` columns, whatever the sizes turn out to be."""
    guesses = [params.expected_keys] if params.expected_keys else [1 << bits for bits in range(4, 51)]
    worst = max(_ceil(_bound(params, max(keys, _LEAST_KEYS))[1] / _width(params)) for keys in guesses)
    if worst > MOST_LEVELS:
        raise ParameterError(
            f"ReleaseParams: alpha {show(params.alpha)} needs {worst} levels, at most {MOST_LEVELS} are possible;"
            " raise alpha, or give threshold a larger share of split"
        )


def _bound(params: ReleaseParams, keys: int) -> tuple[int | None, int]:
    """Bits of the domain (None at δ > 0), and β or τ."""
    scale = threshold.noise_scale(params.split.threshold, params.max_contributions)
    if params.delta != 0:
        return None, threshold.text_bound(params.delta, scale, params.max_contributions, params.max_per_key)
    bits = params.domain_bits or _domain_bits(keys)
    allowed = params.false_keys if params.false_keys >= 1 else params.false_keys * keys
    return bits, threshold.pure_bound(bits, max(allowed, Fraction(1, 1000)), scale)


def _width(params: ReleaseParams) -> Fraction:
    chosen = alp.exact_width if params.width == "exact" else alp.paper_width
    return chosen(params.split.alp, params.alpha, params.max_contributions)


def _domain_bits(keys: int) -> int:
    """Bits of a domain in which one key in `CELLS_PER_KEY` meets another."""
    return min(max((CELLS_PER_KEY * keys - 1).bit_length(), _LEAST_DOMAIN_BITS), 64)


def _column_sizes(
    params: ReleaseParams, sizes: Sizes, keys: int, width: Fraction, levels: int
) -> tuple[int, ...]:
    """Flat: bits_per_key · k each. Tapered: that many in all, shared by the root of the keys that reach a level.

    The noise of a key is the sum over its levels of the load there, about n_b/s_b; for a given Σ s_b the sum of
    n_b/s_b is least where s_b is proportional to √n_b.
    """
    total = params.bits_per_key * keys
    if params.columns == "flat":
        return (_whole_words(total),) * levels
    roots = [isqrt(int(n * 10**6)) + 1 for n in level_keys(sizes, keys, width, levels)]
    return tuple(_whole_words(total * root / sum(roots)) for root in roots)


def level_keys(sizes: Sizes, keys: int, width: Fraction, levels: int) -> list[Fraction]:
    """Expected number of keys that reach each level: ∫ N over the level's range of counts, divided by its width.

    From the released profile where there is one, else from Markov's bound min(k, n/(w·b)).
    """
    if not sizes.profile:
        return [min(Fraction(keys), sizes.records / (width * b)) for b in range(1, levels + 1)]
    fitted = _monotone(sizes.profile, keys)
    knots = [(Fraction(t - 1), n) for t, n in zip(PROFILE_GRID, fitted, strict=True)]
    areas = [_area(knots, width * b) for b in range(levels + 1)]
    return [(high - low) / width for low, high in pairwise(areas)]


def _monotone(profile: tuple[int, ...], keys: int) -> list[Fraction]:
    """The nearest non-increasing sequence (pool adjacent violators), cut to [0, keys]."""
    pools: list[tuple[Fraction, int]] = []
    for value in profile:
        mean, weight = Fraction(value), 1
        while pools and pools[-1][0] < mean:
            other, count = pools.pop()
            mean, weight = (mean * weight + other * count) / (weight + count), weight + count
        pools.append((mean, weight))
    return [min(max(mean, Fraction(0)), Fraction(keys)) for mean, weight in pools for _ in range(weight)]


def _area(knots: list[tuple[Fraction, Fraction]], upto: Fraction) -> Fraction:
    """Integral from 0 to ``upto`` of the line through the knots (constant after the last)."""
    total = Fraction(0)
    for (left, a), (right, b) in pairwise(knots):
        if upto <= left:
            return total
        end = min(right, upto)
        at_end = a + (b - a) * (end - left) / (right - left)
        total += (a + at_end) / 2 * (end - left)
    left, a = knots[-1]
    return total + a * max(upto - left, Fraction(0))


def _guarantee(plan: Plan) -> Guarantee:
    params = plan.params
    split = params.split
    max_contributions = params.max_contributions
    if plan.kind == "public":
        loss = threshold.privacy(plan.scale, max_contributions)
        return Guarantee(loss, Fraction(0), (("laplace", loss, Fraction(0)),))
    size = sizing.privacy(plan.sizes.scale, max_contributions) if plan.sizes.scale else Fraction(0)
    listed = threshold.privacy(plan.scale, max_contributions)
    delta = Fraction(0)
    if plan.texts:
        delta = params.delta
        if threshold.delta_of(plan.bound, plan.scale, max_contributions, params.max_per_key) > delta:
            raise ParameterError(f"Plan: bound {plan.bound} is too low for delta {show(delta)}")
    if not alp.loss_at_most(plan.width, params.alpha, max_contributions, split.alp):
        raise ParameterError(
            f"Plan: width {show(plan.width)} is too small for epsilon {show(split.alp)} of ALP"
        )
    if size > split.size or listed > split.threshold:
        raise ParameterError("Plan: noise is smaller than the split of epsilon allows")
    parts = (("size", size, Fraction(0)), ("threshold", listed, delta), ("alp", split.alp, Fraction(0)))
    return Guarantee(size + listed + split.alp, delta, parts)


def _ceil(value: Fraction) -> int:
    return -((-value.numerator) // value.denominator)


def _whole_words(bits: Fraction) -> int:
    """Rounded up to whole 64-bit words, within what a column may have."""
    return min(max(_ceil(bits / _WORD), 1) * _WORD, _LARGEST_COLUMN)

"""Parameters of a release: what a user states, and what follows from it before any data are read.

    ReleaseParams   what was stated; two equal values are one
    Params          what it means for a privacy unit and a kind of keys: `ReleaseParams.resolve`

Everything that follows from these and from released numbers (domain, threshold, layout) is in
`hushgram.sparse_histogram.plan`. Which selection, noise and encoding are used follows from δ, users, C and public keys:

| δ | keys | selection | noise on listed counts | all other keys |
|---|---|---|---|---|
| any | public | none: all of them | Laplace, at δ > 0 Gaussian where that is smaller | not released |
| 0 | any | fingerprints whose noisy count reaches a threshold | Laplace | ALP, of what the list passes on |
| > 0 | any, C = 1 or no users | texts whose count does, then fingerprints | Laplace, truncated geometric | the same |
| > 0 | any, users with C > 1 | texts by weights | Gaussian | buckets with Gaussian noise |
| any | ``preset="paper"`` | as in the paper, with half of ε each | Laplace | ALP, of every key |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from hushgram.contributions.sums import Grid, bounds_in_multiples, bounds_in_values
from hushgram.encodings import buckets
from hushgram.errors import ParameterError
from hushgram.key_selection.rounds import MAX_ROUNDS, GaussianPlan, MetricShares, plan_gaussian
from hushgram.key_selection.threshold import text_threshold
from hushgram.key_selection.weighted import MAX_KEYS
from hushgram.noise.gdp import gdp_mu
from hushgram.noise.noises import noise_of
from hushgram.numbers import Number, integer, rational, show
from hushgram.sensitivity import PrivacyUnit, Sensitivity
from hushgram.sparse_histogram.split import OWNER as _OWNER
from hushgram.sparse_histogram.split import SharedSelection, Split
from hushgram.sparse_histogram.users import CHOICES, MAX_CHOICE, UserHistogram, user_ends

__all__ = [
    "MAX_CONTRIBUTIONS", "PAPER_DOMAIN_BITS", "Params", "ReleaseParams", "SharedSelection", "Split",
    "Threshold", "Weights",
]  # fmt: skip

MAX_CONTRIBUTIONS = 1 << 20
#: In the setting of Aumüller, Lebeda, Pagh 2021 a key is identified by 64 bits.
PAPER_DOMAIN_BITS = 64

# Shares of ε for sizes: where list and encoding have all of the rest, and elsewhere.
_CHAINED_SIZE, _SIZE = Fraction(15, 1000), Fraction(2, 100)
# Share of ε for the histogram over users: at ε = 1 its numbers have noise of 140 users; and where C follows from it.
_USERS, _CHOICE = Fraction(1, 100), Fraction(5, 100)
# Share of what is left for selection by weights; the vector of counts and buckets has the rest.
_SELECTION = Fraction(49, 100)
# Share of the bits for the column of ALP beside a list: half of it makes totals 10 to 30 % wider, twice of it gains
# nothing (benchmarks.error).
_COLUMN = Fraction(1, 8)
_BITS_PER_KEY, _BUCKET_BITS, _PAPER_BITS = Fraction(44, 5), Fraction(8), Fraction(10)
# With more than ε = 100 the word "private" has lost its meaning; it is a typing error.
_MAX_EPSILON = 100
# Noise beyond this drowns any count, and would not fit the integers of the release path.
_LARGEST_SCALE = 1 << 34


@dataclass(frozen=True)
class Threshold:
    """Key selection at δ > 0 by noisy counts, also for users with several keys."""


@dataclass(frozen=True)
class Weights:
    """Key selection at δ > 0 by weights.

    Attributes:
        max_keys: how many keys of a user are weighed.
        rounds: 1, 2 or 3; None: it follows from the histogram over users.
    """

    max_keys: int = 100
    rounds: int | None = None


@dataclass(frozen=True, init=False)
class ReleaseParams:
    """Parameters of one release, as they are stated.

    Neighbouring data sets differ by one user (or one record where no user column is named). After bounding, a user
    counts at most ``max_contributions`` in all and ``max_per_key`` for one key. The release is then
    (epsilon, delta)-differentially private.

    Numbers are given as text, int or Fraction and kept exactly; a float is read as it prints.

    >>> ReleaseParams(epsilon="1", max_contributions=8).epsilon
    Fraction(1, 1)
    >>> ReleaseParams(epsilon=1, max_contributions=8) == ReleaseParams(epsilon="1", delta=0, max_contributions=8)
    True
    >>> ReleaseParams(epsilon="0", max_contributions=8)
    Traceback (most recent call last):
    hushgram.errors.ParameterError: ReleaseParams: epsilon must be above 0 and at most 100, got 0; ask for "1" or less
    """

    epsilon: Fraction
    delta: Fraction
    #: None: chosen from the data
    max_contributions: int | None
    max_per_key: int
    granularity: Fraction | None
    #: records and keys, where they are stated
    sizes: tuple[int, int] | None
    bits_per_key: Fraction | None
    preset: str | None
    selection: Threshold | Weights | None

    def __init__(
        self,
        *,
        epsilon: Number,
        delta: Number = 0,
        max_contributions: Number,
        max_per_key: int = 1,
        max_value: Number | None = None,
        granularity: Number | None = None,
        sizes: Mapping[str, int] | tuple[int, int] | None = None,
        bits_per_key: Number | None = None,
        preset: str | None = None,
        selection: Threshold | Weights | None = None,
    ) -> None:
        """Check the parameters and make them exact.

        Args:
            epsilon: the privacy loss.
            delta: 0, or the probability with which the loss may be exceeded; above 0, keys are released by their text.
            max_contributions: the most that one user counts in all (C); "auto" spends a twentieth of ε on choosing it
                from the data.
            max_per_key: the most that one user counts for one key (L∞).
            max_value: in place of ``max_per_key`` where values are summed: the most that one user adds to one key.
            granularity: where values are summed: sums are rounded to multiples of it, and both bounds are stated in the
                terms of the values, as whole multiples of it.
            sizes: public guesses of the numbers of records and of distinct keys, (records, keys); with them, nothing is
                spent on sizes.
            bits_per_key: the space of the sketch, about.
            preset: "paper" is the setting of Aumüller, Lebeda and Pagh, for comparison.
            selection: at δ > 0, how keys are selected, for experts: ``Threshold()`` or ``Weights(…)``.
        """
        if max_value is not None or granularity is not None:
            granularity, max_contributions, max_per_key = bounds_in_multiples(
                _OWNER, granularity, max_contributions, max_value, max_per_key
            )
        if isinstance(sizes, Mapping):
            if set(sizes) != {"records", "keys"}:
                raise ParameterError(f"{_OWNER}: sizes must be records and keys, got {', '.join(sizes)}")
            sizes = (sizes["records"], sizes["keys"])
        elif sizes is not None and not isinstance(sizes, tuple | list):
            raise ParameterError(f"{_OWNER}: sizes must be (records, keys), got {sizes!r}"[:200])
        if max_contributions is None:
            raise ParameterError(f'{_OWNER}: max_contributions must be a whole number or "auto"')
        stated = {
            "epsilon": rational(epsilon, "epsilon", _OWNER),
            "delta": rational(delta, "delta", _OWNER),
            "max_contributions": None if max_contributions == "auto" else max_contributions,
            "max_per_key": max_per_key,
            "granularity": granularity,
            "sizes": None if sizes is None else tuple(sizes),
            "bits_per_key": None if bits_per_key is None else rational(bits_per_key, "bits_per_key", _OWNER),
            "preset": preset,
            "selection": selection,
        }
        for name, value in stated.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        """Refuse what can be no parameter, and parameters with which no release could end."""
        if not 0 < self.epsilon <= _MAX_EPSILON:
            raise ParameterError(
                f"{_OWNER}: epsilon must be above 0 and at most {_MAX_EPSILON}, got {show(self.epsilon)};"
                ' ask for "1" or less'
            )
        if self.epsilon < Fraction(1, 10**9):
            raise ParameterError(
                f"{_OWNER}: epsilon below 1e-9 would release noise alone, got {show(self.epsilon)}"
            )
        if not 0 <= self.delta < 1:
            raise ParameterError(f"{_OWNER}: delta must be at least 0 and below 1, got {show(self.delta)}")
        if self.delta != 0 and self.delta < Fraction(1, 10**60):
            raise ParameterError(f"{_OWNER}: delta must be 0 or at least 1e-60, got {show(self.delta)}")
        if self.max_contributions is not None:
            integer(self.max_contributions, "max_contributions", _OWNER, low=1, high=MAX_CONTRIBUTIONS)
        integer(self.max_per_key, "max_per_key", _OWNER, low=1, high=MAX_CONTRIBUTIONS)
        most = MAX_CHOICE if self.max_contributions is None else self.max_contributions
        if self.max_per_key > most:
            name, per = ("max_per_key", 1) if self.granularity is None else ("max_value", self.granularity)
            raise ParameterError(
                f"{_OWNER}: {name} must be at most max_contributions ({show(Fraction(most * per))}), got"
                f" {show(Fraction(self.max_per_key * per))}"
            )
        if self.sizes is not None:
            if len(self.sizes) != 2:
                raise ParameterError(f"{_OWNER}: sizes must be (records, keys), got {self.sizes!r}"[:200])
            for name, size in zip(("records", "keys"), self.sizes, strict=True):
                integer(size, f"sizes.{name}", _OWNER, low=1, high=1 << 50)
        if self.bits_per_key is not None and not Fraction(1, 10) <= self.bits_per_key <= 10_000:
            raise ParameterError(
                f"{_OWNER}: bits_per_key must be from 0.1 to 10000, got {show(self.bits_per_key)}"
            )
        if self.preset not in (None, "paper"):
            raise ParameterError(f"{_OWNER}: preset must be paper, got {str(self.preset)[:40]!r}")
        if not isinstance(self.selection, Threshold | Weights | None):
            raise ParameterError(f"{_OWNER}: selection must be Threshold() or Weights(...)")
        if self.selection is not None and (self.delta == 0 or self.preset is not None):
            raise ParameterError(f"{_OWNER}: selection needs delta above 0 and no preset; leave it out")
        if isinstance(self.selection, Weights):
            integer(self.selection.max_keys, "selection.max_keys", _OWNER, low=1, high=MAX_KEYS)
            if self.selection.rounds is not None:
                integer(self.selection.rounds, "selection.rounds", _OWNER, low=1, high=MAX_ROUNDS)
        if self.delta == 0 or not isinstance(self.selection, Threshold):
            self.resolve().check()
        else:
            self.resolve(weights=False).check()

    def resolve(
        self,
        unit: PrivacyUnit = "user",
        *,
        public: bool = False,
        weights: bool = True,
        caller: str = _OWNER,
    ) -> Params:
        """Return what these parameters mean; raise a ParameterError that begins with ``caller`` where they do not fit.

        Args:
            unit: who is protected.
            public: whether keys are known without looking at the data.
            weights: whether users are known, so that their keys can be weighed.
            caller: what messages begin with.
        """
        users = unit == "user" and weights and not public
        if self.max_contributions is None and not users:
            raise ParameterError(f"{caller}: max_contributions auto needs users and any keys; state a number")
        if self.max_contributions is None and self.preset is not None:
            raise ParameterError(
                f"{caller}: max_contributions auto does not go with preset paper; state a number"
            )
        if isinstance(self.selection, Weights) and not users:
            raise ParameterError(f"{caller}: selection by weights needs users and any keys; leave it out")
        if public and self.preset is not None:
            raise ParameterError(f"{caller}: preset paper has no effect with public keys; leave it out")
        if public:
            selection = "public"
        elif self.delta == 0:
            selection = "fingerprints"
        elif isinstance(self.selection, Threshold) or self.preset is not None or not users:
            selection = "threshold"
        else:
            one = self.max_contributions == 1 and self.selection is None
            selection = "threshold" if one else "weights"
        return Params(self, unit, selection, users and self.preset is None)

    def changed(self, **changes: Any) -> ReleaseParams:
        """Return the same with some parameters stated otherwise."""
        out = object.__new__(ReleaseParams)
        if unknown := set(changes) - {field.name for field in fields(self)}:
            raise TypeError(f"ReleaseParams has no {sorted(unknown)[0]}")
        for field in fields(self):
            object.__setattr__(out, field.name, changes.get(field.name, getattr(self, field.name)))
        out._check()
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return the exact, JSON-ready form; `from_dict` reads it back."""
        out: dict[str, Any] = {
            "epsilon": show(self.epsilon),
            "delta": show(self.delta),
            "max_contributions": "auto" if self.max_contributions is None else self.max_contributions,
            "max_per_key": self.max_per_key,
        }
        for name in ("granularity", "bits_per_key"):
            if value := getattr(self, name):
                out[name] = show(value)
        if self.sizes is not None:
            out["sizes"] = {"records": self.sizes[0], "keys": self.sizes[1]}
        if self.preset is not None:
            out["preset"] = self.preset
        if isinstance(self.selection, Weights):
            out["selection"] = {"weights": vars(self.selection)}
        elif self.selection is not None:
            out["selection"] = "threshold"
        return out

    @classmethod
    def from_dict(cls, text: Mapping[str, Any]) -> ReleaseParams:
        """Return the parameters that `to_dict` wrote."""
        values = dict(text)
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise ParameterError(f"{_OWNER}: unknown parameter {sorted(unknown)[0]!r}")
        found = values.get("selection")
        if found == "threshold":
            values["selection"] = Threshold()
        elif found is not None:
            values["selection"] = Weights(**found["weights"])
        if "granularity" in values:
            values["granularity"] = rational(values["granularity"], "granularity", _OWNER)
            integer(values.get("max_per_key"), "max_per_key", _OWNER, low=1, high=MAX_CONTRIBUTIONS)
            if values.get("max_contributions") != "auto":
                integer(
                    values.get("max_contributions"),
                    "max_contributions",
                    _OWNER,
                    low=1,
                    high=MAX_CONTRIBUTIONS,
                )
        return cls(**bounds_in_values(values))


@dataclass(frozen=True)
class Params:
    """What the parameters of a release mean for a privacy unit and a kind of keys.

    Attributes:
        stated: the parameters.
        unit: who is protected.
        selection: "fingerprints", "threshold", "weights" or "public".
        counts_users: whether a histogram over users is released.
        users: that histogram, once it was released.
        chosen: C, once it was chosen from the data.
        chosen_rounds: the number of rounds of selection by weights, once it was chosen from the data.
        shared: the metrics for which keys are selected together.
        scale: of a prediction, at 1/scale of the keys: sizes have so many times their part of ε, beside ε, since their
            noise is relatively larger there.
    """

    stated: ReleaseParams
    unit: PrivacyUnit
    selection: str
    counts_users: bool = False
    users: UserHistogram | None = None
    chosen: int | None = None
    chosen_rounds: int | None = None
    shared: SharedSelection | None = None
    scale: int = 1

    # --- what was stated --------------------------------------------------------------------------------------------

    @property
    def epsilon(self) -> Fraction:
        return self.stated.epsilon

    @property
    def delta(self) -> Fraction:
        return self.stated.delta

    @property
    def max_contributions(self) -> int:
        """Return C, or the largest that may be chosen."""
        return self.chosen or self.stated.max_contributions or MAX_CHOICE

    @property
    def max_per_key(self) -> int:
        return self.stated.max_per_key

    @property
    def granularity(self) -> Fraction | None:
        return self.stated.granularity

    @property
    def sizes(self) -> tuple[int, int] | None:
        return self.stated.sizes

    @property
    def bits_per_key(self) -> Fraction:
        usual = _PAPER_BITS if self.paper else _BUCKET_BITS if self.weighted else _BITS_PER_KEY
        return self.stated.bits_per_key or usual

    @property
    def per_count(self) -> Fraction:
        """Return what one count stands for: answers are multiplied by it."""
        return self.granularity or Fraction(1)

    @property
    def grid(self) -> Grid | None:
        """Return the grid of values, where they are summed."""
        return None if self.granularity is None else Grid(self.granularity, self.max_per_key)

    # --- what follows -----------------------------------------------------------------------------------------------

    @property
    def weighted(self) -> bool:
        """Return whether keys are selected by weights."""
        return self.selection == "weights"

    @property
    def paper(self) -> bool:
        """Return whether the setting is that of the paper."""
        return self.stated.preset == "paper"

    @property
    def encodes(self) -> bool:
        """Return whether counts of keys that are not selected are released."""
        return self.selection != "public"

    @property
    def chained(self) -> bool:
        """Return whether the encoding counts what the list passes on, so that both have all of ε."""
        return self.encodes and not self.weighted and not self.paper

    @property
    def encoding(self) -> str:
        """Return the name of the encoding."""
        return "buckets" if self.weighted else "alp"

    @property
    def noise(self) -> str:
        """Return the name of the noise on the counts of listed keys.

        For keys by a threshold the one that lists more: of equal thresholds, that for one key per user.
        """
        if self.delta == 0 or self.paper:
            return "laplace"
        if self.weighted:
            return "gaussian"
        if self.selection == "public":
            found = {
                name: (noise := noise_of(name)).variance(
                    noise.scales((self.epsilon,), self.delta, self.sensitivity)[0]
                )
                for name in ("laplace", "gaussian")
                if noise_of(name).scales((self.epsilon,), self.delta, self.sensitivity)[0]
                <= noise_of(name).max_scale
            }
            return min(found, key=lambda name: found[name])
        one = noise_of("truncated_geometric", self.delta)
        if self.sensitivity.l1 != 1 or 1 / self.split.threshold > one.max_scale:
            return "laplace"
        names = {
            name: text_threshold(
                self.delta, noise_of(name, self.delta), 1 / self.split.threshold, self.sensitivity
            )
            for name in ("truncated_geometric", "laplace")
        }
        return min(names, key=lambda name: names[name])

    @property
    def max_keys(self) -> int:
        """Return how many keys of a user are weighed."""
        return self._weights.max_keys

    @property
    def rounds(self) -> int:
        """Return the number of rounds of selection by weights, or the most that may be chosen."""
        if self.chosen_rounds is not None:
            return self.chosen_rounds
        return (
            1 if 1 in (self.max_keys, self.stated.max_contributions) else self._weights.rounds or MAX_ROUNDS
        )

    @property
    def _weights(self) -> Weights:
        return self.stated.selection if isinstance(self.stated.selection, Weights) else Weights()

    @property
    def choose_contributions(self) -> bool:
        """Return whether C is yet to be chosen from the data."""
        return self.stated.max_contributions is None and self.chosen is None

    @property
    def choose_rounds(self) -> bool:
        """Return whether the number of rounds is yet to be chosen from the data."""
        return self.chosen_rounds is None and self._chooses_rounds

    @property
    def _chooses_rounds(self) -> bool:
        fixed = 1 in (self.max_keys, self.stated.max_contributions) or self._weights.rounds is not None
        return self.weighted and not fixed

    @property
    def leads(self) -> bool:
        """Return whether the number of rounds follows from this histogram over users: of metrics with one selection,
        from that of the first."""
        return self._chooses_rounds and (
            self.shared is None or self.shared.metrics[0][0] == self.shared.metric
        )

    @property
    def sized(self) -> bool:
        """Return whether sizes are released from the data."""
        return self.encodes and self.sizes is None

    @property
    def split(self) -> Split:
        """Return how ε is divided: parts that add up to it."""
        nothing = Fraction(0)
        if self.selection == "public":
            return Split(nothing, self.epsilon, nothing)
        size = self.epsilon * (_CHAINED_SIZE if self.chained else _SIZE) if self.sized else nothing
        users = self.epsilon * (_USERS if self.stated.max_contributions else _CHOICE)
        users = users if self.counts_users else nothing
        rest = self.epsilon - size - users
        if self.weighted:
            selection = rest * _SELECTION
            return Split(size, nothing, nothing, selection, rest - selection, users)
        listed = rest / 2 if self.paper else rest
        size *= self.scale
        return Split(size, listed, nothing if self.chained else rest - listed, users=users)

    @property
    def list_bits(self) -> Fraction:
        """Return the room of a list beside ALP, in bits per key."""
        return self.bits_per_key * (1 - _COLUMN)

    @property
    def column_bits(self) -> Fraction:
        """Return the room of the encoding, in bits per key."""
        return self.bits_per_key * _COLUMN if self.chained else self.bits_per_key

    @property
    def sensitivity(self) -> Sensitivity:
        """Return how far one privacy unit moves the counts, which the noise is calibrated for."""
        if not self.weighted:
            return Sensitivity(self.max_contributions, self.max_per_key, self.unit)
        classes = buckets.classes(self.max_contributions)
        return Sensitivity(self.max_contributions, self.max_per_key, self.unit, classes=classes, halves=True)

    @property
    def record_bounds(self) -> tuple[int, int]:
        """Return how many keys of a record count, and how often one of them, where a record is the privacy unit.

        A record adds its value, at most ``max_per_key`` times the granularity, to each of its keys.
        """
        if self.granularity is None:
            return self.max_contributions, self.max_per_key
        return self.max_contributions // self.max_per_key, 1

    @property
    def choices(self) -> tuple[int, ...]:
        """Return the values of C of which one is chosen from the data, or was; none where it was stated."""
        if self.stated.max_contributions is not None:
            return ()
        return tuple(c for c in CHOICES if c >= self.max_per_key)

    @property
    def user_ends(self) -> tuple[int, ...]:
        """Return the upper ends of the cells of the histogram over users."""
        return user_ends(self.stated.max_contributions)

    # --- selection by weights, and all vectors that share its noise ---------------------------------------------------

    @property
    def gaussian(self) -> GaussianPlan:
        """Return noise scales and thresholds of selection by weights, and of all vectors that share its noise.

        Selection comes before C is chosen from the data, so its scales hold for each C that may be.
        """
        name = "" if self.shared is None else self.shared.metric
        mechanism = plan_gaussian(self._gaussian_parts, max_keys=self.max_keys, rounds=self.rounds)
        return mechanism.metric(name, self.sensitivity)

    @property
    def _gaussian_parts(self) -> tuple[tuple[str, MetricShares], ...]:
        return (("", self.metric_shares),) if self.shared is None else self.shared.metrics

    @property
    def metric_shares(self) -> MetricShares:
        """Return what these parameters give to the mechanism of selection by weights."""
        split = self.split
        each = [self.with_contributions(c).sensitivity for c in self.choices or (self.max_contributions,)]
        bounds = tuple((one.l2_squared, one.l0) for one in each)
        return MetricShares(split.selection, split.vector, self.delta, bounds)

    @property
    def gaussian_budget(self) -> tuple[Fraction, Fraction]:
        """Return ε and δ of that mechanism: of all metrics for which keys are selected together."""
        epsilon = sum((shares.epsilon for _, shares in self._gaussian_parts), Fraction(0))
        return epsilon, sum((shares.delta for _, shares in self._gaussian_parts), Fraction(0))

    # --- decisions ----------------------------------------------------------------------------------------------------

    def with_contributions(self, chosen: int) -> Params:
        """Return the same with this C, chosen from the data."""
        return self if self.stated.max_contributions is not None else replace(self, chosen=chosen)

    def with_users(self, users: UserHistogram) -> Params:
        """Return the same with the histogram over users that was released, and the rounds that follow from it."""
        return replace(self, users=users, chosen_rounds=users.rounds() if self.leads else self.chosen_rounds)

    def with_rounds(self, chosen: int) -> Params:
        """Return the same with this number of rounds, chosen from the data."""
        return replace(self, chosen_rounds=chosen)

    def with_rounds_of(self, leading: Params) -> Params:
        """Return the same with the rounds of the metric that leads the selection."""
        return replace(self, chosen_rounds=leading.chosen_rounds) if self.choose_rounds else self

    def sharing(self, shared: SharedSelection) -> Params:
        """Return the same as one of several metrics for which keys are selected together."""
        params = replace(self, shared=shared)
        params.check()
        return params

    def check(self) -> None:
        """Refuse parameters with which no release could end, whatever the sizes turn out to be."""
        from hushgram.sparse_histogram.plan import check_params  # which is about this class

        split = self.split
        parts = [split.size / 2, split.threshold, split.encoding, split.selection, split.vector]
        smallest = min(part for part in parts if part)
        if self.max_contributions / smallest > _LARGEST_SCALE:
            raise ParameterError(
                f"{_OWNER}: epsilon {show(self.epsilon)} is too small for max_contributions {self.max_contributions}:"
                " the noise would exceed 2^34; lower max_contributions or raise epsilon"
            )
        if split.users and 1 / split.users > _LARGEST_SCALE:
            raise ParameterError(
                f"{_OWNER}: epsilon {show(self.epsilon)} is too small to count users: the noise would exceed 2^34;"
                " raise epsilon"
            )
        if self.weighted:  # about, with room: the exact scales take seconds to find
            limit = noise_of("gaussian").max_scale
            mu = gdp_mu(split.selection + split.vector, self.delta / 2)
            if 16 * self.sensitivity.l2_squared > (limit * Fraction(mu)) ** 2:
                raise ParameterError(
                    f"{_OWNER}: epsilon {show(self.epsilon)} is too small for max_contributions"
                    f" {self.max_contributions}: Gaussian noise would have a scale above {limit / 4:g};"
                    " lower max_contributions or raise epsilon"
                )
        check_params(self)

    # --- JSON ---------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the exact, JSON-ready form; `from_dict` reads it back."""
        out: dict[str, Any] = {
            "stated": self.stated.to_dict(),
            "unit": self.unit,
            "selection": self.selection,
        }
        if self.counts_users:
            out["users"] = None if self.users is None else self.users.to_dict()
        if self.chosen is not None:
            out["max_contributions"] = self.chosen
        if self.chosen_rounds is not None:
            out["rounds"] = self.chosen_rounds
        if self.scale != 1:
            out["scale"] = self.scale
        if self.shared is not None:
            out["shared"] = self.shared.to_dict()
        return out

    @classmethod
    def from_dict(cls, text: Mapping[str, Any]) -> Params:
        """Return the parameters that `to_dict` wrote."""
        stated, unit, selection = ReleaseParams.from_dict(text["stated"]), text["unit"], text["selection"]
        public, weights = selection == "public", selection == "weights"
        if unit not in ("user", "record"):
            raise ParameterError(f"Params: unit must be user or record, got {str(unit)[:40]!r}")
        params = stated.resolve(unit, public=public)
        if "users" not in text and not weights and not public:
            params = stated.resolve(unit, weights=False)  # counts that somebody else bounded
        if params.counts_users != ("users" in text):
            raise ParameterError("Params: users must be there where they are counted, and only there")
        if params.selection != selection:
            raise ParameterError(f"Params: selection must be {params.selection}, got {str(selection)[:40]!r}")
        chosen, rounds = text.get("max_contributions"), text.get("rounds")
        shared = SharedSelection.from_dict(text["shared"]) if "shared" in text else None
        if chosen is not None:
            integer(chosen, "max_contributions", "Params", low=stated.max_per_key, high=MAX_CHOICE)
        if rounds is not None:
            integer(rounds, "rounds", "Params", low=1, high=MAX_ROUNDS)
        if (chosen is not None and stated.max_contributions is not None) or (
            rounds is not None and not weights
        ):
            raise ParameterError("Params: a number was chosen that is stated")
        scale = integer(text.get("scale", 1), "scale", "Params", low=1, high=1 << 40)
        users = text.get("users")
        users = None if users is None else UserHistogram.from_dict(users, params.user_ends)
        return cls(stated, unit, selection, params.counts_users, users, chosen, rounds, shared, scale)

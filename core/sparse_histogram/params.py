"""What a user asks for: frozen, self-checking, exact.

`ReleaseParams` holds only public choices. Everything that follows from them and from released sizes (domain,
threshold, levels, column sizes) is in `hushgram.sparse_histogram.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from hushgram.encodings import encoding_named
from hushgram.errors import ParameterError
from hushgram.exact.weights import Grid, bounds_in_units, bounds_in_values
from hushgram.noise.noises import HOMES as NOISES
from hushgram.noise.noises import noise_of
from hushgram.numbers import Number, integer, rational, show
from hushgram.sensitivity import Sensitivity
from hushgram.sparse_histogram.contributions import MOST

__all__ = ["ReleaseParams", "Split"]


_PARTS = ("size", "threshold", "encoding", "contributions")


@dataclass(frozen=True)
class Split:
    """How ε is divided: sizing, threshold step, encoding, choice of C. These are the budgets and add up to ε."""

    size: Fraction
    threshold: Fraction
    encoding: Fraction
    contributions: Fraction = Fraction(0)

    def as_text(self) -> dict[str, str]:
        """JSON-ready form; the last part only where there is one."""
        parts = {field.name: show(getattr(self, field.name)) for field in fields(self)}
        return parts if self.contributions else {name: parts[name] for name in _PARTS[:3]}

    @classmethod
    def from_text(cls, text: Mapping[str, Any]) -> Split:
        """What `as_text` wrote."""
        stated = {"contributions": "0", **text}
        return cls(*(rational(stated[name], f"split.{name}", _OWNER) for name in _PARTS))

    @classmethod
    def named(cls, shares: Mapping[str, Number], epsilon: Fraction, encoding: str) -> Split:
        """From shares by name; the encoding's goes by its own word or by "encoding"."""
        named = {"encoding" if name == encoding else name: share for name, share in shares.items()}
        unknown = set(named) - set(_PARTS)
        if unknown or len(named) < len(shares):
            wrong = sorted(unknown)[0] if unknown else encoding
            raise ParameterError(
                f"{_OWNER}: split has unknown part {wrong!r}; parts are size, threshold, {encoding}"
            )
        return cls(*(epsilon * rational(named.get(name, 0), f"split.{name}", _OWNER) for name in _PARTS))


_OWNER = "ReleaseParams"
# With more than ε = 100 the word "private" has lost its meaning; it is a typing error.
_MOST_EPSILON = 100
_MOST_CONTRIBUTIONS = 1 << 20
# Noise beyond this drowns any count, and would not fit the integers of the release path.
_LARGEST_SCALE = 1 << 34


@dataclass(frozen=True, init=False)
class ReleaseParams:
    """Parameters of one release.

    Neighbouring data sets differ by one user (or one record where no user column is named). After bounding, a user
    counts at most ``max_contributions`` in all and ``max_per_key`` for one key. The release is then
    (epsilon, delta)-differentially private.

    Numbers are given as text, int or Fraction and kept exactly; a float is read as it prints.

    >>> ReleaseParams(epsilon="1", max_contributions=8).epsilon
    Fraction(1, 1)
    >>> ReleaseParams(epsilon="0", max_contributions=8)
    Traceback (most recent call last):
    hushgram.errors.ParameterError: ReleaseParams: epsilon must be above 0 and at most 100, got 0; ask for "1" or less
    """

    epsilon: Fraction
    delta: Fraction
    max_contributions: int
    max_per_key: int
    alpha: Fraction
    #: the parts of ε for sizing, threshold and encoding; with ``fit_split`` the last two are chosen by the plan
    split: Split
    #: public guesses of the number of records and of distinct keys; with both, nothing is spent on sizing
    expected_records: int | None
    expected_keys: int | None
    #: bits of all columns together for each key (tapered), or of each column (flat)
    bits_per_key: Fraction
    #: "tapered": columns shrink with the number of keys that reach their level; "flat": all alike, as in the paper
    columns: str
    #: size of the fingerprint domain at δ = 0 in bits; None chooses it from the number of keys
    domain_bits: int | None
    #: false keys allowed at δ = 0: below 1 a share of the number of keys, from 1 on a number
    false_keys: Fraction
    #: "exact": level width from the exact privacy loss; "paper": C·α/ε
    width: str
    #: how counts below the threshold are released, by its word (`hushgram.encodings`)
    encoding: str = "alp"
    #: the noise on counts by its word (`hushgram.noise.noises`)
    noise: str = "laplace"
    #: whether the plan divides what sizing leaves of ε, from the released sizes
    fit_split: bool = False
    #: whether C is yet to be chosen from the data; ``max_contributions`` is then the most that it can be
    choose_contributions: bool = False
    #: what one count stands for where values are added up: both bounds are then numbers of units
    unit: Fraction | None = None

    def __init__(
        self,
        *,
        epsilon: Number,
        delta: Number = 0,
        max_contributions: Number,
        max_per_key: int = 1,
        alpha: Number = 3,
        split: Mapping[str, Number] | Split | str | None = None,
        expected_records: int | None = None,
        expected_keys: int | None = None,
        bits_per_key: Number | None = None,
        columns: str = "tapered",
        domain_bits: int | None = None,
        false_keys: Number = "0.03",
        width: str = "exact",
        encoding: str = "alp",
        noise: str = "auto",
        fit_split: bool = False,
        already_released: bool = False,
        choose_contributions: bool = False,
        max_value: Number | None = None,
        unit: Number | None = None,
    ) -> None:
        """``split`` gives shares of ε by name: ``{"size": "0.02", "threshold": "0.49", "encoding": "0.49"}``.

        "auto" lets the plan choose them for the least error after the sizes are released.
        ``max_contributions`` "auto" spends a twentieth of ε on choosing it from the data (`contributions`).

        The encoding's share may go by the encoding's own word too ("alp"). With Gaussian noise on list and buckets
        these two are one mechanism, and the shares say how its precision 1/σ² is divided. ``noise`` "auto" is the one
        with the smaller variance, from these parameters alone. ``already_released`` is for parameters that a sketch
        states: whether a release with them could end is no longer a question.

        Where values are added up, ``max_value`` takes the place of ``max_per_key``, and both bounds are in the terms of
        the values, whole multiples of ``unit``, the grid to which sums are rounded (`hushgram.exact.weights`).
        """
        if max_value is not None or unit is not None:
            unit, max_contributions, max_per_key = bounds_in_units(
                _OWNER, unit, max_contributions, max_value, max_per_key
            )
        if max_contributions == "auto":
            max_contributions, choose_contributions = MOST, True
        if bits_per_key is None:
            bits_per_key = 10 if columns == "flat" else 8
        self._put(
            epsilon=rational(epsilon, "epsilon", _OWNER),
            delta=rational(delta, "delta", _OWNER),
            max_contributions=max_contributions,
            max_per_key=max_per_key,
            alpha=rational(alpha, "alpha", _OWNER),
            expected_records=expected_records,
            expected_keys=expected_keys,
            bits_per_key=rational(bits_per_key, "bits_per_key", _OWNER),
            columns=columns,
            domain_bits=domain_bits,
            false_keys=rational(false_keys, "false_keys", _OWNER),
            width=width,
            encoding=encoding,
            noise=noise,
            fit_split=fit_split,
            choose_contributions=choose_contributions,
            unit=unit,
        )
        self._check_privacy()
        self._check_shape()
        if isinstance(split, str) and split != "auto":
            raise ParameterError(f"{_OWNER}: split must be auto or shares by name, got {split[:40]!r}")
        auto = split == "auto" or (split is None and self._fits_by_default())
        stated = None if isinstance(split, str) else split
        self._put(split=self._checked_split(stated, auto))
        self._put(fit_split=fit_split or (auto and encoding_named(self.encoding).auto_share is None))
        self._put(noise=self._smaller_noise() if self.noise == "auto" else self.noise)
        self._check_noise()
        if not already_released:
            from hushgram.sparse_histogram.plan import check_params  # which is about this class

            check_params(self)

    def _put(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_shape(self) -> None:
        if self.columns not in ("tapered", "flat"):
            raise ParameterError(f'{_OWNER}: columns must be "tapered" or "flat", got {self.columns!r}')
        if self.width not in ("exact", "paper"):
            raise ParameterError(f'{_OWNER}: width must be "exact" or "paper", got {self.width!r}')
        encoding_named(self.encoding)
        if self.noise != "auto" and self.noise not in NOISES:
            raise ParameterError(
                f"{_OWNER}: noise must be auto or one of {', '.join(NOISES)}, got {str(self.noise)[:40]!r}"
            )
        if not Fraction(1, 10) <= self.bits_per_key <= 10_000:
            raise ParameterError(
                f"{_OWNER}: bits_per_key must be from 0.1 to 10000, got {show(self.bits_per_key)}"
            )
        if not 0 < self.false_keys <= 1 << 40:
            raise ParameterError(
                f"{_OWNER}: false_keys must be above 0 and at most 2^40, got {show(self.false_keys)}"
            )
        if self.domain_bits is not None:
            integer(self.domain_bits, "domain_bits", _OWNER, low=8, high=64)
        for name in ("expected_records", "expected_keys"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, _OWNER, low=1, high=1 << 50)
        if (self.expected_records is None) != (self.expected_keys is None):
            raise ParameterError(
                f"{_OWNER}: expected_records and expected_keys go together; give both or neither"
            )

    def _check_privacy(self) -> None:
        if not 0 < self.epsilon <= _MOST_EPSILON:
            raise ParameterError(
                f"{_OWNER}: epsilon must be above 0 and at most {_MOST_EPSILON}, got {show(self.epsilon)};"
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
        integer(self.max_contributions, "max_contributions", _OWNER, low=1, high=_MOST_CONTRIBUTIONS)
        integer(self.max_per_key, "max_per_key", _OWNER, low=1, high=_MOST_CONTRIBUTIONS)
        if self.max_per_key > self.max_contributions:
            raise ParameterError(
                f"{_OWNER}: max_per_key must be at most max_contributions ({self.max_contributions}),"
                f" got {self.max_per_key}"
            )
        if not Fraction(1, 100) <= self.alpha <= 1000:
            raise ParameterError(
                f"{_OWNER}: alpha must be from 0.01 to 1000, got {show(self.alpha)}; 3 is a good choice"
            )

    def _checked_split(self, shares: Mapping[str, Number] | Split | None, auto: bool) -> Split:
        """The parts of ε as exact numbers that add up to it."""
        sized = self.expected_keys is None
        if isinstance(shares, Split):
            parts = shares
        elif shares is None:
            size = self.epsilon * 2 / 100 if sized else Fraction(0)
            choice = self.epsilon * 5 / 100 if self.choose_contributions else Fraction(0)
            rest = self.epsilon - size - choice
            chosen = encoding_named(self.encoding)
            share = chosen.auto_share if auto else None
            listed = rest * (share or chosen.threshold_share(texts=self.delta != 0))
            parts = Split(size, listed, rest - listed, choice)
        else:
            parts = Split.named(shares, self.epsilon, self.encoding)
        if self.choose_contributions != bool(parts.contributions) and not isinstance(shares, Split):
            raise ParameterError(
                f"{_OWNER}: split.contributions must be above 0 where max_contributions is auto, and else 0"
            )
        if min(parts.threshold, parts.encoding) <= 0 or min(parts.size, parts.contributions) < 0:
            raise ParameterError(
                f"{_OWNER}: split must give threshold and {self.encoding} more than 0 and size at least 0"
            )
        whole = parts.size + parts.threshold + parts.encoding + parts.contributions
        if whole != self.epsilon:
            total = whole / self.epsilon
            raise ParameterError(f"{_OWNER}: the shares of split must add up to 1, got {show(total)}")
        smallest = min(part for part in (parts.size / 2, parts.threshold, parts.encoding) if part)
        if self.max_contributions / smallest > _LARGEST_SCALE:
            raise ParameterError(
                f"{_OWNER}: epsilon {show(self.epsilon)} is too small for max_contributions {self.max_contributions}:"
                " the noise would exceed 2^34; lower max_contributions or raise epsilon"
            )
        if sized and parts.size == 0:
            raise ParameterError(
                f"{_OWNER}: split.size must be above 0 unless expected_records and expected_keys are given"
            )
        if not sized and parts.size != 0:
            raise ParameterError(
                f"{_OWNER}: split.size must be 0 where expected_records and expected_keys are given"
            )
        return parts

    def _fits_by_default(self) -> bool:
        """Whether an encoding is fitted to released sizes unless shares are stated."""
        return encoding_named(self.encoding).noisy and self.delta == 0 and self.expected_keys is None

    def with_threshold_share(self, share: Fraction) -> ReleaseParams:
        """The same with this share of what sizing leaves of ε for the threshold."""
        rest = self.split.threshold + self.split.encoding
        split = Split(self.split.size, rest * share, rest - rest * share, self.split.contributions)
        return self._changed(split=split, fit_split=False)

    def with_contributions(self, chosen: int) -> ReleaseParams:
        """The same with this C, chosen from the data."""
        return self._changed(max_contributions=chosen, choose_contributions=False)

    def without_choice(self, stated: int) -> ReleaseParams:
        """What is left to release, at this C, once a choice of it is paid: for forecasts."""
        split = replace(self.split, contributions=Fraction(0))
        return self.with_contributions(stated)._changed(
            epsilon=self.epsilon - self.split.contributions, split=split
        )

    def _changed(self, **changes: Any) -> ReleaseParams:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return ReleaseParams(**bounds_in_values({**values, **changes}))

    @property
    def per_count(self) -> Fraction:
        """What one count stands for: answers are multiplied by it."""
        return self.unit or Fraction(1)

    def of_counts(self) -> ReleaseParams:
        """The same for counts, each of which stands for a unit: for forecasts."""
        return self._changed(unit=None)

    @property
    def grid(self) -> Grid | None:
        """The grid of values, where they are added up."""
        return None if self.unit is None else Grid(self.unit, self.max_per_key)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one user moves the counts, which the noise is calibrated for."""
        classes = encoding_named(self.encoding).classes(self.noise, self.max_contributions) or 0
        return Sensitivity(self.max_contributions, self.max_per_key, classes=classes)

    @property
    def record_bounds(self) -> tuple[int, int]:
        """Where a record is the privacy unit: how many of its keys count, and how often one of them.

        A record adds its value, at most ``max_per_key`` units, to each of its keys.
        """
        if self.unit is None:
            return self.max_contributions, self.max_per_key
        return self.max_contributions // self.max_per_key, 1

    @property
    def noisy_parts(self) -> tuple[Fraction, ...]:
        """The parts of ε for noise on counts: of the list, and of an encoding that has the same noise."""
        listed, encoded = self.split.threshold, self.split.encoding
        return (listed, encoded) if encoding_named(self.encoding).noisy else (listed,)

    def _smaller_noise(self) -> str:
        """The noise with the smaller variance, in all of its vectors together."""
        if self.delta == 0:
            return "laplace"
        variances = {}
        # Where C is not chosen yet, it is for the users with many keys that it will be.
        most = 64 if self.choose_contributions else self.max_contributions
        bounds = Sensitivity(max(most, self.max_per_key), self.max_per_key)
        for word in NOISES:
            noise = noise_of(word)
            scales = noise.scales(self.noisy_parts, noise.split_delta(self.delta)[0], bounds)
            if max(scales) <= noise.most_scale:
                variances[word] = sum(noise.variance(scale) for scale in scales)
        return min(variances, key=lambda word: variances[word])

    def _check_noise(self) -> None:
        noise = noise_of(self.noise)
        if self.delta == 0 and self.noise != "laplace":
            raise ParameterError(
                f"{_OWNER}: noise {self.noise} needs delta above 0; set delta, or noise to laplace"
            )
        if self.noise == "laplace":
            return
        scales = noise.scales(self.noisy_parts, noise.split_delta(self.delta)[0], self.sensitivity)
        if max(scales) > noise.most_scale:
            raise ParameterError(
                f"{_OWNER}: noise {self.noise} would have a scale above {noise.most_scale};"
                " lower max_contributions or raise epsilon"
            )

    @property
    def options(self) -> dict[str, Any]:
        """What the encoding is asked for."""
        return {name: getattr(self, name) for name in ("alpha", "bits_per_key", "columns", "width")}

    @classmethod
    def paper(cls, **changes: Any) -> ReleaseParams:
        """The setting of Aumüller, Lebeda, Pagh 2021: d = 2^64, one false key, flat columns of 10 k bits, w = C·α/ε."""
        setting: dict[str, Any] = {
            "domain_bits": 64,
            "false_keys": 1,
            "columns": "flat",
            "bits_per_key": 10,
            "width": "paper",
        }
        return cls(**{**setting, **changes})

    def as_text(self) -> dict[str, Any]:
        """Exact, JSON-ready form; `from_text` reads it back."""
        out: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("fit_split", "choose_contributions", "unit") and not value:
                continue
            if isinstance(value, Split):
                value = value.as_text()
            out[field.name] = show(value) if isinstance(value, Fraction) else value
        return out

    @classmethod
    def from_text(cls, text: Mapping[str, Any]) -> ReleaseParams:
        """Parameters from `as_text`."""
        values = {"noise": "laplace", **text}
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise ParameterError(f"{_OWNER}: unknown parameter {sorted(unknown)[0]!r}")
        parts = values.get("split")
        if isinstance(parts, Mapping):
            values["split"] = Split.from_text(parts)
        if "unit" in values:
            values["unit"] = rational(values["unit"], "unit", _OWNER)
            for name in ("max_contributions", "max_per_key"):
                integer(values.get(name), name, _OWNER, low=1, high=_MOST_CONTRIBUTIONS)
        return cls(**bounds_in_values(values), already_released=True)

"""Parameters of a release: frozen, self-checking, exact.

`ReleaseParams` holds only public choices. Everything that follows from them and from released sizes (domain,
threshold, levels, column sizes) is in `hushgram.sparse_histogram.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from hushgram.contributions.sums import Grid, bounds_in_multiples, bounds_in_values
from hushgram.encodings import NO_ENCODING, encoding_named
from hushgram.errors import ParameterError
from hushgram.key_selection.rounds import CountChoice, GaussianPlan, MetricShares, plan_gaussian
from hushgram.key_selection.threshold import calibrate
from hushgram.key_selection.weighted import MAX_KEYS as MAX_KEYS_SELECTION
from hushgram.noise.gdp import gdp_mu
from hushgram.noise.noises import NOISES, noise_of
from hushgram.numbers import Number, integer, rational, show
from hushgram.sensitivity import Sensitivity
from hushgram.sparse_histogram.contribution_bounds import GRID, MAX_CHOICE
from hushgram.sparse_histogram.split import OWNER as _OWNER
from hushgram.sparse_histogram.split import PARTS as _PARTS
from hushgram.sparse_histogram.split import SharedSelection, Split

__all__ = ["MAX_CONTRIBUTIONS", "ReleaseParams", "SharedSelection", "Split"]

#: how many keys of a user are weighed where nothing else is stated
DEFAULT_MAX_KEYS = 100

# Of what selection by weights leaves, what counts may get with `split: auto`; buckets get the rest. 3/5 is the default.
_COUNT_SHARES = tuple(Fraction(n, 20) for n in (5, 8, 12, 15, 17))
# Of what selection has together with all that shares its noise, what it may get with `split: auto`.
_SELECTION_SHARES = tuple(Fraction(n, 8) for n in (2, 3, 4, 5))
_UNLESS_SET = ("fit_split", "choose_contributions", "choose_rounds", "choose_split", "granularity", "shared")
_WEIGHTED_FIELDS = ("key_selection", "max_keys_selection", "selection_rounds")
# Shares of ε of sizing; where the list comes first less, and what is then left to the encoding, which serves totals of
# many keys (decision 120). The columns then have a sixteenth of the bits.
_SIZE, _LIST_FIRST_SIZE, _LIST_FIRST_ENCODING = Fraction(2, 100), Fraction(15, 1000), Fraction(2, 100)
_COLUMNS = Fraction(1, 16)
# What the numbers of users by keys get, from which rounds are chosen: at ε = 1 they have noise of about 280 users.
_USERS = Fraction(1, 200)
# With more than ε = 100 the word "private" has lost its meaning; it is a typing error.
_MAX_EPSILON = 100
MAX_CONTRIBUTIONS = 1 << 20
# Noise beyond this drowns any count, and would not fit the integers of the release path.
_LARGEST_SCALE = 1 << 34


def _divides(pure: bool, key_selection: str, encoding: str) -> bool:
    return pure or (key_selection == "threshold" and encoding == "alp")


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
    split: Split
    expected_records: int | None
    expected_keys: int | None
    bits_per_key: Fraction
    columns: str
    domain_bits: int | None
    false_keys: Fraction
    width: str
    encoding: str = "alp"
    noise: str = "laplace"
    fit_split: bool = False
    choose_contributions: bool = False
    granularity: Fraction | None = None
    key_selection: str = "threshold"
    max_keys_selection: int = DEFAULT_MAX_KEYS
    selection_rounds: int = 2
    choose_rounds: bool = False
    choose_split: bool = False
    shared: SharedSelection | None = None
    optimize: str = "keys"

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
        false_keys: Number | None = None,
        width: str = "exact",
        encoding: str | None = None,
        noise: str = "auto",
        fit_split: bool = False,
        already_released: bool = False,
        choose_contributions: bool = False,
        max_value: Number | None = None,
        granularity: Number | None = None,
        key_selection: str | None = None,
        max_keys_selection: int = DEFAULT_MAX_KEYS,
        selection_rounds: int | str | None = None,
        choose_rounds: bool = False,
        choose_split: bool = False,
        shared: SharedSelection | None = None,
        optimize: str | None = None,
        kept_share: Number | None = None,
    ) -> None:
        """Check the parameters and make them exact.

        Args:
            epsilon: the privacy loss.
            delta: 0, or the probability with which the loss may be exceeded; above 0, keys are released by their text.
            max_contributions: the most that one user counts in all (C); "auto" spends a twentieth of ε on choosing it
                from the data (`contribution_bounds`).
            max_per_key: the most that one user counts for one key (L∞).
            alpha: a bit of the encoding alp flips with probability 1/(alpha + 2).
            split: shares of ε by name, ``{"size": "0.02", "threshold": "0.49", "encoding": "0.49"}``, or "auto": the
                plan chooses them for the least error after the sizes are released. With weighted key selection that of
                selection is chosen after users were counted by keys (`share_choice`), and those of counts and buckets
                after the sizes of other keys are released. The encoding's share may go by the
                encoding's own name ("alp"). With Gaussian noise on listed keys and buckets these two are one mechanism,
                and the shares say how its precision 1/σ² is divided.
            expected_records: a public guess of the number of records.
            expected_keys: a public guess of the number of distinct keys; with both, nothing is spent on sizing.
            bits_per_key: bits of all columns together per key (tapered), or of each column (flat). With ``optimize``
                "keys" the columns of alp have a sixteenth of it, and at δ = 0 the list the rest.
            columns: "tapered" (fewer bits where fewer keys reach a level) or "flat" (all alike, as in the paper).
            domain_bits: bits of the fingerprint domain at δ = 0; left out, they are chosen by predicted error
                (``optimize`` "keys"), or follow from the number of keys.
            false_keys: false keys allowed at δ = 0: below 1 a share of the number of keys, from 1 on a number; 0.03 by
                default. With ``optimize`` "keys" the least that is allowed.
            width: level width of alp: "exact" (from the exact privacy loss) or "paper" (C·α/ε).
            encoding: how counts of keys that are not selected are released, by name (`hushgram.encodings`), or "none"
                for selected keys alone. By default "buckets" with weighted key selection, else "alp".
            noise: the noise on counts; "auto" is the one that lists more keys (for public keys, that of smaller
                variance), from these parameters alone. "truncated_geometric" is for max_contributions 1.
            fit_split: whether the plan divides what sizing leaves of ε.
            already_released: for parameters that a sketch states: whether a release with them could end is no question.
            choose_contributions: whether C is yet to be chosen from the data.
            max_value: in place of ``max_per_key`` where values are summed: the most that one user adds to one key.
            granularity: where values are summed: sums are rounded to multiples of it, and both bounds are stated in the
                terms of the values, as whole multiples of it (`hushgram.contributions.sums`).
            key_selection: "weighted" (by default where delta is above 0 and noise is not laplace) selects keys by
            weights
                whose noise does not grow with ``max_contributions``, then counts the selected ones; it needs users.
                "threshold" selects keys by their noisy counts.
            max_keys_selection: with weighted key selection, how many keys of a user are weighed.
            selection_rounds: with weighted key selection, 1, 2, or "auto" (by default unless a ``split`` without
                "users" is stated): 1 where a user has one key, else chosen from noisy numbers of users by keys, for
                1/200 of ε.
            choose_rounds: whether the number of rounds is yet to be chosen from the data.
            choose_split: whether the share of selection is yet to be chosen with it.
            shared: for parameters that a sketch states: the metrics for which keys were selected together.
            optimize: "keys" (by default) for lookups of single keys, "totals" for sums over many rare keys. With alp
                and selection by a threshold "keys" gives the list all of ε but for sizing and 2 % for the encoding; it
                is the default where none of ``split``, ``domain_bits``, ``false_keys`` and flat ``columns`` is stated.
                At δ = 0 it also chooses domain and threshold of the list by predicted error (`list_choice`). "totals"
                gives the encoding half of what sizing leaves. Other encodings keep their shares with "keys".
            kept_share: the share of ε that says how much of the records bounding keeps (`kept_share`), such as "0.01";
                none by default. It needs users and any keys. With ``split`` it is the share "kept" there.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        if max_value is not None or granularity is not None:
            granularity, max_contributions, max_per_key = bounds_in_multiples(
                _OWNER, granularity, max_contributions, max_value, max_per_key
            )
        if max_contributions == "auto":
            max_contributions, choose_contributions = MAX_CHOICE, True
        if key_selection is None:
            # With one key per user Laplace noise and a threshold name more; so does whoever states a share for one.
            gaussian = rational(delta, "delta", _OWNER) != 0 and noise in ("auto", "gaussian")
            by_threshold = max_contributions == 1 or (isinstance(split, Mapping) and "threshold" in split)
            key_selection = "weighted" if gaussian and not by_threshold else "threshold"
        if encoding is None:
            encoding = "buckets" if key_selection == "weighted" else "alp"
        if optimize is None:
            own_list = columns == "flat" or any(each is not None for each in (split, domain_bits, false_keys))
            pure = rational(delta, "delta", _OWNER) == 0
            own_list = own_list or (pure and encoding_named(encoding).noisy)
            optimize = "totals" if own_list and _divides(pure, key_selection, encoding) else "keys"
        if bits_per_key is None:
            list_first = optimize == "keys" and rational(delta, "delta", _OWNER) == 0
            bits_per_key = 10 if columns == "flat" else 9 if list_first else 8
        if selection_rounds is None:
            shares = isinstance(split, Split) or (isinstance(split, Mapping) and not split.get("users"))
            selection_rounds = 2 if shares else "auto"
            if key_selection != "weighted" or 1 in (max_keys_selection, max_contributions):
                selection_rounds = 1
        if selection_rounds == "auto":
            choose_rounds = key_selection == "weighted" and 1 not in (max_keys_selection, max_contributions)
            selection_rounds = 2 if choose_rounds else 1
        self._put(
            key_selection=key_selection,
            max_keys_selection=max_keys_selection,
            selection_rounds=selection_rounds,
            choose_rounds=choose_rounds,
            optimize=optimize,
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
            false_keys=rational("0.03" if false_keys is None else false_keys, "false_keys", _OWNER),
            width=width,
            encoding=encoding,
            noise=noise,
            fit_split=fit_split,
            choose_contributions=choose_contributions,
            granularity=granularity,
            shared=shared,
        )
        self._check_privacy()
        self._check_shape()
        if isinstance(split, str) and split != "auto":
            raise ParameterError(f"{_OWNER}: split must be auto or shares by name, got {split[:40]!r}")
        auto = split == "auto" or (split is None and self._fits_by_default())
        stated = None if isinstance(split, str) else split
        self._divide(stated, auto, rational(0 if kept_share is None else kept_share, "kept_share", _OWNER))
        fits = encoding_named(self.encoding).noisy and encoding_named(self.encoding).auto_share is None
        self._put(
            fit_split=fit_split or (auto and fits), choose_split=choose_split or (auto and self.choose_rounds)
        )
        self._put(noise=self._best_noise() if self.noise == "auto" else self.noise)
        self._check_noise()
        # What was asked for, from which `without_weights` starts again; it is no field.
        self._put(_given=given)
        if not already_released:
            self.check()

    def check(self) -> None:
        """Refuse parameters with which no release could end, whatever the sizes turn out to be."""
        from hushgram.sparse_histogram.plan import check_params  # which is about this class

        self._check_split()
        self._check_noise()
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
        if self.optimize not in ("keys", "totals"):
            raise ParameterError(
                f"{_OWNER}: optimize must be keys or totals, got {str(self.optimize)[:40]!r}"
            )
        if self.fits_list and encoding_named(self.encoding).noisy:
            raise ParameterError(
                f"{_OWNER}: optimize keys goes with encoding alp or none where delta is 0; with"
                f" {self.encoding} leave it out"
            )
        if self.key_selection not in ("threshold", "weighted"):
            raise ParameterError(
                f"{_OWNER}: key_selection must be weighted or threshold, got {str(self.key_selection)[:40]!r}"
            )
        integer(self.max_keys_selection, "max_keys_selection", _OWNER, low=1, high=MAX_KEYS_SELECTION)
        integer(self.selection_rounds, "selection_rounds", _OWNER, low=1, high=2)
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
        integer(self.max_contributions, "max_contributions", _OWNER, low=1, high=MAX_CONTRIBUTIONS)
        integer(self.max_per_key, "max_per_key", _OWNER, low=1, high=MAX_CONTRIBUTIONS)
        if self.max_per_key > self.max_contributions:
            raise ParameterError(
                f"{_OWNER}: max_per_key must be at most max_contributions ({self.max_contributions}),"
                f" got {self.max_per_key}"
            )
        if not Fraction(1, 100) <= self.alpha <= 1000:
            raise ParameterError(
                f"{_OWNER}: alpha must be from 0.01 to 1000, got {show(self.alpha)}; 3 is a good choice"
            )

    def _divide(self, shares: Mapping[str, Number] | Split | None, auto: bool, kept_share: Fraction) -> None:
        """Divide ε into exact parts that add up to it."""
        if not 0 <= kept_share <= Fraction(1, 2):
            raise ParameterError(f"{_OWNER}: kept_share must be from 0 to 0.5, got {show(kept_share)}")
        if shares is not None and kept_share:
            raise ParameterError(f"{_OWNER}: kept_share has no effect beside split; state split.kept there")
        if isinstance(shares, Split):
            parts = shares
        elif shares is None:
            size = (
                self.epsilon * (_LIST_FIRST_SIZE if self.list_first else _SIZE) if self.sized else Fraction(0)
            )
            choice = self.epsilon * 5 / 100 if self.choose_contributions else Fraction(0)
            users = self.epsilon * _USERS if self.choose_rounds else Fraction(0)
            kept = self.epsilon * kept_share
            rest = self.epsilon - size - choice - users - kept
            chosen = encoding_named(self.encoding)
            totals = self.encodes and self.optimize == "totals" and self.delta != 0
            if self.list_first and self.encodes:
                encoded = self.epsilon * _LIST_FIRST_ENCODING
                parts = Split(size, rest - encoded, encoded, choice)
            elif self.weighted:
                encoded = rest * (Fraction(1, 2) if totals else chosen.weighted_share)
                selection = (rest - encoded) / 2
                parts = Split(
                    size, Fraction(0), encoded, choice, selection, rest - encoded - selection, users
                )
            else:
                share = Fraction(1, 2) if totals and not auto else chosen.auto_share if auto else None
                listed = rest * (share or chosen.threshold_share(texts=self.delta != 0))
                parts = Split(size, listed, rest - listed, choice)
            parts = replace(parts, kept=kept)
        else:
            parts = Split.named(shares, self.epsilon, self.encoding)
            if self.choose_contributions != bool(parts.contributions):
                raise ParameterError(
                    f"{_OWNER}: split.contributions must be above 0 where max_contributions is auto, and else 0"
                )
            if self.choose_rounds != bool(parts.users):
                raise ParameterError(
                    f"{_OWNER}: split.users must be above 0 where selection_rounds is auto, and else 0"
                )
        self._put(split=parts)
        self._check_split()

    def _check_split(self) -> None:
        parts, sized = self.split, self.sized
        needed = ["selection", "counts"] if self.weighted else ["threshold"]
        needed += ["encoding"] if self.encodes else []
        given = {name for name in _PARTS[1:] if getattr(parts, name) > 0} - {"contributions", "users", "kept"}
        if given != set(needed) or any(getattr(parts, name) < 0 for name in _PARTS):
            names = " and ".join(self.encoding if name == "encoding" else name for name in needed)
            raise ParameterError(
                f"{_OWNER}: split must give {names} more than 0, size at least 0, and nothing to other parts"
            )
        if parts.total != self.epsilon:
            total = parts.total / self.epsilon
            raise ParameterError(f"{_OWNER}: the shares of split must add up to 1, got {show(total)}")
        if parts.kept and self.weighted and not self.encodes:
            raise ParameterError(
                f"{_OWNER}: kept_share has no effect with weighted key selection and encoding none"
            )
        if 0 < parts.kept < Fraction(1, 1 << 24):
            raise ParameterError(
                f"{_OWNER}: kept_share gives less than 2^-24 to what bounding keeps; raise it, or set it to 0"
            )
        smallest = min(part for part in (parts.size / 2, *(getattr(parts, name) for name in needed)) if part)
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

    @property
    def weighted(self) -> bool:
        """Return whether keys are selected by weights."""
        return self.key_selection == "weighted"

    @property
    def divides(self) -> bool:
        """Return whether ``optimize`` decides how a list by a threshold and the encoding share ε."""
        return _divides(self.delta == 0, self.key_selection, self.encoding)

    @property
    def list_first(self) -> bool:
        """Return whether the list has nearly all of ε, and the encoding what serves totals over very many keys."""
        return self.divides and self.optimize == "keys"

    @property
    def fits_list(self) -> bool:
        """Return whether the plan chooses domain and threshold of a list of fingerprints by predicted error."""
        return self.optimize == "keys" if self.delta == 0 else self.lists_cells

    @property
    def lists_cells(self) -> bool:
        """Return whether keys that a threshold does not name are listed by fingerprint, where sizes allow it."""
        return self.delta > 0 and self.list_first and self.encodes and self.noise != "gaussian"

    @property
    def list_bits(self) -> Fraction:
        """Return the room of such a list, in bits per key."""
        return self.bits_per_key * (1 - _COLUMNS) if self.encodes else self.bits_per_key

    @property
    def encodes(self) -> bool:
        """Return whether counts of keys that are not selected are released."""
        return self.encoding != NO_ENCODING.name

    @property
    def sized(self) -> bool:
        """Return whether sizes are released from the data: for an encoding, and at δ = 0 for the domain of
        fingerprints."""
        return self.expected_keys is None and (self.encodes or self.delta == 0)

    def without_users(self, caller: str) -> ReleaseParams:
        """Return the same for data whose records are the privacy unit, of which bounding drops nothing."""
        if self.split.kept:
            raise ParameterError(f"{caller}: kept_share needs a column of users and any keys; leave it out")
        return self.without_weights(caller)

    def without_weights(self, caller: str) -> ReleaseParams:
        """Return the same with keys selected by a threshold, for data without users; refuse where weights were asked
        for."""
        if not self.weighted:
            return self
        given: dict[str, Any] = getattr(self, "_given", {"key_selection": "weighted"})
        if given["key_selection"] is not None:
            raise ParameterError(
                f"{caller}: key_selection weighted needs users and any keys; set it to threshold"
            )
        return ReleaseParams(**{**given, "key_selection": "threshold"})

    def for_public_keys(self, caller: str) -> ReleaseParams:
        """Return the same for public keys: all of ε and δ goes to noise on each, the smaller unless it is stated."""
        params = self.without_users(caller)
        if not params.delta:
            return params
        noise = getattr(params, "_given", {}).get("noise", params.noise)
        if noise != "auto" and noise_of(noise).one_key:
            raise ParameterError(
                f"{caller}: noise {noise} is for key selection, not for public keys; set it to auto"
            )
        params = params._changed(
            split=Split(Fraction(0), params.epsilon, Fraction(0)),
            encoding=NO_ENCODING.name,
            expected_records=None,
            expected_keys=None,
            fit_split=False,
        )
        params._put(noise=params._smaller_noise() if noise == "auto" else noise)
        params._check_noise()
        return params

    def _fits_by_default(self) -> bool:
        """Return whether an encoding is fitted to released sizes unless shares are stated."""
        return encoding_named(self.encoding).noisy and self.delta == 0 and self.expected_keys is None

    def with_threshold_share(self, share: Fraction) -> ReleaseParams:
        """Return the same with this share of what sizing leaves of ε for the threshold."""
        rest = self.split.threshold + self.split.encoding
        split = replace(self.split, threshold=rest * share, encoding=rest - rest * share)
        return self._changed(split=split, fit_split=False)

    def with_contributions(self, chosen: int) -> ReleaseParams:
        """Return the same with this C, chosen from the data."""
        return self._changed(max_contributions=chosen, choose_contributions=False)

    def with_rounds(self, chosen: int) -> ReleaseParams:
        """Return the same with this number of rounds, chosen from the data."""
        return self._changed(selection_rounds=chosen, choose_rounds=False, choose_split=False)

    def branches(self, rounds: int) -> tuple[ReleaseParams, ...]:
        """Return the parameters with this number of rounds, and each share of selection that may be chosen with it."""
        if not self.choose_split:
            return (self.with_rounds(rounds),)
        whole = self.metric_shares.epsilon / self.epsilon
        return tuple(self.with_selection(whole * share, rounds) for share in _SELECTION_SHARES)

    def stating_rounds(self, rounds: int) -> ReleaseParams:
        """Return the same with so many rounds, whatever the data: selection gets what their choice would cost."""
        split = replace(self.split, selection=self.split.selection + self.split.users, users=Fraction(0))
        return self.with_rounds(rounds)._changed(split=split)

    def without_choice(self, stated: int) -> ReleaseParams:
        """Return what is left to release, at this C, once a choice of it and the share kept are paid: for forecasts."""
        spent = self.split.contributions + self.split.kept
        split = replace(self.split, contributions=Fraction(0), kept=Fraction(0))
        return self.with_contributions(stated)._changed(epsilon=self.epsilon - spent, split=split)

    def of_counts(self) -> ReleaseParams:
        """Return the same for counts, each of which stands for the granularity: for forecasts."""
        return self._changed(granularity=None)

    def _changed(self, **changes: Any) -> ReleaseParams:
        """Return a copy with some fields changed, as a plan does: what holds for these parameters was checked."""
        out = object.__new__(ReleaseParams)
        out._put(**{field.name: getattr(self, field.name) for field in fields(self)})
        out._put(**changes)
        return out

    @property
    def per_count(self) -> Fraction:
        """Return what one count stands for: answers are multiplied by it."""
        return self.granularity or Fraction(1)

    @property
    def grid(self) -> Grid | None:
        """Return the grid of values, where they are summed."""
        return None if self.granularity is None else Grid(self.granularity, self.max_per_key)

    @property
    def sensitivity(self) -> Sensitivity:
        """Return how far one user moves the counts, which the noise is calibrated for."""
        classes = encoding_named(self.encoding).classes(self.cells_noise, self.max_contributions) or 0
        return Sensitivity(self.max_contributions, self.max_per_key, classes=classes)

    @property
    def record_bounds(self) -> tuple[int, int]:
        """Return how many keys of a record count, and how often one of them, where a record is the privacy unit.

        A record adds its value, at most ``max_per_key`` times the granularity, to each of its keys.
        """
        if self.granularity is None:
            return self.max_contributions, self.max_per_key
        return self.max_contributions // self.max_per_key, 1

    @property
    def gaussian(self) -> GaussianPlan:
        """Return noise scales and thresholds of weighted key selection, and of all vectors that share its noise.

        Selection comes before C is chosen from the data, so its scales hold for each C that may be.
        """
        name = "" if self.shared is None else self.shared.metric
        parts, most = self._gaussian_parts, self.max_keys_selection
        mechanism = plan_gaussian(parts, max_keys=most, rounds=self.selection_rounds)
        return mechanism.metric(name, self.split.counts, self.sensitivity)

    @property
    def _gaussian_parts(self) -> tuple[tuple[str, MetricShares], ...]:
        return (("", self.metric_shares),) if self.shared is None else self.shared.metrics

    @property
    def metric_shares(self) -> MetricShares:
        """Return what these parameters give to the mechanism of weighted key selection."""
        split = self.split
        counted = split.counts + (split.encoding if encoding_named(self.encoding).noisy else Fraction(0))
        parts = [each.split.counts for each in self.fitted]
        bounds = [
            self._changed(max_contributions=c).sensitivity for c in self.choices or (self.max_contributions,)
        ]
        choices = tuple(CountChoice(part, each.l2_squared, each.l0) for each in bounds for part in parts)
        return MetricShares(split.selection, counted, self.delta, choices, split.users)

    @property
    def users_epsilon(self) -> Fraction:
        """Return ε of the numbers of users by keys: of all metrics for which keys are selected together."""
        return sum((shares.users for _, shares in self._gaussian_parts), Fraction(0))

    @property
    def fitted(self) -> tuple[ReleaseParams, ...]:
        """Return these parameters with each split that the plan may choose, when sizes are known; else as they are."""
        if not self.fit_split:
            return (self,)
        if not self.weighted:
            return tuple(self.with_threshold_share(share) for share in noise_of(self.noise).shares)
        rest, splits = self.split.counts + self.split.encoding, []
        for share in _COUNT_SHARES:
            splits.append(replace(self.split, counts=rest * share, encoding=rest - rest * share))
        return tuple(self._changed(split=split) for split in splits)

    @property
    def gaussian_budget(self) -> tuple[Fraction, Fraction]:
        """Return ε and δ of that mechanism: of all metrics for which keys are selected together."""
        epsilon = sum((shares.epsilon for _, shares in self._gaussian_parts), Fraction(0))
        return epsilon, sum((shares.delta for _, shares in self._gaussian_parts), Fraction(0))

    def with_selection(
        self, share: Fraction, rounds: int, counts_share: Fraction | None = None
    ) -> ReleaseParams:
        """Return the same with this share of ε for selection, and so many rounds.

        Counts and an encoding with the same noise divide the rest as before, or so that counts get ``counts_share``.
        """
        split, selection = self.split, self.epsilon * share
        noisy = encoding_named(self.encoding).noisy
        counted = split.counts + (split.encoding if noisy else Fraction(0))
        counts = (counted + split.selection - selection) * (counts_share or split.counts / counted)
        encoding = counted + split.selection - selection - counts if noisy else split.encoding
        split = replace(split, selection=selection, counts=counts, encoding=encoding)
        fits = self.fit_split and counts_share is None
        return self._changed(split=split, fit_split=fits).with_rounds(rounds)

    def sharing(self, shared: SharedSelection) -> ReleaseParams:
        """Return the same as one of several metrics for which keys are selected together."""
        params = self._changed(shared=shared, choose_split=False)
        params.check()
        return params

    @property
    def cells_noise(self) -> str:
        """Return the name of the noise on the cells of an encoding."""
        return noise_of(self.noise).cells or self.noise

    @property
    def choices(self) -> tuple[int, ...]:
        """Return the values of C of which one is chosen from the data, or was; none where it was stated."""
        return tuple(c for c in GRID if c >= self.max_per_key) if self.split.contributions else ()

    @property
    def noisy_parts(self) -> tuple[Fraction, ...]:
        """Return the parts of ε for noise on counts: of listed keys, and of an encoding that has the same noise."""
        listed, encoded = self.split.threshold, self.split.encoding
        return (listed, encoded) if encoding_named(self.encoding).noisy else (listed,)

    def _best_noise(self) -> str:
        """Return the noise with which a threshold lists the most keys: that of the lower threshold."""
        if self.delta == 0:
            return "laplace"
        if self.weighted:
            return "gaussian"
        # Where C is not chosen yet, it is for the users with many keys that it will be.
        most = 64 if self.choose_contributions else self.max_contributions
        bounds = Sensitivity(max(most, self.max_per_key), self.max_per_key)
        thresholds = {}
        for name in NOISES:
            noise = noise_of(name, self.delta)
            if noise.one_key and bounds.l1 != 1:
                continue
            scales = noise.scales(self.noisy_parts, noise.split_delta(self.delta)[0], bounds)
            if max(scales) <= noise.max_scale:
                thresholds[name] = calibrate(noise, self.noisy_parts, self.delta, bounds)[1]
        # Of equal thresholds that of the noise for one key per user lists more keys: no other is listed more often.
        return min(thresholds, key=lambda name: (thresholds[name], not noise_of(name).one_key))

    def _smaller_noise(self) -> str:
        """Return the noise with the smaller variance on all of ε and δ, for public keys."""
        variances = {}
        for name in NOISES:
            noise = noise_of(name)
            (scale,) = noise.scales((self.epsilon,), self.delta, self.sensitivity)
            if scale <= noise.max_scale and not noise.one_key:
                variances[name] = noise.variance(scale)
        return min(variances, key=lambda name: variances[name])

    def _check_noise(self) -> None:
        noise = noise_of(self.noise)
        if noise.one_key and self.max_contributions != 1:
            raise ParameterError(
                f"{_OWNER}: noise {self.noise} is for max_contributions 1, got {self.max_contributions}; set noise to"
                " auto"
            )
        if self.delta == 0 and self.noise != "laplace":
            raise ParameterError(
                f"{_OWNER}: noise {self.noise} needs delta above 0; set delta, or noise to laplace"
            )
        if self.weighted:
            if self.noise != "gaussian":
                raise ParameterError(
                    f"{_OWNER}: key_selection weighted needs delta above 0 and noise gaussian"
                )
            if self.delta:  # about, with room: the exact scales take seconds to find
                mu = gdp_mu(self.split.selection + self.split.counts, self.delta / 2)
                if 16 * self.sensitivity.l2_squared > (noise.max_scale * Fraction(mu)) ** 2:
                    raise ParameterError(
                        f"{_OWNER}: noise gaussian would have a scale above {noise.max_scale / 4:g};"
                        " lower max_contributions or raise epsilon"
                    )
            return
        if self.noise == "laplace":
            return
        scales = noise.scales(self.noisy_parts, noise.split_delta(self.delta)[0], self.sensitivity)
        if max(scales) > noise.max_scale:
            raise ParameterError(
                f"{_OWNER}: noise {self.noise} would have a scale above {noise.max_scale};"
                " lower max_contributions or raise epsilon"
            )

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the encoding."""
        options = {name: getattr(self, name) for name in ("alpha", "bits_per_key", "columns", "width")}
        return {**options, "bits_per_key": self.bits_per_key * _COLUMNS} if self.list_first else options

    @classmethod
    def paper(cls, **changes: Any) -> ReleaseParams:
        """Return the setting of Aumüller, Lebeda, Pagh 2021.

        That is d = 2^64, one false key, flat columns of 10 k bits, w = C·α/ε.
        """
        setting: dict[str, Any] = {
            "domain_bits": 64,
            "false_keys": 1,
            "columns": "flat",
            "bits_per_key": 10,
            "width": "paper",
            "key_selection": "threshold",
        }
        return cls(**{**setting, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the exact, JSON-ready form; `from_dict` reads it back."""
        out: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _UNLESS_SET and not value:
                continue
            if field.name in _WEIGHTED_FIELDS and not self.weighted:
                continue
            if field.name == "optimize" and value == ("totals" if self.divides else "keys"):
                continue  # as before there was a choice
            if isinstance(value, Split | SharedSelection):
                value = value.to_dict()
            out[field.name] = show(value) if isinstance(value, Fraction) else value
        return out

    @classmethod
    def from_dict(cls, text: Mapping[str, Any]) -> ReleaseParams:
        """Return the parameters that `to_dict` wrote."""
        pure = rational(text.get("delta", 0), "delta", _OWNER) == 0
        values = {"noise": "laplace", "key_selection": "threshold", "encoding": "alp", **text}
        divides = _divides(pure, values["key_selection"], values["encoding"])
        values.setdefault("optimize", "totals" if divides else "keys")
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise ParameterError(f"{_OWNER}: unknown parameter {sorted(unknown)[0]!r}")
        parts = values.get("split")
        if isinstance(parts, Mapping):
            values["split"] = Split.from_dict(parts)
        if "shared" in values:
            values["shared"] = SharedSelection.from_dict(values["shared"])
        if "granularity" in values:
            values["granularity"] = rational(values["granularity"], "granularity", _OWNER)
            for name in ("max_contributions", "max_per_key"):
                integer(values.get(name), name, _OWNER, low=1, high=MAX_CONTRIBUTIONS)
        return cls(**bounds_in_values(values), already_released=True)

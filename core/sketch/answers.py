"""What a sketch answers: counts of keys, totals over sets of keys, heavy keys, and what it can and cannot tell.

No data, no Beam, no budget: all of it is post-processing. Every count is one after bounding: what was left of the
records once each user was held to its most. Where values were added up, every answer is in their terms: a number of
units, times the unit.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.decoding import Decoder, Released
from hushgram.decoding.decoder import Resolution, check_among
from hushgram.encodings import encoding_of
from hushgram.errors import ParameterError
from hushgram.exact.keys import Encoded, encode, hash_bytes
from hushgram.inputs.shaping import parse_recipe, raw_keys
from hushgram.noise.laws import LaplaceLaw, NoiseLaw
from hushgram.sparse_histogram.sizing import PROFILE_GRID

if TYPE_CHECKING:
    from hushgram.sketch.manifest import Manifest
    from hushgram.sparse_histogram.plan import Plan

__all__ = ["REAL", "Answers", "Lookups", "Total"]

#: `heavy` shows keys that are real with at least this probability.
REAL = 0.95
_LEVEL = 0.95

Prints = NDArray[np.uint64]
Heavy = tuple[Prints, NDArray[np.int64], pa.LargeBinaryArray | None]


@dataclass(frozen=True, slots=True)
class Total:
    """The sum over a set of keys, with its interval; ``assumes`` says of which sets it holds."""

    estimate: float
    low: float
    high: float
    level: float
    keys: int
    assumes: str = "nothing"

    def __iter__(self) -> Any:
        return iter((self.estimate, self.low, self.high))

    def __repr__(self) -> str:
        return f"Total({self.estimate:.1f}, {self.low:.1f} to {self.high:.1f} at {self.level:g}, {self.keys} keys)"


@dataclass(frozen=True)
class Lookups:
    """What a sketch shows of some keys, for whoever asks its decoder more than one question about them."""

    decoder: Decoder
    found: NDArray[Any]
    values: NDArray[np.int64]
    listed: NDArray[np.bool_]

    def total(self, chosen: NDArray[np.intp], level: float = _LEVEL) -> tuple[float, float, float]:
        """The sum over some of the keys, by their places, with its interval."""
        return self.decoder.total(self.found[chosen], self.values[chosen], self.listed[chosen], level=level)


class Answers:
    """The answering side of a sketch; its files are the other side (`Sketch`)."""

    manifest: Manifest

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """Every public number of the release."""

    @cached_property
    @abstractmethod
    def _heavy(self) -> Heavy:
        """Fingerprints, values and texts (if there are any) of the threshold part."""

    @abstractmethod
    def _block(self, index: int) -> NDArray[np.uint8]:
        """The released bytes of a block."""

    def _encode(self, keys: Any) -> Encoded:
        """The keys as this release spells them: the recipe that made its keys is applied to them too."""
        encoded = encode(_several(keys))
        recipe = parse_recipe(self.manifest.recipe)
        if recipe is None:
            return encoded
        made = [
            key.encode() if isinstance(key, str) else key
            for key in raw_keys(recipe, encoded.values.to_pylist())
        ]
        return encode(pa.array(made, pa.large_binary()).take(pa.array(encoded.codes)))

    def estimate(
        self,
        keys: Any,
        estimator: str = "posterior",
        interval: str | None = "confidence",
        level: float = _LEVEL,
        present: float | None = None,
        among: int = 1,
    ) -> pa.Table:
        """Return key, estimate, low, high, above_zero, source and among of each key.

        ``source``: "threshold" for a listed key, or the word of the encoding. ``above_zero``: whether the count is told
        apart from 0 at this level. ``present``: the probability that a looked-up key is in the data at all. By default
        nothing is assumed: confidence intervals hold for any count including 0, and the posterior takes a half.
        ``present=1`` is for keys that are known to be in the data.
        Repeated keys are decoded once; a single text, number or date is one key.

        An interval holds at ``level`` for a key that was chosen without looking at the release. For keys that were
        picked out of N by looking (the largest estimates, say), ask with ``among=N``: at ``level`` all N intervals
        hold at once, so those that were picked do.
        """
        encoded = self._encode(keys)
        check_among(among, level, interval)
        if 1 < among < len(encoded.values):
            raise ParameterError(
                f"among must be at least the number of keys that are asked for, {len(encoded.values)}, got {among}"
            )
        prints, texts = hash_bytes(encoded.values), encoded.values
        if self.plan.space is None:
            columns = self._estimate_public(prints, texts, 1.0 - (1.0 - level) / among)
        else:
            values, heavy, found = self._look_up(prints, texts)
            estimate, low, high = self.decoder.estimate(
                found,
                values,
                heavy,
                estimator=estimator,
                interval=interval,
                level=level,
                present=present,
                among=among,
            )
            above = self.decoder.above_zero(found, values, heavy, level, among)
            word = encoding_of(self.plan.space.encoding).word
            columns = [estimate, low, high, above, np.where(heavy, "threshold", word)]
        columns[:3] = self._in_values(*columns[:3])
        names = ["key", "estimate", "low", "high", "above_zero", "source", "among"]
        rows = [
            pa.array(column)[:0] if not len(column) else pa.array(column[encoded.codes]) for column in columns
        ]
        text = _as_text(encoded.values).take(pa.array(encoded.codes))
        number = pa.array(np.full(len(text), among, np.int64))
        return pa.table([text, *rows[:4], rows[4].cast(pa.string()), number], names=names)

    def total(
        self, keys: Any, level: float = _LEVEL, present: float | None = None, estimator: str = "any"
    ) -> Total:
        """The sum over a set of keys (each counted once), with an interval.

        ``any`` holds for any fixed set: rare keys, heavy keys, absent keys, a mixture. ``posterior`` is sharper, and
        holds for sets that are like the data alone: neither chosen by their counts, nor with absent keys in them
        (pages of one site that are known to have been visited, a random sample). ``unbiased`` is the plain sum of
        unbiased estimates, which may be negative. Fixed: chosen without looking at the release.
        """
        encoded = self._encode(keys)
        count = len(encoded.values)
        prints, texts = hash_bytes(encoded.values), encoded.values
        if self.plan.space is None:
            estimate = self._estimate_public(prints, texts, level)[0]
            if np.isnan(estimate).any():
                raise ParameterError(
                    "total: some keys are not in the public list of this release; leave them out"
                )
            middle, half = float(estimate.sum()), self._noise.interval(level, max(count, 1))
            return self._total((middle, middle - half, middle + half), level, count)
        values, heavy, found = self._look_up(prints, texts)
        sums = self.decoder.total(found, values, heavy, estimator=estimator, level=level, present=present)
        return self._total(
            sums, level, count, "keys like the data" if estimator == "posterior" else "nothing"
        )

    def heavy(self, all: bool = False, keys: Any = None, level: float = _LEVEL) -> pa.Table:
        """The threshold part: fingerprint, value, low, high, real, among, and key where its text is known.

        All intervals of the list, shown or not, hold at once at ``level``, those of empty fingerprints with 0 in them:
        ``among``, the number of listed keys, is how many they are.
        At δ = 0 empty fingerprints are listed too, where their noise was large; ``real`` is the probability that a
        listed one is not. Shown are those of at least `REAL`, or ``all``; `expected_false` says how many of them
        are false nevertheless. Texts are those of the release (δ > 0, public lists), or those of ``keys``, candidates
        of which some may have these fingerprints.
        """
        prints, values, texts = self._heavy
        low, high, real = self._judge_heavy(level)
        value, low, high = self._in_values(values, low, high)
        among = np.full(len(prints), len(prints), np.int64)
        columns = {
            "fingerprint": prints, "value": value, "low": low, "high": high, "real": real, "among": among
        }  # fmt: skip
        shown = np.ones(len(prints), np.bool_) if all else real >= REAL
        table = pa.table({name: pa.array(column) for name, column in columns.items()})
        names = _as_text(texts) if texts is not None else None if keys is None else self._name(prints, keys)
        if names is not None:
            table = table.append_column("key", names)
        return table.filter(pa.array(shown))

    def expected_false(self, all: bool = False) -> float:
        """How many of the keys that `heavy` shows are expected to be false: in all d·P[Z ≥ threshold]."""
        if self.plan.domain_bits is None or self.plan.space is None:
            return 0.0
        if all:
            chance = float(self._noise.tail(np.array([float(self.plan.threshold)]))[0])
            return min(2.0**self.plan.domain_bits * chance, float(self.manifest.heavy_rows))
        real = self._judge_heavy(_LEVEL)[2]
        return float((1.0 - real[real >= REAL]).sum())

    def resolution(self, level: float = _LEVEL) -> Resolution:
        """From which count on a single key is resolved (half its interval is below half its count), and how many are.

        For a public list ``keys`` is not known.
        """
        if self.plan.space is None:
            found = Resolution(2 * int(self._noise.interval(level)), None, 0.0)
        else:
            found = self.decoder.resolution(level)
        return replace(found, count=found.count * self.per_count, what="sum" if self.sums_values else "count")

    def distribution(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Counts, rising, and the estimated number of keys with each: fitted to all that the release says."""
        if self.plan.space is None:
            values = np.sort(self._heavy[1]).astype(np.float64)
            return values * self.per_count, np.ones(len(values))
        prior = self.decoder.prior
        top = int(prior.support.high[-1])
        beyond = np.sort(self._heavy[1][self._heavy[1] > top]).astype(np.float64)
        counts = np.concatenate([prior.support.at, beyond])
        return counts * self.per_count, np.concatenate([prior.mass * prior.keys, np.ones(len(beyond))])

    def lookups(self, keys: Any) -> Lookups:
        """What the release shows at each of these keys; not for public lists."""
        encoded = self._encode(keys)
        values, listed, found = self._look_up(hash_bytes(encoded.values), encoded.values)
        return Lookups(self.decoder, found[encoded.codes], values[encoded.codes], listed[encoded.codes])

    def sizes_in_words(self) -> str:
        """The released numbers of records and keys with what their noise leaves open; never negative."""
        sizes = self.plan.sizes
        if self.plan.space is None:
            return f"{sizes.keys:,} public keys"
        of, per = "as the sum of" if self.sums_values else "records of", self.per_count
        if not sizes.scale:
            return f"{sizes.records * per:,.15g} {of} {sizes.keys:,} keys (as stated in the config)"
        half = LaplaceLaw(float(sizes.scale)).radius(_LEVEL)
        records, found = (
            f"{max(number, 0) * each:,.15g} ± {half * each:,.15g}"
            for number, each in ((sizes.records, per), (sizes.keys, 1))
        )
        return f"{records} {of} {found} keys, after bounding"

    @property
    def sums_values(self) -> bool:
        """Whether answers are sums of values, in place of counts of records."""
        return self.plan.params.unit is not None

    @property
    def per_count(self) -> int | float:
        """What one count stands for: 1, or the unit of the values."""
        unit = self.plan.params.per_count
        return unit.numerator if unit.denominator == 1 else float(unit)

    # --- inside -------------------------------------------------------------------------------------------------

    def _in_values(self, *numbers: Any) -> tuple[Any, ...]:
        return tuple(number * self.per_count for number in numbers)

    def _total(
        self, sums: tuple[float, float, float], level: float, keys: int, assumes: str = "nothing"
    ) -> Total:
        estimate, low, high = self._in_values(*sums)
        return Total(estimate, low, high, level, keys, assumes)

    def _place(self, prints: Prints) -> Prints:
        """Fingerprints in the domain of the release."""
        return self.plan.kind.place(prints, self.plan.domain_bits)

    def _look_up(
        self, prints: Prints, texts: pa.LargeBinaryArray
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[Any]]:
        """For each distinct key: its value if heavy, whether it is, and what the encoding shows of it."""
        assert self.plan.space is not None
        placed = self._place(prints)
        values, heavy = self._heavy_values(placed, texts)
        return values, heavy, self.plan.space.look_up(placed, self.manifest.seeds, self._block)

    def _heavy_values(
        self, prints: Prints, texts: pa.LargeBinaryArray
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The noisy count of each key where it is heavy, and whether it is."""
        held, values, names = self._heavy
        if not len(held):
            return np.zeros(len(prints), np.int64), np.zeros(len(prints), np.bool_)
        at = np.minimum(np.searchsorted(held, prints), len(held) - 1)
        heavy = held[at] == prints
        if names is not None:
            at, heavy = _match_texts(at, heavy, held, names, texts)
        return np.where(heavy, values[at], 0), heavy

    def _estimate_public(
        self, prints: Prints, texts: pa.LargeBinaryArray, level: float
    ) -> list[NDArray[Any]]:
        values, listed = self._heavy_values(prints, texts)
        estimate = np.where(listed, values.astype(np.float64), np.nan)
        low, high = estimate - self._noise.interval(level), estimate + self._noise.interval(level)
        return [estimate, low, high, low > 0.0, np.where(listed, "laplace", "not listed")]

    def _judge_heavy(self, level: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Interval of each listed key, which hold at once, and the probability that it is real."""
        prints, values, _ = self._heavy
        if self.plan.space is None:
            check_among(max(len(values), 1), level)
            half = self._noise.interval(1.0 - (1.0 - level) / max(len(values), 1))
            return values - half, values + half, np.ones(len(values))
        found = self.plan.space.look_up(prints, self.manifest.seeds, self._block)
        low, high = self.decoder.listed(found, values, level)
        return low, high, self.decoder.real(found, values, np.ones(len(prints), np.bool_))

    def _name(self, prints: Prints, keys: Any) -> pa.Array:
        """The candidate with each fingerprint, or null."""
        texts = self._encode(keys).values
        placed = self._place(hash_bytes(texts))
        order = np.argsort(placed, kind="stable")
        at = np.minimum(np.searchsorted(placed, prints, sorter=order), max(len(placed) - 1, 0))
        hit = placed[order[at]] == prints if len(placed) else np.zeros(len(prints), np.bool_)
        return _as_text(texts).take(pa.array(order[at] if len(placed) else at, mask=~hit))

    @cached_property
    def _noise(self) -> NoiseLaw:
        return self.plan.noise.law(float(self.plan.scale))

    @cached_property
    def decoder(self) -> Decoder:
        """Of the encoded counts; not for public lists."""
        plan, sizes = self.plan, self.plan.sizes
        assert plan.space is not None
        released = Released(
            bound=plan.threshold,
            noise=self._noise,
            listed=self._heavy[1],
            cells=2.0**plan.domain_bits if plan.domain_bits is not None else None,
            records=float(sizes.records),
            profile_at=np.array(PROFILE_GRID if sizes.profile else (), np.int64),
            profile=np.array(sizes.profile, np.float64),
            profile_noise=float(sizes.scale),
            keys=float(plan.keys),
        )
        sums = np.array(self.manifest.sums, np.int64)
        return Decoder(
            released, plan.space.evidence(released, sums, self._heavy[0], self.manifest.seeds, self._block)
        )


def _match_texts(
    at: NDArray[np.intp],
    listed: NDArray[np.bool_],
    heavy: NDArray[np.uint64],
    names: pa.LargeBinaryArray,
    texts: pa.LargeBinaryArray,
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """A key is listed only if its very text is: texts with one fingerprint are sorted, so look among them."""
    at, listed = at.copy(), listed.copy()
    for i in np.flatnonzero(listed):
        text, first = texts[int(i)].as_py(), int(at[i])
        end = int(np.searchsorted(heavy, heavy[first], side="right"))
        place = bisect_left(range(end), text, first, end, key=lambda j: names[j].as_py())
        listed[i] = place < end and names[place].as_py() == text
        at[i] = min(place, len(heavy) - 1)
    return at, listed


def _several(keys: Any) -> Any:
    """A column of keys, of which a single text, number or date is one too."""
    keys = keys.as_py() if isinstance(keys, pa.Scalar) else keys
    if isinstance(keys, np.generic):
        return np.array([keys])
    return [keys] if isinstance(keys, str | bytes | int | date) else keys


def _as_text(values: pa.LargeBinaryArray) -> pa.Array:
    """Keys as text where all are UTF-8, else as bytes."""
    try:
        text = values.cast(pa.large_string())
        text.validate(full=True)
        return text
    except pa.ArrowInvalid:
        return values

"""A released sketch on disk, and what it answers: counts of keys, totals over sets of keys, heavy keys, accuracy.

No data, no Beam, no budget: all of it is post-processing. Every count is one after contribution bounding. Where values
were summed, every answer is in their terms: a multiple of the granularity.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.accounting.guarantee import Guarantee
from hushgram.contributions.keys import Encoded, encode, hash_bytes
from hushgram.decoding import Decoder, ReleasedNumbers, Top
from hushgram.decoding.decoder import TOTALS, DetectionLimit, check_among
from hushgram.decoding.totals import total_interval
from hushgram.encodings import encoding_of
from hushgram.errors import FormatError, HushgramError, ParameterError
from hushgram.key_selection.threshold import listed_code
from hushgram.noise.laws import LaplaceLaw, NoiseLaw
from hushgram.numbers import choice, counted, plus_minus
from hushgram.sketch.manifest import FileEntry
from hushgram.sketch.results import ResultTable, Tabular, plot_counts
from hushgram.sketch.storage import Storage, local_copy
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.selection import FINGERPRINTS
from hushgram.sparse_histogram.sizing import PROFILE_GRID

__all__ = ["REAL", "Lookups", "Sketch", "Total"]

#: `heavy` shows keys that are real with at least this probability.
REAL = 0.95
_LEVEL = 0.95
_ANSWERS_KEPT = 3  # besides the newest

Fingerprints = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Total(Tabular):
    """The sum over a set of keys, with its interval; ``assumes`` says of which sets it holds."""

    estimate: float
    low: float
    high: float
    level: float
    keys: int
    assumes: str = "nothing"
    keys_error: float = 0.0  # half the width of an interval, where the number of keys is an estimate

    @property
    def table(self) -> pa.Table:
        """Return the total as a table of one row, as `hushgram total` writes it."""
        names = ("keys", "estimate", "low", "high", "level", "assumes")
        return pa.table({name: [getattr(self, name)] for name in names})

    def __iter__(self) -> Iterator[float]:
        return iter((self.estimate, self.low, self.high))

    def __repr__(self) -> str:
        return f"Total({self.estimate:.1f}, {self.low:.1f} to {self.high:.1f} at {self.level:g}, {self.keys} keys)"


@dataclass(frozen=True)
class Lookups:
    """What a sketch shows of some keys, for several questions to its decoder about them."""

    decoder: Decoder
    found: NDArray[Any]
    values: NDArray[np.int64]
    listed: NDArray[np.bool_]

    def total(self, chosen: NDArray[np.intp], level: float = _LEVEL) -> tuple[float, float, float]:
        """Return the sum over some of the keys, by their places, with its interval."""
        return self.decoder.total(self.found[chosen], self.values[chosen], self.listed[chosen], level=level)


class Sketch:
    """A released sketch on disk. `Sketch.open` checks its manifest and sizes; `verify` every byte.

    Blocks of the encoding stay on disk and are checked when a lookup needs them; the threshold part is read, and
    checked, when first needed.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.path = storage.path
        self.manifest = storage.manifest
        self._found: dict[bytes, NDArray[Any]] = {}

    @classmethod
    def open(cls, path: str | Path) -> Sketch:
        """Open the sketch directory at ``path``, which is downloaded first where it is a URI (s3://, gs://,
        webhdfs://)."""
        remote = isinstance(path, str) and "://" in path
        return cls(Storage(local_copy(str(path)) if remote else Path(path)))

    @property
    def plan(self) -> Plan:
        """Return every public number of the release."""
        return self.manifest.plan

    @property
    def guarantee(self) -> Guarantee:
        """Return ε, δ and their parts."""
        try:
            return self.plan.guarantee()
        except (HushgramError, ArithmeticError) as error:
            raise FormatError(f"{self.path}: the manifest contradicts itself: {error}") from None

    @property
    def size(self) -> int:
        """Return the number of bytes on disk."""
        return sum(entry.size for entry in self.manifest.files) + len(self._storage.manifest_content)

    @property
    def manifest_json(self) -> dict[str, Any]:
        """Return the manifest as it stands in its file."""
        return dict(json.loads(self._storage.manifest_content))

    def verify(self) -> list[FileEntry]:
        """Check the digest of every file, every row of the threshold part and the released sums."""
        self._storage.verify()
        return list(self.manifest.files)

    def estimate(
        self,
        keys: Any,
        estimator: str | None = None,
        interval: str | None = "confidence",
        level: float = _LEVEL,
        present: float | None = None,
        among: int = 1,
    ) -> ResultTable:
        """Estimate the count of each key, with an interval.

        A key is resolved if it is listed, so that it has a noisy count of its own, or if its confidence interval is at
        most as wide as its estimate (about ± 50 %). Of a key that is not resolved the release says no more than that
        its count is below ``high``: its estimate is null, unless an estimator is asked for.

        An interval holds at ``level`` for a key that was chosen without looking at the release. For keys that were
        selected out of N by looking (the largest estimates, say), pass ``among=N``: then all N intervals hold at once,
        so the selected ones do. Repeated keys are decoded once.

        Args:
            keys: A column of keys; a single text, number or date is one key.
            estimator: By default the count that confidence intervals shrink to, which lies in all of them, for keys
                that are resolved. "confidence" gives it for all keys; "posterior" (mean), "argmax" and "unbiased" may
                lie outside the interval. Without an interval the default is the posterior mean, for all keys.
            interval: "confidence" (holds for any count, 0 included), "credible" (on average over keys), or None.
            level: The probability with which an interval holds.
            present: The probability that a looked-up key is in the data at all. By default confidence intervals assume
                nothing, and the posterior takes one half. 1 is for keys that are known to be in the data.
            among: The number of keys for which the intervals hold at once.

        Returns:
            A table with key, estimate, low, high, resolved, above_zero (whether the interval excludes 0), source
            ("threshold" for a heavy key, else the name of the encoding) and among, in the order of the keys: an Arrow
            table with ``to_pandas()`` and ``to_polars()``.
        """
        encoded = self._encode(keys)
        check_among(among, level, interval)
        if 1 < among < len(encoded.values):
            raise ParameterError(
                f"among must be at least the number of keys that are asked for, {len(encoded.values)}, got {among}"
            )
        prints, texts = hash_bytes(encoded.values), encoded.values
        values, heavy = self._heavy_values(prints, texts)
        if self.plan.layout is None:
            columns = self._estimate_listed(values, heavy, 1.0 - (1.0 - level) / among, estimator)
        else:
            # values of keys that were selected by weights stand by themselves
            columns = self._estimate_listed(values, heavy, 1.0 - (1.0 - level) / among, estimator)
            columns[5] = columns[5].astype(object)
            asked = np.flatnonzero(~heavy | self._joint)
            if len(asked) or not len(heavy):
                known = self._find(prints[asked]), values[asked], heavy[asked]
                estimate, low, high = self.decoder.estimate(
                    *known, estimator=estimator, interval=interval, level=level, present=present, among=among
                )
                resolved = self.decoder.resolved(*known, level, present, among)
                above = self.decoder.above_zero(*known, level, among)
                name = encoding_of(self.plan.layout.encoding).name
                source = np.where(heavy[asked], "threshold", name)
                for column, of_asked in zip(
                    columns, (estimate, low, high, resolved, above, source), strict=True
                ):
                    column[asked] = of_asked
        columns[:3] = self._in_values(*columns[:3])
        if estimator is None and interval is not None:
            columns[0] = np.where(columns[3], columns[0], np.nan)
        names = ["key", "estimate", "low", "high", "resolved", "above_zero", "source", "among"]
        types = [pa.float64()] * 3 + [pa.bool_()] * 2 + [pa.string()]
        rows = [
            pa.array(column[encoded.codes] if len(column) else [], kind, from_pandas=True)  # NaN is null
            for column, kind in zip(columns, types, strict=True)
        ]
        text = _as_text(encoded.values).take(pa.array(encoded.codes))
        return ResultTable(
            pa.table([text, *rows, pa.array(np.full(len(text), among, np.int64))], names=names)
        )

    def total(
        self, keys: Any, level: float = _LEVEL, present: float | None = None, estimator: str = "any"
    ) -> Total:
        """Estimate the sum over a set of keys (each counted once), with an interval.

        Args:
            keys: The keys, chosen without looking at the release.
            level: The probability with which the interval holds.
            present: For "posterior": the probability that a key is in the data; 1 by default.
            estimator: "any" holds for any fixed set: rare keys, heavy keys, absent keys, a mixture. "posterior" is
                sharper, and holds for sets that are like the data: neither chosen by their counts, nor with absent
                keys (a random sample, or pages of one site that are known to have been visited). "unbiased" is the
                plain sum of unbiased estimates, which may be negative.
        """
        return self.totals([keys], level, present, estimator)[0]

    def totals(
        self, sets: Sequence[Any], level: float = _LEVEL, present: float | None = None, estimator: str = "any"
    ) -> list[Total]:
        """Estimate the sum over each of several sets of keys, as `total` does; all keys are looked up at once."""
        choice(estimator, "estimator", "total", TOTALS)
        check_among(1, level)
        encoded = [self._encode(keys).values for keys in sets]
        texts = pa.concat_arrays(encoded) if encoded else pa.array([], pa.large_binary())
        prints = hash_bytes(texts)
        values, heavy = self._heavy_values(prints, texts)
        if self.plan.layout is None and not heavy.all():
            listed = "selected" if self.plan.selection.selects else "in the public list"
            raise ParameterError(f"total: some keys are not {listed} in this release; leave them out")
        alone = heavy & (self.plan.layout is None or not self._joint)  # released apart from all other keys
        asked = np.flatnonzero(~alone)
        found = self._find(prints[asked]) if len(asked) else None
        assumes = "keys like the data" if estimator == "posterior" and self.plan.layout else "nothing"
        out = []
        for start, end in itertools.pairwise(np.cumsum([0, *map(len, encoded)]).tolist()):
            named, (first, last) = values[start:end][alone[start:end]], np.searchsorted(asked, (start, end))
            if found is not None and first < last:
                sums = self.decoder.total(
                    found[first:last], values[asked[first:last]], heavy[asked[first:last]],
                    estimator=estimator, level=level, present=present,
                    apart=(named, self._noise) if len(named) else None,
                )  # fmt: skip
            elif len(named) == 1 and estimator != "unbiased":  # one key has one interval
                one, low, high = self._estimate_listed(named, named == named, level)[:3]
                sums = float(one[0]), float(low[0]), float(high[0])
            else:
                sums = self._sum_listed(named, level, cut=estimator != "unbiased")
            out.append(self._total(sums, level, end - start, assumes))
        return out

    def heavy(self, all: bool = False, keys: Any = None, level: float = _LEVEL) -> ResultTable:
        """Return the heavy keys: the threshold part of the release.

        All intervals of the list, shown or not, hold at once at ``level``, those of empty fingerprints with 0 in them.
        At δ = 0 empty fingerprints are listed too, where their noise was large; `expected_false` says how many of
        the keys shown are expected to be such.

        Args:
            all: Show all listed keys, not only those that are real with a probability of at least `REAL`.
            keys: Candidate keys, of which some may have these fingerprints; for releases without texts.
            level: The probability with which all intervals hold.

        Returns:
            A table with fingerprint (as hexadecimal text; its first `plan.domain_bits` bits, or those of `plan.top`
            where the value reaches the threshold of that), value, low, high, real (the probability that the key is
            in the data), among (the number of listed keys) and, where its text is known, key.
        """
        listed = self._storage.heavy
        low, high, real = self._judge_heavy(level)
        kept = np.arange(len(real)) if all else np.flatnonzero(real >= REAL)
        prints, real = listed.fingerprints[kept], real[kept]
        texts = None if listed.texts is None else listed.texts.take(pa.array(kept))
        value, low, high = self._in_values(listed.values[kept], low[kept], high[kept])
        among = np.full(len(prints), len(listed), np.int64)
        columns = [_hexadecimal(self._cells()[1][kept]), *map(pa.array, (value, low, high, real, among))]
        table = pa.table(columns, names=["fingerprint", "value", "low", "high", "real", "among"])
        names = _as_text(texts) if texts is not None else None if keys is None else self._name(prints, keys)
        if names is not None:
            table = table.append_column("key", names)
        return ResultTable(table)

    def plot(
        self,
        keys: Any = None,
        *,
        top: int = 20,
        truth: Mapping[Any, float] | None = None,
        level: float = _LEVEL,
        ax: Any = None,
    ) -> Any:
        """Draw counts of keys with their intervals. It needs matplotlib, the extra "plot".

        Args:
            keys: The keys, as for `estimate`, one row each; an unresolved key has an interval and no estimate. By
                default the largest that `heavy` lists, with intervals that hold at once.
            top: The most keys to draw.
            truth: True counts by key, to draw beside the estimates; for data that are not private.
            level: The probability with which an interval holds.
            ax: The matplotlib axes to draw on; by default those of a new figure.

        Returns:
            The axes.
        """
        return plot_counts(self, keys, top=top, truth=truth, level=level, ax=ax)

    def spell(self, keys: Any) -> pa.Array:
        """Return each key as this release spells it: made by its key expression, where it has one."""
        encoded = self._encode(keys)
        return _as_text(encoded.values).take(pa.array(encoded.codes))

    def named_keys(self) -> list[str] | list[bytes]:
        """Return the texts of named keys whose noisy count exceeds the noise: to `carry` to the next release."""
        heavy = self.heavy()
        if "key" not in heavy.column_names:
            raise ParameterError(f"{self.path}: this release lists fingerprints, not keys")
        known = heavy["value"].to_numpy() > float(self.plan.scale) * self.per_count
        keys: list[Any] = heavy["key"].filter(pa.array(known)).to_pylist()
        return keys

    def others(self, level: float = _LEVEL, limit: int | None = None, all: bool = False) -> Total:
        """Estimate the total of everything that `heavy` does not name, with its interval, so that sums add up.

        With key selection by weights that total was released; else it is the released number of records without what is
        named. Named values are too large on average, since they were listed for it; the total is corrected for that.
        Raise ParameterError where neither was released: for public keys, lists without an encoding, and sizes
        that were stated instead of released.

        Args:
            level: The probability with which the interval holds.
            limit: Name this many keys, the largest; others include the rest. By default all that `heavy` shows.
            all: Name all listed keys, as `heavy` does.

        Returns:
            The total; its number of keys is an estimate.
        """
        sizes = self.plan.sizes
        if not self.plan.selection.selects:
            raise ParameterError("others: keys that are not in the public list are not in this release")
        if not sizes.scale:
            raise ParameterError(
                "others: the number of records was stated, not released; leave sizes out of the config"
            )
        values, listed = self._storage.heavy.values, self.manifest.heavy_rows
        decoded = self._joint and self.plan.layout is not None
        real = self._listed[1] if decoded else self._real_listed(values)
        shown = np.flatnonzero(real >= REAL) if not all else np.arange(listed)
        shown = shown[np.argsort(-values[shown], kind="stable")[:limit]]
        if decoded:
            named, variance = self.decoder.chosen(self._listed[0][shown], values[shown])
            middle = sizes.records - named
        elif self._joint:  # a list alone
            bias = self._noise.selected(values.astype(np.float64), int(values[shown].min(initial=1 << 62)))
            middle = sizes.records - float(values[shown].sum()) + float(bias.sum())
            variance = len(shown) * self._noise.variance + float((bias**2).sum())
        else:  # the released size is that of keys that are not listed; what is listed and not shown is beside them
            rest, noise = listed - len(shown), self._noise
            every = float(values.sum()) - listed * noise.mean
            bias = (
                noise.selected(values.astype(np.float64), int(values[shown].min()))
                if len(shown)
                else np.zeros(1)
            )
            middle = sizes.records + (every - float(values[shown].sum()) + float(bias.sum()) if rest else 0.0)
            variance = rest * noise.variance + (float((bias**2).sum()) if rest else 0.0)
        low, high = total_interval(middle, variance, level, laplace=float(sizes.scale))
        keys = sizes.keys + (listed - len(shown) if not self._joint else -len(shown))
        half = LaplaceLaw(float(sizes.scale)).radius(level)
        total = self._total((min(max(middle, low), high), low, high), level, max(keys, 0))
        return replace(total, keys_error=half)

    def expected_false(self, all: bool = False) -> float:
        """Return how many of the keys that `heavy` shows are expected to be false: in all d·P[Z ≥ threshold]."""
        if self.plan.selection.texts or self.plan.domain_bits is None:
            return 0.0
        if all:
            chance = float(self._noise.tail(np.array([float(self.plan.threshold)]))[0])
            return min(2.0**self.plan.domain_bits * chance, float(self.manifest.heavy_rows))
        real = self._judge_heavy(_LEVEL)[2]
        return float((1.0 - real[real >= REAL]).sum())

    def detection_limit(self, level: float = _LEVEL) -> DetectionLimit:
        """Return the smallest count whose interval is at most as wide as the count, and how many keys reach it.

        For public keys the number of keys is not known.
        """
        if self.plan.layout is None:
            least = self.plan.threshold if self.plan.selection.by_count else 0
            found = DetectionLimit(max(2 * int(self._noise.interval(level)), least), None, 0.0)
        else:
            found = self.decoder.detection_limit(level)
            if not self._joint:  # named keys are not among those that the decoder knows
                value = self._storage.heavy.values
                low, high, _ = self._judge_heavy(1.0 - (1.0 - level) / 3.0)
                least, named, most = (int((each >= found.count).sum()) for each in (low, value, high))
                found = replace(
                    found,
                    keys=(found.keys or 0.0) + named,
                    error=found.error + max(most - named, named - least),
                    most=None if found.most is None else found.most + most,
                )
        return replace(found, count=found.count * self.per_count, what=self.measure)

    def distribution(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return counts, rising, and the estimated number of keys with each, fitted to all that the release says."""
        if self.plan.layout is None:
            values = np.sort(self._storage.heavy.values).astype(np.float64)
            return values * self.per_count, np.ones(len(values))
        prior = self.decoder.prior
        top = int(prior.grid.high[-1]) if self._joint else 0  # what was selected by weights is in no prior
        beyond = np.sort(self._storage.heavy.values[self._storage.heavy.values > top]).astype(np.float64)
        counts = np.concatenate([prior.grid.at, beyond])
        order = np.argsort(counts, kind="stable")
        number = np.concatenate([prior.mass * prior.keys, np.ones(len(beyond))])
        return counts[order] * self.per_count, number[order]

    def lookups(self, keys: Any) -> Lookups:
        """Return what the release shows at each of these keys; not for public keys."""
        encoded = self._encode(keys)
        values, listed, found = self._look_up(hash_bytes(encoded.values), encoded.values)
        return Lookups(self.decoder, found[encoded.codes], values[encoded.codes], listed[encoded.codes])

    def released_sizes(self) -> tuple[str, str]:
        """Return the numbers of records (or the sum) and of keys after bounding, in words with their noise.

        With key selection by weights they are those of the keys that are not named.
        """
        sizes, per = self.plan.sizes, self.per_count
        half = LaplaceLaw(float(sizes.scale)).radius(_LEVEL) if sizes.scale else 0
        less = "less" if self.sums_values else "fewer"
        return plus_minus(sizes.records * per, half * per, less), plus_minus(sizes.keys, half)

    def sizes_in_words(self) -> str:
        """Describe the released numbers of records and keys, with their noise."""
        sizes = self.plan.sizes
        if not self.plan.selection.selects:
            return counted(sizes.keys, "public key")
        if self.plan.layout is None and not sizes.scale:
            return counted(self.manifest.heavy_rows, "selected key")
        of, (records, keys) = "as the sum of" if self.sums_values else "records of", self.released_sizes()
        how = "after bounding" if sizes.scale else "as stated in the config"
        which = "keys" if self._joint else "keys beside the named ones"
        return f"{records} {of} {keys} {which}, {how}"

    def kept_in_words(self) -> str | None:
        """Describe what bounding kept, as the histogram over users shows it; None where that was not released."""
        users, params = self.plan.users, self.plan.params
        if users is None:
            return None
        chosen = params.max_contributions if params.stated.max_contributions is None else None
        return users.kept_in_words(
            params.max_contributions, self.per_count, sums=self.sums_values, chosen=chosen is not None
        )

    @property
    def sums_values(self) -> bool:
        """Return whether answers are sums of values, in place of counts of records."""
        return self.plan.params.granularity is not None

    @property
    def measure(self) -> str:
        """Return what an answer is: a "sum" of values, or a "count" of records."""
        return "sum" if self.sums_values else "count"

    @property
    def per_count(self) -> int | float:
        """Return what one count stands for: 1, or the granularity of the values."""
        each = self.plan.params.per_count
        return each.numerator if each.denominator == 1 else float(each)

    def _repr_html_(self) -> str:
        """Render guarantee, sizes and detection limit, for notebooks."""
        name = escape(self.manifest.release or self.path.name)
        lines = [self.guarantee.sentence(), self.sizes_in_words(), self.detection_limit().sentence()]
        rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
        return f"<div><strong>hushgram sketch {name}</strong>, {self.size:,} bytes<ul>{rows}</ul></div>"

    def __repr__(self) -> str:
        return f"Sketch({str(self.path)!r}, {self.manifest.heavy_rows} heavy keys, {self.plan.bits // 8} bytes encoded)"

    # --- inside -------------------------------------------------------------------------------------------------

    def _encode(self, keys: Any) -> Encoded:
        """Return the keys as this release spells them: the expression that made its keys is applied to them too."""
        encoded = encode(_several(keys))
        if not self.manifest.key_expression:
            return encoded
        # Loads all parsers, which other lookups do not need.
        from hushgram.inputs.key_expressions import parse_key_expression, raw_keys

        key_expression = parse_key_expression(self.manifest.key_expression)
        assert key_expression is not None
        made = [
            key.encode() if isinstance(key, str) else key
            for key in raw_keys(key_expression, encoded.values.to_pylist())
        ]
        return encode(pa.array(made, pa.large_binary()).take(pa.array(encoded.codes)))

    def _in_values(self, *numbers: Any) -> tuple[Any, ...]:
        return tuple(number * self.per_count for number in numbers)

    def _total(
        self, sums: tuple[float, float, float], level: float, keys: int, assumes: str = "nothing"
    ) -> Total:
        estimate, low, high = self._in_values(*sums)
        return Total(estimate, low, high, level, keys, assumes)

    def _place(self, prints: Fingerprints) -> Fingerprints:
        """Return fingerprints in the domain of the release."""
        return self.plan.selection.place(prints, self.plan.domain_bits)

    @property
    def _joint(self) -> bool:
        """Return whether listed keys are encoded too, so that both are decoded together."""
        return self.plan.selection.by_count

    def _look_up(
        self, prints: Fingerprints, texts: pa.LargeBinaryArray
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[Any]]:
        """Return for each distinct key its value if heavy, whether it is, and what the encoding shows."""
        return *self._heavy_values(prints, texts), self._find(prints)

    def _find(self, prints: Fingerprints) -> NDArray[Any]:
        """Return what the encoding shows for each key; the last answers are kept for other questions about them."""
        assert self.plan.layout is not None
        asked = prints.tobytes()
        if asked not in self._found:
            for old in list(self._found)[:-_ANSWERS_KEPT]:
                del self._found[old]
            places = self.plan.encoded_places(prints)
            self._found[asked] = self.plan.layout.look_up(places, self.manifest.seeds, self._storage.block)
        return self._found[asked]

    def _heavy_values(
        self, prints: Fingerprints, texts: pa.LargeBinaryArray
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the noisy count of each key where it is heavy, and whether it is."""
        codes = self._codes(prints)
        listed = self._storage.heavy_around(codes)
        value, heavy = np.zeros(len(prints), np.int64), np.zeros(len(prints), np.bool_)
        for code in codes:  # the first that is listed says it
            at, found = _find(listed.fingerprints, code)
            if listed.texts is not None:
                at, found = _match_texts(at, found, listed.fingerprints, listed.texts, texts)
            value[found & ~heavy] = listed.values[at[found & ~heavy]]
            heavy |= found
        if listed.cells is not None and self.plan.domain_bits is not None:
            at, found = _find(listed.cells.fingerprints, FINGERPRINTS.place(prints, self.plan.domain_bits))
            value[found & ~heavy] = listed.cells.values[at[found & ~heavy]]
            heavy |= found
        return value, heavy

    def _codes(self, prints: Fingerprints) -> list[Fingerprints]:
        """Return how keys are listed, if they are: in the top list first, where there is one."""
        bits, top = self.plan.domain_bits, self.plan.top
        if top is None or bits is None or top.domain_bits is None:
            return [self._place(prints)]
        places = (self.plan.selection.place(prints, each) for each in (top.domain_bits, bits))
        return [listed_code(place, bits, top, of_top=i == 0) for i, place in enumerate(places)]

    def _cells(self) -> tuple[Fingerprints, Fingerprints]:
        """Return listed keys as their cells in the domain of the encoding, and as they are shown."""
        prints, top = self._storage.heavy.fingerprints, self.plan.top
        if top is None or self.plan.domain_bits is None or top.domain_bits is None:
            return prints, prints
        cells = prints >> np.uint64(top.domain_bits - self.plan.domain_bits + 1)
        return cells, np.where(prints & np.uint64(1), prints >> np.uint64(1), cells)

    def _estimate_listed(
        self, values: NDArray[np.int64], listed: NDArray[np.bool_], level: float, estimator: str | None = None
    ) -> list[NDArray[Any]]:
        """Return estimates from listed values alone; a key that is not listed is below the threshold, or not public."""
        half, plan = self._noise.interval(level), self.plan
        estimate = np.where(listed, values - self._noise.mean, np.nan)
        low, high = (np.maximum(end, 0.0) for end in self._about(estimate, half))
        if estimator != "unbiased":
            estimate = np.maximum(estimate, 0.0)
        source = np.where(listed, "selected" if plan.selection.selects else plan.noise_name, "not listed")
        if plan.selection.selects:
            most = float(plan.threshold) + (half if self._joint else 0.0)
            estimate, low, high = (
                np.where(listed, one, other) for one, other in ((estimate, 0.0), (low, 0.0), (high, most))
            )
        return [estimate, low, high, listed | (high - low <= estimate), low > 0.0, source]

    def _about(self, middle: NDArray[Any], half: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return intervals of listed counts from the list alone."""
        low, high, top = middle - half, middle + half, self.plan.top
        if top is not None:  # below the top list less passes on, and a count above it by half is there
            passes = self.plan.top_remainder
            counts = np.arange(
                max(top.threshold - 1 - len(passes.lowered), 0), top.threshold, dtype=np.float64
            )
            counted = passes.mean(counts)
            own = middle < top.threshold
            back = high + np.interp(high, counted, counts - counted, left=0.0)
            back = np.where(high < counted[-1], back, np.maximum(high, top.threshold + half))
            high = np.where(own, back, high)
        return low, high

    def _sum_listed(
        self, values: NDArray[np.int64], level: float, *, cut: bool
    ) -> tuple[float, float, float]:
        """Return the sum of listed values with its interval, ``cut`` at 0."""
        half = self._noise.interval(level, max(len(values), 1))
        middle = float(values.sum()) - len(values) * self._noise.mean
        least = 0.0 if cut else -np.inf
        return max(middle, least), max(middle - half, least), max(middle + half, least)

    def _judge_heavy(self, level: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return intervals of all listed keys, which hold at once, and the probability that each is real."""
        values = self._storage.heavy.values
        if self.plan.layout is None or not self._joint:
            check_among(max(len(values), 1), level)
            half = self._noise.interval(1.0 - (1.0 - level) / max(len(values), 1))
            return *self._about(values - self._noise.mean, half), self._real_listed(values)
        found, real = self._listed
        return *self.decoder.listed(found, values, level), real

    @cached_property
    def _listed(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return a lookup for each listed key, whose value says all, and the probability that it is in the data."""
        values = self._storage.heavy.values
        assert self.plan.layout is not None
        found = np.zeros((len(values), self.plan.layout.hashes), np.bool_)
        return found, self.decoder.real(found, values, np.ones(len(values), np.bool_))

    def _real_listed(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probability that each listed key is in the data, from the list alone: 1 if it has its text."""
        if self.plan.selection.texts or self.plan.domain_bits is None or not len(values):
            return np.ones(len(values))
        above = len(values) - np.searchsorted(np.sort(values), values, side="left")
        false = 2.0**self.plan.domain_bits * self._noise.tail(values.astype(np.float64))
        return 1.0 - np.minimum(false / above, 1.0)

    def _name(self, prints: Fingerprints, keys: Any) -> pa.Array:
        """Return the candidate with each fingerprint, or null."""
        texts = self._encode(keys).values
        codes = self._codes(hash_bytes(texts))
        if len(codes) == 2:  # what the top list shows is in no cell
            codes[1] = np.where(np.isin(codes[0], self._storage.heavy.fingerprints), codes[0], codes[1])
        placed = np.concatenate(codes)
        order = np.argsort(placed, kind="stable")
        at = np.minimum(np.searchsorted(placed, prints, sorter=order), max(len(placed) - 1, 0))
        hit = placed[order[at]] == prints if len(placed) else np.zeros(len(prints), np.bool_)
        rows = order[at] % max(len(texts), 1) if len(placed) else at
        return _as_text(texts).take(pa.array(rows, mask=~hit))

    @cached_property
    def _noise(self) -> NoiseLaw:
        return self.plan.noise.law(float(self.plan.scale))

    @cached_property
    def decoder(self) -> Decoder:
        """Return the decoder of the encoded counts; not for public keys."""
        plan, sizes, top = self.plan, self.plan.sizes, None
        assert plan.layout is not None
        if plan.top is not None:
            cells = 0.0 if plan.top.domain_bits is None else 2.0**plan.top.domain_bits
            top = Top(plan.top_remainder, cells, self._noise)
        values = [part.values for part in self._storage.heavy.lists] if self._joint else []
        released = ReleasedNumbers(
            threshold=plan.threshold,
            noise=plan.cells_noise.law(float(plan.scale)),
            listed=np.concatenate([np.zeros(0, np.int64), *values]),
            domain_size=2.0**plan.domain_bits if plan.domain_bits is not None else None,
            records=float(sizes.records),
            profile_at=np.array(PROFILE_GRID if sizes.profile else (), np.int64),
            profile=np.array(sizes.profile, np.float64),
            profile_noise=float(sizes.scale),
            keys=float(plan.keys),
            top=top,
            rest=plan.remainder if plan.chained else None,
        )
        sums = np.array(self.manifest.sums, np.int64)
        return Decoder(released, plan.layout.likelihood(released, sums, self._storage.block))


def _find(held: Fingerprints, wanted: Fingerprints) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where the wanted numbers are in a sorted list, and which are there."""
    if not len(held):
        return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    return at, held[at] == wanted


def _match_texts(
    at: NDArray[np.intp],
    listed: NDArray[np.bool_],
    heavy: NDArray[np.uint64],
    names: pa.LargeBinaryArray,
    texts: pa.LargeBinaryArray,
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Compare texts: a key is listed only if its text is. Texts with one fingerprint are sorted."""
    at, listed = at.copy(), listed.copy()
    chosen = np.flatnonzero(listed)
    pairs = zip(
        names.take(pa.array(at[chosen])).to_pylist(), texts.take(pa.array(chosen)).to_pylist(), strict=True
    )
    for i in chosen[[one != other for one, other in pairs]]:
        text, first = texts[int(i)].as_py(), int(at[i])
        end = int(np.searchsorted(heavy, heavy[first], side="right"))
        place = bisect_left(range(end), text, first, end, key=lambda j: names[j].as_py())
        listed[i] = place < end and names[place].as_py() == text
        at[i] = min(place, len(heavy) - 1)
    return at, listed


def _several(keys: Any) -> Any:
    """Return a column of keys; a single text, number or date is a column of one."""
    keys = keys.as_py() if isinstance(keys, pa.Scalar) else keys
    if isinstance(keys, np.generic):
        return np.array([keys])
    return [keys] if isinstance(keys, str | bytes | int | date) else keys


def _hexadecimal(prints: Fingerprints) -> pa.StringArray:
    """Return fingerprints as texts of 16 digits."""
    digits = prints.astype(">u8").tobytes().hex().encode()
    ends = np.arange(0, len(digits) + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(prints), pa.py_buffer(ends), pa.py_buffer(digits))


def _as_text(values: pa.LargeBinaryArray) -> pa.Array:
    """Return keys as text if all are UTF-8, otherwise as bytes."""
    try:
        text = values.cast(pa.large_string())
        text.validate(full=True)
        return text
    except pa.ArrowInvalid:
        return values

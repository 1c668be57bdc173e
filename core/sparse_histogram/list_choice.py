"""The list first (δ = 0): domain and threshold of the listed cells, chosen together by predicted error ★.

At δ = 0 every cell of a public domain of d fingerprints gets noise, so any public d and threshold are private. A
smaller domain has a lower threshold at the same number of false entries, and more keys that share a cell; a lower
threshold lists more keys and more false entries, each of which takes bits. For each d the threshold is the lowest whose
list fits the bits, and of all d the one with the least mean square error over the keys of the data is taken:

    hidden    (x − m)²·P[x + Z < β]       a key that is not listed is answered by about the mean m of such keys, of
                                          which as many as there are keys in the data are absent
    listed    2b²·P[x + Z ≥ β]            noise of scale b
    shared    Σ x'²/d                     a key in the cell of another one is answered by the other's count

Large counts want a large domain: so a list over sub-cells may come first, and the other one leaves out what that
shows (`hushgram.key_selection.threshold`: chains). Then `shared` ends at its threshold τ', and
what it lists takes bits. It is tried at two τ', and without it: the lower one has no false entry in 99 of 100 releases.
At δ > 0 the list of texts is the top list, and τ' its threshold; texts are not counted as bits.

The last sum is that of an ordinary release: it ends at the count q that a key meets in three releases of ten, and q² is
added once. (Its expectation is the square of the largest count over d, which happens in one release of thousands.)

Inputs are public: parameters and released sizes. The tail of the profile is hidden by its own noise, but the number of
records is not: beyond the last count that the profile shows, the records left over are spread as x^−2, over e^8 fold.
Arithmetic is decimal, rounded correctly to 16 digits on every machine, so that every worker finds the same plan.

| symbol | meaning |
|---|---|
| x | count of a key; cells of the profile stand at the middle of their range |
| b | scale of the list's noise |
| d, β | cells of the domain; the noisy count from which on a cell is listed |
| F | false entries, about d·P[Z ≥ β] |
| d', τ' | sub-cells and threshold of the top list |
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from hushgram.encodings import monotone
from hushgram.key_selection.threshold import TopList

__all__ = ["LEAST_BITS", "LEAST_CELLS", "MAX_TOP_BITS", "MOST_FALSE", "ListChoice", "choose_list"]

#: The largest domain of a top list: a listed key is identified by a bit more (`listed_code`).
MAX_TOP_BITS = 62

#: The smallest domain has so many cells per key.
LEAST_CELLS = 32
#: A list has room for so many bits at least: few keys are worth as many bytes as the manifest.
LEAST_BITS = Fraction(1 << 16)
#: Beyond this number a list has no more false entries than its least share of the keys: readers hold it in memory.
MOST_FALSE = 1 << 22

_DIGITS = 16
_FAR = Decimal(10**5)  # scales beyond which a count is listed for sure
_SHOWN = 1  # noise scales from which on the profile shows keys
_SPREAD = 8  # records beyond are spread over so many e-folds
_RARE = Decimal("0.3")  # share of the releases in which a key meets a larger count than q
_FALSE = Decimal("0.1")  # false entries that are always allowed, as a share of the listed keys of the data
_TOP_ODDS = Decimal(100)  # an empty sub-cell is in the top list in fewer than one release of so many
_TOP_TIMES = (1, 2)  # thresholds of the top list that are tried: so many times the least
_TOP_BITS = 12  # its domain is so much larger, in bits
_TOP_DOMAINS = 6  # domains of the other list that are tried beside it: a large one needs no top list
_TOP_ABOVE = 12  # noise scales that it is above the other list at least
_CODE_BITS = 3  # of a gap above log₂(d/N) and a value above log₂ max(b, x): log₂ e, and the loss of codes


@dataclass(frozen=True)
class ListChoice:
    """Domains and thresholds, with what is expected of them: mean square error over keys, and bits of the lists."""

    domain_bits: int
    threshold: int
    scale: Fraction
    error: Decimal
    bits: Decimal
    top: TopList | None = None


@lru_cache(maxsize=64)
def choose_list(
    *,
    scale: Fraction,
    keys: int,
    records: int,
    profile_at: tuple[int, ...],
    profile: tuple[int, ...],
    noise: Fraction,
    bits: Fraction,
    least_false: Fraction,
    most_cells: int,
    names: TopList | None = None,
) -> ListChoice:
    """Return the choice with the least predicted error, which is infinite where none is below ``names``.

    Args:
        scale: b of the noise on listed counts.
        keys: about how many keys there are.
        records: about how many records.
        profile_at: counts t of the profile; none where sizes were stated.
        profile: about how many keys have at least t records, with noise.
        noise: the scale of that noise.
        bits: room for the whole list. False entries take what listed keys of the data leave of it.
        least_false: so many false entries are allowed at least.
        most_cells: the largest domain has so many cells per key.
        names: the list of texts that comes first, of the same noise scale, at δ > 0.
    """
    with localcontext() as context:
        context.prec = _DIGITS
        counts = _counts(keys, records, profile_at, profile, noise)
        first = max((LEAST_CELLS * keys - 1).bit_length(), 8)
        last = min(max((most_cells * keys - 1).bit_length(), first), 64)
        room, allowed = _decimal(bits), _decimal(least_false)
        law = _Law(scale)
        if names is not None:
            first, last = min(first, MAX_TOP_BITS), min(last, MAX_TOP_BITS)
        found = [_at(d, law, counts, keys, room, allowed, names) for d in range(first, last + 1)]
        if names is not None:
            return min(found, key=lambda choice: choice.error)
        for d in range(first, min(last + 1, first + _TOP_DOMAINS, MAX_TOP_BITS - _TOP_BITS + 1)):
            least = (_TOP_ODDS * (1 << (d + _TOP_BITS))).ln()  # noise scales
            for high in (int(times * least * law.scale) + 1 for times in _TOP_TIMES):
                found.append(_at(d, law, counts, keys, room, allowed, TopList(d + _TOP_BITS, high)))
        return min(found, key=lambda choice: choice.error)


_Counts = list[tuple[Decimal, Decimal]]  # rising counts, and how many keys have each


class _Law:
    """Discrete Laplace noise."""

    def __init__(self, scale: Fraction) -> None:
        self.exact, self.scale = scale, _decimal(scale)
        self.q = (-1 / self.scale).exp()
        self._grown: list[Decimal] = []
        self._digits: list[Decimal] = []

    def tail(self, at: int) -> Decimal:
        """Return P[Z ≥ at] for at ≥ 1."""
        return (-at / self.scale).exp() / (1 + self.q)

    def listed(self, counts: _Counts, threshold: int) -> list[Decimal]:
        """Return how many keys of each count are listed; an exponential per count is computed once."""
        if not self._grown:
            self._grown = [min(x / self.scale, _FAR).exp() for x, _ in counts]
        above = (-threshold / self.scale).exp() / (1 + self.q)
        below = ((threshold - 1) / self.scale).exp() / (1 + self.q)
        return [
            n * (above * grown if threshold - x >= 1 else 1 - below / grown)
            for (x, n), grown in zip(counts, self._grown, strict=True)
        ]

    def bits(self, false: Decimal, counts: _Counts, listed: list[Decimal], cells: Decimal) -> Decimal:
        """Return the bits of so many false entries, and of so many listed keys of each count."""
        least = max(self.scale, Decimal(1))
        if not self._digits:  # a logarithm per count is computed once
            self._digits = [max(least, x).log10() for x, _ in counts]
        number = sum(listed, false)
        gap = (cells / min(max(number, Decimal(1)), cells)).log10()
        values = sum((n * d for n, d in zip(listed, self._digits, strict=True)), false * least.log10())
        return number * _CODE_BITS + (number * gap + values) / Decimal(2).log10()


def _at(
    domain_bits: int,
    law: _Law,
    counts: _Counts,
    keys: int,
    bits: Decimal,
    least_false: Decimal,
    top: TopList | None = None,
) -> ListChoice:
    """Return the lowest threshold whose list fits the bits, or has the false entries that are always allowed."""
    cells, most = Decimal(1 << domain_bits), max(least_false, Decimal(MOST_FALSE))
    above = [Decimal(0)] * len(counts) if top is None else law.listed(counts, top.threshold)
    of_top = Decimal(0)
    if top is not None and top.domain_bits is not None:
        of_top = law.bits(of_top, counts, above, Decimal(1 << top.domain_bits))

    def fits(threshold: int) -> tuple[bool, Decimal]:
        false = cells * law.tail(threshold)
        listed = [n - n_top for n, n_top in zip(law.listed(counts, threshold), above, strict=True)]
        took = law.bits(false, counts, listed, cells) + of_top
        allowed = max(least_false, _FALSE * sum(listed, Decimal(0)))
        return false <= allowed or (took <= bits and false <= most), took

    low, high = 0, 1
    while not fits(high)[0]:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle)[0] else (middle, high)
    error, took = _error(high, law, counts, keys), fits(high)[1]
    rest = counts
    if top is not None:
        rest = [(x, n - n_top) for (x, n), n_top in zip(counts, above, strict=True) if x < top.threshold]
        apart = 2 if top.domain_bits is None else _TOP_ABOVE * law.scale
        if top.threshold < high + apart:
            error = Decimal("Infinity")
    return ListChoice(domain_bits, high, law.exact, error + _shared(cells, rest, keys), took, top)


def _error(threshold: int, law: _Law, counts: _Counts, keys: int) -> Decimal:
    """Return the mean square error of a key alone in its cell."""
    rows = [(x, n, listed) for (x, n), listed in zip(counts, law.listed(counts, threshold), strict=True)]
    hidden = [(x, n - listed) for x, n, listed in rows]
    absent = keys * (1 - law.tail(threshold))
    number = sum((n for _, n in hidden), absent)
    mean = sum((x * n for x, n in hidden), Decimal(0)) / max(number, Decimal(1))
    square = sum((n * (x - mean) ** 2 for x, n in hidden), Decimal(0))
    noise = 2 * law.q / (1 - law.q) ** 2
    return (square + noise * sum((listed for *_, listed in rows), Decimal(0))) / keys


def _shared(cells: Decimal, counts: _Counts, keys: int) -> Decimal:
    """Return what keys that share a cell add to the mean square error."""
    met, square, largest = Decimal(0), Decimal(0), Decimal(0)
    rare = _RARE * cells / keys  # so many keys, the largest, are met in a rare release
    for x, n in reversed(counts):
        met += n
        if met >= rare:
            square += n * x * x
            largest = max(largest, x)
    return square / cells + largest * largest / keys


def _counts(
    keys: int, records: int, profile_at: tuple[int, ...], profile: tuple[int, ...], noise: Fraction
) -> _Counts:
    """Return rising counts with the number of keys of each: as far as the profile shows them, then the tail."""
    total = max(Decimal(records), Decimal(1))
    reached = [min(_decimal(n), total / t) for t, n in zip(profile_at, monotone(profile, keys), strict=True)]
    end = sum(n >= _decimal(_SHOWN * noise) for n in reached)
    low = profile_at[end] if 0 < end < len(profile_at) else 1
    body = [
        (Decimal(t + profile_at[i + 1] - 1) / 2, reached[i] - reached[i + 1])
        for i, t in enumerate(profile_at[: end - 1])
    ]
    last = reached[end - 1] if end else Decimal(keys)
    at = Decimal(profile_at[end - 1] if end else 1)
    left = max(Decimal(records) - sum((x * n for x, n in body), at * last), Decimal(0))
    tail = min(left / _SPREAD, last * low)  # t·N_t beyond
    body.append((at, last - tail / low))
    step, at = Decimal(2).sqrt().sqrt(), Decimal(low)
    while tail and at <= total:
        body.append((at * (1 + step) / 2, tail / at - tail / (at * step)))
        at *= step
    return body


def _decimal(number: Fraction | int) -> Decimal:
    exact = Fraction(number)
    return Decimal(exact.numerator) / Decimal(exact.denominator)

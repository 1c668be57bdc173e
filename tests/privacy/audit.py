"""The exact audit: every mechanism that ships, on tiny neighbouring inputs, worst loss and δ beside the claim.

    python -m tests.privacy.audit        writes docs/audit.md; exits with 1 where something is above its claim

Probabilities of every output come from first principles (the tests beside this file tie the code to them), so
the figures are those of the mechanism as it is released, not estimates.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from hushgram.encodings import alp
from hushgram.key_selection import threshold, weighted
from hushgram.noise import gaussian
from hushgram.noise.gdp import NoisyVector, gdp_delta
from hushgram.noise.laplace import NOISE as LAPLACE
from hushgram.sensitivity import Sensitivity
from tests.privacy import (
    blackbox,
    test_alp,
    test_buckets,
    test_gaussian,
    test_laplace,
    test_linear,
    test_pmw,
    test_selection,
    test_svt_enumeration,
    test_threshold,
    test_truncated_geometric,
)
from tests.privacy.svt_exact import Laplace

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
SLACK = 1e-8


@dataclass(frozen=True)
class Row:
    """One setting: what is claimed and the worst that was found."""

    setting: str
    epsilon: float
    worst: float
    delta: float = 0.0
    worst_delta: float = 0.0

    @property
    def good(self) -> bool:
        return self.worst <= self.epsilon + SLACK and self.worst_delta <= self.delta + SLACK * max(
            self.delta, 1e-3
        )


@dataclass(frozen=True)
class Audit:
    """One mechanism; `covers` names the registry entries that it speaks for."""

    title: str
    covers: frozenset[str]
    rows: Callable[[], Iterator[Row]]


AUDITS: list[Audit] = []


def audit(title: str, *covers: str) -> Callable[[Callable[[], Iterator[Row]]], Callable[[], Iterator[Row]]]:
    def add(rows: Callable[[], Iterator[Row]]) -> Callable[[], Iterator[Row]]:
        AUDITS.append(Audit(title, frozenset(covers), rows))
        return rows

    return add


@audit("Threshold step, δ = 0, Laplace noise", "event:threshold", "noise:laplace")
def _threshold_pure() -> Iterator[Row]:
    for epsilon, most, most_per_key in ((Fraction(1, 2), 1, 1), (Fraction(1), 2, 1), (Fraction(2), 3, 2)):
        (scale,) = LAPLACE.scales((epsilon,), Fraction(0), Sensitivity(most, most_per_key))
        bound = threshold.pure_threshold(8, Fraction(1), LAPLACE, scale)
        worst = 0.0
        for x in itertools.product((0, bound - 1, bound), repeat=3):
            for y in test_threshold.neighbours(x, most, most_per_key):
                for a, b in ((x, y), (y, x)):
                    worst = max(worst, test_threshold.pure_loss(a, b, bound, float(scale)))
        yield Row(f"C = {most}, L∞ = {most_per_key}, β = {bound}", float(epsilon), worst)


@audit("Threshold step, δ > 0: a key that one user alone holds", "event:threshold")
def _threshold_text() -> Iterator[Row]:
    delta = Fraction(1, 1000)
    for most, most_per_key in ((1, 1), (4, 1), (8, 8), (7, 3)):
        bounds = Sensitivity(most, most_per_key)
        (scale,) = LAPLACE.scales((Fraction(1),), Fraction(0), bounds)
        bound = threshold.text_threshold(delta, LAPLACE, scale, bounds)
        found = test_threshold.delta_by_enumeration(bound, float(scale), most, most_per_key)
        yield Row(f"Laplace, C = {most}, L∞ = {most_per_key}, τ = {bound}", 0.0, 0.0, float(delta), found)


@audit(
    "Truncated geometric noise and its threshold, one key per user",
    "noise:truncated_geometric",
    "event:truncated_geometric",
)
def _truncated_geometric() -> Iterator[Row]:
    import mpmath

    with mpmath.workdps(test_truncated_geometric.EXACT):
        for case in test_truncated_geometric.CASES:
            noise, epsilon, delta, bound = test_truncated_geometric.made(*case)
            mass = test_truncated_geometric.law(noise, epsilon)
            found = test_truncated_geometric.worst_delta(mass, bound, epsilon)
            told = f"ε = {case[0]}, τ = {bound}, {len(mass)} values"
            yield Row(told, float(epsilon), float(epsilon), float(delta), float(found))


@audit("Key selection by weights, one round and two", "event:weighted-selection")
def _weighted() -> Iterator[Row]:
    """One round: noise and threshold jointly, noisy weights seen. Two: the sets that both rounds select."""
    from tests.privacy import test_weighted_selection as exact

    with exact.coarse_grid():
        scale, delta, epsilon = Fraction(9 * exact.GRID, 2), Fraction(1, 1000), Fraction(7, 10)
        for most in (1, 2, 4):
            bound = weighted.least_joint_threshold(delta, scale, most, epsilon)
            worst = max(
                exact.full_delta(bound, float(scale), keys, new, float(epsilon))
                for keys in range(1, most + 1)
                for new in range(keys + 1)
            )
            yield Row(
                f"one round, Δ = {most}, ρ = {bound / exact.GRID:g} users", 0.7, 0.7, float(delta), worst
            )
        scales, delta = (Fraction(5 * exact.GRID), Fraction(3 * exact.GRID)), Fraction(1, 100)
        for most in (1, 3):
            rounds = [(float(each), weighted.least_threshold(delta, each, most)) for each in scales]
            vectors = tuple(NoisyVector(each, exact.GRID**2, most) for each in scales)
            claimed = gdp_delta(vectors, Fraction(1)) + 2 * delta
            worst = max(
                exact.delta_between(
                    *(exact.selected_sets(data, rounds, 2, most) for data in (base, [*base, user])), 1.0
                )
                for base, user in exact.neighbours(3)
            )
            yield Row(f"two rounds, Δ = {most}", 1.0, 1.0, float(claimed), worst)
        for base, user, told in (
            (exact.EVEN, "c", "near the change"),
            (exact.EVEN[:10], "bcd", "far from it"),
        ):
            found, claim = exact.chosen_rounds_delta(base, frozenset(user))
            yield Row(f"rounds chosen by noisy numbers of users, {told}", 2.0, 2.0, claim, found)


@audit(
    "Key selection by weights, then one Gaussian vector of counts and buckets: names and vector of a whole release",
    "event:weighted-selection",
    "encoding:buckets-1",
)
def _one_vector() -> Iterator[Row]:
    from tests.privacy import test_one_vector as exact

    with exact.on_coarse_grid():
        for rounds, (most, per_key) in itertools.product((1, 2, 3), ((1, 1), (2, 1), (2, 2))):
            claim, found = exact.worst_case(rounds, most, per_key)
            yield Row(f"rounds: {rounds}, C = {most}, L∞ = {per_key}", 1.0, 1.0, claim, found)


@audit("Gaussian noise on counts, one vector and two composed", "noise:gaussian", "event:gaussian")
def _gaussian() -> Iterator[Row]:
    epsilon, delta = Fraction(1), Fraction(1, 100)
    for weights in ((Fraction(1),), (Fraction(1), Fraction(1))):
        for most, most_per_key in ((1, 1), (2, 1), (3, 2)):
            bounds = Sensitivity(most, most_per_key)
            shares = tuple(epsilon * weight / sum(weights) for weight in weights)
            scales = [float(scale) for scale in gaussian.NOISE.scales(shares, delta, bounds)]
            worst = 0.0
            for parts in test_gaussian.partitions(most, most_per_key):
                if set(parts) == {1}:  # losses depend on the sums alone
                    found = test_gaussian.summed_delta(float(epsilon), scales, len(parts))
                elif len(parts) * len(scales) <= 2:
                    moves = [(scale, part) for scale in scales for part in parts]
                    found = test_gaussian.enumerated_delta(float(epsilon), moves)
                else:
                    continue
                worst = max(worst, found)
            told = f"{len(scales)} vectors, C = {most}, L∞ = {most_per_key}, σ = {scales[0]:.2f}"
            yield Row(told, float(epsilon), float(epsilon), float(delta), worst)


@audit("ALP: random rounding, hashed unary bits, randomized response", "encoding:alp-1", "event:alp")
def _alp() -> Iterator[Row]:
    flip = alp.flip_probability(test_alp.ALPHA)
    for layout in test_alp.LAYOUTS:
        for width in test_alp.WIDTHS[:3]:
            worst = max(test_alp.losses(layout, width, flip, 4))
            yield Row(f"{layout}, width {width}", math.log(1 + test_alp.ALPHA / width), math.log(worst))


@audit("Buckets: exact sums with noise on every bucket", "encoding:buckets-1", "event:laplace")
def _buckets() -> Iterator[Row]:
    for places, name in (((0, 1, 2), "apart"), ((0, 0, 1), "two keys meet"), ((1, 1, 1), "all meet")):
        for most, most_per_key, step in ((1, 1, 1), (3, 1, 1), (3, 3, 3)):
            worst = 0.0
            for x in itertools.product((0, 1, 5), repeat=3):
                a = test_buckets.sums(x, places, 3)
                for y in test_buckets.neighbours(x, most, most_per_key):
                    b = test_buckets.sums(y, places, 3)
                    worst = max(worst, test_buckets.loss(a, b, 2.0, step), test_buckets.loss(b, a, 2.0, step))
            yield Row(f"{name}, C = {most}, L∞ = {most_per_key}, step {step}", most / 2.0, worst)


@audit("Sizing: n and the profile N_t, and the profile of a user's keys (C by the data)", "event:sizing")
def _sizing() -> Iterator[Row]:
    from tests.privacy.test_sizing import numbers

    for most in (1, 2, 3):
        worst = 0
        for x in itertools.product(range(4), repeat=2):
            for added in itertools.product(range(most + 1), repeat=2):
                if sum(added) <= most:
                    y = tuple(a + b for a, b in zip(x, added, strict=True))
                    worst = max(worst, int(abs(numbers(x) - numbers(y)).sum()))
        yield Row(f"C = {most}: L1 distance over the scale 2C/ε at ε = 1", 1.0, worst / (2 * most))


@audit("Laplace mechanism and histogram of a public list", "event:laplace")
def _laplace() -> Iterator[Row]:
    for most in (1, 2, 3):
        worst = 0.0
        for one in itertools.product(range(3), repeat=2):
            for move in itertools.product(range(most + 1), repeat=2):
                if sum(move) <= most:
                    other = [a + b for a, b in zip(one, move, strict=True)]
                    worst = max(worst, test_laplace.loss(most / 0.7, one, other))
        yield Row(f"C = {most}", 0.7, worst)


@audit(
    "Sparse vector: AboveThreshold, Sparse, NumericSparse, gaps; both variants",
    "event:svt",
    "job:sparse-vector",
)
def _svt() -> Iterator[Row]:
    from hushgram.mechanisms.svt.params import SvtParams

    for variant, monotone, cutoff, answers in itertools.product(
        ("optimal", "dwork-roth"), (False, True), (1, 2), ("none", "gap", "numeric")
    ):
        params = SvtParams(
            epsilon="1", threshold=0, cutoff=cutoff, variant=variant, monotone=monotone, answers=answers
        )
        at = params.noise.shift  # where ⊤ and ⊥ are about as likely
        window = (at - 9, at + 9) if answers == "numeric" else range(2)
        model = test_svt_enumeration.model_of(params, top_window=window)
        worst = test_svt_enumeration.worst_loss(model, 3, range(at - 3, at + 4), 1, monotone)
        words = "monotone" if monotone else "any queries"
        yield Row(f"{variant}, {words}, cutoff {cutoff}, answers: {answers}", 1.0, worst)
    for variant in ("optimal", "dwork-roth"):
        params = SvtParams(epsilon="1", delta="0.02", threshold=0, cutoff=3, variant=variant)
        found = test_svt_enumeration.worst_delta(test_svt_enumeration.model_of(params), 4, range(-3, 4), 1.0)
        yield Row(f"{variant}, δ > 0, cutoff 3", 1.0, 1.0, 0.02, found)


@audit("Online private multiplicative weights", "event:pmw", "job:answer")
def _pmw() -> Iterator[Row]:
    """On a grid of whole weights, as in its tests: one count is one unit, and few answers tell most."""
    with contextlib.ExitStack() as whole:
        for module in (test_pmw.hypothesis_module, test_pmw.pmw_module, test_pmw.workload_module):
            whole.enter_context(mock.patch.object(module, "GRID", 1))
        for updates, replay, variant in ((1, 2, "optimal"), (2, 2, "optimal"), (1, 0, "dwork-roth")):
            worst = test_pmw.worst(test_pmw.real(test_pmw.make("2", updates, replay, variant=variant)))
            yield Row(f"{updates} updates, replay {replay}, {variant}", 2.0, worst)


@audit(
    "Selection: permute-and-flip, exponential mechanism, noisy max",
    "event:noisy_max",
    "event:exponential",
    "event:laplace_noisy_max",
)
def _selection() -> Iterator[Row]:
    from hushgram.mechanisms.selection import MECHANISMS, SelectionParams

    for mechanism, monotone in itertools.product(MECHANISMS, (True, False)):
        params = SelectionParams("1", sensitivity=1, monotone=monotone, mechanism=mechanism)
        moves = test_selection.UP if monotone else test_selection.BOTH
        law = test_selection.DISTRIBUTIONS[mechanism]
        worst = test_selection.worst(law, float(params.rate), moves)
        yield Row(f"{mechanism}, {'monotone' if monotone else 'any scores'}", 1.0, worst)


@audit("The c largest, one after another and in one draw", "event:noisy_max", "job:top")
def _largest() -> Iterator[Row]:
    from hushgram.mechanisms.selection import SelectionParams

    for mechanism in ("permute_and_flip", "exponential"):
        law = test_selection.DISTRIBUTIONS[mechanism]
        rate = float(SelectionParams(1, count=2, monotone=True, mechanism=mechanism).rate)
        worst = test_selection.pure_loss(lambda s, law=law, rate=rate: test_selection.peeled(law, s, rate, 2))
        yield Row(f"2 by {mechanism}", 1.0, worst)
        params = SelectionParams("1/2", delta="0.01", count=2, monotone=True, mechanism=mechanism)
        rate = float(params.rate)
        found = test_selection.delta_at(
            lambda s, law=law, rate=rate: test_selection.peeled(law, s, rate, 2), 0.5
        )
        yield Row(f"2 by {mechanism}, δ > 0", 0.5, 0.5, 0.01, found)
    rate = float(SelectionParams(4, count=2, monotone=True, mechanism="noisy_max").rate)
    worst = test_selection.pure_loss(lambda s: test_selection.one_shot(s, rate), test_selection.UP)
    yield Row("2 of one Laplace draw", 4.0, worst)


@audit("Offline private multiplicative weights", "event:pmw")
def _offline() -> Iterator[Row]:
    from tests.privacy import test_offline_pmw

    params = test_offline_pmw.OfflineParams(2, rounds=2, total=test_offline_pmw.TOTAL)
    yield Row("2 rounds", float(params.guarantee()[0]), test_offline_pmw.worst(params))


@audit("The histogram over users: L1 distance over the scale 1/ε at ε = 1", "event:contributions")
def _users() -> Iterator[Row]:
    from tests.privacy.test_users import SETTINGS, worst_distance

    for name in SETTINGS:
        yield Row(name, 1.0, worst_distance(name))


@audit(
    "A whole release at δ = 0: sizes, lists and ALP of the same neighbours; losses of sizes and of the chain added",
    "job:release",
)
def _whole() -> Iterator[Row]:
    """The worst output of all together: sizes are drawn apart from the chain, so the worst losses of a pair add up."""
    from tests.privacy.test_chains import PLANS, chain_of, planned, worst
    from tests.privacy.test_sizing import numbers

    for name in ("default", "one list"):
        plan = planned(**PLANS[name])
        (chain, q), split, found = chain_of(plan), plan.params.split, 0.0
        for x in (0, plan.threshold - 1, plan.threshold, chain.stages[0].threshold - 1):
            sizes = float(abs(numbers((x,)) - numbers((x + 1,))).sum()) * float(split.size) / 2
            found = max(found, sizes + worst(chain, [((x,),)], q) / float(plan.scale))
        yield Row(f"ε = 1, C = 1, {name}", 1.0, found)


@audit(
    "Lists and what they pass on to ALP or to a noisy sum: together what one of them costs", "event:threshold"
)
def _chains() -> Iterator[Row]:
    from tests.privacy import test_chains as chains

    for q, most in ((Fraction(1, 2), 1), (Fraction(2, 3), 2), (Fraction(9, 10), 3)):
        for bounds, bucket in (((5,), False), ((5,), True), ((6, 3), False)):
            found = chains.worst(
                chains.rational(q, *bounds, bucket=bucket), chains.one_cell(5), q, most, most
            )
            told = f"C = {most}, L∞ = {most}, β = {', '.join(map(str, bounds))}, {'sum' if bucket else 'ALP'}"
            epsilon = most * -math.log(q)
            yield Row(told, epsilon, found * epsilon)
    for cells in (0, 3):
        for epsilon, delta in (("1", "1e-3"), ("3", "1e-2")):
            chain, claimed = chains.truncated(epsilon, delta, cells=cells)
            found = chains.worst_delta(chain, epsilon)
            told = f"truncated geometric names{', cells' if cells else ''}, ε = {epsilon}"
            yield Row(told, float(epsilon), float(epsilon), claimed, found)


@audit("Users by three figures of their own: one cell each, over the noise scale", "job:bounds")
def _figures() -> Iterator[Row]:
    from tests.privacy.test_user_quantiles import PARAMS, worst_loss

    for params in PARAMS:
        what = "values" if params.summed else "records"
        yield Row(f"{what}, ε = {params.epsilon}", float(params.epsilon), worst_loss(params))


@audit("Randomized response on secret bits", "event:rr", "job:randomized-response")
def _response() -> Iterator[Row]:
    from hushgram.mechanisms.randomized_response.mechanism import RandomizedResponseParams

    for secrets in (1, 2, 3):
        flip = float(test_linear.exact_flip(RandomizedResponseParams("1.5", secrets=secrets)))
        yield Row(f"{secrets} bits of a record changed", 1.5, test_linear.loss(flip, secrets))


@audit(
    "Sums of values: how far one user moves them, in units, over the bounds; noise on units; metrics are such releases",
    "job:metrics",
)
def _sums() -> Iterator[Row]:
    from tests.privacy import test_weights as weights

    moved = weights.worst(weights.histogram)
    yield Row(f"L1 distance over C = {weights.MOST} units", 1.0, moved[0] / weights.MOST)
    yield Row(f"L∞ distance over max_value = {weights.PER_KEY} units", 1.0, moved[1] / weights.PER_KEY)
    for epsilon in (Fraction(1, 2), Fraction(2)):
        worst = weights.worst_loss(epsilon)
        yield Row(f"Laplace noise of scale C/ε on six sums, ε = {epsilon}", float(epsilon), worst)


def _stops(values: Sequence[int], bounds: Any, few: int, top: Laplace, shake: Laplace) -> Any:
    """P[the search for a clipping bound stops at each of them], and at none."""
    bars = np.arange(-top.window, top.window + 1)
    left, out = top.pmf(bars), []
    for answer in few - (np.array(values, int)[:, None] > bounds).sum(axis=0):
        out.append(float((left * shake.at_least(bars - answer)).sum()))
        left = left * shake.below(bars - answer)
    return np.array([*out, float(left.sum())])


@audit(
    "Clipped sum and count: a bound by the sparse vector technique, then two sums with Laplace noise",
    "job:clip",
)
def _clip() -> Iterator[Row]:
    """The bound by enumeration over the noisy threshold; sum and count have noise of their own, so losses add up."""
    from hushgram.mechanisms.clipping import ClipParams

    for most, few in ((1, 0), (1, 2), (2, 1)):
        params = ClipParams(
            epsilon="3", grid="linear", start=1, stop=3, step=1, max_contributions=most, threshold=few
        )
        top, shake = (Laplace(scale) for scale in (params.svt.noise.threshold, params.svt.noise.query))
        bounds = np.array(params.bounds)

        worst = 0.0
        for rows in itertools.chain.from_iterable(
            itertools.combinations_with_replacement(range(4), n) for n in range(3)
        ):
            for more in itertools.product(range(4), repeat=most):
                found = (_stops(values, bounds, few, top, shake) for values in (rows, (*rows, *more)))
                searched = np.abs(np.subtract(*(np.log(each) for each in found)))
                for at, loss in enumerate(searched):
                    bound = int(bounds[min(at, len(bounds) - 1)])
                    moved = sum(min(value, bound) for value in more) / float(params.sum_scale(bound))
                    worst = max(worst, loss + moved + most / float(params.count_scale))
        yield Row(f"C = {most}, stops where {few} are above", 3.0, float(worst))


def main() -> int:
    """Runs all, writes the page; 1 where a claim does not hold."""
    lines = [
        "# Exact audit",
        "",
        "`make audit` writes this page. It enumerates every output on tiny neighbouring inputs, from first principles.",
        "Tests in `tests/privacy/` show that the code draws from these distributions, and reject broken variants.",
        "A δ of 0 is pure differential privacy; where δ > 0, the worst δ at the stated ε is shown.",
    ]
    bad = 0
    for each in AUDITS:
        lines += [
            "",
            f"## {each.title}",
            "",
            "| setting | ε claimed | worst loss | δ claimed | worst δ |",
            "|---|---|---|---|---|",
        ]
        for row in each.rows():
            bad += not row.good
            mark = "" if row.good else " **above its claim**"
            deltas = f"{row.delta:.3g} | {row.worst_delta:.3g}" if row.delta else "0 | 0"
            loss = f"{row.worst:.6f}" if not row.delta else "–"
            lines.append(f"| {row.setting} | {row.epsilon:.6g} | {loss} | {deltas}{mark} |")
        print(f"{each.title}: done", flush=True)
    lines += ["", f"{'Nothing is above its claim.' if not bad else f'{bad} rows are above their claim.'}"]
    _, title, rest = PAGE.read_text().partition(blackbox.TITLE)  # which the other half of the audit writes
    PAGE.write_text("\n".join(lines) + "\n" + (f"\n{title}{rest}" if title else ""))
    print(lines[-1])
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

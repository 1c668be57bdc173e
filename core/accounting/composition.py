"""Composition: what many events cost together, by one of three rules that a data set is given once.

`basic`. The sum of all ε at the sum of all δ, in exact rationals (Kamath, Lecture "Sparse Vector", basic
composition; Dwork and Roth 2014, Theorem 3.16). It holds for any adaptive choice of mechanisms *and* of their
parameters.

`filter`, the default. Sums of ε, or sums of ρ (zCDP) against an allowance, whichever admits more: a privacy filter,
which holds for adaptive choices too and admits far more of many small releases. A tenth of δ pays for it.

`best`. Sums, or privacy loss distributions by Google's dp-accounting. Every (ε, δ)-DP mechanism is dominated by
randomized response with the same (ε, δ) (Kairouz, Oh, Viswanath 2015, Theorem 3.2), and a composition is
dominated by the composition of dominating pairs, also where each mechanism is chosen after the outputs of
those before it (Zhu, Dong, Wang 2022, Theorem 10). So we compose randomized responses and read off ε at the
budget's δ. It admits most, and *needs that the parameters of the releases do not follow from earlier outputs*,
as with a schedule: an adversary who chooses each ε after seeing outputs gets above twice the δ (a test has
one). `CONDITIONS` says so wherever the number is shown.

All rounding is against ourselves:

    ε of an event   rounded up to a multiple of a power of two, so that both of its losses ±ε lie on the grid
                    of the distribution and nothing else is rounded; dp-accounting's own sums are pessimistic
    δ of an event   leaves the convolution: 1 − Π(1 − δ_i) ≤ Σδ_i, which is taken from the budget's δ
    δ asked for     lowered by 1/1000 and by 1e-11, far above what the float transforms can be off
    ε read off      rounded up to a multiple of 1e-9, and by one such step more

**The filter.** Let a data set release events where each mechanism *and what it costs* may follow from all outputs
before it. Event i states (ε_i, δ_i) and (ρ_i, d_i), d_i ≤ δ_i (`hushgram.accounting.events`; ρ_i = ε_i²/2 and d_i = δ_i
where it states no ρ). Let Γ be the largest sum of δ_i − d_i over a part of the events whose ε_i add up to at most ε,
where a fraction of an event has that fraction of both, but at most δ_n. The next event is refused where it would
break, for fixed ε, ρ*, δ_c, δ_e and δ_n,

    Σ d_i + Γ ≤ δ_e   and   ( Σ ε_i ≤ ε and Σ (δ_i − d_i) ≤ δ_n,   or   Σ ρ_i ≤ ρ* ).

Then all outputs together are (ε, δ_e + δ_c)-DP, where ρ* is any number that `noise.zcdp` (1) allows at (ε, δ_c).

Proof. Let P and Q be the distributions of all outputs on neighbours. A path is a list of outputs; it ends where the
next event is refused or none is asked for. We bound Σ over all paths of max(0, P − e^ε Q) ≥ P(S) − e^ε Q(S). Step i,
given the outputs before it, has distributions P_i and Q_i. Let g_i ≤ h_i ≤ 1 be functions of its output with

    P_i·g_i ≤ e^(ε_i)·Q_i,   E_P[1 − g_i] ≤ δ_i;      E_Q[(h_i·P_i/Q_i)^α] ≤ exp((α − 1)·α·ρ_i),   E_P[1 − h_i] ≤ d_i.

They exist. With a stated ρ: g_i = min(1, e^(ε_i)·Q_i/P_i), whose E_P[1 − g_i] is the hockey-stick divergence, and h_i
is 1 but 0 where Q_i is 0; there g_i is 0 too. Without one: an (ε_i, δ_i)-DP pair is with probability 1 − δ_i an ε_i-DP
pair and else anything (Kairouz, Oh, Viswanath 2015, Theorem 3.2); g_i = h_i is the share of the former in P_i, and an
ε_i-DP pair has Rényi divergence D_α ≤ α·ε_i²/2 (Bun, Steinke 2016, Proposition 3.3).

1. A path that ends with Σ ε_i ≤ ε and Σ (δ_i − d_i) ≤ δ_n is of the first kind: P·Π g_i ≤ e^ε Q, so max(0, P − e^ε Q)
   ≤ P·(1 − Π g_i) ≤ P·Σ (1 − g_i).
2. Every other path ends with Σ ρ_i ≤ ρ*, so that holds at each earlier step too, and max(0, P − e^ε Q) ≤
   P·Σ (1 − h_i) + max(0, P·Π h_i − e^ε Q). Let M be the same adversary under Σ ρ_i ≤ ρ* alone; these paths have
   the same probabilities under M. Under Q, (Π h_i·P/Q)^α · exp(−(α − 1)·α·Σ ρ_i) is a supermartingale, since ρ_i is
   known before step i; so E_Q[(Π h_i·P/Q)^α] ≤ exp((α − 1)·α·ρ*) (Feldman, Zrnic 2021, Theorem 3.1; Whitehouse, Ramdas,
   Rogers, Wu 2023, Theorem 1). By the proof of Canonne, Kamath, Steinke 2020, Proposition 12, which uses that
   moment alone, the last terms sum to at most δ_c over all paths of M.
3. What is left is E_P[Σ (1 − g_i) on paths of the first kind + Σ (1 − h_i) on others]. Call a step early if the two
   sums of 1, with it, are at most ε and δ_n; that is known before it. All steps of a path of the first kind are early,
   and h_i ≥ g_i, so this is at most E_P[Σ over early steps of (1 − g_i) + Σ over others of (1 − h_i)], and, δ_i and d_i
   being known before step i too, at most the largest Σ d_i + Σ over early steps of (δ_i − d_i) of a path. The second
   sum is at most Γ, whatever the order of the events: δ_e in all. ∎

So a Gaussian release is charged ρ, and the δ of its noise only while sums of ε count: for the first few.
δ_c is a fixed share of the budget's δ: it must not depend on outputs, so what events leave of δ_e is not used.

| symbol | meaning |
|---|---|
| ε, δ | the budget |
| δ_c, δ_e | its δ for composition (`COMPOSITION_SHARE` of it), and for the δ of events: δ_c + δ_e = δ |
| δ_n | of δ_e, what may go to the δ of noise where ε is summed (`NOISE_SHARE` of it) |
| ρ* | `Budget.allowance`: what Σ ρ_i may be |
| Γ | `_noise_delta`: the δ of noise that sums of ε would need |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from hushgram.accounting.events import Cost, Event, Spending, spending
from hushgram.errors import ParameterError, naming_extras
from hushgram.noise.intervals import enclose, ratio_interval
from hushgram.noise.zcdp import rho_for, zcdp_epsilon
from hushgram.numbers import Number, rational, rational_delta, show

__all__ = [
    "CONDITIONS", "Budget", "Rule", "TotalLoss", "calibrated_run_epsilon", "composed_delta", "event_delta", "fits",
    "further", "largest_scale", "rdp_epsilon", "total",
]  # fmt: skip

Rule: TypeAlias = Literal["filter", "basic", "best"]

CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        "filter": "the budget holds also where each release and its ε are chosen after seeing earlier ones",
        "basic": "the budget holds also where each release and its ε are chosen after seeing earlier ones",
        "best": "the budget holds ONLY where ε, δ and number of the releases do not follow from earlier outputs",
    }
)
"""What must be true of how releases are chosen, for each rule."""

COMPOSITION_SHARE = Fraction(1, 10)
"""Ten times less for δ_c costs a few per cent of ρ*, and nine tenths of δ are left for events."""
NOISE_SHARE = Fraction(2, 3)
"""A third of δ_e stays for thresholds, whatever the δ of the noise beside them."""
_POINTS = 1 << 18
"""Grid points for the sum of all ε: 1,000 events of one ε are then rounded up by less than 0.4 %."""
_GROUPS = 48
"""Distinct ε that are convolved one by one; more are rounded up until so few are left: a sum takes < 1 s."""
_MIN_DELTA = Fraction(1, 10**10)
"""Below this, the float transforms of a distribution are no proof any more: basic composition alone."""
_SLACK_SHARE, _SLACK = Fraction(1, 1000), Fraction(1, 10**11)
_CLEARLY = Fraction(99, 100)
"""Sums that fit are quoted, being exact and at a smaller δ, unless distributions are better by one in 100."""


@dataclass(frozen=True)
class Budget:
    """What a data set may spend in all: (ε, δ)-DP, and by which proof it is counted.

    >>> Budget("10", "1e-6")
    Budget(ε = 10, δ = 0.000001, filter)
    """

    epsilon: Fraction
    delta: Fraction
    rule: Rule = "filter"

    def __init__(self, epsilon: Number, delta: Number = 0, rule: Rule = "filter") -> None:
        loss, slack = rational(epsilon, "epsilon", "Budget"), rational_delta(delta, "Budget")
        if loss <= 0:
            raise ParameterError(f"Budget: epsilon must be above 0, got {show(loss)}")
        if rule not in CONDITIONS:
            raise ParameterError(f"Budget: composition must be {', '.join(CONDITIONS)}, got {rule!r}")
        for name, value in (("epsilon", loss), ("delta", slack), ("rule", rule)):
            object.__setattr__(self, name, value)

    @property
    def composition_delta(self) -> Fraction:
        """The part of δ that pays for composition and is not for the δ of events."""
        return self.delta * COMPOSITION_SHARE if self.rule == "filter" else Fraction(0)

    @property
    def noise_delta(self) -> Fraction:
        """The part of δ that may go to the δ of noise where ε is summed."""
        return (self.delta - self.composition_delta) * NOISE_SHARE

    @property
    def allowance(self) -> Fraction:
        """What the sum of all ρ may be; 0 where the rule has no such sum."""
        return rho_for(self.epsilon, self.composition_delta) if self.composition_delta else Fraction(0)

    def __repr__(self) -> str:
        return f"Budget(ε = {show(self.epsilon)}, δ = {show(self.delta)}, {self.rule})"


@dataclass(frozen=True)
class TotalLoss:
    """What was spent, and how it was counted.

    `basic_epsilon` and `basic_delta` are exact sums. `better_epsilon` is an upper bound on ε by the other proof
    of the budget's rule, or None where it has none (the budget's δ is 0, or used up by that of the events).
    `epsilon` at `delta` is the bound to quote: the smaller of the two that hold at the budget's δ. `event_delta` is
    what events take of it.
    """

    basic_epsilon: Fraction
    basic_delta: Fraction
    better_epsilon: Fraction | None
    epsilon: Fraction
    delta: Fraction
    proof: Literal["sums", "zcdp", "distributions"]
    event_delta: Fraction


def total(events: Iterable[Event] | Spending, budget: Budget) -> TotalLoss:
    """Return the composition of the events under the budget's δ and rule.

    >>> total([Event("laplace", "0.1")] * 30, Budget(3)).epsilon
    Fraction(3, 1)
    """
    spent = _counted(events)
    (epsilon, delta), taken = basic(spent), event_delta(spent, budget)
    better: Fraction | None = None
    if budget.rule == "best":
        better, at = pld_epsilon(spent, budget.delta), budget.delta
    elif budget.composition_delta:
        better = zcdp_epsilon(_rho(spent), budget.composition_delta)
        at = taken + budget.composition_delta
    within = epsilon <= budget.epsilon and delta <= budget.delta
    enough = epsilon * _CLEARLY if within else epsilon
    if better is not None and better < enough:
        proof: Literal["zcdp", "distributions"] = "distributions" if budget.rule == "best" else "zcdp"
        return TotalLoss(epsilon, delta, better, better, at, proof, taken)
    return TotalLoss(epsilon, delta, better, epsilon, delta, "sums", taken)


def fits(events: Iterable[Event] | Spending, budget: Budget) -> bool:
    """Return whether the events together stay within the budget. The cheap proof is tried first."""
    spent = _counted(events)
    epsilon, delta = basic(spent)
    if event_delta(spent, budget) > budget.delta - budget.composition_delta:
        return False
    if epsilon <= budget.epsilon and (
        budget.rule != "filter" or delta - _rho_delta(spent) <= budget.noise_delta
    ):
        return True
    if budget.rule == "best":
        by_loss = pld_epsilon(spent, budget.delta)
        return by_loss is not None and by_loss <= budget.epsilon
    return _rho(spent) <= budget.allowance


def further(
    spent: Iterable[Event] | Spending, release: Sequence[Event], budget: Budget, limit: int = 1000
) -> int:
    """Return how many more such releases fit beside what is spent (counted to ``limit`` at most).

    >>> further([], [Event("laplace", "0.1")], Budget(3))
    30
    """
    before, one = _counted(spent), spending(release)
    return _last(lambda n: fits(_plus(before, one, n), budget), limit) if one else limit


def largest_scale(spent: Iterable[Event] | Spending, release: Sequence[Event], budget: Budget) -> Fraction:
    """Return a share of this release's ε that would still fit: exact by sums, else in steps of 1/32.

    0 where nothing would.

    >>> largest_scale([Event("laplace", "2.5")], [Event("laplace", "1")], Budget(3))
    Fraction(1, 2)
    """
    before = _counted(spent)

    def allowed(share: Fraction) -> bool:
        return fits(_plus(before, spending(e.scaled(share) for e in release), 1), budget)

    more = basic(spending(release))[0]
    by_sums = (budget.epsilon - basic(before)[0]) / more if more else Fraction(0)
    by_sums = min(Fraction(1), max(Fraction(0), by_sums))
    by_steps = Fraction(_last(lambda steps: allowed(Fraction(steps, 32)), 32), 32)
    return max(by_sums, by_steps) if allowed(by_sums) else by_steps


def basic(spent: Spending) -> tuple[Fraction, Fraction]:
    """Return the exact sums of ε and δ."""
    epsilon = sum((cost.epsilon * n for cost, n in spent.items()), Fraction(0))
    delta = sum((cost.delta * n for cost, n in spent.items()), Fraction(0))
    return epsilon, delta


def event_delta(spent: Spending, budget: Budget) -> Fraction:
    """Return what of the budget's δ the events take: Σ d_i + Γ by the filter, else the sum of their δ."""
    if budget.rule != "filter":
        return basic(spent)[1]
    return _rho_delta(spent) + min(_noise_delta(spent, budget.epsilon), budget.noise_delta)


def _noise_delta(spent: Spending, epsilon: Fraction) -> Fraction:
    """Return the largest Σ (δ_i − d_i) over fractions of events whose ε_i add up to at most ``epsilon``."""
    found, left = Fraction(0), epsilon
    for cost, count in sorted(spent.items(), key=lambda one: _ratio(one[0]), reverse=True):
        more = (cost.delta - cost.rho_delta) * count
        if cost.epsilon * count <= left:
            found, left = found + more, left - cost.epsilon * count
        else:
            return found + more * left / (cost.epsilon * count)
    return found


def _ratio(cost: Cost) -> tuple[bool, Fraction]:
    noise = cost.delta - cost.rho_delta
    return (False, noise / cost.epsilon) if cost.epsilon else (True, noise)


def _rho_delta(spent: Spending) -> Fraction:
    """Return Σ d_i."""
    return sum((cost.rho_delta * n for cost, n in spent.items()), Fraction(0))


def _rho(spent: Spending) -> Fraction:
    """Return Σ ρ_i."""
    return sum((cost.rho * n for cost, n in spent.items()), Fraction(0))


def pld_epsilon(spent: Spending, delta: Fraction) -> Fraction | None:
    """Return an upper bound on ε at `delta` by composed privacy loss distributions; None where none can be given."""
    left = delta - basic(spent)[1]
    left -= max(left * _SLACK_SHARE, _SLACK)
    if delta < _MIN_DELTA or left <= 0:
        return None
    losses: Counter[Fraction] = Counter()
    for cost, count in spent.items():
        if cost.epsilon:
            losses[cost.epsilon] += count
    if not losses:
        return Fraction(0)
    return _composed(frozenset(losses.items()), left)


@lru_cache(maxsize=4096)
def _composed(losses: frozenset[tuple[Fraction, int]], delta: Fraction) -> Fraction | None:
    """Return ε of the composition of pure events at `delta`, from dp-accounting; cached: a search asks again."""
    steps, unit = _on_grid(losses)
    pld: Any = None
    for step, count in sorted(steps.items()):
        part = _randomized_response(step * unit, unit).self_compose(count)
        pld = part if pld is None else pld.compose(part)
    found = pld.get_epsilon_for_delta(math.nextafter(float(delta), 0.0))
    return None if not math.isfinite(found) else Fraction(math.ceil(found * 10**9) + 1, 10**9)


def _on_grid(losses: frozenset[tuple[Fraction, int]]) -> tuple[Counter[int], float]:
    """Round every ε up to whole steps of a power of two, which leaves few distinct values."""
    whole = sum((epsilon * count for epsilon, count in losses), Fraction(0))
    unit = Fraction(2) ** math.ceil(math.log2(whole / _POINTS))
    exact = Counter[int]()
    for epsilon, count in losses:
        exact[math.ceil(epsilon / unit)] += count
    steps, bits = exact, 12
    while len(steps) > _GROUPS:
        steps = Counter()
        for step, count in exact.items():
            coarse = 1 << max(0, step.bit_length() - bits)
            steps[-(-step // coarse) * coarse] += count
        bits -= 1
    return steps, float(unit)


def _randomized_response(epsilon: float, unit: float) -> Any:
    with naming_extras():
        from dp_accounting.pld import common, privacy_loss_distribution  # loads SciPy: 1 to 2 s

    return privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(epsilon, 0.0), value_discretization_interval=unit
    )


def _counted(events: Iterable[Event] | Spending) -> Spending:
    return events if isinstance(events, Counter) else spending(events)


def _plus(before: Spending, one: Spending, times: int) -> Spending:
    after = Counter(before)
    for cost, count in one.items():
        after[cost] += count * times
    return after


def _last(allowed: Callable[[int], bool], limit: int) -> int:
    """Return the largest n ≤ limit with allowed(n), where false stays false; by doubling, then halving."""
    low, high = 0, 1
    while high <= limit and allowed(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


# --- c equal steps ----------------------------------------------------------------------------------------------
#
# A run of AboveThreshold, or one choice of a selection, is ε'-DP, and c of them are adaptive composition. dp-accounting
# finds the largest ε' (privacy loss distributions; the discretisation interval is ε' itself, so that losses ±ε' lie
# on its grid and nothing is rounded). Its floating-point answer is then confirmed in interval arithmetic by
# the exact composition theorem for pure mechanisms (Kairouz, Oh, Viswanath 2015, Theorem 3; also Murtagh,
# Vadhan 2016), so that a stated δ never rests on a rounding error.

# ε' is put on a grid of ε/2^30: a billionth of ε, always rounded down.
_STEP_GRID = 1 << 30
# Relative steps back when the confirmation fails after dp-accounting's rounding.
_STEP_BACK = Fraction(1, 1 << 20)


def composed_delta(run_epsilon: Fraction, runs: int, epsilon: Fraction) -> Fraction:
    """Return an upper bound of the smallest δ for which ``runs`` adaptive steps of ``run_epsilon`` are (ε, δ)-DP.

    Σ_i C(c, i) · max(0, p^(c−i) q^i − e^ε p^i q^(c−i)) with p = e^ε'/(1 + e^ε'), q = 1 − p. Exact but for the
    enclosure, whose upper end is returned.

    >>> composed_delta(Fraction(1, 4), 4, Fraction(1))
    Fraction(0, 1)
    """
    terms = [i for i in range(runs + 1) if (runs - 2 * i) * run_epsilon > epsilon]

    def total(iv: Any) -> Any:
        q = 1 / (1 + iv.exp(ratio_interval(iv, run_epsilon)))
        p = 1 - q
        growth, odds = iv.exp(ratio_interval(iv, epsilon)), p / q
        likely, unlikely, out = p**runs, q**runs, iv.mpf(0)
        for i in terms:  # terms are 0, 1, 2, ...; both factors already hold the binomial coefficient
            out += likely - growth * unlikely
            step = iv.mpf(runs - i) / (i + 1)
            likely, unlikely = likely * step / odds, unlikely * step * odds
        return out

    return max(enclose(total, 256)[1], Fraction(0)) if terms else Fraction(0)


@lru_cache(maxsize=1024)
def calibrated_run_epsilon(epsilon: Fraction, delta: Fraction, runs: int) -> Fraction:
    """Return the largest ε' on the grid of which ``runs`` steps are (``epsilon``, ``delta``)-DP; at least ε/runs."""
    basic = epsilon / runs
    if delta == 0 or runs == 1:
        return basic if delta == 0 else max(basic, _single(epsilon, delta))
    unit = epsilon / _STEP_GRID
    found = Fraction(int(_search(epsilon, delta, runs) / unit)) * unit
    while found > basic:
        if composed_delta(found, runs, epsilon) <= delta:
            return found
        found = Fraction(int(found * (1 - _STEP_BACK) / unit)) * unit
    return basic


def _single(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the ε' of one run with (e^ε' − e^ε)/(1 + e^ε') = δ, a little above ε; rounded down."""

    def solve(iv: Any) -> Any:
        d = ratio_interval(iv, delta)
        return iv.log((iv.exp(ratio_interval(iv, epsilon)) + d) / (1 - d))

    unit = epsilon / _STEP_GRID
    return Fraction(int(enclose(solve, 192)[0] / unit)) * unit


def _search(epsilon: Fraction, delta: Fraction, runs: int) -> Fraction:
    """Bisect dp-accounting's δ(ε) between ε/runs, which always holds, and ε + a little."""

    def holds(run: float) -> bool:
        composed = _randomized_response(run, run).self_compose(runs, tail_mass_truncation=0)
        return bool(composed.get_delta_for_epsilon(float(epsilon)) <= float(delta) * (1 - 1e-9))

    low, high = float(epsilon / runs), float(epsilon) * 2
    for _ in range(44):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return Fraction(low)


def rdp_epsilon(order: float, loss: float, delta: float) -> float:
    """Return ε at δ of a Rényi divergence of one order, by dp-accounting: for tables, in floating point."""
    with naming_extras():
        from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    return float(compute_epsilon([order], [loss], delta)[0])

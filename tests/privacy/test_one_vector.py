"""Keys by weights in one to three rounds, then one Gaussian vector of counts and buckets: norm, ε and δ by enumeration.

* How far one user moves the joint vector, by brute force over users, bounds and divisions into named and other keys.
* What rounds, thresholds and vector of real plans cost together, by arithmetic of its own.
* The whole of a tiny release, every outcome of rounds and vector, on the coarse grid of `test_weighted_selection`.

The broken twin of each bounds named keys and others by C apiece, as if they were two vectors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

import hushgram as hg
from hushgram.contributions.bounding import Bounds, Contributions, KeyClasses
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import column_positions, draw_seeds, fingerprints
from hushgram.contributions.sums import Grid
from hushgram.key_selection import rounds as selection
from hushgram.key_selection import weighted
from hushgram.key_selection.rounds import SelectionPlan
from hushgram.key_selection.weighted import WHOLE, Round
from hushgram.noise.entropy import ReleaseKey
from hushgram.noise.gdp import NoisyVector, gdp_delta
from hushgram.sensitivity import Sensitivity
from hushgram.sparse_histogram.plan import Plan, make_plan, release_events
from hushgram.sparse_histogram.sizing import Sizes
from hushgram.sparse_histogram.users import UserHistogram
from tests.privacy import test_weighted_selection as coarse
from tests.privacy.test_weighted_selection import Keys

KEY = ReleaseKey(bytes(range(32)))
BOUNDS = [(most, per_key) for most in range(1, 5) for per_key in range(1, min(most, 3) + 1)]

# --- how far one user moves the joint vector ----------------------------------------------------------------------

KEYS = 6
AMOUNTS = {"records": (0, 1, 3), "values": (0, 0.5, 3)}


@cache
def everybody(kind: str) -> tuple[Contributions, np.ndarray[Any, Any]]:
    """All users with up to six keys, who share none; and fingerprints of the keys by user and number."""
    amounts = list(itertools.product(AMOUNTS[kind], repeat=KEYS))
    rows = [(f"u{i}", f"{i}/{k}", n) for i, user in enumerate(amounts) for k, n in enumerate(user) if n]
    if kind == "records":
        rows = [row for row in rows for _ in range(int(row[2]))]
    users, keys, numbers = zip(*rows, strict=True)
    values = (pa.array(numbers, pa.float64()), Grid(Fraction(1), 3)) if kind == "values" else None
    held = Contributions.of(users, keys, KEY, texts=True, values=(values,))
    names = [f"{i}/{k}" for i in range(len(amounts)) for k in range(KEYS)]
    return held, fingerprints(names).reshape(-1, KEYS)


def bounds_of(kind: str, most: int, per_key: int, classes: int) -> Bounds:
    held = KeyClasses(draw_seeds(KEY, 1)[0], classes) if classes else None
    return Bounds(most, per_key, held, weighted=kind == "values")


def together(rows: Contributions, bounds: Bounds, named: np.ndarray[Any, Any]) -> tuple[Histogram, Histogram]:
    return rows.bounded_apart(bounds, named)


def separately(
    rows: Contributions, bounds: Bounds, named: np.ndarray[Any, Any]
) -> tuple[Histogram, Histogram]:
    """Bound each half by itself: the breach, as two vectors were before."""
    apart = Bounds(bounds.max_contributions, bounds.max_per_key, None, bounds.weighted)
    of_named = named[rows.keys.astype(np.int64)]
    return rows._take(of_named).bounded(apart), rows._take(~of_named).bounded(bounds)


def moved(
    make: Any, kind: str, most: int, per_key: int, named: tuple[bool, ...], classes: int, size: int
) -> tuple[int, int, int]:
    """Return the largest L1, L∞ and squared L2 by which one user moves named counts and buckets together."""
    rows, prints = everybody(kind)
    assert rows.table is not None
    order = np.argsort(prints.ravel())
    found = order[np.searchsorted(prints.ravel()[order], rows.table.fingerprints)]  # of each key of the table
    counts, others = make(rows, bounds_of(kind, most, per_key, classes), np.array(named)[found % KEYS])
    users = len(prints)

    def of(part: Histogram) -> np.ndarray[Any, Any]:
        return order[np.searchsorted(prints.ravel()[order], part.fingerprints)] // KEYS

    buckets = column_positions(others.fingerprints, draw_seeds(KEY, 1)[0], size).astype(np.int64)
    vector = np.zeros((users, size), np.int64)
    np.add.at(vector, (of(others), buckets), others.counts)
    sums = np.bincount(of(counts), counts.counts, users) + vector.sum(axis=1)
    squares = np.bincount(of(counts), counts.counts**2, users) + (vector**2).sum(axis=1)
    return int(sums.max()), int(max(counts.counts.max(initial=0), vector.max())), int(squares.max())


@pytest.mark.parametrize(("most", "per_key"), BOUNDS)
@pytest.mark.parametrize("kind", AMOUNTS)
def test_no_user_moves_the_joint_vector_further_than_its_sensitivity(
    kind: str, most: int, per_key: int
) -> None:
    """Of all divisions, some reach it. With few classes keys of a user would meet in buckets often."""
    claimed, found = Sensitivity(most, per_key), []
    for named in itertools.product((False, True), repeat=KEYS):
        for classes, size in ((4, 4), (4, 12), (16, 16)):
            l1, largest, squared = moved(together, kind, most, per_key, named, classes, size)
            assert l1 <= most
            assert largest <= per_key
            assert squared <= claimed.l2_squared
            found.append(squared)
    assert max(found) == claimed.l2_squared


@pytest.mark.parametrize(("most", "per_key"), [pair for pair in BOUNDS if pair[0] < KEYS])
@pytest.mark.parametrize("kind", AMOUNTS)
def test_halves_that_are_bounded_by_themselves_are_rejected(kind: str, most: int, per_key: int) -> None:
    named = (True, False) * (KEYS // 2)
    *_, squared = moved(separately, kind, most, per_key, named, 16, 16)
    assert squared > Sensitivity(most, per_key).l2_squared


def test_keys_that_meet_in_a_bucket_are_rejected() -> None:
    *_, squared = moved(together, "records", 4, 1, (True, *[False] * 5), 0, 4)
    assert squared > Sensitivity(4, 1).l2_squared


def test_other_users_are_where_they_were() -> None:
    """The rule looks at one user alone: the vector without a user is the vector with it, less what the user adds."""
    users = ["v"] * 5 + ["a"] * 4 + ["b"]
    keys = ["x", "y", "z", "z", "w", "x", "y", "q", "w", "z"]
    for chosen in itertools.product((False, True), repeat=5):
        names = dict(zip("qwxyz", chosen, strict=True))
        halves = []
        for who in ("vab", "ab", "v"):
            some = [i for i, user in enumerate(users) if user in who]
            rows = Contributions.of([users[i] for i in some], [keys[i] for i in some], KEY, texts=True)
            assert rows.table is not None
            named = np.array([names[key] for key in rows.table.texts.cast(pa.string()).to_pylist()])
            found = rows.bounded_apart(bounds_of("records", 3, 2, 16), named)
            halves.append([dict(zip(h.fingerprints.tolist(), h.counts.tolist(), strict=True)) for h in found])
        for whole, others, own in zip(*halves, strict=True):
            every = others.keys() | own.keys()
            assert whole == {key: others.get(key, 0) + own.get(key, 0) for key in every}


# --- what plans cost, by arithmetic of its own --------------------------------------------------------------------


def spent(epsilon: float, mu_squared: Any) -> Any:
    """δ of continuous Gaussian noise with this μ²."""
    mu = np.sqrt(mu_squared)
    return norm.sf(epsilon / mu - mu / 2) - np.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)


def cost(plan: SelectionPlan, scale: Fraction, epsilon: float, l2_squared: int) -> float:
    """δ of rounds, thresholds and vector at ε, for the worst user of each step."""
    vector = l2_squared / float(scale) ** 2
    keys = np.arange(1, plan.max_keys + 1)
    weights = np.array([math.isqrt(WHOLE * WHOLE // int(d)) for d in keys])
    if len(plan.rounds) > 1:
        mu_squared = vector + sum((WHOLE / float(each.scale)) ** 2 for each in plan.rounds)
        selected = 0.0
        for each in plan.rounds:
            passes = norm.sf((each.threshold - weights - 0.5) / float(each.scale))
            selected += float((-np.expm1(keys * np.log1p(-passes))).max())
        return float(spent(epsilon, mu_squared)) + selected
    (only,) = plan.rounds
    worst = 0.0
    for d, w in zip(keys.tolist(), weights.tolist(), strict=True):
        new = np.arange(d + 1)
        missed = new * np.log1p(-norm.sf((only.threshold - w - 0.5) / float(only.scale)))  # ln p^a
        mu_squared = (d - new) * (w / float(only.scale)) ** 2 + vector
        added = -np.expm1(missed) + np.exp(missed) * spent(epsilon - missed, mu_squared)
        worst = max(worst, float(added.max()), float(spent(epsilon + missed, mu_squared).max()))
    return worst


def planned(epsilon: str, delta: str, most: int, per_key: int, max_keys: int, rounds: int) -> Plan:
    params = hg.ReleaseParams(
        epsilon=epsilon, delta=delta, max_contributions=most, max_per_key=per_key, sizes=(10**6, 10**4),
        selection=hg.Weights(max_keys=max_keys, rounds=rounds),
    )  # fmt: skip
    held = params.resolve()
    nobody = UserHistogram(held.user_ends, (0,) * len(held.user_ends), 1 / held.split.users)
    return make_plan(held.with_users(nobody), Sizes(10**6, 10**4, (), Fraction(0)))


LOSSES = (("1/2", "1e-3"), ("1", "1e-6"), ("3", "1e-9"))
SHAPES = [(2, 1, 3), (8, 3, 100), (50, 1, 20)]  # C, L∞, keys that are weighed
GRID = [
    (*losses, *shape, rounds) for losses in LOSSES for shape in SHAPES for rounds in (1, 2, 3)
] + [(*losses, 16, 16, 1, 1) for losses in LOSSES]  # fmt: skip


@pytest.mark.parametrize(("epsilon", "delta", "most", "per_key", "max_keys", "rounds"), GRID)
def test_rounds_thresholds_and_vector_cost_no_more_than_is_stated(
    epsilon: str, delta: str, most: int, per_key: int, max_keys: int, rounds: int
) -> None:
    plan = planned(epsilon, delta, most, per_key, max_keys, rounds)
    assert plan.rounds is not None
    assert len(plan.rounds.rounds) == rounds
    guarantee, budget = plan.guarantee(), plan.params.gaussian_budget
    assert (guarantee.epsilon, guarantee.delta) == (Fraction(epsilon), Fraction(delta))
    # sizes are stated
    assert budget == (Fraction(epsilon) - plan.params.split.users, Fraction(delta))
    assert plan.layout is not None
    assert plan.layout.noise_scale == plan.scale  # counts and buckets have the same noise
    own = Sensitivity(most, per_key).l2_squared
    assert plan.sensitivity.l2_squared == own
    found = cost(plan.rounds, plan.scale, float(budget[0]), own)
    assert 0.75 * float(budget[1]) <= found <= float(budget[1])
    # Twins: C for each half, a smaller scale, a lower threshold of the last round.
    both = Sensitivity(2 * most, per_key, classes=plan.sensitivity.classes)
    assert not plan.rounds.privacy_map(plan.scale, *budget, both)
    assert cost(plan.rounds, plan.scale, float(budget[0]), both.l2_squared) > float(budget[1])
    assert not plan.rounds.privacy_map(plan.scale * 4 / 5, *budget, plan.sensitivity)
    assert cost(plan.rounds, plan.scale * 4 / 5, float(budget[0]), own) > float(budget[1])
    *before, last = plan.rounds.rounds
    lower = Round(last.scale, int(last.threshold - last.scale))
    twin = SelectionPlan(max_keys, (*before, lower), plan.rounds.hopeless)
    assert not twin.privacy_map(plan.scale, *budget, plan.sensitivity)
    assert cost(twin, plan.scale, float(budget[0]), own) > float(budget[1])


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_vector_with_all_of_epsilon_beside_the_rounds_is_rejected(rounds: int) -> None:
    """Selection is not free: noise as if the vector were all that is released."""
    plan = planned("1", "1e-6", 8, 1, 100, rounds)
    assert plan.rounds is not None
    alone = plan.scale * Fraction(51, 100) ** Fraction(1, 2)
    scale = Fraction(int(alone * 64), 64)
    epsilon, delta = plan.params.gaussian_budget
    assert not plan.rounds.privacy_map(scale, epsilon, delta, plan.sensitivity)
    assert cost(plan.rounds, scale, float(epsilon), 8) > float(delta)


@pytest.mark.parametrize("rounds", [None, 1, 2, 3])
def test_the_parts_add_up_whatever_number_of_rounds_is_chosen(rounds: int | None) -> None:
    params = hg.ReleaseParams(
        epsilon="1", delta="1e-6", max_contributions=8, selection=hg.Weights(rounds=rounds)
    ).resolve()
    chosen = [params.with_rounds(n) for n in (1, 2, 3)] if rounds is None else [params]
    for each in chosen:
        assert each.split.total == 1
        assert each.split.users > 0
        events = release_events(each)
        assert sum(event.epsilon for event in events) == 1
        assert sum(event.delta for event in events) == Fraction(1, 10**6)


# --- a whole release, every outcome -------------------------------------------------------------------------------


@contextmanager
def on_coarse_grid() -> Iterator[None]:
    with coarse.coarse_grid(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "WHOLE", coarse.GRID)
        yield


@pytest.fixture
def coarse_weights() -> Iterator[None]:
    with on_coarse_grid():
        yield


def named_sets(users: list[Keys], plan: SelectionPlan) -> dict[Keys, float]:
    """The exact distribution of the keys that any round names."""
    rounds, out = [(float(each.scale), each.threshold) for each in plan.rounds], {}
    for found, chance in coarse.selected_sets(users, rounds, list(plan.hopeless), plan.max_keys).items():
        every = frozenset().union(*found)
        out[every] = out.get(every, 0.0) + chance
    return out


def shift(user: Keys, named: Keys, make: Any, most: int, per_key: int, records: int) -> tuple[int, ...]:
    """How far the user moves the coordinates of the joint vector, by the code that bounds."""
    keys = [key for key in sorted(user) for _ in range(records)]
    rows = Contributions.of(["v"] * len(keys), keys, KEY, texts=True)
    assert rows.table is not None
    texts = rows.table.texts.cast(pa.string()).to_pylist()
    halves = make(
        rows, bounds_of("records", most, per_key, 1 << 20), np.array([text in named for text in texts])
    )
    return tuple(int(n) for half in halves for n in half.counts)


def vector_delta(scale: float, shifts: tuple[int, ...], p: float, q: float, epsilon: float) -> float:
    """Σ over all outcomes of (p · with − e^ε · q · without)₊, for independent discrete Gaussian noise."""
    z = np.arange(-int(9 * scale), int(9 * scale) + 1)
    mass = np.exp(-0.5 * (z / scale) ** 2)
    mass /= mass.sum()
    one, other = np.array([p]), np.array([q])
    for by in shifts:
        pads = np.zeros(by)
        one = np.multiply.outer(one, np.concatenate([pads, mass])).ravel()
        other = np.multiply.outer(other, np.concatenate([mass, pads])).ravel()
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def whole_delta(
    base: list[Keys], user: Keys, plan: SelectionPlan, scale: float, make: Any, *, most: int, per_key: int,
    records: int, epsilon: float,
) -> float:  # fmt: skip
    """The exact δ of names and vector of one user more, in both directions."""
    with_user, without = (named_sets(data, plan) for data in ([*base, user], base))
    added = removed = 0.0
    for named in with_user.keys() | without.keys():
        p, q = with_user.get(named, 0.0), without.get(named, 0.0)
        shifts = shift(user, named, make, most, per_key, records)
        added += vector_delta(scale, shifts, p, q, epsilon)
        removed += vector_delta(scale, shifts, q, p, epsilon)  # the noise is symmetric
    return max(added, removed)


SCALES = {1: (30,), 2: (36, 24), 3: (45, 36, 24)}  # of weights, of which one user has 8


def tiny(rounds: int, max_keys: int, delta: Fraction) -> SelectionPlan:
    scales = [Fraction(each) for each in SCALES[rounds]]
    each = tuple(Round(s, weighted.least_threshold(delta / rounds, s, max_keys)) for s in scales)
    return SelectionPlan(max_keys, each, tuple(int(s) for s in scales[:-1]))


def claimed(plan: SelectionPlan, scale: Fraction, bounds: Sensitivity, epsilon: Fraction) -> Fraction:
    """About the smallest δ that the privacy map of the product accepts."""
    own = NoisyVector(scale, bounds.l2_squared, bounds.l0)
    highest = gdp_delta((*plan.vectors, own), epsilon) + sum(
        (weighted.new_key_delta(each.threshold, each.scale, plan.max_keys) for each in plan.rounds),
        Fraction(0),
    )
    least = max(
        share for share in range(1, 101) if share == 1 or not plan.privacy_map(
            scale, epsilon, highest * (share - 1) / 100, bounds
        )
    )  # fmt: skip
    assert plan.privacy_map(scale, epsilon, highest * least / 100, bounds)
    return highest * least / 100


# Others: key a is named nearly always, b at times, c and d nearly never.
OTHERS = [*[frozenset("a")] * 60, *[frozenset("b")] * 12, frozenset("c")]


def worst_case(rounds: int, most: int, per_key: int) -> tuple[float, float]:
    """Claimed δ at ε = 1, and the largest of users whose keys others have, or nobody has, or both."""
    scale, bounds = Fraction(5, 2) * per_key * most, Sensitivity(most, per_key)
    plan = tiny(rounds, 3, Fraction(1, 50))
    given: dict[str, Any] = {"most": most, "per_key": per_key, "records": per_key, "epsilon": 1.0}
    found = [
        whole_delta(OTHERS, frozenset(user), plan, float(scale), together, **given)
        for user in ("a", "ac", "bd", "abd", "de")
    ]
    return float(claimed(plan, scale, bounds, Fraction(1))), max(found)


@pytest.mark.usefixtures("coarse_weights")
@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize(("most", "per_key"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_names_and_vector_by_enumeration(rounds: int, most: int, per_key: int) -> None:
    limit, found = worst_case(rounds, most, per_key)
    assert 0.1 * limit < found <= limit


@pytest.mark.usefixtures("coarse_weights")
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_whole_release_with_halves_bounded_by_themselves_is_rejected(rounds: int) -> None:
    """A user with a named key and another one, where nearly all precision is that of the vector."""
    epsilon, scale, bounds = Fraction(1), Fraction(7, 5), Sensitivity(1, 1)
    plan = tiny(rounds, 2, Fraction(1, 1000))
    limit = float(claimed(plan, scale, bounds, epsilon))
    given: dict[str, Any] = {"most": 1, "per_key": 1, "records": 1, "epsilon": 1.0}
    user = frozenset("ac")
    assert whole_delta(OTHERS, user, plan, float(scale), together, **given) <= limit
    assert whole_delta(OTHERS, user, plan, float(scale), separately, **given) > 1.2 * limit

"""Key selection by weights: ε and δ by exact enumeration, and broken variants that it rejects.

Weights are on a grid of 8 instead of 4096 here, so that the noise of a few keys can be enumerated; the privacy maps are
the product's own.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest

from hushgram.key_selection import weighted
from hushgram.noise.gdp import NoisyVector, gdp_delta
from hushgram.sparse_histogram.users import UserHistogram, tally_users, user_ends

GRID = 8
Keys = frozenset[str]
Named = tuple[Keys, ...]  # by round


@contextmanager
def coarse_grid() -> Iterator[None]:
    """Weights on the coarse grid, in the product's own functions."""
    cached = (
        weighted.new_key_delta,
        weighted.least_threshold,
        weighted.joint_holds,
        weighted.least_joint_threshold,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighted, "WHOLE", GRID)
        for function in cached:
            function.cache_clear()
        yield
    for function in cached:
        function.cache_clear()


@pytest.fixture(autouse=True)
def coarse() -> Iterator[None]:
    with coarse_grid():
        yield


def tail(scale: float, at: int) -> float:
    """P[N ≥ at] of the discrete Gaussian."""
    z = np.arange(-int(40 * scale), int(40 * scale) + 1)
    mass = np.exp(-0.5 * (z / scale) ** 2)
    return float(mass[z >= at].sum() / mass.sum())


def weight(keys: int) -> int:
    return math.isqrt(GRID * GRID // keys) if keys else 0


Weigh = Callable[[int], int]


def selected_sets(
    users: list[Keys],
    rounds: list[tuple[float, int]],
    hopeless: int | list[int],
    max_keys: int,
    weigh: Weigh = weight,
) -> dict[Named, float]:
    """The exact distribution of what each round selects. A user keeps its first keys in alphabetical order."""
    every = sorted(set().union(*users))
    least = [hopeless] * len(rounds) if isinstance(hopeless, int) else hopeless
    paths: dict[tuple[Keys, Named], float] = {
        (frozenset(every), ()): 1.0
    }  # open keys, and selected ones by round
    for number, (scale, threshold) in enumerate(rounds):
        last, after = number + 1 == len(rounds), {}
        for (open_, found), chance in paths.items():
            weights: Counter[str] = Counter()
            for keys in users:
                kept = sorted(keys & open_)[:max_keys]
                weights.update({key: weigh(len(kept)) for key in kept})
            ways = []
            for key in sorted(open_):
                # a key of weight 0 is in nobody's first keys, and not selected
                named = tail(scale, threshold - weights[key]) if weights[key] else 0.0
                stays = 0.0 if last else tail(scale, least[number] - weights[key]) - named
                ways.append({"named": named, "open": stays, "": 1 - stays - named})
            for states in itertools.product(*ways):
                passed = chance * math.prod(way[state] for way, state in zip(ways, states, strict=True))
                if passed:
                    some = list(zip(sorted(open_), states, strict=True))
                    left, one = (
                        frozenset(key for key, state in some if state == each) for each in ("open", "named")
                    )
                    after[left, (*found, one)] = after.get((left, (*found, one)), 0.0) + passed
        paths = after
    out: dict[Named, float] = {}
    for (_, found), chance in paths.items():
        out[found] = out.get(found, 0.0) + chance
    return out


def delta_between(one: dict[Named, float], other: dict[Named, float], epsilon: float) -> float:
    """The exact δ at ε, in both directions."""
    every = set(one) | set(other)

    def stick(p: dict[Named, float], q: dict[Named, float]) -> float:
        return sum(max(p.get(s, 0.0) - math.exp(epsilon) * q.get(s, 0.0), 0.0) for s in every)

    return max(stick(one, other), stick(other, one))


def neighbours(most: int) -> Iterator[tuple[list[Keys], Keys]]:
    """Other users, and one more: every split of its keys into new ones and ones that others share."""
    for keys in range(1, most + 1):
        mine = [f"k{i}" for i in range(keys)]
        for new in range(keys + 1):
            shared = mine[new:]
            for fans in (1, 2, 4):
                yield [frozenset({key}) for key in shared for _ in range(fans)], frozenset(mine)
            if len(shared) > 1:
                yield [frozenset(shared)] * 3, frozenset(mine)


EPSILON = Fraction(1)


@pytest.mark.parametrize("delta", [Fraction(1, 20), Fraction(1, 200)])
@pytest.mark.parametrize("max_keys", [1, 3])
def test_one_round_by_enumeration(delta: Fraction, max_keys: int) -> None:
    scale = Fraction(3 * GRID)
    threshold = weighted.least_threshold(delta, scale, max_keys)
    claimed = gdp_delta((NoisyVector(scale, GRID * GRID, max_keys),), EPSILON) + delta
    worst = max(
        delta_between(
            *(selected_sets(d, [(float(scale), threshold)], 0, max_keys) for d in (base, [*base, user])), 1.0
        )
        for base, user in neighbours(max_keys)
    )
    assert worst <= claimed
    assert worst >= float(delta) * 0.8  # the user's new keys reach what is claimed for them


@pytest.mark.parametrize(("hopeless", "max_keys"), [(2, 3), (12, 3), (2, 1), (12, 2)])
def test_two_rounds_by_enumeration(hopeless: int, max_keys: int) -> None:
    """With fewer weighed keys than users have, keys of weight 0 get noise too: who looks at them must not tell."""
    scales, delta = (Fraction(5 * GRID), Fraction(3 * GRID)), Fraction(1, 100)
    rounds = [(float(scale), weighted.least_threshold(delta, scale, max_keys)) for scale in scales]
    vectors = tuple(NoisyVector(scale, GRID * GRID, max_keys) for scale in scales)
    claimed = gdp_delta(vectors, EPSILON) + 2 * delta
    found = [
        delta_between(*(selected_sets(d, rounds, hopeless, max_keys) for d in (base, [*base, user])), 1.0)
        for base, user in neighbours(3)
    ]
    assert max(found) <= claimed
    assert max(found) >= float(delta)


def full_delta(threshold: int, scale: float, keys: int, new: int, epsilon: float) -> float:
    """Exact δ where noisy weights of shared keys are seen too: (1 − p^a) + p^a·H(ε − a·ln p), and its reverse."""
    w = weight(keys)
    p = 1 - tail(scale, threshold - w)
    z = np.arange(-int(12 * scale), int(12 * scale) + 1)
    mass = np.exp(-0.5 * (z / scale) ** 2)
    mass /= mass.sum()
    total, at = np.ones(1), np.zeros(1)
    for _ in range(keys - new):
        total = np.convolve(total, mass)
    at = np.arange(len(total)) - (len(total) - 1) // 2
    loss = (w * at + (keys - new) * w * w / 2) / scale**2  # of the sum of the noises

    def stick(level: float) -> float:
        return float(np.maximum(total * -np.expm1(np.minimum(level - loss, 0)), 0)[loss > level].sum())

    added = 1 - p**new + p**new * stick(epsilon - new * math.log(p))
    return max(added, stick(epsilon + new * math.log(p)))


@pytest.mark.parametrize("max_keys", [1, 2, 4])
def test_joint_map_by_enumeration_of_all_splits(max_keys: int) -> None:
    scale, delta = Fraction(9 * GRID, 2), Fraction(1, 1000)
    epsilon = Fraction(7, 10)
    threshold = weighted.least_joint_threshold(delta, scale, max_keys, epsilon)
    exact = [
        full_delta(threshold, float(scale), keys, new, float(epsilon))
        for keys in range(1, max_keys + 1)
        for new in range(keys + 1)
    ]
    assert max(exact) <= delta
    assert max(exact) >= 0.8 * delta  # not wasteful either
    # Adding both up would be 30 % over, or ask for a higher threshold.
    assert (
        weighted.least_threshold(
            delta - gdp_delta((NoisyVector(scale, GRID * GRID, max_keys),), epsilon), scale, max_keys
        )
        > threshold
    )


def test_joint_map_refuses_a_lower_threshold() -> None:
    scale, delta, epsilon = Fraction(9 * GRID, 2), Fraction(1, 1000), Fraction(7, 10)
    threshold = weighted.least_joint_threshold(delta, scale, 4, epsilon)
    assert weighted.joint_holds(threshold, scale, 4, epsilon, delta)
    low = threshold - 3 * GRID
    assert max(full_delta(low, float(scale), keys, keys, 0.7) for keys in (1, 2, 3, 4)) > delta
    assert not weighted.joint_holds(low, scale, 4, epsilon, delta)


def test_more_keys_than_stated_break_the_claim() -> None:
    """A user whose keys are not bounded to Δ: the threshold was made for fewer new keys."""
    scale, delta = Fraction(3 * GRID), Fraction(1, 20)
    threshold = weighted.least_threshold(delta, scale, 1)
    many = frozenset(f"k{i}" for i in range(6))
    found = delta_between(
        {(frozenset(),): 1.0},
        selected_sets([many], [(float(scale), threshold)], 0, 6),
        1.0,
    )
    assert found > delta * 2


def test_a_threshold_for_the_most_keys_alone_breaks_the_claim() -> None:
    """With little noise a user with one key is the worst: ρ at d = Δ alone is too low for it."""
    scale, delta, most = Fraction(GRID, 2), Fraction(1, 100), 4
    right = weighted.least_threshold(delta, scale, most)
    wrong = next(rho for rho in range(1, 200) if weighted._passing(rho, scale, most, most) <= delta)
    assert wrong < right
    found = delta_between(
        {(frozenset(),): 1.0},
        selected_sets([frozenset({"k"})], [(float(scale), wrong)], 0, most),
        1.0,
    )
    assert found > delta * 3 / 2


def test_weights_of_unbounded_norm_break_the_claim() -> None:
    """Every key gets a whole weight: the L2 norm is √d instead of 1."""
    scale, delta, most = Fraction(3 * GRID), Fraction(1, 50), 4
    threshold = weighted.least_threshold(delta, scale, most)
    claimed = gdp_delta((NoisyVector(scale, GRID * GRID, most),), EPSILON) + delta
    found = [
        delta_between(
            *(
                selected_sets(d, [(float(scale), threshold)], 0, most, lambda d: GRID)
                for d in (base, [*base, user])
            ),
            1.0,
        )
        for base, user in neighbours(most)
    ]
    assert max(found) > claimed


def test_weights_have_the_stated_norm() -> None:
    for keys in range(1, 200):
        squares = keys * weight(keys) ** 2
        assert squares <= GRID**2
    sensitivity = weighted.weight_sensitivity(100)
    assert sensitivity.l2_squared == GRID**2
    assert sensitivity.l0 == 100
    assert all(keys * weight(keys) <= sensitivity.l1 for keys in range(1, 101))


def delta_of_a_pass(others: int, scale: float, threshold: int, noise: list[float], epsilon: float) -> float:
    """Exact δ of metrics that share a selection: one key, one user more, and a count for each metric if selected."""
    loss, mass = np.zeros(1), np.ones(1)
    for each in noise:
        z = np.arange(-int(8 * each), int(8 * each) + 1)
        p = np.exp(-0.5 * (z / each) ** 2)
        loss = np.add.outer(loss, (z + 0.5) / each**2).ravel()
        mass = np.multiply.outer(mass, p / p.sum()).ravel()
    named = [tail(scale, threshold - GRID * users) if users else 0.0 for users in (others, others + 1)]

    def stick(before: float, after: float) -> float:
        """Outcomes: not selected, or selected with the counts, whose loss is ±loss by symmetry of the noise."""
        missed = max(1 - after - math.exp(epsilon) * (1 - before), 0.0)
        ratio = np.exp(epsilon - loss) * before
        return missed + float((mass * np.maximum(after - ratio, 0)).sum())

    return max(stick(named[0], named[1]), stick(named[1], named[0]))


def test_a_pass_of_two_metrics_by_enumeration() -> None:
    """Selection once and a count for each metric: the claim holds for all of them, and not with one left out."""
    scale, counts, delta = Fraction(8 * GRID), Fraction(5, 2), Fraction(1, 1000)
    threshold = weighted.least_threshold(delta, scale, 1)
    selection, count = NoisyVector(scale, GRID * GRID, 1), NoisyVector(counts, 1, 1)
    noise = [float(counts)] * 2
    found = max(delta_of_a_pass(n, float(scale), threshold, noise, 1.0) for n in (0, 1, 20, 90))
    assert found <= gdp_delta((selection, count, count), EPSILON) + delta
    assert found > gdp_delta((selection, count), EPSILON) + delta


def rounds_for(users: np.ndarray) -> int:
    """The rounds that these numbers of users by keys choose, with noise of scale 1."""
    ends = user_ends(8)
    return UserHistogram(ends, (*users.tolist(), *(0,) * (len(ends) - len(users))), Fraction(1)).rounds()


def chosen_rounds_delta(base: list[Keys], user: Keys, *, noisy: bool = True) -> tuple[float, float]:
    """The exact δ of noisy numbers of users by keys and of the rounds that these choose at ε = 2, and what is claimed.

    The numbers have ε = 1, and so has each number of rounds. Cells where nobody is tell nothing and are left out.
    Of the numbers only the rounds that they choose and their loss matter, which is 1 or −1 for one user more.
    """
    scales = {1: (3 * GRID,), 2: (5 * GRID, 4 * GRID), 3: (7 * GRID, 6 * GRID, 4 * GRID)}
    delta, most = Fraction(1, 50), 3
    claimed = max(
        gdp_delta(tuple(NoisyVector(Fraction(scale), GRID * GRID, most) for scale in each), EPSILON)
        for each in scales.values()
    )
    data = (base, [*base, user])
    sets = [
        {
            rounds: selected_sets(
                d,
                [(s, weighted.least_threshold(delta / len(each), Fraction(s), most)) for s in each],
                2,
                most,
            )
            for rounds, each in scales.items()
        }
        for d in data
    ]
    tallies = [tally_users(np.array([len(keys) for keys in d]), user_ends(8)).values[:3] for d in data]
    outcomes: list[dict[tuple[int, int, Named], float]] = [{}, {}]
    for drawn in itertools.product(range(-12, 13), repeat=3):
        seen = tallies[0] + np.array(drawn)
        away = [int(np.abs(seen - tally).sum()) for tally in tallies]
        rounds = rounds_for(seen)
        for i, out in enumerate(outcomes):
            chance = math.tanh(0.5) ** 3 * math.exp(-away[i])
            for found, p in sets[i][rounds].items() if noisy else ():
                at = rounds, away[1] - away[0], found
                out[at] = out.get(at, 0.0) + chance * p
    if not noisy:
        outcomes = [
            {(0, 0, found): p for found, p in each[rounds_for(tally)].items()}
            for each, tally in zip(sets, tallies, strict=True)
        ]
    return delta_between(*outcomes, 2.0), float(claimed + delta)  # type: ignore[arg-type]


# Users with one key have as many pairs as those with two, and one user more decides.
EVEN = [*[frozenset({"a"})] * 10, *[frozenset({"a", "b"})] * 5]


@pytest.mark.parametrize("user", ["c", "a", "bc", "abc"])
@pytest.mark.long
def test_rounds_chosen_by_noisy_numbers_of_users_by_enumeration(user: str) -> None:
    found, claimed = chosen_rounds_delta(EVEN, frozenset(user))
    assert found <= claimed


def test_rounds_chosen_far_from_the_change_reach_what_is_claimed() -> None:
    found, claimed = chosen_rounds_delta(EVEN[:10] * 2, frozenset("bcd"))
    assert 0.8 * claimed <= found <= claimed


def test_rounds_chosen_by_exact_numbers_of_users_break_the_claim() -> None:
    found, claimed = chosen_rounds_delta(EVEN, frozenset("c"), noisy=False)
    assert found > 2 * claimed

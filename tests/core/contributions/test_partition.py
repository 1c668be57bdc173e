"""Parts of the users: disjoint, complete, a function of the user alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hushgram.contributions.users import UserPart
from hushgram.errors import ParameterError


def test_every_user_is_in_exactly_one_part() -> None:
    users = pa.array([f"user-{n}" for n in range(5000)])
    kept = np.array([UserPart("views", 12, part).keep(users) for part in range(12)])
    assert (kept.sum(axis=0) == 1).all()
    # 5,000 users over 12 parts: a part is off by more than 120 with probability below 1e-7
    assert (abs(kept.sum(axis=1) - 5000 / 12) < 120).all()


def test_a_record_is_kept_by_its_own_user_alone() -> None:
    users = ["a", "b", "a", "c", "b"]
    part = UserPart("views", 3, 1)
    alone = [bool(part.keep([user])[0]) for user in users]
    assert part.keep(users).tolist() == alone
    assert part.keep([7, 8, 9]).tolist() == part.keep(["7", "8", "9"]).tolist()


def test_parts_of_two_data_sets_are_independent() -> None:
    users = [str(n) for n in range(4000)]
    one, other = UserPart("views", 2, 0).keep(users), UserPart("visits", 2, 0).keep(users)
    assert 850 < (one & other).sum() < 1150  # a thousand on average, standard deviation 27


def test_the_rule_never_changes() -> None:
    """A ledger relies on it for years: pinned."""
    users = ["ada", "bob", "cyd", "dan", "eve", "fay"]
    parts = [next(p for p in range(12) if UserPart("pageviews", 12, p).keep([user])[0]) for user in users]
    assert parts == PINNED


PINNED = [0, 10, 1, 7, 8, 1]


@pytest.mark.parametrize(("modulo", "part"), [(1, 0), (0, 0), (4, 4), (4, -1), (2, True), (1 << 21, 0)])
def test_wrong_parts(modulo: int, part: int) -> None:
    with pytest.raises(ParameterError):
        UserPart("views", modulo, part)


@pytest.mark.parametrize("name", ["north", "part 1 of", "part 3 of 2", "part -1 of 2", "", "part 1 of 2 "])
def test_names_that_are_no_parts(name: str) -> None:
    with pytest.raises(ParameterError):
        UserPart.parse("views", name)

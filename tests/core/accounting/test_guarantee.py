"""One sentence for every unit, relation and bound."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from hushgram.accounting import Event, Guarantee
from hushgram.errors import ParameterError

ONE = (Event("laplace", Fraction(1)),)
MIXED = (Event("size", Fraction(1, 50)), Event("threshold", Fraction(49, 50), Fraction(1, 10**6)))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "The result is 1-differentially private for one user added or removed."),
        (
            {"max_contributions": 8, "max_per_key": 2},
            "The result is 1-differentially private for one user added or removed, where each user counts at most 8 "
            "in all and 2 for one key.",
        ),
        (
            {"max_contributions": 8, "subject": "All answers together are"},
            "All answers together are 1-differentially private for one user added or removed, where each user counts "
            "at most 8 in all.",
        ),
        (
            {"parts": MIXED},
            "The result is (1, 0.000001)-differentially private for one user added or removed.",
        ),
        (
            {"unit": "record", "max_contributions": 1, "max_per_key": 1},
            "The result is 1-differentially private for one record added or removed.",
        ),
        (
            {"unit": "record", "relation": "secret bits changed", "parts": (*ONE, *ONE)},
            "The result is 2-locally differentially private for the secret bits of one record changed (1 for each "
            "bit); public columns and the number of records are not protected.",
        ),
    ],
)
def test_sentence(fields: dict[str, Any], sentence: str) -> None:
    guarantee = Guarantee(**{"parts": ONE, **fields})
    assert guarantee.sentence() == sentence
    assert guarantee.as_json()["words"] == sentence


def test_a_record_is_never_called_a_user() -> None:
    guarantee = Guarantee(MIXED, unit="record", max_contributions=3, max_per_key=1)
    told = f"{guarantee.sentence()} {guarantee.meaning()} {guarantee.as_json()}"
    assert "user" not in told


def test_parts_add_up() -> None:
    events = [Event("threshold", "0.5", "1e-6"), Event("alp", "0.25"), Event("laplace", "0.25", "1e-6")]
    guarantee = Guarantee.of(events, unit="user")
    assert (guarantee.epsilon, guarantee.delta) == (Fraction(1), Fraction(2, 10**6))
    assert [part.kind for part in guarantee.parts] == ["threshold", "alp", "laplace"]


def test_meaning_says_what_delta_is() -> None:
    assert Guarantee(MIXED).meaning() == (
        "Whether any one user is in the data or not changes the probability of any output by a factor of at most "
        "e^1, except with probability 0.000001."
    )
    assert "what the secret bits" in Guarantee(ONE, "record", "secret bits changed").meaning().lower()


@pytest.mark.parametrize("wrong", [{"unit": "person"}, {"relation": "replaced"}])
def test_unknown_unit_or_relation_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="must be one of"):
        Guarantee(ONE, **wrong)

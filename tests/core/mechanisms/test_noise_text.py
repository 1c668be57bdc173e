"""The text of parameters that noise is derived from: another text would be other noise under the same key."""

from __future__ import annotations

from typing import Any

import pytest

from hushgram.mechanisms.clipping import ClipParams
from hushgram.mechanisms.pmw.mechanism import OfflineParams, PmwParams
from hushgram.mechanisms.selection import SelectionParams
from hushgram.numbers import stated_text

TEXTS: dict[str, Any] = {
    "PmwParams(epsilon=Fraction(1, 3), delta=Fraction(0, 1), max_contributions=1, max_updates=10, queries=20000, "
    "threshold=None, total=None, replay=1, eta=Fraction(1, 20), variant='optimal')": PmwParams("1/3", max_updates=10),
    "OfflineParams(epsilon=Fraction(1, 1), delta=Fraction(0, 1), max_contributions=1, rounds=2, total=50, replay=4, "
    "stop=Fraction(5, 2))": OfflineParams(1, rounds=2, total=50, stop="2.5"),
    "SelectionParams(epsilon=Fraction(1, 2), delta=Fraction(0, 1), sensitivity=1, count=3, monotone=True, "
    "mechanism='permute_and_flip')": SelectionParams("1/2", count=3, monotone=True),
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_is_stated_and_was_the_representation(text: str) -> None:
    assert TEXTS[text].noise_text == text == repr(TEXTS[text])


@pytest.mark.parametrize("grid", [{"grid": "linear", "step": 10, "stop": 100}, {"stop": 100, "ratio": 2}])
def test_clip(grid: Any) -> None:
    params = ClipParams(epsilon="1/3", **grid)
    assert params.noise_text == repr(params.describe())
    step = "'grid': 'linear', 'step': '10'" if "step" in grid else "'grid': 'exponential', 'ratio': '2'"
    assert params.noise_text.startswith(
        "{'epsilon': '1/3', 'start': '1', 'stop': '100', 'lower': '0', 'granularity': '1', 'max_contributions': 1, "
        + step
    )


def test_other_values_have_no_text() -> None:
    with pytest.raises(AssertionError, match="no text is stated for float"):
        stated_text(0.5)

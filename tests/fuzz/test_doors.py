"""Some seconds at each door (HUSHGRAM_FUZZ_SECONDS, 2 unless said); `make fuzz` stays longer."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.__main__ import knock
from tests.fuzz.doors import DOORS


@pytest.mark.parametrize("door", DOORS)
def test_only_our_own_errors(door: str) -> None:
    seconds = float(os.environ.get("HUSHGRAM_FUZZ_SECONDS", "2"))
    done, finds = knock(
        door, 10_000_000, seconds, seed=1
    )  # a test finds the same every time; make fuzz goes on
    assert not finds, "\n".join(finds)
    assert done > 0

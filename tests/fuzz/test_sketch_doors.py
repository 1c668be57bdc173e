"""The doors of sketches, in a file of their own: test files run side by side."""

from __future__ import annotations

import pytest

from tests.fuzz.__main__ import stay
from tests.fuzz.doors import DOORS

pytestmark = pytest.mark.long


@pytest.mark.parametrize("door", [door for door in DOORS if door.startswith("sketch")])
def test_only_our_own_errors(door: str) -> None:
    stay(door)
